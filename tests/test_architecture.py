"""Imports point one way only: from the commands and calibration down to the quantities."""

import ast
import subprocess
import sys

import pytest
from conftest import ROOT

# From the bottom up. A module may import from its own line and from the lines above it here.
LAYERS = [
    ["perfmodel.errors", "perfmodel.quantities", "perfmodel.files"],
    ["perfmodel.terminal", "perfmodel.configuration", "perfmodel.workload"],
    ["perfmodel.logs", "perfmodel.platform_file"],
    ["perfmodel.traffic"],
    ["perfmodel.models"],
    ["perfmodel._simgrid_worker", "perfmodel.simulator", "perfmodel.simulation"],
    ["perfmodel.cli"],
    ["calibration"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
SOURCES = sorted([*ROOT.glob("perfmodel/**/*.py"), *ROOT.glob("calibration/**/*.py")])


def level_of(module):
    names = [name for name in LEVEL if f"{module}.".startswith(f"{name}.")]
    return LEVEL[max(names, key=len)] if names else None


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write 'from {node.module} ...' in full"
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    module = module.removesuffix(".__init__")
    if module in ("perfmodel", "perfmodel.__main__"):
        return
    own = level_of(module)
    assert own is not None, f"{module} has no place in LAYERS yet"
    above = [name for name in imported(path) if (level_of(name) or 0) > own]
    assert not above, f"{module} imports from a layer above it: {above}"


def test_logs_know_no_model_and_models_know_no_log_format():
    for path in ROOT.glob("perfmodel/models/*.py"):
        formats = [name for name in imported(path) if name.startswith("perfmodel.logs.")]
        assert set(formats) <= {"perfmodel.logs.measurements"}, path


def test_only_the_worker_imports_simgrid_and_it_imports_nothing_of_ours():
    for path in SOURCES:
        roots = {name.split(".")[0] for name in imported(path)}
        if path.name == "_simgrid_worker.py":
            assert "simgrid" in roots
            assert not roots & {"perfmodel", "calibration"}
        else:
            assert "simgrid" not in roots, path


def test_calibration_uses_the_library_but_not_its_command():
    for path in ROOT.glob("calibration/*.py"):
        assert "perfmodel.cli" not in set(imported(path)), path


def test_library_code_guards_nothing_with_assert_and_never_prints():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(node, ast.Assert), path
            if path.name not in ("cli.py", "terminal.py") and isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") != "print", path


def test_importing_perfmodel_loads_nothing_heavy():
    code = "import sys, perfmodel; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"simgrid", "torch", "sklearn", "matplotlib", "pandas", "numpy", "scipy", "pydantic"}
    assert not heavy & set(run.stdout.split())


def test_every_public_name_can_be_loaded():
    import calibration
    import perfmodel

    for module in (perfmodel, perfmodel.models, calibration):
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(AttributeError):
            module.no_such_name  # noqa: B018
