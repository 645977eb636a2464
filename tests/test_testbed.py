"""The logs that the project ships, and the testbed that made them."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

import perfmodel as pm

TESTBED = ROOT / "docs" / "examples" / "testbed"
LOGS = TESTBED / "logs"
# The plan and the facts of the host lie beside the logs.
pytestmark = pytest.mark.filterwarnings("ignore::perfmodel.errors.LogWarning")


@pytest.mark.parametrize("name", ["small_cnn", "small_transformer"])
def test_volumes_agree_with_the_interface_counters(name):
    workload = pm.Workload.from_toml(TESTBED / f"{name}.toml")
    m = pm.read_logs(LOGS)
    rows = m.steps[m.steps["workload"].eq(name) & m.steps["sent_bytes"].notna()]
    counted = rows.groupby(["system", "n_nodes", "batch_per_gpu"])[
        ["sent_bytes", "sent_header_bytes"]
    ].mean().reset_index()  # fmt: skip
    assert len(counted) == 2 * 5 * 5
    volumes = pm.volumes(workload, {"n_nodes": counted["n_nodes"], "n_gpus": counted["n_nodes"]})
    payload = counted["sent_bytes"] - counted["sent_header_bytes"]
    assert payload.to_numpy() == pytest.approx(volumes["communication_bytes"].to_numpy(), rel=0.01)


def test_the_recording_passed_its_own_checks():
    host = json.loads((LOGS / "host.json").read_text())
    for what, figure in host["checks"].items():
        if "bus bandwidth" in what:
            assert figure >= 0.95, what
        elif "compute at" in what:
            assert figure <= 0.02, what
    assert host["late_steps"]["late"] <= 0.05 * host["late_steps"]["of"]


def test_what_is_held_out_was_named_in_the_plan_and_is_in_the_logs():
    plan = json.loads((LOGS / "plan.json").read_text())
    m = pm.read_logs(LOGS)
    assert plan["held_out_hosts"] == [6, 8]
    assert {6, 8} <= set(m.collectives["n_nodes"])
    for name, batches in plan["held_out_batches"].items():
        assert len(batches) >= 2
        measured = m.steps[m.steps["workload"] == name]["batch_per_gpu"]
        assert set(batches) < set(measured)


@pytest.mark.slow
def test_the_testbed_records_on_two_hosts(tmp_path):
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("ethtool") is None:
        pytest.skip("the testbed needs root, iproute2 and ethtool")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the testbed needs torch")
    record = [sys.executable, TESTBED / "record.py", "--out", tmp_path / "logs"]
    record += ["--hosts", "1,2", "--rates", "200", "--brief"]
    for _ in range(3):
        run = subprocess.run(record, capture_output=True, text=True, timeout=300, check=False)
        if "not recorded" not in run.stderr:
            break
        # It has to refuse while the machine is busy, and then to leave nothing behind.
        assert run.returncode == 1
        assert list(tmp_path.iterdir()) == []
    else:
        pytest.skip("the machine is too busy for the testbed, which refused to record")
    assert run.returncode == 0, run.stderr
    m = pm.read_logs(tmp_path / "logs")
    assert set(m.steps["n_nodes"]) == {1, 2}
    assert set(m.collectives["n_ranks"]) == {2}
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert "pmtestbed" not in namespaces.stdout
