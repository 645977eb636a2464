import json

import pytest

import perfmodel as pm
from perfmodel.errors import LogFormatError


def negotiation(ts, pid, ranks):
    ticks = [{"ph": "X", "name": str(r), "ts": ts + r, "pid": pid, "dur": 0} for r in ranks]
    return [{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": ts, "pid": pid}, *ticks,
            {"ph": "E", "ts": ts + 10, "pid": pid}]  # fmt: skip


def operation(ts, pid, inner, args):
    events = [{"ph": "B", "name": "ALLREDUCE", "ts": ts, "pid": pid}]
    for name, start, end in inner:
        events += [{"ph": "B", "name": name, "ts": ts + start, "pid": pid},
                   {"ph": "E", "ts": ts + end, "pid": pid}]  # fmt: skip
    return [*events, {"ph": "E", "ts": ts + 100, "pid": pid, "args": args}]


SHAPE = {"dtype": "float32", "shape": "[10, 25]"}
EVENTS = [
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "w"}},
    *negotiation(1000, 1, [1, 0, 2]),
    *operation(2000, 1, [("QUEUE", 1, 5), ("NCCL_ALLREDUCE", 10, 60)], SHAPE),
    *negotiation(3000, 2, [0, 2, 1]),
    *operation(4000, 2, [("MEMCPY_IN_FUSION_BUFFER", 1, 5), ("MPI_ALLREDUCE", 10, 30)], SHAPE),
    *operation(5000, 3, [], {"dtype": "float16", "shape": "[]"}),
]


def read(tmp_path, text):
    (tmp_path / "timeline.json").write_text(text)
    return pm.read_logs(tmp_path / "timeline.json")


@pytest.mark.parametrize("end", ["]", "", ",\n"])
def test_transfers_with_and_without_a_closing_bracket(tmp_path, end):
    text = "[\n" + ",\n".join(json.dumps(event) for event in EVENTS) + end
    rows = read(tmp_path, text).collectives
    assert rows["time_s"].tolist() == pytest.approx([50e-6, 20e-6, 100e-6])
    assert rows["algorithm"].tolist()[:2] == ["NCCL_ALLREDUCE", "MPI_ALLREDUCE"]
    # A tensor in a fusion buffer is not all that was sent.
    assert rows["message_bytes"].tolist()[::2] == [1000, 2]
    assert rows["message_bytes"].isna().tolist() == [False, True, False]
    assert set(rows["n_ranks"]) == {3}
    assert rows["timestamp_s"].tolist() == pytest.approx([1010e-6, 3010e-6, 4000e-6])


def test_ranks_that_did_not_all_report_are_not_counted(tmp_path):
    events = [*negotiation(1000, 1, [2, 3, 0]), *operation(2000, 1, [], SHAPE)]
    m = read(tmp_path, json.dumps(events))
    assert "n_ranks" not in m.collectives
    assert "rank count not known" in m.sources["inferred"].iloc[0]


def test_operations_without_end_are_counted_or_refused(tmp_path):
    m = read(tmp_path, json.dumps([*EVENTS, {"ph": "B", "name": "BROADCAST", "ts": 9, "pid": 9}]))
    assert m.sources["lines_skipped"].tolist() == [1]
    with pytest.raises(LogFormatError, match="without a finished operation"):
        read(tmp_path, json.dumps(EVENTS[:3]))
