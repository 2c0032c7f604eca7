#!/bin/sh
# Installs the system packages that test lanes need. It is quick if they are installed.
#   sh scripts/setup-tests.sh LANE...     kernel: netem, in User-Mode Linux if this kernel has none
#                                         docker: containers, with a private daemon if none runs
#                                         programs: programs that tests run under `wanbench exec`
#                                         recipes: frameworks and launchers, in build/recipes; VENV has torch
#                                         browser: the report and the site, in headless Chromium
#                                         cluster: Ray, in VENV
set -eu

say() { printf 'setup-tests: %s\n' "$*" >&2; }

packages="" missing="" recipes="" cluster=""
need() { # PACKAGE TOOL...
    package=$1
    shift
    for tool in "$@"; do
        if ! command -v "$tool" >/dev/null && ! [ -x "/usr/sbin/$tool" ] && ! [ -x "/sbin/$tool" ]; then
            packages="$packages $package" missing="$missing $tool"
            return
        fi
    done
}

[ $# -gt 0 ] || { say "which lane? expected: kernel, docker, programs, recipes, browser, cluster"; exit 2; }
for lane in "$@"; do
    case $lane in
    kernel)
        need user-mode-linux linux.uml
        need iproute2 ip tc
        need ethtool ethtool
        need kmod modprobe
        need procps sysctl
        if grep -q amx_tile /proc/cpuinfo; then need "gcc libc6-dev" cc; fi # see uml-xstate.c
        ;;
    docker)
        need docker.io docker dockerd
        need docker-compose docker-compose
        need debootstrap debootstrap
        need iperf3 iperf3
        ;;
    programs)
        need iperf3 iperf3
        ;;
    recipes)
        need openmpi-bin mpirun
        recipes=yes
        ;;
    browser)
        need chromium chromium
        need chromium-driver chromedriver
        ;;
    cluster)
        cluster=yes
        ;;
    *)
        say "no lane $lane; expected: kernel, docker, programs, recipes, browser, cluster"
        exit 2
        ;;
    esac
done
if [ -z "$packages" ]; then
    :
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing$packages"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >&2
else
    say "missing:$missing; on Debian and Ubuntu: sudo apt-get install -y$packages"
fi

if [ -n "$cluster" ] && ! "${VENV:-.venv}/bin/python" -c 'import ray' 2>/dev/null; then
    say "installing $(grep '^ray==' constraints.txt)"
    "${VENV:-.venv}/bin/python" -m pip install -q --disable-pip-version-check -c "${VENV:-.venv}/constraints.txt" -e '.[ray]' >&2
fi

# Their packages stay apart from wanbench's, but they use its torch, and torch loads wanbench.
if [ -n "$recipes" ] && ! cmp -s examples/recipes/requirements.txt build/recipes/installed.txt; then
    say "installing the packages of examples/recipes"
    packages='import sysconfig; print(sysconfig.get_path("purelib"))'
    venv=$(cd "${VENV:-.venv}" && pwd)
    "$venv/bin/python" -m venv --clear build/recipes
    { "$venv/bin/python" -c "$packages" && pwd; } >"$(build/recipes/bin/python -c "$packages")/wanbench.pth"
    build/recipes/bin/python -m pip install -q --disable-pip-version-check -r examples/recipes/requirements.txt >&2
    printf '#!/bin/sh\nexec "%s/build/recipes/bin/python" -m torch.distributed.run "$@"\n' "$PWD" >build/recipes/bin/torchrun
    chmod +x build/recipes/bin/torchrun
    cp examples/recipes/requirements.txt build/recipes/installed.txt
fi
