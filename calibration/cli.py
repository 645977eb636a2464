"""The command perfmodel-calibrate."""

from pathlib import Path
from typing import Annotated

import typer

import perfmodel as pm
from perfmodel.errors import CalibrationError
from perfmodel.terminal import Format, busy, reading, run, show

app = typer.Typer(
    help="Calibrate a SimGrid platform against measured runs, and check it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PlatformFile = Annotated[
    str, typer.Argument(help="Name of a shipped platform, or SimGrid XML.", metavar="PLATFORM")
]
Logs = Annotated[list[str], typer.Argument(help="Files, folders or patterns of logs.")]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", help="TOML file of the workload whose steps to use.")
]
Where = Annotated[
    str | None,
    typer.Option("--where", help="Only rows that satisfy this.", metavar="CONDITION"),
]
As = Annotated[Format, typer.Option("--format", help="For people, or for programs.")]
Jobs = Annotated[int, typer.Option(help="Processes a simulation is spread over.")]


@app.callback()
def main_options():
    """Calibrate a SimGrid platform against measured runs, and check it."""


@app.command(name="run")
def run_calibration(
    platform: PlatformFile,
    logs: Logs,
    out: Annotated[Path, typer.Option("--out", help="XML to write; .json and .html beside it.")],
    workload: WorkloadOption = None,
    free: Annotated[
        Path | None, typer.Option(help="TOML that declares the free parameters.")
    ] = None,
    where: Where = None,
    hold_out: Annotated[
        str,
        typer.Option(
            help="Rows the search may not see: 'largest' (node count), 'none' or a condition."
        ),
    ] = "largest",
    budget: Annotated[int, typer.Option(help="Simulations at most.")] = 60,
    time_limit_s: Annotated[
        float | None, typer.Option(help="Start no simulation after this many seconds.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search's starts.")] = 0,
    n_jobs: Jobs = 1,
    format: As = Format.table,
):
    """Fit the free numbers of a platform to logs; write it with its provenance and a report."""
    from calibration import calibrate
    from calibration.report import error_table

    if out.suffix != ".xml":
        raise typer.BadParameter(f"--out is {out}; its name must end in .xml")
    with busy("calibrating"):
        result = calibrate(
            platform,
            _read(logs, where),
            workload=None if workload is None else pm.Workload.from_toml(workload),
            free=free,
            budget=budget,
            time_limit_s=time_limit_s,
            seed=seed,
            hold_out=None if hold_out == "none" else hold_out,
            n_jobs=n_jobs,
        )
    result.platform.write(out)
    result.report.to_json(out.with_suffix(".json"))
    result.report.to_html(out.with_suffix(".html"))
    show(result.parameters, format, title="Calibrated")
    if format == Format.table and len(result.held_out):
        print()
        show(error_table(result.held_out), title="Errors on rows that the search never saw")


@app.command()
def check(
    platform: PlatformFile,
    logs: Logs,
    workload: WorkloadOption = None,
    model: Annotated[
        Path | None, typer.Option(help="Model file, whose predictions are shown beside.")
    ] = None,
    where: Where = None,
    hold_out: Annotated[
        str | None,
        typer.Option(help="Only the rows that `run` with this condition held out."),
    ] = None,
    n_jobs: Jobs = 1,
    format: As = Format.table,
):
    """Compare a platform's simulation, and a model's predictions, with measured rows."""
    from calibration.loss import MeasuredRows
    from calibration.report import error_table
    from perfmodel.platform_file import platform as read_platform

    platform = read_platform(platform)
    trained = None if workload is None else pm.Workload.from_toml(workload)
    fitted = None if model is None else pm.load_model(model)
    if fitted and trained and fitted.workload != trained:
        raise CalibrationError(
            f"{model} was fitted to another workload ({fitted.workload.name}) than {workload}"
        )
    rows = MeasuredRows.of(_read(logs, where), trained, platform)
    if hold_out is not None:
        _, rows = rows.split(hold_out)
        if not len(rows):
            raise CalibrationError(f"hold_out {hold_out!r} picks no measured row")
    with busy("simulating"):
        table = rows.compared(rows.by_simulation(platform, n_jobs=n_jobs))
    table = table.rename(columns={"error": "simulation_error"})
    if fitted is not None:
        table = _with_predictions(table, fitted)
    columns = [
        *("group", "n_nodes", "message_bytes", "batch_per_gpu", "predicted_s", "simulated_s"),
        *("measured_s", "prediction_error", "simulation_error"),
    ]
    front = [name for name in columns if name in table]
    table = table[[*front, *table.columns.difference(front, sort=False)]]
    show(table, format, front)
    if format == Format.table:
        for kind in ("prediction", "simulation"):
            if f"{kind}_error" in table:
                print()
                compared = table.rename(columns={f"{kind}_error": "error"}).dropna(subset=["error"])
                show(error_table(compared), title=f"Errors of the {kind}")


def _read(logs, where):
    with reading() as progress:
        m = pm.read_logs(logs, progress=progress)
    return m if where is None else m.select(where)


def _with_predictions(table, model):
    import pandas as pd

    predicted = pd.Series(float("nan"), index=table.index)
    is_step = table["kind"] == "step"
    if is_step.any():
        predicted[is_step] = model.step_time.predict(table[is_step])
    if model.collective_time is not None:
        known = ~is_step & table["collective"].isin(model.collective_time.parameters_.index)
        if known.any():
            predicted[known] = model.collective_time.predict(table[known])
    error = predicted / table["measured_s"] - 1
    return table.assign(predicted_s=predicted, prediction_error=error)


def main(arguments=None):
    """Run the command perfmodel-calibrate."""
    run(app, arguments)
