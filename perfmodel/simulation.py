"""Simulate training on a platform: configurations to child processes and back."""

import os
from collections import Counter

import numpy as np
import pandas as pd

from perfmodel.configuration import complete, refuse_unsupported
from perfmodel.errors import ConfigurationError, UnknownNameError
from perfmodel.models.collective import ring_time
from perfmodel.models.step import overlapped_step_time
from perfmodel.models.table import as_table
from perfmodel.platform_file import platform as read_platform
from perfmodel.simulator import run_jobs
from perfmodel.traffic import SUPPORTED, ring_traffic, steps_in, volumes

FIDELITIES = ("closed_form", "fluid", "message")


def simulate(
    workload,
    configurations,
    platform,
    fidelity="fluid",
    per="step",
    uncertainty=False,
    n_jobs=1,
    cache=None,
    seed=0,
):
    """Simulate a training job, or collectives alone, on a SimGrid platform.

    Compute runs on every node at its ``speed``; gradient buckets become ready during the backward
    pass and are summed, one after the other, by ring allreduces over the platform's links
    (network model ``raw``). Nothing costs time that the platform does not write down.

    Parameters
    ----------
    workload : Workload or None
        What is trained; None if each row is a collective alone.
    configurations : DataFrame or mapping
        Configuration columns, or, without a workload, ``collective``, ``message_bytes``,
        ``n_ranks`` and ``n_nodes``.
    platform : Platform, str or path
    fidelity : {'fluid', 'closed_form', 'message'}
        All bytes of a ring's hop as one flow; the formulas of `models` with the platform's
        numbers; or every message of every step.
    per : {'step', 'epoch', 'run'}
        Period; one steady-state step is simulated, and counted as often as the period has steps.
    uncertainty : bool
        Not supported yet.
    n_jobs : int
        Simulations at a time; each runs in a process of its own.
    cache : None
        Not supported yet.
    seed : int
        Of random numbers; nothing simulated so far is random.

    Returns
    -------
    DataFrame
        The rows of `configurations`, then ``time_s`` and, of a step, ``step_time_s``,
        ``throughput_samples_per_s``, ``compute_time_s``, ``exposed_communication_time_s`` and
        the columns of `volumes`.

    Raises
    ------
    ConfigurationError
        If a configuration asks for what is not supported or does not fit on the platform (also a
        `ValueError`).
    SimulationError
        With SimGrid's own message (also a `RuntimeError`).
    MissingExtraError
        Without SimGrid (also an `ImportError`).
    """
    platform = read_platform(platform)
    if fidelity not in FIDELITIES:
        raise UnknownNameError("fidelity", fidelity, FIDELITIES)
    if uncertainty or cache is not None:
        raise ConfigurationError("uncertainty and cache are not supported yet; leave them out")
    if workload is None:
        table = _collectives(configurations)
        tasks = [collective_task(row, platform) for row in table.to_dict("records")]
    else:
        table = volumes(workload, configurations, per=per)
        table.attrs.clear()
        tasks = [step_task(workload, row, platform) for row in table.to_dict("records")]
    results = pd.DataFrame(run_tasks(platform, tasks, fidelity, n_jobs=n_jobs), index=table.index)
    if workload is None:
        return table.drop(columns="time_s", errors="ignore").assign(time_s=results["time_s"])
    return _with_times(table, results, steps_in(per, workload, table), per)


def step_rows(configurations):
    """Checked rows, one dict a configuration, of which `step_task` makes tasks."""
    table = complete(configurations)
    refuse_unsupported(table, SUPPORTED, "simulate")
    return table.to_dict("records")


def collective_rows(table):
    """Checked rows, one dict a collective, of which `collective_task` makes tasks."""
    return _collectives(table).to_dict("records")


def run_tasks(platform, tasks, fidelity="fluid", n_jobs=1):
    """Times of tasks on a platform: list of dict with ``time_s`` and ``compute_time_s``.

    Tasks of one simulation run one after the other in one process; with `n_jobs` they are dealt
    out to that many processes.
    """
    if not tasks:
        return []
    if fidelity == "closed_form":
        return closed_form(platform, tasks, ring_routes(platform, tasks))
    tasks = [task | {"fidelity": fidelity} for task in tasks]
    n_parts = max(1, min(n_jobs if n_jobs > 0 else os.cpu_count() or 1, len(tasks)))
    parts = [{"tasks": tasks[i::n_parts], "routes": []} for i in range(n_parts)]
    answers = run_jobs(platform, parts)
    results = [None] * len(tasks)
    for i, answer in enumerate(answers):
        results[i::n_parts] = answer["tasks"]
    return results


def ring_routes(platform, tasks):
    """Names of the links of every hop of the tasks' rings: dict of (host, host) to list of str.

    SimGrid computes routes; the formulas of ``closed_form`` only need to know them once for all
    values of the platform's numbers.
    """
    pairs = {pair for task in tasks for pair in _pairs(task["hosts"])}
    if not pairs:
        return {}
    pairs = sorted(pairs)
    (answer,) = run_jobs(platform, [{"tasks": [], "routes": pairs}])
    return {pair: route["links"] for pair, route in zip(pairs, answer["routes"], strict=True)}


def closed_form(platform, tasks, routes):
    """Times of tasks by the formulas of `models` with the platform's numbers.

    A hop of the ring gets its links' bandwidth, shared with the other hops of the ring that use
    the same link.
    """
    results, rates = [], {}
    for task in tasks:
        hosts = tuple(task["hosts"])
        if hosts not in rates:
            speed = min(platform.speed(host) for host in hosts)
            rates[hosts] = (*_ring_rates(platform, hosts, routes), speed)
        latency_s, bandwidth, speed = rates[hosts]
        times = np.cumsum([flops / speed for flops in task["flops"]])
        total_s = float(times[-1])

        def bucket_time(bucket, latency_s=latency_s, bandwidth=bandwidth):
            if latency_s is None:
                return bucket["inside_time_s"]
            outside_s = bucket["n_steps"] * (latency_s + bucket["step_latency_s"])
            return max(outside_s + bucket["bytes"] / bandwidth, bucket["inside_time_s"])

        # The flops before a bucket hold the forward pass too, so shares are of both passes.
        ready = times[:-1] / total_s if total_s else np.ones(len(times) - 1)
        buckets = list(zip(task["buckets"], ready, strict=True))
        optimizer_s = task["optimizer_s"]
        time_s = overlapped_step_time(0.0, total_s, buckets, bucket_time, optimizer_s)
        results.append({"time_s": time_s, "compute_time_s": total_s + optimizer_s})
    return results


def _ring_rates(platform, hosts, routes):
    """Latency of the slowest hop of a ring, and bandwidth of its most crowded link."""
    hops = [[(name, platform.link(name)) for name in routes[pair]] for pair in _pairs(hosts)]
    if not hops:
        return None, None
    crowd = Counter(name for hop in hops for name, _ in hop)
    latency_s = max(sum(link.latency_s for _, link in hop) for hop in hops)
    bandwidth = min(
        link.bandwidth / (1 if link.fat else crowd[name]) for hop in hops for name, link in hop
    )
    return latency_s, bandwidth


def _with_times(table, results, steps, per):
    """The table with simulated times between the configurations and the volumes."""
    at = table.columns.get_loc("communication_bytes")
    step_time_s, compute_s = results["time_s"], results["compute_time_s"]
    times = {"time_s": step_time_s * steps}
    if per == "step":
        times["step_time_s"] = step_time_s
    times["throughput_samples_per_s"] = table["global_batch"] / step_time_s
    times["compute_time_s"] = compute_s * steps
    times["exposed_communication_time_s"] = (step_time_s - compute_s) * steps
    result = pd.concat([table.iloc[:, :at].assign(**times), table.iloc[:, at:]], axis="columns")
    return result.assign(node_hours=result["n_nodes"] * result["time_s"] / 3600)


def _collectives(table):
    table, _ = as_table(table, (), "a collective")
    for name in ("message_bytes", "n_ranks"):
        if name not in table:
            raise ConfigurationError(f"a collective needs {name}; add the column")
    if "n_nodes" not in table:
        table = table.assign(n_nodes=table["n_ranks"])
    if "collective" not in table:
        table = table.assign(collective="all_reduce")
    for name in ("message_bytes", "n_ranks", "n_nodes"):
        wrong = ~(pd.to_numeric(table[name], errors="coerce") >= 1)
        if wrong.any():
            raise ConfigurationError(
                f"{name} is {table[name][wrong].iloc[0]}; it must be a number of at least 1"
            )
    if "algorithm" in table:
        odd = set(table["algorithm"].dropna().str.lower()) - {"ring"}
        if odd:
            raise ConfigurationError(
                f"algorithm {odd.pop()!r} cannot be simulated yet; the ring can"
            )
    return table


def collective_task(row, platform):
    """Task of `run_tasks` that is a collective alone."""
    hosts = _first_hosts(platform, int(row["n_nodes"]))
    n_ranks = int(row["n_ranks"])
    bucket = _bucket(platform, hosts, row["collective"], float(row["message_bytes"]), n_ranks)
    return {"hosts": hosts, "flops": [0.0, 0.0], "optimizer_s": 0.0, "buckets": [bucket]}


def step_task(workload, row, platform):
    """Task of `run_tasks` that is a training step: the compute between buckets, and the buckets."""
    hosts = _first_hosts(platform, row["n_nodes"])
    n_ranks = row["n_gpus"]
    gpus_per_node = n_ranks / row["n_nodes"]
    installed = min(platform.property("num_gpus", host, default=1.0) for host in hosts)
    if gpus_per_node > installed:
        raise ConfigurationError(
            f"{gpus_per_node:g} GPUs a node are asked for, {platform.source} has {installed:g} "
            "(property num_gpus)"
        )
    if "batch_per_gpu" not in row:
        raise ConfigurationError("a step needs batch_per_gpu or global_batch; add it")
    forward, backward = (
        # A node's speed is that of all its accelerators: of k out of n, each computes its own
        # batch while the node does k batches at k / n of its speed.
        flops * row["batch_per_gpu"] * installed
        for flops in workload.require("forward_flops_per_sample", "backward_flops_per_sample")
    )
    accumulation = row.get("accumulation_steps", 1)
    # The fixed time of a micro-batch is spread over both passes like their operations.
    latency_s = platform.property("perfmodel.compute_latency")
    speed = min(platform.speed(host) for host in hosts)
    stretch = 1 + latency_s * speed / (forward + backward)
    forward, backward = forward * stretch, backward * stretch
    buckets = workload.buckets(row.get("dtype", "fp32"))
    flops, done = [], 0.0
    for _, share in buckets:
        flops.append(backward * (share - done))
        done = share
    flops.append(backward * (1 - done))
    flops[0] += forward + (accumulation - 1) * (forward + backward)
    rings = [_bucket(platform, hosts, "all_reduce", size, n_ranks) for size, _ in buckets]
    optimizer_s = platform.property("perfmodel.optimizer_latency")
    return {"hosts": hosts, "flops": flops, "optimizer_s": optimizer_s, "buckets": rings}


def _bucket(platform, hosts, collective, n_bytes, n_ranks):
    n_nodes = len(hosts)
    if n_ranks < n_nodes or n_ranks % n_nodes:
        raise ConfigurationError(
            f"{n_ranks} ranks on {n_nodes} nodes: uneven placements cannot be simulated yet"
        )
    n_steps, sent_bytes = ring_traffic(collective, n_bytes, n_ranks)
    inside_time_s = 0.0
    if n_ranks > n_nodes:
        inside_time_s = ring_time(
            collective,
            n_bytes,
            n_ranks,
            max(platform.property("gpu_to_gpu_lat", host) for host in hosts),
            min(platform.property("gpu_to_gpu_bw", host, default=np.inf) for host in hosts),
        )
    return {
        "n_steps": int(n_steps),
        "bytes": float(sent_bytes),
        "step_latency_s": platform.property("perfmodel.ring_step_latency"),
        "inside_time_s": float(inside_time_s),
    }


def _first_hosts(platform, n_nodes):
    hosts = platform.hosts()
    if n_nodes > len(hosts):
        raise ConfigurationError(
            f"{n_nodes} nodes are asked for, {platform.source} has {len(hosts)}"
        )
    return hosts[:n_nodes]


def _pairs(hosts):
    """Hops of a ring over hosts."""
    if len(hosts) < 2:
        return []
    return list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
