#!/usr/bin/env bash
# Compiles the headers in every C and C++ standard since C99 and C++11, and gdrx.hpp since C++17, with gcc and clang and
# many warnings. The files of c_tests/header assert types, layouts and values.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

warnings="-Werror -pedantic-errors -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wcast-qual -Wundef
    -Wredundant-decls"
c_warnings="-Wstrict-prototypes -Wmissing-prototypes -Wc++-compat"
cxx_warnings="-Wold-style-cast -Wuseless-cast -Wzero-as-null-pointer-constant"
# These warnings are off, because padding is part of the ABI, and because C++98 has no <stdint.h>, which the headers
# need.
clang_warnings="-Weverything -Wno-padded -Wno-c++98-compat -Wno-c++98-compat-pedantic"

# compile STANDARD COMPILER FLAG...: compiles gdrapi.h (with gdrconfig.h before it, then after it), gdrx.h and,
# from C++17 on, gdrx.hpp.
compile() {
    local language=c sources=(c_tests/header/{c99,config,gdrx}.c) source
    [[ $1 != c++* ]] || language=c++ sources=(c_tests/header/{cxx17.cpp,config.c,gdrx.c})
    [[ $1 != c++[2-9]* && $1 != c++17 ]] || sources+=(c_tests/gdrx/header.cpp)
    for source in "${sources[@]}"; do
        "${@:2}" -std="$1" -fsyntax-only -Iinclude -x $language "$source" || die "$2 -std=$1: see above"
        # The headers must also compile after sys/user.h, which defines some of the macros that gdrconfig.h defines.
        "${@:2}" -std="$1" -fsyntax-only -Iinclude -include sys/user.h -x $language "$source" || die "$2 -std=$1: see above"
    done
}
# c2x and c++2b are C23 and C++23. Older compilers know only these names.
# shellcheck disable=SC2086 # Each word is a flag.
for standard in c99 c11 c17 c2x; do
    compile $standard gcc $warnings $c_warnings &
    compile $standard clang $warnings $clang_warnings
    wait $!
done
# shellcheck disable=SC2086
for standard in c++11 c++14 c++17 c++20 c++2b; do
    compile $standard g++ $warnings $cxx_warnings &
    compile $standard clang++ $warnings $clang_warnings
    wait $!
done

# refuse REASON COMPILER FLAG...: checks that c_tests/gdrx/header.cpp does not compile with these flags, and that the
# compiler prints REASON.
refuse() {
    ! "${@:2}" -fsyntax-only -Iinclude c_tests/gdrx/header.cpp 2>"$work/$2" || die "${*:2} compiles, not: $1"
    grep -qF "$1" "$work/$2" || { cat "$work/$2" >&2 && die "${*:2} fails, but not by: $1"; }
}
refused=$(sed -n 's|^#\(el\)\?if REFUSED == \([0-9]*\) // \(.*\)|\2 \3|p' c_tests/gdrx/header.cpp)
# refuse_all COMPILER: calls refuse for everything that must not compile.
refuse_all() {
    refuse "compile with -std=c++17" "$1" -std=c++14
    refuse "reports errors by exceptions" "$1" -std=c++17 -fno-exceptions
    while read -r number reason; do
        refuse "$reason" "$1" -std=c++17 "-DREFUSED=$number"
    done <<<"${refused:?no lines to refuse}"
}
refuse_all g++ &
refuse_all clang++
wait $!
# Compiles the C++ example of docs/gdrx.md.
sed -n '/^```cpp$/,/^```$/{//!p}' docs/gdrx.md >"$work/example.cpp"
grep -q gdrx::mapping "$work/example.cpp" || die "docs/gdrx.md has no C++ example"
g++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -Iinclude "$work/example.cpp"
# Two files include gdrx.hpp. The linker checks that its definitions are the same in both.
g++ -std=c++17 -O2 -flto=auto -Werror=odr -Werror=lto-type-mismatch -Iinclude -Ic_tests \
    c_tests/gdrx/{cxx,header}.cpp -shared -fPIC -o "$work/odr.so"

echo "headers: types, layouts and values; C99 to C23 and C++11 to C++23, gcc and clang, no warnings; what gdrx.hpp must refuse"
