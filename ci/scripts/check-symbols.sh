#!/usr/bin/env bash
# check-symbols.sh LIBRARY...: checks that each library exports the functions of libgdrapi, or those of libgdrx if that
# is its name, and nothing more. Also checks its SONAME, and the libraries that it needs.
set -euo pipefail

sources=$(dirname "$0")/../..

of_libgdrapi=$(sed -n 's/^ *each([a-z0-9_]*, \([a-z0-9_]*\),.*/gdr_\1/p' "$sources/c_tests/functions.h" | LC_ALL=C sort)

# Each symbol of libgdrx has a symbol version, by which the loader finds it for programs.
of_libgdrx=$(awk '/^GDRX_/ { version = $1 } /^ *gdrx_/ { sub(/;/, ""); print $1 "@@" version }' \
    "$sources/crates/gdrx/libgdrx.map" | LC_ALL=C sort)

# Our libraries may need only the C library (which before glibc 2.34 has several files, such as libpthread and libdl), the
# library by which Rust unwinds the stack, and the loader.
allowed_libraries='libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|libgcc_s\.so\.1|ld-linux.*\.so\.[0-9]+|ld64\.so\.[0-9]+'

failed=0
fail() {
    echo "check-symbols: $library: $*" >&2
    failed=1
}

dynamic() {
    readelf --dynamic --wide "$library" | sed -n "s/.*($1).*\[\(.*\)\]/\1/p"
}

for library; do
    case ${library##*/} in
    libgdrx.*) name=libgdrx soname=libgdrx.so.1 wanted=$of_libgdrx ;;
    *) name=libgdrapi soname=libgdrapi.so.2 wanted=$of_libgdrapi ;;
    esac

    # nm also lists the names of the symbol versions, as absolute symbols. These symbols are left out.
    symbols=$(nm --dynamic --defined-only "$library" | awk '$(NF-1) != "A" { print $NF }' | LC_ALL=C sort)
    [ "$symbols" = "$wanted" ] ||
        fail "exports differ (< missing, > too many):"$'\n'"$(diff <(echo "$wanted") <(echo "$symbols") | grep '^[<>]')"

    [ "$(dynamic SONAME)" = $soname ] || fail "SONAME is $(dynamic SONAME), not $soname"

    unexpected=$(dynamic NEEDED | grep -vxE "$allowed_libraries" || true)
    [ -z "$unexpected" ] || fail "needs more than the C library:" $unexpected

    # A static library beside the shared one must have the same global symbols, and no others. A program could not link
    # it with another Rust archive if both had, for example, global symbols of Rust's standard library.
    archive=$(dirname "$library")/$name.a
    if [ -e "$archive" ]; then
        symbols=$(nm --extern-only --defined-only "$archive" | awk 'NF == 3 { print $3 }' | LC_ALL=C sort)
        [ "$symbols" = "$(sed 's/@.*//' <<<"$wanted")" ] || fail "global symbols of $name.a differ:"$'\n'"$symbols"
    fi

    [ $failed -ne 0 ] || echo "symbols: exactly $(wc -l <<<"$wanted"), $soname, needs only $(dynamic NEEDED | paste -sd' ')"
done
exit $failed
