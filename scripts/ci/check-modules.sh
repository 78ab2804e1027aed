#!/usr/bin/env bash
# Fails if modules of a crate import each other in a circle, and prints the imports.
#
#   scripts/ci/check-modules.sh [DIR…]    the crates' sources (default: the C library's and those in gdrcopy*)
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -gt 0 ] || set -- src gdrcopy*/src
cargo test --quiet --package libgdrapi --test modules -- "$@"
