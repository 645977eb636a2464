"""From a candidate platform to its errors against the measured rows.

The one place, beside tests, where simulated and measured numbers meet.
"""

import numpy as np
import pandas as pd

from perfmodel.errors import CalibrationError
from perfmodel.logs.condition import Condition
from perfmodel.logs.measurements import systems
from perfmodel.models.table import summarise_repetitions
from perfmodel.quantities import DEFAULTS
from perfmodel.simulation import (
    closed_form,
    collective_rows,
    collective_task,
    ring_routes,
    run_tasks,
    step_rows,
    step_task,
)

_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
_COLLECTIVE_KEYS = ["collective", "message_bytes", "n_ranks", "n_nodes"]
# Measured columns of a step that are no part of its configuration.
_STEP_KEYS = [name for name in DEFAULTS if name not in ("n_gpus", "global_batch")]


class MeasuredRows:
    """What was measured, one row a configuration, and how to simulate each.

    Attributes
    ----------
    table : DataFrame
        ``kind`` ('collective' or 'step'), the configuration's columns, ``measured_s`` (median of
        the repetitions), ``spread`` (standard deviation of ln t) and ``group``.
    left_out : dict of str to int
        Rows that were not used, by reason.
    """

    def __init__(self, table, workload, left_out=None):
        self.table = table.reset_index(drop=True)
        self.workload = workload
        self.left_out = left_out or {}
        self._rows = self._checked_rows()

    @classmethod
    def of(cls, measurements, workload, platform):
        """Rows of the measurements that a simulation on the platform can be compared with.

        Raises
        ------
        CalibrationError
            If there are none, or they are of more than one system (also a `ValueError`).
        """
        left_out = {}
        parts = [
            _collectives(measurements.collectives, platform, left_out),
            _steps(measurements.steps, workload, left_out),
        ]
        parts = [part for part in parts if len(part)]
        if not parts:
            reasons = "; ".join(f"{n} rows: {why}" for why, n in left_out.items())
            raise CalibrationError(
                f"no measured row can be simulated ({reasons or 'the logs hold none'}); give logs "
                "of allreduces on at least two nodes, or of steps with their --workload"
            )
        labels = systems(*parts)
        if len(labels) > 1:
            raise CalibrationError(
                f"the logs are of {len(labels)} systems ({', '.join(labels)}), and one platform "
                f"is one system; choose one, for example --where \"system == '{labels[0]}'\""
            )
        table = pd.concat([_summary(part) for part in parts], ignore_index=True)
        return cls(table, workload, left_out)

    def __len__(self):
        return len(self.table)

    def split(self, condition):
        """Rows that a condition does not pick, and those that it certainly picks."""
        picked = Condition(condition).holds(self.table)
        return (
            MeasuredRows(self.table[~picked], self.workload, self.left_out),
            MeasuredRows(self.table[picked], self.workload, self.left_out),
        )

    def routes(self, platform):
        """Routes of all rows, which do not depend on the platform's numbers."""
        return ring_routes(platform, self._tasks(platform))

    def by_formula(self, platform, routes):
        """Times of all rows by the closed form: array of shape (n_rows,). [s]."""
        results = closed_form(platform, self._tasks(platform), routes)
        return np.array([result["time_s"] for result in results])

    def by_simulation(self, platform, fidelity="fluid", n_jobs=1):
        """Times of all rows by one simulation: array of shape (n_rows,). [s]."""
        results = run_tasks(platform, self._tasks(platform), fidelity, n_jobs)
        return np.array([result["time_s"] for result in results])

    def errors(self, simulated_s):
        """ln(simulated / measured) of each row: array of shape (n_rows,)."""
        return np.log(simulated_s) - np.log(self.table["measured_s"].to_numpy())

    def compared(self, simulated_s):
        """The rows with ``simulated_s`` and their relative ``error``."""
        error = simulated_s / self.table["measured_s"] - 1
        return self.table.assign(simulated_s=simulated_s, error=error)

    def _checked_rows(self):
        is_step = (self.table["kind"] == "step").to_numpy()
        rows = [None] * len(self.table)
        for mask, check in ((is_step, step_rows), (~is_step, collective_rows)):
            part = self.table[mask].dropna(axis="columns", how="all")
            columns = [name for name in (*DEFAULTS, *_COLLECTIVE_KEYS) if name in part]
            if len(part):
                checked = check(part[list(dict.fromkeys(columns))])
                for i, row in zip(np.flatnonzero(mask), checked, strict=True):
                    rows[i] = row
        return rows

    def _tasks(self, platform):
        return [
            collective_task(row, platform)
            if "collective" in row
            else step_task(self.workload, row, platform)
            for row in self._rows
        ]


def _collectives(rows, platform, left_out):
    if rows.empty or "time_s" not in rows:
        return rows.iloc[:0]
    for name in ("message_bytes", "n_ranks"):
        if name not in rows:
            raise CalibrationError(f"the logs of collectives lack the column {name}; add it")
    if "collective" not in rows:
        rows = rows.assign(collective="all_reduce")

    def keep(mask, why):
        if (~mask & kept).any():
            left_out[why] = left_out.get(why, 0) + int((~mask & kept).sum())
        return kept & mask

    if "n_nodes" not in rows:
        rows = rows.assign(n_nodes=rows["n_ranks"])
    kept = pd.Series(True, index=rows.index)
    kept = keep(rows["time_s"].notna(), "without a time")
    kept = keep(rows["collective"].isin(_COLLECTIVES), "a collective that cannot be simulated yet")
    kept = keep(rows["message_bytes"] >= 1, "without a message")
    kept = keep(rows["n_ranks"] > 1, "on one rank, which sends nothing")
    inside = any(platform.property("gpu_to_gpu_bw", host) for host in platform.hosts()[:1])
    kept = keep(
        (rows["n_nodes"] > 1) | inside, "inside one node, whose gpu_to_gpu_bw the platform lacks"
    )
    uneven = rows["n_ranks"] % rows["n_nodes"] != 0
    kept = keep(~uneven, "an uneven placement")
    if "algorithm" in rows:
        ring = rows["algorithm"].isna() | (rows["algorithm"].str.lower() == "ring")
        kept = keep(ring, "an algorithm that cannot be simulated yet")
    rows = rows[kept]
    decade = np.floor(np.log10(rows["message_bytes"].astype(float))).astype(int).astype(str)
    return rows.assign(
        kind="collective",
        measured_s=rows["time_s"],
        group=rows["collective"] + " 1e" + decade + " B",
    )


def _steps(rows, workload, left_out):
    if rows.empty or "step_time_s" not in rows or not rows["step_time_s"].notna().any():
        return rows.iloc[:0]
    rows = rows[rows["step_time_s"].notna()]
    if workload is None:
        left_out["steps, without a --workload"] = len(rows)
        return rows.iloc[:0]
    if "workload" in rows:
        own = rows["workload"].isna() | (rows["workload"] == workload.name)
        if (~own).any():
            left_out["steps of other workloads"] = int((~own).sum())
        rows = rows[own]
    # Where one log has a column and another has not, missing means the default.
    defaults = {n: v for n, v in DEFAULTS.items() if n in rows and v is not None}
    rows = rows.fillna(defaults)
    return rows.assign(kind="step", measured_s=rows["step_time_s"], group="step")


def _summary(part):
    """One row a configuration, with the median and spread of its repetitions."""
    kind = part["kind"].iloc[0]
    wanted = _COLLECTIVE_KEYS if kind == "collective" else [*_STEP_KEYS, "n_gpus"]
    keys = [name for name in wanted if name in part and part[name].notna().any()]
    table = summarise_repetitions(part, part["measured_s"], ["group", *keys])
    return table.rename(columns={"median": "measured_s"}).assign(kind=kind)
