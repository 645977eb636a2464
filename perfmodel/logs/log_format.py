"""What a module of this folder says about its tool."""

from collections.abc import Callable
from typing import NamedTuple


class LogFormat(NamedTuple):
    """A format of logs.

    Parameters
    ----------
    name, description : str
        Name for ``read_logs(format=…)``, and one line about it.
    recognises : callable
        From a `LogFile` to whether it holds results in this format.
    read : callable
        From a `LogFile` to its rows: a list of dicts by name of the table, or a DataFrame.
    is_part : bool
        Whether the results stand among other lines, perhaps of another tool.
    """

    name: str
    description: str
    recognises: Callable
    read: Callable
    is_part: bool = False
