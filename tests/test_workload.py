import dataclasses

import pytest

import perfmodel as pm
from perfmodel.errors import MissingFileError, WorkloadError

MIB = 2**20


def test_toml_round_trip_gives_the_same_value(workload, tmp_path):
    odd = dataclasses.replace(workload, name='a "b" \\ \n\x7f', source="ü")
    odd.to_toml(tmp_path / "w.toml")
    assert pm.Workload.from_toml(tmp_path / "w.toml") == odd


def test_a_workload_is_a_value(workload):
    assert hash(workload) == hash(dataclasses.replace(workload))
    with pytest.raises(dataclasses.FrozenInstanceError):
        workload.parameters = 3


def test_buckets_close_once_they_hold_their_limit(workload):
    assert workload.buckets() == [
        (2_000_000, 0.2),
        (1_200_000, 0.5),
        (1_400_000, 1.0),
    ]


def test_half_the_bytes_in_half_precision(workload):
    sizes = [size for size, _ in workload.buckets("bf16")]
    assert sum(sizes) == workload.gradient_bytes // 2


def test_without_tensors_the_gradient_is_cut_at_the_limits():
    w = pm.Workload(name="w", parameters=20_000_000)
    sizes = [size for size, _ in w.buckets()]
    assert sizes == [MIB, 25 * MIB, 25 * MIB, 25 * MIB, 80_000_000 - 76 * MIB]
    assert w.buckets()[-1][1] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'w'\nparameters = -1", "parameters is -1; it must be above 0"),
        ("name = 'w'\nparameters = 'many'", "parameters: .*integer"),
        ("name = 'w'", "parameters: .*(required|missing)"),
        ("name = 'w'\nparameters = 4\nparameter = 3", "did you mean 'parameters'"),
        ("name = 'w'\nparameters = 4\ngradient_tensors = [1, 2]", "add up to 3"),
        (
            "name = 'w'\nparameters = 3\ngradient_tensors = [1, 2]\ngradient_ready = [1.0, 0.5]",
            "must rise",
        ),
        ("name = 'w'\nparameters = 3\ngradient_ready = [1.0]", "one share for each"),
        ("name = ", "not TOML"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_file_and_key(tmp_path, text, message):
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=message) as caught:
        pm.Workload.from_toml(path)
    assert "job.toml" in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [{"parameters": "many"}, {"parameters": 1.5}, {"parameters": None}, {"sample_bytes": True},
     {"gradient_tensors": (1, "2")}, {"gradient_tensors": (4, -1)},
     {"critical_batch": float("nan")}],
)  # fmt: skip
def test_a_wrong_figure_is_refused(wrong):
    with pytest.raises(WorkloadError, match=next(iter(wrong))):
        pm.Workload(**({"name": "w", "parameters": 3} | wrong))


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(MissingFileError) as caught:
        pm.Workload.from_toml(tmp_path / "no.toml")
    assert isinstance(caught.value, FileNotFoundError)


def test_a_missing_figure_is_named_by_what_needs_it():
    w = pm.Workload(name="w", parameters=3)
    with pytest.raises(WorkloadError, match="'w' lacks dataset_samples"):
        w.require("parameters", "dataset_samples")
