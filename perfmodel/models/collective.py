"""How long a collective operation takes."""

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from perfmodel.errors import FitError
from perfmodel.models.table import as_table, summarise_repetitions, warn_outside
from perfmodel.traffic import ring_traffic

_INPUTS = ["message_bytes", "n_ranks"]
# Half-widths of 90 % intervals of ln t by message size [B], which covered 92 % on collectives of
# three clusters at node counts that were not fitted (measured by the project in 2026).
_HALF_WIDTHS = [(2**20, 0.25), (2**26, 0.20), (np.inf, 0.10)]


def ring_time(collective, message_bytes, n_ranks, step_latency_s, bandwidth_bytes_per_s):
    r"""Time of a collective on a flat ring.

    .. math:: t = k \alpha + \frac{b}{\beta}

    with the :math:`k` steps and the :math:`b` bytes of `perfmodel.traffic.ring_traffic` [1]_. The
    time of adding the numbers up is not told apart from the wire: :math:`1 / \beta` holds both.

    Parameters
    ----------
    collective : str
        ``all_reduce``, ``all_gather`` or ``reduce_scatter``.
    message_bytes, n_ranks : array_like
        Size as nccl-tests defines it [B], and ranks.
    step_latency_s : array_like
        :math:`\alpha`, start-up time of one step. [s]
    bandwidth_bytes_per_s : array_like
        :math:`\beta`, rate at which one hop of the ring carries bytes. [B/s]

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
       operations in MPICH," Int. J. High Perform. Comput. Appl., vol. 19, no. 1, pp. 49-66,
       2005, doi:10.1177/1094342005051521.

    Examples
    --------
    >>> round(ring_time("all_reduce", 1e6, 4, 1e-5, 1e8), 6)
    0.01506
    """
    n_steps, sent_bytes = ring_traffic(collective, message_bytes, n_ranks)
    return n_steps * step_latency_s + sent_bytes / bandwidth_bytes_per_s


class CollectiveTime(RegressorMixin, BaseEstimator):
    r"""Time of collectives on a flat ring, `ring_time`, with fitted latency and bandwidth.

    Each collective is fitted alone. The medians of repetitions are fitted in :math:`\ln t`, each
    weighted by how well it repeats, with a loss that grows linearly for outliers.

    Parameters
    ----------
    extrapolate : {'warn', 'allow'}, default 'warn'
        Whether `predict` warns about sizes and rank counts outside ``measured_range_``.

    Attributes
    ----------
    parameters_ : DataFrame
        Indexed by collective: ``step_latency_s`` [s], ``bandwidth_bytes_per_s`` [B/s],
        ``n_configurations`` and ``residual``, the 90 % quantile of the fit's \|ln error\|.
    measured_range_ : DataFrame of shape (2, 2)
        Smallest and largest ``message_bytes`` and ``n_ranks`` in the fit.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"message_bytes": [1e4, 1e6, 1e8] * 2, "n_ranks": [2] * 3 + [4] * 3})
    >>> t = ring_time("all_reduce", X["message_bytes"], X["n_ranks"], 1e-5, 1e9)
    >>> model = CollectiveTime().fit(X, t)
    >>> round(model.predict({"message_bytes": 1e6, "n_ranks": 4}), 6)
    0.00156
    """

    def __init__(self, extrapolate="warn"):
        self.extrapolate = extrapolate

    def fit(self, X, y):
        """Fit to measured operations.

        Parameters
        ----------
        X : DataFrame of shape (n_operations, …)
            ``message_bytes`` [B], ``n_ranks`` and, optionally, ``collective`` (default
            ``all_reduce``).
        y : array_like of shape (n_operations,)
            Measured times. [s]

        Raises
        ------
        FitError
            If the operations do not determine latency and bandwidth (also a `ValueError`).
        """
        X, _ = as_table(X, _INPUTS, "CollectiveTime")
        X = X.reset_index(drop=True)
        X = X.assign(collective=_collective(X))
        parallel = _sends(X)
        if not parallel.any():
            raise FitError(
                "no operation of a known collective sends a message: with n_ranks = 1 nothing "
                "is sent; measure on at least two ranks"
            )
        table = summarise_repetitions(X, y, ["collective", *_INPUTS])
        table, X = table[_sends(table)], X[parallel]
        self.parameters_ = pd.DataFrame(
            {name: _fit_ring(name, rows) for name, rows in table.groupby("collective")}
        ).T
        self.measured_range_ = X[_INPUTS].agg(["min", "max"])
        return self

    def predict(self, X):
        """Predicted times: array of shape (n_operations,), a float for a mapping. [s]."""
        check_is_fitted(self)
        X, scalar = as_table(X, _INPUTS, "CollectiveTime")
        if self.extrapolate != "allow":
            warn_outside(X, self.measured_range_)
        names = _collective(X)
        unknown = set(names) - set(self.parameters_.index)
        if unknown:
            raise FitError(
                f"no {' or '.join(sorted(unknown))} was fitted, only "
                f"{', '.join(self.parameters_.index)}; measure it"
            )
        time_s = np.zeros(len(X))
        for name, parameters in self.parameters_.iterrows():
            rows = names == name
            time_s[rows] = ring_time(
                name,
                X["message_bytes"].to_numpy(dtype=float)[rows],
                X["n_ranks"].to_numpy(dtype=float)[rows],
                parameters["step_latency_s"],
                parameters["bandwidth_bytes_per_s"],
            )
        return float(time_s[0]) if scalar else time_s

    def predict_interval(self, X, coverage=0.9):
        """Interval of each prediction: DataFrame with columns low, high and the index of `X`. [s].

        Half the width, in ln t, is the larger of what held on other clusters for that message
        size and of the fit's own residual, and grows with the square root of the doublings
        beyond the largest rank count measured.
        """
        X, _ = as_table(X, _INPUTS, "CollectiveTime")
        estimate = np.atleast_1d(self.predict(X))
        sizes = X["message_bytes"].to_numpy(dtype=float)
        width = np.select(
            [sizes < bound for bound, _ in _HALF_WIDTHS], [w for _, w in _HALF_WIDTHS]
        )
        width = np.maximum(
            width, self.parameters_["residual"][_collective(X)].to_numpy(dtype=float)
        )
        largest = self.measured_range_.loc["max", "n_ranks"]
        doublings = np.log2(np.maximum(X["n_ranks"].to_numpy(dtype=float) / largest, 1))
        width = width * np.sqrt(1 + doublings) * norm.ppf(0.5 + coverage / 2) / norm.ppf(0.95)
        return pd.DataFrame(
            {"low": estimate * np.exp(-width), "high": estimate * np.exp(width)}, index=X.index
        )

    def to_plain(self):
        """What `fit` learned, as plain values for a file."""
        check_is_fitted(self)
        return {
            "parameters": self.parameters_.to_dict("index"),
            "measured_range": self.measured_range_.to_dict(),
        }

    def from_plain(self, values):
        """Become the model that `to_plain` described."""
        self.parameters_ = pd.DataFrame.from_dict(values["parameters"], orient="index")
        self.measured_range_ = pd.DataFrame(values["measured_range"])
        return self


def _collective(X):
    if "collective" not in X:
        return np.full(len(X), "all_reduce", dtype=object)
    return X["collective"].fillna("not known").to_numpy(dtype=object)


def _sends(X):
    """Rows that tell of a network: more than one rank, a message, and of a known collective."""
    return (X["n_ranks"] > 1) & (X["message_bytes"] > 0) & (X["collective"] != "not known")


def _fit_ring(name, rows):
    """Latency and bandwidth of one collective, from the medians of its configurations."""
    sizes = rows["message_bytes"].to_numpy(dtype=float)
    n_ranks = rows["n_ranks"].to_numpy(dtype=float)
    measured = np.log(rows["median"].to_numpy())
    n_steps, sent_bytes = ring_traffic(name, sizes, n_ranks)
    if sent_bytes.max() < 2 * sent_bytes.min() or len(rows) < 2:
        raise FitError(
            f"{name} was measured at sizes from {sizes.min():.0f} to {sizes.max():.0f} bytes "
            "only, which cannot tell latency from bandwidth; measure sizes that differ tenfold"
        )

    def residuals(x):
        predicted = np.log(n_steps * np.exp(x[0]) + sent_bytes * np.exp(x[1]))
        return (predicted - measured) / rows["spread"].to_numpy()

    # The fastest rate seen and the shortest time seen bracket both from one side.
    start = [
        np.log((np.exp(measured) / n_steps).min()),
        np.log((np.exp(measured) / sent_bytes).min()),
    ]
    fit = least_squares(residuals, start, loss="soft_l1", x_scale="jac")
    predicted = np.log(n_steps * np.exp(fit.x[0]) + sent_bytes * np.exp(fit.x[1]))
    return {
        "step_latency_s": np.exp(fit.x[0]),
        "bandwidth_bytes_per_s": np.exp(-fit.x[1]),
        "n_configurations": len(rows),
        "residual": np.quantile(np.abs(predicted - measured), 0.9),
    }
