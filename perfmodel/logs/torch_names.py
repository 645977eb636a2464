"""Names of collectives and element types in what PyTorch writes."""

import re

ELEMENT_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "long": 8, "long int": 8, "int": 4,
    "short": 2, "char": 1, "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "complexfloat": 8, "complexdouble": 16, "c10::half": 2, "c10::bfloat16": 2,
    "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip
_NAMES = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
)


def collective_of(name):
    """Our name of a collective in one of PyTorch's or NCCL's; None where it is none.

    Examples
    --------
    >>> collective_of("_reduce_scatter_base"), collective_of("all_to_allv"), collective_of("wait")
    ('reduce_scatter', 'all_to_all', None)
    """
    plain = re.sub("[^a-z]", "", str(name).lower())
    return next((ours for theirs, ours in _NAMES if theirs in plain), None)
