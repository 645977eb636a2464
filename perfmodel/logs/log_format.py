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
        From path and the text's beginning to whether a file is in this format.
    read : callable
        From path, text and a row of ``sources`` (whose notes it fills in) to tables by name.
    """

    name: str
    description: str
    recognises: Callable
    read: Callable
