#!/bin/sh
# Installs the system packages that a lane of the tests needs beside Python; quick when they are there.
#   sh scripts/setup-tests.sh docker
set -eu

say() { printf 'setup-tests: %s\n' "$*" >&2; }

case "${1:-}" in
docker) packages="docker.io docker-compose debootstrap" tools="dockerd docker-compose debootstrap" ;;
*)
    say "which lane? expected: docker"
    exit 2
    ;;
esac

missing=
for tool in $tools; do
    command -v "$tool" >/dev/null || [ -x "/usr/sbin/$tool" ] || missing="$missing $tool"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $packages"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2
else
    say "missing:$missing; the tests that need them are skipped; on Debian and Ubuntu: sudo apt-get install -y $packages"
fi
