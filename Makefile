# Every target works from a fresh clone with nothing but Python: it creates .venv and installs by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: quickstart install constraints test lint types pytest docs format clean

quickstart: install
	$(BIN)/mann quickstart

install: $(VENV)/.installed

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The exact versions in constraints.txt, so that a dependency that moves breaks nothing here.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

# The newest versions that pyproject.toml allows. Run it with the oldest supported Python, then `make test`.
constraints: | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --report $(VENV)/report.json ".[dev,docs,export,photos,tensorboard,web]"
	$(BIN)/python tools/constraints.py $(VENV)/report.json > constraints.txt

test: lint types pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

# One worker more than there are cores: tests wait for browsers, servers and signals a third of their time.
pytest: install
	$(BIN)/python -m pytest --numprocesses $$(($$($(BIN)/python -c "import os; print(os.cpu_count())") + 1)) --dist worksteal

# The site in site/, to be opened as files: a broken link, a missing page or an unknown name fails, and so does anything
# that a browser would fetch from elsewhere.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@! grep -rE '<(script|link|img|iframe)[^>]* (src|href)="(https?:)?//' site --include='*.html'
	@echo "Open site/index.html"

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	touch $@

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
