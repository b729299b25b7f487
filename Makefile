# Thin wrappers: every line is a command that you could type. `make help` lists the targets.
SHELL := /bin/bash
KNOWN := ARTIFACT SCALE SEEDS CORES PORT ABLATION PYTHON
ifeq ($(MAKELEVEL),0)  # variables of an outer make are not checked
UNKNOWN := $(filter-out $(KNOWN) MAKE% SHELL,$(foreach one,$(.VARIABLES),$(if $(filter command,$(origin $(one))),$(one))))
$(if $(UNKNOWN),$(error unknown variable $(firstword $(UNKNOWN)); allowed: $(KNOWN)))
endif
# Values are checked before the shell reads them, then quoted. Make itself would expand a dollar sign and run
# text after a line break as a separate command.
define newline


endef
quoted = '$(subst ','\'',$(1))'
PLAIN := ^([][[:alnum:]_./~][][[:alnum:]_./~,+@=:\ -]*)?$$
safe = $(if $(findstring $$,$(value $(1)))$(findstring $(newline),$(value $(1))),,$(shell [[ $(call quoted,$(value $(1))) =~ $(PLAIN) ]] && echo yes))
$(foreach one,$(KNOWN),$(if $(filter command environment,$(origin $(one))),$(if $(call safe,$(one)),,\
  $(error $(one) may contain only letters, digits, blanks and _ . / ~ , + @ = : [ ] -, and must not begin with -))))
ARTIFACT ?= default_targets
PYTHON ?= python3
NEW_ENOUGH := 'import sys; sys.exit(sys.version_info < (3, 11))'
# nproc respects OMP_NUM_THREADS, which is the number of threads per job.
CORES ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || sysctl -n hw.ncpu)
PORT ?= 5000
BIN := .venv/bin
comma := ,
# Extras of this package are installed by uv, or by pip if uv is not available.
pip_install = UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[$(1)]' \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
# A copied or moved .venv runs the code of its original folder, so it is created again.
ifneq ($(shell test -x $(BIN)/python && cat .venv/installed 2>/dev/null),$(shell pwd -P))
.PHONY: .venv/installed
endif
# Jobs call `difftransformer` by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Modules are compiled at their first import, not all at installation.
unexport PYTHONDONTWRITEBYTECODE
export MLFLOW_DISABLE_TELEMETRY := true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
# The defaults of SCALE and SEEDS are in config.yaml and the scale, which make does not read.
CONFIG = $(if $(SCALE)$(SEEDS),--config $(if $(SCALE),$(call quoted,scale=$(SCALE))) $(if $(SEEDS),$(call quoted,seeds=$(SEEDS))))
scale = $(if $(SCALE),--scale $(call quoted,$(SCALE)))
seeds = $(if $(SEEDS),--seeds $(call quoted,$(SEEDS)))
cores = $(call quoted,$(CORES))
python = $(call quoted,$(PYTHON))
artifacts = $(foreach one,$(ARTIFACT),$(call quoted,$(one)))

.PHONY: help install reproduce plan rerun verify ui test test-slow test-faults test-kernels test-tiles test-slurm test-kills test-s3 test-postgres lint pictures schema docs packages clean

help:  ## print this list
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*##/\t/' | expand -t 12

install: .venv/installed  ## create .venv with the pinned dependencies of the pipeline

# The stamp contains the path of this folder for the check at the top.
.venv/installed: pyproject.toml constraints.txt
	@if [ $(origin PYTHON) = file ] && [ "$$(cat $@ 2>/dev/null)" = "$$(pwd -P)" ] && $(BIN)/python -c $(NEW_ENOUGH) 2>/dev/null; then true; \
	elif $(python) -c $(NEW_ENOUGH); then $(python) -m venv --clear .venv; \
	else echo "error: "$(python)" is $$($(python) -V 2>&1), but Python 3.11 or newer is required: make install PYTHON=python3.12" >&2; exit 2; fi
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(call pip_install,pipeline$(comma)eval)
	pwd -P >$@

.venv/dev: .venv/installed
	$(call pip_install,dev)
	touch $@

.venv/services: .venv/dev
	$(call pip_install,slurm$(comma)s3$(comma)kubernetes$(comma)postgres)
	touch $@

reproduce: install  ## build tables, figures and the report: ARTIFACT=default_targets SCALE=tiny CORES=2 SEEDS=3
	snakemake $(artifacts) --cores $(cores) $(CONFIG)
	@built=$$(difftransformer results-folder $(scale)) && up=$$([[ $$built = /* ]] || echo ../) && mkdir -p reports && \
	  ln -sfn "$$up$$built/report" "reports/$${built##*/}" && echo "report: reports/$${built##*/}/index.html"

plan: install  ## print what `make reproduce` would run with the same variables, and why
	snakemake $(artifacts) --dry-run $(CONFIG)
	@difftransformer estimate-cost $(artifacts) --as-planned $(scale) $(seeds)

rerun: install  ## train and evaluate an ablation again from scratch: ABLATION=ablation_group_norm
	@test -n $(call quoted,$(ABLATION)) || { echo "error: which one? make rerun ABLATION=ablation_group_norm" >&2; exit 2; }
	difftransformer rerun $(call quoted,$(ABLATION)) $(scale) $(seeds) --cores $(cores)

ui: install  ## serve MLflow on PORT=5000 and the reports on PORT + 1, on loopback
	difftransformer sync-tracking
	difftransformer ui --port $(call quoted,$(PORT))

verify: SCALE = smoke
verify: install  ## rebuild in another folder and compare checksums: ARTIFACT=default_targets SCALE=smoke
	snakemake $(artifacts) --cores $(cores) $(CONFIG)
	rm -rf results-verify
	MLFLOW_TRACKING_URI=off snakemake $(artifacts) --cores $(cores) --drop-metadata \
	  $(CONFIG) results=results-verify
	difftransformer verify "$$(difftransformer results-folder $(scale))" results-verify/$(call quoted,$(SCALE))
	rm -rf results-verify

test: .venv/dev  ## run all tests except those below, one worker per core
	OMP_NUM_THREADS=1 pytest -n $(cores) --dist loadfile --no-loadscope-reorder

test-slow: .venv/dev  ## slow tests: longer variants of the tests above
	OMP_NUM_THREADS=1 pytest -n $(cores) --dist loadfile --no-loadscope-reorder -m slow

test-faults: .venv/dev  ## fault injection: kills, full disks, damaged files, outages of tracking
	OMP_NUM_THREADS=1 pytest tests/faults tests/unit/training/test_distributed.py -m ""

test-kernels: .venv/dev  ## compile a fifth of the tiles of the fused kernels; their contract in the interpreter
	OMP_NUM_THREADS=1 pytest -n $(cores) tests/kernels -m "kernels and not exhaustive"
	OMP_NUM_THREADS=1 TRITON_INTERPRET=1 pytest -n $(cores) tests/kernels/interpreted tests/attention/test_contract.py -k fused -m ""

test-tiles: .venv/dev  ## compile all tiles of the fused kernels for all GPU architectures
	OMP_NUM_THREADS=1 pytest -n $(cores) tests/kernels -m kernels

test-slurm: .venv/services  ## build tables through profiles/slurm on a one-node Slurm cluster started for the test
	OMP_NUM_THREADS=1 pytest -n 2 --dist loadfile tests/slurm -m slurm

test-kills: .venv/services  ## twenty random kills of processes, nodes and Snakemake during a training on two Slurm nodes
	OMP_NUM_THREADS=1 pytest tests/slurm/test_random_kills.py -m exhaustive

test-s3: .venv/services  ## build tables in a bucket of an S3 server started for the test; check Kubernetes pods
	OMP_NUM_THREADS=1 pytest tests/storage -m s3

test-postgres: .venv/services  ## MLflow on a PostgreSQL server started for the test, with user mistakes
	OMP_NUM_THREADS=1 pytest tests/postgres -m postgres

lint: .venv/dev  ## ruff, mypy, snakefmt, snakemake --lint, import-linter, language of names and texts
	ruff check . && ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint --config scale=smoke
	lint-imports
	$(BIN)/python tests/language.py

pictures: .venv/dev  ## take the screenshots docs/report_*.png in a browser: SCALE=tiny
	REPORT_PICTURES=docs $(if $(SCALE),REPORT_SCALE=$(call quoted,$(SCALE))) pytest tests/browser/test_pictures.py

schema: install  ## regenerate config/schema from the typed settings
	difftransformer write-schema

docs: .venv/dev  ## build the documentation, docs/_site/index.html; warnings and dead links are errors
	$(BIN)/python docs/pages.py
	sphinx-build --quiet --fail-on-warning --keep-going -b html -d docs/_site/.doctrees docs docs/_site

packages: .venv/dev  ## the diagram of the packages and their imports; needs graphviz
	$(BIN)/python docs/pages.py
	dot -Tsvg docs/packages.dot -o docs/packages.svg

clean:  ## remove caches, not results
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
