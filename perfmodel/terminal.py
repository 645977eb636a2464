"""What the commands share: tables for people and for programs, lists as options, errors."""

import csv
import json
import logging
import math
import os
import sys
import time
import warnings
from contextlib import contextmanager
from enum import StrEnum

import typer

from perfmodel.errors import PerfmodelError
from perfmodel.quantities import DEFAULTS, QUANTITIES

_UNIT = {quantity.name: quantity.unit for quantity in QUANTITIES}
_MEANING = {quantity.name: quantity.meaning for quantity in QUANTITIES}


class Format(StrEnum):
    """How a command prints its table."""

    table = "table"
    json = "json"
    csv = "csv"


def run(app, arguments=None):
    """Run a command line: exit status 0, 1 for what the user can mend, 2 for wrong usage."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(args=arguments)
    except BrokenPipeError:
        # The reader of a pipe has gone: nobody to tell, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except PerfmodelError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(1)


def _show_warning(message, *_):
    print(f"warning: {message}", file=sys.stderr)


@contextmanager
def busy(text):
    """Show on a terminal's standard error that something runs, and what the library logs of it."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        handler = logging.Handler()
        handler.emit = lambda record: status.update(f"{text}: {record.getMessage()}")
        loggers = [logging.getLogger(name) for name in ("perfmodel", "calibration")]
        for logger in loggers:
            logger.setLevel(logging.INFO)
            logger.addHandler(handler)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(handler)


@contextmanager
def reading():
    """Progress of `read_logs` for people: a bar on a terminal's standard error, after a second."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        "reading",
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files, {task.description}"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    began, read, task, shown = time.monotonic(), 0, None, 0.0

    def progress(n_done, n_files, n_bytes):
        nonlocal read, task, shown
        read += n_bytes
        now = time.monotonic()
        if now - began < 1 or now - shown < 0.1:
            return
        shown = now
        if task is None:
            bar.start()
            task = bar.add_task("reading")
        text = human(read, "read_bytes")
        bar.update(task, total=n_files, completed=n_done, description=text, refresh=True)

    try:
        yield progress
    finally:
        bar.stop()


def show(table, format=Format.table, columns=None, title=None):
    """Print a table on standard output.

    Parameters
    ----------
    table : DataFrame
    format : Format
        For people, or all columns as a list of JSON records or as CSV.
    columns : list of str, optional
        Those that people see; others are there for programs.
    title : str, optional
        Over the table for people.
    """
    if format == Format.json:
        records = [
            {name: _plain(value) for name, value in row.items()} for row in table.to_dict("records")
        ]
        print(json.dumps(records, indent=1))
    elif format == Format.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table.columns)
        for row in table.itertuples(index=False):
            writer.writerow(["" if _plain(value) is None else _plain(value) for value in row])
    else:
        _show_to_people(table, columns, title)


def _show_to_people(table, columns, title):
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    names = [name for name in (columns or table.columns) if name in table]
    printed = Table(
        title=title, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for name in names:
        number = table[name].map(lambda value: isinstance(_plain(value), int | float)).any()
        printed.add_column(
            escape(_heading(name)), justify="right" if number else "left", overflow="fold"
        )
    for row in table[names].itertuples(index=False):
        printed.add_row(*(escape(human(_plain(v), n)) for n, v in zip(names, row, strict=True)))
    # A pipe has no width: a table is then as wide as it needs to be.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(printed)


def _heading(name):
    for suffix in ("_bytes_per_s", "_bytes", "_s", "_joules", "_watts"):
        if name.endswith(suffix) and not name.endswith("samples_per_s"):
            name = name.removesuffix(suffix)
            break
    return name.replace("_", " ").replace(" per s", "/s")


def human(value, name):
    """Text of a value for people, with a prefix and unit that the column's name asks for.

    Examples
    --------
    >>> human(0.01234, "step_time_s"), human(4.6e6, "message_bytes"), human(-0.0312, "error")
    ('12.34 ms', '4.6 MB', '-3.1 %')
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name.endswith("error"):
        return f"{100 * value:.1f} %"
    unit = next(
        (
            unit
            for end, unit in (("_bytes_per_s", "B/s"), ("_bytes", "B"), ("_s", "s"))
            if name.endswith(end) or end + "_" in name
        ),
        None,
    )
    if unit is None or name.endswith("samples_per_s"):
        return f"{value:d}" if isinstance(value, int) else f"{value:,.4g}".replace(",", " ")
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    power = math.floor(math.log10(abs(value)) / 3)
    power = min(max(power, -4 if unit == "s" else 0), 0 if unit == "s" else 6)
    prefix = {-4: "p", -3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
    return f"{value / 1000.0**power:.4g} {prefix.get(power, 'E')}{unit}"


def _plain(value):
    """A JSON value: None for a missing one, Python's own number for numpy's."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return str(value) if type(value).__name__ == "NAType" else value


def values_of(text, name):
    """Values of an option: ``1,2,4``, or ``first:last:step`` with the last included.

    Examples
    --------
    >>> values_of("1:4:1,8", "--n-nodes")
    [1, 2, 3, 4, 8]
    """
    values = []
    for part in text.split(","):
        bounds = [_value(bound) for bound in part.split(":")]
        if len(bounds) == 1:
            values += bounds
            continue
        if (
            len(bounds) != 3
            or not all(isinstance(b, int | float) for b in bounds)
            or bounds[2] <= 0
        ):
            # Algorithms and rates such as topk:0.01 are single values.
            if any(isinstance(bound, str) for bound in bounds):
                values.append(part)
                continue
            raise typer.BadParameter(
                f"{name}: {part!r}; write first:last:step, or values by commas"
            )
        first, last, step = bounds
        count = math.floor((last - first) / step + 1e-9) + 1
        if not 0 < count <= 100_000:
            raise typer.BadParameter(f"{name}: {part!r} has {max(count, 0)} values")
        values += [first + i * step for i in range(count)]
    return values


def _value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.strip().lower(), text.strip())


def configuration_options(command):
    """Give a command an option for every configuration column, collected in its ``axes``."""
    import functools
    import inspect

    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.name != "axes"]
    columns = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=typing_option(name),
        )
        for name in DEFAULTS
    ]

    @functools.wraps(command)
    def wrapped(**given):
        axes = {
            name: values_of(given.pop(name), f"--{name.replace('_', '-')}")
            for name in DEFAULTS
            if given.get(name) is not None
        }
        given = {name: value for name, value in given.items() if name not in DEFAULTS}
        return command(axes=axes, **given)

    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    wrapped.__signature__ = signature.replace(parameters=[*own, *columns])
    wrapped.__annotations__ = {p.name: p.annotation for p in [*own, *columns]}
    return wrapped


def typing_option(name):
    """Type of an option that holds a configuration column, with help from the nomenclature."""
    from typing import Annotated

    unit = "" if _UNIT[name] in ("-", "1") else f" [{_UNIT[name]}]"
    default = "" if DEFAULTS[name] is None else f" (default {DEFAULTS[name]})"
    text = _MEANING[name][0].upper() + _MEANING[name][1:] + unit + default
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=text,
        metavar="LIST",
        rich_help_panel="Configurations: lists by commas, or first:last:step",
    )
    return Annotated[str | None, option]
