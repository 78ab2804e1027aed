#!/usr/bin/env bash
# Checks which libgdrapi a program gets with each recipe of docs/replacing.md. One program is linked with libgdrapi, and
# another one loads it by either of its names. Another libgdrapi is on LD_LIBRARY_PATH or in the loader's cache. Needs
# no driver.
#
#   ci/scripts/check-preload.sh [DIR]    DIR has the library and its preload object (default: build/lib)
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

lib=$(cd "${1:-build/lib}" && pwd)
cache=$(mktemp /tmp/gdrXXXXXXXX) # The name is as long as /etc/ld.so.cache, which it replaces in a copy of the loader.
trap 'rm -rf "$work" "$cache"' EXIT

# This stands for another libgdrapi, whose minor version is 1. Programs print the minor version of the library that they get.
mkdir "$work/other"
cat >"$work/other.c" <<'END_OF_FILE'
void gdr_runtime_get_version(int *major, int *minor)
{
    *major = 2;
    *minor = 1;
}
END_OF_FILE
gcc -shared -fPIC -Wl,-soname,libgdrapi.so.2 "$work/other.c" -o "$work/other/libgdrapi.so.2.6"
ln -s libgdrapi.so.2.6 "$work/other/libgdrapi.so.2"
ln -s libgdrapi.so.2 "$work/other/libgdrapi.so"

cat >"$work/program.c" <<'END_OF_FILE'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gdrapi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    void (*version)(int *, int *) = NULL;
    int major, minor;

#ifdef LINKED
    (void)argc, (void)argv;
    version = gdr_runtime_get_version;
#else
    const char *name = argv[argc - 1];
    void *library = strncmp(name, "namespace/", 10) == 0 ? dlmopen(LM_ID_NEWLM, name + 10, RTLD_NOW)
                                                         : dlopen(name, RTLD_NOW | RTLD_LOCAL);

    *(void **)&version = library != NULL ? dlsym(library, "gdr_runtime_get_version") : NULL;
    if (version == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#endif
    version(&major, &minor);
    printf("%d\n", minor);
    return 0;
}
END_OF_FILE
gcc -DLINKED -Iinclude "$work/program.c" -o "$work/linked" -L"$work/other" -l:libgdrapi.so.2
gcc -Iinclude "$work/program.c" -o "$work/dlopened" -ldl

# This copy of the loader reads a cache of its own. The other library is in that cache, as if it were installed.
loader=$(readelf --program-headers "$work/linked" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
sed "s|/etc/ld.so.cache|$cache|" "$loader" >"$work/loader"
chmod +x "$work/loader"
PATH=$PATH:/sbin:/usr/sbin ldconfig -X -C "$cache" -f /dev/null "$work/other"

# got PLACE PROGRAM PRELOAD LIBRARY_PATH: prints which library a program gets: `this`, or `other`, which is in PLACE (path or
# cache). PROGRAM is `linked` for the linked program, or the name that the program `dlopened` passes to dlopen.
got() {
    local command=("$work/linked") path=$4
    [ "$2" = linked ] || command=("$work/dlopened" "$2")
    if [ "$1" = cache ]; then
        command=("$work/loader" "${command[@]}")
    else
        path=${path:+$path:}$work/other
    fi
    case $(env LD_PRELOAD="$3" LD_LIBRARY_PATH="$path" "${command[@]}") in
    6) echo this ;;
    1) echo other ;;
    *) die "$2: neither library" ;;
    esac
}

# expect PROGRAM PRELOAD LIBRARY_PATH WANTED: checks that the program gets the library WANTED, both while the other
# library is on LD_LIBRARY_PATH and while it is in the loader's cache.
expect() {
    local place
    for place in path cache; do
        [ "$(got $place "$1" "$2" "$3")" = "$4" ] ||
            die "$1 with LD_PRELOAD='$2' LD_LIBRARY_PATH='$3', another library in the $place: not $4 library"
    done
}

for program in linked libgdrapi.so libgdrapi.so.2; do
    expect $program '' '' other # By default, programs get the other library, which is not this project's.
    expect $program '' "$lib" this
    expect $program "$lib/libgdrapi-preload.so" '' this
done
expect linked "$lib/libgdrapi.so.2" '' this
expect libgdrapi.so.2 "$lib/libgdrapi.so.2" '' this
expect libgdrapi.so "$lib/libgdrapi.so.2" '' other # docs/replacing.md warns that the other library is loaded here.

# docs/replacing.md also warns of these cases: a program loads the library as libgdrapi.so.2.6, or in another namespace
# of the loader, or libgdrapi-preload.so is not in the library's directory.
[ "$(got path libgdrapi.so.2.6 "$lib/libgdrapi-preload.so" '')" = other ] || die "the preload object serves libgdrapi.so.2.6"
[ "$(got path libgdrapi.so.2.6 '' "$lib")" = this ] || die "the library path does not serve libgdrapi.so.2.6"
for program in libgdrapi.so libgdrapi.so.2; do
    expect namespace/$program "$lib/libgdrapi-preload.so" '' other
    expect namespace/$program '' "$lib" this
done
mkdir "$work/moved"
cp "$lib/libgdrapi-preload.so" "$work/moved"
expect linked "$work/moved/libgdrapi-preload.so" '' other
# A libgdrapi may be installed in the loader's default directories, so this copy of the loader has no such directories.
sed 's|/lib/|/LIB/|g; s|/lib64/|/LIB64/|g' "$loader" >"$work/bare"
chmod +x "$work/bare"
mkdir "$work/libc"
ln -s "$(gcc -print-file-name=libc.so.6)" "$work/libc/libc.so.6"
started=$(LD_PRELOAD=$work/moved/libgdrapi-preload.so "$work/bare" --inhibit-cache --library-path "$work/libc" "$(type -P true)" 2>&1) &&
    die "a program starts with libgdrapi-preload.so away from its library"
[[ $started == *'loading shared libraries: libgdrapi.so:'* ]] || die "without the library: $started"

# ldconfig makes links by SONAME. It must make no link to the preload object, and change no other link.
mkdir "$work/installed"
cp -a "$lib"/libgdrapi*.so* "$work/installed"
links() {
    find "$work/installed" -type l -printf '%p -> %l\n' | sort
}
before=$(links)
PATH=$PATH:/sbin:/usr/sbin ldconfig -n "$work/installed"
[ "$(links)" = "$before" ] || die "ldconfig changes links:"$'\n'"$(links)"

echo "preload: $lib: linked, libgdrapi.so and libgdrapi.so.2, and where it does not help, with another library on the path and in the loader's cache"
