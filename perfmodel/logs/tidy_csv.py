"""The library's own format: CSV with columns of the nomenclature, SI base units."""

import csv
import io

import pandas as pd

from perfmodel.errors import LogFormatError, UnknownNameError
from perfmodel.logs.log_format import LogFormat
from perfmodel.quantities import QUANTITIES, check_columns

_NAMES = {quantity.name for quantity in QUANTITIES}
_TEXT = {quantity.name for quantity in QUANTITIES if quantity.unit == "-"} - {
    *("rank", "repetition", "target_value", "source_line")
}
# A column that decides which table a file's rows belong to, the first that is there.
_TABLE_OF = {
    "collective": "collectives",
    "operation": "storage",
    "power_watts": "power",
    "energy_joules": "power",
    "samples_to_target": "convergence",
    "epochs_to_target": "convergence",
    "step_time_s": "steps",
    "throughput_samples_per_s": "steps",
    "sent_bytes": "steps",
}


def _recognises(log):
    first = log.head.lstrip("\ufeff").split("\n", 1)[0].strip()
    names = [name.strip() for name in first.split(",")]
    known = sum(name in _NAMES for name in names)
    return len(names) > 1 and known >= max(1, len(names) / 2)


def read_tidy_csv(log):
    """Read a CSV file with columns of the nomenclature.

    Returns
    -------
    dict of str to DataFrame
        The one table that the file's columns belong to.

    Raises
    ------
    LogFormatError
        Naming file and line: for an unknown column, a row that does not have as many fields as
        the header, or a text where a number should be.
    """
    path, text = log.path, log.text()
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(rows)]
        check_columns(header)
        lines, records = [], []
        for fields in rows:
            if not fields:
                continue
            if len(fields) != len(header):
                cut = "" if text.endswith("\n") else "; the file ends in the middle of this line"
                raise LogFormatError(
                    path,
                    f"{len(fields)} fields where the header has {len(header)}{cut}: remove the "
                    "line or complete it",
                    rows.line_num,
                )
            lines.append(rows.line_num)
            records.append(fields)
    except StopIteration:
        raise LogFormatError(path, "empty file; expected a header row of column names") from None
    except UnknownNameError as error:
        raise LogFormatError(path, str(error), 1) from None
    except csv.Error as error:
        raise LogFormatError(path, f"not CSV: {error}", rows.line_num) from None
    if not records:
        raise LogFormatError(path, "a header but no rows; did the recording stop at once?")
    table = next((_TABLE_OF[name] for name in _TABLE_OF if name in header), None)
    if table is None:
        raise LogFormatError(
            path, f"no measured column; give one of {', '.join(_TABLE_OF)}", line_number=1
        )
    frame = pd.DataFrame(records, columns=header)
    for name in header:
        frame[name] = _typed(path, frame[name], name, lines)
    frame.insert(0, "source_line", lines)
    if not text.endswith("\n"):
        log.infer("the last line has no line end: it may be cut")
    return {table: frame}


def _typed(path, column, name, lines):
    blank = column.str.strip() == ""
    if name in ("in_place", "staging"):
        return column.str.strip().str.lower().map({"true": True, "false": False})
    if name in _TEXT:
        return column.mask(blank)
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = numbers.isna() & ~blank
    if wrong.any():
        position = int(wrong.to_numpy().argmax())
        raise LogFormatError(
            path, f"{name} is {column[position]!r}; expected a number", lines[position]
        )
    return numbers


FORMATS = [
    LogFormat(
        "tidy-csv",
        "CSV with columns of the nomenclature, SI base units",
        _recognises,
        read_tidy_csv,
    )
]
