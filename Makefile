# make demo | test | check | bench | soak. Each sets up .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOAK_STAMP := $(VENV)/.installed-soak

.PHONY: demo test check lint bench soak docs clean help

help:
	@echo "make demo   the main job on SQLite, no keys, no network"
	@echo "make test   all tests"
	@echo "make check  lint, types, import rules, tests"
	@echo "make bench  costs, as ratios against the physical limit"
	@echo "make soak   long searches (bounded by SOAK_MINUTES, default 30)"
	@echo "make docs   write the generated reference pages"

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[postgres,openai,litellm,anthropic,gemini,seal]' --group dev
	@touch $(STAMP)

$(SOAK_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --group soak
	@touch $(SOAK_STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

bench: $(STAMP)
	$(BIN)/python -m benchmarks

SOAK_MINUTES ?= 30
export SOAK_MINUTES

soak: $(STAMP) $(SOAK_STAMP)
	$(BIN)/python -m pytest -m soak

docs: $(STAMP)
	$(BIN)/python -m docs.generate

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
