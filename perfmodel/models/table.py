"""What all models do with their tables: check columns, and summarise repetitions."""

import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd

from perfmodel.errors import ExtrapolationWarning, FitError

# No measurement of a shared machine repeats better than this: the smallest standard deviation of a
# logarithm that a fit believes.
SMALLEST_SPREAD = 0.02


def as_table(X, needed, model):
    """`X` as a DataFrame, and whether it was a mapping of numbers, whose answer is a number.

    Raises
    ------
    FitError
        Naming the first column of `needed` that is missing or has rows without a value.
    """
    scalar = isinstance(X, Mapping) and all(np.ndim(value) == 0 for value in X.values())
    if isinstance(X, Mapping):
        X = pd.DataFrame({name: np.atleast_1d(value) for name, value in X.items()})
    for name in needed:
        if name not in X:
            raise FitError(f"{model} needs the column {name}; found {', '.join(map(str, X))}")
        if X[name].isna().any():
            row = X.index[X[name].isna()][0]
            raise FitError(f"{model} needs {name} in every row; it is missing in row {row}")
    return X, scalar


def summarise_repetitions(X, y, keys):
    """Median and spread of each configuration that was measured.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, n_columns)
    y : array_like of shape (n_rows,)
        Positive.
    keys : sequence of str
        Columns of which equal values make two rows repetitions of one configuration.

    Returns
    -------
    DataFrame
        `keys`, ``median``, ``n_repetitions``, and ``spread``: standard deviation of the
        logarithm, from the quartiles so that single outliers do not count; where a configuration
        has fewer than four repetitions, the median spread of those that have, or, without any,
        `SMALLEST_SPREAD`.
    """
    y = np.asarray(y, dtype=float)
    if len(y) != len(X):
        raise FitError(f"{len(X)} rows but {len(y)} measured values; give one for each row")
    if not (np.isfinite(y) & (y > 0)).all():
        bad = y[~(np.isfinite(y) & (y > 0))][0]
        raise FitError(f"a measured value is {bad}; all must be above 0")
    groups = X[list(keys)].assign(_ln=np.log(y)).groupby(list(keys), sort=True, dropna=False)["_ln"]
    quartiles = groups.quantile([0.25, 0.5, 0.75]).unstack()  # noqa: PD010
    result = pd.DataFrame(
        {
            "median": np.exp(quartiles[0.5]),
            "n_repetitions": groups.size(),
            "spread": (quartiles[0.75] - quartiles[0.25]) / 1.349,
        }
    ).reset_index()
    few = result["n_repetitions"] < 4
    usual = result.loc[~few, "spread"].median()
    result.loc[few, "spread"] = SMALLEST_SPREAD if np.isnan(usual) else usual
    result["spread"] = result["spread"].clip(lower=SMALLEST_SPREAD)
    return result


def warn_outside(X, measured_range):
    """Warn of each column of `X` that leaves the range that was measured (rows min and max)."""
    for name in measured_range:
        low, high = measured_range[name]
        if X[name].min() < low or X[name].max() > high:
            warnings.warn(
                f"{name} from {X[name].min():g} to {X[name].max():g} was asked for, measured "
                f"were {low:g} to {high:g}",
                ExtrapolationWarning,
                stacklevel=3,
            )
