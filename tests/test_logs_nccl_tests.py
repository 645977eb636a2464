import json

import pytest

import perfmodel as pm
from perfmodel.errors import LogFormatError

# Made by hand in the layout of nccl-tests 2.x; the times are invented.
LOG = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   1 on  node-a device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   2 on  node-a device  1 [0x0a] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid   3 on  node-b device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid   4 on  node-b device  1 [0x0a] NVIDIA A100-SXM4-40GB
#
#                                                      out-of-place                in-place
#       size   count    type  redop  root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
#        (B)  (elements)                    (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)
           0       0   float    sum    -1   0.31   0.00   0.00      0   0.30   0.00   0.00      0
        1024     256   float    sum    -1  25.00   0.04   0.06      0    N/A    N/A    N/A    N/A
     1048576  262144   float    sum    -1  104.9  10.00  15.00      0  110.0   9.53  14.30      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 9.78
"""


ROWS = LOG.splitlines()[11:14]


def read(tmp_path, text, name="a.log"):
    (tmp_path / name).write_text(text)
    m = pm.read_logs(tmp_path / name)
    return m.collectives, m.sources.iloc[0]


def table(header, *rows, units=True, before=""):
    """A table without rank list, as pages quote them."""
    unit = "#        (B)    (elements)                (us) (GB/s) (GB/s)\n" if units else ""
    return before + "#    " + header + "\n" + unit + "".join(f"   {row}\n" for row in rows)


def test_units_ranks_nodes_and_both_halves(tmp_path):
    rows, source = read(tmp_path, LOG)
    assert rows["time_s"].tolist() == pytest.approx([0.31e-6, 0.30e-6, 25e-6, 104.9e-6, 110e-6])
    assert rows["message_bytes"].tolist() == [0, 0, 1024, 1048576, 1048576]
    assert rows["in_place"].tolist() == [False, True, False, False, True]
    assert set(rows["n_ranks"]) == {4}
    assert set(rows["n_nodes"]) == {2}
    assert set(rows["device_type"]) == {"NVIDIA A100-SXM4-40GB"}
    assert rows["bus_bandwidth_bytes_per_s"].tolist()[3] == 15e9
    assert rows["source_line"].tolist() == [12, 12, 13, 14, 14]
    assert set(rows["collective"]) == {"all_reduce"}
    assert "busbw / algbw" in source["inferred"]


def test_the_named_test_is_believed(tmp_path):
    gathered = LOG.replace("15.00", " 7.50").replace("14.30", " 7.15").replace("0.06", "0.03")
    gathered = gathered.replace("sum", "none")
    rows, source = read(tmp_path, "# Collective test starting: alltoall_perf\n" + gathered)
    assert set(rows["collective"]) == {"all_to_all"}
    assert source["inferred"] == ""


def test_the_file_name_helps(tmp_path):
    gathered = LOG.replace("15.00", " 7.50").replace("14.30", " 7.15").replace("0.06", "0.03")
    gathered = gathered.replace("sum", "none")
    rows, source = read(
        tmp_path, gathered.replace("      0    N/A", "    N/A    N/A"), "all_gather_4.log"
    )
    assert set(rows["collective"]) == {"all_gather"}
    assert "file's name" in source["inferred"]


@pytest.mark.parametrize(
    "prefix", ["[1,0]<stdout>:", "0: ", " 0: ", "[node-a,1,0]<stdout>: ", "[0] "]
)
def test_prefixes_of_launchers_are_dropped(tmp_path, prefix):
    text = "".join(prefix + line + "\n" for line in LOG.splitlines())
    assert read(tmp_path, text)[0].equals(read(tmp_path, LOG)[0])


def test_tags_inside_a_row_are_dropped(tmp_path):
    torn = LOG.replace("104.9  10.00", "104.9[1,0]<stdout>:  10.00").replace(
        " 25.00 ", " 0: 25.00 "
    )
    assert read(tmp_path, torn)[0].equals(read(tmp_path, LOG)[0])


def test_a_row_that_other_output_has_torn_is_counted(tmp_path):
    torn = LOG.replace("  25.00   0.04", "  25.00 node-a:1:1 NCCL INFO x   0.04")
    rows, source = read(tmp_path, torn)
    assert rows["message_bytes"].tolist() == [0, 0, 1048576, 1048576]
    assert source["lines_skipped"] == 1
    assert "line 13" in source["first_skipped_reason"]


def test_lost_digits_are_noticed(tmp_path):
    rows, source = read(
        tmp_path, LOG.replace("104.9", "10.49").replace("1048576  262144", "104857  262144")
    )
    assert rows["message_bytes"].tolist() == [0, 0, 1024]
    assert source["lines_skipped"] == 1
    # One half only contradicts itself: the other one counts.
    rows, source = read(tmp_path, LOG.replace("104.9", "109.4"))
    assert rows["time_s"].tolist()[3:] == [pytest.approx(110e-6)]
    assert "is not the algbw printed" in source["first_skipped_reason"]
    # The ratio of the bandwidths is that of other ranks.
    rows, source = read(tmp_path, LOG.replace("15.00", "19.00"))
    assert rows["time_s"].tolist()[3:] == [pytest.approx(110e-6)]
    assert "is not that of 4 ranks" in source["first_skipped_reason"]


@pytest.mark.parametrize("cut", [20, 40, 70, 88, 90])
def test_a_row_that_is_cut_does_not_count(tmp_path, cut):
    whole, row = LOG.split("     1048576")[0], "     1048576" + LOG.split("     1048576")[1]
    rows, source = read(tmp_path, whole + row[:cut])
    assert rows["message_bytes"].tolist() == [0, 0, 1024]
    assert "line 14" in source["first_skipped_reason"]


def test_a_last_row_without_line_end_counts_if_it_is_whole(tmp_path):
    text = LOG.split("# Out of bounds")[0].rstrip("\n")
    assert len(read(tmp_path, text)[0]) == 5


def test_generations_without_root_and_with_blank_reduction(tmp_path):
    text = table(
        "size count type redop time algbw busbw error time algbw busbw error",
        "1048576 262144 float sum 104.9 10.00 15.00 4e-07 110.0 9.53 14.30 4e-07",
        "2097152 524288 float sum 209.8 10.00 15.00 4e-07 220.0 9.53 14.30 4e-07",
    )
    rows, source = read(tmp_path, text)
    assert set(rows["collective"]) == {"all_reduce"}
    assert set(rows["n_ranks"]) == {4}
    assert "n_ranks 4" in source["inferred"]
    assert "wrong" not in source["inferred"]
    text = table(
        "size count type redop time algbw busbw error time algbw busbw error",
        "1048576 65536 float 104.9 10.00 7.50 N/A 110.0 9.53 7.15 N/A",
    )
    rows, _ = read(tmp_path, text, "allgather.log")
    assert rows["collective"].tolist() == ["all_gather"] * 2
    assert "reduction" not in rows


def test_the_first_generation_printed_milliseconds(tmp_path):
    text = table(
        "bytes N type op time algbw busbw res time algbw busbw res",
        "33554432 8388608 float sum 7.357 4.56 6.84 1e-06 7.300 4.60 6.89 1e-06",
        units=False,
    )
    rows, _ = read(tmp_path, text)
    assert rows["time_s"].tolist() == pytest.approx([7.357e-3, 7.3e-3])


def test_columns_of_rccl_and_of_single_iterations_and_times_of_day(tmp_path):
    half = "time algbw busbw #wrong"
    row = "1048576 262144 float sum -1 104.9 10.00 15.00 0 110.0 9.53 14.30 0"
    text = table(
        f"size count type redop root {half} {half} algo proto nchannels", f"{row} RING LL 32"
    )
    rows, _ = read(tmp_path, text)
    assert rows["algorithm"].tolist() == ["RING"] * 2
    assert rows["protocol"].tolist() == ["LL"] * 2
    text = table(
        f"size count type redop root {half} {half} timestamp", f"{row} 2026-01-02 03:04:05"
    )
    assert len(read(tmp_path, text)[0]) == 2
    spread = "i_min i_max i_p99 i_cv%"
    row = "1048576 262144 float sum -1 104.9 10.00 15.00 0 9 1 8 2 110.0 9.53 14.30 0 1 2 3 4"
    text = table(f"size count type redop root {half} {spread} {half} {spread}", row)
    assert read(tmp_path, text)[0]["time_s"].tolist() == pytest.approx([104.9e-6, 110e-6])


def test_processor_times_are_no_durations(tmp_path):
    half = "cputime algbw busbw #wrong"
    row = "1048576 262144 float sum -1 4.90 10.00 15.00 0 5.00 9.53 14.30 0"
    rows, source = read(tmp_path, table(f"size count type redop root {half} {half}", row))
    assert "time_s" not in rows
    assert rows["algorithm_bandwidth_bytes_per_s"].tolist() == [10e9, 9.53e9]
    assert "cputime" in source["inferred"]


def test_one_half_only(tmp_path):
    header = "size count type redop root time algbw busbw #wrong"
    row = "1048576 262144 float sum -1 104.9 10.00 15.00 0"
    text = table(header, row, before="#            in-place\n")
    assert read(tmp_path, text)[0]["in_place"].tolist() == [True]
    assert read(tmp_path, table(header, row))[0]["in_place"].tolist() == [False]
    both = header + " time algbw busbw #wrong"
    replayed = "1048576 262144 float sum -1" + " " * 32 + "104.9 10.00 15.00 0"
    assert read(tmp_path, table(both, replayed))[0]["in_place"].tolist() == [True]


def test_several_tests_in_one_file(tmp_path):
    other = LOG.replace("15.00", " 7.50").replace("14.30", " 7.15").replace("0.06", "0.03")
    text = (
        "# Collective test starting: all_reduce_perf\n" + LOG
        + "# Collective test starting: reduce_scatter_perf\n" + other.replace("node-b", "node-a")
    )  # fmt: skip
    rows, _ = read(tmp_path, text)
    assert rows.groupby("collective")["n_nodes"].first().to_dict() == {
        "all_reduce": 2,
        "reduce_scatter": 1,
    }


def test_one_table_a_process_without_mpi(tmp_path):
    rank = "#  Rank  0 Group  0 Pid   {} on  node-a device  0 [0x07] NVIDIA A100\n"
    alone = LOG.replace("15.00", " 0.00").replace("14.30", " 0.00").replace("0.06", "0.00")
    alone = "".join(line + "\n" for line in alone.splitlines() if "Rank" not in line)
    text = "all_reduce_perf -g 1\n" + "".join(rank.format(pid) for pid in range(4)) + alone
    rows, _ = read(tmp_path, text)
    assert set(rows["n_ranks"]) == {1}


def bare(log):
    """The same without its rank list."""
    return "".join(line + "\n" for line in log.splitlines() if "Rank" not in line)


def test_what_the_figures_contradict_is_not_believed(tmp_path):
    rows, source = read(tmp_path, "g++ -o build/gather_perf\nmpirun $TEST\n" + LOG)
    assert set(rows["collective"]) == {"all_reduce"}
    assert set(rows["n_ranks"]) == {4}
    assert "not gather, which the log mentions" in source["inferred"]
    gathered = LOG.replace("15.00", " 7.50").replace("14.30", " 7.15").replace("0.06", "0.03")
    rows, _ = read(tmp_path, "ls build: all_gather_perf\n" + gathered)
    assert set(rows["collective"]) == {"reduce_scatter"}


def test_a_rank_list_with_gaps_does_not_tell_the_rank_count(tmp_path):
    same = LOG.replace("15.00", "10.00").replace("14.30", " 9.53").replace("0.06", "0.04")
    same = "broadcast_perf\n" + same.replace("   sum    -1", "  none     0")
    assert set(read(tmp_path, same)[0]["n_ranks"]) == {4}
    torn = "".join(line + "\n" for line in same.splitlines() if "Rank  1" not in line)
    assert "n_ranks" not in read(tmp_path, torn)[0]
    cut = "".join("[...]\n" if "Rank  3" in line else line + "\n" for line in same.splitlines())
    assert "n_ranks" not in read(tmp_path, cut)[0]
    # A second launch without a list: the first one's ranks are not its own.
    again = same.split("# Out of bounds")[0] + "mpirun -np 16 ./broadcast_perf\n" + bare(same)
    rows, _ = read(tmp_path, again)
    assert rows["n_ranks"].isna().sum() == 5


def test_tables_of_two_processes_in_one_stream(tmp_path):
    before, after = LOG.split("           0       0   float")
    other = "# nThread 1 nGpus 1 minBytes 8\n" + "".join(
        line + "\n" for line in LOG.splitlines() if "Rank" in line
    )
    text = "all_reduce_perf\n" + before + other + "           0       0   float" + after
    rows, _ = read(tmp_path, text)
    assert len(rows) == 5


def test_ranks_that_split_into_groups(tmp_path):
    lines = LOG.replace("Rank  2 Group  0", "Rank  2 Group  1").replace(
        "Rank  3 Group  0", "Rank  3 Group  1"
    )
    pair = lines.replace("15.00", "10.00").replace("14.30", " 9.53").replace("0.06", "0.04")
    rows, _ = read(tmp_path, "all_reduce_perf\n" + pair)
    assert set(rows["n_ranks"]) == {2}


def test_what_cannot_be_told_stays_missing(tmp_path):
    header = "size count type redop root time algbw busbw #wrong"
    text = table(header, "1048576 65536 float none -1 104.9 10.00 7.50 0", before="hello\n")
    rows, source = read(tmp_path, text.replace("65536 float", "262144 float"))
    assert rows["collective"].isna().all()
    assert "all_gather or all_to_all" in source["inferred"]
    rows, source = read(tmp_path, text.replace("hello", "the all-gather of the lab"))
    assert rows["collective"].tolist() == ["all_gather"]
    text = table(header, "1024 256 float sum -1 25.0 0.04 0.08 0", before="all_reduce_perf\n")
    rows, source = read(tmp_path, text)
    assert "n_ranks" not in rows
    assert "rank count not known" in source["inferred"]


def test_wrong_results_are_told(tmp_path):
    rows, source = read(tmp_path, LOG.replace("15.00      0", "15.00      7"))
    assert len(rows) == 5
    assert "1 timings of wrong results" in source["inferred"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOG.split("           0       0")[0], "no result rows"),
        (LOG.split("           0       0")[0] + "node-a: Test NCCL failure common.cu:958\n",
         "a.log:12: no results; the run failed: Test NCCL failure"),
        (table("size count type redop root time algbw busbw", "1048576 262144 float sum -1 XX X.X X.X"),  # noqa: E501
         "line 3: no numbers: XX X.X X.X"),
        (table("size(B) count(elems) type time:avg(us) algbw(GB/s) busbw(GB/s)", "8 2 fp32 6.0 0 0"),  # noqa: E501
         r"a.log:1: a table with the columns size\(B\) count\(elems\)"),
        ("# Collective test starting: hypercube_perf\n" + LOG, "a.log:13: hypercube_perf is no"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(LogFormatError, match=message):
        read(tmp_path, text)


def report(**changes):
    half = {"time": 104.9, "alg_bw": 9.995958, "bus_bw": 14.993937, "nwrong": 0.0}
    result = {
        "size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1",
        "out_of_place": half, "in_place": half | changes, "actual_iterations": 20,
    }  # fmt: skip
    device = {"group": 0, "pid": 1, "device": 0, "device_hex": "0x1b", "device_info": "NVIDIA H200"}
    devices = [device | {"rank": 2 * i, "hostname": f"node-{i}"} for i in range(2)]
    return {
        "version": 2, "args": ["./build/all_reduce_perf", "-J", "x.json"], "env": ["A=\"{[\""],
        "nccl_version": 22903, "config": {"nthreads": 1, "ngpus": 2, "devices": devices},
        "results": [result, result | {"size": 2097152, "count": 524288,
                                      "out_of_place": None, "in_place": half | {"time": 209.8}}],
        "out_of_bounds": {"count": 0, "okay": "true"},
    }  # fmt: skip


def test_json_of_nccl_tests(tmp_path):
    rows, source = read(tmp_path, json.dumps(report()), "x.json")
    assert source["format"] == "nccl-tests-json"
    assert rows["time_s"].tolist() == pytest.approx([104.9e-6, 104.9e-6, 209.8e-6])
    assert rows["in_place"].tolist() == [False, True, True]
    assert set(rows["n_ranks"]) == {4}
    assert set(rows["n_nodes"]) == {2}
    assert set(rows["collective"]) == {"all_reduce"}
    rows, source = read(tmp_path, json.dumps(report(time=10.0)), "x.json")
    assert len(rows) == 2
    assert source["lines_skipped"] == 1
    cut = json.dumps(report())
    rows, _ = read(tmp_path, cut[: cut.index("2097152")], "x.json")
    assert len(rows) == 2
    with pytest.raises(LogFormatError, match="cut or damaged before the results"):
        read(tmp_path, cut[: cut.index("hostname")], "x.json")


def test_real_logs_of_others(cases):
    m = pm.read_logs(cases / "nccl-tests" / "snellius_h100" / "2nodes__all_reduce_mpi.log")
    out_of_place = m.collectives[~m.collectives["in_place"]]
    assert len(out_of_place) == 30
    last = out_of_place.iloc[-1]
    assert (last["message_bytes"], last["n_ranks"], last["n_nodes"]) == (2**33, 8, 2)
    assert last["time_s"] == pytest.approx(96276e-6)
    assert m.sources["lines_skipped"].tolist() == [1]
