#!/bin/sh
# Entry point of the controller's image: runs `wanbench` as the owner of the mounted folder, who then owns the results.
#   docker-controller.sh ARGUMENT...
set -eu

owner=$(stat -c '%u' .)
group=$(stat -c '%g' .)
# The only capability that is kept, if the container has it. (A limit on rtprio would do, too, but not every daemon can
# set one.)
keep=-all
if setpriv --inh-caps=+sys_nice --ambient-caps=+sys_nice true 2>/dev/null; then
    keep=-all,+sys_nice
fi
exec setpriv --reuid "$owner" --regid "$group" --clear-groups --no-new-privs \
    --inh-caps="$keep" --ambient-caps="$keep" wanbench "$@"
