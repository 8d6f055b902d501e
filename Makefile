# Every target sets up all it needs: a .venv made with pip, once, and again when
# pyproject.toml, setup.py, requirements.lock or the C sources change.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
INPUTS := pyproject.toml setup.py requirements.lock $(wildcard src/tokenreel/native/*.c src/tokenreel/native/*.h)

.PHONY: help setup lock demo test soak check docs screenshots format bench clean

help:
	@echo "make demo    what tokenreel does, in a minute, on this machine"
	@echo "make test    the test suite, kernels native and in numpy"
	@echo "make check   format, lint, types, documentation, tests"
	@echo "make docs    the documentation as a site in build/site; fails on a broken link"
	@echo "make bench   every benchmark, as ratios within one run"
	@echo "make screenshots   the pictures of the viewer in docs/pictures (needs chromium)"
	@echo "make lock    the versions and hashes of all that is installed"
	@echo "make soak    the long runs: many kills, many crash points, sanitizers"

setup: $(STAMP)

# torch is pinned: a looser request would fetch gigabytes of CUDA packages.
$(STAMP): $(INPUTS)
	$(PYTHON) -c 'import sys; sys.exit("tokenreel needs Python 3.11 or newer, found " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $(STAMP)

# What torch needs is named here, because torch itself is left out: its builds differ by device.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv
	echo torch > build/without.txt
	printf 'filelock\nfsspec\njinja2\nnetworkx\nsympy\ntyping-extensions\n' > build/torch_needs.in
	build/lock/bin/uv pip compile pyproject.toml build/torch_needs.in --extra dev --constraints constraints.txt \
	  --excludes build/without.txt --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.lock

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

# What a run has counted is printed at its end (-rP).
soak: $(STAMP)
	$(BIN)/python -m pytest -n auto -m soak --timeout=3600 -rP
	$(BIN)/python scripts/mutate.py --count 150 --least 0.95

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) docs
	$(MAKE) test

# Strict: a page, an anchor or a name that is not there fails, and so does a request to another host.
docs: $(STAMP)
	$(BIN)/python scripts/make_docs.py

# As a module: it drives the page as its tests do.
screenshots: $(STAMP)
	$(BIN)/python -m scripts.screenshots

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m benchmarks all

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/tokenreel/*.so
