#!/usr/bin/env bash
# Runs the C programs and Rust tests of `make test` once more, as a user without privileges. CI runs as root, for whom
# limits and permissions do not count. `make test` has built the programs, and nothing is built here.
#
#   ci/scripts/as-other-user.sh [FILTER [programs]]    FILTER selects C programs; `programs` leaves out Rust tests
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

user=65534
[ "$(id -u)" -eq 0 ] || { echo "as-other-user: not run: this is no root, so the tests before ran as such a user" && exit; }
type -P setpriv >/dev/null || { echo "as-other-user: not run: there is no setpriv" && exit; }
other=(setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all)
"${other[@]}" test -r "$PWD/Makefile" || { echo "as-other-user: not run: $PWD is closed to other users" && exit; }

# executables OPTION…: prints a line for each test program that `cargo test OPTION…` would run. The line has the paths of its
# package's manifest and of the program.
executables() {
    cargo test --no-run --message-format json "$@" 2>/dev/null |
        sed -n 's/.*"manifest_path":"\([^"]*\)".*"kind":\["test"\].*"executable":"\([^"]*\)".*/\1 \2/p'
}

chmod 755 "$work"
mkdir -m 777 "$work/home" "$work/logs"
variables=(HOME="$work/home" TMPDIR="$work/home" GDRCOPY_TEST_BUILT=1 GDRCOPY_TEST_LOGS="$work/logs" MODEL_CALLS=500 CHECK_SLOWNESS=100)
root=$PWD

# run MANIFEST EXECUTABLE ARGUMENT…: runs a test program as the user without privileges, in the directory in which
# cargo would run it.
run() {
    local package
    package=$(dirname "$1")
    echo "as-other-user: ${2##*/}"
    (cd "$package" && env "${variables[@]}" CARGO_MANIFEST_DIR="$package" "${other[@]}" "$root/build/c_tests/watched" "${@:2}")
}

programs=$(executables --workspace --test c_programs)
# shellcheck disable=SC2086 # $programs has two words: the manifest and the executable.
run $programs "${1:-}"
[ "${2-}" != programs ] || exit 0
# `make test` selects these packages, so cargo has built their tests. Tests that compile or link something (`fences`
# links libgdrx), and tests for which root must prepare the system, are left out.
packages=(--package libgdrapi --package gdrcopy-core --package gdrcopy --package gdrcopy-tools)
executables "${packages[@]}" --test emulated --test fuzz --test cli --test measure --test tune --test trace --test doctor |
    while read -r manifest executable; do
        run "$manifest" "$executable" --quiet --skip fences:: --skip choose_the_remedy </dev/null
    done
