PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: setup demo test test-slow check format clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	PATH="$(abspath $(BIN)):$$PATH" examples/demo.sh

# Tests of one process side by side; those that start ranks take all cores by themselves.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not slow and not gpu' --numprocesses 2 --dist loadfile --ignore tests/integration
	$(BIN)/pytest -m 'not slow and not gpu' tests/integration

test-slow: setup
	$(BIN)/pytest -m 'slow'

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
