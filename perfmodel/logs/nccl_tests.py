"""Output of nccl-tests and rccl-tests (``all_reduce_perf`` and its sisters), text and JSON."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from math import ceil, floor, inf

from perfmodel.errors import LogFormatError
from perfmodel.logs.json_stream import objects
from perfmodel.logs.log_format import LogFormat
from perfmodel.logs.printed import Printed, exactly, printed

# busbw / algbw for n ranks as nccl-tests' PERFORMANCE.md defines it.
_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "send_recv": lambda n: 1.0,
}
_REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
# sendrecv_perf prints the reduction that it was given, or none.
_EITHER = {"send_recv"}
_ROOTED = {"broadcast", "reduce", "gather", "scatter"}
# Of these the count column is of one peer, so that size = count · element · ranks.
_PER_PEER = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
_OUR_NAME = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
_PROGRAMS = [*_FACTORS, *_OUR_NAME, "alltoallv", "hypercube", "all_reduce_bias"]
_PROGRAM = re.compile(rf"(?<![a-z])({'|'.join(_PROGRAMS)})_perf(?![a-z])", re.IGNORECASE)
_STARTING = re.compile(r"Collective test starting: (\w+?)(?:_perf\w*)?$")
_MENTION = re.compile(
    r"(all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all|broadcast"
    r"|send[-_ ]?recv|(?<![a-z])gather|(?<![a-z-_ ])scatter)",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)"
    r"\s+\[[^\]]*\]\s+(.+?)\s*$"
)
_ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "bf16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "double", "float64"), 8),
}
_ROW = re.compile(rf"(?:^|\s)(\d+)\s+(\d+)\s+({'|'.join(_ELEMENT_BYTES)})(?:\s+(.*))?$")
# No line of these tests is longer; those of notebooks and pages with images are.
_LONGEST = 2000
_LABEL_INSIDE = re.compile(r"(?<=\s)\d+: ")
# Names that older generations gave to the same columns.
_SYNONYMS = {"bytes": "size", "N": "count", "op": "redop", "res": "error", "wrong": "#wrong"}
_HALF = {"time", "cputime", "algbw", "busbw", "error", "#wrong", "i_min", "i_max", "i_p99", "i_cv%"}
_FAILURE = re.compile(
    r"Test (?:NCCL|CUDA|RCCL|HIP) failure.*|.*(?:error while loading|command not found"
    r"|srun: error|MPI_ABORT|Segmentation fault|out of memory|Invalid number of GPUs"
    r"|unhandled system error|unhandled cuda error|Test failure).*",
    re.IGNORECASE,
)


@dataclass
class _Half:
    """One timing of a row: out of place, or in place."""

    in_place: bool
    time_s: Printed | None
    algorithm_bandwidth: Printed
    bus_bandwidth: Printed
    wrong: str | None = None
    of_processor: bool = False


@dataclass
class _Row:
    line: int | None
    size: int
    count: int
    element: str
    reduction: str | None
    root: int | None
    halves: list
    more: dict = field(default_factory=dict)


@dataclass
class _Test:
    """A table of results, and what the lines before it say about it."""

    program: str | None = None
    columns: list = field(default_factory=list)
    is_in_place_only: bool = False
    unit_s: float = 1e-6
    ranks: dict = field(default_factory=dict)
    list_is_cut: bool = False
    rows: list = field(default_factory=list)
    is_over: bool = False


def _recognises(log):
    return log.contains("algbw") and log.contains("busbw")


def _recognises_json(log):
    begins = re.match(r'\s*\{\s*"version"\s*:', log.head)
    return begins is not None and log.contains('"nccl_version"') and '"args"' in log.head


def read_nccl_tests(log):
    """Read text output of nccl-tests: out of place and in place are two rows.

    ``message_bytes`` is the size column; ``time_s`` comes from µs, bandwidths from GB/s (10⁹).
    A row counts only if size, time, algbw and busbw agree within their printed digits. Rank count
    and collective come from the log where it names them, else from size / count and busbw / algbw.

    Returns
    -------
    dict of str to list
        Rows of ``collectives``.

    Raises
    ------
    LogFormatError
        If there is no row that can be used: the line, and why.
    """
    tests, unknown = [_Test()], None
    banner, previous, program = "", "", None
    for number, raw in log.lines():
        if len(raw) > _LONGEST:
            continue
        line = raw.strip()
        test = tests[-1]
        if line.startswith(("#", "Using devices")) or ("algbw" in line and "busbw" in line):
            if started := _STARTING.search(line):
                program = started[1]
                tests.append(_Test(program))
            elif "nThread" in line and test.rows:
                tests.append(_Test(program))
            elif " Rank " in line and (rank := _RANK.search(line)):
                if test.rows:
                    test = _Test(program)
                    tests.append(test)
                test.ranks.setdefault(int(rank[1]), []).append(rank.groups()[1:])
            elif "algbw" in line:
                columns, is_in_place_only, unit_s = _columns(line, banner)
                if columns is None:
                    unknown = unknown or (number, line.lstrip("# ").split())
                    continue
                if test.rows or test.is_over:
                    ranks = {} if test.is_over else test.ranks
                    test = _Test(program or test.program, ranks=ranks)
                    tests.append(test)
                test.columns, test.is_in_place_only = columns, is_in_place_only
                test.unit_s = unit_s
                test.program = test.program or program
            elif "of-place" in line or "in-place" in line:
                banner = line
            elif "Avg bus bandwidth" in line or "test concluded" in line:
                test.is_over = True
                program = None
            elif not test.columns and "..." in line:
                test.list_is_cut = True
            continue
        if not test.columns and line.strip("[]. ") == "" and "..." in line:
            test.list_is_cut = True
        if test.columns and (match := _ROW.search(_LABEL_INSIDE.sub("", line))):
            row, problem = _row(number, match, raw, test)
            if row is not None and number == log.unfinished and len(raw) < len(previous):
                row, problem = None, "the log is cut in the middle of a row"
            if row is None:
                log.skip(number, problem)
            else:
                test.rows.append(row)
            previous = raw
            continue
        if number == log.unfinished and test.columns and line[:1].isdigit():
            log.skip(number, "the log is cut in the middle of a row")
        if "_perf" in line and (named := _PROGRAM.search(line)):
            program = named[1].lower()
            # Another launch: what was listed before is not of its ranks.
            test.is_over |= bool(test.rows)
            if not test.rows:
                test.program = program
    return _result(log, tests, unknown)


def read_nccl_tests_json(log):
    """Read the JSON that nccl-tests writes with ``-J``; a cut file gives its whole rows.

    Returns
    -------
    dict of str to list
        Rows of ``collectives``.
    """
    start, marker, _ = log.text().partition('"results"')
    try:
        content = json.loads(start.rstrip(", \n\t") + "}")
    except (ValueError, RecursionError):
        raise LogFormatError(log.path, "its JSON is cut or damaged before the results") from None
    if not marker:
        raise LogFormatError(log.path, "nccl-tests' JSON without results; did the test stop?")
    config = content.get("config")
    config = config if isinstance(config, dict) else {}
    test = _Test(_program_of(content.get("args")))
    each = max(1, _integer(config.get("nthreads"))) * max(1, _integer(config.get("ngpus")))
    devices = config.get("devices")
    for device in devices if isinstance(devices, list) and each <= 4096 else []:
        if not isinstance(device, dict):
            continue
        # One device of each process is written; a process has nthreads · ngpus of them.
        for i in range(each):
            keys = ("group", "pid", "hostname", "device", "device_info")
            test.ranks.setdefault(_integer(device.get("rank")) + i, []).append(
                tuple(str(device.get(key, "")) for key in keys)
            )
    for block in objects(log, b"results", dict):
        for result in block:
            row = _json_row(log, result)
            if row is not None:
                test.rows.append(row)
                test.program = test.program or _program_of([result.get("experiment_name")])
    return _result(log, [test])


def _json_row(log, result):
    size, count = result.get("size"), result.get("count")
    halves = []
    for key in ("out_of_place", "in_place"):
        half = result.get(key)
        if not isinstance(half, dict):
            continue
        numbers = [
            printed(f"{half[k]:.6f}", scale) if isinstance(half.get(k), int | float) else None
            for k, scale in (("time", 1e-6), ("alg_bw", 1e9), ("bus_bw", 1e9))
        ]
        if numbers[1] is None or numbers[2] is None:
            continue
        wrong = half.get("nwrong")
        halves.append(
            _Half(
                key == "in_place",
                *numbers,
                None if wrong is None else str(wrong),
                "time" not in half,
            )
        )
    if not isinstance(size, int) or not isinstance(count, int) or not halves:
        log.skip(None, f"a result without size, count or timing: {str(result)[:80]}")
        return None
    root = str(result.get("root", "")).strip()
    root = int(root) if re.fullmatch(r"-?\d+", root) else None
    row = _Row(None, size, count, str(result.get("type")), str(result.get("redop")), root, [])
    for half in halves:
        problem = _disagreement(size, half)
        if problem:
            log.skip(None, f"{size} B: {problem}")
        else:
            row.halves.append(half)
    return row


def _program_of(arguments):
    for argument in arguments if isinstance(arguments, list) else []:
        if named := _PROGRAM.search(str(argument)):
            return named[1].lower()
    return None


def _integer(value):
    return value if isinstance(value, int) else 0


def _columns(line, banner):
    """Names of a header's columns, whether its one half is in place, unit of its times."""
    words = [_SYNONYMS.get(word, word) for word in line.lstrip("#> ").split()]
    needed = {"size", "count", "type", "algbw", "busbw"}
    if not needed <= set(words) or not {"time", "cputime"} & set(words) or words[0] != "size":
        return None, False, None
    starts = [i for i, word in enumerate(words) if word in ("time", "cputime")]
    halves = [words[a:b] for a, b in zip(starts, [*starts[1:], len(words)], strict=True)]
    if len(halves) > 2 or words.index("type") > starts[0]:
        return None, False, None
    if not all({"algbw", "busbw"} <= set(half) for half in halves):
        return None, False, None
    in_place_only = "in-place" in banner and "out-of-place" not in banner
    # The first generation printed milliseconds, under the heading 'bytes N type op'.
    return words, in_place_only, 1e-3 if "bytes" in line.split() else 1e-6


def _row(number, match, raw, test):
    """A row, or None and why not."""
    size, count, element = int(match[1]), int(match[2]), match[3]
    words = (match[4] or "").split()
    columns = test.columns[test.columns.index("type") + 1 :]
    starts = [i for i, name in enumerate(columns) if name in ("time", "cputime")]
    middle = columns[: starts[0]]
    width = len(columns) - len(middle) + ("timestamp" in columns)
    is_in_place_only = test.is_in_place_only
    if len(words) < width and len(starts) == 2:
        # A replayed trace has no times out of place: blanks stand there.
        width -= starts[1] - starts[0]
        gap = re.search(r"\s{30,}(?=\d)", raw[raw.find(element) :])
        if gap is None or len(words) < width:
            width = len(words) + 1
        starts, is_in_place_only = starts[1:], True
    # The reduction may be blank; of a row that lost anything else nobody knows what is what.
    is_blank = "redop" in middle and words[:1] != [] and printed(words[0]) is not None
    if len(words) != width + len(middle) - is_blank:
        expected = len(test.columns) + ("timestamp" in columns)
        return None, f"{len(words) + 3} values where the header has {expected}"
    before, words = words[: len(words) - width], words[len(words) - width :]
    names = columns[starts[0] :]
    reduction = next((w for w in before if not re.fullmatch(r"-?\d+", w)), None)
    root = next((int(w) for w in before if re.fullmatch(r"-?\d+", w)), None)
    if element in _ELEMENT_BYTES and count and size % (count * _ELEMENT_BYTES[element]):
        return None, f"size {size} is no multiple of count {count} times the size of {element}"
    row = _Row(number, size, count, element, reduction, root, [])
    tail = len(names) - next(i for i, name in enumerate(reversed(names)) if name in _HALF)
    for name, word in zip(names[tail:], words[tail:], strict=False):
        if name in ("algo", "proto"):
            row.more["algorithm" if name == "algo" else "protocol"] = word
    problems = []
    begins = [i - starts[0] for i in starts]
    for i, begin in enumerate(begins):
        end = begins[i + 1] if i + 1 < len(begins) else tail
        cells = dict(zip(names[begin:end], words[begin:end], strict=True))
        time_text = cells.get("time", cells.get("cputime"))
        figures = [
            printed(text or "", scale)
            for text, scale in (
                (time_text, test.unit_s),
                (cells["algbw"], 1e9),
                (cells["busbw"], 1e9),
            )
        ]
        if None in figures:
            if {time_text, cells["algbw"], cells["busbw"]} != {"N/A"}:
                problems.append(f"no numbers: {' '.join(words[begin:end][:3])}")
            continue
        in_place = bool(i) or is_in_place_only
        wrong = cells.get("#wrong", cells.get("error"))
        half = _Half(in_place, *figures, wrong, "cputime" in cells)
        problem = _disagreement(size, half)
        if problem:
            problems.append(problem)
        else:
            row.halves.append(half)
    if problems and len(problems) == len(begins):
        return None, problems[0]
    if problems:
        row.more["problem"] = problems[0]
    return row, None


def _disagreement(size, half):
    """Why the figures of a timing contradict each other; None if they agree."""
    if half.of_processor:
        return None
    if half.time_s.value <= 0:
        return "a time of 0"
    if size and not (exactly(size) / half.time_s).agrees(half.algorithm_bandwidth):
        return (
            f"{size} B in {half.time_s.value:g} s is not the algbw printed, "
            f"{half.algorithm_bandwidth.value:g} B/s"
        )
    return None


def _result(log, tests, unknown=None):
    """Rows of the nomenclature of all tests."""
    found, refused = [], None
    for test in (t for t in tests if t.rows):
        named = _canonical(test.program) if test.program else None
        if test.program and named not in _FACTORS:
            refused = refused or (test.rows[0].line, f"{test.program}_perf is no collective known")
            for row in test.rows:
                log.skip(row.line, f"{test.program}_perf is no collective known")
            continue
        found += _observations(log, test, named)
    if found:
        return {"collectives": found}
    if refused:
        raise LogFormatError(log.path, refused[1], refused[0])
    if log.lines_skipped:
        raise LogFormatError(log.path, f"no row can be used: {log.first_skipped_reason}")
    for number, line in log.lines():
        if failure := _FAILURE.search(line[:_LONGEST]):
            raise LogFormatError(
                log.path, f"no results; the run failed: {failure[0].strip()[:160]}", number
            )
    if unknown:
        raise LogFormatError(
            log.path,
            f"a table with the columns {' '.join(unknown[1])}, which is none of nccl-tests': size "
            "count type redop root time algbw busbw",
            unknown[0],
        )
    raise LogFormatError(log.path, "no result rows; did the test stop before the first size?")


def _canonical(name):
    plain = re.sub("[^a-z]", "", str(name).lower())
    known = {collective.replace("_", ""): collective for collective in _FACTORS}
    return known.get(plain, str(name).lower())


def _observations(log, test, named):
    """Rows of one test, once collective and rank count are known."""
    listed, ratio, peers = _listed_ranks(test), _ratio(test), _peers(test)
    fitting = {named: _rank_counts(named, ratio, listed, peers)} if named else {}
    if named and (_contradicts(named, test) or not fitting[named]):
        log.infer(f"not {named}, which the log mentions: the figures contradict it")
        named = None
    if named is None:
        names = [name for name in _FACTORS if _can_be(name, test, peers)]
        fitting = {name: _rank_counts(name, ratio, listed, peers) for name in names}
    fitting = {name: counts for name, counts in fitting.items() if counts}
    if any(listed in counts for counts in fitting.values()):
        fitting = {name: counts for name, counts in fitting.items() if listed in counts}
    if named is None:
        named = _chosen(log, fitting)
    counts = fitting.get(named) or sorted({n for counts in fitting.values() for n in counts})
    n_ranks = counts[0] if len(counts) == 1 else None
    if n_ranks is None:
        log.infer("rank count not known: no rank list, and busbw / algbw fits several")
    elif n_ranks != listed:
        log.infer(f"n_ranks {n_ranks}, from size / count and busbw / algbw")
    hosts = [fields[2] for ranks in test.ranks.values() for fields in ranks]
    is_complete = n_ranks is not None and sum(map(len, test.ranks.values())) == n_ranks
    kinds = {fields[4] for ranks in test.ranks.values() for fields in ranks if fields[4]}
    common = {
        "collective": named,
        "n_ranks": n_ranks,
        "n_nodes": len(set(hosts)) if is_complete else None,
        "n_gpus": n_ranks,
        "device_type": kinds.pop() if len(kinds) == 1 else None,
    }
    wrong = 0
    for row in test.rows:
        if "problem" in row.more:
            log.skip(row.line, row.more.pop("problem"))
        for half in row.halves:
            ratio = half.bus_bandwidth / half.algorithm_bandwidth
            if named and n_ranks and row.size and not ratio.agrees(_wide(_FACTORS[named](n_ranks))):
                log.skip(
                    row.line, f"busbw / algbw = {ratio.value:.4g} is not that of {n_ranks} ranks"
                )
                continue
            # The older column 'error' is a rounding error, which is never 0.
            wrong += "error" not in test.columns and _number(half.wrong) > 0
            yield {
                "source_line": row.line,
                **common,
                "algorithm": row.more.get("algorithm"),
                "protocol": row.more.get("protocol"),
                "in_place": half.in_place,
                "data_type": row.element,
                "reduction": row.reduction,
                "message_bytes": row.size,
                "time_s": None if half.of_processor else half.time_s.value,
                "algorithm_bandwidth_bytes_per_s": half.algorithm_bandwidth.value,
                "bus_bandwidth_bytes_per_s": half.bus_bandwidth.value,
                "statistic": "mean",
            }
    if wrong:
        log.infer(f"{wrong} timings of wrong results (#wrong is not 0)")
    if any(half.of_processor for row in test.rows for half in row.halves):
        log.infer("processor times (cputime) are no durations: time_s is missing")


def _number(text):
    number = printed(text or "")
    return 0 if number is None else number.value


def _wide(value):
    return Printed(value, value - 1e-9, value + 1e-9)


def _listed_ranks(test):
    """Rank count of the list before the table; None without one, or where processes differ."""
    if set(test.ranks) != set(range(len(test.ranks))) or not test.ranks or test.list_is_cut:
        return None
    if any(len(lines) > 1 for lines in test.ranks.values()):
        return 1 if set(test.ranks) == {0} else None
    groups = Counter(fields[0] for lines in test.ranks.values() for fields in lines)
    return groups[test.ranks[min(test.ranks)][0][0]]


def _ratio(test):
    """What busbw / algbw is for the bulk of the rows."""
    low, high = -inf, inf
    for row in test.rows:
        for half in row.halves:
            if row.size and half.algorithm_bandwidth.low > 0:
                ratio = half.bus_bandwidth / half.algorithm_bandwidth
                if ratio.low <= high and low <= ratio.high:
                    low, high = max(low, ratio.low), min(high, ratio.high)
    return Printed(0.5 * (low + high), low, high)


def _peers(test):
    """Size over count and element, where all rows agree on it."""
    ratios = {
        row.size // (row.count * _ELEMENT_BYTES[row.element])
        for row in test.rows
        if row.count and row.element in _ELEMENT_BYTES
    }
    return ratios.pop() if len(ratios) == 1 else None


def _contradicts(name, test):
    """Whether reduction or root of a table are not those of a collective."""
    row = test.rows[-1]
    reduces = row.reduction not in (None, "", "none")
    if name not in _EITHER and reduces != (name in _REDUCING):
        return True
    return row.root is not None and (row.root >= 0) != (name in _ROOTED)


def _can_be(name, test, peers):
    """Whether reduction, root and counts of a table allow a collective."""
    row = test.rows[-1]
    # Tests without a root print -1, or in old generations have no such column.
    if _contradicts(name, test) or (row.root is None and name in _ROOTED):
        return False
    if peers is not None and peers > 1 and name not in _PER_PEER:
        return False
    # In place, nccl-tests does not check what has no place of its own: N/A.
    halves = [half for row in test.rows for half in row.halves]
    checked = {half.in_place for half in halves if half.wrong not in (None, "N/A")}
    unchecked = {half.in_place for half in halves if half.wrong == "N/A"}
    if False in checked and unchecked == {True} and True not in checked:
        return name in ("all_to_all", "send_recv")
    return not (True in checked and name in ("all_to_all", "send_recv"))


def _rank_counts(name, ratio, listed, peers):
    """Rank counts that a table's figures allow, at most a few; the list's own if it is one."""
    factor = _FACTORS[name]
    if name in _PER_PEER and peers is not None and peers > 1:
        listed = peers
    if listed is not None and ratio.agrees(_wide(factor(listed))):
        return [listed]
    if factor(2) == factor(3):
        return [] if not ratio.agrees(_wide(1.0)) else [listed] if listed else [2, 3]
    if ratio.low <= 0:
        return [1]
    scale = factor(2) * 2  # factor(n) = scale · (n - 1) / n
    low = 1 / (1 - ratio.low / scale) if ratio.low < scale else inf
    high = 1 / (1 - ratio.high / scale) if ratio.high < scale else low + 2
    if low == inf:
        return []
    first, last = max(2, ceil(low - 1e-9)), floor(high + 1e-9)
    return list(range(first, min(last, first + 2) + 1))


def _chosen(log, fitting):
    """Collective of a table that names none; None where several remain."""
    stem = re.sub("[^a-z]", "", log.name.lower())
    in_name = [name for name in fitting if name.replace("_", "") in stem]
    candidates = set(fitting)
    if in_name:
        # The longest: 'allreduce' and 'reducescatter' contain 'reduce'.
        name, why = max(in_name, key=len), "from the file's name"
    elif len(candidates) == 1:
        name, why = candidates.pop(), "from its reduction and busbw / algbw"
    elif len(mentioned := candidates & set(map(_canonical, _MENTION.findall(log.text())))) == 1:
        name, why = mentioned.pop(), "the one of those fitting that is mentioned"
    else:
        fit = " or ".join(sorted(candidates)) or "none known"
        log.infer(f"collective not known: the log names none, its figures fit {fit}")
        return None
    log.infer(f"collective {name}, {why}")
    return name


FORMATS = [
    LogFormat(
        "nccl-tests",
        "text output of nccl-tests and rccl-tests",
        _recognises,
        read_nccl_tests,
        is_part=True,
    ),
    LogFormat("nccl-tests-json", "JSON of nccl-tests (-J)", _recognises_json, read_nccl_tests_json),
]
