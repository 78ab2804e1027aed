#!/usr/bin/env bash
# beside-installed.sh COMMAND…: runs the command as on a computer where another libgdrapi is installed, because most
# users who try this library have another one. It runs once for each place of the other library: /usr/lib,
# /usr/local/lib, a directory of ld.so.conf, and a directory on LD_LIBRARY_PATH. Only the command sees that library.
# Before this script, run `make -f c_tests/programs.mk plain`.
set -euo pipefail

another=$(realpath "$(dirname "$0")/../../build/c_tests/another")
places=(/usr/lib /usr/local/lib /opt/gdrcopy/lib /opt/on-path/lib)

# install_in DIRECTORY: installs another libgdrapi there, in overlays, so that the computer's own directories do not change.
install_in() {
    local work top
    work=$(mktemp -d)
    mount -t tmpfs above "$work"
    for top in /usr /etc /opt; do
        mkdir -p "$work$top/upper" "$work$top/work"
        mount -t overlay above -o "lowerdir=$top,upperdir=$work$top/upper,workdir=$work$top/work" $top
    done
    mkdir -p "$1"
    cp "$another/libgdrapi.so.2" "$1"
    ln -s libgdrapi.so.2 "$1/libgdrapi.so"
    case $1 in
    /opt/on-path/*) export LD_LIBRARY_PATH=$1 ;;
    /opt/*) echo "$1" >/etc/ld.so.conf.d/gdrcopy.conf ;;
    esac
    PATH=$PATH:/sbin:/usr/sbin ldconfig
}

if [ "${1:-}" = --in ]; then
    install_in "$2"
    shift 2
    exec "$@"
fi
unshare -m sh -c 'd=$(mktemp -d) && mount -t tmpfs above $d && mkdir $d/a $d/b && mount -t overlay above -o lowerdir=/opt,upperdir=$d/a,workdir=$d/b /opt' 2>/dev/null ||
    { echo "beside-installed: not run: this takes root, and overlays" && exit; }
for place in "${places[@]}"; do
    echo "beside-installed: another libgdrapi in $place"
    unshare -m "$0" --in "$place" "$@"
done
