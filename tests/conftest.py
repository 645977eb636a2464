import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import perfmodel as pm

ROOT = Path(__file__).parents[1]


def outside_folder(variable, name):
    """Folder of other people's data, which is not part of the project; skip where it is absent."""
    folder = Path(os.environ.get(variable, ROOT.parent / "shared" / name))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set {variable}")
    return folder


@pytest.fixture
def cases():
    """Real log files of others."""
    return outside_folder("PERFMODEL_CASES", "cases")


@pytest.fixture
def data():
    """Tables of measurements of others."""
    return outside_folder("PERFMODEL_DATA", "data")


@pytest.fixture
def needs_simgrid():
    pytest.importorskip("simgrid", reason="SimGrid is not installed")


@pytest.fixture
def workload():
    """Small network with four gradient tensors, in two buckets."""
    return pm.Workload(
        name="small",
        parameters=1_150_000,
        gradient_tensors=(500_000, 300_000, 200_000, 150_000),
        gradient_ready=(0.2, 0.5, 0.9, 1.0),
        forward_flops_per_sample=1e6,
        backward_flops_per_sample=2e6,
        bucket_bytes=2**20,
        sample_bytes=3000,
        dataset_samples=50_000,
    )


@pytest.fixture
def planted():
    """The testbed's platform with numbers that calibration has to find."""
    platform = pm.platform("testbed")
    values = {(f"link{i}", "bandwidth"): 2.5e7 for i in range(8)}
    values |= {(f"link{i}", "latency"): 80e-6 for i in range(8)}
    values |= {(f"host{i}", "speed"): 1.3e9 for i in range(8)}
    values |= {("testbed", "prop:perfmodel.compute_latency"): 0.012}
    values |= {("testbed", "prop:perfmodel.optimizer_latency"): 0.007}
    return platform.with_values(values)


@pytest.fixture
def planted_logs(workload, planted):
    """What a machine with exactly the planted numbers would log, with 2 % of seeded noise."""
    return noisy_logs(workload, planted, noise=0.02)


def noisy_logs(workload, platform, noise, repetitions=5, seed=0):
    random = np.random.default_rng(seed)
    nodes = [1, 2, 3, 4, 6, 8]
    steps = pm.configurations(n_nodes=nodes, gpus_per_node=1, batch_per_gpu=[8, 16, 32, 64])
    steps["step_time_s"] = pm.simulate(workload, steps, platform)["step_time_s"]
    sizes = 2 ** np.arange(10, 26, 2)
    grid = pd.MultiIndex.from_product([sizes, nodes[1:]], names=["message_bytes", "n_ranks"])
    collectives = grid.to_frame(index=False).assign(collective="all_reduce")
    collectives["n_nodes"] = collectives["n_ranks"]
    collectives["time_s"] = pm.simulate(None, collectives, platform)["time_s"]

    def repeated(table, column):
        parts = []
        for repetition in range(repetitions):
            factor = random.lognormal(sigma=noise, size=len(table))
            parts.append(table.assign(repetition=repetition, **{column: table[column] * factor}))
        return pd.concat(parts, ignore_index=True)

    return pm.Measurements(
        steps=repeated(steps, "step_time_s").assign(workload=workload.name),
        collectives=repeated(collectives, "time_s"),
    )
