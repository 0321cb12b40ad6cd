# `make demo` and `make test` start from nothing but Python: they make .venv, install into it and run. Stamps in .venv
# say what is installed, so that the second call goes straight to work.

PYTHON ?= python3
OUT ?= demo

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
TORCH := $(VENV)/.torch
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
ENGLISH := models/english

# The documentation theme's notice about another generator's next version.
export NO_MKDOCS_2_WARNING := true

.PHONY: help demo test lint types contracts docs course pytest slow fuzz kills bench bench-quick format clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO)  ## words in context, with pictures in demo/ (or OUT=folder); a filled mask, a written text, scores
	$(BIN)/python examples/demo.py -o $(OUT)

test: lint types contracts docs pytest  ## everything that must hold before a change lands

lint: $(DEV)  ## style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(DEV)  ## types, strictly
	$(BIN)/mypy

contracts: $(DEV)  ## which room imports from which
	$(BIN)/lint-imports --no-logo

docs: $(DEV)  ## the documentation, into site/
	$(BIN)/mkdocs build --strict --quiet

course: $(DEV)  ## run the notebooks of examples/course, and keep their outputs (or one of them: NOTEBOOK=name)
	$(BIN)/python examples/course/execute.py $(NOTEBOOK)

# Tests run two at a time; a thread each is enough. Their rewritten assertions are kept for the next run.
pytest slow fuzz: export OMP_NUM_THREADS := 1
pytest slow: export PYTHONDONTWRITEBYTECODE :=

pytest: $(DEV)  ## tests, without the slow ones
	$(BIN)/pytest

slow: $(DEV)  ## the slow tests
	$(BIN)/pytest -m slow

fuzz: $(DEV)  ## random command lines, minutes; SEED=… and COUNT=… repeat a run, CASE=… one line of it
	$(BIN)/python tests/fuzz/run.py $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(CASE),--case $(CASE))

# Scripts with a table of their own: not those that only other scripts call, nor those that need a command.
TABLES = $(filter-out benchmarks/quick.py benchmarks/growth%,$(sort $(shell grep -l __main__ benchmarks/*.py)))

bench: $(DEV)  ## print the tables of benchmarks/ with their whole load (or of one: BENCH=benchmarks/name.py)
	@failed=; for script in $(or $(BENCH),$(TABLES)); do \
		echo "== $$script"; $(BIN)/python $$script || failed="$$failed $$script"; \
	done; if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

bench-quick: $(DEV)  ## every ratio of a CPU with its floor, in ten minutes (ONLY="embed generate", JSON=file)
	$(BIN)/python benchmarks/quick.py $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON))

kills: $(DEV)  ## stop every verb at random moments, make it again, and compare (TRIES=200)
	$(BIN)/python tests/kill_every_verb.py --tries $(or $(TRIES),200) --seed $(or $(SEED),0)

format: $(DEV)  ## rewrite the code as `make lint` wants it
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:  ## remove what make made
	rm -rf $(VENV) site demo build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# --- .venv -----------------------------------------------------------------------------------------------------------

$(TORCH): constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt torch
	@touch $@

$(DEMO): pyproject.toml $(ENGLISH)/pyproject.toml $(TORCH)
	$(PIP) install -c constraints.txt -e '.[demo]' -e ./$(ENGLISH)
	@touch $@

$(DEV): pyproject.toml $(ENGLISH)/pyproject.toml $(TORCH)
	$(PIP) install -c constraints.txt -e '.[dev]' -e ./$(ENGLISH)
	@touch $(DEMO) $@
