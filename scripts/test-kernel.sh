#!/bin/sh
# Runs the tests that need netem: on this kernel if it has netem, else in User-Mode Linux. As root this includes tests
# with containers, with a private Docker daemon if none runs.
#   PYTHON=.venv/bin/python sh scripts/test-kernel.sh [PYTEST ARGUMENTS...]     a path in tests/ selects its tests only
#   MARKS="netem and long"   selects tests, as pytest -m; the default is all that are not long
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}

[ $# -gt 0 ] || set -- -v
case " $* " in
*" tests/"*) ;;
# Only the files with such tests: on one slow processor, importing all the others takes time.
*) set -- tests/kernel $(grep -rl --include='test_*.py' 'mark\.netem' tests/e2e tests/docker) "$@" ;;
esac
require=netem with=
if [ "$(id -u)" = 0 ] && echo "$@" | grep -q tests/docker; then
    require=netem,docker with="sh scripts/with-dockerd.sh"
fi
export WANBENCH_REQUIRE="$require${WANBENCH_REQUIRE:+,$WANBENCH_REQUIRE}"
missing=$("$PYTHON" -m wanbench.harness.emulators.netem.detect)
if [ -n "$missing" ]; then
    echo "test-kernel: using User-Mode Linux, because: $missing" >&2
    exec sh scripts/uml-run.sh --timeout 2700 $with sh scripts/measured-tests.sh "$PYTHON" -m pytest -m "${MARKS:-netem}" "$@"
fi
echo "test-kernel: using this kernel, which has netem" >&2
if [ "$(id -u)" = 0 ]; then
    exec $with sh scripts/measured-tests.sh "$PYTHON" -m pytest -m "${MARKS:-netem}" "$@"
fi
# Root in new namespaces, which disappear with it however it ends.
exec unshare --user --map-root-user --net --mount --pid --fork --kill-child --mount-proc \
    sh scripts/measured-tests.sh "$PYTHON" -m pytest -m "${MARKS:-netem}" "$@"
