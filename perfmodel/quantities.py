"""Every quantity of the library's tables: its name, unit and meaning; and numbers with units.

Inside the library all numbers are SI base units and the name of a quantity says which. Conversion
happens where a log is read and where SimGrid XML is read or written, both with the help of
:func:`parse_quantity`. The nomenclature page of the documentation is made from `QUANTITIES`.
"""

import re
from decimal import Decimal
from typing import NamedTuple

from perfmodel.errors import UnknownNameError


class Quantity(NamedTuple):
    """A column: its name, its unit (``-`` where it has none), its meaning, the group it is in."""

    name: str
    unit: str
    meaning: str
    group: str


def _group(group, *rows):
    return [Quantity(*row, group) for row in rows]


QUANTITIES = [
    *_group(
        "identity",
        ("workload", "-", "name of what is trained"),
        ("device_type", "-", "accelerator model"),
        ("system", "-", "label of the machine and its setting"),
        ("rank", "-", "rank the row was measured on"),
        ("repetition", "-", "number of the repetition, from 0"),
        ("source_file", "-", "file the row was read from"),
        ("source_line", "-", "line of that file, from 1"),
        ("timestamp_s", "s", "when, on the row's clock"),
        ("clock", "-", "'unix', or 'log': seconds since the log's first sample"),
    ),
    *_group(
        "configuration",
        ("n_nodes", "1", "nodes (SimGrid hosts)"),
        ("gpus_per_node", "1", "accelerators used on each node"),
        ("n_gpus", "1", "accelerators of the job"),
        ("batch_per_gpu", "samples", "samples of one micro-batch on one model replica"),
        ("accumulation_steps", "1", "micro-batches in one optimiser step"),
        ("global_batch", "samples", "samples of one optimiser step over the whole job"),
        ("samples_to_target", "samples", "samples that a run processes until its target"),
        ("sharding", "-", "'ddp', 'zero1', 'zero2' or 'zero3'"),
        ("tensor_parallel", "1", "degree of tensor parallelism"),
        ("pipeline_parallel", "1", "degree of pipeline parallelism"),
        ("dtype", "-", "type of the gradients on the wire: 'fp32', 'fp16', 'bf16', 'fp8'"),
        ("allreduce", "-", "algorithm of the gradient allreduce"),
        ("sync_every_steps", "1", "local steps between two synchronisations"),
        ("compression", "-", "'none', 'topk:DENSITY' or 'powersgd:RANK'"),
        ("storage_tier", "-", "where samples are read from"),
        ("staging", "-", "whether the data set is copied to the node before training"),
        ("cache_bytes", "B", "memory for cached samples on each node"),
        ("cache_policy", "-", "'none', 'lru', 'no_evict' or 'cooperative'"),
        ("shuffle", "-", "'global', 'local' or 'partial:SHARE'"),
        ("checkpoint_interval_s", "s", "time between checkpoints"),
        ("checkpoint_mode", "-", "'sync' or 'async'"),
        ("power_limit_watts", "W", "power cap of each accelerator"),
        ("clock_hz", "Hz", "clock of each accelerator"),
    ),
    *_group(
        "measured",
        ("collective", "-", "collective operation, e.g. 'all_reduce'"),
        ("algorithm", "-", "algorithm as logged"),
        ("protocol", "-", "protocol as logged"),
        ("in_place", "-", "whether the result overwrites the input"),
        ("data_type", "-", "element type as logged"),
        ("reduction", "-", "reduction operation as logged"),
        ("threads_per_rank", "1", "threads of each rank"),
        ("message_bytes", "B", "size of the operation, as nccl-tests defines it"),
        ("message_bytes_logged", "B", "size as the log prints it, where that differs"),
        ("n_ranks", "1", "ranks that take part"),
        ("time_s", "s", "duration of the operation; of the period in predictions"),
        ("algorithm_bandwidth_bytes_per_s", "B/s", "message size over time"),
        ("bus_bandwidth_bytes_per_s", "B/s", "nccl-tests' busbw"),
        ("step_time_s", "s", "duration of one optimiser step"),
        ("throughput_samples_per_s", "samples/s", "samples of the job each second"),
        ("compute_time_s", "s", "part of the step spent computing"),
        ("exposed_communication_time_s", "s", "communication that compute does not hide"),
        ("exposed_io_time_s", "s", "input and output that compute does not hide"),
        ("idle_time_s", "s", "the rest of the step"),
        ("accelerator_utilization", "1", "MLPerf Storage's AU"),
        ("busy_fraction", "1", "share of the time that a simulated resource is busy"),
        ("sent_bytes", "B", "bytes sent, counted at an interface, headers included"),
        ("sent_header_bytes", "B", "the part of sent_bytes that is protocol headers"),
        ("operation", "-", "storage operation: 'read', 'write', 'open', …"),
        ("n_clients", "1", "clients of the storage"),
        ("transfer_bytes", "B", "size of one transfer"),
        ("total_bytes", "B", "bytes of the whole operation"),
        ("bandwidth_bytes_per_s", "B/s", "rate of the whole operation"),
        ("operations_per_s", "1/s", "operations each second"),
        ("device", "-", "device of a power sample"),
        ("scope", "-", "'gpu', 'cpu', 'dram', 'node' or 'switch'"),
        ("power_watts", "W", "power; mean over the job in predictions"),
        ("utilization", "1", "utilisation of the device"),
        ("duration_s", "s", "length of the interval that a meter's total covers"),
        ("energy_joules", "J", "energy of that interval; of the job in predictions"),
        ("statistic", "-", "what the row is of its repetitions: 'single', 'mean', …"),
        ("compute_fraction", "1", "share of the time computing"),
        ("wait_fraction", "1", "share of the time waiting on communication or storage"),
        ("epochs_to_target", "1", "epochs until the target"),
        ("time_to_target_s", "s", "time until the target"),
        ("staging_time_s", "s", "time to stage the data set"),
        ("target_metric", "-", "what the target is a value of"),
        ("target_value", "-", "the target"),
    ),
    *_group(
        "predicted",
        ("communication_bytes", "B", "sent by one rank in the period, mean over ranks"),
        ("intra_node_bytes", "B", "the part of communication_bytes that stays in a node"),
        ("inter_node_bytes", "B", "the part of communication_bytes that leaves the node"),
        ("messages", "1", "messages sent by one rank in the period, mean over ranks"),
        ("communication_bytes_total", "B", "sent by all ranks in the period"),
        ("read_bytes", "B", "read from storage by the job in the period"),
        ("checkpoint_bytes", "B", "written to checkpoints by the job in the period"),
        ("node_hours", "h", "nodes times time"),
        ("extra_samples", "1", "share of samples above the fewest needed for the target"),
    ),
]

# What a configuration's column means where it is missing. None: not given, and nothing is assumed.
DEFAULTS = {
    "n_nodes": None,
    "gpus_per_node": None,
    "n_gpus": None,
    "batch_per_gpu": None,
    "accumulation_steps": 1,
    "global_batch": None,
    "samples_to_target": None,
    "sharding": "ddp",
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "dtype": "fp32",
    "allreduce": "ring",
    "sync_every_steps": 1,
    "compression": "none",
    "storage_tier": "pfs",
    "staging": False,
    "cache_bytes": 0,
    "cache_policy": "none",
    "shuffle": "global",
    "checkpoint_interval_s": None,
    "checkpoint_mode": "sync",
    "power_limit_watts": None,
    "clock_hz": None,
}
_UNIT_OF = {quantity.name: quantity.unit for quantity in QUANTITIES}


def check_columns(names, *, where=""):
    """Raise `UnknownNameError` for the first of `names` that is not the name of a quantity."""
    for name in names:
        if name not in _UNIT_OF:
            advice = f" (columns are listed in the nomenclature){where}"
            raise UnknownNameError("column", name, _UNIT_OF, advice)


_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}
_PREFIXES = _DECIMAL | _BINARY
_TIMES = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIMES |= {"d": 86400.0, "w": 604800.0}

# SimGrid's units by dimension: the factor to SI base units, and the unit that we write.
_UNITS = {
    "bandwidth": (
        {f"{p}Bps": f for p, f in _PREFIXES.items()}
        | {f"{p}bps": f / 8 for p, f in _PREFIXES.items()},
        "Bps",
    ),
    "time": (_TIMES, "s"),
    "speed": (
        {f"{p}f": f for p, f in _PREFIXES.items()} | {f"{p}flops": f for p, f in _PREFIXES.items()},
        "f",
    ),
    "size": (
        {f"{p}B": f for p, f in _PREFIXES.items()} | {f"{p}b": f / 8 for p, f in _PREFIXES.items()},
        "B",
    ),
}
_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)\s*")


def parse_quantity(text, dimension):
    """Number in SI base units of a text such as ``'12.5GBps'``.

    Parameters
    ----------
    text : str or float
        A number, alone (SI base units, as SimGrid takes it) or followed by a unit of SimGrid's.
    dimension : {'bandwidth', 'time', 'speed', 'size'}
        What the number measures: [B/s], [s], [flop/s] or [B].

    Raises
    ------
    ValueError
        If the text is no number with a unit of that dimension.

    Examples
    --------
    >>> parse_quantity("12.5GBps", "bandwidth")
    12500000000.0
    >>> parse_quantity("100Mbps", "bandwidth"), parse_quantity("50us", "time")
    (12500000.0, 5e-05)
    """
    factors, _ = _UNITS[dimension]
    match = _NUMBER.fullmatch(str(text))
    if match is None or (match[2] and match[2] not in factors):
        known = "a number of seconds" if dimension == "time" else f"a {dimension}"
        example = {"bandwidth": "12.5GBps", "time": "50us", "speed": "1Gf", "size": "1MiB"}
        raise ValueError(f"{text!r} is not {known}; write for example {example[dimension]!r}")
    if not match[2]:
        return float(match[1])
    # In decimal, so that "50us" is 5e-05 to the last digit.
    return float(Decimal(match[1]) * Decimal(repr(factors[match[2]])))


def format_quantity(value, dimension):
    """Text with SimGrid's base unit, from which `parse_quantity` gives exactly `value` again.

    Examples
    --------
    >>> format_quantity(12500000000.0, "bandwidth")
    '12500000000Bps'
    """
    number = repr(float(value)).removesuffix(".0")
    return number + _UNITS[dimension][1]


def base_unit(dimension):
    """SI unit in which numbers of a dimension are kept."""
    return {"bandwidth": "B/s", "time": "s", "speed": "flop/s", "size": "B"}[dimension]
