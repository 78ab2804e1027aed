#!/usr/bin/env bash
# Checkpoints processes with CRIU, in the guest, and prints TAP. check.sh calls it, and has built everything. CRIU also calls
# it as an action script. Then it does the work of CRIU's plugin for CUDA, and calls scripts/criu-action.
#
# usage: check-criu.sh GDRCOPY LIB ROUNDS
#   GDRCOPY  the installed program   LIB     directory of libgdrapi.so.2
#   ROUNDS   checkpoints over it; 3 over c_tests/another
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
program=$root/build/c_tests/checkpointed

# each COMMAND: with the number and the status file of the process, and of its child.
each() {
    "$@" "$pid" "$work/status" && "$@" "$child" "$work/status.child"
}

# await PID FILE COUNT: until that many signals were served.
await() {
    until [ "$(cat "$2" 2>/dev/null)" = "$3" ]; do
        kill -0 "$1" || return 1
        sleep 0.02
    done
}

# serve SIGNAL PID FILE
serve() {
    local served
    served=$(cat "$3")
    kill "-$1" "$2" && await "$2" "$3" $((served + 1))
}

if [ -n "${CRTOOLS_SCRIPT_ACTION-}" ]; then
    case $CRTOOLS_SCRIPT_ACTION in
    pre-dump) "$root/scripts/criu-action" && each serve USR1 ;;
    post-resume) each serve USR2 && "$root/scripts/criu-action" ;;
    esac
    exit
fi

rounds=$3
PATH=$(cd "$(dirname "$1")" && pwd):$PATH
lib=$2
# shellcheck source=gdrdrv-c/tests/tap.sh
. "$root/gdrdrv-c/tests/tap.sh"
work=$(mktemp -d)
export work pid child

mount -t tmpfs run /run # CRIU remembers there what it has found out about the kernel.
# CRIU asks them for sockets, and at its start for the features of the kernel.
for kernel in "$root"/build/gdrdrv-c/kernel/*; do
    [ "$(cat "$kernel/release")" != "$(uname -r)" ] ||
        modprobe --dirname "$kernel" --all unix_diag tcp_diag udp_diag netlink_diag af_packet_diag nf_tables tun veth
done

# start LIB: the program, over a libgdrapi.
start() {
    rm -rf "${work:?}"/*
    LD_LIBRARY_PATH=$1 setsid gdrcopy checkpoint -- "$program" "$work/status" </dev/null >"$work/log" 2>&1 &
    pid=$!
    disown # The shell prints nothing when it is killed.
    await $pid "$work/status" 0
    child=$(cat /proc/$pid/task/$pid/children)
    child=${child% }
    await "$child" "$work/status.child" 0
}

stop() {
    cat "$work/log"
    kill -KILL "$pid" "$child"
    each gone
}

# gone PID: waits for its end.
gone() {
    while kill -0 "$1" 2>/dev/null; do
        sleep 0.02
    done
}

# Both processes end, and come back.
checkpoint() {
    rm -rf "$work/images"
    mkdir "$work/images"
    criu dump --tree "$pid" --images-dir "$work/images" --log-file dump.log --action-script "$0" ||
        { tail "$work/images/dump.log" && return 1; }
    each gone
    criu restore --restore-detached --images-dir "$work/images" --log-file restore.log --action-script "$0" ||
        { tail "$work/images/restore.log" && return 1; }
}

# checkpoints LIB ROUNDS
checkpoints() {
    local round status=0
    start "$1"
    for ((round = 0; round < $2 && status == 0; round++)); do
        { each serve HUP && checkpoint; } || status=1
    done
    [ $status -ne 0 ] || each serve HUP || status=1
    stop
    echo "$round checkpoints"
    return $status
}

tap_begin 2
tap_test "criu: over this library" checkpoints "$lib" "$rounds"
tap_test "criu: over another library" checkpoints "$root/build/c_tests/another" 3
rm -rf "$work"
tap_end
