#!/bin/sh
# Runs a pytest command whose tests measure. A busy host can disturb a measurement, but a bug fails again. So failed
# tests are run once more, alone and in a new process, and both outcomes are printed.
#   sh scripts/measured-tests.sh .venv/bin/python -m pytest tests/e2e
set -eu

cache=$(mktemp -d "${TMPDIR:-/tmp}/pytest-cache-XXXXXX")
trap 'rm -rf "$cache"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

status=0
"$@" -o cache_dir="$cache" || status=$?
[ "$status" = 1 ] || exit "$status" # 1: tests failed; other codes are not about tests
echo "measured-tests: running the failed tests once more"
"$@" -o cache_dir="$cache" --last-failed
