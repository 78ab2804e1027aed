#!/usr/bin/env bash
# Installs into a scratch folder and builds programs against it, as users do: pkg-config, CMake, shared and static.
set -euo pipefail
cd "$(dirname "$0")/../.."

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

die() {
    echo "check-install: $*" >&2
    exit 1
}

cat >"$stage/program.c" <<'END'
#include <gdrapi.h>

int main(void)
{
    int major, minor;

    gdr_runtime_get_version(&major, &minor);
    return major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION ? 0 : 1;
}
END

# files LIBDIR: what `make lib_install` leaves there and nowhere else.
files() {
    cat <<END
./usr/include/gdrapi.h
./usr/$1/cmake/gdrcopy/gdrcopy-config-version.cmake
./usr/$1/cmake/gdrcopy/gdrcopy-config.cmake
./usr/$1/libgdrapi-preload.so
./usr/$1/libgdrapi.a
./usr/$1/libgdrapi.so -> libgdrapi.so.2
./usr/$1/libgdrapi.so.2 -> libgdrapi.so.2.6
./usr/$1/libgdrapi.so.2.6
./usr/$1/pkgconfig/gdrapi.pc -> gdrcopy.pc
./usr/$1/pkgconfig/gdrcopy.pc
END
}

# install_into ROOT LIBDIR
install_into() {
    make --no-print-directory --silent lib_install prefix=/usr libdir="/usr/$2" DESTDIR="$1"
    local found
    found=$(cd "$1" && find . -type f -printf '%p\n' -o -type l -printf '%p -> %l\n' | LC_ALL=C sort)
    [ "$found" = "$(files "$2")" ] || die "installed files differ:"$'\n'"$(diff <(files "$2") <(echo "$found"))"
    [ "$(stat -c %a "$1/usr/$2/libgdrapi.so.2.6")" = 755 ] || die "libgdrapi.so.2.6 is not executable by all"
    ! grep -rl "@[a-z_]*@\|$stage" "$1/usr/$2/pkgconfig" "$1/usr/$2/cmake" || die "placeholders or build paths left over"
}

# pkg_config ROOT LIBDIR ARGUMENT ...
pkg_config() {
    local root=$1 libdir=$2
    shift 2
    PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/$libdir/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 \
        PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config "$@"
}

# With the names that distributions give to the folder of libraries.
for libdir in lib lib64 lib/x86_64-linux-gnu; do
    root=$stage/${libdir//\//-}
    install_into "$root" "$libdir"
    libraries=$root/usr/$libdir

    for package in gdrcopy gdrapi; do
        [ "$(pkg_config "$root" "$libdir" --modversion $package)" = 2.6 ] || die "$package.pc has another version"
        # shellcheck disable=SC2046 # The flags are words.
        gcc "$stage/program.c" -o "$stage/program" $(pkg_config "$root" "$libdir" --cflags --libs $package)
        LD_LIBRARY_PATH=$libraries "$stage/program" || die "a program linked by $package.pc does not work"
    done

    if command -v cmake >/dev/null; then
        mkdir -p "$stage/cmake"
        cat >"$stage/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.10)
project(check C)
find_package(gdrcopy 2.4 REQUIRED CONFIG)
add_executable(with_shared ../program.c)
target_link_libraries(with_shared gdrcopy::gdrapi)
add_executable(with_static ../program.c)
target_link_libraries(with_static gdrcopy::gdrapi_static)
END
        rm -rf "$stage/cmake/build"
        cmake -S "$stage/cmake" -B "$stage/cmake/build" -D gdrcopy_DIR="$libraries/cmake/gdrcopy" >"$stage/log" &&
            cmake --build "$stage/cmake/build" >>"$stage/log" || { cat "$stage/log" >&2 && die "CMake fails"; }
        "$stage/cmake/build/with_shared" || die "a program linked by CMake does not work"
        "$stage/cmake/build/with_static" || die "a program linked statically by CMake does not work"
    fi
done

scripts/ci/check-preload.sh "$stage/lib/usr/lib"

# The static library, with the libraries that the .pc file says it needs, which are those that rustc says.
root=$stage/lib
private=$(pkg_config "$root" lib --static --libs gdrcopy | sed 's/.*-lgdrapi *//; s/ *$//')
# shellcheck disable=SC2086 # The flags are words.
gcc "$stage/program.c" -o "$stage/program" -I"$root/usr/include" "$root/usr/lib/libgdrapi.a" $private
"$stage/program" || die "a program linked statically does not work"
! readelf --dynamic "$stage/program" | grep libgdrapi || die "the static program needs the shared library"

told=$(cargo rustc --quiet --release --package libgdrapi --lib --crate-type staticlib -- --print native-static-libs 2>&1 |
    sed -n 's/.*native-static-libs: //p')
as_set() {
    tr ' ' '\n' <<<"$1" | LC_ALL=C sort -u
}
[ -n "$told" ] || die "rustc does not say what the static library needs"
[ "$(as_set "$told")" = "$(as_set "$private")" ] || die "Libs.private is '$private', but rustc says '$told'"

# The tools run by the names of their links, and have man pages. What else there is, uninstall must find.
make --no-print-directory --silent tools_install prefix=/usr DESTDIR="$root"
for tool in copybw copylat compare apiperf pplat doctor; do
    help=$("$root/usr/bin/gdrcopy_$tool" --help) || die "gdrcopy_$tool --help fails"
    [[ $help == *"Usage: gdrcopy $tool"* ]] || die "gdrcopy_$tool is another tool: $help"
    [ -s "$root/usr/share/man/man1/gdrcopy_$tool.1" ] || die "gdrcopy_$tool has no man page"
done
[ -s "$root/usr/share/bash-completion/completions/gdrcopy" ] || die "bash has no completions"

make --no-print-directory --silent uninstall prefix=/usr libdir=/usr/lib DESTDIR="$root"
[ -z "$(find "$root" -type f -o -type l)" ] || die "uninstall leaves $(find "$root" -type f -o -type l)"

echo "install: files, pkg-config, $(command -v cmake >/dev/null && echo "CMake, ")shared and static linking, tools"
