"""The command perfmodel."""

from pathlib import Path
from typing import Annotated

import typer

import perfmodel as pm
from perfmodel.terminal import Format, busy, configuration_options, reading, run, show

app = typer.Typer(
    help="What training a deep network on a cluster will cost, from measured logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Logs = Annotated[list[str], typer.Argument(help="Files, folders or patterns of logs.")]
WorkloadFile = Annotated[str, typer.Argument(help="TOML file of a workload.", metavar="WORKLOAD")]
WorkloadOption = Annotated[str, typer.Option("--workload", help="TOML file of the workload.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", help='Only rows that satisfy this, e.g. "n_nodes <= 4".', metavar="CONDITION"
    ),
]
Out = Annotated[Path, typer.Option("--out", help="File to write.")]
As = Annotated[Format, typer.Option("--format", help="For people, or for programs.")]
Per = Annotated[str, typer.Option("--per", help="Period: step, epoch or run.")]

_CONFIGURATION = ["n_nodes", "n_gpus", "batch_per_gpu", "global_batch"]
_TIMES = ["time_s", "throughput_samples_per_s", "compute_time_s", "exposed_communication_time_s"]
_BYTES = ["communication_bytes", "inter_node_bytes", "messages", "communication_bytes_total"]


@app.callback()
def main_options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
):
    """What training a deep network on a cluster will cost, from measured logs."""
    if version:
        print(pm.__version__)
        raise typer.Exit


@app.command()
def logs(
    paths: Logs,
    format_of_logs: Annotated[
        str | None, typer.Option("--log-format", help="Reader to use for every file.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="Label of the machine.")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="HDF5 file to write it all to.", metavar="FILE")
    ] = None,
    format: As = Format.table,
):
    """Show what was understood in logs: files, formats, rows, and what was measured."""
    with reading() as progress:
        m = pm.read_logs(paths, format=format_of_logs, system=system, progress=progress)
    if to is not None:
        m.to_hdf5(to)
    if format != Format.table:
        show(m.sources, format)
        return
    show(
        m.sources,
        columns=[
            "source_file",
            "format",
            "rows",
            "lines_skipped",
            "first_skipped_reason",
            "inferred",
        ],
    )
    print()
    show(_contents(m), title="Measured")


def _contents(m):
    import pandas as pd

    rows = []
    for name, table in m.tables().items():
        if table.empty:
            continue
        what = next(
            c for c in ("collective", "workload", "operation", "device", "system") if c in table
        )
        for (system, label), part in table.groupby(["system", what], dropna=False):
            row = {"table": name, "system": system, what: label, "rows": len(part)}
            for column in ("n_nodes", "n_ranks", "batch_per_gpu", "message_bytes"):
                if column in part and part[column].notna().any():
                    row[column] = _span(part[column].dropna())
            rows.append(row)
    return pd.DataFrame(rows)


def _span(values):
    unique = sorted(values.unique())
    if len(unique) <= 8:
        return ", ".join(f"{value:g}" for value in unique)
    return f"{unique[0]:g} … {unique[-1]:g} ({len(unique)} values)"


@app.command()
@configuration_options
def volumes(workload: WorkloadFile, axes, per: Per = "step", format: As = Format.table):
    """Bytes and messages that training moves."""
    table = pm.volumes(pm.Workload.from_toml(workload), pm.configurations(**axes), per=per)
    show(table, format, [*_CONFIGURATION, *_BYTES, "read_bytes"], title=f"Per {per}")


@app.command()
def fit(
    logs: Logs, workload: WorkloadOption, out: Out, where: Where = None, format: As = Format.table
):
    """Fit models to logs of one system and write them to a file."""
    with reading() as progress:
        m = pm.read_logs(logs, progress=progress)
    if where is not None:
        m = m.select(where)
    model = pm.TrainingModel.fit(m, workload=pm.Workload.from_toml(workload))
    model.save(out)
    show(model.report(), format, title=f"Fitted to {model.system or 'the logs'}")


@app.command()
@configuration_options
def predict(
    model: Annotated[Path, typer.Argument(help="Model file that `perfmodel fit` wrote.")],
    axes,
    per: Per = "step",
    format: As = Format.table,
):
    """Predict configurations that nobody has run, with 90 % intervals."""
    table = pm.load_model(model).predict(pm.configurations(**axes), per=per)
    columns = [
        *_CONFIGURATION,
        "time_s",
        "time_s_low",
        "time_s_high",
        *_TIMES[1:],
        "communication_bytes",
        "communication_bytes_total",
    ]
    show(table, format, columns, title=f"Per {per}")


@app.command()
@configuration_options
def simulate(
    workload: WorkloadFile,
    axes,
    platform: Annotated[str, typer.Option(help="Name of a shipped platform, or SimGrid XML.")],
    fidelity: Annotated[str, typer.Option(help="closed_form, fluid or message.")] = "fluid",
    per: Per = "step",
    n_jobs: Annotated[int, typer.Option(help="Simulations at a time.")] = 1,
    format: As = Format.table,
):
    """Simulate training on a SimGrid platform."""
    with busy("simulating"):
        table = pm.simulate(
            pm.Workload.from_toml(workload),
            pm.configurations(**axes),
            platform,
            fidelity=fidelity,
            per=per,
            n_jobs=n_jobs,
        )
    show(
        table,
        format,
        [*_CONFIGURATION, *_TIMES, "communication_bytes", "communication_bytes_total"],
        title=f"Per {per}",
    )


@app.command()
def platforms(format: As = Format.table):
    """List the platforms that are shipped."""
    from perfmodel.platform_file import shipped_platforms

    show(shipped_platforms(), format)


def main(arguments=None):
    """Run the command perfmodel."""
    run(app, arguments)
