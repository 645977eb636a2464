"""What a file without measurements is, in a few words."""

import json
import re
from pathlib import PurePath

_MAGIC = {
    "\x7fELF": "a program",
    "\ufffdPNG": "an image",
    "%PDF": "a PDF document",
    "PK\x03\x04": "a zip archive",
    "\ufffdHDF": "an HDF5 file",
}
_SUFFIXES = {
    "Python code": (".py", ".ipynb"),
    "a script": (".sh", ".sbatch", ".slurm", ".bash", ".sub", ".pbs"),
    "a configuration": (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf"),
    "source code": (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".go", ".rs", ".js", ".ts"),
    "a document": (".md", ".rst", ".tex", ".html"),
}
_SIGNS = (
    (r"Permission is hereby granted|Apache License|GNU (?:LESSER )?GENERAL PUBLIC|"
     r"Redistribution and use in source", "a licence"),
    (r"^Traceback \(most recent call last\)", "a run that failed with a Python traceback"),
    (r"command not found|srun: error|sbatch: error|error while loading shared libraries|"
     r"MPI_ABORT|There are not enough slots|Segmentation fault|unhandled (?:cuda|system) error",
     "a run that failed"),
    (r"\A#!.*\bpython", "Python code"),
    (r"\A#!", "a script"),
    (r"\A\s*<\?xml|\A\s*<!DOCTYPE", "an XML or HTML file"),
    (r"NCCL INFO", "a debug log of NCCL"),
)  # fmt: skip


def kind_of(log):
    """A few words, such as ``'a licence'`` or ``'JSON with the keys a, b'``."""
    for magic, kind in _MAGIC.items():
        if log.head.startswith(magic):
            return kind
    if log.is_binary:
        return "binary data"
    for pattern, kind in _SIGNS[:3]:
        if re.search(pattern, log.head, re.MULTILINE):
            return kind
    start = log.head.lstrip()[:1]
    if start in ("{", "["):
        return _json(log)
    suffix = PurePath(log.name).suffix.lower()
    for kind, suffixes in _SUFFIXES.items():
        if suffix in suffixes:
            return kind
    for pattern, kind in _SIGNS[3:]:
        if re.search(pattern, log.head):
            return kind
    first = next((line.strip() for line in log.head.splitlines() if line.strip()), "")
    if first.count(",") >= 2:
        return f"a table with the columns {first[:200]}"
    if len(re.findall(r"^\s*[\w.-]+\s*[:=]\s*\S", log.head, re.MULTILINE)) > 0.6 * max(
        1, len(log.head.splitlines())
    ):
        return "a configuration"
    return "text"


def _json(log):
    try:
        content = json.JSONDecoder().raw_decode(log.head.lstrip())[0]
    except (ValueError, RecursionError):
        keys = re.findall(r'"(\w+)"\s*:', log.head[:2000])
        return f"JSON with the keys {', '.join(list(dict.fromkeys(keys))[:3])}" if keys else "JSON"
    if isinstance(content, dict):
        return f"JSON with the keys {', '.join(map(str, list(content)[:3]))}"
    return "a JSON list"
