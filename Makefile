# Two commands set everything up on a fresh Debian 12 machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# SimGrid takes minutes to build, so its wheel is kept outside the checkout, one for each Python.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/perfmodel
PYTHON_TAG = $(shell $(PYTHON) -c 'import sys, sysconfig; print(sys.implementation.cache_tag + "-" + sysconfig.get_platform())')
SIMGRID = $(CACHE)/simgrid-4.1-$(PYTHON_TAG)

.PHONY: demo test test-slow docs bench validate lint setup clean

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" sh docs/examples/demo.sh demo-output

test: lint
	$(BIN)/python -m pytest -n auto

# Among them the testbed, which builds a network of namespaces: it needs root and torch.
test-slow: .venv/testbed
	$(BIN)/python -m pytest -m slow -n 0 --ignore tests/validation

.venv/testbed: .venv/installed
	@.ci/debian-packages $(PYTHON) iproute2:ip ethtool:ethtool
	$(BIN)/python -m pip install --quiet torch==2.13.0
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: setup
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: setup
	$(BIN)/python -m pytest tests/benchmarks -n 0 --benchmark-only

validate: setup
	$(BIN)/python -m pytest tests/validation -n 0 -s -m "slow or not slow"

setup: .venv/installed

.venv/installed: setup.cfg pyproject.toml | $(SIMGRID)
	$(BIN)/python -m pip install --quiet $(SIMGRID)/simgrid-4.1-*.whl
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

.venv/bin/python:
	@.ci/debian-packages $(PYTHON)
	$(PYTHON) -m venv .venv

# pybind11 3 does not compile SimGrid 4.1; old pips read PIP_CONSTRAINT for build dependencies, new
# ones PIP_BUILD_CONSTRAINT. Without the run path the wheel cannot find its own library; -s drops
# 70 MB of debug symbols. --no-cache-dir: an earlier wheel in pip's cache may lack the run path.
# --use-pep517: Debian's pip would else run setup.py without the build's dependencies.
$(SIMGRID): | .venv/bin/python
	@echo "Building SimGrid 4.1 from its source release: once, about 5 minutes on 2 cores" >&2
	mkdir -p $(CACHE)
	work=$$(mktemp -d $(CACHE)/building.XXXXXX) && trap 'rm -rf "$$work"' EXIT && \
	echo 'pybind11<3' > $$work/constraint.txt && \
	LDFLAGS='-Wl,-rpath,\$$ORIGIN -s' PIP_CONSTRAINT=$$work/constraint.txt \
	PIP_BUILD_CONSTRAINT=$$work/constraint.txt $(BIN)/python -m pip wheel --quiet --no-deps \
	    --no-cache-dir --no-binary simgrid --use-pep517 --wheel-dir $$work/wheel simgrid==4.1 && \
	mv -T $$work/wheel $@

clean:
	rm -rf .venv build dist demo-output docs/_build docs/generated *.egg-info
