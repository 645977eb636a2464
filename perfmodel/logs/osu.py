"""OSU micro-benchmarks: latency, bandwidth and collectives, of MPI, GPUs, and with ``-f``."""

import re

from perfmodel.errors import LogFormatError
from perfmodel.logs.log_format import LogFormat
from perfmodel.logs.printed import printed

# Words of the title -> our name, and whether the printed size is of one peer (then the message,
# as nccl-tests defines it, is that times the ranks).
_COLLECTIVES = {
    "allreduce": ("all_reduce", False),
    "allgather": ("all_gather", True),
    "all-to-all personalized exchange": ("all_to_all", True),
    "alltoall": ("all_to_all", True),
    "broadcast": ("broadcast", False),
    "bcast": ("broadcast", False),
    "reduce_scatter": ("reduce_scatter", False),
    "reduce": ("reduce", False),
    "gather": ("gather", True),
    "scatter": ("scatter", True),
}
# A stream of messages, and one in each direction, are not one message: series of their own.
_POINT_TO_POINT = {"latency": None, "bandwidth": "bw", "bi-directional bandwidth": "bibw"}
_TITLE = re.compile(
    r"#\s*OSU (?P<library>\S+)\s+(?P<title>.*?)(?:\s+Tests?)?(?:\s+v[\d.]+\S*)?\s*$"
)
# Of MPI, NCCL and their like, perhaps between devices; one-sided tests are called MPI_Put …
_LIBRARY = re.compile(r"(?:MPI|NCCL|RCCL|xCCL)(?:-\w+)*$")
_HEADER = re.compile(r"#\s*(?:Size|Message Size)\b")
_LAUNCHER = re.compile(r"\b(srun|mpirun|mpiexec)\b(.*?)(?:\bnumactl\b|\bosu_\w+)")
_RANKS = re.compile(r"\s(?:-np|-n|--np|--ntasks)[ =]?(\d+)\b")
_NODES = re.compile(r"\s(?:-N|--nodes)[ =]?(\d+)\b")
_EACH = re.compile(r"\s--ntasks-per-node[ =](\d+)\b")
_PROGRAM = re.compile(r"\bosu_(\w+)")


def _recognises(log):
    return log.contains("# OSU ", "#OSU ")


class _Table:
    """A benchmark's title, its columns, and the ranks that its command line names."""

    def __init__(self, library, title, launch):
        self.n_ranks, self.n_nodes = launch
        self.columns = None
        self.collective, self.is_per_peer, self.problem = None, False, None
        self.algorithm = _POINT_TO_POINT.get(title.lower())
        plain = title.lower().removesuffix(" latency").removeprefix("non-blocking ").strip()
        if title.lower() in _POINT_TO_POINT:
            self.collective, self.n_ranks = "send_recv", 2
        elif plain in _COLLECTIVES and "non-blocking" not in title.lower():
            self.collective, self.is_per_peer = _COLLECTIVES[plain]
        else:
            self.problem = f"the test '{title}' is none of those known"
        if not _LIBRARY.match(library):
            self.problem = f"the test '{library} {title}' is none of those known"


def read_osu(log):
    """Read OSU micro-benchmarks.

    Latencies are µs, of collectives the mean over the ranks (``Avg Latency``). MB/s is 10⁶ B/s.
    ``osu_latency`` is ``send_recv`` with the time as printed; of bandwidth tests ``time_s`` is
    missing. Sizes of all-gather, all-to-all, gather and scatter are of one peer: ``message_bytes``
    is that times the ranks, missing where the log has no rank count, and the printed size is
    ``message_bytes_logged``.

    Returns
    -------
    dict of str to list
        Rows of ``collectives``.

    Raises
    ------
    LogFormatError
        If there is no row that can be used: the line, and why.
    """
    table, rows, launch, unknown, previous = None, [], (None, None), None, None
    data_type = None
    for number, raw in log.lines():
        line = raw.strip()
        if line.startswith("#"):
            if "OSU" in line and (title := _TITLE.match(line)):
                table = _Table(title["library"], title["title"].strip(), launch)
                data_type, previous, launch = None, None, (None, None)
            elif table and _HEADER.match(line):
                table.columns = re.split(r"\s{2,}", line.lstrip("# ").strip())
                if _time_column(table.columns) is None and _rate_column(table.columns) is None:
                    table.problem = f"columns {', '.join(table.columns)}"
                if table.problem:
                    unknown = unknown or (number, table.problem)
            elif found := re.match(r"#\s*Datatype:\s*(\w+)", line):
                data_type = found[1]
            elif _PROGRAM.search(line):
                launch = _launch(line)
        elif table and table.columns and re.match(r"\d+\s", line):
            is_cut = log.is_cut(number, raw, previous)
            if previous is not None and int(line.split()[0]) <= int(previous.split()[0]):
                table.columns = None  # sizes grow: this is no longer the table
                continue
            row, problem = _row(number, line.split(), table, data_type)
            if is_cut or problem:
                log.skip(number, "the log is cut in the middle of a row" if is_cut else problem)
            else:
                rows.append(row)
            previous = raw
        elif table and table.columns and re.fullmatch(r"\d+", line) and number == log.unfinished:
            log.skip(number, "the log is cut in the middle of a row")
        elif _PROGRAM.search(line):
            launch = _launch(line)
        elif line.startswith("```"):
            launch = (None, None)
    if rows:
        if any(row["n_ranks"] is None for row in rows):
            log.infer("rank count not known: the log does not say it")
        elif any(row["collective"] != "send_recv" for row in rows):
            log.infer("n_ranks from the command line")
        return {"collectives": rows}
    if unknown:
        raise LogFormatError(log.path, f"OSU table of an unknown kind: {unknown[1]}", unknown[0])
    raise LogFormatError(log.path, "an OSU benchmark without rows; did it stop at once?")


def _time_column(columns):
    for i, name in enumerate(columns):
        if re.fullmatch(r"(Avg )?(Latency|Lat)\s*\((us|ms)\)", name):
            return i, 1e-6 if "us" in name else 1e-3
    return None


def _rate_column(columns):
    for i, name in enumerate(columns):
        if re.fullmatch(r"(Avg )?(Bandwidth|BW)\s*\((MB/s|GB/s)\)", name):
            return i, 1e6 if "MB/s" in name else 1e9
    return None


def _row(number, words, table, data_type):
    if table.problem:
        return None, table.problem
    if len(words) != len(table.columns):
        return None, f"{len(words)} values where the header has {len(table.columns)}"
    if "Validation" in table.columns and words[table.columns.index("Validation")] != "Pass":
        return None, f"the result is wrong: {words[table.columns.index('Validation')]}"
    size = int(words[0])
    row = {
        "source_line": number,
        "collective": table.collective,
        "algorithm": table.algorithm,
        "n_ranks": table.n_ranks,
        "n_nodes": table.n_nodes,
        "data_type": data_type,
        "message_bytes": size,
    }
    if table.is_per_peer:
        row["message_bytes"] = size * table.n_ranks if table.n_ranks else None
        row["message_bytes_logged"] = size
    for name, column in (
        ("time_s", _time_column(table.columns)),
        ("algorithm_bandwidth_bytes_per_s", _rate_column(table.columns)),
    ):
        if column:
            value = printed(words[column[0]], column[1])
            if value is None or value.value <= 0:
                return None, f"{table.columns[column[0]]} is {words[column[0]]}"
            row[name] = value.value
    return row | {"statistic": "mean"}, None


def _launch(line):
    """Ranks and nodes that a command line surely asks for; None where it does not say.

    -N is nodes for srun only: for Open MPI it is ranks on each.
    """
    found = _LAUNCHER.search(line)
    if not found or " : " in line:
        return None, None
    ranks = _RANKS.findall(found[2])
    if found[1] != "srun":
        return (int(ranks[0]) if len(ranks) == 1 else None), None
    nodes, each = _NODES.search(found[2]), _EACH.search(found[2])
    n_nodes = int(nodes[1]) if nodes else None
    if len(ranks) == 1:
        return int(ranks[0]), n_nodes
    return (n_nodes * int(each[1]) if nodes and each else None), n_nodes


FORMATS = [
    LogFormat("osu", "OSU micro-benchmarks", _recognises, read_osu, is_part=True),
]
