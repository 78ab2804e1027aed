#!/usr/bin/env bash
# Fails if modules of a crate import each other in a circle, and prints the imports. Also fails if a module without
# unsafe code does not forbid it, or if the crate gdrcopy has an item that its documentation hides, because programs
# could use this item.
#
#   ci/scripts/check-modules.sh [DIR…]    each DIR has the sources of a crate (default: those of all crates)
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || set -- src crates/gdrcopy{,-core}/src crates/gdrx/src tools/src packaging/python/src gdremu{,/*}/src
if grep -rnE '\bdoc *\(.*\bhidden\b' crates/gdrcopy/src; then
    echo "check-modules: make these items pub(crate), or document them" >&2
    exit 1
fi
cargo test --quiet --workspace --test modules -- "$@"
