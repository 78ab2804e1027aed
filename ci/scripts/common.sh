# The scripts beside this file source it, in the root directory of the project.
# shellcheck shell=bash

# This directory is removed when the script ends.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "$(basename "$0" .sh): $*" >&2
    exit 1
}

# quietly COMMAND…: runs a command. If it fails, prints its output and ends the check.
quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "failed: $*"; }
}
