import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import perfmodel as pm
from calibration import calibrate
from calibration.loss import MeasuredRows
from calibration.parameters import read_free
from perfmodel.errors import CalibrationError, MissingFileError, UnknownNameError

pytestmark = pytest.mark.usefixtures("needs_simgrid")

HOLD_OUT = "n_nodes > 4 or batch_per_gpu == 64"


@pytest.fixture
def result(workload, planted_logs):
    return calibrate("testbed", planted_logs, workload=workload, hold_out=HOLD_OUT)


def test_planted_numbers_come_back_from_noisy_logs(result):
    found = result.parameters.set_index("attribute")
    truth = {"bandwidth": 2.5e7, "latency": 80e-6, "speed": 1.3e9}
    truth["prop:perfmodel.compute_latency"] = 0.012
    truth["prop:perfmodel.optimizer_latency"] = 0.007
    for attribute, value in truth.items():
        row = found.loc[attribute]
        # The two fixed times differ only in what they can hide: their intervals are wide.
        if not attribute.startswith("prop:"):
            assert row["value"] == pytest.approx(value, rel=0.06), attribute
        assert row["low"] <= value <= row["high"], attribute
        assert row["identifiable"]


def test_rows_held_out_are_never_fitted_and_are_predicted(result):
    held, fitted = result.held_out, result.fitted
    assert set(held["n_nodes"]) == {1, 2, 3, 4, 6, 8}
    assert (held["n_nodes"] > 4).sum() == 2 * 8 + 2 * 4
    assert fitted["n_nodes"].max() == 4
    assert 64 not in set(fitted["batch_per_gpu"])
    assert np.abs(held["error"]).mean() < 0.02


def test_the_same_seed_gives_the_same_platform(result, workload, planted_logs):
    again = calibrate("testbed", planted_logs, workload=workload, hold_out=HOLD_OUT)
    assert again.platform == result.platform


@pytest.mark.parametrize(("hold_out", "budget"), [(HOLD_OUT, 2), ("largest", 3), ("largest", 5)])
def test_the_budget_is_kept(workload, planted_logs, hold_out, budget):
    result = calibrate("testbed", planted_logs, workload=workload, budget=budget, hold_out=hold_out)
    assert result.provenance["simulations"] <= budget
    with pytest.raises(CalibrationError, match=r"budget is 1; at least [23] simulations"):
        calibrate("testbed", planted_logs, workload=workload, budget=1, hold_out=hold_out)


def test_simulations_correct_a_closed_form_that_is_wrong(monkeypatch, workload, planted_logs):
    right = MeasuredRows.by_formula

    def wrong(rows, *arguments):
        # Wrong in its values and in its slopes, so that one correction is not enough.
        return right(rows, *arguments) ** 0.7

    monkeypatch.setattr(MeasuredRows, "by_formula", wrong)
    result = calibrate("testbed", planted_logs, workload=workload, hold_out=HOLD_OUT)
    found = result.parameters.set_index("attribute")["value"]
    assert found["bandwidth"] == pytest.approx(2.5e7, rel=0.06)
    assert found["speed"] == pytest.approx(1.3e9, rel=0.06)
    assert np.abs(result.held_out["error"]).mean() < 0.03
    assert result.history["loss"].iloc[-1] < result.history["loss"].iloc[0] / 10


def test_largest_holds_out_then_refits_on_all_rows(workload, planted_logs):
    result = calibrate("testbed", planted_logs, workload=workload)
    assert set(result.held_out["n_nodes"]) == {8}
    assert result.fitted["n_nodes"].max() == 8


def test_nothing_is_held_out_on_request(planted_logs):
    m = pm.Measurements(collectives=planted_logs.collectives)
    result = calibrate("testbed", m, hold_out=None)
    assert result.held_out.empty
    assert set(result.fitted["n_nodes"]) == {2, 3, 4, 6, 8}
    assert "None: nothing was held out" in page_of(result)


def page_of(result):
    with tempfile.TemporaryDirectory() as folder:
        result.report.to_html(Path(folder) / "report.html")
        return (Path(folder) / "report.html").read_text()


def test_collectives_alone_calibrate_the_links(planted_logs):
    m = pm.Measurements(collectives=planted_logs.collectives)
    result = calibrate("testbed", m)
    assert set(result.parameters["attribute"]) == {"bandwidth", "latency"}


def test_declared_parameters_bounds_and_priors(tmp_path, workload, planted_logs):
    (tmp_path / "free.toml").write_text(
        """
[[free]]
element = "link*"
attribute = "bandwidth"
low = "50Mbps"; high = "1Gbps"
""".replace("; ", "\n")
        + """
[[free]]
element = "testbed"
attribute = "prop:perfmodel.ring_step_latency"
low = "1us"
high = "10ms"
prior = "60us"
prior_factor = 2.0
source = "guess"
"""
    )
    m = pm.Measurements(collectives=planted_logs.collectives)
    result = calibrate("testbed", m, free=tmp_path / "free.toml")
    found = result.parameters.set_index("attribute")["value"]
    assert found["bandwidth"] == pytest.approx(2.5e7, rel=0.05)
    # The links' own 50 µs stay: 160 µs a step are 2 · 50 of the links and 60 beside them.
    assert found["prop:perfmodel.ring_step_latency"] == pytest.approx(60e-6, rel=0.1)
    assert b'latency="50us"' in result.platform.xml


def test_a_prior_on_a_linear_scale_is_a_share_of_its_value():
    declaration = {"element": "link*", "attribute": "bandwidth", "low": 1e6, "high": 101e6}
    prior = {"prior": 2e7, "prior_factor": 1.5}
    (linear,) = read_free([declaration | prior | {"scale": "linear"}], pm.platform("testbed"))
    # One standard deviation is half of 20 MB/s, a tenth of the range of 100 MB/s.
    assert linear.prior_deviation == pytest.approx(0.1)
    (log,) = read_free([declaration | prior], pm.platform("testbed"))
    assert log.prior_deviation == pytest.approx(np.log(1.5))


def test_what_logs_cannot_tell_apart_is_freed_once(planted_logs):
    free = [
        {"element": "link*", "attribute": "latency", "low": "1us", "high": "1ms"},
        {
            "element": "testbed",
            "attribute": "prop:perfmodel.ring_step_latency",
            "low": "1us",
            "high": "1ms",
        },
        {"element": "link*", "attribute": "bandwidth", "low": "1MBps", "high": "1GBps"},
    ]
    m = pm.Measurements(collectives=planted_logs.collectives)
    # The two latencies differ only by how far a link's counts twice, on a logarithmic scale.
    result = calibrate("testbed", m, free=free)
    told = result.parameters.set_index("attribute")["identifiable"]
    assert told["bandwidth"]
    assert not told[["latency", "prop:perfmodel.ring_step_latency"]].all()


@pytest.mark.parametrize(
    ("declaration", "error", "message"),
    [
        ({"element": "lnk*"}, UnknownNameError, "did you mean 'link0'|element like"),
        ({"attribute": "bandwith"}, UnknownNameError, "did you mean 'bandwidth'"),
        ({"low": "-1Bps"}, CalibrationError, "low must be below high and above 0"),
        ({"low": "2GBps"}, CalibrationError, "low must be below high"),
        ({"low": "fast"}, CalibrationError, "low: 'fast' is not a bandwidth"),
        ({"prior": "1MBps"}, CalibrationError, "prior and prior_factor together"),
        ({"scale": "cubic"}, CalibrationError, "scale: "),
        ({"lower": "1Bps"}, CalibrationError, "lower: "),
    ],
)
def test_a_wrong_declaration_is_refused(declaration, error, message):
    good = {"element": "link*", "attribute": "bandwidth", "low": "1MBps", "high": "1GBps"}
    with pytest.raises(error, match=message):
        read_free([good | declaration], pm.platform("testbed"))


def test_a_free_parameter_that_no_log_informs_is_refused(planted_logs):
    free = [{"element": "host*", "attribute": "speed", "low": "1Mf", "high": "1Tf"}]
    m = pm.Measurements(collectives=planted_logs.collectives)
    with pytest.raises(CalibrationError, match=r"no measured row depends on host0…host7 speed"):
        calibrate("testbed", m, free=free)
    with pytest.raises(MissingFileError):
        calibrate("testbed", m, free="no.toml")


def test_what_cannot_be_calibrated_is_said(workload, planted_logs):
    collectives = planted_logs.collectives
    alone = pm.Measurements(collectives=collectives.assign(n_ranks=1, n_nodes=1))
    with pytest.raises(CalibrationError, match="on one rank, which sends nothing"):
        calibrate("testbed", alone)
    with pytest.raises(CalibrationError, match="lack the column message_bytes"):
        calibrate("testbed", pm.Measurements(collectives=collectives.drop(columns="message_bytes")))
    both = pd.concat([collectives.assign(system="a"), collectives.assign(system="b")])
    with pytest.raises(CalibrationError, match=r"2 systems \(a, b\)"):
        calibrate("testbed", pm.Measurements(collectives=both))
    with pytest.raises(CalibrationError, match="leaves no row to fit"):
        calibrate("testbed", planted_logs, hold_out="n_nodes > 0")


def test_the_report_names_logs_settings_and_unseen_errors(tmp_path, planted_logs):
    (tmp_path / "lab").mkdir()
    planted_logs.collectives.to_csv(tmp_path / "lab" / "allreduce.csv", index=False)
    result = calibrate("testbed", pm.read_logs(tmp_path / "lab"), seed=3, hold_out="n_nodes > 4")
    provenance = result.report.to_dict()
    (log,) = provenance["logs"]
    assert log["file"] == "lab/allreduce.csv"
    assert len(log["sha256"]) == 64
    assert provenance["seed"] == 3
    assert provenance["packages"]["simgrid"] == "4.1"
    assert provenance["held_out_errors"]
    result.report.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "lab/allreduce.csv" in page
    assert "http" not in page.replace("https://simgrid.org", "")
    assert str(tmp_path) not in page
    result.report.to_json(tmp_path / "r.json")
    assert pd.read_json(tmp_path / "r.json", typ="series")["seed"] == 3
