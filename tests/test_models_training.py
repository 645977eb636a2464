import json

import pandas as pd
import pytest

import perfmodel as pm
from perfmodel.errors import ConfigurationError, FitError, MissingFileError, ModelFileError

pytestmark = pytest.mark.usefixtures("needs_simgrid")


@pytest.fixture
def model(workload, planted_logs):
    return pm.TrainingModel.fit(planted_logs.select("n_nodes <= 4"), workload=workload)


@pytest.fixture
def unseen():
    return pm.configurations(n_nodes=[6, 8], gpus_per_node=1, batch_per_gpu=[8, 32])


def test_configurations_that_nobody_ran_are_predicted(model, workload, planted, unseen):
    predicted = model.predict(unseen)
    truth = pm.simulate(workload, unseen, planted)["step_time_s"]
    assert predicted["step_time_s"].to_numpy() == pytest.approx(truth.to_numpy(), rel=0.05)
    inside = (predicted["step_time_s_low"] < truth) & (truth < predicted["step_time_s_high"])
    assert inside.all()
    assert (predicted["throughput_samples_per_s_low"] < predicted["throughput_samples_per_s"]).all()
    split = predicted["compute_time_s"] + predicted["exposed_communication_time_s"]
    assert split.to_numpy() == pytest.approx(predicted["time_s"].to_numpy())
    moved = pm.volumes(workload, unseen)
    assert predicted["communication_bytes"].equals(moved["communication_bytes"])


def test_an_epoch_is_its_steps(model, unseen):
    step, epoch = (model.predict(unseen, per=per) for per in ("step", "epoch"))
    steps = -(-50_000 // unseen["global_batch"])
    assert epoch["time_s_high"].to_numpy() == pytest.approx(step["time_s_high"] * steps)
    assert "step_time_s" not in epoch


def test_the_report_tells_data_from_priors_and_quotes_unseen_rows(model):
    report = model.report()
    assert {"data", "held out"} <= set(report["source"])
    held_out = report[report["source"] == "held out"].iloc[0]
    assert "n_nodes = 4" in held_out["parameter"]
    assert 0 < held_out["value"] < 0.1


def test_nothing_measured_at_the_largest_scale_is_in_the_held_out_error(workload, planted_logs):
    def held_out(collectives):
        m = pm.Measurements(steps=planted_logs.steps, collectives=collectives)
        report = pm.TrainingModel.fit(m, workload=workload).report()
        return report[report["source"] == "held out"]["value"].iloc[0]

    collectives = planted_logs.collectives
    largest = collectives["n_ranks"] == collectives["n_ranks"].max()
    slower = collectives["time_s"].where(~largest, 10 * collectives["time_s"])
    assert held_out(collectives.assign(time_s=slower)) == held_out(collectives)


def test_a_saved_model_predicts_the_same(model, unseen, tmp_path):
    model.save(tmp_path / "m.json")
    again = pm.load_model(tmp_path / "m.json")
    pd.testing.assert_frame_equal(again.predict(unseen), model.predict(unseen), check_exact=True)
    pd.testing.assert_frame_equal(again.report(), model.report(), check_dtype=False)
    assert again.workload == model.workload


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[]", "no model file"),
        ('{"format": "perfmodel-training-model", "version": 99}', "version 99"),
        ('{"format": "perfmodel-training-model", "version": 1}', "damaged"),
    ],
)
def test_what_is_no_model_file_is_refused(tmp_path, text, message):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(ModelFileError, match=message):
        pm.load_model(tmp_path / "m.json")


def test_a_damaged_model_file_is_refused(model, tmp_path):
    model.save(tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    del content["step_time"]["covariance"]
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match="covariance"):
        pm.load_model(tmp_path / "m.json")
    with pytest.raises(MissingFileError):
        pm.load_model(tmp_path / "no.json")


def test_what_cannot_be_fitted_is_said(workload, planted_logs):
    steps = planted_logs.steps
    both = pd.concat([steps.assign(system="a"), steps.assign(system="b")])
    with pytest.raises(FitError, match=r"2 systems \(a, b\)"):
        pm.TrainingModel.fit(pm.Measurements(steps=both), workload)
    with pytest.raises(FitError, match="the logs have other"):
        pm.TrainingModel.fit(pm.Measurements(steps=steps.assign(workload="other")), workload)
    sizeless = planted_logs.collectives.drop(columns="message_bytes")
    with pytest.raises(FitError, match="lack the column message_bytes"):
        pm.TrainingModel.fit(pm.Measurements(steps=steps, collectives=sizeless), workload)
    with pytest.raises(FitError, match="no measured steps"):
        pm.TrainingModel.fit(pm.Measurements(collectives=planted_logs.collectives), workload)


def test_what_cannot_be_predicted_is_refused(model):
    c = pm.configurations(n_nodes=2, gpus_per_node=1, batch_per_gpu=8, dtype="fp16")
    with pytest.raises(ConfigurationError, match="dtype"):
        model.predict(c)
