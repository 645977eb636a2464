import gzip
import json

import pytest
import zstandard

import perfmodel as pm
from perfmodel.errors import LogFormatError
from perfmodel.logs import json_stream


def event(cat, name, ts, dur, tid=1, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def launched(kernel, launch_ts, correlation):
    name, ts, dur, args = kernel
    return [
        event("cuda_runtime", "cudaLaunchKernel", launch_ts, 1, correlation=correlation),
        event("kernel", name, ts, dur, tid=7, correlation=correlation, **args),
    ]


ALLREDUCE = {
    "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float",
    "Group size": 4,
}  # fmt: skip
GATHER = {
    "Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 40,
    "dtype": "BFloat16", "Group size": 4,
}  # fmt: skip


@pytest.fixture
def trace():
    """Two steps. In the first, 40 µs of compute, 30 µs of allreduce of which 20 are exposed."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        event("user_annotation", "ProfilerStep#3", 1000.0, 100.0),
        event("gpu_user_annotation", "ProfilerStep#3", 1010.0, 90.0),
        *launched(("gemm", 1020.0, 30.0, {}), 1001, 1),
        # Overlaps the one before: together they run for 40 µs.
        *launched(("gemm", 1040.0, 20.0, {}), 1002, 2),
        *launched(("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 1050.0, 30.0, ALLREDUCE), 1003, 3),
        event("user_annotation", "ProfilerStep#4", 1100.0, 120.25),
        # Launched in step 3, runs in step 4.
        *launched(("ncclKernel_AllGather_TREE_SIMPLE_Sum_int8_t(x)", 1110.0, 5.5, GATHER), 1099, 4),
        event("user_annotation", "nccl:all_to_all", 1101.0, 10.0, tid=9),
        event("cuda_runtime", "cudaLaunchKernel", 1105.0, 1, tid=9, correlation=5),
        event("kernel", "ncclDevKernel_SendRecv(x)", 1120.0, 7.0, tid=8, correlation=5),
    ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}, {"id": 1, "name": "NVIDIA H100"}],
        "distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 8, "pg_count": 3},
        "baseTimeNanoseconds": 1735632360000000000,
        "traceEvents": events,
        "traceName": "x.json",
    }


def read(tmp_path, content, name="trace.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return pm.read_logs(path)


def test_steps_with_compute_and_exposed_communication(tmp_path, trace):
    steps = read(tmp_path, trace).steps
    assert steps["step_time_s"].tolist() == pytest.approx([100e-6, 120.25e-6])
    assert steps["repetition"].tolist() == [3, 4]
    assert steps["compute_time_s"].tolist() == pytest.approx([40e-6, 0])
    # 20 µs of the allreduce, the whole gather (launched in step 3); then the all-to-all.
    assert steps["exposed_communication_time_s"].tolist() == pytest.approx([25.5e-6, 7e-6])
    assert set(steps["n_gpus"]) == {8}
    assert set(steps["rank"]) == {2}
    assert set(steps["device_type"]) == {"NVIDIA H100"}
    assert steps["timestamp_s"].tolist()[0] == pytest.approx(1735632360.001, abs=1e-6)
    assert set(steps["clock"]) == {"unix"}


def test_collective_kernels_with_bytes_as_nccl_tests_counts(tmp_path, trace):
    m = read(tmp_path, trace)
    rows = m.collectives
    assert rows["collective"].tolist() == ["all_reduce", "all_gather", "all_to_all"]
    assert rows["message_bytes"].tolist()[:2] == [4000, 80]
    assert rows["time_s"].tolist() == pytest.approx([30e-6, 5.5e-6, 7e-6])
    assert rows["n_ranks"].tolist()[:2] == [4, 4]
    # Three groups: which one the all-to-all runs in is not said.
    assert rows["n_ranks"].isna().tolist() == [False, False, True]
    assert rows["algorithm"].tolist()[:2] == ["RING", "TREE"]
    assert rows["protocol"].tolist()[:2] == ["LL", "SIMPLE"]
    assert "message_bytes of 1 collectives not known" in m.sources["inferred"].iloc[0]


def test_one_group_is_the_world_and_this_is_said(tmp_path, trace):
    trace["distributedInfo"]["pg_count"] = 1
    m = read(tmp_path, trace)
    assert m.collectives["n_ranks"].tolist() == [4, 4, 8]
    assert "world size" in m.sources["inferred"].iloc[0]


def test_a_trace_without_device_or_group_is_read_for_its_steps(tmp_path):
    events = [event("user_annotation", "ProfilerStep#1", 5, 10), event("cpu_op", "aten::mm", 6, 1)]
    steps = read(tmp_path, {"schemaVersion": 1, "traceEvents": events}).steps
    assert steps["step_time_s"].tolist() == pytest.approx([10e-6])
    assert not {"compute_time_s", "n_gpus", "rank", "timestamp_s"} & set(steps)


@pytest.mark.parametrize(
    ("kernel", "collective"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(a)", "reduce_scatter"),
        ("void ncclDevKernel_Broadcast_RING_LL(a)", "broadcast"),
        ("ncclDevKernel_SendRecv(a)", "send_recv"),
    ],
)
def test_names_of_kernels(tmp_path, kernel, collective):
    m = read(tmp_path, {"traceEvents": [event("kernel", kernel, 5, 10)]})
    assert m.collectives["collective"].tolist() == [collective]


def test_a_generic_kernel_is_told_by_its_arguments_or_skipped(tmp_path):
    generic = [event("kernel", "ncclDevKernel_Generic_1(a)", 5, 10, **ALLREDUCE),
               event("kernel", "ncclDevKernel_Generic_1(a)", 25, 10)]  # fmt: skip
    m = read(tmp_path, {"traceEvents": generic})
    assert m.collectives["collective"].tolist() == ["all_reduce"]
    assert "does not tell its collective" in m.sources["first_skipped_reason"].iloc[0]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_traces_whole_and_cut(tmp_path, trace, suffix):
    whole = read(tmp_path, trace)
    data = json.dumps(trace).encode()
    packed = gzip.compress(data) if suffix == ".gz" else zstandard.compress(data)
    again = read(tmp_path, packed, f"trace.json{suffix}")
    assert again.steps.drop(columns="source_file").equals(whole.steps.drop(columns="source_file"))
    try:
        cut = read(tmp_path, packed[:-20], f"cut.json{suffix}")
    except LogFormatError as error:
        assert "cut" in str(error) or "no log" in str(error) or "empty" in str(error)
    else:
        assert "cut or damaged" in cut.sources["first_skipped_reason"].iloc[0]


def test_what_is_whole_of_a_cut_trace_counts(tmp_path, trace):
    text = json.dumps(trace, indent=1)
    end = text.index('"ncclDevKernel_SendRecv')
    m = read(tmp_path, text[:end].encode())
    assert len(m.steps) == 2
    assert m.collectives["collective"].tolist() == ["all_reduce", "all_gather"]
    assert m.sources["lines_skipped"].iloc[0] == 1
    # With a comma behind the last event, without a bracket.
    end = text.rindex("},", 0, text.index("ProfilerStep#4"))
    assert len(read(tmp_path, text[: end + 2].encode()).steps) == 1


@pytest.mark.parametrize("block", [64, 300, 1000])
def test_blocks_do_not_change_what_is_read(tmp_path, trace, block, monkeypatch):
    trace["traceEvents"][3]["args"]["stack"] = [{"a": "}, {"}, {"b": '\\"}]}, {'}]
    whole = read(tmp_path, trace)
    monkeypatch.setattr(json_stream, "_BLOCK", block)
    again = read(tmp_path, trace)
    assert again.steps.equals(whole.steps)
    assert again.collectives.equals(whole.collectives)
    assert again.sources.equals(whole.sources)


def test_numbers_that_json_has_not_and_broken_events(tmp_path, trace):
    text = json.dumps(trace).replace(
        '"correlation": 1', '"x": NaN, "y": -Infinity, "correlation": 1'
    )
    m = read(tmp_path, text.encode())
    assert m.steps["compute_time_s"].tolist() == pytest.approx([40e-6, 0])
    broken = json.dumps(trace).replace('"gemm", "pid"', '"gemm" "pid"', 1)
    m = read(tmp_path, broken.encode())
    assert len(m.steps) == 2
    assert m.sources["first_skipped_reason"].iloc[0] == "an object in the JSON cannot be decoded"


def test_a_trace_without_steps_and_collectives_is_refused(tmp_path):
    with pytest.raises(LogFormatError, match="a trace of 1 events without ProfilerStep"):
        read(tmp_path, {"traceEvents": [event("cpu_op", "aten::mm", 6, 1)]})


def test_real_traces_agree_with_plain_json(cases):
    path = cases / "kineto" / "hta__df_index_resolver__df_index_resolver.json.gz"
    m = pm.read_logs(path)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = [e["dur"] for e in events if "ProfilerStep" in str(e.get("name")) and e["ph"] == "X"]
    assert m.steps["step_time_s"].tolist() == pytest.approx([dur * 1e-6 for dur in steps])
    kernels = [e["dur"] for e in events if e.get("cat") == "kernel" and "nccl" in e["name"]]
    assert m.collectives["time_s"].tolist() == pytest.approx([dur * 1e-6 for dur in kernels])
