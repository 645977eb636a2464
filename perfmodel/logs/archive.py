"""The library's own HDF5 archive of measurements: the same tables back, exactly.

Readable with plain h5py: a group for each table, a dataset for each column, with ``unit`` and
``meaning`` as attributes; times are seconds, sizes bytes. Where a column of text has missing
values, or values that are no text, ``<column>:kind`` says of each what it is (see `_KINDS`).
"""

import io
import json
import math

import numpy as np
import pandas as pd

from perfmodel.errors import ConfigurationError, LogFormatError
from perfmodel.files import write_whole
from perfmodel.quantities import QUANTITIES

_MAGIC = b"\x89HDF\r\n\x1a\n"
_FORMAT, _VERSION = "perfmodel-measurements", 1
_QUANTITY = {quantity.name: quantity for quantity in QUANTITIES}
_KINDS = ("text", "None", "nan", "bool", "int", "float", "NA")
_MISSING = {"None": None, "nan": math.nan, "NA": pd.NA}
_NULLABLE = {"boolean": bool, "Int64": "int64", "Float64": "float64"}


def is_hdf5(path):
    """Whether a file begins as HDF5 does."""
    with open(path, "rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def write_archive(path, tables):
    """Write tables by name; the file is replaced whole or not at all.

    Parameters
    ----------
    path : path
    tables : dict of str to DataFrame

    Raises
    ------
    ConfigurationError
        If a column holds what an archive cannot (also a `ValueError`).
    MissingFileError
        If the folder does not exist (also a `FileNotFoundError`).
    """
    import h5py

    content = io.BytesIO()
    with h5py.File(content, "w", track_order=True) as file:
        file.attrs.update({"format": _FORMAT, "version": _VERSION})
        for name, table in tables.items():
            group = file.create_group(name, track_order=True)
            group.attrs["n_rows"] = len(table)
            group.attrs["columns"] = json.dumps(list(table.columns))
            for column in table.columns:
                _write_column(group, column, table[column])
    write_whole(path, content.getvalue())


def read_archive(path):
    """Read an archive back.

    Returns
    -------
    dict of str to DataFrame

    Raises
    ------
    LogFormatError
        If the file is no archive of ours, of a newer version, or damaged.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != _FORMAT:
                raise LogFormatError(path, "HDF5, but not written by Measurements.to_hdf5")
            if file.attrs["version"] != _VERSION:
                raise LogFormatError(
                    path,
                    f"an archive of version {file.attrs['version']}; this perfmodel reads "
                    f"{_VERSION}: upgrade perfmodel",
                )
            return {name: _read_table(file[name]) for name in file}
    except LogFormatError:
        raise
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
        raise LogFormatError(path, f"a damaged HDF5 file: {error}") from None


def _write_column(group, name, column):
    kind = str(column.dtype)
    options = {"compression": "gzip", "shuffle": True} if len(column) else {}
    if kind in _NULLABLE:
        missing = column.isna().to_numpy()
        values = column.to_numpy(dtype=_NULLABLE[kind], na_value=0)
        group.create_dataset(f"{name}:missing", data=missing, **options)
    elif isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        values = column.to_numpy()
    elif kind in ("object", "str", "string"):
        texts, kinds = zip(*map(_encoded, column), strict=True) if len(column) else ((), ())
        length = max(map(len, texts), default=0) or 1
        values = np.array(texts, dtype=f"S{length}")
        if any(b"\0" in text for text in texts):
            raise ConfigurationError(f"the column {name} holds text with NUL characters")
        if None in kinds:
            value = next(v for v, k in zip(column, kinds, strict=True) if k is None)
            raise ConfigurationError(
                f"the column {name} holds a {type(value).__name__}; an archive takes text, "
                "numbers and booleans"
            )
        if any(kinds):
            group.create_dataset(f"{name}:kind", data=np.array(kinds, dtype="uint8"), **options)
            group[f"{name}:kind"].attrs["kinds"] = json.dumps(_KINDS)
    else:
        raise ConfigurationError(
            f"the column {name} is of type {kind}; convert it with astype before archiving"
        )
    if values.dtype.kind == "S":
        import h5py

        text = h5py.string_dtype("utf-8", values.dtype.itemsize)
        dataset = group.create_dataset(name, data=values.astype(text), dtype=text, **options)
    else:
        dataset = group.create_dataset(name, data=values, **options)
    dataset.attrs["pandas_dtype"] = kind
    if name in _QUANTITY:
        dataset.attrs["unit"] = _QUANTITY[name].unit
        dataset.attrs["meaning"] = _QUANTITY[name].meaning


def _encoded(value):
    """Text of a value, and the number of its kind; None for a kind that there is not."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape"), 0
    if value is None:
        return b"", 1
    if value is pd.NA:
        return b"", 6
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).encode(), 3
    if isinstance(value, int | np.integer):
        return str(int(value)).encode(), 4
    if isinstance(value, float | np.floating):
        return (b"", 2) if math.isnan(value) else (float(value).hex().encode(), 5)
    return b"", None


def _decoded(text, kind):
    if kind in _MISSING:
        return _MISSING[kind]
    if kind == "bool":
        return text == "True"
    return {"int": int, "float": float.fromhex}.get(kind, str)(text)


def _read_table(group):
    columns = json.loads(group.attrs["columns"])
    table = {name: _read_column(group, name) for name in columns}
    frame = pd.DataFrame(table, index=pd.RangeIndex(int(group.attrs["n_rows"])))
    return frame[columns]


def _read_column(group, name):
    dataset = group[name]
    kind, values = dataset.attrs["pandas_dtype"], dataset[:]
    if kind in _NULLABLE:
        column = pd.Series(values).astype(kind)
        return column.mask(group[f"{name}:missing"][:])
    if values.dtype.kind != "S":
        return pd.Series(values)
    texts = [value.decode("utf-8", "surrogateescape") for value in values.tolist()]
    if f"{name}:kind" in group:
        kinds = group[f"{name}:kind"][:]
        texts = [_decoded(text, _KINDS[k]) for text, k in zip(texts, kinds, strict=True)]
    return pd.Series(texts, dtype=kind)
