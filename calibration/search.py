"""Find the platform's numbers: closed form first, then SimGrid in the loop."""

import logging
import time
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.stats import t as student_t

from calibration.loss import MeasuredRows
from calibration.parameters import default_parameters, read_free
from perfmodel.errors import CalibrationError
from perfmodel.platform_file import Platform
from perfmodel.platform_file import platform as read_platform

_LOG = logging.getLogger(__name__)
# Errors of ln t below this share are not told apart: no model of a network is that good.
_FLOOR = 0.02
# The search ends when a simulation improves the loss by less than this share.
_ENOUGH = 1e-4


@dataclass(frozen=True)
class Calibration:
    """A calibrated platform and how far to trust it.

    Attributes
    ----------
    platform : Platform
    parameters : DataFrame
        ``element``, ``attribute``, ``value``, ``low``, ``high`` (90 % interval), ``unit``,
        ``identifiable``.
    held_out : DataFrame
        Rows that the search never saw: configuration, ``measured_s``, ``simulated_s``, ``error``.
    fitted : DataFrame
        The same of the rows that were fitted: no evidence of anything but the fit.
    history : DataFrame
        A row a simulation: ``simulation``, ``stage``, ``loss`` and the parameters' values.
    provenance : dict
        Logs with checksums, versions, seed, budget, and what was left out.
    """

    platform: Platform
    parameters: pd.DataFrame
    held_out: pd.DataFrame
    fitted: pd.DataFrame
    history: pd.DataFrame
    provenance: dict = field(repr=False)

    @property
    def report(self):
        """The calibration as a document: ``to_html(path)``, ``to_json(path)``."""
        from calibration.report import Report

        return Report(self)


def calibrate(
    platform,
    measurements,
    workload=None,
    free=None,
    budget=60,
    time_limit_s=None,
    seed=0,
    hold_out="largest",
    n_jobs=1,
    checkpoint=None,
):
    r"""Fit the free numbers of a platform to measured runs.

    The sum of a robust function of :math:`\ln(t_\text{simulated} / t_\text{measured})` over the
    configurations, each weighted by how well it repeats, is minimised twice: over the formulas of
    `perfmodel.models`, from several starts; then over SimGrid, in a trust region, with the
    formulas plus what SimGrid differs from them at the last point as its model (output space
    mapping [1]_).

    Parameters
    ----------
    platform : Platform, str or path
    measurements : Measurements
        Of one system.
    workload : Workload, optional
        Whose steps to use.
    free : path or list, optional
        Declared free parameters, see `calibration.parameters.read_free`; else defaults.
    budget : int
        Simulations at most. One simulates every configuration that was measured.
    time_limit_s : float, optional
        Time after which no further simulation starts. [s]
    seed : int
        Of the starts.
    hold_out : 'largest', str or None
        Rows that the search may not see: those of the largest node count, or a condition. With
        'largest', the platform returned is fitted once more to all rows; rows of a condition are
        never fitted.
    n_jobs : int
        Processes a simulation is spread over.
    checkpoint : None
        Not supported yet.

    Returns
    -------
    Calibration

    Raises
    ------
    CalibrationError
        If no row can be simulated, or a declared parameter changes nothing that was measured
        (also a `ValueError`).

    References
    ----------
    .. [1] J. W. Bandler et al., "Space mapping: the state of the art," IEEE Trans. Microw. Theory
       Tech., vol. 52, no. 1, pp. 337-361, 2004, doi:10.1109/TMTT.2003.820904.
    """
    if checkpoint is not None:
        raise CalibrationError("checkpoint is not supported yet; leave it out")
    platform = read_platform(platform)
    rows = MeasuredRows.of(measurements, workload, platform)
    seen, unseen = _split(rows, hold_out)
    refits = hold_out == "largest" and len(unseen) > 0
    # One simulation scores the rows held out; a quarter of the budget is for fitting once more.
    first = budget - (len(unseen) > 0) - (max(1, budget // 4) if refits else 0)
    if first < 1:
        raise CalibrationError(
            f"budget is {budget}; at least {budget - first + 1} simulations are needed to fit"
            + (", to score the rows held out" if len(unseen) else "")
            + (" and to fit once more" if refits else "")
        )
    routes = rows.routes(platform)
    search = _Search(platform, seen, routes, free, time_limit_s, seed, n_jobs)
    search.run(first)
    held = unseen.compared(_simulate(search, unseen)) if len(unseen) else unseen.compared([])
    fitted = seen
    if refits:
        search.rows, fitted = rows, rows
        search.run(budget, start=search.x)
    return Calibration(
        platform=search.candidate(search.x),
        parameters=search.parameters(),
        held_out=held,
        fitted=fitted.compared(np.exp(search.errors) * fitted.table["measured_s"].to_numpy()),
        history=pd.DataFrame(search.history),
        provenance={
            "template": platform,
            "measurements": measurements,
            "seed": seed,
            "budget": budget,
            "simulations": search.simulations,
            "time_limit_s": time_limit_s,
            "hold_out": hold_out,
            "workload": None if workload is None else workload.name,
            "left_out": rows.left_out,
            "free": search.free,
            "not_told_apart": search.dropped,
        },
    )


def _split(rows, hold_out):
    if hold_out is None:
        return rows.split("n_nodes < 0")
    if hold_out == "largest":
        hold_out = f"n_nodes == {rows.table['n_nodes'].max()}"
        if rows.table["n_nodes"].min() == rows.table["n_nodes"].max():
            return rows.split("n_nodes < 0")  # else nothing would be left to fit
    seen, unseen = rows.split(hold_out)
    if not len(seen):
        raise CalibrationError(f"hold_out {hold_out!r} leaves no row to fit; hold out fewer")
    return seen, unseen


def _simulate(search, rows):
    search.simulations += 1
    return rows.by_simulation(search.candidate(search.x), n_jobs=search.n_jobs)


class _Search:
    """The state of a search: its rows, free parameters, best point, simulations done."""

    def __init__(self, platform, rows, routes, free, time_limit_s, seed, n_jobs):
        self.platform, self.rows, self.n_jobs = platform, rows, n_jobs
        self.deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
        self.random = np.random.default_rng(seed)
        self.simulations, self.history, self.dropped = 0, [], []
        self.routes = routes
        self.free = self._free(free)
        self.low, self.high = (
            np.array([p.to_search(getattr(p, side)) for p in self.free]) for side in ("low", "high")
        )
        self.x = np.array([p.to_search(p.start) for p in self.free])
        self.errors = None

    def _free(self, declared):
        if declared is not None:
            free = read_free(declared, self.platform)
        else:
            links = {name for names in self.routes.values() for name in names}
            has_steps = (self.rows.table["kind"] == "step").any()
            free = default_parameters(self.platform, has_steps, links)
        if not free:
            raise CalibrationError("the measured rows use no link and no host that could be free")
        return self._told_apart(free)

    def _told_apart(self, free):
        """The parameters that the rows inform, without those that only repeat others."""
        self.free = free
        points = [np.array([p.to_search(p.start) for p in free])]
        for _ in range(4):
            points.append(
                np.array(
                    [self.random.uniform(p.to_search(p.low), p.to_search(p.high)) for p in free]
                )
            )
        slopes = np.concatenate([self.slopes(point) for point in points])
        kept, basis = [], np.empty((len(slopes), 0))
        for i, parameter in enumerate(free):
            size = np.linalg.norm(slopes[:, i])
            rest = slopes[:, i] - basis @ (basis.T @ slopes[:, i])
            if size > 0 and np.linalg.norm(rest) > 1e-3 * size:
                basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
                kept.append(parameter)
            elif parameter.asked and size == 0:
                raise CalibrationError(
                    f"no measured row depends on {parameter.element} {parameter.attribute}: give "
                    "logs that use it, or do not declare it free"
                )
            else:
                self.dropped.append(parameter)
        return kept

    def candidate(self, x):
        """The platform with the parameters at a point of the search."""
        values = {}
        for parameter, coordinate in zip(self.free, x, strict=True):
            value = parameter.from_search(coordinate)
            values |= dict.fromkeys(parameter.places, value)
        return self.platform.with_values(values)

    def formula(self, x):
        return self.rows.errors(self.rows.by_formula(self.candidate(x), self.routes))

    def slopes(self, x, step=1e-5):
        """Derivatives of ln t of each row by each parameter: array (n_rows, n_parameters)."""
        columns = []
        for i in range(len(x)):
            up, down = x.copy(), x.copy()
            up[i] += step
            down[i] -= step
            columns.append((self.formula(up) - self.formula(down)) / (2 * step))
        return np.stack(columns, axis=1)

    def simulate(self, x, stage):
        self.simulations += 1
        simulated_s = self.rows.by_simulation(self.candidate(x), n_jobs=self.n_jobs)
        errors = self.rows.errors(simulated_s)
        values = {
            f"{p.element} {p.attribute}": p.from_search(c)
            for p, c in zip(self.free, x, strict=True)
        }
        loss = self.loss(errors, x)
        _LOG.info("simulation %d, loss %.4g", self.simulations, loss)
        self.history.append({"simulation": self.simulations, "stage": stage, "loss": loss} | values)
        return errors, loss

    def residuals(self, errors, x):
        """Errors over what they may be, and distances from the priors over theirs."""
        weights = 1 / np.hypot(self.rows.table["spread"].to_numpy(), _FLOOR)
        priors = [
            (c - p.to_search(p.prior)) / p.prior_deviation
            for p, c in zip(self.free, x, strict=True)
            if p.prior is not None
        ]
        return np.concatenate([errors * weights, priors])

    def loss(self, errors, x):
        """Half the sum of soft-L1 of the residuals, as `least_squares` counts it."""
        return float(np.sum(np.sqrt(1 + self.residuals(errors, x) ** 2) - 1))

    def run(self, budget, start=None):
        """Closed form, then simulations up to `budget`; `x` and `errors` are the best found."""
        x = self._by_formula(start)
        errors, loss = self.simulate(x, "closed form")
        radius = 1.0
        while self.simulations < budget and not self._late() and radius > 1e-6:
            correction = errors - self.formula(x)
            step = self._minimum(x, correction, radius)
            distance = np.abs(step - x).max()
            if distance < 1e-9:
                break  # the formulas, as corrected, have their best point here
            new_errors, new_loss = self.simulate(step, "simulation")
            gain = loss - new_loss
            if gain > 0:
                x, errors, loss = step, new_errors, new_loss
                radius = min(2 * radius, 2.0)
            else:
                radius = distance / 4
            if abs(gain) <= _ENOUGH * loss:
                break
        self.x, self.errors = x, errors

    def _late(self):
        return self.deadline is not None and time.monotonic() > self.deadline

    def _by_formula(self, start):
        """Best point of the closed form over several starts."""
        starts = [self.x if start is None else start]
        if start is None:
            starts += [self.random.uniform(self.low, self.high) for _ in range(3)]
        fits = [self._fit(self.formula, point, self.low, self.high) for point in starts]
        return min(fits, key=lambda fit: fit.cost).x

    def _minimum(self, x, correction, radius):
        """Best point near `x` of the formulas plus the correction."""
        low, high = np.maximum(self.low, x - radius), np.minimum(self.high, x + radius)
        return self._fit(lambda x: self.formula(x) + correction, x, low, high).x

    def _fit(self, errors, start, low, high):
        inside = np.clip(start, low + 1e-9 * (high - low), high - 1e-9 * (high - low))
        return least_squares(
            lambda x: self.residuals(errors(x), x),
            inside,
            bounds=(low, high),
            loss="soft_l1",
            x_scale="jac",
        )

    def parameters(self):
        """Values with 90 % intervals, of the dropped ones too."""
        weights = 1 / np.hypot(self.rows.table["spread"].to_numpy(), _FLOOR)
        slopes = self.slopes(self.x) * weights[:, np.newaxis]
        priors = np.diag([0.0 if p.prior is None else 1 / p.prior_deviation**2 for p in self.free])
        information = slopes.T @ slopes + priors
        freedom = max(1, len(self.rows) - len(self.free))
        misfit = np.sum((self.errors * weights) ** 2) / freedom
        scale = np.sqrt(np.diag(information))
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = information / np.outer(scale, scale)
        rows = []
        try:
            deviations = np.sqrt(np.diag(np.linalg.inv(correlation)) * max(1.0, misfit)) / scale
        except np.linalg.LinAlgError:
            deviations = np.full(len(self.free), np.inf)
        half = student_t.ppf(0.95, freedom) * np.nan_to_num(deviations, nan=np.inf)
        for parameter, x, width in zip(self.free, self.x, half, strict=True):
            bounds = [parameter.to_search(parameter.low), parameter.to_search(parameter.high)]
            low, high = np.clip([x - width, x + width], *bounds)
            # An interval as wide as the bounds says nothing.
            known = bool(high - low < 0.5 * (bounds[1] - bounds[0]))
            rows.append(
                (
                    parameter,
                    parameter.from_search(x),
                    parameter.from_search(low),
                    parameter.from_search(high),
                    known,
                )
            )
        for parameter in self.dropped:
            rows.append((parameter, parameter.start, parameter.low, parameter.high, False))
        return pd.DataFrame(
            [
                (p.element, p.attribute, value, low, high, p.unit, known)
                for p, value, low, high, known in rows
            ],
            columns=["element", "attribute", "value", "low", "high", "unit", "identifiable"],
        )
