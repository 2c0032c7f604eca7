#!/bin/sh
# One run on several hosts, without a cluster:   sh ssh.sh SPEC HOST...
# Start it in a folder that all hosts see under the same path. On all hosts wanbench has the same path too, and ssh asks
# for no password. This host prepares the run and measures; Ctrl-C ends all, and the same command continues.
set -u

spec=$1
shift
wanbench=$(command -v wanbench) || { echo "ssh.sh: wanbench is not on the PATH" >&2; exit 3; }
mkdir -p results
began=$(mktemp results/.began-XXXXXX)
trap 'rm -f "$began"' EXIT
pids=
stopped=
trap 'stopped=130; kill $pids 2>/dev/null' INT TERM

"$wanbench" run "$spec" &
run=$!
pids=$run

# The run has its name when this host has begun to measure. If nothing is left to measure, that never happens.
name=
while [ -z "$name" ] && [ -z "$stopped" ] && kill -0 "$run" 2>/dev/null; do
    sleep 1
    name=$(find results -path 'results/*/workers/*/owner.json' -newer "$began" | cut -d / -f 2 | head -n 1)
done
[ -z "$name" ] || [ -n "$stopped" ] || for host in "$@"; do
    # -tt: with a terminal of its own, the command ends when this ssh does.
    ssh -qtt "$host" "cd '$PWD' && '$wanbench' work '$name' 2>&1 >/dev/null | sed 's/^/$host  /'" </dev/null >&2 &
    pids="$pids $!"
done

wait "$run"
status=$?
wait
exit "${stopped:-$status}"
