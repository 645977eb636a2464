import configparser
import subprocess
import sys
import venv
from importlib.resources import files

import pytest
from conftest import ROOT


def test_every_package_is_listed_in_setup_cfg():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    on_disk = {"calibration", "perfmodel.platforms"}
    for init in ROOT.glob("perfmodel/**/__init__.py"):
        on_disk.add(".".join(init.parent.relative_to(ROOT).parts))
    assert listed == on_disk


def test_shipped_platforms_are_package_data():
    shipped = {entry.name for entry in files("perfmodel.platforms").iterdir()}
    assert {path.name for path in ROOT.glob("platforms/*.xml")} <= shipped


def test_versions_agree():
    import perfmodel

    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["metadata"]["version"] == perfmodel.__version__
    assert f"version: {perfmodel.__version__}" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.slow
def test_a_wheel_installs_without_simgrid_and_works_from_another_folder(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("perfmodel-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True)
    code = """
import perfmodel as pm
w = pm.Workload(
    name="w", parameters=1000, forward_flops_per_sample=1.0, backward_flops_per_sample=2.0
)
c = pm.configurations(n_nodes=2, gpus_per_node=1, batch_per_gpu=8)
print(pm.volumes(w, c)["communication_bytes"][0], pm.platform("testbed").hosts()[0])
try:
    pm.simulate(w, c, "testbed")
except ImportError as error:
    print(type(error).__name__, "perfmodel[simulation]" in str(error))
"""
    run = subprocess.run(
        [python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.split("\n")[:2] == ["4000.0 host0", "MissingExtraError True"]
    help_text = [tmp_path / "env" / "bin" / "perfmodel-calibrate", "--help"]
    subprocess.run(help_text, cwd=tmp_path, check=True, capture_output=True)
