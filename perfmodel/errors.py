"""Errors a caller may want to catch.

Each message says where it happened, what was found and what to do about it. Each class is also the
builtin that a caller would expect. Arguments stay in ``args``, so that an error survives pickling.
"""

from difflib import get_close_matches


class PerfmodelError(Exception):
    """Base of every error raised on purpose, so that one ``except`` catches them all."""


class LogFormatError(PerfmodelError, ValueError):
    """A measured log is not what its format promises."""

    def __init__(self, path, problem, line_number=None):
        super().__init__(path, problem, line_number)
        self.path, self.problem, self.line_number = path, problem, line_number

    def __str__(self):
        where = self.path if self.line_number is None else f"{self.path}:{self.line_number}"
        return f"{where}: {self.problem}"


class MissingFileError(PerfmodelError, FileNotFoundError):
    """A file or folder that was named does not exist."""


class UnknownNameError(PerfmodelError, KeyError):
    """A name that is not one of those known; the message offers the nearest ones."""

    def __init__(self, kind, name, known, advice=""):
        super().__init__(kind, name, tuple(known), advice)
        self.kind, self.name, self.known, self.advice = kind, name, tuple(known), advice

    def __str__(self):
        near = get_close_matches(str(self.name), map(str, self.known), n=3, cutoff=0.5)
        if near:
            hint = f"did you mean {' or '.join(map(repr, near))}?"
        else:
            hint = f"known: {', '.join(map(str, self.known)) or 'none'}"
        return f"no {self.kind} {self.name!r}; {hint}{self.advice}"


class ConfigurationError(PerfmodelError, ValueError):
    """A configuration contradicts itself, or asks for what is not supported."""


class WorkloadError(PerfmodelError, ValueError):
    """The description of a workload is wrong or lacks a figure that is needed."""


class FitError(PerfmodelError, ValueError):
    """The measurements do not determine the model's parameters."""


class ModelFileError(PerfmodelError, ValueError):
    """A saved model cannot be read."""


class PlatformError(PerfmodelError, ValueError):
    """A platform file cannot be read, or a value given for it makes no sense."""


class SimulationError(PerfmodelError, RuntimeError):
    """SimGrid could not finish a simulation; the message is SimGrid's own."""


class MissingExtraError(PerfmodelError, ImportError):
    """An optional dependency is not installed; the message says how to get it."""


class CalibrationError(PerfmodelError, ValueError):
    """A calibration cannot be set up: its free parameters or its logs do not allow it."""


class ExtrapolationWarning(UserWarning):
    """A prediction lies outside the range that the model was fitted on."""


class LogWarning(UserWarning):
    """Files that lay in a folder of logs hold no measurements that can be used."""
