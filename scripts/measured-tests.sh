#!/bin/sh
# Runs tests that measure, by a pytest command. On a host that others use, a measurement can be disturbed; a fault is
# there again. So what fails is run once more, by itself, in a new process, and both outcomes are printed.
#   sh scripts/measured-tests.sh [-j FILES] .venv/bin/python -m pytest tests/e2e
#   -j FILES   so many files of tests side by side at first: most of their time is emulated, and passes unused
set -eu

[ "$1" != -j ] || { side="-n $2 --dist loadfile" && shift 2; }
cache=$(mktemp -d "${TMPDIR:-/tmp}/pytest-cache-XXXXXX")
trap 'rm -rf "$cache"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

status=0
"$@" -o cache_dir="$cache" ${side:-} || status=$?
[ "$status" = 1 ] || exit "$status" # 1: tests failed; anything else is no measurement
echo "measured-tests: what failed is run once more"
"$@" -o cache_dir="$cache" --last-failed
