#!/bin/sh
# The gate in any CI system: sh gate.sh [BASE]
#   without BASE   simulated, exact, against baselines/gate.json
#   with BASE      measured on an emulated network, this revision alternately with BASE
# Writes gate.xml (JUnit), gate.md (Markdown) and results/check-gate/check.json.
set -u

rm -f gate.md gate.xml
if [ $# -eq 0 ]; then
    wanbench check gate.toml --testbed virtual --baseline baselines/gate.json --junit gate.xml --summary gate.md
else
    wanbench check gate.toml --base "$1" --head HEAD --junit gate.xml --summary gate.md
fi
code=$?

case $code in
    0) ;;
    1) echo "gate: a cell regressed, or a requirement is broken" >&2 ;;
    4) echo "gate: a cell failed, so its speed is unknown" >&2 ;;
    5) echo "gate: inconclusive; try again on a quiet machine" >&2 ;;
    *) echo "gate: not checked; see the error above" >&2 ;;
esac
exit $code
