"""Unions and differences of intervals of time, as arrays."""

import numpy as np


def union(starts, ends):
    """Disjoint intervals, sorted, that cover the same: arrays (starts, ends).

    Examples
    --------
    >>> [bounds.tolist() for bounds in union([0, 5, 1], [2, 6, 3])]
    [[0.0, 5.0], [3.0, 6.0]]
    """
    starts, ends = np.asarray(starts, dtype=float), np.asarray(ends, dtype=float)
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return starts[first], reach[last]


def covered(starts, ends, union_starts, union_ends):
    """Length that a union covers of each interval: array of the intervals' shape."""
    if not len(union_starts):
        return np.zeros(len(starts))
    lengths = np.concatenate([[0.0], np.cumsum(union_ends - union_starts)])

    def until(times):
        """Length of the union before each time."""
        i = np.searchsorted(union_starts, times, side="right")
        inside = (
            np.minimum(times, union_ends[np.maximum(i - 1, 0)]) - union_starts[np.maximum(i - 1, 0)]
        )
        return np.where(i > 0, lengths[np.maximum(i - 1, 0)] + inside, 0.0)

    return until(np.asarray(ends, dtype=float)) - until(np.asarray(starts, dtype=float))
