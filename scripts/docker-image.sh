#!/bin/sh
# Builds the images wanbench-worker and wanbench. See the Dockerfile.
#   PYTHON=python3 BASE=python:3.11-slim-bookworm sh scripts/docker-image.sh
# The user's pip, with its configuration, downloads the wheels for the Python that runs it, so the base image must have
# the same minor version. The build itself needs no network.
set -eu

PYTHON=${PYTHON:-python3}
cd "$(dirname "$0")/.."

say() { printf 'image: %s\n' "$*" >&2; }

if ! docker version >/dev/null 2>&1; then
    say "no Docker daemon responds; start it: sudo systemctl start docker"
    exit 3
fi
minor=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
BASE=${BASE:-python:$minor-slim-bookworm}
if docker image inspect "$BASE" >/dev/null 2>&1; then
    there=$(docker run --rm --network none --entrypoint python3 "$BASE" -c \
        'import sys; print("%d.%d" % sys.version_info[:2])') || exit 3
    if [ "$there" != "$minor" ]; then
        say "$BASE has Python $there, but $PYTHON is $minor; use the same: make image PYTHON=python$there"
        exit 3
    fi
fi

stamp=build/wheels/.complete
wanted=$(cat pyproject.toml constraints.txt scripts/docker-image.sh | sha256sum; echo "$minor")
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    rm -rf build/wheels
    mkdir -p build/wheels
    pip="$PYTHON -m pip --disable-pip-version-check -q"
    torch=$(grep '^torch==' constraints.txt)
    say "downloading $torch for the CPU"
    $pip download --no-deps -d build/wheels "$torch+cpu" 2>/dev/null ||
        $pip download --no-deps -d build/wheels --index-url https://download.pytorch.org/whl/cpu "$torch"
    grep -v '^torch==' constraints.txt >build/wheels/constraints
    say "downloading the other packages"
    $pip wheel -w build/wheels --find-links build/wheels -c build/wheels/constraints "$(ls build/wheels/torch-*.whl)" .
    printf '%s\n' "$wanted" >"$stamp"
else
    rm -f build/wheels/wanbench-*.whl
    "$PYTHON" -m pip --disable-pip-version-check -q wheel --no-deps -w build/wheels .
fi

for target in worker controller; do
    name=wanbench
    [ "$target" = worker ] && name=wanbench-worker
    say "building $name on $BASE"
    docker build -q --network none --build-arg "BASE=$BASE" --target "$target" -t "$name" . >/dev/null
    docker image inspect --format "$name {{.Id}} {{.Size}} bytes" "$name"
done
