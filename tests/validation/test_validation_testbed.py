"""Errors on the testbed's held-out rows, which were named before anything was measured."""

import numpy as np
import pytest
from conftest import ROOT

import perfmodel as pm
from calibration import calibrate

TESTBED = ROOT / "docs" / "examples" / "testbed"
HELD_OUT = "n_nodes > 4 or batch_per_gpu in [6, 12, 24, 48]"
SYSTEMS = ["200mbit", "100mbit"]
WORKLOADS = ["small_cnn", "small_transformer"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_simgrid")]


@pytest.fixture(scope="module")
def results():
    """Held-out rows with simulated, predicted and measured times, by system and workload."""
    tables = {}
    for system in SYSTEMS:
        m = pm.read_logs(TESTBED / "logs" / system)
        for name in WORKLOADS:
            workload = pm.Workload.from_toml(TESTBED / f"{name}.toml")
            held = calibrate("testbed", m, workload=workload, hold_out=HELD_OUT).held_out
            model = pm.TrainingModel.fit(m.select(f"not ({HELD_OUT})"), workload=workload)
            steps = held["kind"] == "step"
            held.loc[steps, "predicted_s"] = model.step_time.predict(held[steps])
            tables[system, name] = held
    return tables


def mean_error(table, column):
    return float(np.mean(np.abs(table[column] / table["measured_s"] - 1)))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("smallest", "bar"), [(2**16, 0.06), (2**18, 0.03)])
def test_simulated_allreduces(results, system, smallest, bar):
    table = results[system, "small_cnn"]
    table = table[(table["kind"] == "collective") & (table["message_bytes"] >= smallest)]
    error = mean_error(table, "simulated_s")
    print(f"\n{system}: allreduce >= {smallest} B, {len(table)} rows: {100 * error:.2f} %")
    assert set(table["n_nodes"]) == {6, 8}
    assert error <= bar


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("column", ["simulated_s", "predicted_s"])
def test_steps(results, system, name, column):
    table = results[system, name]
    table = table[table["kind"] == "step"]
    error = mean_error(table, column)
    worst = float(np.max(np.abs(table[column] / table["measured_s"] - 1)))
    print(f"\n{system} {name} {column}: {len(table)} rows: {100 * error:.2f} %, worst {worst:.1%}")
    # 2 of 6 host counts at 3 fitted batch sizes, and all 6 at 2 others.
    assert len(table) == 2 * 3 + 6 * 2
    assert error <= 0.05
