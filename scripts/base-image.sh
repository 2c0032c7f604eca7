#!/bin/sh
# Makes a base image without a registry: Debian packages, installed by debootstrap and imported as one layer.
#   SUITE=bookworm NAME=wanbench-base sh scripts/base-image.sh        (as root; needs debootstrap and docker)
set -eu

SUITE=${SUITE:-bookworm}
NAME=${NAME:-wanbench-base}

say() { printf 'base-image: %s\n' "$*" >&2; }

for tool in debootstrap docker; do
    if ! command -v "$tool" >/dev/null; then
        say "$tool is missing; on Debian and Ubuntu: sudo apt-get install -y debootstrap docker.io"
        exit 3
    fi
done
if [ "$(id -u)" != 0 ]; then
    say "debootstrap needs root; run: sudo make base-image-from-debian"
    exit 3
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/base-image-XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
say "installing Debian $SUITE with Python"
if ! debootstrap --variant=minbase --include=python3,python3-venv "$SUITE" "$folder/root" ${MIRROR:+"$MIRROR"} \
    >"$folder/log" 2>&1; then
    say "debootstrap failed:"
    tail -n 5 "$folder/log" >&2
    exit 3
fi
rm -rf "$folder"/root/var/cache/apt/* "$folder"/root/var/lib/apt/lists/* "$folder"/root/var/log/* \
    "$folder"/root/usr/share/doc/* "$folder"/root/usr/share/man/* "$folder"/root/usr/share/locale/*
tar -C "$folder/root" -c . | docker import --change 'CMD ["python3"]' - "$NAME" >/dev/null
docker image inspect --format "$NAME {{.Id}} {{.Size}} bytes" "$NAME"
