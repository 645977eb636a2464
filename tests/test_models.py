"""What every fitted model promises."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import perfmodel as pm
from perfmodel.errors import ExtrapolationWarning, FitError
from perfmodel.models.collective import ring_time

COLLECTIVES = pd.DataFrame(
    [(size, ranks) for size in (2**12, 2**18, 2**24) for ranks in (2, 4)],
    columns=["message_bytes", "n_ranks"],
)
STEPS = pd.DataFrame(
    [(n, n, b) for n in (1, 2, 4) for b in (8, 16, 32)],
    columns=["n_nodes", "n_gpus", "batch_per_gpu"],
)
EXAMPLES = {
    "CollectiveTime": (COLLECTIVES, 1e-3 + COLLECTIVES["message_bytes"] / 1e9),
    "StepTime": (STEPS, 0.01 + 0.001 * STEPS["batch_per_gpu"] + 0.02 * (STEPS["n_nodes"] > 1)),
}


@pytest.fixture(params=pm.models.__all__)
def example(request):
    X, y = EXAMPLES[request.param]
    return getattr(pm.models, request.param)(), X, y


def test_contract(example):
    model, X, y = example
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert clone(model).get_params() == model.get_params()
    assert model.fit(X, y) is model
    predicted = model.predict(X)
    assert isinstance(predicted, np.ndarray)
    assert predicted.shape == (len(X),)
    one = model.predict(X.iloc[0].to_dict())
    assert isinstance(one, float)
    assert one == pytest.approx(predicted[0])
    arrays = {name: X[name].to_numpy() for name in X}
    assert model.predict(arrays) == pytest.approx(predicted)
    shifted = X.set_axis(range(100, 100 + len(X)))
    interval = model.predict_interval(shifted)
    assert interval.columns.tolist() == ["low", "high"]
    assert interval.index.equals(shifted.index)
    assert (interval["low"].to_numpy() <= predicted).all()
    assert (interval["high"].to_numpy() >= predicted).all()
    wider = model.predict_interval(shifted, coverage=0.99)
    assert (wider["low"] <= interval["low"]).all()


def test_outside_the_measured_range_there_is_a_warning_unless_allowed(example):
    model, X, y = example
    model.fit(X, y)
    far = X.iloc[[0]] * 100
    with pytest.warns(ExtrapolationWarning, match="measured were"):
        model.predict(far)
    model.set_params(extrapolate="allow").predict(far)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X.drop(columns=X.columns[0]), y), "needs the column"),
        (lambda X, y: (X.assign(**{X.columns[0]: np.nan}), y), "missing in row"),
        (lambda X, y: (X, y[:-1]), "measured values"),
        (lambda X, y: (X, -y), "must be above 0"),
        (lambda X, y: (X, y * np.nan), "must be above 0"),
    ],
)
def test_bad_input_is_refused(example, change, message):
    model, X, y = example
    with pytest.raises(FitError, match=message):
        model.fit(*change(X, y))


@pytest.mark.parametrize("latency_s", [2e-6, 1e-4])
@pytest.mark.parametrize("bandwidth", [2.5e7, 2e11])
def test_a_ring_comes_back_from_its_noisy_times(latency_s, bandwidth):
    sizes = 2 ** np.arange(8, 34, 2)
    X = pd.DataFrame(
        [(s, n, r) for s in sizes for n in (2, 4, 8) for r in range(5)],
        columns=["message_bytes", "n_ranks", "repetition"],
    )
    n, size = X["n_ranks"], X["message_bytes"]
    # The formula, written out a second time.
    y = 2 * (n - 1) * latency_s + 2 * (n - 1) / n * size / bandwidth
    y = y * np.random.default_rng(0).lognormal(sigma=0.02, size=len(X))
    fitted = pm.models.CollectiveTime().fit(X, y).parameters_.loc["all_reduce"]
    assert fitted["step_latency_s"] == pytest.approx(latency_s, rel=0.02)
    assert fitted["bandwidth_bytes_per_s"] == pytest.approx(bandwidth, rel=0.02)


def test_collectives_are_fitted_apart_and_unknown_ones_refused():
    names = ["all_reduce", "all_gather"]
    X = pd.concat([COLLECTIVES.assign(collective=name) for name in names], ignore_index=True)
    y = np.concatenate(
        [
            ring_time(name, COLLECTIVES["message_bytes"], COLLECTIVES["n_ranks"], 1e-5, rate)
            for name, rate in zip(names, (1e9, 3e9), strict=True)
        ]
    )
    model = pm.models.CollectiveTime().fit(X, y)
    assert model.parameters_["bandwidth_bytes_per_s"].to_dict() == pytest.approx(
        {"all_reduce": 1e9, "all_gather": 3e9}, rel=1e-3
    )
    with pytest.raises(FitError, match="no reduce_scatter was fitted"):
        model.predict({"message_bytes": 1e6, "n_ranks": 2, "collective": "reduce_scatter"})


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (COLLECTIVES.assign(n_ranks=1), "n_ranks = 1"),
        (COLLECTIVES.assign(message_bytes=1000), "cannot tell latency from bandwidth"),
    ],
)
def test_what_cannot_be_told_is_said(X, message):
    with pytest.raises(FitError, match=message):
        pm.models.CollectiveTime().fit(X, np.ones(len(X)))


def test_a_fit_trusts_what_repeats():
    # Small messages that scatter by half must not spoil the latency that large ones tell.
    random = np.random.default_rng(0)
    X = pd.concat([COLLECTIVES] * 9, ignore_index=True)
    y = ring_time("all_reduce", X["message_bytes"], X["n_ranks"], 1e-4, 1e8)
    small = X["message_bytes"] < 2**14
    y = y * np.where(small, 1.6 * random.lognormal(sigma=0.5, size=len(X)), 1)
    model = pm.models.CollectiveTime().fit(X, y)
    big = {"message_bytes": 2**18, "n_ranks": 4}
    truth = ring_time("all_reduce", 2**18, 4, 1e-4, 1e8)
    assert model.predict(big) == pytest.approx(truth, rel=0.02)
