"""Traces of the PyTorch profiler (Kineto): step times, compute, collective kernels."""

import re
from bisect import bisect_right
from collections import defaultdict

import msgspec
import numpy as np

from perfmodel.errors import LogFormatError
from perfmodel.logs.intervals import covered, union
from perfmodel.logs.json_stream import objects, value_at
from perfmodel.logs.log_format import LogFormat
from perfmodel.logs.torch_names import ELEMENT_BYTES, collective_of

_US = 1e-6


class _Arguments(
    msgspec.Struct,
    gc=False,
    rename={
        "collective": "Collective name",
        "sent_elements": "In msg nelems",
        "received_elements": "Out msg nelems",
        "group_size": "Group size",
    },
):
    correlation: int | str | None = None
    collective: object = None
    sent_elements: object = None
    received_elements: object = None
    group_size: object = None
    dtype: object = None


class _Event(msgspec.Struct, gc=False):
    ph: object = None
    cat: object = None
    name: object = None
    ts: float | None = None
    dur: float | None = None
    tid: int | str | None = None
    args: _Arguments | None = None


_KERNEL = re.compile(r"(?i)\b(?:void )?(?:nccl|rccl|msccl|oneccl)\w*")
_STEP = re.compile(r"ProfilerStep\s*#?\s*(\d+)")
_ALGORITHM = re.compile(
    r"(?i)(?<![a-z])(ring|tree|collnet\w*?|nvls(?:_?tree)?|pat|direct)(?=_|LL|SIMPLE|Kernel|\b)"
)
_PROTOCOL = re.compile(r"(LL128|LL|SIMPLE)(?![A-Za-z0-9])")


def _recognises(log):
    head = log.head.lstrip("\ufeff \t\r\n")[:1]
    if head == "{":
        return '"traceEvents"' in log.head or (
            log.contains('"traceEvents"') and log.contains('"ph"')
        )
    return (
        head == "[" and '"ph"' in log.head and ("cpu_op" in log.head or "ProfilerStep" in log.head)
    )


def read_kineto(log):
    """Read a trace of one rank.

    A step is a ``ProfilerStep`` annotation: ``step_time_s`` is its length. Its kernels are those
    launched within it. ``compute_time_s`` is the time in which at least one of them, collectives
    aside, runs; ``exposed_communication_time_s`` that in which a collective kernel runs and no
    kernel computes. Every collective kernel is a row of ``collectives``: its run time, which
    holds the wait for other ranks, and its message where the trace has the elements.

    Times are µs, in all versions: those with nanoseconds have decimals. A trace is read in
    blocks; of one that was cut, what is whole counts.

    Returns
    -------
    dict of str to list
        Rows of ``steps`` and ``collectives``.

    Raises
    ------
    LogFormatError
        If there is neither a step nor a collective kernel.
    """
    array = None if log.head.lstrip("\ufeff \t\r\n").startswith("[") else b"traceEvents"
    steps, launches, notes = [], {}, defaultdict(list)
    kernels, kinds = [], {}
    n_events = 0
    for block in objects(log, array, _Event):
        n_events += len(block)
        for event in block:
            if event.ph != "X" or event.ts is None or event.dur is None:
                continue
            category = event.cat
            if category == "kernel" or category == "Kernel":
                name = str(event.name)
                if name not in kinds:
                    kinds[name] = _KERNEL.search(name) is not None
                communicates = kinds[name]
                kernels.append(
                    (
                        event.ts,
                        event.dur,
                        event.args.correlation if event.args else None,
                        event if communicates else None,
                    )
                )
            elif category in ("cuda_runtime", "hip_runtime", "Runtime", "cuda_driver"):
                if event.args is not None and event.args.correlation is not None:
                    launches[event.args.correlation] = (event.ts, event.tid)
            elif category in ("user_annotation", "cpu_op", "Operator"):
                name = event.name
                if not isinstance(name, str):
                    continue
                if name.startswith("ProfilerStep"):
                    steps.append((event.ts, event.dur, name))
                elif name.startswith("nccl:"):
                    notes[event.tid].append((event.ts, event.ts + event.dur, name))
    common = _common(log)
    rows = {
        "steps": _steps(log, steps, kernels, launches, common),
        "collectives": _collectives(log, kernels, launches, notes, common),
    }
    if not any(rows.values()):
        raise LogFormatError(
            log.path,
            f"a trace of {n_events} events without ProfilerStep annotations (call profiler.step() "
            "after each step) and without collective kernels",
        )
    return rows


def _common(log):
    info = value_at(log, "distributedInfo") or {}
    properties = value_at(log, "deviceProperties") or []
    names = (
        {p.get("name") for p in properties if isinstance(p, dict)}
        if isinstance(properties, list)
        else set()
    )
    info = info if isinstance(info, dict) else {}
    base = value_at(log, "baseTimeNanoseconds")
    return {
        "rank": info.get("rank"),
        "n_gpus": info.get("world_size"),
        "device_type": names.pop() if len(names) == 1 else None,
        "_groups": info.get("pg_count"),
        "_base_s": base * 1e-9 if isinstance(base, int) else 0.0,
    }


def _identity(common, ts):
    since = common["_base_s"] + ts * _US
    # Before 2001 it is no date but the time since the machine started.
    clock = {"timestamp_s": since, "clock": "unix"} if since > 1e9 else {}
    return {"rank": common["rank"], "device_type": common["device_type"]} | clock


def _steps(log, steps, kernels, launches, common):
    steps = sorted(set(steps))
    starts = np.array([ts for ts, _, _ in steps])
    ends = np.array([ts + dur for ts, dur, _ in steps])
    if len(steps) and len(kernels):
        begin = np.array([k[0] for k in kernels])
        end = begin + np.array([k[1] for k in kernels])
        launched = np.array([launches.get(k[2], (k[0], None))[0] for k in kernels])
        is_collective = np.array([k[3] is not None for k in kernels])
        owner = np.searchsorted(starts, launched, side="right") - 1
        inside = (owner >= 0) & (launched <= ends[np.maximum(owner, 0)])
        owner = np.where(inside, owner, -1)
        computing = union(begin[~is_collective], end[~is_collective])
    rows = []
    for i, (ts, dur, name) in enumerate(steps):
        if dur <= 0:
            log.skip(None, f"{name} has a length of 0")
            continue
        row = {**_identity(common, ts), "n_gpus": common["n_gpus"]}
        row |= {"repetition": int(_STEP.match(name)[1]) if _STEP.match(name) else i}
        row |= {"step_time_s": dur * _US, "statistic": "single"}
        if len(kernels) and (owner == i).any():
            mine = owner == i
            compute = union(begin[mine & ~is_collective], end[mine & ~is_collective])
            talk = union(begin[mine & is_collective], end[mine & is_collective])
            hidden = covered(*talk, *computing)
            row["compute_time_s"] = float(np.sum(compute[1] - compute[0])) * _US
            row["exposed_communication_time_s"] = (
                float(np.sum(talk[1] - talk[0]) - np.sum(hidden)) * _US
            )
        rows.append(row)
    return rows


def _collectives(log, kernels, launches, notes, common):
    for spans in notes.values():
        spans.sort()
    rows, sizeless, world = [], 0, False
    for _, _, correlation, event in kernels:
        if event is None:
            continue
        name, arguments = event.name, event.args or _Arguments()
        collective = collective_of(arguments.collective) if arguments.collective else None
        if collective is None:
            collective = collective_of(name)
            if collective in (None, "send_recv"):
                # The kernels of all-to-all send and receive; the annotation knows.
                note = _note(launches.get(correlation), notes)
                collective = collective_of(note) or collective
        if collective is None:
            log.skip(None, f"the kernel {str(name)[:60]} does not tell its collective")
            continue
        if event.dur <= 0:
            log.skip(None, f"a kernel {str(name)[:60]} with a length of 0")
            continue
        n_ranks = arguments.group_size
        if not isinstance(n_ranks, int):
            # All ranks, unless the trace says that there are several groups.
            n_ranks = common["n_gpus"] if common["_groups"] in (None, 1) else None
            world |= n_ranks is not None
        size = _message_bytes(arguments)
        sizeless += size is None
        algorithm, protocol = _ALGORITHM.search(str(name)), _PROTOCOL.search(str(name))
        rows.append(
            {
                **_identity(common, event.ts),
                "collective": collective,
                "algorithm": algorithm[1] if algorithm else None,
                "protocol": protocol[1] if protocol else None,
                "data_type": arguments.dtype if isinstance(arguments.dtype, str) else None,
                "n_ranks": n_ranks,
                "message_bytes": size,
                "time_s": event.dur * _US,
                "statistic": "single",
            }
        )
    if world:
        log.infer("n_ranks of collectives is the world size: the trace has no group sizes")
    if sizeless:
        log.infer(f"message_bytes of {sizeless} collectives not known: the trace has none")
    return rows


def _note(launch, notes):
    """Annotation ``nccl:…`` that a launch stands in; None where there is none."""
    if launch is None:
        return None
    ts, tid = launch
    spans = notes.get(tid, [])
    i = bisect_right(spans, (ts, float("inf"), "")) - 1
    return spans[i][2] if i >= 0 and spans[i][1] >= ts else None


def _message_bytes(arguments):
    """Larger of what a rank sends and receives, as nccl-tests counts it."""
    each = ELEMENT_BYTES.get(str(arguments.dtype).lower())
    counts = (arguments.sent_elements, arguments.received_elements)
    if each is None or not all(isinstance(count, int) and count >= 0 for count in counts):
        return None
    return max(counts) * each


FORMATS = [
    LogFormat("kineto", "trace of the PyTorch profiler (Kineto)", _recognises, read_kineto),
]
