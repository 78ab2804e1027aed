#!/bin/sh
# Finds programs that the tests of `make test` start by name, and that a Debian with only gcc and make lacks. README.md
# says that gcc and make are enough. This script only searches for names. packaging/check-bare.sh, a part of
# `make package-check`, runs the tests on such a Debian.
set -eu
cd "$(dirname "$0")/../.."

# The first list has programs of dash, coreutils, util-linux, gcc, binutils and make. Tests go on without clang and
# valgrind, and only `make mutants` needs git.
there='cat|cc|cp|env|gcc|make|nm|objdump|readelf|script|setpriv|sh|sleep'
optional='clang|git|valgrind'

# gdremu's tests may start other programs. `make test` does not run these tests, and `make check` installs the programs.
if git grep -nE 'Command::new\("' -- '*.rs' ':!gdremu/tests' | grep -vE "Command::new\(\"($there|$optional)\"\)"; then
    echo "check-commands: a bare Debian lacks these programs: do without them, or skip with a line" >&2
    exit 1
fi
