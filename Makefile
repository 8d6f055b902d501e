# Every target sets up all it needs: a .venv made with pip, once, and again when
# pyproject.toml, setup.py, constraints.txt or the C sources change.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
INPUTS := pyproject.toml setup.py constraints.txt $(wildcard src/tokenreel/native/*.c src/tokenreel/native/*.h)

.PHONY: help setup demo test soak check format bench clean

help:
	@echo "make demo    what tokenreel does, in a minute, on this machine"
	@echo "make test    the test suite, kernels native and in numpy"
	@echo "make check   format, lint, types, tests"
	@echo "make bench   every benchmark, as ratios within one run"
	@echo "make soak    the long runs: many kills, many crash points"

setup: $(STAMP)

# torch first and pinned: a looser request would fetch gigabytes of CUDA packages.
$(STAMP): $(INPUTS)
	$(PYTHON) -c 'import sys; sys.exit("tokenreel needs Python 3.11 or newer, found " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/tokenreel demo

# The whole suite with the native kernels, then what touches a kernel in numpy alone.
# One thread for each test: the cores are the workers'. Bytecode is kept, whatever the environment
# says: else each worker rewrites all assertions, and each process that a test starts compiles anew.
test: export OMP_NUM_THREADS = 1
test soak: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not soak"
	TOKENREEL_NATIVE=0 $(BIN)/python -m pytest -q -n auto -m "not soak" tests/native tests/order/test_permutation.py tests/order/test_mixture.py tests/feed/test_gather.py tests/rows/test_packing.py

soak: $(STAMP)
	$(BIN)/python -m pytest -n auto -m soak --timeout=3600

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m benchmarks all

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/tokenreel/*.so
