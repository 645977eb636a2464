"""The whole of a training job's cost: the fitted models put together."""

import numpy as np
import pandas as pd

from perfmodel.configuration import complete, refuse_unsupported
from perfmodel.errors import FitError
from perfmodel.logs.measurements import systems
from perfmodel.models.collective import CollectiveTime
from perfmodel.models.step import StepTime
from perfmodel.traffic import SUPPORTED, steps_in, volumes

# Step times are fitted at the data type that was measured, whatever it was.
_SUPPORTED = tuple(name for name in SUPPORTED if name != "dtype")


class TrainingModel:
    """Time and bytes of a training job, from models fitted to what one system was measured at.

    Made by `fit`; see there.

    Attributes
    ----------
    workload : Workload
    system : str or None
        Label of the system that was measured.
    step_time : StepTime
    collective_time : CollectiveTime or None
        None where no allreduce was measured on several ranks.
    held_out_errors : DataFrame
        Errors on the largest node count measured, of a model that had not seen it.
    """

    def __init__(self, workload, system, step_time, collective_time=None, held_out_errors=None):
        self.workload = workload
        self.system = system
        self.step_time = step_time
        self.collective_time = collective_time
        self.held_out_errors = held_out_errors

    @classmethod
    def fit(cls, measurements, workload, platform=None):
        """Fit to the steps of a workload and, where there are, the allreduces of the same system.

        Parameters
        ----------
        measurements : Measurements
            Its steps must have ``n_nodes``, ``n_gpus``, ``batch_per_gpu`` and ``step_time_s``.
            Rows of other workloads are left out; rows that name none are used.
        workload : Workload
        platform : Platform, optional
            Not used yet.

        Raises
        ------
        FitError
            If there are no steps of the workload, or steps of more than one system: the message
            lists them (also a `ValueError`).
        """
        steps = _steps_of(measurements, workload)
        refuse_unsupported(steps, _SUPPORTED, "fit")
        collectives = _allreduces(measurements.collectives)
        labels = systems(steps, collectives)
        if len(labels) > 1:
            raise FitError(
                f"measurements of {len(labels)} systems ({', '.join(labels)}); choose one, for "
                f"example with the condition \"system == '{labels[0]}'\""
            )
        return cls(
            workload,
            labels[0] if labels else None,
            *_fit_both(steps, collectives, workload),
            _held_out_errors(steps, collectives, workload),
        )

    def predict(self, configurations, per="step"):
        """Predict configurations that nobody has run.

        Parameters
        ----------
        configurations : DataFrame or mapping
        per : {'step', 'epoch', 'run'}

        Returns
        -------
        DataFrame
            The configurations, then ``time_s``, ``step_time_s`` (per step) and
            ``throughput_samples_per_s``, each with its 90 % interval in columns ``…_low`` and
            ``…_high``; ``compute_time_s`` and ``exposed_communication_time_s``; the columns of
            `volumes`; ``node_hours``.

        Raises
        ------
        ConfigurationError
            If a configuration asks for what is not supported yet (also a `ValueError`).
        """
        table = complete(configurations)
        refuse_unsupported(table, _SUPPORTED, "predict")
        moved = volumes(self.workload, table, per=per)
        steps = steps_in(per, self.workload, table)
        estimate = pd.Series(self.step_time.predict(table), index=table.index)
        interval = self.step_time.predict_interval(table)
        compute_s = np.minimum(self.step_time.compute_time(table), estimate)
        bounds = {"": estimate, "_low": interval["low"], "_high": interval["high"]}
        times = {f"time_s{suffix}": bound * steps for suffix, bound in bounds.items()}
        if per == "step":
            times |= {f"step_time_s{suffix}": bound for suffix, bound in bounds.items()}
        bounds["_low"], bounds["_high"] = bounds["_high"], bounds["_low"]
        times |= {
            f"throughput_samples_per_s{suffix}": table["global_batch"] / bound
            for suffix, bound in bounds.items()
        }
        times["compute_time_s"] = compute_s * steps
        times["exposed_communication_time_s"] = (estimate - compute_s) * steps
        result = table.assign(**times)
        for name in moved.columns.difference(result.columns, sort=False):
            result[name] = moved[name]
        for suffix in ("", "_low", "_high"):
            result[f"node_hours{suffix}"] = result["n_nodes"] * result[f"time_s{suffix}"] / 3600
        return result

    def report(self):
        """What was fitted, from how many configurations, what came from priors, held-out errors.

        Returns
        -------
        DataFrame
            Columns ``model``, ``parameter``, ``value``, ``source`` and ``n_configurations``.
        """
        rows = []
        if self.collective_time is not None:
            for name, fitted in self.collective_time.parameters_.iterrows():
                for parameter in ("step_latency_s", "bandwidth_bytes_per_s"):
                    n = int(fitted["n_configurations"])
                    rows.append(
                        (f"collective_time {name}", parameter, fitted[parameter], "data", n)
                    )
        for parameter, value in self.step_time.parameters_.items():
            prior = parameter in self.step_time.from_prior_
            n = self.step_time.n_configurations_
            rows.append(("step_time", parameter, value, "prior" if prior else "data", n))
        for error in self.held_out_errors.to_dict("records"):
            name = f"held-out |error|, n_nodes = {error['n_nodes']:g}"
            rows.append(
                ("step_time", name, error["mean_error"], "held out", error["n_configurations"])
            )
        columns = ["model", "parameter", "value", "source", "n_configurations"]
        return pd.DataFrame(rows, columns=columns)

    def save(self, path):
        """Write the model as JSON; `perfmodel.load_model` reads it back."""
        from perfmodel.models.saved import save_model

        save_model(self, path)


def _steps_of(measurements, workload):
    steps = measurements.steps
    if "step_time_s" not in steps or not steps["step_time_s"].notna().any():
        raise FitError("no measured steps (column step_time_s); add a log that has them")
    steps = steps[steps["step_time_s"].notna()]
    if "workload" in steps:
        names = sorted(steps["workload"].dropna().unique())
        steps = steps[steps["workload"].isna() | (steps["workload"] == workload.name)]
        if steps.empty:
            raise FitError(
                f"no steps of workload {workload.name!r}; the logs have {', '.join(names)}"
            )
    return steps


def _allreduces(collectives):
    if collectives.empty or "time_s" not in collectives:
        return collectives.iloc[:0]
    for name in ("message_bytes", "n_ranks"):
        if name not in collectives:
            raise FitError(f"the logs of collectives lack the column {name}; add it")
    wanted = (collectives["n_ranks"] > 1) & (collectives["message_bytes"] >= 1)
    wanted &= collectives["time_s"].notna()
    if "collective" in collectives:
        wanted &= collectives["collective"] == "all_reduce"
    return collectives[wanted]


def _fit_both(steps, collectives, workload):
    """Step times, with the allreduces as what is believed of the network beforehand."""
    collective_time = None
    if len(collectives):
        collective_time = CollectiveTime(extrapolate="allow")
        collective_time.fit(collectives, collectives["time_s"])
    step_time = StepTime(workload, extrapolate="allow")
    step_time.fit(steps, steps["step_time_s"], collective_time=collective_time)
    return step_time, collective_time


def _held_out_errors(steps, collectives, workload):
    """Mean absolute relative error on the largest node count, fitted without it.

    Allreduces of that many ranks are left out too: they tell of the same network.
    """
    columns = ["n_nodes", "mean_error", "n_configurations"]
    largest = steps["n_nodes"] == steps["n_nodes"].max()
    seen, unseen = steps[~largest], steps[largest]
    if seen["n_nodes"].nunique() < 2:
        return pd.DataFrame(columns=columns)
    if len(collectives):
        collectives = collectives[collectives["n_ranks"] < unseen["n_gpus"].min()]
    model, _ = _fit_both(seen, collectives, workload)
    keys = ["n_nodes", "n_gpus", "batch_per_gpu"]
    keys += ["accumulation_steps"] if "accumulation_steps" in unseen else []
    measured = unseen.groupby(keys, dropna=False)["step_time_s"].median().reset_index()
    error = np.abs(model.predict(measured) / measured["step_time_s"] - 1).mean()
    row = (unseen["n_nodes"].iloc[0], error, len(measured))
    return pd.DataFrame([row], columns=columns)
