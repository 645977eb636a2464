import pytest

import perfmodel as pm
from perfmodel.errors import ConfigurationError, WorkloadError
from perfmodel.traffic import ring_traffic


def test_one_rank_communicates_nothing(workload):
    v = pm.volumes(workload, {"n_nodes": 1, "n_gpus": 1})
    assert v["communication_bytes"][0] == v["messages"][0] == 0


@pytest.mark.parametrize("p", [2, 3, 8, 64])
def test_each_rank_of_a_ring_sends_twice_p_less_one_pths_of_the_gradient(workload, p):
    v = pm.volumes(workload, {"n_nodes": p, "n_gpus": p})
    expected = 2 * (p - 1) / p * workload.parameters * 4
    assert v["communication_bytes"][0] == pytest.approx(expected)
    assert v["communication_bytes_total"][0] == pytest.approx(p * expected)
    assert v["messages"][0] == 2 * (p - 1) * 3  # in three buckets


def test_of_the_hops_of_a_ring_one_leaves_each_node(workload):
    v = pm.volumes(workload, {"n_nodes": 2, "gpus_per_node": 4})
    assert v["inter_node_bytes"][0] == pytest.approx(v["communication_bytes"][0] / 4)
    both = v["inter_node_bytes"] + v["intra_node_bytes"]
    assert both[0] == pytest.approx(v["communication_bytes"][0])
    alone = pm.volumes(workload, {"n_nodes": 1, "gpus_per_node": 4})
    assert alone["inter_node_bytes"][0] == 0


def test_a_period_is_its_steps(workload):
    c = {"n_nodes": 2, "gpus_per_node": 1, "batch_per_gpu": 32, "samples_to_target": 1_000_000}
    step, epoch, run = (pm.volumes(workload, c, per=per) for per in ("step", "epoch", "run"))
    steps = -(-50_000 // 64)
    assert epoch["communication_bytes"][0] == pytest.approx(step["communication_bytes"][0] * steps)
    assert run["communication_bytes"][0] == pytest.approx(step["communication_bytes"][0] * 15625)
    assert step["read_bytes"][0] == 64 * 3000


def test_a_run_needs_to_know_its_samples(workload):
    c = {"n_nodes": 2, "gpus_per_node": 1, "batch_per_gpu": 32}
    with pytest.raises(ConfigurationError, match=r"samples_to_target.*critical_batch"):
        pm.volumes(workload, c, per="run")
    with pytest.raises(WorkloadError, match="dataset_samples"):
        pm.volumes(pm.Workload(name="w", parameters=1), c, per="epoch")
    with pytest.raises(KeyError, match="epoch"):
        pm.volumes(workload, c, per="epoc")


def test_what_is_not_counted_yet_is_refused_by_name(workload):
    c = {"n_nodes": 2, "gpus_per_node": 1, "compression": "powersgd:2"}
    with pytest.raises(ConfigurationError, match="compression = 'powersgd:2'"):
        pm.volumes(workload, c)


def test_an_allreduce_is_a_reduce_scatter_and_an_all_gather():
    both = [ring_traffic(name, 1000.0, 4) for name in ("reduce_scatter", "all_gather")]
    together = tuple(a + b for a, b in zip(*both, strict=True))
    assert ring_traffic("all_reduce", 1000.0, 4) == together
