# make demo: bake the template with its default answers, run one slot of it under faults, print the receipt.
# make test: everything that takes less than a few minutes. make test-slow: the rest.
# All need bash, make and Python 3.11 or newer; where Java or gcloud are found, `make test` tries more.

SHELL := bash
PROJECT := {{cookiecutter.project_slug}}
REQUIREMENTS := $(wildcard requirements*.txt $(PROJECT)/*/requirements.txt)
BIN := .venv/bin
# The newest Python on PATH that is new enough; PYTHON=/path/to/python takes another.
PYTHON = $(shell for name in python3.14 python3.13 python3.12 python3.11 python3 python; do \
  command -v $$name >/dev/null && $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && command -v $$name && break; done)

.PHONY: demo test test-slow sinks lint format clean
.DEFAULT_GOAL := test

demo: .venv/installed
	@rm -rf build
	@$(BIN)/cookiecutter --no-input --default-config --output-dir build .
	@echo "A project with the default answers is in build/; its demo:"
	@PIPELINE_PYTHON="$(CURDIR)/$(BIN)/python" build/*/pipeline demo

test: lint
	$(BIN)/pytest -n 2 -q -m "not slow"

test-slow: sinks
	$(BIN)/pytest -n 2 -q -m slow

# What the slow tests of the step templates try them on. An emulator with requirements of its own gets an environment of
# its own; what cannot be installed is skipped by its tests, with the reason.
sinks: .venv/installed
	-@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-sinks.txt
	@for name in bqemulator tasks; do \
	  [[ -x .venv/emulators/$$name/bin/pip ]] || $(BIN)/python -m venv .venv/emulators/$$name; \
	  .venv/emulators/$$name/bin/pip install --quiet --disable-pip-version-check -r tests/steps/requirements-$$name.txt \
	    || echo "make: the emulator $$name could not be installed; its tests are skipped" >&2; \
	done

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy hooks tests benchmarks $(addprefix $(PROJECT)/,exactly_once proxy functions data tools)
	cd "$(PROJECT)" && "$(CURDIR)/$(BIN)/mypy" --cache-dir ../.mypy_cache/project tests tools/step_templates
	$(BIN)/shellcheck .ci/run
	cd "$(PROJECT)" && "$(CURDIR)/$(BIN)/shellcheck" -x pipeline deploy.sh

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Installs again only when a requirements file has changed.
.venv/installed: $(REQUIREMENTS)
	@[[ -n "$(PYTHON)" ]] || { echo "make: needs Python 3.11 or newer on PATH (or PYTHON=/path/to/python)" >&2; exit 1; }
	@echo "Setting up .venv (once, and when requirements change)"
	@[[ -x $(BIN)/python ]] || "$(PYTHON)" -m venv .venv || { rm -rf .venv; \
	  echo "make: $(PYTHON) cannot make a virtual environment (on Debian: apt install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements-dev.txt
	@touch $@

clean:
	rm -rf build .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
