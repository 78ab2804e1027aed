#!/bin/sh
# demo.sh GDREMU: runs examples/demo on this machine's GPU, with gdrdrv or without. If there is no GPU that works, runs
# it on an emulated one.
set -eu
gdremu=$(realpath "$1")
cd "$(dirname "$0")/.."

export LD_LIBRARY_PATH="$PWD/build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

LD_TRACE_LOADED_OBJECTS=1 build/examples/demo | sed -n 's/.*libgdrapi\.so\.2 => \([^ ]*\) .*/Library: \1/p'

# This is the demo's exit status if it finds no GPU or no driver.
unusable=2

has_libcuda() {
    PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'
}

# run COMMAND...: runs the demo by COMMAND, and exits with the demo's status, unless the demo finds no usable GPU.
run() {
    status=0
    "$@" build/examples/demo || status=$?
    [ $status -eq $unusable ] || exit $status
    echo "Going on with an emulated GPU."
}

if has_libcuda; then
    if [ -e /dev/gdrdrv ]; then
        run env
    elif [ -e /dev/nvidiactl ]; then
        run "$gdremu" --provider nvidia --
    fi
fi
exec "$gdremu" -- build/examples/demo
