"""Real logs of others against what a right reading of them gives.

Where the manifest says what is right, it decides. Where it does not, the file was read by hand (or
with a few lines of plain JSON) and what it holds is written down here.
"""

import csv
import gzip
import json
import os
import re
import tarfile
import warnings
from pathlib import Path

import pytest
from conftest import ROOT

import perfmodel as pm
from perfmodel.errors import LogFormatError

FOLDER = Path(os.environ.get("PERFMODEL_CASES", ROOT.parent / "shared" / "cases"))
KINDS = (
    *("nccl-tests", "osu-imb", "kineto", "mlperf-training", "horovod", "exec-trace"),
    *("nccl-debug", "issue-samples"),
)
# Files without measurements of these tools: a right reading refuses them.
REFUSED = {
    "nccl-tests/perlmutter_podman-nccl-tests-30743802.out": "a debug log of NCCL",
    "nccl-tests/sparticlesteve_analyze_benchmark.ipynb": "none of nccl-tests'",
    "nccl-tests/aws_trn_nccom_test.md": r":26: a table with the columns size\(B\) count\(elems\)",
    "nccl-tests/cscs_nvshmem_perf.md": r"a table with the columns size\(B\) count type scope",
    "nccl-tests/gcp_a3mega_masked_README": "line 38: no numbers: XXXXX",
    "nccl-tests/gcp_a3ultra_readme.md": "line 41: no numbers: XXXXX",
    # Tuning summaries and settings of Open MPI: no benchmark, no collective is named.
    "osu-imb/cloudlab_emulab-d710__allreduce__allreduce.txt": "no log of a format known",
    "osu-imb/ompi_coltune_detail.out": "no log of a format known",
    "osu-imb/ompi_coltune_best.out": "no log of a format known",
    "osu-imb/ompi_coltune_decision.file": "no log of a format known",
    "osu-imb/ompi_coltune_config": "no log of a format known, but a configuration",
    "exec-trace/param____init__.py": "empty file",
    "exec-trace/hta__execution_trace__benchmark_simple_add_et.json.gz": "38 nodes that starts no",
    "exec-trace/param__linear_et.json.gz": "931 nodes that starts no",
    "exec-trace/param__hf_GPT2_et.json.tar.gz": "27156 nodes that starts no",
    "exec-trace/param__pt2_et.json.tar.gz": "20 nodes that starts no",
    "issue-samples/nvidia_smi_dmon_pucvmet.txt": "no log of a format known",
    "issue-samples/sacct_energy.txt": "no log of a format known",
    "issue-samples/dcgm_exporter_mig.prom": "no log of a format known",
    "issue-samples/nccl_tuning_table_info.txt": "a debug log of NCCL",
}
# Where the manifest is silent or short, what was read by hand: rows by collective, both halves of
# nccl-tests counted; and the rank count, where the file tells it.
ROWS = {
    "nccl-tests/mlperf_google_h200_n8_nemo_nccl_embedded.txt": ({"all_reduce": 2}, 64),
    "nccl-tests/mlperf_google_h200_nemo_nccl_embedded.txt": ({"all_reduce": 2}, 8),
    "nccl-tests/found_h200_2node_bf3_alldtypes_nccl2.30.txt": ({"all_reduce": 72}, 16),
    "nccl-tests/found_h200_2node_bf3_allreduce_nccl2.30.txt": ({"all_reduce": 50}, 16),
    "osu-imb/cscs_alps_osu_bw_host_and_cuda.md": ({"send_recv": 138, "all_to_all": 84}, None),
    "osu-imb/imb_juno_IMB-MPI1_internode.txt": (
        {"send_recv": 72, "all_reduce": 22, "reduce": 22, "reduce_scatter": 22, "all_gather": 24,
         "gather": 24, "scatter": 24, "all_to_all": 24, "broadcast": 24}, 2),
    "osu-imb/imb_azure_doc.md": ({"all_reduce": 6}, 1408),
    "osu-imb/imb_azure_slurm_lustre.md": ({"send_recv": 24}, 2),
    "osu-imb/imb_azure_simple_hpc_slurm.md": ({"send_recv": 24}, 2),
    "exec-trace/param__1.1.0-chakra.0.0.4__resnet_2gpu_et.json.gz": (
        {"broadcast": 6, "all_reduce": 15}, 2),
    "exec-trace/param__resnet_et.json.gz": ({"broadcast": 6, "all_reduce": 15}, 1),
    "exec-trace/param__dlrm_pytorch_et.tar.gz": ({"all_to_all": 40, "all_reduce": 24}, None),
    "exec-trace/chakra__1.0.2-chakra.0.0.4.tgz": ({"all_gather": 10}, 2),
    "horovod/horovod_timeline_12ranks_excerpt.json": ({"broadcast": 2}, None),
    "issue-samples/gb200_nvl72_72gpu.txt": ({"all_reduce": 10}, 72),
    "issue-samples/rccl_mi250_slingshot_allgather_label.txt": ({"all_gather": 12}, 32),
    "issue-samples/rccl_algo_proto_nchannels.txt": ({"all_reduce": 6}, 16),
}  # fmt: skip
# steps (number, first throughput), samples or epochs and seconds until the target
TRAINING = {
    "mlperf-training/Oracle_results_64xBM_GPU_H100_8_llama2_70b_lora_result_0_txt.txt": (
        5, 14.440106433842278, 3072, 272.114),
    "mlperf-training/Dell_results_8xXE9680x8H100_SXM_80GB_POWER_llama2_70b_lora_result_0_txt.txt": (
        5, 14.458956104166978, 3072, 293.927),
    "nccl-debug/mlperf_Azure_results_ND96amsr_A100_v4_n9_mxnet_unet3d_result_0_txt.txt": (
        104, 1573.406263230006, 2060, 202.548),
    "nccl-debug/mlperf_Dell_results_2xXE8640x4H100_SXM_80GB_bert_result_0_txt.txt": (
        19, 7536.525977278724, 2700118, 370.693),
    # This one counts its passes over the data as 1 throughout: what was needed is not in it.
    "nccl-debug/mlperf_Dell_results_DSS8440x8A100_PCIE_40GB_bert_result_0_txt.txt": (
        0, None, None, 3983.949),
}  # fmt: skip
NAMES = {"allreduce": "all_reduce", "bcast": "broadcast", "broadcast": "broadcast",
         "allgather": "all_gather", "alltoall": "all_to_all", "latency": "send_recv",
         "bibw": "send_recv", "sendrecv": "send_recv"}  # fmt: skip


def manifest():
    if not (FOLDER / "manifest.csv").is_file():
        return [pytest.param(None, marks=pytest.mark.skip(f"no {FOLDER}: set PERFMODEL_CASES"))]
    with open(FOLDER / "manifest.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] in KINDS]
    return [pytest.param(row, id=row["file"]) for row in rows]


@pytest.mark.parametrize("case", manifest())
def test_a_case_is_read_right(case):
    path, name = FOLDER / case["file"], case["file"]
    if name in REFUSED:
        with pytest.raises(LogFormatError, match=REFUSED[name]):
            pm.read_logs(path)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = pm.read_logs(path)
    if name in TRAINING:
        training(m, *TRAINING[name])
    elif name in ROWS:
        counts, n_ranks = ROWS[name]
        assert m.collectives.groupby("collective").size().to_dict() == counts
        if n_ranks is not None:
            assert set(m.collectives["n_ranks"]) == {n_ranks}
    elif case["kind"] == "nccl-tests":
        sections(m, case["expected"])
    elif case["kind"] == "osu-imb":
        two_columns(m, path)
    elif case["kind"] == "kineto":
        plain_json(m, path)
    else:
        pytest.fail("nobody wrote down what this file holds")
    if path.suffix not in (".gz", ".tgz", ".json"):
        every_row_is_in_the_file(m, path)


def training(m, n_steps, throughput, work, seconds):
    assert len(m.steps) == n_steps
    if n_steps:
        assert m.steps["throughput_samples_per_s"].iloc[0] == throughput
    end = m.convergence.iloc[0]
    assert end["time_to_target_s"] == pytest.approx(seconds, abs=1e-9)
    assert end.get("samples_to_target", end.get("epochs_to_target")) == work


def sections(m, expected):
    """The manifest's own words: name of the test, rows, the last one, rows that are torn."""
    rows = m.collectives[~m.collectives["in_place"]]
    parts = [part for part in re.split(r"\|\||(?=\d+ section)", expected) if "rows=" in part]
    start = 0
    for part in parts:
        part = part.split("section(s): ")[-1].strip()
        count = int(re.search(r"rows=(\d+)", part)[1])
        section = rows.iloc[start : start + count]
        start += count
        if not count:
            continue
        named = re.match(r"(\w+):", part)
        if named:
            ours = {"alltoall": "all_to_all", "sendrecv": "send_recv"}.get(named[1], named[1])
            assert set(section["collective"]) == {ours}
        size, time_us, alg, bus = re.search(
            r"last (\d+)B oop t=([\d.]+)us alg=([\d.]+) bus=([\d.]+)", part
        ).groups()
        last = section.iloc[-1]
        assert last["message_bytes"] == int(size)
        assert last["time_s"] == pytest.approx(float(time_us) * 1e-6, rel=1e-12)
        assert last["algorithm_bandwidth_bytes_per_s"] == pytest.approx(float(alg) * 1e9)
        assert last["bus_bandwidth_bytes_per_s"] == pytest.approx(float(bus) * 1e9)
    assert len(rows) == start
    torn = re.search(r"unparsed_rows=(\d+)", expected)
    assert m.sources["lines_skipped"].sum() == (int(torn[1]) if torn else 0)


def two_columns(m, path):
    """OSU's own output: a size and a number, perhaps more, on every line that is not a comment."""
    lines = [line.split() for line in path.read_text().splitlines() if line[:1].isdigit()]
    rows = m.collectives
    stem = path.stem.split("__")[-1].removesuffix("-ignore")
    key = next(key for key in NAMES if key in stem.replace("osu-", "") or key in path.stem)
    assert set(rows["collective"]) == {NAMES[key]}
    per_peer = NAMES[key] in ("all_gather", "all_to_all")
    size = "message_bytes_logged" if per_peer else "message_bytes"
    assert rows[size].tolist() == [int(line[0]) for line in lines]
    assert not (per_peer and "message_bytes" in rows)
    if key == "bibw":
        rate = rows["algorithm_bandwidth_bytes_per_s"]
        assert rate.tolist() == pytest.approx([float(line[1]) * 1e6 for line in lines])
    else:
        assert rows["time_s"].tolist() == pytest.approx([float(line[1]) * 1e-6 for line in lines])


def plain_json(m, path):
    """A trace as json.load gives it: steps on the host, collective kernels on the device."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.isfile()]
            events = [json.load(archive.extractfile(member))["traceEvents"] for member in members]
    else:
        events = [json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]
    events = [event for part in events for event in part if event.get("ph") == "X"]
    steps = [
        event["dur"] * 1e-6 for event in events
        if event["name"].startswith("ProfilerStep") and event["cat"] != "gpu_user_annotation"
    ]  # fmt: skip
    kernels = [event for event in events if event.get("cat", "").lower() == "kernel"]
    spoken = [event["dur"] * 1e-6 for event in kernels if "nccl" in event["name"].lower()]
    read = [*(m.steps["step_time_s"] if len(m.steps) else []), *(
        m.collectives["time_s"] if len(m.collectives) else [])]  # fmt: skip
    assert sorted(read) == pytest.approx(sorted([*steps, *spoken]))


NO_STEPS = [
    "hta__critical_path__cuda_event_sync_multi_stream__event_sync_trace.json.gz",
    "hta__critical_path__end_to_end__simple_add__output__overlaid_critical_path_trace.json.gz",
    "hta__critical_path__simple_add__benchmark_result_493459_1694039959_trace.json.gz",
    "hta__cupti_profiler__benchmark_result_924719_1679055439_trace.json.gz",
    "hta__mtia_inference_trace__mtia_inference_rank_0.json.gz",
    "param__linear_kineto.json.gz",
    "param__resnet_kineto.json.gz",
]
REFUSED |= {f"kineto/{name}": "without ProfilerStep annotations" for name in NO_STEPS}


def every_row_is_in_the_file(m, path):
    """No value that the file does not have on the row's own line."""
    lines = path.read_text(errors="replace").split("\n")
    scales = {
        "time_s": 1e6, "algorithm_bandwidth_bytes_per_s": 1e-9, "bus_bandwidth_bytes_per_s": 1e-9,
        "throughput_samples_per_s": 1, "message_bytes_logged": 1,
    }  # fmt: skip
    for table in (m.collectives, m.steps):
        for row in table.to_dict("records"):
            line = lines[row["source_line"] - 1]
            printed = [float(word) for word in re.findall(r"\d+\.?\d*(?:e[+-]?\d+)?", line)]
            # OSU and IMB print MB/s, the older IMB of 2**20 bytes.
            printed += [word * 1e-3 for word in printed] + [word * 2**20 * 1e-9 for word in printed]
            for column, scale in scales.items():
                if column in row and row[column] == row[column]:
                    assert any(
                        row[column] * scale == pytest.approx(word, rel=1e-12) for word in printed
                    ), (column, row, line)
            logged = row.get("message_bytes_logged")
            if "message_bytes" in row and (logged is None or logged != logged):
                assert str(int(row["message_bytes"])) in line.replace(":", " ").split(), line
