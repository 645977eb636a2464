"""How long one optimiser step takes."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from perfmodel.errors import FitError
from perfmodel.models.collective import ring_time
from perfmodel.models.table import as_table, summarise_repetitions, warn_outside
from perfmodel.workload import Workload

_INPUTS = ["n_nodes", "n_gpus", "batch_per_gpu"]
# Forward share of the compute where the workload does not say: the backward pass computes two
# products for each of the forward pass.
_FORWARD_SHARE = 1 / 3


def overlapped_step_time(forward_s, backward_s, buckets, bucket_time_s, optimizer_s=0.0):
    r"""Time of a step whose gradient buckets are summed while the backward pass goes on.

    Bucket :math:`i` is ready at :math:`r_i = t_f + \phi_i t_b`; one bucket is summed at a time,

    .. math:: e_i = \max(r_i, e_{i-1}) + T(n_i), \qquad t = \max(t_f + t_b, e_\text{last}) + t_o,

    the wait-free back-propagation of PyTorch's DistributedDataParallel [1]_.

    Parameters
    ----------
    forward_s, backward_s : array_like
        Times of the two passes. [s]
    buckets : list of (float, float)
        Bytes :math:`n_i` [B] and :math:`\phi_i`, see `Workload.buckets`.
    bucket_time_s : callable
        :math:`T`, from bytes to the time of their allreduce. [s]
    optimizer_s : array_like
        :math:`t_o`, the optimiser's time, once all gradients are summed. [s]

    References
    ----------
    .. [1] S. Li et al., "PyTorch distributed: experiences on accelerating data parallel
       training," Proc. VLDB Endow., vol. 13, no. 12, 2020, doi:10.14778/3415478.3415530.

    Examples
    --------
    >>> overlapped_step_time(1.0, 2.0, [(8, 0.5), (8, 1.0)], lambda n_bytes: n_bytes / 4)
    6.0
    """
    end_s = 0.0
    for n_bytes, share in buckets:
        end_s = np.maximum(forward_s + share * backward_s, end_s) + bucket_time_s(n_bytes)
    total_s = np.maximum(forward_s + backward_s, end_s) + optimizer_s
    return float(total_s) if np.ndim(total_s) == 0 else total_s


class StepTime(RegressorMixin, BaseEstimator):
    r"""Time of one optimiser step of data-parallel training.

    Compute is affine in the batch, :math:`c = a_0 + a_1 b`. Where the workload's gradient tensors
    are known, communication follows `overlapped_step_time` with ring allreduces (`ring_time`) of
    latency :math:`\alpha` and bandwidth :math:`\beta`, and then the optimiser. Else compute and
    communication overlap as
    the p-norm of Pollux [1]_,

    .. math:: t = (m - 1) c + (c^q + s^q)^{1/q}, \qquad
              s = 2 (p - 1) \alpha + \frac{2 (p - 1)}{p} \gamma ,

    with :math:`m` accumulated micro-batches on :math:`p` ranks. Medians of repetitions are fitted
    in :math:`\ln t`, each weighted by how well it repeats.

    Parameters
    ----------
    workload : Workload or dict of str to Workload, optional
        What is trained; of several, the one that the column ``workload`` names is fitted.
    platform : Platform, optional
        Not used yet.
    extrapolate : {'warn', 'allow'}, default 'warn'
        Whether `predict` warns outside ``measured_range_``.

    Attributes
    ----------
    parameters_ : Series
        ``compute_latency_s`` (:math:`a_0`) [s], ``compute_s_per_sample`` (:math:`a_1`) [s],
        ``step_latency_s`` (:math:`\alpha`) [s], and ``bandwidth_bytes_per_s`` (:math:`\beta`)
        [B/s] and ``optimizer_s`` [s] or, for the p-norm, ``gradient_s`` (:math:`\gamma`) [s] and
        ``overlap_exponent`` (:math:`q`).
    from_prior_ : list of str
        Parameters that the data hardly narrow: what they are comes from elsewhere.
    measured_range_ : DataFrame
        Smallest and largest value of each input in the fit.
    residual_ : float
        Root mean square of the fit's ln error.

    References
    ----------
    .. [1] A. Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep
       learning," in Proc. OSDI, 2021.
    """

    def __init__(self, workload=None, platform=None, extrapolate="warn"):
        self.workload = workload
        self.platform = platform
        self.extrapolate = extrapolate

    def fit(self, X, y, collective_time=None):
        """Fit to measured steps.

        Parameters
        ----------
        X : DataFrame of shape (n_steps, …)
            ``n_nodes``, ``n_gpus``, ``batch_per_gpu`` and, optionally, ``accumulation_steps``.
        y : array_like of shape (n_steps,)
            Measured step times. [s]
        collective_time : CollectiveTime, optional
            Fitted to allreduces of the same system: what latency and bandwidth are believed to
            be before the steps are seen, within a factor of about 1.5.

        Raises
        ------
        FitError
            If the steps do not determine the model (also a `ValueError`).
        """
        X, _ = as_table(X, _INPUTS, "StepTime")
        X = X.reset_index(drop=True)
        keys = [*_INPUTS, *(["accumulation_steps"] if "accumulation_steps" in X else [])]
        table = summarise_repetitions(X, y, keys)
        self._set_workload(self._workload(X))
        start, names, medians, deviations = self._priors(table, collective_time)
        measured, spread = np.log(table["median"].to_numpy()), table["spread"].to_numpy()

        def residuals(x):
            misfit = (np.log(self._step_time(x, table)) - measured) / spread
            return np.concatenate([misfit, (x - medians) / deviations])

        fit = least_squares(residuals, start, loss="soft_l1", x_scale="jac", max_nfev=2000)
        self._set_parameters(names, fit.x, np.linalg.inv(fit.jac.T @ fit.jac))
        errors = np.log(self._step_time(fit.x, table)) - measured
        self.residual_ = float(np.sqrt(np.mean(errors**2)))
        self.n_configurations_ = len(table)
        kept = np.sqrt(np.diag(self._covariance)) / deviations
        self.from_prior_ = [name for name, share in zip(names, kept, strict=True) if share > 0.5]
        self.measured_range_ = table[_INPUTS].agg(["min", "max"])
        return self

    def predict(self, X):
        """Predicted step times: array of shape (n_rows,), a float for a mapping of numbers. [s]."""
        check_is_fitted(self, "parameters_")
        X, scalar = as_table(X, _INPUTS, "StepTime")
        if self.extrapolate != "allow":
            warn_outside(X, self.measured_range_)
        time_s = self._step_time(self._x, X)
        return float(time_s[0]) if scalar else time_s

    def predict_interval(self, X, coverage=0.9):
        """Interval of each prediction: DataFrame with columns low, high and the index of `X`. [s].

        In ln t: what the fit leaves undetermined (Laplace), and its residual, which is taken to
        grow with every doubling of nodes beyond those measured.
        """
        check_is_fitted(self, "parameters_")
        X, _ = as_table(X, _INPUTS, "StepTime")
        estimate = self._step_time(self._x, X)
        slopes = self._slopes(X)
        variance = np.einsum("ij,jk,ik->i", slopes, self._covariance, slopes)
        largest = self.measured_range_.loc["max", "n_nodes"]
        doublings = np.log2(np.maximum(X["n_nodes"].to_numpy(dtype=float) / largest, 1))
        width = norm.ppf(0.5 + coverage / 2) * np.sqrt(
            variance + self.residual_**2 * (1 + doublings)
        )
        return pd.DataFrame(
            {"low": estimate * np.exp(-width), "high": estimate * np.exp(width)}, index=X.index
        )

    def compute_time(self, X):
        """The part of each step that is compute: array of shape (n_rows,). [s]."""
        check_is_fitted(self, "parameters_")
        X, _ = as_table(X, _INPUTS, "StepTime")
        optimizer_s = 0.0 if self._buckets is None else np.exp(self._x[4])
        return _micro_batches(X) * self._compute(self._x, X) + optimizer_s

    def to_plain(self):
        """What `fit` learned, as plain values for a file."""
        check_is_fitted(self, "parameters_")
        return {
            "log_parameters": dict(zip(self.parameters_.index, self._x, strict=True)),
            "covariance": self._covariance,
            "from_prior": self.from_prior_,
            "residual": self.residual_,
            "n_configurations": self.n_configurations_,
            "measured_range": self.measured_range_.to_dict(),
        }

    def from_plain(self, values):
        """Become the model that `to_plain` described; the workload must be the same."""
        self._set_workload(self.workload)
        self._set_parameters(
            list(values["log_parameters"]),
            np.array(list(values["log_parameters"].values())),
            np.array(values["covariance"]),
        )
        self.from_prior_ = values["from_prior"]
        self.residual_ = values["residual"]
        self.n_configurations_ = values["n_configurations"]
        self.measured_range_ = pd.DataFrame(values["measured_range"])
        return self

    def _set_workload(self, workload):
        self._buckets = None
        if workload is not None and workload.gradient_tensors is not None:
            self._buckets = workload.buckets()
            flops = (workload.forward_flops_per_sample, workload.backward_flops_per_sample)
            self._forward_share = _FORWARD_SHARE if None in flops else flops[0] / sum(flops)

    def _set_parameters(self, names, x, covariance):
        self._x, self._covariance = x, covariance
        values = np.exp(x)
        if self._buckets is None:
            values[-1] = 1 + values[-1]
        self.parameters_ = pd.Series(values, index=names)

    def _workload(self, X):
        if self.workload is None or isinstance(self.workload, Workload):
            return self.workload
        if not isinstance(self.workload, Mapping):
            raise FitError(f"workload is {self.workload!r}; give a Workload or a dict of them")
        names = set(X["workload"].dropna()) if "workload" in X else set()
        if len(names) != 1 or not names <= set(self.workload):
            raise FitError(
                f"rows name the workloads {sorted(names)}, given are {sorted(self.workload)}; "
                "fit one workload at a time"
            )
        return self.workload[names.pop()]

    def _priors(self, table, collective_time):
        """Start, names, medians and standard deviations of the parameters' logarithms."""
        median_s = table["median"].to_numpy()
        batch = table["batch_per_gpu"].to_numpy(dtype=float)
        fastest = median_s.min()
        per_sample = np.median(median_s / batch / _micro_batches(table))
        names = ["compute_latency_s", "compute_s_per_sample", "step_latency_s"]
        # Wide: any step in the data could be all latency, all compute or all communication.
        medians = [np.log(fastest / 10), np.log(per_sample / 2), np.log(2e-5)]
        deviations = [2.0, 2.0, 2.5]
        if self._buckets is not None:
            n_bytes = sum(size for size, _ in self._buckets)
            names.append("bandwidth_bytes_per_s")
            medians.append(np.log(2 * n_bytes / fastest))
            deviations.append(3.0)
            if collective_time is not None and "all_reduce" in collective_time.parameters_.index:
                known = collective_time.parameters_.loc["all_reduce"]
                medians[2:] = np.log(known[names[2:]].to_numpy(dtype=float))
                deviations[2:] = [0.4, 0.4]
            names.append("optimizer_s")
            medians.append(np.log(fastest / 50))
            deviations.append(1.5)
        else:
            names += ["gradient_s", "overlap_exponent"]
            # The exponent less one; Pollux bounds it to between 1 and 10.
            medians += [np.log(fastest / 4), np.log(1.0)]
            deviations += [3.0, 1.0]
        medians = np.array(medians, dtype=float)
        return medians.copy(), names, medians, np.array(deviations)

    def _compute(self, x, X):
        return np.exp(x[0]) + np.exp(x[1]) * X["batch_per_gpu"].to_numpy(dtype=float)

    def _step_time(self, x, X):
        compute_s = self._compute(x, X)
        n_ranks = X["n_gpus"].to_numpy(dtype=float)
        rest_s = (_micro_batches(X) - 1) * compute_s
        if self._buckets is not None:
            latency_s, bandwidth = np.exp(x[2]), np.exp(x[3])
            return rest_s + overlapped_step_time(
                self._forward_share * compute_s,
                (1 - self._forward_share) * compute_s,
                self._buckets,
                lambda n_bytes: ring_time("all_reduce", n_bytes, n_ranks, latency_s, bandwidth),
                np.exp(x[4]),
            )
        latency_s, gradient_s, exponent = np.exp(x[2]), np.exp(x[3]), 1 + np.exp(x[4])
        sync_s = 2 * (n_ranks - 1) * (latency_s + gradient_s / n_ranks)
        # Scaled by the larger of the two, whose power could overflow.
        larger = np.maximum(compute_s, sync_s)
        norm_s = (compute_s / larger) ** exponent + (sync_s / larger) ** exponent
        return rest_s + larger * norm_s ** (1 / exponent)

    def _slopes(self, X, step=1e-4):
        """Derivatives of ln t by each parameter: array of shape (n_rows, n_parameters)."""
        columns = []
        for i in range(len(self._x)):
            up, down = self._x.copy(), self._x.copy()
            up[i] += step
            down[i] -= step
            difference = np.log(self._step_time(up, X)) - np.log(self._step_time(down, X))
            columns.append(difference / (2 * step))
        return np.stack(columns, axis=1)


def _micro_batches(X):
    if "accumulation_steps" not in X:
        return np.ones(len(X))
    return X["accumulation_steps"].fillna(1).to_numpy(dtype=float)
