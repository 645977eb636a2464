"""The documentation says what the code does."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

import calibration.cli
import perfmodel.cli

DEMO = ROOT / "docs" / "examples" / "demo.sh"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.usefixtures("needs_simgrid")
def test_the_example_of_the_readme_runs():
    (example,) = python_blocks(ROOT / "README.md")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("n_nodes") == 3


def test_every_command_is_documented():
    conf = (ROOT / "docs" / "conf.py").read_text()
    for program in (perfmodel.cli, calibration.cli):
        for command in program.app.registered_commands:
            name = command.name or command.callback.__name__
            assert f'"{name}"' in conf, f"add {name} to commands() in docs/conf.py"


def test_the_nomenclature_is_a_page_of_the_docs():
    assert "generated/nomenclature" in (ROOT / "docs" / "index.rst").read_text()


@pytest.mark.usefixtures("needs_simgrid")
def test_the_demo_prints_what_the_tutorial_shows(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin", prepend=":")
    monkeypatch.delenv("PERFMODEL_CASES", raising=False)
    run = subprocess.run(
        ["sh", DEMO.relative_to(ROOT), tmp_path / "out"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    shown = DEMO.with_suffix(".out").read_text()
    printed = run.stdout.replace(str(tmp_path / "out"), "demo-output")
    assert_same_but_for_rounding(printed, shown)


def assert_same_but_for_rounding(printed, shown):
    """Equal words in equal order; numbers may differ by 1 %, as other processors round."""
    words, expected = printed.split(), shown.split()
    assert [NUMBER.sub("N", word) for word in words] == [NUMBER.sub("N", w) for w in expected]
    for word, want in zip(words, expected, strict=True):
        numbers = [[float(n) for n in NUMBER.findall(w)] for w in (word, want)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.01, abs=0.11), (word, want)
