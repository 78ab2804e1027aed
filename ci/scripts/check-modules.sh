#!/usr/bin/env bash
# Fails if modules of a crate import each other in a circle, and prints the imports, or if one without unsafe code does not
# forbid it. Also fails if the crate gdrcopy has an item that its documentation hides, because programs could use it.
#
#   ci/scripts/check-modules.sh [DIR…]    the crates' sources (default: of all crates)
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || set -- src crates/gdrcopy{,-core}/src crates/gdrx/src tools/src packaging/python/src gdremu{,/*}/src
if grep -rnE '\bdoc *\(.*\bhidden\b' crates/gdrcopy/src; then
    echo "check-modules: make these items pub(crate), or document them" >&2
    exit 1
fi
cargo test --quiet --package libgdrapi --test modules -- "$@"
