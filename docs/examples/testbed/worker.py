"""One process on one host: commands as JSON lines on standard input, answers on standard output.

All hosts get the same command. Rank 0 measures times, every rank counts its interface.
"""

import argparse
import itertools
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from network import HEADER_BYTES
from training import BUCKET_MIB, PacedStep

# gloo's threads must not wait for a computing process: they run before everything else.
_NETWORK_THREADS = ("gloo_tcp_loop", "pt_gloo_runloop", "pt_tcpstore_uv")
# Time for what is still on the wire to be counted.
_DRAIN_S = 0.3


def favour_network_threads():
    """Give gloo's threads of this process real-time priority."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() in _NETWORK_THREADS:
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(10))


@contextmanager
def favoured():
    """Give this thread real-time priority too, below gloo's: where it computes nothing."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def sent():
    """Bytes and packets that the host's interface has sent so far."""
    counters = Path("/sys/class/net/eth0/statistics")
    return [int((counters / name).read_text()) for name in ("tx_bytes", "tx_packets")]


class Traffic:
    """Counts what is sent between its two calls, once nothing is on the wire."""

    def start(self):
        """Begin to count."""
        time.sleep(_DRAIN_S)
        self._start = sent()

    def per(self, operations):
        """Bytes and header bytes of each of the operations since `start`."""
        time.sleep(_DRAIN_S)
        n_bytes, packets = (now - then for now, then in zip(sent(), self._start, strict=True))
        return {
            "sent_bytes": n_bytes / operations,
            "sent_header_bytes": packets * HEADER_BYTES / operations,
        }


def completions(operation, repetitions):
    """Times from one completion to the next: the first, which waits for late ranks, is left out."""
    times, results = [], []
    for _ in range(repetitions + 1):
        results.append(operation())
        times.append(time.monotonic())
    return [b - a for a, b in itertools.pairwise(times)], results[1:]


def allreduce(group, command):
    """Allreduces of one size, back to back."""
    buffer = torch.ones(command["message_bytes"] // 4)

    def operation():
        dist.all_reduce(buffer, group=group)

    traffic = Traffic()
    with favoured():
        for _ in range(command["warm_up"]):
            operation()
        traffic.start()
        times, _ = completions(operation, command["repetitions"])
    return {"times": times, "traffic": traffic.per(command["repetitions"] + 1)}


def train(group, command):
    """Steps of one network at one batch size."""

    def wrap(network):
        if group is None:
            return network
        # The network has no buffers; bucket_cap_mb is in MiB.
        return torch.nn.parallel.DistributedDataParallel(
            network, process_group=group, bucket_cap_mb=BUCKET_MIB, gradient_as_bucket_view=True
        )

    step = PacedStep(
        command["workload"], command["batch"], command["schedule"], command["ready"], wrap
    )
    # The first step rebuilds the buckets in the order in which gradients complete.
    for _ in range(command["warm_up"]):
        step()
    favour_network_threads()
    traffic = Traffic()
    traffic.start()
    times, computed = completions(step, command["repetitions"])
    return {
        "times": times,
        "compute": [seconds for seconds, _ in computed],
        "late": sum(late for _, late in computed),
        "traffic": traffic.per(command["repetitions"] + 1),
    }


def main():
    """Join the group of all hosts, then serve commands until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--leader", required=True, help="address of rank 0")
    parser.add_argument("--groups", required=True, help="host counts, by commas")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    groups = {1: None}
    if options.size > 1:
        meeting = f"tcp://{options.leader}:29500"
        dist.init_process_group("gloo", meeting, rank=options.rank, world_size=options.size)
        for n in map(int, options.groups.split(",")):
            groups[n] = dist.new_group(list(range(n))) if n > 1 else None
    do = {"allreduce": allreduce, "train": train}
    print(json.dumps({"rank": options.rank}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        favour_network_threads()
        answer = do[command["do"]](groups[command["n_hosts"]], command)
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
