"""Models that are fitted to measurements, with scikit-learn's contract."""

import importlib

_HOME = {
    "CollectiveTime": "perfmodel.models.collective",
    "StepTime": "perfmodel.models.step",
}
__all__ = list(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__():
    return [*globals(), *_HOME]
