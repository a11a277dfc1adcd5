# Two commands matter: `make demo` and `make test`. Both set everything up on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready# every command but those of rare extras
STAMP  := $(VENV)/.installed# and what tests and documentation need
COMMANDS := sim,study,node,view
EVERYTHING := $(COMMANDS),ray,cifar,tensorboard,docs

# A long command with a dot every five seconds, so that one sees that it is alive.
alive = (while sleep 5; do printf .; done) & dots=$$!; $(1); status=$$?; kill $$dots; echo; exit $$status

# Tests start hundreds of short processes: keep compiled files, also where the environment says not to.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow test-root test-lowest test-neighbours lint types unit lock docs setup bench clean

setup: $(STAMP)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("sagefl needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@printf "Setting up $(VENV) (first time only, a few minutes) "
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	@$(call alive,$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(COMMANDS)]")
	@touch $@

$(STAMP): $(READY)
	@printf "Adding what tests and documentation need (first time only, a few minutes more) "
	@$(call alive,$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[$(EVERYTHING)]" --group dev)
	@touch $@

demo: $(READY)
	@$(BIN)/sagefl decide examples/losses.csv
	@echo
	@$(BIN)/sagefl scout --config examples/demo/groups.toml
	@echo
	@$(BIN)/sagefl scout --config examples/demo/alike.toml
	@echo
	@$(BIN)/python examples/demo/conclude.py runs/demo

test: setup lint types unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

unit: setup
	$(BIN)/pytest -m "not slow" --timeout 300 -n auto --maxprocesses 4 --dist loadfile

test-slow: setup
	$(BIN)/pytest -m slow --timeout 1800 -n auto --maxprocesses 4 --dist loadfile

test-root: setup # tests that cut networks and fill disks of their own, and are skipped for anybody but root
	$(BIN)/pytest --timeout 1800 tests/node/test_network_partition.py tests/node/test_chaos.py \
		tests/node/test_members.py::test_a_full_disk_with_the_log_on_it_stops_nothing_and_readiness_says_so

test-lowest: # the oldest versions that pyproject.toml allows, in build/lowest; torch as in constraints.txt
	PYTHON=$(PYTHON) tools/lowest.sh build/lowest

test-neighbours: # beside Flower and inside fluke, each in an environment of its own below build/
	PYTHON=$(PYTHON) tools/neighbours.sh

lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra sim --extra study --extra node --extra view -c constraints.txt \
		--generate-hashes --no-header --no-emit-index-url --no-annotate -o requirements.lock

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The documentation is in site/index.html"

bench: setup
	$(BIN)/python benchmarks/decision.py
	$(BIN)/python benchmarks/importing.py
	$(BIN)/python benchmarks/knowing.py
	$(BIN)/python benchmarks/memory.py

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
