"""Intel MPI Benchmarks (IMB-MPI1): many tables in one file, one for each process count."""

import re

from perfmodel.errors import LogFormatError
from perfmodel.logs.log_format import LogFormat
from perfmodel.logs.printed import exactly, printed

# Benchmark -> our name, whether #bytes is of one peer, and what tells it from its like.
_COLLECTIVES = {
    "PingPong": ("send_recv", False, None),
    "PingPing": ("send_recv", False, "PingPing"),
    "Sendrecv": ("send_recv", False, "Sendrecv"),
    "Allreduce": ("all_reduce", False, None),
    "Reduce": ("reduce", False, None),
    "Reduce_scatter": ("reduce_scatter", False, None),
    "Allgather": ("all_gather", True, None),
    "Alltoall": ("all_to_all", True, None),
    "Bcast": ("broadcast", False, None),
    "Gather": ("gather", True, None),
    "Scatter": ("scatter", True, None),
}
_BENCHMARK = re.compile(r"#\s*Benchmarking\s+(\S+)")
_PROCESSES = re.compile(r"#\s*\(?\s*#processes\s*=\s*(\d+)")
_UNIT = {"usec": 1e-6, "msec": 1e-3, "sec": 1.0}


def _recognises(log):
    return log.contains("# Benchmarking ") and log.contains("#bytes", "#repetitions")


def read_imb(log):
    """Read Intel MPI Benchmarks.

    ``time_s`` is ``t_avg`` (over the ranks), of PingPong ``t``: half a round trip. Sizes of
    all-gather, all-to-all, gather and scatter are of one peer: ``message_bytes`` is that times
    the ranks. Whether ``Mbytes/sec`` means 2²⁰ or 10⁶ bytes changed with the version: the rows
    tell. PingPing and Sendrecv are ``send_recv`` too, told apart by ``algorithm``.

    Returns
    -------
    dict of str to list
        Rows of ``collectives``.

    Raises
    ------
    LogFormatError
        If there is no row that can be used: the line, and why.
    """
    benchmark, n_ranks, columns, previous = None, None, None, None
    rows, unknown, part = [], None, 0
    for number, raw in log.lines():
        line = raw.strip()
        if found := _BENCHMARK.match(line):
            benchmark, n_ranks, columns, previous = found[1], None, None, None
        elif "MPI Benchmarks" in line or "MPI Benchmark Suite" in line:
            part += 1
        elif found := _PROCESSES.match(line):
            n_ranks = int(found[1])
        elif line.startswith("#bytes") or line.startswith("#repetitions"):
            columns, previous = line.split(), None
            if benchmark not in _COLLECTIVES:
                unknown = unknown or (number, f"the benchmark {benchmark} is none of those known")
        elif columns and columns[0] == "#bytes" and re.match(r"\d+\s", line):
            is_cut = log.is_cut(number, raw, previous)
            if previous is not None and int(line.split()[0]) <= int(previous.split()[0]):
                columns = None  # sizes grow: this is no longer the table
                continue
            row, problem = _row(number, line.split(), columns, benchmark, n_ranks)
            if is_cut or problem:
                log.skip(number, "the log is cut in the middle of a row" if is_cut else problem)
            else:
                rows.append(row | {"_part": part})
            previous = raw
        elif line.startswith("#-"):
            columns = None
    if not rows:
        problem = unknown or (None, "Intel MPI Benchmarks without rows; did they stop at once?")
        if log.lines_skipped:
            problem = (None, f"no row can be used: {log.first_skipped_reason}")
        raise LogFormatError(log.path, problem[1], problem[0])
    return {"collectives": list(_with_rates(log, rows))}


def _with_rates(log, rows):
    """The rows, with the rates of single messages; without those whose rate contradicts them."""
    units = {part: _unit_of_rates(rows, part) for part in {row["_part"] for row in rows}}
    for row in rows:
        rate, time, unit = row.pop("_rate", None), row.pop("_time"), units[row.pop("_part")]
        if rate is not None and unit and row["message_bytes"]:
            if not _agree(row["message_bytes"] / unit, time, rate):
                log.skip(
                    row["source_line"],
                    f"{row['message_bytes']} B in {time.value:g} s is not {rate.value:g} MB/s",
                )
                continue
            row["algorithm_bandwidth_bytes_per_s"] = rate.value * unit
        yield row


def _agree(n_mbytes, time, rate):
    return (exactly(n_mbytes) / time).agrees(rate)


def _row(number, words, columns, benchmark, n_ranks):
    if benchmark not in _COLLECTIVES:
        return None, f"the benchmark {benchmark} is none of those known"
    if n_ranks is None:
        return None, "no line '# #processes =' before the table"
    if len(words) != len(columns):
        return None, f"{len(words)} values where the header has {len(columns)}"
    cells = dict(zip(columns, words, strict=True))
    name = next((c for c in columns if re.fullmatch(r"(t|t_avg)\[\w+\]", c)), None)
    if name is None:
        return None, f"no column t or t_avg among {' '.join(columns)}"
    time = printed(cells[name], _UNIT.get(name[name.index("[") + 1 : -1], 1e-6))
    if time is None or time.value <= 0:
        return None, f"{name} is {cells[name]}"
    ends = [name.replace("avg", end) for end in ("min", "max")] if "avg" in name else []
    around = [printed(cells[end]) for end in ends if end in cells]
    if None in around:
        return None, f"no numbers: {' '.join(words)}"
    average = printed(cells[name])
    if len(around) == 2 and not (around[0].low <= average.high and average.low <= around[1].high):
        return None, f"t_avg is {cells[name]}, not between t_min and t_max"
    if (printed(cells.get("defects", "0")) or time).value:
        return None, f"defects {cells['defects']}: the result is wrong"
    collective, is_per_peer, kind = _COLLECTIVES[benchmark]
    size = int(words[0])
    row = {
        "source_line": number,
        "collective": collective,
        "algorithm": kind,
        "n_ranks": n_ranks,
        "message_bytes": size * n_ranks if is_per_peer else size,
    }
    if is_per_peer:
        row["message_bytes_logged"] = size
    rate = cells.get("Mbytes/sec")
    row |= {"time_s": time.value, "statistic": "mean"}
    # Sendrecv counts what comes in too: twice the message.
    row["_time"] = time
    if rate is not None and kind != "Sendrecv" and printed(rate):
        row["_rate"] = printed(rate)
    return row, None


def _unit_of_rates(rows, part):
    """Bytes of a 'Mbyte' in a part of the file: 2²⁰ or 10⁶; None where no row or both tell."""
    timed = [
        row for row in rows if row["_part"] == part and "_rate" in row and row["message_bytes"]
    ]
    fitting = [
        sum(_agree(row["message_bytes"] / unit, row["_time"], row["_rate"]) for row in timed)
        for unit in (1e6, 2.0**20)
    ]
    if fitting[0] == fitting[1]:
        return None
    return 1e6 if fitting[0] > fitting[1] else 2.0**20


FORMATS = [
    LogFormat("imb", "Intel MPI Benchmarks (IMB-MPI1)", _recognises, read_imb, is_part=True),
]
