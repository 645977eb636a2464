"""Measured logs of many tools, read into the same tidy tables.

One module a tool, each with a ``FORMAT`` that says how to recognise and read its files.
"""

from perfmodel.logs.measurements import Measurements
from perfmodel.logs.sniff import log_formats, read_logs

__all__ = ["Measurements", "log_formats", "read_logs"]
