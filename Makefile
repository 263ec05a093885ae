# Every target works from a fresh clone with nothing but Python: it creates .venv and installs by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: quickstart install test lint types pytest format clean

quickstart: install
	$(BIN)/mann quickstart

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

test: lint types pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

pytest: install
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
