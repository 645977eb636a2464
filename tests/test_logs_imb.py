import pytest

import perfmodel as pm
from perfmodel.errors import LogFormatError


def block(benchmark, header, *rows, n=2):
    bar = "#" + "-" * 40 + "\n"
    waiting = "# ( 2 additional processes waiting in MPI_Barrier)\n"
    rows = ["".join(f"{word:>13}" for word in row.split()) for row in rows]
    top = f"{bar}# Benchmarking {benchmark} \n# #processes = {n} \n{waiting}{bar}"
    return top + "       #bytes #repetitions " + header + "\n" + "\n".join(rows) + "\n\n"


COLLECTIVE = " t_min[usec]  t_max[usec]  t_avg[usec]"
# Made by hand in the layout of Intel MPI Benchmarks; the figures are invented.
LOG = (
    "#    Intel (R) MPI Benchmarks 4.1, MPI-1 part\n"
    + block(
        "PingPong", "     t[usec]   Mbytes/sec", "0 1000 1.50 0.00", "1048576 40 100.00 10000.00"
    )
    + block("Allreduce", COLLECTIVE, "0 1000 0.10 0.12 0.11", "1024 1000 20.00 22.00 21.00", n=4)
    + block("Alltoall", COLLECTIVE, "1024 1000 20.00 22.00 21.00", n=4)
    + block("Alltoallv", COLLECTIVE, "1024 1000 20.00 22.00 21.00", n=4)
    + "#---\n# Benchmarking Barrier\n# #processes = 4\n#---\n"
    + " #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n 1000 1.00 1.20 1.10\n\n"
)


def read(tmp_path, text):
    (tmp_path / "imb.txt").write_text(text)
    m = pm.read_logs(tmp_path / "imb.txt")
    return m.collectives, m.sources.iloc[0]


def test_tables_of_a_file_with_their_own_process_counts(tmp_path):
    rows, source = read(tmp_path, LOG)
    assert rows["collective"].tolist() == [*["send_recv"] * 2, *["all_reduce"] * 2, "all_to_all"]
    assert rows["n_ranks"].tolist() == [2, 2, 4, 4, 4]
    assert rows["message_bytes"].tolist() == [0, 1048576, 0, 1024, 4096]
    assert rows["message_bytes_logged"].tolist()[-1] == 1024
    assert rows["time_s"].tolist() == pytest.approx([1.5e-6, 100e-6, 0.11e-6, 21e-6, 21e-6])
    assert source["lines_skipped"] == 1
    assert "Alltoallv" in source["first_skipped_reason"]


@pytest.mark.parametrize(("rate", "unit"), [("10485.76", 1e6), ("10000.00", 2**20)])
def test_what_a_mbyte_is_the_rows_tell(tmp_path, rate, unit):
    rows, _ = read(tmp_path, LOG.replace("10000.00", rate))
    rates = rows["algorithm_bandwidth_bytes_per_s"]
    assert rates.iloc[1] == pytest.approx(float(rate) * unit)


def test_series_that_are_no_single_message_are_told_apart(tmp_path):
    text = block("Sendrecv", COLLECTIVE + "   Mbytes/sec", "1024 1000 1.00 1.20 1.10 1706.67")
    rows, _ = read(tmp_path, text)
    assert rows["algorithm"].tolist() == ["Sendrecv"]
    assert "algorithm_bandwidth_bytes_per_s" not in rows


def test_rows_that_contradict_themselves_or_are_cut_do_not_count(tmp_path):
    rows, source = read(tmp_path, LOG.replace("22.00        21.00", "22.00        2.100", 1))
    assert len(rows) == 4
    assert "not between t_min and t_max" in source["first_skipped_reason"]
    rows, source = read(tmp_path, LOG.split("22.00        21.00")[0] + "22.00        21.0")
    assert rows["message_bytes"].tolist() == [0, 1048576, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (block("Exchange", COLLECTIVE, "1 1000 1.00 1.20 1.10"), "line 7: the benchmark Exchange"),
        (block("Bcast", COLLECTIVE), "without rows"),
        (block("Bcast", COLLECTIVE, "1 1000 1.00 1.20"), "line 7: 4 values where the header has 5"),
    ],
)
def test_what_is_unknown_is_named(tmp_path, text, message):
    with pytest.raises(LogFormatError, match=message):
        read(tmp_path, text)


def test_two_versions_in_one_file_have_their_own_mbytes(tmp_path):
    rows, _ = read(tmp_path, LOG + LOG.replace("10000.00", "10485.76").replace("4.1", "2021.3"))
    rates = rows["algorithm_bandwidth_bytes_per_s"].dropna()
    assert rates.tolist() == pytest.approx([10000 * 2**20, 10485.76e6])


def test_a_rate_that_contradicts_its_row_and_wrong_results_do_not_count(tmp_path):
    more = LOG.replace("10000.00", "10000.00\n      2097152           40       300.00     10000.00")
    more = more.replace("0         1000         1.50         0.00", "1024 1000 1.00 976.56")
    rows, source = read(tmp_path, more)
    assert 2097152 not in set(rows["message_bytes"])
    assert "is not 10000 MB/s" in source["first_skipped_reason"] or source["lines_skipped"] == 2
    checked = block("Bcast", COLLECTIVE + "  defects", "1 9 1 1 1 0.00", "2 9 1 1 1 1.00")
    rows, source = read(tmp_path, checked)
    assert rows["message_bytes"].tolist() == [1]
    assert "defects 1.00" in source["first_skipped_reason"]


def test_blank_lines_inside_a_table_and_the_older_count_of_processes(tmp_path):
    text = LOG.replace("# #processes = 4", "# ( #processes = 4 )").replace(
        "0.11\n", "0.11\n\nUCX WARN x\n\n"
    )
    rows, _ = read(tmp_path, text)
    assert rows["n_ranks"].tolist() == [2, 2, 4, 4, 4]
