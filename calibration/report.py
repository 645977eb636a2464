"""A calibration as a document: provenance as JSON, and one HTML page with plots."""

import base64
import hashlib
import importlib.metadata
import io
import json
import platform as machine
from importlib.resources import files

import numpy as np

import perfmodel
from perfmodel.files import write_whole

_PACKAGES = ("simgrid", "numpy", "scipy", "pandas", "scikit-learn")


class Report:
    """What is worth knowing about a `Calibration`.

    Parameters
    ----------
    calibration : Calibration
    """

    def __init__(self, calibration):
        self.calibration = calibration

    def to_dict(self):
        """Provenance as plain values: logs with checksums, versions, settings, numbers, errors."""
        result, given = self.calibration, self.calibration.provenance
        sources = given["measurements"].sources
        read = sources[sources["rows"] > 0] if len(sources) else sources
        template = given["template"]
        return {
            "perfmodel": perfmodel.__version__,
            "python": machine.python_version(),
            "packages": {name: _version(name) for name in _PACKAGES},
            "template": {
                "source": _file_name(template.source),
                "sha256": hashlib.sha256(template.xml).hexdigest(),
            },
            "platform_sha256": hashlib.sha256(result.platform.text_4_1()).hexdigest(),
            "logs": [
                {
                    "file": _file_name(row["source_file"]),
                    "sha256": row["sha256"],
                    "format": row["format"],
                    "rows": int(row["rows"]),
                }
                for row in read.to_dict("records")
            ],
            "rows_left_out": given["left_out"],
            "workload": given["workload"],
            "seed": given["seed"],
            "budget": given["budget"],
            "time_limit_s": given["time_limit_s"],
            "simulations": given["simulations"],
            "hold_out": given["hold_out"],
            "free": [parameter.text() for parameter in given["free"]],
            "not_told_apart": [parameter.text() for parameter in given["not_told_apart"]],
            "parameters": _records(result.parameters),
            "held_out_errors": _records(error_table(result.held_out)),
            "fitted_errors": _records(error_table(result.fitted)),
            "history": _records(result.history),
        }

    def to_json(self, path):
        """Write `to_dict` as JSON, replacing the file as a whole."""
        write_whole(path, json.dumps(self.to_dict(), indent=1, default=_plain) + "\n")

    def to_html(self, path):
        """Write one HTML page with plots that needs no other file, replacing it as a whole."""
        from jinja2 import Environment, select_autoescape

        source = files("calibration").joinpath("report.html.j2").read_text(encoding="utf-8")
        environment = Environment(autoescape=select_autoescape(default_for_string=True))
        page = environment.from_string(source).render(
            provenance=self.to_dict(), plots=_plots(self.calibration)
        )
        write_whole(path, page)


def error_table(compared):
    """Errors of compared rows by group, each group's mean, median and largest.

    Returns
    -------
    DataFrame
        ``group``, ``n_configurations``, ``mean_error``, ``median_error``, ``max_error``: of the
        absolute relative errors.
    """
    grouped = compared.assign(error=compared["error"].abs()).groupby("group", sort=False)["error"]
    table = grouped.agg(["size", "mean", "median", "max"]).reset_index()
    table.columns = ["group", "n_configurations", "mean_error", "median_error", "max_error"]
    return table


def _plots(calibration):
    """Pages' plots: pairs of title and PNG as a data URL."""
    # Not pyplot: it would choose a backend and keep figures for the whole process.
    from matplotlib.figure import Figure

    parts = {"fitted": calibration.fitted, "held out": calibration.held_out}
    plots = []
    for kind, x, label in (
        ("collective", "message_bytes", "message [B]"),
        ("step", "batch_per_gpu", "batch per GPU [samples]"),
    ):
        if not any((part["kind"] == kind).any() for part in parts.values()):
            continue
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        times, errors = figure.subplots(1, 2)
        for name, part in parts.items():
            rows = part[part["kind"] == kind]
            for i, (n_nodes, line) in enumerate(rows.sort_values(x).groupby("n_nodes")):
                style = {"marker": "o" if name == "fitted" else "s", "markersize": 4}
                color = f"C{i + 4 * (name != 'fitted')}"
                times.plot(line[x], line["measured_s"], ls="", color=color, **style)
                times.plot(
                    line[x], line["simulated_s"], color=color, label=f"{n_nodes:g} nodes, {name}"
                )
                errors.plot(line[x], 100 * line["error"], ls="", color=color, **style)
        times.set(xlabel=label, ylabel="time [s]", yscale="log")
        times.set_title("measured (points), simulated (lines)", fontsize=10)
        errors.axhline(0, color="grey", lw=0.8)
        errors.set(xlabel=label, ylabel="error of the simulation [%]")
        if kind == "collective":
            times.set_xscale("log")
            errors.set_xscale("log")
        times.legend(fontsize=7)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
        image = base64.b64encode(file.getvalue()).decode()
        plots.append(({"collective": "Collectives", "step": "Steps"}[kind], image))
    return plots


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _file_name(path):
    # The last two parts: enough to recognise a log, and nothing of the machine it lay on.
    return "/".join(str(path).split("/")[-2:])


def _records(table):
    return table.to_dict("records")


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} in a report")
