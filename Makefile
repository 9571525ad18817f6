PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
PYTEST_ARGS ?=
say = @printf '\n==> %s\n'

# The stamps carry the install state: change pyproject.toml or constraints.txt and the next target installs again.
RUNTIME := $(VENV)/.stamp-runtime
DEV := $(VENV)/.stamp-dev

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint lint-style lint-format lint-types lint-imports format bench eval train clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	$(say) "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# torch comes first and alone: the installer then takes the local CPU build where one is offered.
$(RUNTIME): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(say) "installing torch (the largest part)"
	@$(PIP) torch==2.13.0
	$(say) "installing hypic-agents and its dependencies"
	@$(PIP) --editable .
	@touch $@

$(DEV): $(RUNTIME)
	$(say) "installing the development tools"
	@$(PIP) --editable '.[dev]'
	@touch $@

.venv: $(RUNTIME)

demo: $(RUNTIME) ## answer questions over documents in changing order, with and without reuse
	$(say) "demo: the same questions under full recompute and under reuse"
	@$(BIN)/hypic-agents demo

test: $(DEV) ## fast tests
	$(say) "fast tests"
	@$(BIN)/pytest -m "not slow" $(PYTEST_ARGS)

test-all: $(DEV) ## all tests, the slow ones too
	$(say) "all tests"
	@$(BIN)/pytest $(PYTEST_ARGS)

lint: lint-style lint-format lint-types lint-imports ## every static check

lint-style: $(DEV)
	$(say) "ruff check"
	@$(BIN)/ruff check .

lint-format: $(DEV)
	$(say) "ruff format --check"
	@$(BIN)/ruff format --check .

lint-types: $(DEV)
	$(say) "mypy --strict"
	@$(BIN)/mypy

lint-imports: $(DEV)
	$(say) "import layers"
	@$(BIN)/lint-imports

format: $(DEV) ## rewrite files to the house style
	$(say) "ruff format, then the fixes that ruff is sure of"
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(RUNTIME) ## speed: warm prompts, and the cost of composing segments
	$(say) "benchmark: warm prompts"
	@$(BIN)/hypic-agents bench warm
	$(say) "benchmark: composing segments"
	@$(BIN)/hypic-agents bench compose

eval: $(RUNTIME) ## answer quality of every reuse policy against full recompute
	$(say) "evaluation: every policy on the same questions"
	@$(BIN)/hypic-agents eval

train: $(RUNTIME) ## train both bundled models again (168 minutes on two cores)
	$(say) "training hypic-tiny-plain, then hypic-tiny from it"
	@OMP_NUM_THREADS=1 $(BIN)/python -m training.train --out runs/plain --minutes 108
	@mkdir -p runs/tiny && cp runs/plain/checkpoint.pt runs/tiny/
	@OMP_NUM_THREADS=1 $(BIN)/python -m training.train --out runs/tiny --minutes 168 --threads 2 --seed 1 --isolate-share 0.5 --resume

clean: ## remove caches and build outputs; the virtual environment stays
	$(say) "removing caches and build outputs"
	@rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov
	@find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +
