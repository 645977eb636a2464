"""What training a deep network on a cluster will cost.

Measured logs become tables, tables become fitted models and a calibrated SimGrid platform, and
those predict time and bytes of configurations that nobody has run.
"""

import importlib

# The public names in the order of the flow, each with the module that it is loaded from on first
# use (PEP 562), so that importing perfmodel costs nothing.
_HOME = {
    "read_logs": "perfmodel.logs",
    "log_formats": "perfmodel.logs",
    "Measurements": "perfmodel.logs",
    "Workload": "perfmodel.workload",
    "configurations": "perfmodel.configuration",
    "volumes": "perfmodel.traffic",
    "models": None,
    "TrainingModel": "perfmodel.models.training",
    "load_model": "perfmodel.models.saved",
    "platform": "perfmodel.platform_file",
    "simulate": "perfmodel.simulation",
    "errors": None,
}
__all__ = list(_HOME)
__version__ = "0.1.0"


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME[name]
    if home is None:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__():
    return [*globals(), *_HOME]
