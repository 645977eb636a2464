"""Reading logs, against json.load and pandas on the same generated files (make bench).

Sizes are those of the targets: a trace of 1 GB, 100 MB of MLLOG, 10,000 small files. Peak memory is
that of a process of its own.
"""

import gzip
import json
import subprocess
import sys

import pytest

EVENTS_PER_STEP = 20_000


def event(i, cat, name, dur, **args):
    place = {"pid": 12345, "tid": 7, "ts": 1712195495502094.473 + 13.25 * i, "dur": dur}
    return {"ph": "X", "cat": cat, "name": name, **place, "args": args}


def step(number):
    """Events of a step as Kineto prints them, one object over several lines."""
    first = number * EVENTS_PER_STEP
    length = 13.25 * EVENTS_PER_STEP
    parts = [event(first, "user_annotation", f"ProfilerStep#{number}", length)]
    for i in range(first + 1, first + EVENTS_PER_STEP, 4):
        parts += [
            event(i, "cpu_op", "aten::add_", 9.5, **{"External id": i, "Sequence number": i}),
            event(i + 1, "cuda_runtime", "cudaLaunchKernel", 4.25, correlation=i),
            event(
                i + 2, "kernel", "void at::native::vectorized_elementwise_kernel<4>", 6.125,
                correlation=i, stream=7, grid=[160, 1, 1], block=[128, 1, 1],
            ),
            {"ph": "f", "id": i, "pid": 0, "tid": 7, "ts": 17.5, "cat": "ac2g", "name": "ac2g"},
        ]  # fmt: skip
    return ",\n".join(json.dumps(part, indent=2) for part in parts)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


def gzip_fast(path, mode):
    return gzip.open(path, mode, compresslevel=4)


def trace(path, n_bytes):
    opens = gzip_fast if path.suffix == ".gz" else open
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 8}}
    with opens(path, "wt") as file:
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        written, number, text = 0, 0, step(0)
        while written < n_bytes:
            # Only the first step is made anew: making them takes longer than reading them.
            file.write(
                (",\n" if number else "") + text.replace("ProfilerStep#0", f"ProfilerStep#{number}")
            )
            written, number = written + len(text), number + 1
        file.write('], "traceName": "x"}')
    return written / 1e6


MEASURE = """
import json, resource, sys, time
{setup}
start = time.perf_counter()
{statement}
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))
"""
OURS = ("import perfmodel as pm", "m = pm.read_logs(sys.argv[1])")
PEER = (
    "import gzip, pandas as pd",
    "opens = gzip.open if sys.argv[1].endswith('gz') else open\n"
    "with opens(sys.argv[1]) as file:\n"
    "    table = pd.DataFrame(json.load(file)['traceEvents'])",
)


def alone(path, setup, statement):
    """Seconds and peak GB of a statement in a process of its own."""
    code = MEASURE.format(setup=setup, statement=statement)
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True)
    return json.loads(run.stdout)


def reported(benchmark, capsys, what, n_mb, runs):
    with capsys.disabled():
        for name, (seconds, peak_gb) in runs.items():
            rate = f"{n_mb / seconds:6.0f} MB/s" if n_mb else ""
            print(f"\n{what:>22} {name:<22} {seconds:6.2f} s {rate} peak {peak_gb:.2f} GB", end="")
            benchmark.extra_info[f"{name} s"], benchmark.extra_info[f"{name} GB"] = seconds, peak_gb


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_benchmark_a_trace_of_1_gb(benchmark, folder, capsys, suffix):
    path = folder / f"trace.json{suffix}"
    n_mb = trace(path, 1e9)
    runs = {"perfmodel": benchmark.pedantic(alone, (path, *OURS), rounds=1)}
    # The peer needs about ten times the file in memory: a fifth of it, for its rate.
    small = folder / f"small.json{suffix}"
    n_small_mb = trace(small, 2e8)
    seconds, peak_gb = alone(small, *PEER)
    runs["json.load + pandas, 1/5"] = seconds * n_mb / n_small_mb, peak_gb
    reported(benchmark, capsys, f"Kineto {suffix}", n_mb, runs)


def test_benchmark_100_mb_of_mllog(benchmark, folder, capsys):
    line = (
        ':::MLLOG {{"namespace": "", "time_ms": {0}, "event_type": "POINT_IN_TIME", "key": "{1}", '
        '"value": {2}, "metadata": {{"file": "/workspace/x/custom_callbacks.py", "lineno": 223, '
        '"samples_count": {0}, "lr": 0.00039990588350021866}}}}\n'
    )
    path, written, i = folder / "mllog.txt", 0, 1728509141466
    with open(path, "w") as file:
        written += file.write(line.format(i, "run_start", "null"))
        while written < 1e8:
            i += 17
            key, value = "train_loss", "2.5"
            if i % 100 < 17:
                key, value = "tracked_stats", f'{{"throughput": {i}.5}}'
            written += file.write(line.format(i, key, value))
    peer = (
        "import pandas as pd",
        "with open(sys.argv[1]) as file:\n"
        "    table = pd.DataFrame([json.loads(l[9:]) for l in file if l.startswith(':::MLLOG')])",
    )
    runs = {
        "perfmodel": benchmark.pedantic(alone, (path, *OURS), rounds=1),
        "json.loads + pandas": alone(path, *peer),
    }
    reported(benchmark, capsys, "MLLOG", written / 1e6, runs)


def test_benchmark_10_000_small_files(benchmark, folder, capsys):
    many = folder / "many"
    many.mkdir()
    head = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1\n# Using devices\n"
    for rank in range(8):
        head += f"#  Rank {rank} Group  0 Pid 1 on node-{rank // 4} device {rank % 4} [0x0] A100\n"
    head += "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    for i in range(10_000):
        rows = []
        for power in range(10, 31, 2):
            size, time_us = 1 << power, 20.0 + (i % 100) / 100 + (1 << power) / 1e4
            alg = size / time_us / 1e3
            half = f"{time_us:.2f} {alg:.2f} {alg * 1.75:.2f} 0"
            rows.append(f"  {size} {size // 4} float sum -1 {half} {half}\n")
        (many / f"{i}.log").write_text(head + "".join(rows))
    peer = (
        "import pandas as pd, pathlib",
        "parts = [pd.read_csv(p, sep=r'\\s+', comment='#', header=None) "
        "for p in sorted(pathlib.Path(sys.argv[1]).iterdir())]\n"
        "table = pd.concat(parts, ignore_index=True)",
    )
    runs = {
        "perfmodel": benchmark.pedantic(alone, (many, *OURS), rounds=1),
        "pandas.read_csv": alone(many, *peer),
    }
    reported(benchmark, capsys, "10,000 nccl-tests", None, runs)
