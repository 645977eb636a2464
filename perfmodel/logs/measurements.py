"""What was measured: five tidy tables, whatever tool they come from."""

import pandas as pd

from perfmodel.errors import LogFormatError
from perfmodel.logs.archive import write_archive
from perfmodel.logs.condition import Condition
from perfmodel.quantities import check_columns

TABLES = ("collectives", "steps", "storage", "power", "convergence")
SOURCE_COLUMNS = (
    *("source_file", "format", "rows", "lines_skipped", "first_skipped_reason", "inferred"),
    "sha256",
)
# Columns whose values must be above zero wherever they are given.
_POSITIVE = (
    *("n_nodes", "n_gpus", "gpus_per_node", "n_ranks", "batch_per_gpu", "accumulation_steps"),
    *("time_s", "step_time_s", "throughput_samples_per_s"),
)


class Measurements:
    """Tables of what was measured, one row an observation; a table is empty where nothing was.

    Parameters
    ----------
    collectives, steps, storage, power, convergence : DataFrame, optional
        Tables with columns of the nomenclature.
    sources : DataFrame, optional
        One row a file that was read.

    Raises
    ------
    UnknownNameError
        For a column that the nomenclature does not have (also a `KeyError`).
    LogFormatError
        For a count or a time that is not above zero (also a `ValueError`).
    """

    def __init__(
        self,
        collectives=None,
        steps=None,
        storage=None,
        power=None,
        convergence=None,
        sources=None,
    ):
        self.collectives = _checked(collectives, "collectives")
        self.steps = _checked(steps, "steps")
        self.storage = _checked(storage, "storage")
        self.power = _checked(power, "power")
        self.convergence = _checked(convergence, "convergence")
        self.sources = pd.DataFrame(columns=SOURCE_COLUMNS) if sources is None else sources

    def __repr__(self):
        counts = ", ".join(f"{name}: {len(table)}" for name, table in self.tables().items())
        return f"<Measurements {counts} rows>"

    def tables(self):
        """The five tables by name."""
        return {name: getattr(self, name) for name in TABLES}

    def select(self, condition):
        """The rows that satisfy a condition such as ``"n_nodes <= 4 and system == 'lab'"``.

        A comparison with a column that a table lacks leaves no row of it out: a table that has
        none of the condition's columns stays whole.
        """
        condition = Condition(condition)
        tables = {
            name: table[~condition.fails(table)] if len(table) else table
            for name, table in self.tables().items()
        }
        return Measurements(**tables, sources=self.sources)

    def to_hdf5(self, path):
        """Write all tables, `sources` too, so that `read_logs` gives exactly them back.

        The file is compressed, and replaced whole or not at all; see `perfmodel.logs.archive`.

        Raises
        ------
        ConfigurationError
            If a column holds what an archive cannot (also a `ValueError`).
        MissingFileError
            If the folder does not exist (also a `FileNotFoundError`).
        """
        write_archive(path, {**self.tables(), "sources": self.sources})


def systems(*tables):
    """Labels of the systems that the rows of these tables were measured on, sorted."""
    return sorted({s for t in tables if "system" in t for s in t["system"].dropna().unique()})


def _checked(table, name):
    if table is None:
        return pd.DataFrame()
    check_columns(table.columns, where=f", in the table of {name}")
    for column in _POSITIVE:
        if column in table and len(table):
            wrong = ~(table[column] > 0) & table[column].notna()
            if wrong.any():
                row = table[wrong].iloc[0]
                line = row.get("source_line")
                raise LogFormatError(
                    row.get("source_file", f"table of {name}"),
                    f"{column} is {row[column]}; it must be above 0",
                    None if line is None else int(line),
                )
    return table.reset_index(drop=True)
