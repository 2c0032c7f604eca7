#!/bin/sh
# Entry of the controller's image: `wanbench` as the owner of the mounted working folder, so that results are theirs.
#   docker-controller.sh ARGUMENT...
set -eu

owner=$(stat -c '%u' .)
group=$(stat -c '%g' .)
# Of the capabilities only SYS_NICE is kept, which a limit on rtprio could replace if every daemon could set one.
exec setpriv --reuid "$owner" --regid "$group" --clear-groups --no-new-privs \
    --inh-caps=-all,+sys_nice --ambient-caps=-all,+sys_nice wanbench "$@"
