"""Model files: JSON with a version, nothing in them is executed."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from perfmodel.errors import MissingFileError, ModelFileError
from perfmodel.files import write_whole
from perfmodel.models.collective import CollectiveTime
from perfmodel.models.step import StepTime
from perfmodel.models.training import TrainingModel
from perfmodel.workload import Workload

_FORMAT = "perfmodel-training-model"
_VERSION = 1


def save_model(model, path):
    """Write a `TrainingModel` as JSON, replacing the file as a whole."""
    collective = model.collective_time
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "system": model.system,
        "workload": asdict(model.workload),
        "step_time": model.step_time.to_plain(),
        "collective_time": None if collective is None else collective.to_plain(),
        "held_out_errors": model.held_out_errors.to_dict("records"),
    }
    write_whole(path, json.dumps(content, indent=1, default=_plain) + "\n")


def load_model(path):
    """Read a model that `TrainingModel.save` wrote.

    Raises
    ------
    MissingFileError
        If there is no such file (also a `FileNotFoundError`).
    ModelFileError
        If it is no model file of this version (also a `ValueError`).
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise MissingFileError(f"{path}: no such model file") from None
    except ValueError as error:
        raise ModelFileError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ModelFileError(f"{path}: no model file of perfmodel; make one with `perfmodel fit`")
    if content.get("version") != _VERSION:
        raise ModelFileError(
            f"{path}: version {content.get('version')!r}, {_VERSION} is read; fit again"
        )
    try:
        workload = Workload(**content["workload"])
        collective = content["collective_time"]
        return TrainingModel(
            workload,
            content["system"],
            StepTime(workload, extrapolate="allow").from_plain(content["step_time"]),
            None if collective is None else CollectiveTime("allow").from_plain(collective),
            pd.DataFrame(content["held_out_errors"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path}: damaged model file ({error}); fit again") from None


def _plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} in a model file")
