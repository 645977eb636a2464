"""Find logs under a path, tell their formats from content, read them into `Measurements`."""

import glob
import warnings
from pathlib import Path

import pandas as pd

from perfmodel.errors import LogFormatError, LogWarning, MissingFileError, UnknownNameError
from perfmodel.logs import chakra, horovod, imb, kineto, mlperf, nccl_tests, osu, tidy_csv
from perfmodel.logs.archive import is_hdf5, read_archive
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
    reading, refused = _Reading(format, system), []
    for position, (file, was_named) in enumerate(found):
        error = reading.read(file, _counter(progress, position, len(found)))
        if error is not None:
            if was_named:
                raise error
            refused.append(error)
    if len(refused) == len(found):
        why = f"; the first: {refused[0]}" if refused else ""
        raise LogFormatError(path, f"no measurements in {len(found)} files{why}")
    if refused:
        warnings.warn(
            f"{len(refused)} of {len(found)} files have no measurements that can be used (see "
            f"Measurements.sources); the first: {refused[0]}",
            LogWarning,
            stacklevel=2,
        )
    return reading.measurements()


def _counter(progress, position, n_files):
    if progress is None:
        return None
    return lambda n_bytes: progress(position, n_files, n_bytes)


def _reason(error):
    where = "" if error.line_number is None else f"line {error.line_number}: "
    return where + error.problem


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


def _read(form, log):
    """Rows of a log. A reader that stumbles must not cost the user the other logs."""
    try:
        return form.read(log)
    except LogFormatError:
        raise
    except Exception as error:
        raise LogFormatError(
            log.path,
            f"the reader {form.name} failed on it ({type(error).__name__}: {error}): please report "
            "this file",
        ) from error


class _Reading:
    """What was read so far: rows by table, in the order read, and a source for each log."""

    def __init__(self, format, system):
        self._format, self._system = format, system
        self._frames = {name: [] for name in (*TABLES, "sources")}
        self._rows = {name: [] for name in (*TABLES, "sources")}

    def read(self, file, progress):
        """Take up a file. Returns why it cannot be used, or None."""
        if self._format is None and is_hdf5(file):
            return self._read_archive(file)
        refusal, n_rows = LogFormatError(file, "an archive without files"), 0
        for i, log in enumerate(logs_in(file, progress)):
            source = {name: "" for name in SOURCE_COLUMNS} | {"source_file": log.path, "rows": 0}
            try:
                for form in _readers(log, self._format):
                    for name, part in _read(form, log).items():
                        source["rows"] += self._add(name, part, file, log.path)
                    source["format"] += f", {form.name}" if source["format"] else form.name
            except LogFormatError as error:
                refusal = error if i == 0 else refusal
                if not log.first_skipped_reason:
                    log.first_skipped_reason = _reason(error)
            source["lines_skipped"] = log.lines_skipped
            source["first_skipped_reason"] = log.first_skipped_reason
            source["inferred"], source["sha256"] = log.inferred, log.sha256
            self._rows["sources"].append(source)
            n_rows += source["rows"]
        return None if n_rows else refusal

    def _read_archive(self, file):
        try:
            tables = read_archive(file)
        except LogFormatError as error:
            return error
        for name, table in tables.items():
            if name in self._frames and len(table.columns):
                if self._system is not None and name != "sources" and len(table):
                    table["system"] = self._system
                self._flush(name)
                self._frames[name].append(table)
        return None

    def _add(self, name, part, file, path):
        """Take up the rows of a log; returns how many."""
        system = file.resolve().parent.name if self._system is None else self._system
        if isinstance(part, pd.DataFrame):
            self._flush(name)
            part = part.copy()
            part.insert(0, "source_file", path)
            if self._system is not None or "system" not in part:
                part["system"] = system
            self._frames[name].append(part)
        else:
            self._rows[name] += [{"source_file": path, **row, "system": system} for row in part]
        return len(part)

    def _flush(self, name):
        if self._rows[name]:
            frame = _frame if name != "sources" else pd.DataFrame
            self._frames[name].append(frame(self._rows[name]))
            self._rows[name] = []

    def measurements(self):
        """All of it."""
        tables = {}
        for name, frames in self._frames.items():
            self._flush(name)
            if frames:
                one = len(frames) == 1
                tables[name] = frames[0] if one else pd.concat(frames, ignore_index=True)
        return Measurements(**tables)


def _frame(rows):
    """Rows as a table, without columns that no row has a value of.

    A collective that is not known stays: a table without the column would mean the default.
    """
    table = pd.DataFrame(rows)
    empty = [name for name in table if name != "collective" and table[name].isna().all()]
    table = table.drop(columns=empty)
    for name in ("in_place", "staging"):
        if name in table and table[name].isna().any():
            table[name] = table[name].astype("boolean")
    return table
