import pandas as pd
import pytest

import perfmodel as pm
from perfmodel.configuration import column, complete, refuse_unsupported
from perfmodel.errors import ConfigurationError


def test_the_grid_has_every_combination_and_keeps_its_axes():
    c = pm.configurations(n_nodes=[1, 2], gpus_per_node=4, batch_per_gpu=[8, 16])
    assert c[["n_nodes", "batch_per_gpu"]].to_numpy().tolist() == [[1, 8], [1, 16], [2, 8], [2, 16]]
    assert c["n_gpus"].tolist() == [4, 4, 8, 8]
    assert c["global_batch"].tolist() == [32, 64, 64, 128]
    assert c.attrs["axes"]["n_nodes"] == [1, 2]


def test_global_batch_gives_the_batch_of_a_gpu():
    c = pm.configurations(n_nodes=2, gpus_per_node=4, global_batch=64, accumulation_steps=2)
    assert c["batch_per_gpu"].tolist() == [4]


def test_model_parallelism_leaves_fewer_replicas():
    c = pm.configurations(n_nodes=2, gpus_per_node=4, batch_per_gpu=3, tensor_parallel=4)
    assert c["global_batch"].tolist() == [6]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"n_nodes": 0, "gpus_per_node": 1}, "n_nodes is 0"),
        ({"n_nodes": 1.5, "gpus_per_node": 1}, "whole number"),
        ({"n_nodes": 2}, "gpus_per_node or n_gpus"),
        ({"gpus_per_node": 2}, "needs n_nodes"),
        ({"n_nodes": 4, "n_gpus": 2}, "every node needs at least one"),
        ({"n_nodes": 2, "n_gpus": 4, "gpus_per_node": 4}, "n_gpus is 4 in row 0, but"),
        ({"n_nodes": 3, "gpus_per_node": 1, "global_batch": 64}, "not divisible"),
        ({"n_nodes": 1, "n_gpus": 2, "tensor_parallel": 3}, "not divisible"),
        ({"n_nodes": 1, "gpus_per_node": 1, "dtype": "fp64"}, "fp32, fp16"),
        ({"n_nodes": [], "gpus_per_node": 1}, "no values"),
    ],
)
def test_contradictions_are_errors_that_say_what_was_found(axes, message):
    with pytest.raises(ConfigurationError, match=message):
        pm.configurations(**axes)


def test_an_unknown_column_offers_the_nearest():
    with pytest.raises(KeyError, match="did you mean 'n_nodes'"):
        pm.configurations(n_node=2)


def test_other_columns_and_the_index_are_kept():
    table = pd.DataFrame({"n_nodes": [2], "n_gpus": [6], "note": ["a"]}, index=[7])
    assert complete(table).loc[7, "note"] == "a"


def test_a_missing_column_means_its_default():
    c = pm.configurations(n_nodes=[1, 2], gpus_per_node=1)
    assert column(c, "dtype").tolist() == ["fp32", "fp32"]


def test_what_cannot_be_treated_is_refused_by_name():
    c = pm.configurations(n_nodes=1, gpus_per_node=1, sharding=["ddp", "zero3"])
    with pytest.raises(ConfigurationError, match="sharding = 'zero3'"):
        refuse_unsupported(c, ("n_nodes", "gpus_per_node", "n_gpus"), "volumes")
    default = pm.configurations(n_nodes=1, gpus_per_node=1, sharding="ddp")
    refuse_unsupported(default, ("n_nodes", "gpus_per_node", "n_gpus"), "volumes")
