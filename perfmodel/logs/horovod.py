"""Horovod's timeline: when each tensor was reduced, gathered or broadcast."""

import math
import re
from collections import defaultdict

import msgspec

from perfmodel.errors import LogFormatError
from perfmodel.logs.json_stream import objects
from perfmodel.logs.log_format import LogFormat

_COLLECTIVES = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "BROADCAST": "broadcast",
    "ALLTOALL": "all_to_all",
    "REDUCESCATTER": "reduce_scatter",
}
# What does the transfer itself, inside of them.
_TRANSPORT = re.compile(r"(?:MPI|NCCL|GLOO|CCL|DDL|HIERARCHICAL)_\w*")
_ELEMENT_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "int16": 2,
    "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


class _Arguments(msgspec.Struct, gc=False):
    dtype: object = None
    shape: object = None


class _Event(msgspec.Struct, gc=False):
    ph: object = None
    name: object = None
    ts: float | None = None
    pid: object = None
    tid: object = None
    args: _Arguments | None = None


def _recognises(log):
    return log.head.lstrip()[:1] == "[" and (
        "NEGOTIATE_" in log.head
        or re.search(r'"name": *"(?:ALLREDUCE|BROADCAST)"', log.head) is not None
    )


def read_horovod(log):
    """Read a Horovod timeline: each transfer of a tensor is a row.

    ``time_s`` is that of the transport's activity (``NCCL_ALLREDUCE``, ``MPI_BCAST``, …; named in
    ``algorithm``), where there is none that of the whole operation. ``message_bytes`` comes from
    shape and type, where they stand; of tensors that were fused it is missing. Times are µs of a
    steady clock.

    Returns
    -------
    dict of str to list
        Rows of ``collectives``.
    """
    stacks, rows = defaultdict(list), []
    ticks, tick_sets = defaultdict(set), set()
    first = None
    for block in objects(log, None, _Event):
        for event in block:
            if event.ts is None:
                continue
            first = event.ts if first is None else first
            key = (str(event.pid), str(event.tid))
            name = str(event.name)
            if event.ph == "B":
                stacks[key].append([name, event.ts, None, False])
                if name.startswith("NEGOTIATE_"):
                    ticks[key] = set()
            elif event.ph in ("X", "i") and name.isdigit():
                ticks[key].add(int(name))
            elif event.ph == "E" and stacks[key]:
                name, start, transport, fused = stacks[key].pop()
                if name.startswith("NEGOTIATE_"):
                    tick_sets.add(frozenset(ticks[key]))
                elif name in _COLLECTIVES:
                    begin, end, algorithm = transport or (start, event.ts, None)
                    if end <= begin:
                        log.skip(None, f"{name} with a length of 0")
                        continue
                    rows.append(
                        {
                            "timestamp_s": (begin - first) * 1e-6,
                            "clock": "log",
                            "collective": _COLLECTIVES[name],
                            "algorithm": algorithm,
                            "data_type": getattr(event.args, "dtype", None),
                            "message_bytes": None if fused else _bytes(event.args),
                            "time_s": (end - begin) * 1e-6,
                            "statistic": "single",
                        }
                    )
                elif stacks[key]:
                    parent = stacks[key][-1]
                    if _TRANSPORT.fullmatch(name):
                        parent[2] = (start, event.ts, name)
                    parent[3] |= "FUSION_BUFFER" in name
    open_ones = sum(1 for stack in stacks.values() for name, *_ in stack if name in _COLLECTIVES)
    for _ in range(open_ones):
        log.skip(None, "an operation that has no end")
    if not rows:
        raise LogFormatError(log.path, "a Horovod timeline without a finished operation")
    n_ranks = _ranks(tick_sets)
    if n_ranks is None:
        log.infer("rank count not known: negotiations do not list all ranks")
    for row in rows:
        row["n_ranks"] = n_ranks
    return {"collectives": rows}


def _ranks(tick_sets):
    """Rank count, where every negotiation heard from the ranks 0 … n - 1."""
    if len(tick_sets) != 1:
        return None
    ranks = next(iter(tick_sets))
    return len(ranks) if ranks and ranks == set(range(len(ranks))) else None


def _bytes(arguments):
    each = _ELEMENT_BYTES.get(str(getattr(arguments, "dtype", None)))
    shape = str(getattr(arguments, "shape", ""))
    if each is None or not re.fullmatch(r"\[[\d, ]*\]", shape):
        return None
    return each * math.prod(int(n) for n in re.findall(r"\d+", shape))


FORMATS = [LogFormat("horovod", "Horovod timeline", _recognises, read_horovod)]
