# Sourced by the checks, in the root of the project.
# shellcheck shell=bash

# Removed at the end.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "$(basename "$0" .sh): $*" >&2
    exit 1
}

# quietly COMMAND…: prints the command's output only if it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "failed: $*"; }
}
