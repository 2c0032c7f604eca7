#!/bin/sh
# Runs tests that measure, by a pytest command. On a host that others use, a measurement can be disturbed; a fault is
# there again. So what fails is run once more, by itself, in a new process, and both outcomes are printed.
#   sh scripts/measured-tests.sh .venv/bin/python -m pytest tests/e2e
set -eu

cache=$(mktemp -d "${TMPDIR:-/tmp}/pytest-cache-XXXXXX")
trap 'rm -rf "$cache"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

status=0
"$@" -o cache_dir="$cache" || status=$?
[ "$status" = 1 ] || exit "$status" # 1: tests failed; anything else is no measurement
echo "measured-tests: what failed is run once more"
"$@" -o cache_dir="$cache" --last-failed
