#!/bin/sh
# Snakemake calls this in the new environment, from the root of the project: its copy of the file
# beside it lies elsewhere, where no relative path leads back here.
set -eu
python -m pip install --disable-pip-version-check -c constraints.txt -e '.[pipeline,eval]'
