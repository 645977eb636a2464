"""Calibrate the numbers of a SimGrid platform against measured runs.

A tool on top of perfmodel, which never imports it: `calibrate` takes a platform and measurements
and gives back a platform that simulates like the machine, and how far to trust it.
"""

import importlib

_HOME = {"calibrate": "calibration.search", "Calibration": "calibration.search"}
__all__ = list(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
