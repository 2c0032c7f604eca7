#!/bin/sh
# The gate in any CI system: sh gate.sh [program | BASE]
#   without an argument   simulated, exact, against baselines/gate.json
#   program               the messages of a program on an emulated network, against baselines/program.json
#   BASE                  step times, this revision alternately with BASE; needs a quiet machine
# Before the first run, write the baselines and commit them, with --accept as below.
# Writes gate.xml (JUnit), gate.md (Markdown) and results/check-NAME/check.json.
set -u

rm -f gate.md gate.xml
if [ $# -eq 0 ]; then
    wanbench check gate.toml --testbed virtual --baseline baselines/gate.json --junit gate.xml --summary gate.md
elif [ "$1" = program ]; then
    wanbench check program.toml --baseline baselines/program.json --junit gate.xml --summary gate.md
else
    wanbench check gate.toml --base "$1" --head HEAD --junit gate.xml --summary gate.md
fi
code=$?

case $code in
    0) ;;
    1) echo "gate: a cell regressed, or a requirement is broken" >&2 ;;
    4) echo "gate: a cell failed, so its speed is unknown" >&2 ;;
    5) echo "gate: not everything could be compared; see the verdicts above" >&2 ;;
    *) echo "gate: not checked; see the error above" >&2 ;;
esac
exit $code
