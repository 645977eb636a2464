import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import perfmodel as pm
import perfmodel.simulator
from perfmodel.errors import ConfigurationError, SimulationError, UnknownNameError
from perfmodel.models.collective import ring_time
from perfmodel.platform_file import Platform

pytestmark = pytest.mark.usefixtures("needs_simgrid")

NODES = [1, 2, 3, 4, 6, 8]


@pytest.fixture
def grid():
    return pm.configurations(n_nodes=NODES, gpus_per_node=1, batch_per_gpu=[8, 64])


def collectives(**columns):
    return pd.DataFrame({"message_bytes": [2**10, 2**16, 2**25]} | columns)


def platform_of(body):
    return Platform(
        f"""<?xml version="1.0"?>
        <!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
        <platform version="4.1"><zone id="z" routing="Full">{body}</zone></platform>""".encode(),
        "hand.xml",
    )


TWO = """<host id="a" speed="1Gf"/><host id="b" speed="1Gf"/>
<link id="l" bandwidth="{bandwidth}" latency="{latency}" sharing_policy="SPLITDUPLEX"/>
<route src="a" dst="b"><link_ctn id="l" direction="UP"/></route>"""


@pytest.mark.parametrize("fidelity", ["closed_form", "fluid", "message"])
@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_collective_alone_takes_what_the_formula_says(planted, fidelity, name):
    X = collectives(collective=name, n_ranks=6, n_nodes=6)
    simulated = pm.simulate(None, X, planted, fidelity=fidelity)["time_s"]
    passes = 2 if name == "all_reduce" else 1
    # Written out a second time: 5 hops of a ring of 6, each over two links of 80 µs.
    expected = passes * 5 * (160e-6 + X["message_bytes"] / 6 / 2.5e7)
    assert simulated.to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-4)


def test_a_step_by_hand():
    # Forward 1 s, backward 2 s; buckets of 8 MB ready at half and at the end; 1 s each to sum.
    w = pm.Workload(
        name="w",
        parameters=4_000_000,
        gradient_tensors=(2_000_000, 2_000_000),
        gradient_ready=(0.5, 1.0),
        forward_flops_per_sample=1e9,
        backward_flops_per_sample=2e9,
        bucket_bytes=8_000_000,
        first_bucket_bytes=8_000_000,
    )
    p = platform_of(TWO.format(bandwidth="8MBps", latency="0s"))
    c = {"n_nodes": [1, 2], "gpus_per_node": [1, 1], "batch_per_gpu": [1, 1]}
    for fidelity in ("closed_form", "fluid", "message"):
        result = pm.simulate(w, pd.DataFrame(c), p, fidelity=fidelity)
        assert result["step_time_s"].tolist() == pytest.approx([3, 4])
        assert result["exposed_communication_time_s"].tolist() == pytest.approx([0, 1], abs=1e-9)
        assert result["throughput_samples_per_s"].tolist() == pytest.approx([1 / 3, 2 / 4])


def test_the_optimiser_waits_for_the_gradients(workload, planted, grid):
    slower = planted.with_values({("testbed", "prop:perfmodel.optimizer_latency"): 1.007})
    for fidelity in ("closed_form", "fluid", "message"):
        with_it = pm.simulate(workload, grid, slower, fidelity=fidelity)
        before = pm.simulate(workload, grid, planted, fidelity=fidelity)
        for name in ("step_time_s", "compute_time_s"):
            assert with_it[name].to_numpy() == pytest.approx(before[name].to_numpy() + 1)


def test_all_fidelities_agree_without_contention(workload, planted, grid):
    times = [
        pm.simulate(workload, grid, planted, fidelity=fidelity)["step_time_s"].to_numpy()
        for fidelity in ("closed_form", "fluid", "message")
    ]
    assert times[1] == pytest.approx(times[0], rel=1e-5)
    assert times[2] == pytest.approx(times[0], rel=1e-5)


def test_closed_form_knows_that_hops_share_a_link():
    body = TWO.format(bandwidth="8MBps", latency="0s").replace("SPLITDUPLEX", "SHARED")
    p = platform_of(body.replace(' direction="UP"', ""))
    X = collectives(n_ranks=2, n_nodes=2)
    closed, fluid = (
        pm.simulate(None, X, p, fidelity=f)["time_s"].to_numpy() for f in ("closed_form", "fluid")
    )
    assert closed == pytest.approx(fluid, rel=1e-3)
    alone = ring_time("all_reduce", 2**25, 2, 0, 8e6)
    assert closed[2] == pytest.approx(2 * alone)


def test_laws(workload, planted, grid):
    base = pm.simulate(workload, grid, planted)["step_time_s"]
    faster = {(f"link{i}", "bandwidth"): 5e7 for i in range(8)}
    assert (pm.simulate(workload, grid, planted.with_values(faster))["step_time_s"] <= base).all()
    assert base.to_numpy().reshape(len(NODES), 2)[:, 0].tolist() == sorted(base[::2])
    one = pm.simulate(workload, {"n_nodes": 1, "n_gpus": 1, "batch_per_gpu": 8}, planted)
    assert one["exposed_communication_time_s"][0] == 0


def test_gpus_inside_a_node_share_its_speed_and_its_fabric(workload):
    body = TWO.format(bandwidth="1GBps", latency="1us").replace(
        'id="a" speed="1Gf"/>',
        'id="a" speed="1Gf"><prop id="num_gpus" value="4"/>'
        '<prop id="gpu_to_gpu_bw" value="100MBps"/></host>',
    )
    p = platform_of(body)
    one, four = (
        pm.simulate(workload, {"n_nodes": 1, "gpus_per_node": g, "batch_per_gpu": 32}, p)
        for g in (1, 4)
    )
    # Four GPUs do four batches in the time of one; one GPU has a quarter of the node's speed.
    assert one["compute_time_s"][0] == pytest.approx(4 * 32 * 3e6 / 1e9)
    assert four["compute_time_s"][0] == pytest.approx(4 * 32 * 3e6 / 1e9)
    inside = collectives(n_ranks=4, n_nodes=1)
    time_s = pm.simulate(None, inside, p)["time_s"].to_numpy()
    assert time_s == pytest.approx(ring_time("all_reduce", inside["message_bytes"], 4, 0, 1e8))
    with pytest.raises(ConfigurationError, match=r"8 GPUs a node .* hand\.xml has 4"):
        pm.simulate(workload, {"n_nodes": 1, "gpus_per_node": 8, "batch_per_gpu": 32}, p)


def test_the_written_platform_simulates_identically(workload, planted, grid, tmp_path):
    planted.write(tmp_path / "planted.xml")
    again = pm.platform(tmp_path / "planted.xml")
    first, second = (pm.simulate(workload, grid, p) for p in (planted, again))
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_processes_at_a_time_change_nothing(workload, planted, grid):
    one, three = (pm.simulate(workload, grid, planted, n_jobs=n) for n in (1, 3))
    np.testing.assert_allclose(one["time_s"], three["time_s"], rtol=1e-9)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"n_nodes": 9}, "9 nodes are asked for, testbed.xml has 8"),
        ({"n_nodes": 2, "sharding": "zero3"}, "sharding = 'zero3'"),
        ({"n_nodes": 2, "n_gpus": 3, "gpus_per_node": None}, "uneven placements"),
    ],
)
def test_what_does_not_fit_is_refused(workload, planted, axes, message):
    axes = {"gpus_per_node": 1, "batch_per_gpu": 8} | axes
    axes = {name: value for name, value in axes.items() if value is not None}
    if "n_gpus" in axes:
        values = {("testbed", "prop:perfmodel.ring_step_latency"): 0.0}
        planted = Platform(
            planted.with_values(values).xml.replace(
                b'speed="1300000000f"/>',
                b'speed="1300000000f"><prop id="num_gpus" value="2"/></host>',
            )
        )
    with pytest.raises(ConfigurationError, match=message):
        pm.simulate(workload, pm.configurations(**axes), planted)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({"n_ranks": 2}, "needs message_bytes"),
        ({"message_bytes": 1000, "n_ranks": 0}, "n_ranks is 0"),
        ({"message_bytes": "big", "n_ranks": 2}, "message_bytes is big"),
        ({"message_bytes": 1000, "n_ranks": 2, "n_nodes": 0}, "n_nodes is 0"),
        ({"message_bytes": 1000, "n_ranks": 2, "collective": "all_to_all"}, "all_to_all"),
        ({"message_bytes": 1000, "n_ranks": 2, "algorithm": "tree"}, "'tree'"),
        ({"message_bytes": 1000, "n_ranks": 9}, "9 nodes"),
    ],
)
def test_a_collective_that_cannot_be_simulated_is_refused(planted, X, message):
    with pytest.raises((ConfigurationError, UnknownNameError), match=message):
        pm.simulate(None, X, planted)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (TWO.format(bandwidth="8MBps", latency="0s").split("<route")[0], "no connecting path"),
        (TWO.format(bandwidth="8MBps", latency="0s") + "<nonsense/>", "hand.xml"),
        (TWO.format(bandwidth="8MBps", latency="0s").replace('dst="b"', 'dst="c"'), "c"),
    ],
)
def test_a_broken_platform_is_an_exception_with_what_simgrid_said(body, message):
    X = collectives(n_ranks=2, n_nodes=2)
    with pytest.raises(SimulationError, match=message) as caught:
        pm.simulate(None, X, platform_of(body))
    assert "Traceback" not in str(caught.value)


def test_a_crash_of_the_native_library_is_an_exception():
    # A zone of a routing that SimGrid does not know makes it abort.
    p = Platform(
        platform_of(TWO.format(bandwidth="8MBps", latency="0s")).xml.replace(
            b'routing="Full"', b'routing="Nonsense"'
        )
    )
    with pytest.raises(SimulationError, match=r"status -|Nonsense|model"):
        pm.simulate(None, collectives(n_ranks=2, n_nodes=2), p)


DEADLOCK = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
worker._Simulation.step = lambda self, task: self.sg.Mailbox.by_name("nobody sends").get()
worker.main()
"""


def test_a_deadlock_is_an_exception(planted, monkeypatch, tmp_path):
    # No task of ours can deadlock, so a worker is made that waits for what never comes.
    stuck = tmp_path / "stuck.py"
    stuck.write_text(DEADLOCK.replace("sys.argv[1]", repr(str(perfmodel.simulator._WORKER))))
    monkeypatch.setattr(perfmodel.simulator, "_WORKER", stuck)
    with pytest.raises(SimulationError, match=r"deadlock.*Deadlock detected"):
        pm.simulate(None, collectives(n_ranks=2, n_nodes=2), planted)


def test_it_works_in_a_parent_that_runs_threads(planted):
    results, stop = [], threading.Event()
    spinning = threading.Thread(target=stop.wait)
    spinning.start()

    def simulate():
        results.append(pm.simulate(None, collectives(n_ranks=4, n_nodes=4), planted)["time_s"])

    threads = [threading.Thread(target=simulate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    assert len(results) == 3
    assert all(result.equals(results[0]) for result in results)


SCRIPT = textwrap.dedent("""
    import perfmodel as pm
    X = {"message_bytes": 1e6, "n_ranks": 4, "n_nodes": 4}
    print(round(pm.simulate(None, X, "testbed", n_jobs=2)["time_s"][0], 6))
""")


def test_it_works_from_a_plain_script_in_any_folder(tmp_path):
    # A module of the script's folder with the name of one of ours must not confuse the child.
    (tmp_path / "errors.py").write_text("raise RuntimeError('not mine')")
    (tmp_path / "script.py").write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(run.stdout) == pytest.approx(6 * (100e-6 + 2.5e5 / 1.25e8))
    assert run.stderr == ""


def test_it_works_where_there_is_no_main_file():
    # As in a notebook or an interactive session.
    run = subprocess.run(
        [sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, check=True
    )
    assert float(run.stdout) == pytest.approx(6 * (100e-6 + 2.5e5 / 1.25e8))


LONG = """
import signal, pandas as pd, perfmodel as pm
# Where the tests run in the background, a shell lets children ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
X = pd.DataFrame({"message_bytes": 1e9, "n_ranks": 8, "n_nodes": 8}, index=range(20_000))
print("started", flush=True)
pm.simulate(None, X, "testbed", fidelity="message", n_jobs=2)
"""


def children_of(pid):
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for thread in threads for word in thread.read_text().split()]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_children_end_with_an_interrupted_or_killed_parent(how):
    # In a session of its own, so that the signal reaches the parent alone, as in a notebook.
    parent = subprocess.Popen(
        [sys.executable, "-c", LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with parent:
        try:
            parent.stdout.readline()
            deadline = time.monotonic() + 60
            while len(children := children_of(parent.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(children) == 2
            time.sleep(1)
            os.kill(parent.pid, how)
            _, errors = parent.communicate(timeout=30)
        finally:
            parent.kill()
    if how == signal.SIGINT:
        assert b"KeyboardInterrupt" in errors
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in children)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False
