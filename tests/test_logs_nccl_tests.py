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


def read(tmp_path, text, name="a.log"):
    (tmp_path / name).write_text(text)
    m = pm.read_logs(tmp_path / name)
    return m.collectives, m.sources.iloc[0]


def test_units_ranks_nodes_and_both_halves(tmp_path):
    table, source = read(tmp_path, LOG)
    assert table["time_s"].tolist() == pytest.approx([25e-6, 104.9e-6, 110e-6])
    assert table["message_bytes"].tolist() == [1024, 1048576, 1048576]
    assert table["in_place"].tolist() == [False, False, True]
    assert set(table["n_ranks"]) == {4}
    assert set(table["n_nodes"]) == {2}
    assert set(table["device_type"]) == {"NVIDIA A100-SXM4-40GB"}
    assert table["bus_bandwidth_bytes_per_s"].tolist()[1] == 15e9
    assert table["source_line"].tolist() == [13, 14, 14]
    assert set(table["collective"]) == {"all_reduce"}
    assert "busbw / algbw" in source["inferred"]


def test_the_named_test_is_believed(tmp_path):
    table, source = read(tmp_path, "# Collective test starting: alltoall_perf\n" + LOG)
    assert set(table["collective"]) == {"all_to_all"}
    assert source["inferred"] == ""


def test_the_file_name_helps(tmp_path):
    table, source = read(tmp_path, LOG, "sendrecv_4.log")
    assert set(table["collective"]) == {"send_recv"}
    assert "file's name" in source["inferred"]


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: "])
def test_prefixes_of_launchers_are_dropped(tmp_path, prefix):
    text = "".join(prefix + line + "\n" for line in LOG.splitlines())
    assert read(tmp_path, text)[0].equals(read(tmp_path, LOG)[0])


def test_a_row_that_other_output_has_torn_is_counted(tmp_path):
    torn = LOG.replace("  25.00   0.04", "  25.00 node-a:1:1 NCCL INFO x   0.04")
    table, source = read(tmp_path, torn)
    assert len(table) == 2
    assert source["lines_skipped"] == 1
    assert "line 13" in source["first_skipped_reason"]


@pytest.mark.parametrize("cut", [20, 40, 70, 90])
def test_a_log_cut_in_the_middle_of_a_row_is_an_error(tmp_path, cut):
    whole, row = LOG.split("     1048576")[0], "     1048576" + LOG.split("     1048576")[1]
    with pytest.raises(LogFormatError, match=r"a.log:14: the log is cut"):
        read(tmp_path, whole + row[:cut])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOG.split("        1024")[0], "no result rows"),
        ("\n".join(line for line in LOG.split("\n") if "Rank" not in line), "no '# Rank' lines"),
        (LOG.replace("15.00", "12.00"), "names no collective"),
    ],
)
def test_what_is_missing_is_said(tmp_path, text, message):
    with pytest.raises(LogFormatError, match=message):
        read(tmp_path, text)


def test_real_logs_of_others(cases):
    m = pm.read_logs(cases / "nccl-tests" / "snellius_h100" / "2nodes__all_reduce_mpi.log")
    out_of_place = m.collectives[~m.collectives["in_place"]]
    assert len(out_of_place) == 30
    last = out_of_place.iloc[-1]
    assert (last["message_bytes"], last["n_ranks"], last["n_nodes"]) == (2**33, 8, 2)
    assert last["time_s"] == pytest.approx(96276e-6)
    assert m.sources["lines_skipped"].tolist() == [1]
