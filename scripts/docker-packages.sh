#!/bin/sh
# Runs while an image is built: installs packages into /opt/wanbench, from the wheels next to this script if there are
# any, else from the public indexes.
#   sh docker-packages.sh REQUIREMENT...
set -eu

wheels=$(dirname "$0")
pip="/opt/wanbench/bin/python -m pip --disable-pip-version-check --no-cache-dir -q install"
[ -d /opt/wanbench ] || python3 -m venv /opt/wanbench

if ls "$wheels"/torch-*.whl >/dev/null 2>&1; then
    own=$(ls "$wheels"/wanbench-*.whl)
    grep -v '^torch==' "$wheels/constraints.txt" >/tmp/constraints
    for requirement in torch "$@"; do
        [ "$requirement" = /source ] && requirement=$own
        $pip --no-index --find-links "$wheels" -c /tmp/constraints "$requirement"
    done
else
    # torch's own index has the build without CUDA, which saves gigabytes.
    $pip --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' "$wheels/constraints.txt")"
    grep -v '^torch==' "$wheels/constraints.txt" >/tmp/constraints
    $pip -c /tmp/constraints "$@"
fi
