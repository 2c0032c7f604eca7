#!/bin/sh
# Entry of the controller's image: `wanbench` as the owner of the mounted working folder, so that results are theirs.
#   docker-controller.sh ARGUMENT...
set -eu

owner=$(stat -c '%u' .)
group=$(stat -c '%g' .)
# The one capability that is kept, where the container has it. (A limit on rtprio would do as well, but not every daemon
# may set one.)
keep=-all
if setpriv --inh-caps=+sys_nice --ambient-caps=+sys_nice true 2>/dev/null; then
    keep=-all,+sys_nice
fi
exec setpriv --reuid "$owner" --regid "$group" --clear-groups --no-new-privs \
    --inh-caps="$keep" --ambient-caps="$keep" wanbench "$@"
