"""MLPerf training logs (``:::MLLOG`` lines): throughput, and work until the quality target."""

import msgspec

from perfmodel.errors import LogFormatError
from perfmodel.logs.log_format import LogFormat

_MARKS = (":::MLLOG", ":::MLL ")
# What MLPerf's own rules call the figures that are not of the run's course.
_SETTINGS = {
    "submission_benchmark": "workload",
    "global_batch_size": "global_batch",
    "number_of_nodes": "n_nodes",
    "accelerators_per_node": "gpus_per_node",
    "number_of_ranks": "n_gpus",
    "gradient_accumulation_steps": "accumulation_steps",
}
_METRICS = ("eval_accuracy", "eval_error", "eval_loss", "eval_mlm_accuracy", "eval_metric")
_TARGETS = ("quality_target", "target_quality", "target_accuracy", "target_value")
# Most lines are of other keys: losses, learning rates.
_WANTED = frozenset(
    (*_SETTINGS, *_METRICS, *_TARGETS, "staging_start", "staging_stop", "init_start", "run_start",
     "run_stop", "tracked_stats", "throughput")
)  # fmt: skip
_KEY = '"key": "'


class _Event(msgspec.Struct, gc=False):
    key: object = None
    value: object = None
    time_ms: object = None
    metadata: object = None


class _Run:
    """What the lines so far say of one run."""

    def __init__(self, line):
        self.line = line
        self.settings = {}
        self.start_ms = self.staging_start_ms = self.staging_ms = None
        self.metric, self.target, self.at_evaluation = None, None, {}
        self.is_over = False


def _recognises(log):
    return log.contains(*_MARKS)


def read_mlperf(log):
    """Read an MLPerf training log among whatever else a job prints.

    Every throughput that the run reports (``tracked_stats``) is a row of ``steps``. A run that
    reached its target is a row of ``convergence``: ``time_to_target_s`` from ``run_start`` to
    ``run_stop``, samples and epochs as the log counts them where it stopped, staging apart.

    Returns
    -------
    dict of str to list
        Rows of ``steps`` and ``convergence``.

    Raises
    ------
    LogFormatError
        If no run reports a throughput or reaches its target.
    """
    decode = msgspec.json.Decoder(_Event, strict=False).decode
    run, steps, ends, unfinished = _Run(None), [], [], None
    for number, line in log.lines():
        at = line.find(":::MLL")
        if at < 0:
            continue
        key_at = line.find(_KEY, at) + len(_KEY)
        key = line[key_at : line.find('"', key_at)]
        if key_at >= len(_KEY) and key not in _WANTED and line.endswith("}"):
            continue
        event = _event(line, at, decode)
        if event is None:
            log.skip(number, "a line of MLLOG that is cut or torn")
            continue
        key, value, time_ms = event.key, event.value, event.time_ms
        metadata = event.metadata if isinstance(event.metadata, dict) else {}
        if key in ("init_start", "run_start") and (
            run.is_over or (key == "run_start" and run.start_ms)
        ):
            run = _Run(number)
        if key in _SETTINGS:
            run.settings[_SETTINGS[key]] = value
        elif key in _TARGETS:
            run.target = value
        elif key == "run_start":
            run.start_ms, run.line = time_ms, number
        elif key == "staging_start":
            run.staging_start_ms = time_ms
        elif key == "staging_stop" and run.staging_start_ms is not None:
            run.staging_ms = time_ms - run.staging_start_ms
        elif key == "tracked_stats" or key == "throughput":
            throughput = value.get("throughput") if isinstance(value, dict) else value
            # Some report the same figure under both keys.
            is_same = steps and steps[-1]["throughput_samples_per_s"] == throughput
            if _is_number(throughput) and throughput > 0 and not is_same:
                steps.append(
                    {
                        "source_line": number,
                        "timestamp_s": time_ms * 1e-3,
                        "clock": "unix",
                        "throughput_samples_per_s": throughput,
                        "statistic": "mean",
                        "_run": run,
                    }
                )
        elif key in _METRICS and _is_number(value):
            run.metric, run.at_evaluation = key, metadata
        elif key == "run_stop":
            run.is_over = True
            if metadata.get("status") != "success" or not run.start_ms:
                why = metadata.get("status") or "without status"
                log.skip(number, f"a run that did not reach its target ({why})")
                unfinished = unfinished or number
            else:
                ends.append(_end(number, run, time_ms, metadata))
    if not steps and not ends:
        raise LogFormatError(
            log.path,
            "an MLPerf log without a throughput and without a run that reached its target"
            + ("" if unfinished or run.is_over else "; it ends before run_stop"),
            unfinished or run.line,
        )
    for row in steps:
        row |= _configuration(row.pop("_run"))
    return {"steps": steps, "convergence": ends}


def _event(line, at, decode):
    """Event of a line; None if it is not whole."""
    brace = line.find("{", at)
    if brace < 0:
        return None
    try:
        event = decode(line[brace : line.rfind("}") + 1])
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if event.key is None:
        # The older ':::MLL time key: {value, metadata}', in seconds.
        words = line[at:brace].split()
        try:
            event.time_ms, event.key = float(words[1]) * 1e3, words[2].rstrip(":")
        except (IndexError, ValueError):
            return None
    return event if _is_number(event.time_ms) and isinstance(event.key, str) else None


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _configuration(run):
    settings = {}
    for name, value in run.settings.items():
        fits = isinstance(value, str) if name == "workload" else _is_number(value) and value > 0
        if fits:
            settings[name] = value
    if "n_nodes" in settings and "gpus_per_node" in settings:
        settings["n_gpus"] = settings["n_nodes"] * settings["gpus_per_node"]
    return settings


def _end(number, run, time_ms, metadata):
    """Row of a run that reached its target."""
    counts = run.at_evaluation | metadata
    samples, epochs = counts.get("samples_count"), counts.get("epoch_num")
    if run.settings.get("workload") == "bert" and samples is None:
        # MLPerf's BERT counts samples under this name where it evaluates.
        seen = run.at_evaluation.get("epoch_num")
        samples, epochs = (seen if _is_number(seen) and seen > 1000 else None), None
    if _is_number(epochs) and epochs > 10_000:
        epochs = None  # tokens or samples: which, the log does not say
    return {
        "source_line": number,
        **_configuration(run),
        "timestamp_s": run.start_ms * 1e-3,
        "clock": "unix",
        "samples_to_target": samples if _is_number(samples) and samples > 0 else None,
        "epochs_to_target": epochs if _is_number(epochs) and epochs > 0 else None,
        "time_to_target_s": (time_ms - run.start_ms) * 1e-3,
        "staging_time_s": None if run.staging_ms is None else run.staging_ms * 1e-3,
        "target_metric": run.metric,
        "target_value": run.target if _is_number(run.target) else None,
        "statistic": "single",
    }


FORMATS = [
    LogFormat("mlperf", "MLPerf training log (:::MLLOG)", _recognises, read_mlperf, is_part=True)
]
