"""Text output of NVIDIA's nccl-tests (``all_reduce_perf`` and its sisters)."""

import re
from pathlib import Path

import pandas as pd

from perfmodel.errors import LogFormatError
from perfmodel.logs.log_format import LogFormat

# The names of the tests and of the collectives, and busbw / algbw for n ranks as nccl-tests'
# PERFORMANCE.md defines it.
_COLLECTIVES = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "sendrecv": lambda n: 1.0,
}
_OUR_NAME = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
_TEST_NAME = re.compile(rf"({'|'.join(_COLLECTIVES)})_perf")
_STARTING = re.compile(rf"Collective test starting: ({'|'.join(_COLLECTIVES)})")
# mpirun --tag-output and srun --label put the rank before every line.
_RANK_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:|\d+: )")
_RANK_LINE = re.compile(r"#\s+Rank\s+\d+\s.*?\bon\s+(\S+)\s+device\s+\S+\s+\[\S+\]\s+(.+?)\s*$")
_TYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double"),
    *("bfloat16", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"),
)


def _recognises(path, head):
    return re.search(r"#\s+size\s+count\b.*\btime\s+algbw\s+busbw", head) is not None


class _Test:
    """One table of results and what the lines before it say about it."""

    def __init__(self, name=None):
        self.name, self.hosts, self.device_type, self.columns = name, [], None, None
        self.rows = []


def read_nccl_tests(path, text, source):
    """Read the results of nccl-tests: out of place and in place are two rows.

    ``message_bytes`` is the size column; ``time_s`` comes from µs, bandwidths from GB/s (10⁹).
    A row that other output has torn is skipped and counted in ``source``.

    Returns
    -------
    dict of str to DataFrame
        The table ``collectives``.

    Raises
    ------
    LogFormatError
        Naming file and line: if the log is cut in the middle of a row, has no rows, or the
        number of ranks or the collective cannot be told.
    """
    test, skipped = _Test(), []
    tests = [test]
    lines, is_cut = text.splitlines(), not text.endswith("\n")
    for line_number, raw in enumerate(lines, start=1):
        line = _RANK_PREFIX.sub("", raw).strip()
        if started := _STARTING.search(line):
            test = _Test(started[1])
            tests.append(test)
        elif line.startswith("#"):
            if rank := _RANK_LINE.match(line):
                if test.columns:
                    test = _Test()
                    tests.append(test)
                test.hosts.append(rank[1])
                test.device_type = rank[2]
            elif {"size", "count", "time"} <= set(words := line.lstrip("# ").split()):
                test.columns = words
        elif test.columns and line_number == len(lines) and line[:1].isdigit() and is_cut:
            raise LogFormatError(
                path,
                f"the log is cut in the middle of a row: {line!r}; remove the line, or run the "
                "test to its end",
                line_number,
            )
        elif test.columns and _looks_like_row(line):
            words = line.split()
            if len(words) != len(test.columns):
                problem = f"{len(words)} values where the header has {len(test.columns)}"
                skipped.append(f"line {line_number}: {problem}")
                continue
            test.rows.extend(_halves(path, line_number, words, test))
        elif test.name is None and (named := _TEST_NAME.search(line)):
            test.name = named[1]
    tests = [test for test in tests if test.rows]
    if not tests:
        raise LogFormatError(path, "no result rows; did the test stop before the first size?")
    tables = []
    for test in tests:
        if test.name is None:
            test.name, why = _infer_collective(path, test)
            source["inferred"] = f"collective {test.name}, from {why}"
        table = pd.DataFrame(test.rows)
        table.insert(1, "collective", _OUR_NAME.get(test.name, test.name))
        tables.append(table)
    source["lines_skipped"] = len(skipped)
    source["first_skipped_reason"] = skipped[0] if skipped else ""
    return {"collectives": pd.concat(tables, ignore_index=True)}


def _looks_like_row(line):
    words = line.split(maxsplit=3)
    return len(words) > 2 and words[0].isdigit() and words[1].isdigit() and words[2] in _TYPES


def _halves(path, line_number, words, test):
    """Observations of a line: one out of place, one in place."""
    starts = [i for i, name in enumerate(test.columns) if name == "time"]
    common = dict(zip(test.columns[: starts[0]], words, strict=False))
    if not test.hosts:
        raise LogFormatError(
            path,
            "no '# Rank' lines before this row; keep the header: it tells the rank count",
            line_number,
        )
    for in_place, start in enumerate(starts):
        try:
            time_us, algorithm_bandwidth, bus_bandwidth = map(float, words[start : start + 3])
        except ValueError:
            continue  # N/A: this half was not run
        if common["size"] == "0" or time_us <= 0:
            continue
        yield {
            "source_line": line_number,
            "message_bytes": int(common["size"]),
            "n_ranks": len(test.hosts),
            "n_nodes": len(set(test.hosts)),
            "n_gpus": len(test.hosts),
            "device_type": test.device_type,
            "data_type": common["type"],
            "reduction": common.get("redop"),
            "in_place": bool(in_place),
            "time_s": time_us * 1e-6,
            "algorithm_bandwidth_bytes_per_s": algorithm_bandwidth * 1e9,
            "bus_bandwidth_bytes_per_s": bus_bandwidth * 1e9,
        }


def _infer_collective(path, test):
    """Collective that the file's name or, failing that, the fastest row's figures point to."""
    stem = re.sub("[^a-z]", "", Path(path).name.lower())
    named = [name for name in _COLLECTIVES if name.replace("_", "") in stem]
    if named:
        # The longest: 'allreduce' and 'reducescatter' contain 'reduce'.
        return max(named, key=len), "the file's name"
    row = max(test.rows, key=lambda row: row["algorithm_bandwidth_bytes_per_s"])
    reduces = row["reduction"] not in (None, "none")
    ratio = row["bus_bandwidth_bytes_per_s"] / row["algorithm_bandwidth_bytes_per_s"]
    fitting = [
        name
        for name, factor in _COLLECTIVES.items()
        if (name in ("all_reduce", "reduce_scatter", "reduce")) == reduces
        and abs(factor(row["n_ranks"]) - ratio) < 0.02
    ]
    if len(fitting) != 1:
        raise LogFormatError(
            path,
            f"the log names no collective, and busbw / algbw = {ratio:.3g} on {row['n_ranks']} "
            f"ranks fits {' and '.join(fitting) or 'none'}; add the line '# Collective test "
            "starting: all_reduce_perf' (or the test that it was)",
            row["source_line"],
        )
    return fitting[0], "its reduction and busbw / algbw"


FORMAT = LogFormat("nccl-tests", "text output of NVIDIA's nccl-tests", _recognises, read_nccl_tests)
