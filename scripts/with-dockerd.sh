#!/bin/sh
# Runs a command with a Docker daemon: the running one, else (as root) a private one without a network, which is removed
# afterwards with everything in it.
#   sh scripts/with-dockerd.sh COMMAND [ARGUMENT...]
set -eu

say() { printf 'with-dockerd: %s\n' "$*" >&2; }

if docker version >/dev/null 2>&1; then
    exec "$@"
fi
for tool in docker dockerd setpriv; do
    if ! command -v "$tool" >/dev/null; then
        say "$tool is missing; on Debian and Ubuntu: sudo apt-get install -y --no-install-recommends docker.io"
        exit 3
    fi
done
if [ "$(id -u)" != 0 ]; then
    say "no Docker daemon responds, and only root can start one; run as root, or: sudo systemctl start docker"
    exit 3
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/dockerd-XXXXXX")
daemon=

finish() {
    trap '' INT TERM
    if [ -n "$daemon" ]; then
        kill -TERM "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    # A killed daemon leaves mounts; unmount the deepest first.
    awk -v folder="$folder/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort -r |
        while read -r mounted; do umount -l "$mounted" || true; done
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The daemon ends with this script, however it ends.
setpriv --pdeathsig TERM dockerd --host "unix://$folder/docker.sock" --data-root "$folder/data" \
    --exec-root "$folder/exec" --pidfile "$folder/pid" --group root \
    --bridge none --iptables=false --ip-forward=false --ip-masq=false >"$folder/log" 2>&1 &
daemon=$!
DOCKER_HOST=unix://$folder/docker.sock
export DOCKER_HOST

waited=0
until docker version >/dev/null 2>&1; do
    waited=$((waited + 1))
    if [ "$waited" -gt 300 ] || ! kill -0 "$daemon" 2>/dev/null; then
        say "dockerd did not start:"
        tail -n 5 "$folder/log" >&2
        exit 3
    fi
    sleep 0.2
done
status=0
"$@" || status=$?
exit "$status"
