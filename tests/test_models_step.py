import dataclasses

import numpy as np
import pandas as pd
import pytest

import perfmodel as pm
from perfmodel.errors import FitError
from perfmodel.models.collective import ring_time
from perfmodel.models.step import StepTime, overlapped_step_time


def steps(nodes=(1, 2, 3, 4), batches=(8, 16, 64)):
    rows = [(n, n, b) for n in nodes for b in batches]
    return pd.DataFrame(rows, columns=["n_nodes", "n_gpus", "batch_per_gpu"])


def test_overlap_lies_between_its_bounds():
    buckets = [(4, 0.25), (4, 0.5), (4, 1.0)]
    for rate in (0.1, 1, 10, 100):
        t = overlapped_step_time(1.0, 2.0, buckets, lambda n, rate=rate: n / rate)
        assert max(3.0 + 4 / rate, 12 / rate) <= t <= 3.0 + 12 / rate


def test_overlap_of_arrays_is_row_by_row():
    forward_s = np.array([1.0, 2.0])
    t = overlapped_step_time(forward_s, 2.0, [(8, 0.5), (8, 1.0)], lambda n: n / 4)
    assert t.tolist() == [6.0, 7.0]


def planted_times(workload, X, latency_s=1e-4, bandwidth=2.5e7, a0=0.01, a1=0.002):
    compute_s = a0 + a1 * X["batch_per_gpu"].to_numpy()
    n_ranks = X["n_gpus"].to_numpy()
    return overlapped_step_time(
        compute_s / 3,
        compute_s * 2 / 3,
        workload.buckets(),
        lambda n: ring_time("all_reduce", n, n_ranks, latency_s, bandwidth),
    )


def test_planted_steps_come_back_and_hold_at_unseen_scale(workload):
    X = steps()
    noise = np.random.default_rng(0).lognormal(sigma=0.01, size=(8, len(X)))
    y = (planted_times(workload, X) * noise).ravel()
    model = StepTime(workload, extrapolate="allow").fit(pd.concat([X] * 8, ignore_index=True), y)
    fitted = model.parameters_
    assert fitted["compute_s_per_sample"] == pytest.approx(0.002, rel=0.05)
    assert fitted["bandwidth_bytes_per_s"] == pytest.approx(2.5e7, rel=0.05)
    unseen = steps(nodes=(8, 16, 32), batches=(8, 32, 128))
    truth = planted_times(workload, unseen)
    assert model.predict(unseen) == pytest.approx(truth, rel=0.05)
    interval = model.predict_interval(unseen)
    assert ((interval["low"] < truth) & (truth < interval["high"])).mean() > 0.8


def test_allreduces_tell_what_steps_on_one_node_cannot(workload):
    X = steps(nodes=(1,))
    collectives = pd.DataFrame(
        [(s, n) for s in (2**14, 2**20, 2**26) for n in (2, 4)],
        columns=["message_bytes", "n_ranks"],
    )
    time_s = ring_time(
        "all_reduce", collectives["message_bytes"], collectives["n_ranks"], 1e-4, 2.5e7
    )
    network = pm.models.CollectiveTime().fit(collectives, time_s)
    model = StepTime(workload, extrapolate="allow")
    model.fit(X, planted_times(workload, X), collective_time=network)
    unseen = steps(nodes=(2, 8))
    assert model.predict(unseen) == pytest.approx(planted_times(workload, unseen), rel=0.05)
    assert {"step_latency_s", "bandwidth_bytes_per_s"} <= set(model.from_prior_)


def test_without_tensors_the_p_norm_fits(workload):
    coarse = dataclasses.replace(workload, gradient_tensors=None, gradient_ready=None)
    X = steps()
    y = planted_times(workload, X)
    model = StepTime(coarse, extrapolate="allow").fit(X, y)
    assert "overlap_exponent" in model.parameters_
    unseen = steps(nodes=(6, 8))
    assert model.predict(unseen) == pytest.approx(planted_times(workload, unseen), rel=0.1)


def test_accumulated_micro_batches_only_compute(workload):
    X = steps().assign(accumulation_steps=1)
    model = StepTime(workload, extrapolate="allow").fit(X, planted_times(workload, X))
    one = {"n_nodes": 4, "n_gpus": 4, "batch_per_gpu": 16}
    more = model.predict(one | {"accumulation_steps": 5}) - model.predict(one)
    compute_s = model.compute_time(pd.DataFrame([one]))[0] - model.parameters_["optimizer_s"]
    assert more == pytest.approx(4 * compute_s)


def test_of_several_workloads_the_rows_choose(workload):
    X = steps().assign(workload="small")
    y = planted_times(workload, X)
    other = dataclasses.replace(workload, name="other", parameters=9, gradient_tensors=None,
                                gradient_ready=None)  # fmt: skip
    model = StepTime({"small": workload, "other": other}).fit(X, y)
    assert model.predict(X) == pytest.approx(y, rel=0.05)
    with pytest.raises(FitError, match="one workload at a time"):
        StepTime({"other": other}).fit(X, y)
