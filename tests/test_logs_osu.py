import pytest

import perfmodel as pm
from perfmodel.errors import LogFormatError

# Made by hand in the layout of OSU micro-benchmarks; the figures are invented.
LATENCY = """\
# OSU MPI Latency Test v5.7.1
# Size          Latency (us)
0                       1.07
1024                    2.08
4194304               355.08
"""
ALLTOALL = """\
# OSU MPI-CUDA All-to-All Personalized Exchange Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
1                      12.46             11.00             13.00        1000
1048576               519.85            500.00            540.00         100
"""


def read(tmp_path, text, name="osu.txt"):
    (tmp_path / name).write_text(text)
    m = pm.read_logs(tmp_path / name)
    return m.collectives, m.sources.iloc[0]


def test_latency_is_send_recv_with_the_time_as_printed(tmp_path):
    rows, source = read(tmp_path, LATENCY)
    assert source["format"] == "osu"
    assert set(rows["collective"]) == {"send_recv"}
    assert set(rows["n_ranks"]) == {2}
    assert rows["message_bytes"].tolist() == [0, 1024, 4194304]
    assert rows["time_s"].tolist() == pytest.approx([1.07e-6, 2.08e-6, 355.08e-6])


@pytest.mark.parametrize(
    ("title", "kind"), [("Bandwidth", "bw"), ("Bi-Directional Bandwidth", "bibw")]
)
def test_bandwidth_tests_have_rates_only(tmp_path, title, kind):
    text = f"# OSU MPI {title} Test v7.5\n# Size      Bandwidth (MB/s)        Validation\n"
    rows, _ = read(tmp_path, text + "1024   12.50    Pass\n2048   20.00    Fail\n")
    assert "time_s" not in rows
    assert rows["algorithm_bandwidth_bytes_per_s"].tolist() == [12.5e6]
    assert rows["algorithm"].tolist() == [kind]


def test_sizes_of_one_peer_become_those_of_all(tmp_path):
    rows, source = read(
        tmp_path, "$ srun -N2 --ntasks-per-node=4 ./osu_alltoall -d cuda -f\n" + ALLTOALL
    )
    assert rows["message_bytes"].tolist() == [8, 8388608]
    assert rows["message_bytes_logged"].tolist() == [1, 1048576]
    assert rows["time_s"].tolist() == pytest.approx([12.46e-6, 519.85e-6])
    assert set(rows["n_nodes"]) == {2}
    assert set(rows["collective"]) == {"all_to_all"}
    assert "command line" in source["inferred"]
    rows, source = read(tmp_path, ALLTOALL)
    assert "message_bytes" not in rows
    assert rows["message_bytes_logged"].tolist() == [1, 1048576]
    assert "rank count not known" in source["inferred"]


@pytest.mark.parametrize(
    ("title", "collective", "factor"),
    [
        ("Allreduce", "all_reduce", 1), ("Broadcast", "broadcast", 1), ("Reduce", "reduce", 1),
        ("Reduce_scatter", "reduce_scatter", 1), ("Allgather", "all_gather", 6),
        ("Gather", "gather", 6), ("Scatter", "scatter", 6),
    ],
)  # fmt: skip
def test_collectives_and_their_sizes(tmp_path, title, collective, factor):
    text = (
        f"mpirun -np 6 osu_x\n# OSU MPI {title} Latency Test v5.7.1\n# Size       Avg Latency(us)\n"
    )
    rows, _ = read(tmp_path, text + "1024   12.50\n")
    assert rows["collective"].tolist() == [collective]
    assert rows["message_bytes"].tolist() == [1024 * factor]


def test_a_cut_last_row_does_not_count(tmp_path):
    for cut in ("4", "4194304", "4194304               355.0", "4194304               3"):
        rows, source = read(tmp_path, LATENCY.split("4194304")[0] + cut)
        assert rows["message_bytes"].tolist() == [0, 1024]
        assert "line 5" in source["first_skipped_reason"]
    assert len(read(tmp_path, LATENCY.rstrip("\n"))[0]) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LATENCY.split("0  ")[0], "without rows"),
        (LATENCY.replace("Latency Test", "Multi Latency Test"), "osu.txt:2: .*'Multi Latency'"),
        (LATENCY.replace("Latency (us)", "Overlap (%)"), r"osu.txt:2: .*columns Size, Overlap"),
        ("# OSU MPI Barrier Latency Test v7\n# Avg Latency(us)\n  12.5\n", "without rows"),
    ],
)
def test_what_is_unknown_is_named(tmp_path, text, message):
    with pytest.raises(LogFormatError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "title",
    [
        "MPI_Put Latency",
        "MPI_Accumulate latency",
        "OpenSHMEM Reduce Latency",
        "UPC All Gather Latency",
    ],
)
def test_one_sided_and_other_models_are_not_taken_for_messages(tmp_path, title):
    with pytest.raises(LogFormatError, match="none of those known"):
        read(tmp_path, f"# OSU {title} Test v5.8\n# Size  Latency (us)\n1   39.13\n")


@pytest.mark.parametrize(
    ("command", "n_ranks", "n_nodes"),
    [
        ("srun -N2 --ntasks-per-node=4 ./osu_allgather", 8, 2),
        ("srun -n 8 -N 2 ./osu_allgather", 8, 2),
        ("# mpirun -np 8 ./osu_allgather", 8, None),
        ("mpirun -n 16 -N 8 ./osu_allgather", 16, None),
        ("mpirun -np 16 numactl -N 0 ./osu_allgather", 16, None),
        ("mpirun -N 8 --hostfile h ./osu_allgather", None, None),
        ("mpirun -np 4 ./osu_allgather : -np 4 ./osu_allgather", None, None),
        ("jsrun -n 4 -a 4 ./osu_allgather", None, None),
        ("srun -N 2 ./osu_allgather", None, 2),
    ],
)
def test_ranks_of_a_command_line_only_where_they_are_sure(tmp_path, command, n_ranks, n_nodes):
    table = "# OSU MPI Allgather Latency Test v5.7.1\n# Size       Avg Latency(us)\n8   12.50\n"
    rows, _ = read(tmp_path, f"{command}\n{table}srun ./run.sh\n{table}")
    first = rows.iloc[0]
    assert first.get("n_ranks") == n_ranks or (n_ranks is None and "n_ranks" not in rows)
    assert first.get("n_nodes") == n_nodes or (n_nodes is None and "n_nodes" not in rows)
    assert first.get("message_bytes") == (8 * n_ranks if n_ranks else None)
    # What was said of one launch does not hold for the next.
    assert "n_ranks" not in rows or rows["n_ranks"].isna().tolist() == [False, True]


def test_numbers_behind_a_table_are_not_its_rows(tmp_path):
    rows, _ = read(tmp_path, LATENCY + "\n65536 5000\n 8 100.5\n")
    assert len(rows) == 3
