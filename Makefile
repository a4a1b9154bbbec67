# One entry point per chore. Every target works as the first command on a fresh machine with Python 3.11 or newer.
# Nothing is written outside this folder: the environment is .venv, and pip keeps no cache unless PIP_CACHE_DIR names one.

PYTHON ?= python3
ARGS   ?=
BENCHES ?= match thesis_matching journal delivery detect wire ds3 spark_match spark_source spark_batch spark_detect pipeline
VENV   := .venv
PY     := $(VENV)/bin/python
EXTRAS := fast,xml,server,spark,dev

# The stamp carries this folder's path, so a copied or moved clone installs itself instead of using the old one's source.
INSTALLED := $(VENV)/.installed$(subst /,+,$(CURDIR))
WARM      := $(VENV)/.warm$(subst /,+,$(CURDIR))
KERNELS   := src/tocsin/filters/warm.py $(wildcard src/tocsin/filters/index/*.py) src/tocsin/journal/transcode.py

# Tests of one Spark session go to one of the two, those that start JVMs of their own to one; see tests/conftest.py.
WORKERS := -n 2 --dist loadgroup

ifndef PIP_CACHE_DIR
export PIP_NO_CACHE_DIR := 1
endif

.DEFAULT_GOAL := help
# Programs in other languages, and the browser, that speak to a node in tests. Debian or Ubuntu, as root; elsewhere install
# these by hand.
STRANGERS := curl nodejs gcc libc6-dev libcurl4-openssl-dev openssl chromium

.PHONY: help setup strangers demo cluster test test-all crash bench lint docs docs-serve
.DELETE_ON_ERROR:

help:  ## list these commands
	@echo "Tocsin. The first command sets up .venv by itself."
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' Makefile | while IFS='|' read -r name what; do printf '%-18s %s\n' "$$name" "$$what"; done

setup: $(INSTALLED) $(WARM)  ## build .venv with every extra; at once when nothing changed

$(INSTALLED): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "No '$(PYTHON)' found. Tocsin needs Python 3.11 or newer; name one: make setup PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Tocsin needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name another: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up $(VENV): two to three minutes the first time (Spark is a download of 400 MB)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install -qq --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@rm -f $(VENV)/.installed* $(VENV)/.warm*
	@touch '$@'

# Numba keeps compiled kernels beside their source and drops them when the source changes; this fills that cache again.
$(WARM): $(INSTALLED) $(KERNELS)
	@echo "compiling the kernels: about half a minute"
	@$(PY) -m tocsin.filters.warm
	@$(PY) -m tocsin.spark.warm
	@touch '$@'

strangers:  ## install what tests with curl, Node.js, C and a browser need; without it they are skipped (Debian, as root)
	@missing=; for name in curl node gcc curl-config openssl chromium; do command -v $$name >/dev/null || missing=1; done; \
	if [ -z "$$missing" ]; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(STRANGERS) >/dev/null; \
	else echo "not root on Debian: install $(STRANGERS) by hand, or those tests are skipped" >&2; exit 1; fi

demo: setup  ## a plant at work on a node with its Spark pipeline: see events, alerts and composite events, and why
	@$(PY) -m tocsin.cli demo $(ARGS)

cluster: setup  ## run a Spark master and two workers here, and match and detect on them; ARGS=--kill kills on the way
	@$(PY) -m tocsin.demo.cluster $(ARGS)

test: setup  ## run the tests, without the slow ones; ARGS="-k name" picks some
	@$(PY) -m pytest $(WORKERS) -m "not slow" $(ARGS)

test-all: setup  ## run every test
	@$(PY) -m pytest $(WORKERS) $(ARGS)

crash: setup  ## kill thousands of processes and look at what survives; ARGS="--crash-runs 20000" for more
	@$(PY) -m pytest $(WORKERS) tests/crash --crash-runs 5000 $(ARGS)

bench: setup  ## measure; run nothing else meanwhile. BENCHES="journal delivery" picks some, ARGS=--quick tries them
	@for name in $(BENCHES); do $(PY) -m benchmarks.bench_$$name $(ARGS) || exit 1; done

lint: setup  ## style, format and types, as CI checks them
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

# MkDocs and its theme print advertisements for their successors; see ARCHITECTURE.md.
docs: setup  ## build the documentation site into site/; a broken link or anchor ends it
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS)  # not --quiet: it would count no warnings

docs-serve: setup  ## show the documentation at http://127.0.0.1:8000 while you write
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve $(ARGS)
