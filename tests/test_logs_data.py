"""Small files of our own making, one for each quirk of a tool: neutral names, invented numbers."""

import pytest
from conftest import ROOT

import perfmodel as pm
from perfmodel.errors import LogFormatError

FOLDER = ROOT / "tests" / "data" / "logs"
# Rows by collective, the rank count, lines skipped.
RIGHT = {
    "alltoall_named_by_the_file.log": ({"all_to_all": 6}, {4}, 0),
    "horovod_unfinished.json": ({"all_reduce": 3}, {3}, 0),
    "imb_mpi1.txt": ({"all_reduce": 2, "all_to_all": 1, "send_recv": 2}, {2, 4}, 1),
    "nccl_2.10_all_reduce.log": ({"all_reduce": 6}, {4}, 0),
    "nccl_2.18_banner.log": ({"all_gather": 6}, {4}, 0),
    "nccl_2.19_every_option.log": ({"all_reduce": 6}, {4}, 0),
    "nccl_blank_reduction_broadcast.log": ({"broadcast": 6}, {4}, 0),
    "nccl_crlf_bom_colours.log": ({"all_reduce": 6}, {4}, 0),
    "nccl_cut.log": ({"all_reduce": 4}, {4}, 1),
    "nccl_error_without_root.log": ({"all_reduce": 6}, {4}, 0),
    "nccl_five_tests.log": (
        {"all_gather": 6, "all_reduce": 6, "all_to_all": 6, "reduce_scatter": 6, "send_recv": 6},
        {4},
        0,
    ),
    "nccl_labelled.log": ({"all_reduce": 6}, {4}, 0),
    "nccl_one_table_a_process.log": ({"all_reduce": 6}, {1}, 0),
    "nccl_page.md": ({"all_reduce": 6}, set(), 0),
    "nccl_report.json": ({"all_reduce": 3}, {4}, 0),
    "nccl_size_zero_and_all_types.log": ({"reduce_scatter": 26}, {4}, 0),
    "nccl_tagged_inside_rows.log": ({"all_reduce": 6}, {4}, 0),
    "nccl_threads.log": ({"all_reduce": 6}, {4}, 0),
    "nccl_torn_by_info.log": ({"all_reduce": 4}, {4}, 1),
    "nccl_wrong_results.log": ({"all_reduce": 6}, {4}, 0),
    "osu_bandwidth_validated.txt": ({"send_recv": 2}, {2}, 0),
    "osu_full_gpu_alltoall.md": ({"all_to_all": 2}, {8}, 0),
    "osu_latency.txt": ({"send_recv": 3}, {2}, 0),
    "rccl_in_place_half_with_algorithm.log": ({"all_reduce": 3}, {4}, 0),
}
REFUSED = {
    "nccl_launch_failure.log": "but a run that failed",
    "nccl_look_alike.txt": r":1: a table with the columns size\(B\)",
    "nccl_masked.md": "line 5: no numbers: XXXXX",
}
ELSEWHERE = {"kineto_cut.json": "steps", "mlperf_hpc_with_staging.txt": "convergence"}
TIMES = [31.2, 30.8, 48.5, 49.1, 104.9, 110.0]


def test_every_file_is_tested():
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {*RIGHT, *REFUSED, *ELSEWHERE}


@pytest.mark.parametrize("name", RIGHT)
def test_a_quirk_is_read_right(name):
    counts, n_ranks, n_skipped = RIGHT[name]
    m = pm.read_logs(FOLDER / name)
    rows = m.collectives
    assert rows.groupby("collective").size().to_dict() == counts
    assert set(rows["n_ranks"].dropna() if "n_ranks" in rows else []) == n_ranks
    assert m.sources["lines_skipped"].tolist() == [n_skipped]
    if name.startswith("nccl") and len(rows) == 6 and "time_s" in rows:
        assert (rows["time_s"] * 1e6).tolist() == pytest.approx(TIMES)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_result_is_refused(name):
    with pytest.raises(LogFormatError, match=REFUSED[name]):
        pm.read_logs(FOLDER / name)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_tables(name):
    assert len(getattr(pm.read_logs(FOLDER / name), ELSEWHERE[name])) == 1
