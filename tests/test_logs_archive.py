import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import ConfigurationError, LogFormatError, MissingFileError

LOG = """\
# Collective test starting: all_reduce_perf
#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong
1048576 262144 float sum -1 104.9 10.00 15.00 0 110.0 9.53 14.30 0
"""


@pytest.fixture
def m(tmp_path):
    (tmp_path / "a.log").write_text(LOG)
    header = "workload,n_nodes,n_gpus,batch_per_gpu,step_time_s\n"
    steps = f"{header}w,1,1,8,0.1\nw,2,2,8,0.30000000000000004\n"
    (tmp_path / "steps.csv").write_text(steps)
    return pm.read_logs(tmp_path)


def assert_same(a, b):
    for name, table in a.tables().items():
        pd.testing.assert_frame_equal(table, getattr(b, name), check_exact=True)
    pd.testing.assert_frame_equal(a.sources, b.sources, check_exact=True)


def test_what_was_read_comes_back_exactly_with_its_sources(m, tmp_path):
    m.to_hdf5(tmp_path / "run.h5")
    again = pm.read_logs(tmp_path / "run.h5")
    assert_same(m, again)
    assert again.sources["sha256"].str.len().tolist() == [64, 64]
    assert again.collectives["source_line"].tolist() == [3, 3]


def test_types_missing_values_and_order_survive(tmp_path):
    steps = pd.DataFrame(
        {
            "step_time_s": np.array([1.5, np.nan, 5e-324]),
            "n_nodes": np.array([1, 2, 3], dtype="int32"),
            "staging": pd.array([True, None, False], dtype="boolean"),
            "n_gpus": pd.array([1, None, 3], dtype="Int64"),
            "workload": pd.array(["ä", None, ""], dtype="str"),
            "system": pd.Series(["x", None, np.nan], dtype=object),
            "target_value": pd.Series([1, 0.1, True], dtype=object),
            "checkpoint_mode": pd.Series([None, None, None], dtype=object),
        }
    )
    steps = steps[reversed(steps.columns)]
    m = pm.Measurements(steps=steps, power=pd.DataFrame({"power_watts": []}))
    m.to_hdf5(tmp_path / "x.h5")
    again = pm.read_logs(tmp_path / "x.h5")
    assert_same(m, again)
    assert again.steps["system"].tolist()[1] is None
    assert [type(value) for value in again.steps["target_value"]] == [int, float, bool]


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
mixed = st.one_of(texts, st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats())


@given(st.lists(st.tuples(st.floats(), mixed, texts), max_size=6))
@settings(deadline=None, max_examples=60)
def test_any_values_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("archive") / "x.h5"
    steps = pd.DataFrame(
        {
            "compute_time_s": np.array([row[0] for row in rows], dtype=float),
            "target_value": pd.Series([row[1] for row in rows], dtype=object),
            "workload": pd.Series([row[2] for row in rows], dtype="str"),
        }
    )
    m = pm.Measurements(steps=steps)
    m.to_hdf5(path)
    assert_same(m, pm.read_logs(path))


def test_plain_h5py_reads_it_with_units_and_definitions(m, tmp_path):
    m.to_hdf5(tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5") as file:
        column = file["collectives/time_s"]
        assert column[:].tolist() == pytest.approx([104.9e-6, 110e-6])
        assert column.attrs["unit"] == "s"
        assert "duration" in column.attrs["meaning"]
        assert column.compression == "gzip"
        assert file["collectives/collective"][0] == b"all_reduce"


def test_archives_and_logs_together(m, tmp_path):
    m.to_hdf5(tmp_path / "run.h5")
    both = pm.read_logs([tmp_path / "run.h5", tmp_path / "a.log"])
    assert len(both.collectives) == 4
    assert len(both.sources) == 3
    assert set(pm.read_logs(tmp_path / "run.h5", system="other").steps["system"]) == {"other"}


def test_what_is_no_archive_is_refused(m, tmp_path):
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file["x"] = [1, 2]
    with pytest.raises(LogFormatError, match="not written by"):
        pm.read_logs(tmp_path / "theirs.h5")
    m.to_hdf5(tmp_path / "run.h5")
    data = (tmp_path / "run.h5").read_bytes()
    for size in (9, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.h5").write_bytes(data[:size])
        with pytest.raises(LogFormatError, match=r"cut.h5: (a damaged|HDF5)"):
            pm.read_logs(tmp_path / "cut.h5")
    with h5py.File(tmp_path / "run.h5", "a") as file:
        file.attrs["version"] = 99
    with pytest.raises(LogFormatError, match="version 99"):
        pm.read_logs(tmp_path / "run.h5")


def test_what_cannot_be_archived_is_said_and_nothing_is_written(tmp_path):
    bad = pm.Measurements(steps=pd.DataFrame({"workload": [("a", "b")]}))
    with pytest.raises(ConfigurationError, match="workload holds a tuple"):
        bad.to_hdf5(tmp_path / "x.h5")
    bad = pm.Measurements(steps=pd.DataFrame({"workload": pd.Categorical(["a"])}))
    with pytest.raises(ConfigurationError, match="type category"):
        bad.to_hdf5(tmp_path / "x.h5")
    with pytest.raises(MissingFileError, match="make it first"):
        bad.__class__().to_hdf5(tmp_path / "no" / "x.h5")
    assert not (tmp_path / "x.h5").exists()


WRITER = """
import sys, pandas as pd, perfmodel as pm
path = sys.argv[1]
for i in range(10_000):
    rows = pd.DataFrame({"step_time_s": [float(i + 1)] * 20_000})
    pm.Measurements(steps=rows).to_hdf5(path)
    print(i, flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.01, 0.017])
def test_a_killed_write_leaves_a_whole_file(tmp_path, delay_s):
    path = tmp_path / "run.h5"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        for _ in range(3):
            last = int(writer.stdout.readline())
        time.sleep(delay_s)
        writer.send_signal(signal.SIGKILL)
    steps = pm.read_logs(path).steps
    assert len(steps) == 20_000
    assert steps["step_time_s"].eq(steps["step_time_s"].iloc[0]).all()
    assert steps["step_time_s"].iloc[0] >= last + 1
