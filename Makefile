# Every target sets up what it needs in .venv on first use: git, make and any Python 3 are enough.
#   make demo    simulate, fit, compare with the truth, write a report
#   make test    the tests, but for the examples of the docs
#   make test-quick  without those that take more than a few seconds
#   make lint    ruff, pyright, import rules
#   make package  build wheel and sdist, and try the wheel on its own
#   make try-versions  the wheel on each Python, with pinned and newest dependencies (weekly, before a release)
#   make docs    build site/ and run every example of README and docs

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
# Imports are three times slower without compiled bytecode, so a shell that forbids writing it is overruled.
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq install -c constraints.txt

# Tests run in parts, each in processes of its own: a process has room for so many compiled programs.
PARTS = tests/methods tests/uncertainty "tests --ignore=tests/methods --ignore=tests/uncertainty"

.PHONY: help demo test test-quick lint format types imports package try-versions docs site examples setup clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.run
	@$(BIN)/sdefit demo

test: $(VENV)/.dev
	@for part in $(PARTS); do $(BIN)/python -m pytest -n 2 -m "not docs" $$part $(PYTEST) || exit 1; done

test-quick: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 -m "not docs and not slow" $(PYTEST)

lint: format types imports

format: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(VENV)/.dev
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/.dev
	@$(BIN)/lint-imports --no-logo

package: $(VENV)/.dev
	@.ci/try-package

try-versions: $(VENV)/.dev
	@.ci/try-versions

docs: site examples

site: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict
	@echo "docs: site/index.html"

examples: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 -m docs

setup: $(VENV)/.dev

clean:
	rm -rf $(VENV) .boot site dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.python: .ci/find-python
	@python=$$(.ci/find-python) && echo "set-up: virtual environment with $$python" && "$$python" -m venv --clear $(VENV)
	@$(PIP) pip
	@touch $@

$(VENV)/.run: $(VENV)/.python pyproject.toml constraints.txt
	@echo "set-up: sdefit and what it needs (once, a minute or two)"
	@$(PIP) --group build
	@$(PIP) --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "set-up: tools for tests, lint and docs (once)"
	@$(PIP) --no-build-isolation --group dev -e '.[cluster,polars]'
	@touch $@
