"""Find logs under a path, tell their formats from content, read them into `Measurements`."""

import glob
import warnings
from pathlib import Path

import pandas as pd

from perfmodel.errors import LogFormatError, LogWarning, MissingFileError, UnknownNameError
from perfmodel.logs import chakra, horovod, imb, kineto, mlperf, nccl_tests, osu, tidy_csv
from perfmodel.logs.kinds import kind_of
from perfmodel.logs.log_file import logs_in
from perfmodel.logs.measurements import SOURCE_COLUMNS, TABLES, Measurements

_MODULES = (nccl_tests, osu, imb, mlperf, kineto, chakra, horovod, tidy_csv)
# Of formats that fill a file, the first that recognises it reads it: the strictest come first.
_FORMATS = {form.name: form for module in _MODULES for form in module.FORMATS}


def log_formats():
    """Formats that `read_logs` knows.

    Returns
    -------
    DataFrame
        Columns ``format`` and ``description``.

    Examples
    --------
    >>> "nccl-tests" in list(log_formats()["format"])
    True
    """
    rows = [(f.name, f.description) for f in _FORMATS.values()]
    return pd.DataFrame(rows, columns=["format", "description"])


def read_logs(path, format=None, system=None, progress=None):
    """Read measured logs into tidy tables.

    Parameters
    ----------
    path : path or list of paths
        Files, folders (read with their subfolders) or glob patterns. Compressed files (gz, zst,
        bz2, xz) are read as what is in them, a compressed tar archive as its members.
    format : str, optional
        Name of the reader to use for every file, instead of telling the format from content.
    system : str, optional
        Label of the machine and its setting. Default: a ``system`` column, else the folder's name.
    progress : callable, optional
        Called with (files done, files in all, bytes read of the present one).

    Returns
    -------
    Measurements
        Its ``sources`` has one row for every file found, those of no known format included.

    Raises
    ------
    MissingFileError
        If a path does not exist or a pattern matches nothing (also a `FileNotFoundError`).
    LogFormatError
        If a named file holds no measurements that can be used, or a folder none at all: with
        file, line and reason (also a `ValueError`).
    UnknownNameError
        If `format` is not one of `log_formats` (also a `KeyError`).

    Warns
    -----
    LogWarning
        If files that merely lay in a folder hold no measurements.
    """
    if format is not None and format not in _FORMATS:
        raise UnknownNameError("log format", format, _FORMATS)
    found = _files(path)
    tables, sources, refused = _Tables(), [], []
    for position, (file, was_named) in enumerate(found):
        count = None
        if progress is not None:

            def count(n_bytes, position=position):
                progress(position, len(found), n_bytes)

        refusals, rows = [], 0
        for log in logs_in(file, count):
            source = {"source_file": log.path, "format": "", "rows": 0, "sha256": log.sha256}
            sources.append(source)
            try:
                for form in _readers(log, format):
                    for name, part in form.read(log).items():
                        source["rows"] += tables.add(name, part, log.path, _label(file, system))
                    source["format"] += f", {form.name}" if source["format"] else form.name
            except LogFormatError as error:
                refusals.append(error)
                if not log.first_skipped_reason:
                    log.first_skipped_reason = _reason(error)
            source["lines_skipped"] = log.lines_skipped
            source["first_skipped_reason"] = log.first_skipped_reason
            source["inferred"] = log.inferred
            rows += source["rows"]
        if not rows:
            error = refusals[0] if refusals else LogFormatError(str(file), "an empty archive")
            if was_named:
                raise error
            refused.append(error)
    if not any(source["rows"] for source in sources):
        why = f"; the first: {refused[0]}" if refused else ""
        raise LogFormatError(path, f"no measurements in {len(found)} files{why}")
    if refused:
        warnings.warn(
            f"{len(refused)} of {len(found)} files have no measurements that can be used (see "
            f"Measurements.sources); the first: {refused[0]}",
            LogWarning,
            stacklevel=2,
        )
    return Measurements(**tables.joined(), sources=pd.DataFrame(sources, columns=SOURCE_COLUMNS))


def _reason(error):
    where = "" if error.line_number is None else f"line {error.line_number}: "
    return where + error.problem


def _label(file, system):
    return (True, system) if system is not None else (False, file.resolve().parent.name)


def _files(path):
    """Pairs (file, whether it was named itself rather than found in a folder or by a pattern)."""
    if isinstance(path, list | tuple):
        return [pair for part in path for pair in _files(part)]
    here = Path(path)
    if here.is_dir():
        return [(file, False) for file in sorted(here.rglob("*")) if file.is_file()]
    if here.exists():
        return [(here, True)]
    matches = sorted(glob.glob(str(path), recursive=True))
    if not matches:
        raise MissingFileError(f"{path}: no such file or folder")
    return [(file, False) for match in matches for file, _ in _files(match)]


def _readers(log, format):
    """Formats to read a log with: one that fills it, or all that have a part in it."""
    if format is not None:
        return [_FORMATS[format]]
    if log.is_empty:
        raise LogFormatError(log.path, "empty file")
    if log.is_binary:
        raise LogFormatError(log.path, f"no log of a format known, but {kind_of(log)}")
    whole = [form for form in _FORMATS.values() if not form.is_part and form.recognises(log)]
    if whole:
        return whole[:1]
    parts = [form for form in _FORMATS.values() if form.is_part and form.recognises(log)]
    if not parts:
        raise LogFormatError(log.path, f"no log of a format known, but {kind_of(log)}")
    return parts


class _Tables:
    """Rows of all logs by table, in the order read."""

    def __init__(self):
        self._frames = {name: [] for name in TABLES}
        self._rows = {name: [] for name in TABLES}

    def add(self, name, part, path, label):
        """Take up the rows of a log; returns how many."""
        is_forced, system = label
        if isinstance(part, pd.DataFrame):
            self._flush(name)
            part = part.copy()
            part.insert(0, "source_file", path)
            if is_forced or "system" not in part:
                part["system"] = system
            self._frames[name].append(part)
        else:
            rows = self._rows[name]
            for row in part:
                rows.append({"source_file": path, **row, "system": system})
        return len(part)

    def _flush(self, name):
        if self._rows[name]:
            self._frames[name].append(_frame(self._rows[name]))
            self._rows[name] = []

    def joined(self):
        """A DataFrame for each table that has rows."""
        for name in TABLES:
            self._flush(name)
        return {
            name: frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
            for name, frames in self._frames.items()
            if frames
        }


def _frame(rows):
    """Rows as a table, without columns that no row has a value of."""
    table = pd.DataFrame(rows)
    empty = [name for name in table if table[name].isna().all()]
    table = table.drop(columns=empty)
    for name in ("in_place", "staging"):
        if name in table and table[name].isna().any():
            table[name] = table[name].astype("boolean")
    return table
