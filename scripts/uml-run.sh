#!/bin/sh
# Runs a command on a kernel that has netem, on any Linux host: User-Mode Linux, which is an ordinary process.
#   scripts/uml-run.sh [--mem 3G] [--timeout 900] COMMAND...
# The guest uses the host's root file system, so the command finds the same programs and files, in the same folder and
# with the same environment, and has the caller's rights. The guest has its own TMPDIR, /run and /dev/shm.
# Output appears immediately. The exit status is the command's (124: timeout, 125: the guest itself failed).
set -eu

memory=3G timeout=900
while [ $# -gt 0 ]; do
    case $1 in
        --mem) memory=$2; shift 2 ;;
        --timeout) timeout=$2; shift 2 ;;
        --) shift; break ;;
        -*) echo "uml-run: unknown option $1" >&2; exit 2 ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || { echo "usage: uml-run.sh [--mem 3G] [--timeout 900] COMMAND..." >&2; exit 2; }

uml=$(command -v linux.uml) || {
    echo "uml-run: linux.uml: not found; install it: sh scripts/setup-tests.sh kernel" >&2
    exit 125
}
modules=$(dirname "$(ls -d /usr/lib/uml/modules/*/kernel)")

state=$(mktemp -d /tmp/wanbench-uml.XXXXXX)
guest= tail=
cleanup() {
    # The group that `timeout` created: the guest's processes are processes of the host.
    [ -z "$guest" ] || kill -9 -- "-$guest" 2>/dev/null || kill -9 "$guest" 2>/dev/null || true
    [ -z "$tail" ] || kill "$tail" 2>/dev/null || true
    rm -rf "$state"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

quoted() {
    for word in "$@"; do
        printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
    done
}

mkdir -p "$state/tmp" "$state/modules/lib/modules"
ln -s "$modules" "$state/modules/lib/modules/$(basename "$modules")"
: >"$state/output"
export -p | grep -v -e ' PWD=' -e ' OLDPWD=' >"$state/environment"
cat >"$state/init" <<INIT
#!/bin/sh
# Process 1 of the guest.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run && mkdir -p /run/netns
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs '$state/tmp'
for module in veth sch_netem sch_htb sch_tbf cls_u32 tun bridge overlay br_netfilter; do
    modprobe -d '$state/modules' \$module
done >/dev/null 2>&1
chmod 666 /dev/net/tun
ip link set lo up
sysctl -qw net.core.rmem_max=8388608  # one processor: a receiver can run only after a whole train has arrived
(
    . '$state/environment'
    export TMPDIR='$state/tmp'
    cd $(quoted "$PWD") && exec $(quoted "$@")
) </dev/null >'$state/output' 2>&1
echo \$? >'$state/status'
echo guest-is-done
halt -f || echo o >/proc/sysrq-trigger
INIT
chmod +x "$state/init"
chmod 755 "$state"

preload=
if grep -q amx_tile /proc/cpuinfo; then
    cc -shared -fPIC -O2 -o "$state/xstate.so" "$(dirname "$0")/uml-xstate.c" -ldl
    preload=$state/xstate.so
fi
# The guest's memory is a file in /dev/shm. Its clock is the host's, so it gets priority if that is allowed.
urgent=
if nice -n -10 true 2>&1 | { ! grep -q .; }; then urgent="nice -n -10"; fi
env -u TMPDIR LD_PRELOAD="$preload" $urgent timeout -k 5 "$timeout" "$uml" root=/dev/root rootfstype=hostfs rootflags=/ rw "mem=$memory" "init=$state/init" \
    con=null con0=fd:0,fd:1 quiet "uml_dir=$state" </dev/null >"$state/console" 2>&1 &
guest=$!
tail -n +1 -s 0.2 -f --pid="$guest" "$state/output" &
tail=$!
ended=0
wait "$guest" || ended=$?
guest=
wait "$tail" || true
tail=
if [ "$ended" = 124 ] || [ "$ended" = 137 ]; then
    echo "uml-run: stopped after $timeout s" >&2
    exit 124
fi
if [ ! -s "$state/status" ] || ! grep -q guest-is-done "$state/console" || grep -qi 'kernel panic' "$state/console"; then
    echo "uml-run: the guest kernel failed; its console:" >&2
    tail -n 20 "$state/console" >&2
    exit 125
fi
exit "$(cat "$state/status")"
