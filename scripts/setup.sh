#!/bin/sh
# Sets up a virtual environment with everything that wanbench needs. It is quick if nothing has changed.
#   VENV=.venv PYTHON=python3 sh scripts/setup.sh
set -eu

VENV=${VENV:-.venv}
PYTHON=${PYTHON:-python3}
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

# Debian and Ubuntu package venv separately from Python; wanbench needs nothing else from the system.
if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    packages="python3 python3-venv"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $packages"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $packages >&2
    else
        say "Python's venv module is missing; run: sudo apt-get install -y $packages"
        exit 3
    fi
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "wanbench needs Python 3.11 or newer, but $PYTHON is $("$PYTHON" -V); choose another: make PYTHON=python3.12 ..."
    exit 3
fi

stamp=$VENV/.wanbench-setup
wanted=$(cat pyproject.toml constraints.txt scripts/setup.sh | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

# An installed torch is used: it can be built for this machine's GPU.
constraints=$VENV/constraints.txt
if [ ! -d "$VENV" ]; then
    if "$PYTHON" -c 'import torch' 2>/dev/null; then
        say "using the torch of $PYTHON"
        "$PYTHON" -m venv --system-site-packages "$VENV"
    else
        "$PYTHON" -m venv "$VENV"
    fi
fi
if "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
    grep -v '^torch==' constraints.txt >"$constraints"
else
    cp constraints.txt "$constraints"
    # First, alone and pinned: the version ranges of other packages could choose a build with CUDA.
    say "installing $(grep '^torch==' constraints.txt)"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check "$(grep '^torch==' constraints.txt)"
fi
say "installing wanbench and the development tools"
"$VENV/bin/python" -m pip install -q --disable-pip-version-check -c "$constraints" -e '.[dev]'
printf '%s\n' "$wanted" >"$stamp"
say "ready: $VENV/bin/wanbench"
