import bz2
import gzip
import io
import lzma
import tarfile

import pandas as pd
import pytest
import zstandard

import perfmodel as pm
from perfmodel.errors import ConfigurationError, LogFormatError, LogWarning, MissingFileError
from perfmodel.logs import sniff

STEPS = "workload,n_nodes,n_gpus,batch_per_gpu,step_time_s\nw,1,1,8,0.1\nw,2,2,8,0.2\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "steps.csv").write_text(STEPS)
    (tmp_path / "lab" / "README.md").write_text("not a log")
    (tmp_path / "lab" / "empty.csv").write_text("")
    return tmp_path


def test_a_folder_is_read_and_what_is_no_log_is_listed(folder):
    with pytest.warns(LogWarning, match="2 of 3 files have no measurements") as warned:
        m = pm.read_logs(folder)
    assert len(warned) == 1
    assert m.steps["step_time_s"].tolist() == [0.1, 0.2]
    assert m.steps["source_line"].tolist() == [2, 3]
    assert set(m.steps["system"]) == {"lab"}
    sources = m.sources.assign(name=[path.split("/")[-1] for path in m.sources["source_file"]])
    sources = sources.set_index("name")
    assert sources.loc["steps.csv", "rows"] == 2
    assert sources.loc["README.md", "first_skipped_reason"].endswith("but a document")
    assert sources.loc["empty.csv", "first_skipped_reason"] == "empty file"
    assert len(sources.loc["steps.csv", "sha256"]) == 64


def test_lists_patterns_and_labels(folder):
    with pytest.warns(LogWarning, match="3 of 5"):
        m = pm.read_logs([folder / "lab" / "*.csv", folder / "lab"], system="mine")
    assert len(m.steps) == 4
    assert set(m.steps["system"]) == {"mine"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.csv", "", "empty file"),
        ("cut.csv", STEPS + "w,3,3", r"cut.csv:4: 3 fields .* ends in the middle"),
        ("wrong.csv", STEPS.replace("batch_per_gpu", "bach_per_gpu"), "wrong.csv:1.*did you mean"),
        ("text.csv", STEPS.replace("0.2", "fast"), r"text.csv:3: step_time_s is 'fast'"),
        ("short.csv", STEPS.replace(",2,8,0.2", ",0.2"), r"short.csv:3: 3 fields"),
        ("zero.csv", STEPS.replace("0.2", "0"), r"zero.csv:3: step_time_s is 0"),
        ("negative.csv", STEPS.replace("w,2,", "w,-2,"), r"negative.csv:3: n_nodes is -2"),
        ("header.csv", STEPS.split("\n")[0] + "\n", "header but no rows"),
        ("notes.txt", "hello", "no log of a format known, but text"),
        ("bin.csv", STEPS + "\0", "but binary data"),
    ],
)
def test_a_broken_file_is_an_error_with_file_and_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(LogFormatError, match=message) as caught:
        pm.read_logs(path)
    assert isinstance(caught.value, ValueError)


def packed(path, folder, compress):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(folder, "lab")
    path.write_bytes(compress(content.getvalue()))
    return path


@pytest.mark.filterwarnings("ignore::perfmodel.errors.LogWarning")
@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, zstandard.compress, bz2.compress, lzma.compress]
)
def test_archives_and_compressed_files(folder, compress):
    plain = pm.read_logs(folder / "lab").steps["step_time_s"].tolist()
    (folder / "steps.csv.x").write_bytes(compress(STEPS.encode()))
    assert pm.read_logs(folder / "steps.csv.x").steps["step_time_s"].tolist() == plain
    nested = folder / "lab" / "more.csv.gz"
    nested.write_bytes(gzip.compress(STEPS.encode()))
    m = pm.read_logs(packed(folder / "logs.tar.x", folder / "lab", compress))
    assert m.steps["step_time_s"].tolist() == plain * 2
    assert set(m.steps["source_file"].str.split("logs.tar.x/").str[1]) == {
        "lab/steps.csv",
        "lab/more.csv.gz",
    }
    assert len(set(m.sources["sha256"])) == 1


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_a_damaged_archive_gives_what_is_whole_or_is_refused(folder, share):
    path = packed(folder / "logs.tgz", folder / "lab", gzip.compress)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    try:
        m = pm.read_logs(path)
    except LogFormatError:
        return
    assert m.steps["step_time_s"].tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("LICENSE", "Permission is hereby granted, free of charge", "a licence"),
        ("job.sh", "#!/bin/bash\nsrun x\n", "a script"),
        ("job.yaml", "a: 1\nb: 2\n", "a configuration"),
        ("slurm.out", "srun: error: node-a: task 0: Exited\n", "a run that failed"),
        ("x.py", "import torch\n", "Python code"),
        ("err.txt", "Traceback (most recent call last):\n  File", "a Python traceback"),
        ("x.json", '{"alpha": 1, "beta": [2]}', "JSON with the keys alpha, beta"),
        ("x.csv", "alpha,beta,gamma\n1,2,3\n", "columns alpha,beta,gamma"),
        ("x.png", "\x89PNG\r\n", "an image"),
        ("x.xml", "<?xml version='1.0'?><a/>", "an XML"),
    ],
)
def test_a_file_without_measurements_is_refused_saying_what_it_is(tmp_path, name, content, kind):
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(LogFormatError, match=f"but .*{kind}") as caught:
        pm.read_logs(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_reader_that_stumbles_does_not_cost_the_other_logs(folder, monkeypatch):
    def stumble(log):
        raise ZeroDivisionError("x")

    broken = sniff._FORMATS["osu"]._replace(read=stumble)
    monkeypatch.setitem(sniff._FORMATS, "osu", broken)
    (folder / "lab" / "osu.txt").write_text("# OSU MPI Latency Test v7\n# Size Latency (us)\n")
    with pytest.warns(LogWarning):
        m = pm.read_logs(folder / "lab")
    assert len(m.steps) == 2
    with pytest.raises(LogFormatError, match=r"osu failed on it .ZeroDivisionError: x.: please"):
        pm.read_logs(folder / "lab" / "osu.txt")


def test_progress_counts_files_and_bytes(folder):
    seen = []
    pm.read_logs(folder / "lab" / "steps.csv", progress=lambda *counts: seen.append(counts))
    assert seen == [(0, 1, len(STEPS))]


def test_missing_paths_and_folders_without_logs(tmp_path):
    with pytest.raises(MissingFileError):
        pm.read_logs(tmp_path / "no")
    with pytest.raises(LogFormatError, match="no measurements in 0 files"):
        pm.read_logs(tmp_path)
    with pytest.raises(KeyError, match="nccl-tests"):
        pm.read_logs(tmp_path, format="nccltests")


@pytest.fixture
def m():
    steps = pd.DataFrame({"n_nodes": [1, 2, 4, 8], "batch_per_gpu": [8, 8, 16, 8]})
    collectives = pd.DataFrame({"n_nodes": [2, 8], "message_bytes": [1024, 1024]})
    return pm.Measurements(steps=steps, collectives=collectives)


@pytest.mark.parametrize(
    ("condition", "nodes_of_steps", "nodes_of_collectives"),
    [
        ("n_nodes <= 4", [1, 2, 4], [2]),
        ("1 < n_nodes <= 4", [2, 4], [2]),
        ("batch_per_gpu == 8", [1, 2, 8], [2, 8]),
        ("n_nodes <= 4 and batch_per_gpu == 8", [1, 2], [2]),
        ("n_nodes > 4 or batch_per_gpu in [16]", [4, 8], [2, 8]),
        ("not batch_per_gpu in (8, 32)", [4], [2, 8]),
        ("system == 'lab'", [1, 2, 4, 8], [2, 8]),
    ],
)
def test_select_leaves_out_what_certainly_fails(m, condition, nodes_of_steps, nodes_of_collectives):
    chosen = m.select(condition)
    assert chosen.steps["n_nodes"].tolist() == nodes_of_steps
    assert chosen.collectives["n_nodes"].tolist() == nodes_of_collectives


@pytest.mark.parametrize(
    "condition",
    ["", "n_nodes", "n_nodes <", "1 < 2", "n_nodes + 1 > 2", "n_nodes < 'a'", "f(n_nodes) > 1",
     "__import__('os').system('true') == 0", "n_nodes.__class__ == 3"],
)  # fmt: skip
def test_a_condition_is_never_run_as_python(m, condition):
    with pytest.raises((ConfigurationError, KeyError)):
        m.select(condition)


def test_a_condition_on_an_unknown_column_offers_the_nearest(m):
    with pytest.raises(KeyError, match="did you mean 'n_nodes'"):
        m.select("nodes < 3")
    with pytest.raises(KeyError, match="message_bytes"):
        pm.Measurements(steps=pd.DataFrame({"message_byte": [1]}))
