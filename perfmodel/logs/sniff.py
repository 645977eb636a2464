"""Find logs under a path, tell their formats from content, read them into `Measurements`."""

import glob
import hashlib
from pathlib import Path

import pandas as pd

from perfmodel.errors import LogFormatError, MissingFileError, UnknownNameError
from perfmodel.logs import nccl_tests, tidy_csv
from perfmodel.logs.measurements import SOURCE_COLUMNS, TABLES, Measurements

# The first format that recognises a file reads it, so the strictest comes first.
_FORMATS = {module.FORMAT.name: module.FORMAT for module in (nccl_tests, tidy_csv)}


def log_formats():
    """Formats that `read_logs` knows.

    Returns
    -------
    DataFrame
        Columns ``format`` and ``description``.

    Examples
    --------
    >>> list(log_formats()["format"])
    ['nccl-tests', 'tidy-csv']
    """
    rows = [(f.name, f.description) for f in _FORMATS.values()]
    return pd.DataFrame(rows, columns=["format", "description"])


def read_logs(path, format=None, system=None):
    """Read measured logs into tidy tables.

    Parameters
    ----------
    path : path or list of paths
        Files, folders (read with their subfolders) or glob patterns.
    format : str, optional
        Name of the reader to use for every file, instead of telling the format from content.
    system : str, optional
        Label of the machine and its setting. Default: a ``system`` column, else the folder's name.

    Returns
    -------
    Measurements
        Its ``sources`` has one row for every file found, those of no known format included.

    Raises
    ------
    MissingFileError
        If a path does not exist or a pattern matches nothing (also a `FileNotFoundError`).
    LogFormatError
        If a named file holds no measurements, a folder none at all, or a log is broken: with file
        and line (also a `ValueError`).
    UnknownNameError
        If `format` is not one of `log_formats` (also a `KeyError`).
    """
    if format is not None and format not in _FORMATS:
        raise UnknownNameError("log format", format, _FORMATS)
    found = _files(path)
    tables = {name: [] for name in TABLES}
    sources = []
    for file, was_named in found:
        data = file.read_bytes()
        source = dict.fromkeys(SOURCE_COLUMNS, "") | {"source_file": str(file), "rows": 0}
        source |= {"lines_skipped": 0, "sha256": hashlib.sha256(data).hexdigest()}
        sources.append(source)
        reader = _FORMATS.get(format) or _recognise(file, data)
        if reader is None:
            source["first_skipped_reason"] = "empty file" if not data else "no known format"
            if was_named:
                raise LogFormatError(
                    file,
                    f"{source['first_skipped_reason']}; the formats known are "
                    f"{', '.join(_FORMATS)}",
                )
            continue
        for name, table in reader.read(file, _text(file, data), source).items():
            table.insert(0, "source_file", str(file))
            if system is not None:
                table["system"] = system
            elif "system" not in table:
                table["system"] = file.resolve().parent.name
            source["rows"] += len(table)
            tables[name].append(table)
        source["format"] = reader.name
    if not any(tables.values()):
        raise LogFormatError(
            path,
            f"no measurements in {len(found)} files; the formats known are {', '.join(_FORMATS)}",
        )
    joined = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items() if parts}
    return Measurements(**joined, sources=pd.DataFrame(sources, columns=SOURCE_COLUMNS))


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


def _recognise(file, data):
    head = data[:65536].decode("utf-8", errors="replace")
    for candidate in _FORMATS.values():
        if candidate.recognises(file, head):
            return candidate
    return None


def _text(file, data):
    if b"\0" in data:
        raise LogFormatError(file, "binary data; expected text")
    return data.decode("utf-8", errors="replace")
