import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.logs.intervals import covered, union

interval = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1]))


def bits(intervals):
    busy = np.zeros(100, dtype=bool)
    for start, end in intervals:
        busy[start:end] = True
    return busy


@given(st.lists(interval), st.lists(interval))
def test_unions_and_overlaps_are_those_of_a_row_of_bits(some, others):
    joined = union(*zip(*some, strict=True)) if some else union([], [])
    assert np.sum(joined[1] - joined[0]) == bits(some).sum()
    if others:
        lengths = covered(*zip(*others, strict=True), *joined)
        expected = [(bits(some) & bits([other])).sum() for other in others]
        assert np.allclose(lengths, expected)
