#!/bin/sh
# Finds programs that the tests of `make test` start by name and that are not in a Debian with gcc and make. README.md
# says that these are enough. Only by name, because packaging/check-bare.sh, part of `make package-check`, runs the
# tests there.
set -eu
cd "$(dirname "$0")/../.."

# Programs of dash, coreutils, util-linux, gcc, binutils and make. Without clang and valgrind tests go on, and only `make mutants` needs
# git.
there='cat|cc|cp|env|gcc|make|nm|objdump|readelf|script|setpriv|sh|sleep'
optional='clang|git|valgrind'

# gdremu's programs are tested by `make check`.
if git grep -nE 'Command::new\("' -- '*.rs' ':!gdremu/tests' | grep -vE "Command::new\(\"($there|$optional)\"\)"; then
    echo "check-commands: a bare Debian lacks these programs: do without them, or skip with a line" >&2
    exit 1
fi
