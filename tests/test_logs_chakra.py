import json

import pytest

import perfmodel as pm
from perfmodel.errors import LogFormatError


def tensor(elements, each):
    return [1, 2, 0, elements, each, "cuda:0"]


def new_node(name, values, outputs=(), **attributes):
    attrs = [{"name": key, "type": "x", "value": value} for key, value in attributes.items()]
    return {
        "id": 1,
        "name": name,
        "inputs": {"values": values},
        "outputs": {"values": list(outputs)},
        "attrs": attrs,
    }


def old_node(name, inputs, outputs=()):
    return {"name": name, "id": 1, "inputs": inputs, "input_types": [], "outputs": list(outputs)}


GROUPS = json.dumps([{"pg_name": "0", "group_size": 16}, {"pg_name": "1", "ranks": [0, 1]}])


def execution_trace():
    call = "record_param_comms"
    reduce = {"collective_name": "allreduce", "dtype": "Float", "pg_name": "0"}
    gather = {"collective_name": "_allgather_base", "dtype": "BFloat16", "pg_name": "1"}
    splits = [8, 8, 8]
    nodes = [
        new_node("## process_group:init ##", [GROUPS]),
        new_node("aten::mm", [tensor(5, 4)]),
        new_node(call, [[tensor(100, 4)], 7, ["0", "default"], 0, "allreduce", [], [], 0, 1, 16],
                 **reduce, in_msg_nelems=100, out_msg_nelems=100),
        new_node(call, [[tensor(10, 2)], 8, ["1", ""], 0, "_allgather_base", [], [], 0, 1, 2],
                 **gather, in_msg_nelems=10, out_msg_nelems=20),
        new_node(call, [8, ["1", ""], 0, "wait", [], []]),
        # Older: no attributes, a world size at the end; or no world size but splits.
        new_node(call, [[tensor(3, 4)], 12, 82, 0, "all_gather", [], [], 2],
                 [[[tensor(3, 4), tensor(3, 4)]]]),
        old_node(call, [tensor(24, 8), 14, 93, 2, "all_to_allv", splits, splits], [tensor(24, 8)]),
        old_node(call, [tensor(6, 4), 15, 93, 2, "reduce_scatter", [], []], [tensor(2, 4)]),
    ]  # fmt: skip
    return {"schema": "1.1.0-chakra.0.0.4", "pid": 1, "time": "x", "nodes": nodes, "finish_ts": 3}


@pytest.fixture
def trace():
    return execution_trace()


def chakra_node(kind, size, micros):
    attr = [{"name": "comm_type", "int64Val": kind}, {"name": "comm_size", "uint64Val": size}]
    return {"id": "1", "type": "COMM_COLL_NODE", "durationMicros": micros, "attr": attr}


def chakra_text():
    parts = [{"version": "0.0.4"}, {"id": "0", "type": "COMP_NODE"}]
    parts += [chakra_node("0", "4096", "50"), chakra_node("2", "8", 0)]
    return "\n".join(json.dumps(part, indent=2) for part in parts)


def read(tmp_path, text):
    (tmp_path / "et.json").write_text(text if isinstance(text, str) else json.dumps(text))
    return pm.read_logs(tmp_path / "et.json")


def test_collectives_of_all_generations_without_times(tmp_path, trace):
    m = read(tmp_path, trace)
    rows = m.collectives
    names = ["all_reduce", "all_gather", "all_gather", "all_to_all", "reduce_scatter"]
    assert rows["collective"].tolist() == names
    assert rows["message_bytes"].tolist() == [400, 40, 24, 192, 24]
    assert rows["n_ranks"].tolist()[:4] == [16, 2, 2, 3]
    assert rows["n_ranks"].isna().tolist()[4]
    assert "time_s" not in rows
    assert "no durations" in m.sources["inferred"].iloc[0]


def test_what_is_whole_of_a_cut_trace_counts(tmp_path, trace):
    text = json.dumps(trace)
    m = read(
        tmp_path,
        text[
            : text.index('"_allgather_base", "type"')
            if '"_allgather_base", "type"' in text
            else text.rindex("all_to_allv")
        ],
    )
    assert m.collectives["collective"].tolist()[0] == "all_reduce"
    assert m.sources["lines_skipped"].iloc[0] == 1


def test_a_trace_without_collectives_is_refused(tmp_path, trace):
    trace["nodes"] = trace["nodes"][:2]
    with pytest.raises(LogFormatError, match="2 nodes that starts no collective"):
        read(tmp_path, trace)


def test_chakra_as_json(tmp_path):
    m = read(tmp_path, chakra_text())
    rows = m.collectives
    assert rows["collective"].tolist() == ["all_reduce", "all_gather"]
    assert rows["message_bytes"].tolist() == [4096, 8]
    assert rows["time_s"].tolist()[0] == pytest.approx(50e-6)
    assert rows["time_s"].isna().tolist() == [False, True]
