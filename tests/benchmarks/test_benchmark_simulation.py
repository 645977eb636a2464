"""What it costs to run one simulation, by each way of isolating it."""

import subprocess
import sys
import textwrap

import pandas as pd
import pytest

import perfmodel as pm
from perfmodel.simulator import _WORKER, run_jobs

pytestmark = pytest.mark.usefixtures("needs_simgrid")

# The peer: a server that has simgrid loaded and forks for each job.
FORK_SERVER = textwrap.dedent("""
    import importlib.util, json, os, sys
    spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    import simgrid
    for line in sys.stdin:
        read, write = os.pipe()
        if os.fork() == 0:
            worker.pin_to_one_processor()
            answer = worker.serve(simgrid, json.loads(line))
            os.write(write, (json.dumps(answer) + "\\n").encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            print(file.readline(), end="", flush=True)
        os.wait()
""")


def one_allreduce(platform):
    hosts = platform.hosts()
    bucket = {"n_steps": 14, "bytes": 1.75e6, "step_latency_s": 0.0, "inside_time_s": 0.0}
    task = {
        "hosts": hosts,
        "flops": [0.0, 0.0],
        "optimizer_s": 0.0,
        "buckets": [bucket],
        "fidelity": "fluid",
    }
    return {"tasks": [task], "routes": []}


def test_fresh_process(benchmark):
    platform = pm.platform("testbed")
    job = one_allreduce(platform)
    (answer,) = benchmark(run_jobs, platform, [job])
    assert answer["tasks"][0]["time_s"] == pytest.approx(14 * 100e-6 + 1.75e6 / 1.25e8)


def test_fork_server(benchmark):
    import json

    platform = pm.platform("testbed")
    job = one_allreduce(platform)
    job |= {"platform": platform.text_4_1().decode(), "platform_name": "testbed"}
    job |= {"driver_host": "host0"}
    server = subprocess.Popen(
        [sys.executable, "-c", FORK_SERVER, str(_WORKER)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip

    def ask():
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())

    answer = benchmark(ask)
    server.kill()
    server.communicate()
    assert answer["tasks"][0]["time_s"] == pytest.approx(14 * 100e-6 + 1.75e6 / 1.25e8)


@pytest.mark.parametrize("fidelity", ["closed_form", "fluid", "message"])
def test_hundred_allreduces(benchmark, fidelity):
    X = pd.DataFrame({"message_bytes": [2.0**20] * 100, "n_ranks": 8, "n_nodes": 8})
    result = benchmark(pm.simulate, None, X, "testbed", fidelity=fidelity)
    assert len(result) == 100
