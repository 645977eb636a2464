import json

import pandas as pd
import pytest
from conftest import ROOT

import calibration.cli
import perfmodel.cli
import perfmodel.terminal

TESTBED = ROOT / "docs" / "examples" / "testbed"
CNN = str(TESTBED / "small_cnn.toml")
GRID = ["--n-nodes", "2,4", "--gpus-per-node", "1", "--batch-per-gpu", "8:24:8"]


@pytest.fixture
def command(capsys):
    """Run a command; gives its exit status, standard output and standard error."""

    def run(*arguments, program=perfmodel.cli):
        with pytest.raises(SystemExit) as ended:
            program.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


def test_formats_for_programs_hold_every_column(command):
    status, out, _ = command("volumes", CNN, *GRID, "--format", "json")
    assert status == 0
    table = pd.DataFrame(json.loads(out))
    assert table["batch_per_gpu"].tolist() == [8, 16, 24] * 2
    assert {"communication_bytes", "messages", "communication_bytes_total"} <= set(table)
    status, csv_text, _ = command("volumes", CNN, *GRID, "--format", "csv")
    assert status == 0
    assert csv_text.splitlines()[0].split(",") == list(table)
    assert len(csv_text.splitlines()) == 7


def test_people_get_prefixes_and_units(command):
    status, out, _ = command("volumes", CNN, *GRID)
    assert status == 0
    assert "4.464 MB" in out


@pytest.mark.filterwarnings("default::perfmodel.errors.LogWarning")
def test_logs_shows_files_and_what_was_measured(command, tmp_path):
    text = "workload,n_nodes,n_gpus,batch_per_gpu,step_time_s\nw,1,1,8,0.1\nw,4,4,8,0.2\n"
    (tmp_path / "steps.csv").write_text(text)
    (tmp_path / "notes.md").write_text("nothing")
    status, out, err = command("logs", tmp_path, "--system", "lab")
    assert status == 0
    assert err.startswith("warning: 1 of 2 files have no measurements")
    assert "tidy-csv" in out
    assert "but a document" in out
    assert "lab" in out
    assert "1, 4" in out


def test_logs_writes_an_archive_that_every_command_reads(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "workload,n_nodes,n_gpus,batch_per_gpu,step_time_s\nw,1,1,8,0.1\nw,4,4,8,0.2\n"
    (tmp_path / "steps.csv").write_text(text)
    status, out, _ = command("logs", "steps.csv", "--to", "m.h5", "--format", "json")
    assert status == 0
    assert json.loads(out)[0]["rows"] == 2
    status, again, _ = command("logs", "m.h5", "--format", "json")
    assert status == 0
    assert again == out
    before = (tmp_path / "m.h5").read_bytes()
    status, out, _ = command("logs", "no.csv", "--to", "m.h5")
    assert (status, out) == (1, "")
    assert (tmp_path / "m.h5").read_bytes() == before


def test_platforms_lists_what_is_shipped(command):
    status, out, _ = command("platforms", "--format", "json")
    assert status == 0
    assert "testbed" in {row["platform"] for row in json.loads(out)}


@pytest.fixture
def folder(tmp_path):
    header = "collective,message_bytes,n_ranks,n_nodes,time_s\n"
    rows = [f"all_reduce,{s},{n},{n},{1e-3 + s / 1e7}" for s in (1024, 2**20) for n in (2, 4)]
    files = {
        "good.csv": header + "\n".join(rows) + "\n",
        "empty.csv": "",
        "cut.csv": header + "all_reduce,1024,2",
        "wrong.csv": header.replace("message_bytes", "mesage_bytes") + rows[0] + "\n",
        "sizeless.csv": "collective,n_ranks,n_nodes,time_s\nall_reduce,2,2,0.1\n",
        "alone.csv": header + "all_reduce,1024,1,1,0.001\nall_reduce,4096,1,1,0.002\n",
        "no_link.xml": platform_text().replace('<link id="link3"', '<link id="other"'),
        "negative.xml": platform_text().replace('"1Gbps"', '"-1Gbps"', 1),
        "free.toml": '[[free]]\nelement = "host*"\nattribute = "speed"\nlow = "1f"\nhigh = "1Tf"\n',
        "link.toml": '[[free]]\nelement = "wire*"\nattribute = "latency"\nlow = 1\nhigh = 2\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def platform_text():
    return (ROOT / "platforms" / "testbed.xml").read_text()


@pytest.mark.usefixtures("needs_simgrid")
@pytest.mark.parametrize(
    ("platform", "log", "more", "message"),
    [
        ("testbed", "nowhere", [], "nowhere: no such file or folder"),
        ("testbed", "empty.csv", [], "empty.csv: empty file"),
        ("testbed", "cut.csv", [], "cut.csv:2: 3 fields where the header has 5"),
        ("testbed", "wrong.csv", [], "wrong.csv:1: no column 'mesage_bytes'; did you mean"),
        ("testbed", "alone.csv", [], "2 rows: on one rank, which sends nothing"),
        ("testbed", "sizeless.csv", [], "lack the column message_bytes"),
        ("no_link.xml", "good.csv", [], "link3"),
        ("negative.xml", "good.csv", [], "negative.xml:16: link0 bandwidth: -1.25e+08 makes no"),
        ("testbet", "good.csv", [], "did you mean 'testbed'"),
        ("testbed", "good.csv", ["--free", "free.toml"], "no measured row depends on host0…host7"),
        ("testbed", "good.csv", ["--free", "link.toml"], "wire*"),
        ("testbed", "good.csv", ["--where", "nodes < 3"], "did you mean 'n_nodes'"),
        ("testbed", "good.csv", ["--hold-out", "n_nodes >"], "cannot be parsed"),
        ("testbed", "good.csv", ["--budget", "1"], "budget is 1"),
        ("testbed", "good.csv", ["--workload", "no.toml"], "no.toml: no such workload file"),
    ],
)
def test_bad_input_is_a_message_and_status_1_and_writes_nothing(
    command, folder, monkeypatch, platform, log, more, message
):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    status, out, err = command(
        "run", platform, log, "--out", "out.xml", *more, program=calibration.cli
    )
    assert status == 1
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["volumes", "no.toml", "--n-nodes", "1"], 1, "no.toml: no such workload file"),
        (["volumes", CNN, "--n-nodes", "0", "--gpus-per-node", "1"], 1, "n_nodes is 0"),
        (["volumes", CNN, "--n-nodes", "2"], 1, "gpus_per_node or n_gpus"),
        (["volumes", CNN, "--n-nodes", "4:1:1"], 2, "0 values"),
        (["volumes", CNN, "--n-noodes", "1"], 2, "n-noodes"),
        (["volumes", CNN, *GRID, "--sharding", "zero3"], 1, "sharding = 'zero3'"),
        (["volumes", CNN, *GRID, "--per", "week"], 1, "no period 'week'"),
        (["predict", "no.json", *GRID], 1, "no.json: no such model file"),
        (["simulate", CNN, *GRID, "--platform", "no.xml"], 1, "no.xml: no such platform file"),
        (["simulate", CNN, *GRID, "--platform", "testbed", "--fidelity", "x"], 1, "fidelity"),
        (["logs", "/dev/null"], 1, "empty file"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_errors_of_the_other_commands(command, arguments, status, message):
    got, out, err = command(*arguments)
    assert got == status
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_an_output_folder_that_is_missing_is_said_and_an_old_file_survives(
    command, folder, monkeypatch
):
    monkeypatch.chdir(folder)
    steps = "workload,n_nodes,n_gpus,batch_per_gpu,step_time_s\nsmall_cnn,1,1,8,0.1\n"
    (folder / "steps.csv").write_text(steps + "small_cnn,2,2,8,0.2\nsmall_cnn,2,2,16,0.25\n")
    fit = ["fit", "steps.csv", "--workload", CNN, "--out"]
    status, _, err = command(*fit, "no/such/model.json")
    assert status == 1
    assert "folder no/such does not exist" in err
    (folder / "model.json").write_text("old")
    status, _, err = command(*fit, "model.json", "--where", "n_nodes > 9")
    assert status == 1
    assert (folder / "model.json").read_text() == "old"
    status, out, _ = command(*fit, "model.json")
    assert status == 0
    assert "bandwidth_bytes_per_s" in out
    assert json.loads((folder / "model.json").read_text())["workload"]["name"] == "small_cnn"


@pytest.mark.usefixtures("needs_simgrid")
def test_check_compares_a_model_of_the_same_workload_only(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    steps = "workload,n_nodes,n_gpus,batch_per_gpu,step_time_s\nsmall_cnn,1,1,8,0.1\n"
    (folder / "steps.csv").write_text(steps + "small_cnn,2,2,8,0.2\nsmall_cnn,2,2,16,0.25\n")
    status, *_ = command("fit", "steps.csv", "--workload", CNN, "--out", "model.json")
    assert status == 0
    check = ["check", "testbed", "steps.csv", "--model", "model.json", "--workload"]
    status, out, _ = command(*check, CNN, "--format", "json", program=calibration.cli)
    assert status == 0
    assert {"predicted_s", "simulated_s", "measured_s"} <= set(json.loads(out)[0])
    transformer = TESTBED / "small_transformer.toml"
    status, out, err = command(*check, transformer, program=calibration.cli)
    assert status == 1
    assert "another workload (small_cnn)" in err
    assert out == ""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,4", [1, 2, 4]),
        ("1:7:2", [1, 3, 5, 7]),
        ("1:8:3", [1, 4, 7]),
        ("0.5:1.5:0.5", [0.5, 1.0, 1.5]),
        ("topk:0.01,none", ["topk:0.01", "none"]),
        ("true,false", [True, False]),
    ],
)
def test_lists_of_values(text, values):
    assert perfmodel.terminal.values_of(text, "--x") == values
