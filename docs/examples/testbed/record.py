"""Record real logs on the testbed: allreduces and training steps at several host counts and rates.

Run as root, with a Python that has torch:

    python docs/examples/testbed/record.py --out docs/examples/testbed/logs

What is held out was written here before anything was measured.
"""

import argparse
import csv
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from network import (
    BURST_BYTES,
    MTU_BYTES,
    QUEUE_S,
    Network,
    TestbedError,
    address,
    host_name,
    inside,
    missing_tools,
)

HERE = Path(__file__).parent
HOSTS = [1, 2, 3, 4, 6, 8]
RATES_MBIT = [200, 100]
BATCHES = {"small_cnn": [8, 16, 24, 32, 48], "small_transformer": [2, 4, 6, 8, 12]}
MESSAGE_BYTES = [2**i for i in range(10, 26)]

# Named before anything is measured: no model may be fitted to these.
HELD_OUT_HOSTS = [6, 8]
HELD_OUT_BATCHES = {"small_cnn": [24, 48], "small_transformer": [6, 12]}

# What the machine must be able to do for its logs to mean anything.
LARGEST_COMPUTE_DIFFERENCE = 0.02
LARGEST_LATE_SHARE = 0.05
LARGEST_PROCESSOR_SPREAD = 0.10
SMALLEST_BUS_SHARE = 0.95
BUS_CHECK_BYTES = 2**20
# Traffic of smaller messages is mostly headers and acknowledgements.
SMALLEST_COUNTED_BYTES = 2**16
_QUIET = "let nothing else run on this machine and try again"


class Pool:
    """One worker on each host, all given the same commands."""

    def __init__(self, n_hosts, groups):
        self._workers = []
        for i in range(n_hosts):
            command = ["taskset", "-c", str(i % os.cpu_count()), sys.executable, HERE / "worker.py"]
            command += ["--rank", i, "--size", n_hosts, "--leader", address(0)]
            command += ["--groups", ",".join(map(str, groups))]
            environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
            self._workers.append(
                subprocess.Popen(
                    inside(host_name(i), *command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )

    def __enter__(self):
        self._answers(self._workers)
        return self

    def __exit__(self, *_):
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()

    def ask(self, n_hosts, **command):
        """Answers of the first `n_hosts` workers to a command."""
        asked = self._workers[:n_hosts]
        line = json.dumps(command | {"n_hosts": n_hosts}) + "\n"
        for worker in asked:
            worker.stdin.write(line)
            worker.stdin.flush()
        return self._answers(asked)

    @staticmethod
    def _answers(workers):
        answers = [worker.stdout.readline() for worker in workers]
        if not all(answers):
            raise TestbedError("a worker ended early; its message is above")
        return [json.loads(answer) for answer in answers]


class Campaign:
    """The recording of one testbed, into a folder."""

    def __init__(self, folder, hosts, rates, brief):
        self.folder, self.hosts, self.rates, self.brief = folder, hosts, rates, brief
        self.ready = {
            name: tomllib.loads((HERE / f"{name}.toml").read_text())["gradient_ready"]
            for name in BATCHES
        }
        self.batches = {name: b[:2] if brief else b for name, b in BATCHES.items()}
        self.checks, self.again, self.steps, self.late = {}, [], 0, 0

    def run(self):
        """Measure everything, check it, and write the logs."""
        plan = {
            "hosts": self.hosts,
            "rates_mbit": self.rates,
            "batches": self.batches,
            "held_out_hosts": HELD_OUT_HOSTS,
            "held_out_batches": HELD_OUT_BATCHES,
        }
        write_json(self.folder / "plan.json", plan)
        self.schedules = self.paced()
        started = time.strftime("%Y-%m-%d")
        n_hosts = max(self.hosts)
        with Network(n_hosts, self.rates[0]) as network, Pool(n_hosts, self.hosts) as pool:
            for rate in self.rates:
                network.set_rate(rate)
                folder = self.folder / f"{rate}mbit"
                folder.mkdir()
                self.allreduces(pool, rate, folder)
                self.training(pool, rate, folder)
        write_json(self.folder / "host.json", self.facts() | {"date": started})

    def paced(self):
        """Schedules of all batch sizes, from processor times that agree when measured again."""
        import torch
        from training import processor_time, schedule_of

        torch.set_num_threads(1)
        pairs = [(name, batch) for name, batches in self.batches.items() for batch in batches]

        def measure():
            # One round after the other over all: a slow spell cannot hide in one batch size.
            rounds = [{pair: processor_time(*pair) for pair in pairs} for _ in range(20)]
            least, worst = {}, 0.0
            for pair in pairs:
                least[pair] = [min(p) for p in zip(*(times[pair] for times in rounds), strict=True)]
                fastest, second, *_ = sorted(sum(times[pair]) for times in rounds)
                worst = max(worst, second / fastest - 1)
            return worst, least

        times = self.until("least processor time, again", 0.0, LARGEST_PROCESSOR_SPREAD, measure)
        return {
            name: {batch: schedule_of(times[name, batch]) for batch in batches}
            for name, batches in self.batches.items()
        }

    def allreduces(self, pool, rate, folder):
        """Allreduces of every size at every host count."""
        times, traffic = [], []
        for n in [n for n in self.hosts if n > 1]:
            what = f"bus bandwidth at 1 MiB ÷ rate, {n} hosts, {rate} Mbit/s"
            new_times, new_traffic = self.until(
                what, SMALLEST_BUS_SHARE, 1.1, lambda n=n: self.allreduces_on(pool, rate, n)
            )
            times += new_times
            traffic += new_traffic
            say(f"{rate} Mbit/s: allreduces on {n} hosts")
        write_csv(folder / "collectives.csv", times)
        write_csv(folder / "collective_traffic.csv", traffic)

    def allreduces_on(self, pool, rate, n):
        """Bus bandwidth at 1 MiB as a share of the rate, and the rows of times and of traffic."""
        times, traffic, share = [], [], 0.0
        for size in [2**16, BUS_CHECK_BYTES] if self.brief else MESSAGE_BYTES:
            repetitions = 3 if size > 2**23 else 6 if size > 2**21 else 12
            answers = pool.ask(
                n, do="allreduce", message_bytes=size, warm_up=1, repetitions=repetitions
            )
            row = {"collective": "all_reduce", "message_bytes": size, "n_ranks": n, "n_nodes": n}
            kinds = {"algorithm": "ring", "data_type": "float", "reduction": "sum"}
            times += [
                row | kinds | {"repetition": i, "time_s": f"{t:.9g}"}
                for i, t in enumerate(answers[0]["times"])
            ]
            if size >= SMALLEST_COUNTED_BYTES:
                traffic += counted(row, answers)
            if size == BUS_CHECK_BYTES:
                median_s = statistics.median(answers[0]["times"])
                share = 2 * (n - 1) / n * size * 8 / median_s / (rate * 1e6)
        return share, (times, traffic)

    def training(self, pool, rate, folder):
        """Steps of every network and batch size at every host count."""
        steps, traffic = [], []
        for name, batches in self.batches.items():
            for batch in batches:
                what = f"compute at most and fewest hosts, {name}, batch {batch}, {rate} Mbit/s"
                new_steps, new_traffic = self.until(
                    what,
                    0.0,
                    LARGEST_COMPUTE_DIFFERENCE,
                    lambda name=name, batch=batch: self.steps_of(pool, name, batch),
                )
                steps += new_steps
                traffic += new_traffic
                say(f"{rate} Mbit/s: {name}, batch {batch}")
        write_csv(folder / "steps.csv", steps)
        write_csv(folder / "traffic.csv", traffic)
        share = self.late / self.steps
        self.checks["late steps"] = round(share, 4)
        if share > LARGEST_LATE_SHARE:
            raise TestbedError(f"not recorded: {share:.1%} of the steps are late; {_QUIET}")

    def steps_of(self, pool, name, batch):
        """Difference of compute between host counts, and the rows of steps and of traffic."""
        steps, traffic, compute = [], [], {}
        repetitions = 5 if self.brief else 8
        for n in self.hosts:
            answers = pool.ask(
                n,
                do="train",
                workload=name,
                batch=batch,
                schedule=self.schedules[name][batch],
                ready=self.ready[name],
                warm_up=3,
                repetitions=repetitions,
            )
            row = {"workload": name, "n_nodes": n, "n_gpus": n, "batch_per_gpu": batch}
            measured = zip(answers[0]["times"], answers[0]["compute"], strict=True)
            steps += [
                row | {"repetition": i, "step_time_s": f"{t:.9g}", "compute_time_s": f"{c:.9g}"}
                for i, (t, c) in enumerate(measured)
            ]
            if n > 1:
                traffic += counted(row, answers)
            compute[n] = statistics.median(answers[0]["compute"])
            self.steps += repetitions * n
            self.late += sum(answer["late"] for answer in answers)
        difference = abs(compute[max(compute)] / compute[min(compute)] - 1)
        return difference, (steps, traffic)

    def until(self, what, low, high, measure):
        """Rows of a measurement whose figure passes; three tries, since machines are disturbed."""
        for attempt in range(3):
            figure, rows = measure()
            self.checks[what] = round(figure, 4)
            if low <= figure <= high:
                return rows
            self.again.append(f"{what}: {figure:.4f}")
            say(f"again, attempt {attempt + 1} gave {figure:.3f}: {what}")
        raise TestbedError(f"not recorded: {what} is {figure:.3f}; {_QUIET}")

    def facts(self):
        """What the host is and how it was set."""
        import torch

        cpu = [
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
        ]
        congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        return {
            "cpu": cpu[0].split(":")[1].strip() if cpu else platform.machine(),
            "cores": os.cpu_count(),
            "kernel": platform.release().split("-")[0],
            "python": platform.python_version(),
            "torch": torch.__version__,
            "mtu_bytes": MTU_BYTES,
            "token_bucket": {"burst_bytes": BURST_BYTES, "latency_s": QUEUE_S},
            "congestion_control": congestion,
            "schedules": self.schedules,
            "late_steps": {"late": self.late, "of": self.steps},
            "checks": self.checks,
            "measured_again": self.again,
        }


def counted(row, answers):
    """Rows of the interface counters, one a rank."""
    return [
        row
        | {"rank": rank}
        | {name: f"{value:.1f}" for name, value in answer["traffic"].items()}
        | {"statistic": "mean"}
        for rank, answer in enumerate(answers)
    ]


def write_csv(path, rows):
    """Write rows with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_json(path, value):
    """Write a value for people to read too."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def say(text):
    """Tell how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)


def numbers(text):
    """Whole numbers by commas."""
    return [int(part) for part in text.split(",")]


def main():
    """Record into a folder beside the one asked for, which is replaced at the end or not at all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hosts", type=numbers, default=HOSTS)
    parser.add_argument("--rates", type=numbers, default=RATES_MBIT, help="Mbit/s")
    parser.add_argument("--brief", action="store_true", help="few sizes and steps")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("record.py: ended by SIGTERM"))
    out = options.out.resolve()
    partial, old = out.with_name(f"{out.name}.partial"), out.with_name(f"{out.name}.old")
    try:
        if os.geteuid() != 0:
            raise TestbedError("network namespaces need root")
        if missing := missing_tools():
            raise TestbedError(f"missing Debian packages: {' '.join(missing)}")
        try:
            import torch  # noqa: F401
        except ImportError:
            raise TestbedError("missing Python package: torch (2.13.0 was used)") from None
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        Campaign(partial, options.hosts, options.rates, options.brief).run()
        if out.exists():
            out.rename(old)
        partial.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    except TestbedError as error:
        sys.exit(f"record.py: {error}")
    except KeyboardInterrupt:
        sys.exit("record.py: interrupted")
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    main()
