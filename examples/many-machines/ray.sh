#!/bin/sh
# One run on a Ray cluster that lives as long as the run:   sh ray.sh SPEC HOST...
# On all hosts wanbench[ray] is installed under the same path, and ssh asks for no password. They share no folder: results
# come to this host, into ./results. They share Ray's token: `ray get-auth-token --generate` writes ~/.ray/auth_token,
# which you copy to the others. If you have a cluster, you need only the last command.
set -eu

spec=$1
shift
ray=$(command -v ray)
address=$(hostname -I | cut -d ' ' -f 1):6379
pids=
trap 'kill $pids 2>/dev/null || true; wait' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$ray" start --head --port "${address#*:}" --include-dashboard=false --block >ray.log 2>&1 &
pids=$!
until "$ray" status --address "$address" >/dev/null 2>&1; do
    kill -0 "$pids" 2>/dev/null || { cat ray.log >&2; exit 3; }
    sleep 1
done
for host in "$@"; do # a node that comes later gets work too
    ssh -qtt "$host" "'$ray' start --address '$address' --block" </dev/null >"ray-$host.log" 2>&1 &
    pids="$pids $!"
done
wanbench run "$spec" --engine ray --address "$address"
