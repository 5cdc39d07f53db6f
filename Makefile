# make demo | test | up | check | bench | crash. Each does the set-up that it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
REQUIREMENTS := requirements.txt requirements-dev.txt trainers/requirements.txt localazure/pyproject.toml constraints.txt

.PHONY: help setup demo test up check format bench crash clean
.DEFAULT_GOAL := help

help:
	@sed -n '1s/^# //p' Makefile

$(STAMPS)/python: $(REQUIREMENTS)
	@echo "setting up $(VENV) (once; a few minutes) ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt >&2
	@mkdir -p $(STAMPS) && touch $@

setup: $(STAMPS)/python
	@$(BIN)/localazure fetch >&2

demo: setup
	@$(BIN)/python -m demo $(if $(JSON),--json)

up: setup
	@$(BIN)/python -m localazure up

# Most tests wait for processes: two at a time leave less of a machine idle. The tests of a file share
# what they wait for, so they stay together, in the order of the folders: the long ones come first.
WORKERS ?= 2
test: setup
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

check: $(STAMPS)/python
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMPS)/python
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The engines that the durable benchmark compares with, in an environment of their own.
PEERS := $(VENV)/peers
$(PEERS)/installed: benchmarks/peers/requirements.txt benchmarks/peers/package.json
	@echo "setting up $(PEERS) (once) ..." >&2
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check \
	    -r benchmarks/peers/requirements.txt >&2 \
	  && cp benchmarks/peers/package.json $(PEERS)/ \
	  && (cd $(PEERS) && npm install --silent --no-audit --no-fund >&2) \
	  && touch $@ || echo "not all peers are installed: those that are missing are skipped" >&2

# NAME="durable storage" for some, QUICK=1 to see that they work, JSON=1 for a document.
bench: setup $(PEERS)/installed
	@$(BIN)/python -m benchmarks $(if $(JSON),--json) $(if $(QUICK),--quick) $(NAME)

# Kills the Functions host again and again. KILLS=50 for fewer, SEED=7 to draw the same ones again.
crash: $(STAMPS)/python
	@cd localazure/tests && $(abspath $(BIN))/python -m crash $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf $(VENV) .localazure build
