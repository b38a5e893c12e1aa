# Everything a newcomer needs is two commands: `make demo` and `make test`.
# Each one first makes .venv from the hashed lock, in this folder.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
UV     := $(shell command -v uv 2>/dev/null)
# Tests wait for leases to run out as much as they compute: three more than there are cores.
JOBS   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 3)

.DEFAULT_GOAL := help
.PHONY: help demo examples test test-slow check report drills model lint format migrate lease-race lease-race-log recovery bench bench-short dashboards cli-reference screenshots lock release-check image-check k8s k8s-check clean

help: ## list these targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml drills/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Faultline needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
ifneq ($(UV),)
	@echo "installing into $(VENV) with uv"
	@uv venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV)
	@uv pip install --quiet --compile-bytecode --python $(BIN)/python --no-deps --require-hashes -r requirements.lock
	@uv pip install --quiet --compile-bytecode --python $(BIN)/python --no-deps --no-build-isolation -e . -e drills
else
	@echo "installing into $(VENV) with pip (uv is faster, if you have it)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e drills
endif
	@touch $@

demo: $(READY) ## the stale-worker race, then both subjects under faults, with a verdict (about a minute)
	@$(BIN)/faultline demo

examples: $(READY) ## run every example application
	@set -e; for run in examples/*/run.py; do echo "── $$run"; (cd $$(dirname $$run) && $(CURDIR)/$(BIN)/python run.py); done

PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
test: $(READY) ## the fast tests, on real PostgreSQL; prints what they exercised
	@$(PYTEST) -m "not slow" --proof fast

test-slow: $(READY) ## the exhaustive tests: every scenario, long sweeps, all variants
	@$(PYTEST) -m slow --proof slow

check: lint test test-slow ## everything: lint, the fast tests, the slow tests

report: $(READY) ## fault rates, recovery times, scenario and kill matrices, as JSON, Markdown and HTML
	@$(BIN)/faultline drill mutants --markdown docs/reports/mutants.md
	@$(BIN)/faultline drill report
	@$(BIN)/faultline drill report --gif

drills: $(READY) ## every scenario, a long exploration and the whole crash sweep
	@$(BIN)/faultline drill run
	@$(BIN)/faultline drill explore
	@$(BIN)/faultline drill sweep

model: $(READY) ## check the protocol's model with spin, and rewrite the table in docs/model.md
	@$(BIN)/python model/check.py

lint: $(READY) ## ruff, mypy --strict, import-linter, bandit
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/bandit -q -c pyproject.toml -r src drills/src benchmarks monitoring

format: $(READY) ## let ruff rewrite the code to the house format
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

migrate: $(READY) ## bring the database at DATABASE_URL (else the embedded one) up to date
	@$(BIN)/faultline migrate

lease-race: $(READY) ## the deterministic two-worker race, as a test
	@$(BIN)/python -m pytest -q tests/test_lease_race_fencing.py

lease-race-log: $(READY) ## the same race with its structured log, one JSON object per line
	@$(BIN)/faultline demo --log-only

recovery: $(READY) ## kill workers, and see how long their job takes to run elsewhere
	@$(BIN)/faultline drill recovery

BENCH = $(BIN)/python -m benchmarks run $(if $(PEERS),--peers "$(PEERS)") $(if $(SECTIONS),--sections "$(SECTIONS)") $(if $(RESUME),--resume) $(if $(ALL),--all)
bench: $(READY) ## Faultline beside its peers in 40 minutes (PEERS=a,b or none, SECTIONS=a,b or none, RESUME=1, ALL=1: hours)
	@$(BENCH)

bench-short: $(READY) ## the same in 4 minutes: a few peers, one repeat, a fraction of the size
	@$(BENCH) --short

dashboards: $(READY) ## write monitoring/grafana from monitoring/dashboards
	@$(BIN)/python -m monitoring.dashboards

cli-reference: $(READY) ## rewrite the commands in docs/cli.md from their help texts
	@$(BIN)/python docs/cli_reference.py

screenshots: $(READY) ## docs/screenshots from a real run (needs Chromium)
	@$(BIN)/python docs/screenshots/make.py

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: ## refresh requirements.lock, and the parts of it that the image and releases use (needs uv)
	@$(COMPILE) --extra dev --upgrade pyproject.toml -o requirements.lock
	@$(COMPILE) --extra api --extra fast --extra tracing --constraint requirements.lock --upgrade pyproject.toml -o requirements-runtime.lock
	@echo 'hatchling>=1.27' | $(COMPILE) --constraint requirements.lock --upgrade - -o requirements-build.lock
	@printf '%s\n' 'build>=1.3' 'hatchling>=1.27' 'readme-renderer[md]>=44' 'twine>=6.2' | $(COMPILE) --constraint requirements.lock --upgrade - -o requirements-release.lock

release-check: $(READY) ## build both distributions, and check and install what would be uploaded
	@$(BIN)/python -m release.check

image-check: $(READY) ## the Dockerfile's own commands, and what they make, without an engine (needs root)
	@FAULTLINE_TEST_IMAGE=1 $(BIN)/python -m pytest -q tests/containers/test_image.py

k8s: $(READY) ## write what k8s/ and its docs repeat: the rules of monitoring/, the table of the chart's values
	@$(BIN)/python -m k8s

k8s-check: $(READY) ## the manifests and the chart: schemas, consistency, rules, and their commands as processes
	@$(BIN)/python -m pytest -q tests/kubernetes

clean: ## stop the embedded server, remove the virtual environments and caches
	@test ! -x $(BIN)/faultline || $(BIN)/faultline db stop
	@rm -rf $(VENV) benchmarks/.environments .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
