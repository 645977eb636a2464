import json

import pytest

import perfmodel as pm
from perfmodel.errors import LogFormatError


def line(key, time_ms, value=None, **metadata):
    content = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key}
    content |= {"value": value, "metadata": {"file": "x.py", "lineno": 1} | metadata}
    return ":::MLLOG " + json.dumps(content)


RUN = [
    line("submission_benchmark", 1000, "cosmoflow"),
    line("number_of_nodes", 1001, 8),
    line("accelerators_per_node", 1001, 4),
    line("global_batch_size", 1002, 64),
    line("gradient_accumulation_steps", 1002, 2),
    line("quality_target", 1003, 0.124),
    line("train_samples", 1003, 524288),
    line("init_stop", 1004),
    line("run_start", 2000),
    line("staging_start", 2001),
    line("staging_stop", 12001),
    line("tracked_stats", 20000, {"throughput": 250.5, "loss": 1.0}, step=5),
    line("eval_error", 30000, 0.2, epoch_num=1),
    line("tracked_stats", 40000, {"throughput": 260.25}),
    line("eval_error", 50000, 0.12, epoch_num=2, samples_count=1048576),
    line("run_stop", 52500, None, status="success"),
]


def read(tmp_path, lines, name="result_0.txt"):
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    return pm.read_logs(tmp_path / name)


def test_throughputs_and_work_until_the_target(tmp_path):
    m = read(tmp_path, RUN)
    assert m.steps["throughput_samples_per_s"].tolist() == [250.5, 260.25]
    assert m.steps["timestamp_s"].tolist() == [20.0, 40.0]
    for column, value in {"workload": "cosmoflow", "n_nodes": 8, "n_gpus": 32, "global_batch": 64,
                          "accumulation_steps": 2}.items():  # fmt: skip
        assert set(m.steps[column]) == {value}
        assert m.convergence[column].tolist() == [value]
    end = m.convergence.iloc[0]
    assert end["time_to_target_s"] == 50.5
    assert end["staging_time_s"] == 10.0
    assert (end["epochs_to_target"], end["samples_to_target"]) == (2, 1048576)
    assert (end["target_metric"], end["target_value"]) == ("eval_error", 0.124)
    assert end["source_line"] == 16


def test_noise_rank_labels_and_torn_lines(tmp_path):
    noise = ["node-a:1:1 [0] NCCL INFO x", "", *(" 0: " + text for text in RUN)]
    noise.insert(5, ' 0: :::MLLOG {"namespace": "", "time_ms": 17, "eve 1: NCCL INFO')
    m = read(tmp_path, noise)
    again = read(tmp_path, RUN)
    for table in ("steps", "convergence"):
        left = getattr(m, table).drop(columns=["source_line"])
        assert left.equals(getattr(again, table).drop(columns=["source_line"]))
    assert m.sources["lines_skipped"].tolist() == [1]
    assert "line 6: a line of MLLOG that is cut" in m.sources["first_skipped_reason"].iloc[0]


def test_a_run_without_success_has_not_converged(tmp_path):
    lines = [*RUN[:-1], line("run_stop", 52500, None, status="aborted")]
    m = read(tmp_path, lines)
    assert m.convergence.empty
    assert len(m.steps) == 2
    assert "line 16: a run that did not reach its target (aborted)" in m.sources.iloc[0].to_list()
    short = [text for text in lines if "tracked_stats" not in text]
    with pytest.raises(LogFormatError, match=r"result_0.txt:14: .* without a run that reached"):
        read(tmp_path, short)
    with pytest.raises(LogFormatError, match="it ends before run_stop"):
        read(tmp_path, short[:-1])


def test_several_runs_in_a_file_keep_their_own_settings(tmp_path):
    second = [text.replace('"value": 64', '"value": 128') for text in RUN]
    second = [line("init_start", 60000), *second]
    m = read(tmp_path, [*RUN, *second])
    assert m.convergence["global_batch"].tolist() == [64, 128]
    assert m.steps["global_batch"].tolist() == [64, 64, 128, 128]


def test_bert_counts_samples_as_epochs(tmp_path):
    lines = [
        text.replace("cosmoflow", "bert").replace(', "samples_count": 1048576', "") for text in RUN
    ]
    lines = [text.replace('"epoch_num": 2', '"epoch_num": 2621440') for text in lines]
    end = read(tmp_path, lines).convergence.iloc[0]
    assert end["samples_to_target"] == 2621440
    assert "epochs_to_target" not in end


def test_the_older_prefix(tmp_path):
    lines = [
        ':::MLL 1560000000.5 run_start: {"value": null, "metadata": {"lineno": 1}}',
        ':::MLL 1560000010.5 run_stop: {"value": null, "metadata": {"status": "success"}}',
    ]
    assert read(tmp_path, lines).convergence["time_to_target_s"].tolist() == [10.0]


def test_nccl_tests_and_training_in_one_log_are_both_read(tmp_path):
    table = [
        "# Collective test starting: all_reduce_perf",
        "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        "1048576 262144 float sum -1 104.9 10.00 15.00 0 110.0 9.53 14.30 0",
    ]
    m = read(tmp_path, [*table, *RUN])
    assert m.sources["format"].tolist() == ["nccl-tests, mlperf"]
    assert m.sources["rows"].tolist() == [5]
    assert len(m.collectives) == 2
    assert len(m.steps) == 2
