"""Configurations: what can be varied about a training job, one row a configuration."""

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfmodel.errors import ConfigurationError, UnknownNameError
from perfmodel.quantities import DEFAULTS

_COUNTS = (
    *("n_nodes", "gpus_per_node", "n_gpus", "batch_per_gpu", "accumulation_steps", "global_batch"),
    *("tensor_parallel", "pipeline_parallel", "sync_every_steps"),
)
_CHOICES = {
    "sharding": ("ddp", "zero1", "zero2", "zero3"),
    "dtype": ("fp32", "fp16", "bf16", "fp8"),
    "allreduce": (*("ring", "tree", "recursive_doubling", "rabenseifner", "hierarchical", "auto"),),
    "storage_tier": ("pfs", "burst_buffer", "nvme", "memory"),
    "cache_policy": ("none", "lru", "no_evict", "cooperative"),
    "checkpoint_mode": ("sync", "async"),
}


def configurations(**axes):
    """Every combination of the values given, as a table of configurations.

    Parameters
    ----------
    **axes : scalar or list
        Values for any configuration column of the nomenclature, e.g. ``n_nodes=[1, 2, 4]``.

    Returns
    -------
    DataFrame
        One row a configuration, the last axis varying fastest; ``n_gpus`` and ``global_batch``
        are filled in. ``attrs["axes"]`` keeps the axes.

    Raises
    ------
    UnknownNameError
        For a name that is no configuration column (also a `KeyError`).
    ConfigurationError
        For values that contradict each other or are out of range (also a `ValueError`).

    Examples
    --------
    >>> configurations(n_nodes=[1, 2], gpus_per_node=4, batch_per_gpu=32)
       n_nodes  gpus_per_node  batch_per_gpu  n_gpus  global_batch
    0        1              4             32       4           128
    1        2              4             32       8           256
    """
    for name in axes:
        if name not in DEFAULTS:
            raise UnknownNameError("configuration column", name, DEFAULTS)
    values = {name: _as_list(axis) for name, axis in axes.items()}
    for name, axis in values.items():
        if not axis:
            raise ConfigurationError(f"{name} has no values; give at least one")
    grid = pd.DataFrame(list(itertools.product(*values.values())), columns=list(values))
    grid = complete(grid)
    grid.attrs["axes"] = values
    return grid


def complete(table):
    """Copy of a table of configurations with ``n_gpus`` and ``global_batch`` filled in, checked.

    Parameters
    ----------
    table : DataFrame or mapping
        Configuration columns; a mapping of numbers is one configuration. Other columns are kept.

    Raises
    ------
    ConfigurationError
        Naming the row, the column and what it holds.
    """
    if isinstance(table, Mapping):
        table = pd.DataFrame({name: _as_list(value) for name, value in table.items()})
    table = table.copy()
    if "n_nodes" not in table:
        raise ConfigurationError("a configuration needs n_nodes; add the column")
    for name in _COUNTS:
        if name in table:
            table[name] = _whole_numbers(table, name)
    for name, choices in _CHOICES.items():
        if name in table:
            for value in table[name].unique():
                if value not in choices:
                    raise ConfigurationError(f"{name} is {value!r}; it can be {', '.join(choices)}")
    _fill_gpus(table)
    _fill_batch(table)
    return table


def column(table, name):
    """Column of a table of configurations, or its default for every row where it is missing."""
    if name in table:
        return table[name]
    return pd.Series([DEFAULTS[name]] * len(table), index=table.index, name=name)


def refuse_unsupported(table, supported, what):
    """Raise `ConfigurationError` where a column that `what` cannot treat differs from its default.

    A configuration is treated in full or refused by name: ignoring a column would answer another
    question than the one that was asked.
    """
    for name, default in DEFAULTS.items():
        if name in supported or name not in table:
            continue
        odd = table[name][table[name].notna() & (table[name] != default)]
        if len(odd):
            raise ConfigurationError(
                f"{what} does not support {name} = {odd.iloc[0]!r} yet; leave the column out"
                + ("" if default is None else f" or set it to {default!r}")
            )


def _as_list(value):
    if isinstance(value, str) or not np.iterable(value):
        return [value]
    return list(value)


def _whole_numbers(table, name):
    numbers = pd.to_numeric(table[name], errors="coerce")
    wrong = ~(np.isfinite(numbers) & (numbers >= 1) & (numbers == np.floor(numbers)))
    if wrong.any():
        row = wrong.idxmax()
        raise ConfigurationError(
            f"{name} is {table[name][row]} in row {row}; it must be a whole number of at least 1"
        )
    return numbers.astype("int64")


def _fill_gpus(table):
    if "gpus_per_node" in table:
        n_gpus = table["n_nodes"] * table["gpus_per_node"]
        if "n_gpus" in table:
            _refuse_difference(table, "n_gpus", n_gpus, "n_nodes · gpus_per_node")
        table["n_gpus"] = n_gpus
    elif "n_gpus" not in table:
        raise ConfigurationError("a configuration needs gpus_per_node or n_gpus; add one of them")
    short = table["n_gpus"] < table["n_nodes"]
    if short.any():
        row = short.idxmax()
        raise ConfigurationError(
            f"n_gpus is {table['n_gpus'][row]} on {table['n_nodes'][row]} nodes in row {row}; "
            "every node needs at least one"
        )


def _fill_batch(table):
    replicas, rest = np.divmod(
        table["n_gpus"], column(table, "tensor_parallel") * column(table, "pipeline_parallel")
    )
    if rest.any():
        row = rest.ne(0).idxmax()
        raise ConfigurationError(
            f"n_gpus = {table['n_gpus'][row]} in row {row} is not divisible by "
            "tensor_parallel · pipeline_parallel"
        )
    samples = replicas * column(table, "accumulation_steps").astype("int64")
    if "batch_per_gpu" in table:
        global_batch = table["batch_per_gpu"] * samples
        if "global_batch" in table:
            _refuse_difference(
                table,
                "global_batch",
                global_batch,
                "batch_per_gpu · accumulation_steps · model replicas",
            )
        table["global_batch"] = global_batch
    elif "global_batch" in table:
        batch, rest = np.divmod(table["global_batch"], samples)
        if rest.any():
            row = rest.ne(0).idxmax()
            raise ConfigurationError(
                f"global_batch = {table['global_batch'][row]} in row {row} is not divisible by "
                f"its {samples[row]} micro-batches"
            )
        table["batch_per_gpu"] = batch


def _refuse_difference(table, name, expected, formula):
    differs = table[name] != expected
    if differs.any():
        row = differs.idxmax()
        raise ConfigurationError(
            f"{name} is {table[name][row]} in row {row}, but {formula} is {expected[row]}"
        )
