# Two commands matter: `make demo` and `make test`. Both set everything up on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-slow lint types unit setup bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("sagefl needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) (first time only, a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[sim,study,node,view,cifar,tensorboard]" --group dev
	@touch $@

demo: setup
	@$(BIN)/sagefl decide examples/losses.csv
	@echo
	@$(BIN)/sagefl compare --clients 20 --rounds 10 --eval-every 5 --out runs/demo
	@echo
	@$(BIN)/sagefl study paper --preset smoke --out runs/study-smoke --brief

test: setup lint types unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

unit: setup
	$(BIN)/pytest -m "not slow"

test-slow: setup
	$(BIN)/pytest -m slow

bench: setup
	$(BIN)/python benchmarks/decision.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
