# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs in a virtual environment, .venv, and renews that when pyproject.toml changes:
# `demo`, `bench` and `support` the product, the others also the tools of developers.
# Needs Python 3.11 or newer with venv, and pip access to a package index. Choose the interpreter with PYTHON=python3.12.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PRODUCT := $(VENV)/.installed
TOOLS := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs

.PHONY: demo test lint types docs bench support check build clean

demo: $(PRODUCT)  ## the README's search: Qwen3-32B on 32 H200, from the shell to a ranked table
	$(BIN)/aicjax search --model Qwen/Qwen3-32B-FP8 --system h200_sxm --backend trtllm --total-gpus 32 \
		--isl 4000 --osl 500 --prefix 500 --ttft 300 --tpot 10

test: $(TOOLS)  ## the whole suite; PYTEST_ARGS="-m 'not slow'" for the quick part
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(TOOLS)  ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TOOLS)  ## static types (pyright needs Node.js, or fetches it)
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(DOCS)  ## the documentation as a site in site/; a broken link or a wrong docstring fails
	NO_MKDOCS_2_WARNING=1 PATH="$(BIN):$$PATH" $(BIN)/mkdocs build --quiet --strict --config-file docs/builder/mkdocs.yml

bench: $(PRODUCT)  ## throughput, and agreement with the stored answers of the tests
	$(BIN)/python -m benchmarks

support: $(PRODUCT)  ## docs/support.md: which bundled models run where (ten minutes on two cores)
	$(BIN)/python -m aicjax.report.support_page docs/support.md

check: lint types docs test  ## all of the above but the benchmarks

build: $(TOOLS)  ## sdist and wheel in dist/
	$(BIN)/python -m build

$(PRODUCT): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "aicjax needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) has no venv module (on Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --editable .
	@touch $@

$(TOOLS): $(PRODUCT)
	$(BIN)/python -m pip install -qq --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -qq --group dev
	@touch $@

$(DOCS): $(TOOLS)
	$(BIN)/python -m pip install -qq --group docs
	@touch $@

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .hypothesis
