"""Sphinx settings, and the pages that are made from the code."""

import os
import subprocess
import sys
from pathlib import Path

import perfmodel
from perfmodel.quantities import DEFAULTS, QUANTITIES

HERE = Path(__file__).parent

project = "perfmodel"
author = copyright = "the perfmodel authors"
version = release = perfmodel.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
]
default_role = "code"
exclude_patterns = ["_build", "examples/**/README.md"]
html_theme = "furo"
html_title = "perfmodel"
# References of numpydoc sections are numbered anew on every page.
numpydoc_show_class_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"


def nomenclature():
    """Page of all columns, from `perfmodel.quantities`."""
    titles = {
        "identity": "Identity",
        "configuration": "Configuration: what can be varied",
        "measured": "Measured operations",
        "predicted": "Predicted or simulated, for the period asked for",
    }
    lines = ["Nomenclature", "============", ""]
    lines += ["Every table in and out has columns of these names, in SI base units; one row is one"]
    lines += ["observation. The page is made from `perfmodel/quantities.py`.", ""]
    for group, title in titles.items():
        widths, head = "30 12 58", ["column", "unit", "meaning"]
        if group == "configuration":
            widths, head = "26 12 46 16", [*head, "default"]
        lines += [title, "-" * len(title), "", ".. list-table::", "   :header-rows: 1"]
        lines += [f"   :widths: {widths}", "", *_row(head)]
        for quantity in (q for q in QUANTITIES if q.group == group):
            cells = [f"``{quantity.name}``", quantity.unit, quantity.meaning]
            if group == "configuration":
                default = DEFAULTS[quantity.name]
                cells.append("–" if default is None else f"``{default}``")
            lines += _row(cells)
        lines.append("")
    return "\n".join(lines)


def _row(cells):
    return [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(cells)]


def commands():
    """Page of all commands, from what they say of themselves."""
    lines = ["Commands", "========", ""]
    lines += ["Exit status 0; 1 for what you can mend; 2 for wrong usage. Tables are for people;"]
    lines += ["``--format json`` and ``--format csv`` are for programs.", ""]
    names = {
        "perfmodel": ["logs", "volumes", "fit", "predict", "simulate", "platforms"],
        "perfmodel-calibrate": ["run", "check"],
    }
    for program, subcommands in names.items():
        module = {"perfmodel": "perfmodel", "perfmodel-calibrate": "calibration"}[program]
        lines += [program, "-" * len(program), "", *_help(module, program, [])]
        for name in subcommands:
            title = f"{program} {name}"
            lines += [title, "~" * len(title), "", *_help(module, program, [name])]
    return "\n".join(lines)


def _help(module, program, arguments):
    environment = os.environ | {"COLUMNS": "96", "TERM": "dumb", "NO_COLOR": "1"}
    run = subprocess.run(
        [sys.executable, "-m", module, *arguments, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    text = run.stdout.replace(f"python -m {module}", program)
    return [".. code-block:: text", "", *(f"   {line}".rstrip() for line in text.splitlines()), ""]


def setup(app):
    """Write the generated pages before Sphinx looks for pages."""
    folder = HERE / "generated"
    folder.mkdir(exist_ok=True)
    for name, make in (("nomenclature.rst", nomenclature), ("cli.rst", commands)):
        page, text = folder / name, make()
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
