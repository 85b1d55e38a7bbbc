.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNS := $(VENV)/.runs
ARGS ?=

.PHONY: help setup demo test chaos soak test-localai test-docker upgrade-fixtures field-reports fuzz lint fmt type ci schema sbom audit docs clean

help: ## show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv with the headstart command and all tools

$(STAMP): requirements-dev.lock $(RUNS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $(STAMP)

# What runs, without the tools: half the time until something is to be seen.
$(RUNS): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	awk '/^(setuptools|wheel|packaging)==/ {keep = 1} keep {print} !/\\$$/ {keep = 0}' requirements-dev.lock > $(VENV)/build.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock -r $(VENV)/build.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(RUNS)

demo: $(RUNS) ## run everything against an emulated LocalAI (ARGS="--localai URL" for a real one)
	$(BIN)/headstart demo $(ARGS)

test: $(STAMP) ## run every tier of the tests for which the tools are there
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/tiers $(ARGS)

chaos: $(STAMP) ## everything under load, broken at random (ARGS="--for 300 --seed 1", --paced, --replay FILE)
	$(BIN)/python -m tests.chaos $(ARGS)

soak: $(STAMP) ## a day of traffic in 24 minutes, and what grows by it (ARGS="--quick": two hours of it)
	$(BIN)/python -m tests.soak --json $(ARGS)

test-localai: $(STAMP) ## every call of ours against a real LocalAI that nobody uses (LOCALAI_URL=http://…)
	@test -n "$(LOCALAI_URL)$(LOCALAI_DISTRIBUTED_URL)" || { echo "name a LocalAI that nobody uses: make test-localai LOCALAI_URL=http://127.0.0.1:8081 (or LOCALAI_DISTRIBUTED_URL) [LOCALAI_MODELS=a,b] [LOCALAI_API_KEY=…]"; exit 2; }
	LOCALAI_URL="$(LOCALAI_URL)" LOCALAI_DISTRIBUTED_URL="$(LOCALAI_DISTRIBUTED_URL)" \
	  $(BIN)/python -m pytest -q -m localai tests/contract $(ARGS)

test-docker: $(STAMP) ## build the image and run the compose file (PYTHON_IMAGE=… for another base)
	$(BIN)/python -m pytest -q -m docker tests/docker $(ARGS)

upgrade-fixtures: $(STAMP) ## keep data as this release leaves it, for the tests of releases to come
	$(BIN)/python -m tests.upgrade_data

field-reports: $(STAMP) ## the table of field reports with counts, and the tests that replay them
	$(BIN)/python -m tests.field_reports
	$(BIN)/python -m pytest -q -m case $(ARGS)

fuzz: $(STAMP) ## new inputs for every parser of what comes from outside (ARGS="--for 600 --seed 1")
	nice -n 10 $(BIN)/python -m tests.fuzz $(ARGS)

lint: $(STAMP) ## ruff, mypy and import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/lint-imports

fmt: $(STAMP) ## put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: $(STAMP) ## write the configuration's schema, reference and example anew
	$(BIN)/headstart config schema > data/headstart.schema.json
	$(BIN)/headstart config docs > docs/reference/configuration.md
	$(BIN)/headstart config example > data/headstart.example.yaml

sbom: ## what the image holds, with versions and licences, in var/headstart.cdx.json (CycloneDX)
	rm -rf var/sbom && mkdir -p var/sbom
	$(PYTHON) -m venv var/sbom/tool && var/sbom/tool/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-sbom.lock
	$(PYTHON) -m venv --without-pip var/sbom/image && var/sbom/tool/bin/pip --python var/sbom/image/bin/python install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	var/sbom/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible --output-format JSON --output-file var/headstart.cdx.json var/sbom/image/bin/python

audit: ## known advisories on what the image holds, asked of PyPI (ARGS="--vulnerability-service osv" for another list)
	rm -rf var/audit && mkdir -p var && $(PYTHON) -m venv var/audit
	var/audit/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-audit.lock
	var/audit/bin/pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict $(ARGS)

docs: $(STAMP) ## the documentation as a site, in var/site; links and anchors are checked
	$(BIN)/python -m tests.reasons_page
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

ci: ## what continuous integration runs
	.ci/run

clean: ## remove what can be made again
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
