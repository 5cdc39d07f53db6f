# make demo | test | test-fast | up | check | check-infra | bench | crash | crash-servicebus | simulate | gpu | dist | docs | package | conformance | conformance-clients | conformance-data | conformance-storage | conformance-worker | examples | rehearse | docs-commands | test-sdk2. Each does its set-up.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INSTALLED := $(VENV)/installed
REQUIREMENTS := requirements.txt trainers/requirements.txt requirements-dev.txt
LOCKED := installation/locked.txt
DISTRIBUTIONS := localazure landfall_cli replay_guard
AZURITE := localazure/src/localazure/storage/azurite/package-lock.json

# Container images often set it: every process would compile all that it imports, and start twice as slowly.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help python-version setup demo test test-fast test-sdk2 up check check-infra format bench crash crash-servicebus simulate gpu dist docs package conformance conformance-clients conformance-data conformance-scheduler conformance-storage conformance-worker examples rehearse docs-commands constraints clean
.DEFAULT_GOAL := help

help:
	@sed -n '1s/^# //p' Makefile

# In the first second, before anything is downloaded. A PYTHON from the environment or the command
# line is one that the user asks for.
python-version:
	@$(PYTHON) installation/python_version.py $(VENV) $(if $(filter file,$(origin PYTHON)),,--asked-for)

$(INSTALLED): $(REQUIREMENTS) constraints.txt $(LOCKED) $(DISTRIBUTIONS:=/pyproject.toml) trainers/pyproject.toml $(AZURITE) | python-version
	@TORCH_INDEX="$(TORCH_INDEX)" $(or $(wildcard $(BIN)/python),$(PYTHON)) -m installation $(VENV)
	@touch $@

setup: python-version $(INSTALLED)

# CHAOS=7 for the same stories under faults that are drawn from seed 7; they must end the same. WORKER=azure
# for functions that are run by the library of Azure's own worker; it needs Python 3.13 (PYTHON=python3.13 VENV=.venv-3.13).
demo: setup
	@$(if $(WORKER),LOCALAZURE_WORKER=$(WORKER)) $(BIN)/python -m demo $(if $(JSON),--json) $(if $(CHAOS),--chaos $(CHAOS))

up: setup
	@$(BIN)/python -m localazure up

# The checklist of the first live run (docs/deploy.md), against localazure.
rehearse: setup
	@$(BIN)/python -m demo.rehearsal

# Every command that a page shows and that needs no more than a laptop.
docs-commands: setup
	$(BIN)/python -m pytest tests/contract/test_docs.py tests/local/documented tests/local/operators/test_tasks*.py

# On two cores, three workers took 6:36, four 5:45. The tests of a file share processes, so they stay together;
# conftest.py sorts the longest folders first.
WORKERS ?= 4
test: setup
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# What a developer runs all day: units, contracts, recorded histories; no services. They do not wait, and each
# worker takes 8 s of processor time to import them: more workers than cores take longer.
test-fast: WORKERS = 2
test-fast: setup
	$(BIN)/python -m pytest --numprocesses $(WORKERS) tests/unit tests/contract tests/replay localazure/tests/unit replay_guard/tests/unit

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	@$(BIN)/python -m infra.check

# azure.yaml and infra/*.bicep, without Azure: docs/deploy.md says what it sees and what it cannot.
check-infra: setup
	@$(BIN)/python -m infra.check

format: setup
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

# NAME="durable storage" for some, QUICK=1 to see that they work.
bench: setup $(PEERS)/installed
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(NAME)

# What only a GPU can show: needs torch, torchvision and no set-up of ours. JSON=FILE for a document.
GPU_PYTHON = $(shell $(PYTHON) -c 'import torch' 2>/dev/null && echo $(PYTHON) || echo $(BIN)/python)
gpu:
	@PYTHONPATH=trainers $(GPU_PYTHON) -m tests.gpu $(if $(JSON),--json $(JSON))

# The wheels and the source distributions, in build/dist.
dist: setup
	@set -e; for folder in $(DISTRIBUTIONS); do $(BIN)/python -m build $$folder --outdir build/dist; done
	@$(MAKE) --no-print-directory build/dist/landfall.cdx.json

# What the deployed app consists of (CycloneDX), read from an environment with its requirements.txt alone.
build/dist/landfall.cdx.json: requirements.txt constraints.txt
	@mkdir -p build/dist
	@for name in app sbom; do $(PYTHON) -m venv --clear build/$$name; done
	@build/app/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@build/sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	@build/sbom/bin/cyclonedx-py environment build/app/bin/python --output-reproducible -o $@

# Writes docs/pipeline-yml.md from the schema of pipeline.yml.
docs: setup
	@$(BIN)/python -m docs.pipeline_yml

# The folder that azd deploys, in an environment with its requirements.txt alone: it installs and starts.
package: setup
	$(BIN)/python -m pytest tests/local/deployment/empty_environment.py

# The wheel with every supported version of the Functions SDKs. WRITE=1 writes localazure/docs/sdk-versions.md.
conformance: setup
	@cd localazure/tests && $(abspath $(BIN))/python -m conformance $(if $(WRITE),--write)

# Node's SDKs, qpid-proton and, with SERVICEBUS_TESTS=FOLDER, Microsoft's own tests of azure-servicebus.
conformance-clients: setup
	@cd localazure/tests && $(abspath $(BIN))/python -m conformance.clients \
	    $(if $(SERVICEBUS_TESTS),--servicebus-tests $(abspath $(SERVICEBUS_TESTS)))

# azureml-fsspec and mltable in a job that uses azureml:// URIs.
conformance-data: setup
	@cd localazure/tests && $(abspath $(BIN))/python -W ignore -m conformance.data_access

# Azurite's own tests and those of Microsoft's Python SDKs, with Azurite as released and here. SUITES=sdks
# or SUITES=azurite for one of them, ONLY=sas for files whose path has it, AZURITE_SOURCE=FOLDER for a
# checkout of the pinned version instead of a clone from GitHub.
conformance-storage: setup
	@cd localazure/tests && $(abspath $(BIN))/python -m conformance.storage \
	    $(if $(AZURITE_SOURCE),--source $(abspath $(AZURITE_SOURCE))) $(if $(ONLY),--only '$(ONLY)') $(SUITES)

# Microsoft's end-to-end tests of the Durable Task SDK with `localazure scheduler`, from a checkout of
# microsoft/durabletask-python: make conformance-scheduler SOURCES=../durabletask-python ONLY=rewind.
conformance-scheduler: setup
	@cd localazure/tests && $(abspath $(BIN))/python -m conformance.scheduler $(abspath $(SOURCES)) \
	    $(if $(ONLY),-k '$(ONLY)')

# azure-functions-durable 2: an app of ours; from a checkout of microsoft/durabletask-python, the SDK's samples and
# its end-to-end tests (ONLY=rewind for some of them); then Landfall in an environment of its own with this
# version: its recorded histories, the replay guard's apps, and the demonstration.
SDK2_PYTHON ?= python3.13
SDK2_VENV   := .venv-sdk2
test-sdk2: setup
	@cd localazure/tests && $(abspath $(BIN))/python -m conformance.sdk2 $(SDK2_PYTHON) $(abspath $(SOURCES)) \
	    $(if $(ONLY),-k '$(ONLY)')
	@$(MAKE) --no-print-directory setup PYTHON=$(SDK2_PYTHON) VENV=$(SDK2_VENV)
	@$(SDK2_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r localazure/tests/conformance/sdk2/requirements.txt
	@$(SDK2_VENV)/bin/python -m pytest -q -W ignore::DeprecationWarning tests/replay/test_replay_sdk2.py replay_guard/tests/local
	@$(SDK2_VENV)/bin/python -m demo

# Our Functions worker and Microsoft's, on one corpus of apps. ONLY='FastAPI*' for some, WRITE=1 for the page.
WORKER_PYTHON ?= python3.13
conformance-worker: setup
	@cd localazure/tests && $(abspath $(BIN))/python -m conformance.worker $(WORKER_PYTHON) \
	    $(if $(ONLY),--only '$(ONLY)') $(if $(WRITE),--write)

# Azure's own examples, from a clone: make examples SOURCES=../azureml-examples COMMIT=… ONLY=basics WRITE=1.
examples: setup
	@cd localazure/tests && $(abspath $(BIN))/python -W ignore -m published_examples $(abspath $(SOURCES)) \
	    $(foreach folder,$(ONLY),--only $(folder)) $(if $(COMMIT),--commit $(COMMIT)) $(if $(WRITE),--write)

# Kills the Functions host again and again. KILLS=50 for fewer, SEED=7 to draw the same ones again, HOSTS=2 for two hosts and
# their engine.
crash: setup
	@cd localazure/tests && $(abspath $(BIN))/python -m crash $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(HOSTS),--hosts $(HOSTS))

# Kills the Service Bus part under load. ROUNDS=10 for fewer, SEED=7 to draw the same ones again.
crash-servicebus: setup
	@ROUNDS=$(or $(ROUNDS),100) SEED=$(or $(SEED),$(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')) \
	    $(BIN)/python -m pytest -q -s --timeout 0 localazure/tests/local/servicebus/test_crash.py

# Weeks of the app under a virtual clock, each drawn from a seed. SEEDS=10000 for many from FIRST=1 on,
# SEED=7 for one of them, printed in full. FEATURES=1 to list what is drawn, and what must hold.
simulate: setup
	@$(BIN)/python -m tests.simulation $(if $(FEATURES),--features) \
	    $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),300)) $(if $(FIRST),--first $(FIRST)) $(if $(PROCESSES),--processes $(PROCESSES))

# Resolves and pins all versions again, for every supported Python, with uv. locked.txt has the hashes of all
# files of each version, those of other platforms too; constraints.txt has none, as pip before 26 takes a
# constraint with a hash as a reason to refuse what requirements.txt does not pin. azd installs the hooks'.
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make constraints" uv pip compile --quiet --universal --python-version 3.11 \
    --no-annotate --generate-hashes
constraints:
	@sed '/^-[rce] /d; s/==.*//' $(REQUIREMENTS) | $(COMPILE) --upgrade --output-file $(LOCKED) \
	    - $(DISTRIBUTIONS:=/pyproject.toml)
	@sed -n 's/ *\\$$//; /^[a-zA-Z0-9#]/p' $(LOCKED) > constraints.txt
	@printf '%s\n' azure-identity azure-keyvault-secrets azure-storage-blob \
	  | $(COMPILE) -c constraints.txt --output-file infra/hooks/requirements.txt -

clean:
	rm -rf $(VENV) .localazure build
