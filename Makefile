# Thin: every line is a command you could type. `make help` lists the targets.
SHELL := /bin/bash
KNOWN := ARTIFACT SCALE SEEDS CORES PORT ABLATION PYTHON
ifeq ($(MAKELEVEL),0)  # what an outer make was given is its own
UNKNOWN := $(filter-out $(KNOWN) MAKE% SHELL,$(foreach one,$(.VARIABLES),$(if $(filter command,$(origin $(one))),$(one))))
$(if $(UNKNOWN),$(error there is no $(firstword $(UNKNOWN)); what can be set is $(KNOWN)))
endif
# Values are checked before the shell reads one, then quoted. Make itself would expand a dollar sign, and run
# what is behind a line break as a line of its own.
define newline


endef
quoted = '$(subst ','\'',$(1))'
PLAIN := ^([][[:alnum:]_./~][][[:alnum:]_./~,+@=:\ -]*)?$$
safe = $(if $(findstring $$,$(value $(1)))$(findstring $(newline),$(value $(1))),,$(shell [[ $(call quoted,$(value $(1))) =~ $(PLAIN) ]] && echo yes))
$(foreach one,$(KNOWN),$(if $(filter command environment,$(origin $(one))),$(if $(call safe,$(one)),,\
  $(error $(one) takes letters, digits, blanks and _ . / ~ , + @ = : [ ] - alone, and no - at its beginning))))
ARTIFACT ?= default_targets
PYTHON ?= python3
NEW_ENOUGH := 'import sys; sys.exit(sys.version_info < (3, 11))'
# nproc heeds OMP_NUM_THREADS, which is about threads of one job.
CORES ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || sysctl -n hw.ncpu)
PORT ?= 5000
BIN := .venv/bin
comma := ,
# Extras of this package by uv, or by pip where uv cannot be had.
pip_install = UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[$(1)]' \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
# A .venv that was copied or moved runs the code of the folder that it was made in, or nothing: make it again.
ifneq ($(shell test -x $(BIN)/python && cat .venv/installed 2>/dev/null),$(shell pwd -P))
.PHONY: .venv/installed
endif
# Jobs call `difftransformer` by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Modules are compiled as they are first imported, once, and not all of them at the installation.
unexport PYTHONDONTWRITEBYTECODE
export MLFLOW_DISABLE_TELEMETRY := true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
# Where SCALE or SEEDS is not given, config.yaml and the scale say; make reads neither.
CONFIG = $(if $(SCALE)$(SEEDS),--config $(if $(SCALE),$(call quoted,scale=$(SCALE))) $(if $(SEEDS),$(call quoted,seeds=$(SEEDS))))
scale = $(if $(SCALE),--scale $(call quoted,$(SCALE)))
seeds = $(if $(SEEDS),--seeds $(call quoted,$(SEEDS)))
cores = $(call quoted,$(CORES))
python = $(call quoted,$(PYTHON))
artifacts = $(foreach one,$(ARTIFACT),$(call quoted,$(one)))

.PHONY: help install reproduce plan rerun verify ui test test-slow test-faults test-kernels test-tiles test-slurm test-kills test-s3 test-postgres lint pictures schema docs packages clean

help:  ## this list
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*##/\t/' | expand -t 12

install: .venv/installed  ## .venv with what the pipeline needs, pinned

# The stamp holds this folder, for the check at the top.
.venv/installed: pyproject.toml constraints.txt
	@if [ $(origin PYTHON) = file ] && [ "$$(cat $@ 2>/dev/null)" = "$$(pwd -P)" ] && $(BIN)/python -c $(NEW_ENOUGH) 2>/dev/null; then true; \
	elif $(python) -c $(NEW_ENOUGH); then $(python) -m venv --clear .venv; \
	else echo "error: "$(python)" is $$($(python) -V 2>&1), needed is Python 3.11 or newer: make install PYTHON=python3.12" >&2; exit 2; fi
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(call pip_install,pipeline$(comma)eval)
	pwd -P >$@

.venv/dev: .venv/installed
	$(call pip_install,dev)
	touch $@

.venv/services: .venv/dev
	$(call pip_install,slurm$(comma)s3$(comma)kubernetes$(comma)postgres)
	touch $@

reproduce: install  ## ARTIFACT=default_targets SCALE=tiny CORES=2: tables, figures, report; SEEDS=3 for other than the scale's
	snakemake $(artifacts) --cores $(cores) $(CONFIG)
	@built=$$(difftransformer results-folder $(scale)) && up=$$([[ $$built = /* ]] || echo ../) && mkdir -p reports && \
	  ln -sfn "$$up$$built/report" "reports/$${built##*/}" && echo "report: reports/$${built##*/}/index.html"

plan: install  ## what `make reproduce` with the same settings would run, and why
	snakemake $(artifacts) --dry-run $(CONFIG)
	@difftransformer estimate-cost $(artifacts) --as-planned $(scale) $(seeds)

rerun: install  ## ABLATION=ablation_group_norm: train and evaluate exactly it again, and its tables
	@test -n $(call quoted,$(ABLATION)) || { echo "error: which one? make rerun ABLATION=ablation_group_norm" >&2; exit 2; }
	difftransformer rerun $(call quoted,$(ABLATION)) $(scale) $(seeds) --cores $(cores)

ui: install  ## PORT=5000: MLflow's runs and, a port further, the reports, on loopback
	difftransformer sync-tracking
	difftransformer ui --port $(call quoted,$(PORT))

verify: SCALE = smoke
verify: install  ## ARTIFACT=default_targets SCALE=smoke: rebuild it aside, compare all checksums
	snakemake $(artifacts) --cores $(cores) $(CONFIG)
	rm -rf results-verify
	MLFLOW_TRACKING_URI=off snakemake $(artifacts) --cores $(cores) --drop-metadata \
	  $(CONFIG) results=results-verify
	difftransformer verify "$$(difftransformer results-folder $(scale))" results-verify/$(call quoted,$(SCALE))
	rm -rf results-verify

test: .venv/dev  ## the tests, but for those below, a worker for each core
	OMP_NUM_THREADS=1 pytest -n $(cores) --dist loadfile --no-loadscope-reorder

test-slow: .venv/dev  ## those that take long and show more of what a quicker one shows
	OMP_NUM_THREADS=1 pytest -n $(cores) --dist loadfile --no-loadscope-reorder -m slow

test-faults: .venv/dev  ## every fault there is: kills, full disks, damage, outages of tracking
	OMP_NUM_THREADS=1 pytest tests/faults tests/unit/training/test_distributed.py -m ""

test-kernels: .venv/dev  ## one of five tiles of the fused kernels for every part; the contract in the interpreter
	OMP_NUM_THREADS=1 pytest -n $(cores) tests/kernels -m "kernels and not exhaustive"
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 pytest -n $(cores) tests/kernels/interpreted tests/attention/test_contract.py -k fused -m ""

test-tiles: .venv/dev  ## every tile of the fused kernels for every part
	OMP_NUM_THREADS=1 pytest -n $(cores) tests/kernels -m kernels

test-slurm: .venv/services  ## tables through profiles/slurm on a Slurm of one node that is made for it
	OMP_NUM_THREADS=1 pytest -n 2 --dist loadfile tests/slurm -m slurm

test-kills: .venv/services  ## twenty kills of processes, nodes and heads, at random, under a training on two nodes of such a Slurm
	OMP_NUM_THREADS=1 pytest tests/slurm/test_random_kills.py -m exhaustive

test-s3: .venv/services  ## tables from nothing but a bucket, on an S3 server that is made for it; pods as Kubernetes gets them
	OMP_NUM_THREADS=1 pytest tests/storage -m s3

test-postgres: .venv/services  ## an MLflow server on a PostgreSQL that is made for it, and mistakes about it
	OMP_NUM_THREADS=1 pytest tests/postgres -m postgres

lint: .venv/dev  ## ruff, mypy, snakefmt, snakemake --lint, import-linter
	ruff check . && ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint --config scale=smoke
	lint-imports

pictures: .venv/dev  ## SCALE=tiny: docs/report_*.png of the report there, by the browser tests
	REPORT_PICTURES=docs $(if $(SCALE),REPORT_SCALE=$(call quoted,$(SCALE))) pytest tests/browser/test_pictures.py

schema: install  ## regenerate config/schema from the typed settings
	difftransformer write-schema

docs: .venv/dev  ## the site, docs/_site/index.html, without network; warnings and dead links are errors
	$(BIN)/python docs/pages.py
	sphinx-build --quiet --fail-on-warning --keep-going -b html -d docs/_site/.doctrees docs docs/_site

packages: .venv/dev  ## the diagram of the packages and their imports; needs graphviz
	$(BIN)/python docs/pages.py
	dot -Tsvg docs/packages.dot -o docs/packages.svg

clean:  ## remove caches; results stay
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
