"""Execution traces of PyTorch and Chakra: which collectives, of what size, on how many ranks."""

import json
import re

import msgspec

from perfmodel.errors import LogFormatError
from perfmodel.logs.json_stream import objects
from perfmodel.logs.log_format import LogFormat
from perfmodel.logs.printed import printed
from perfmodel.logs.torch_names import ELEMENT_BYTES, collective_of


class _Node(msgspec.Struct, gc=False):
    """A node of either generation: lists of inputs, or dicts of them and a list of attributes."""

    name: object = None
    inputs: object = None
    outputs: object = None
    attrs: object = None


def _recognises(log):
    return log.head.lstrip()[:1] == "{" and '"schema"' in log.head and '"nodes"' in log.head


def _recognises_chakra(log):
    return log.head.lstrip()[:1] == "{" and log.contains('"COMM_COLL_NODE"')


def read_execution_trace(log):
    """Read a PyTorch execution trace: the collectives that a rank starts.

    ``message_bytes`` is the larger of what the rank sends and receives. There are no durations.

    Returns
    -------
    dict of str to list
        Rows of ``collectives``, in the order of the trace.

    Raises
    ------
    LogFormatError
        If the trace starts no collective.
    """
    rows, groups, n_nodes = [], {}, 0
    for block in objects(log, b"nodes", _Node):
        n_nodes += len(block)
        for node in block:
            if node.name == "## process_group:init ##":
                groups |= _groups(node)
            elif node.name == "record_param_comms":
                row, problem = _row(node, groups)
                if problem:
                    log.skip(None, problem)
                elif row:
                    rows.append(row)
    if not rows:
        raise LogFormatError(
            log.path, f"an execution trace of {n_nodes} nodes that starts no collective"
        )
    log.infer("an execution trace has no durations: time_s is missing")
    return {"collectives": rows}


def read_chakra(log):
    """Read a Chakra trace as JSON (one object after another): its collective nodes.

    ``time_s`` is ``durationMicros`` where it is not 0.

    Returns
    -------
    dict of str to list
        Rows of ``collectives``.
    """
    kinds = ("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL",
             "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER")  # fmt: skip
    text, at, rows = log.text(), 0, []
    decoder = json.JSONDecoder()
    while start := re.compile(r"\s*[\[,]?\s*(?=\{)").match(text, at):
        try:
            node, at = decoder.raw_decode(text, start.end())
        except (ValueError, RecursionError):
            log.skip(text.count("\n", 0, start.end()) + 1, "the JSON ends in the middle of a node")
            break
        if node.get("type") != "COMM_COLL_NODE":
            continue
        attributes = {
            a.get("name"): next((v for k, v in a.items() if k not in ("name", "docString")), None)
            for a in node.get("attr") or []
            if isinstance(a, dict) and isinstance(a.get("name"), str)
        }
        kind, size = attributes.get("comm_type", 0), attributes.get("comm_size")
        kind = kinds[int(kind)] if str(kind).isdigit() and int(kind) < len(kinds) else str(kind)
        collective = collective_of(kind)
        line = text.count("\n", 0, start.end()) + 1
        if collective is None or not str(size).isdigit():
            log.skip(line, f"a collective {kind} of size {size}")
            continue
        micros = printed(str(node.get("durationMicros", "")))
        rows.append(
            {
                "source_line": line,
                "collective": collective,
                "message_bytes": int(size),
                "time_s": micros.value * 1e-6 if micros and micros.value > 0 else None,
                "statistic": "single",
            }
        )
    if not rows:
        raise LogFormatError(log.path, "a Chakra trace without collectives that can be read")
    return {"collectives": rows}


def _groups(node):
    """Group sizes by name, from the JSON text that the first node carries."""
    values = node.inputs.get("values") if isinstance(node.inputs, dict) else node.inputs
    try:
        described = json.loads(values[0])
        return {
            str(g["pg_name"]): g.get("group_size") or len(g.get("ranks") or []) for g in described
        }
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}


def _row(node, groups):
    """Row of a call of a collective, or None; and why a call cannot be used."""
    is_new = isinstance(node.inputs, dict)
    values = node.inputs.get("values") if is_new else node.inputs
    outputs = node.outputs.get("values") if isinstance(node.outputs, dict) else node.outputs
    attributes = {
        str(a.get("name")): a.get("value") for a in node.attrs or [] if isinstance(a, dict)
    } if isinstance(node.attrs, list) else {}  # fmt: skip
    if not isinstance(values, list):
        return None, "a collective without inputs"
    at = next((i for i, v in enumerate(values) if isinstance(v, str)), None)
    name = attributes.get("collective_name") or (values[at] if at is not None else None)
    collective = collective_of(name)
    if collective is None:
        return None, None  # wait, barrier, init: they move nothing
    dtype = attributes.get("dtype")
    counts = (attributes.get("in_msg_nelems"), attributes.get("out_msg_nelems"))
    each = ELEMENT_BYTES.get(str(dtype).lower())
    if each and all(isinstance(count, int) for count in counts):
        size = max(counts) * each
    else:
        sizes = [sum(n * e for n, e in _tensors(part)) for part in (values[:1], outputs or [])]
        size = max(sizes)
        if not any(True for part in (values[:1], outputs or []) for _ in _tensors(part)):
            return None, f"{name} without tensors or element counts"
    after = values[at + 1 :] if at is not None else []
    group = values[2] if len(values) > 2 and isinstance(values[2], list) and values[2] else [None]
    n_ranks = (
        attributes.get("pg_size")
        or groups.get(str(attributes.get("pg_name") or group[0]))
        or _world(after)
    )
    return {
        "collective": collective,
        "data_type": dtype,
        "n_ranks": n_ranks if isinstance(n_ranks, int) and n_ranks > 0 else None,
        "message_bytes": size,
        "statistic": "single",
    }, None


def _world(after):
    """World size behind the two lists of splits: the only number, or the last of three."""
    numbers = [v for v in after if isinstance(v, int) and not isinstance(v, bool)]
    if len(numbers) in (1, 3):
        return numbers[-1]
    splits = [v for v in after if isinstance(v, list) and v]
    return len(splits[0]) if splits else None


def _tensors(value):
    """Elements and bytes of an element of the tensors in nested lists."""
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str) and all(isinstance(v, int) for v in value[:5]):
        yield value[3], value[4]
        return
    for part in value:
        yield from _tensors(part)


FORMATS = [
    LogFormat("pytorch-et", "execution trace of PyTorch", _recognises, read_execution_trace),
    LogFormat("chakra", "Chakra trace as JSON", _recognises_chakra, read_chakra),
]
