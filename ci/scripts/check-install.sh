#!/usr/bin/env bash
# Installs everything into a scratch directory, moves the tree, builds the sample projects of tests/install against it,
# runs them under gdremu, and uninstalls.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh
. scripts/versions.sh

samples=$PWD/tests/install
gdremu=${CARGO_TARGET_DIR:-target}/release/gdremu
multiarch=lib/$(gcc -print-multiarch)

# files LIBDIR: lists the files that `make lib_install` leaves in a prefix.
files() {
    LC_ALL=C sort <<END
./include/gdrapi.h
./include/gdrconfig.h
$(printf './%s\n' include/gdrx.h*)
./$1/cmake/gdrcopy/gdrcopy-config-version.cmake
./$1/cmake/gdrcopy/gdrcopy-config.cmake
./$1/cmake/gdrx/gdrx-config-version.cmake
./$1/cmake/gdrx/gdrx-config.cmake
./$1/libgdrapi-preload.so
./$1/libgdrapi.a
./$1/libgdrapi.so -> libgdrapi.so.2
./$1/libgdrapi.so.2 -> libgdrapi.so.2.6
./$1/libgdrapi.so.2.6
./$1/libgdrx.a
./$1/libgdrx.so -> libgdrx.so.1
./$1/libgdrx.so.1 -> libgdrx.so.1.0
./$1/libgdrx.so.1.0
./$1/pkgconfig/gdrapi.pc -> gdrcopy.pc
./$1/pkgconfig/gdrcopy.pc
./$1/pkgconfig/gdrx.pc
$(nm --dynamic --defined-only build/lib/libgdr{api.so.2,x.so.1} | sed -n 's|.* T \(gdrx*_[a-z0-9_]*\).*|./share/man/man3/\1.3|p')
$(printf './share/man/man3/%s.3\n' gdrapi gdrx gdrx_{attach,begin,fence,is_word})
END
}

# check_pages PREFIX: checks that every program has a man page, and that mandoc finds no fault in any page.
check_pages() {
    local program page
    for program in "$1"/bin/* "$1"/sbin/*; do
        [ ! -e "$program" ] || compgen -G "$1/share/man/man[18]/${program##*/}.[18]" >/dev/null ||
            die "${program##*/} has no man page"
    done
    for page in "$1"/share/man/man*/*; do
        if [[ $(head -n 1 "$page") == .so\ * ]]; then
            [ -s "$1/share/man/$(sed 's/^.so //' "$page")" ] || die "$page leads nowhere"
        else
            mandoc -T lint -W warning "$page" || die "$page has mistakes"
        fi
    done
}

# check_files PREFIX LIBDIR: checks that exactly the files that the function `files` lists are installed. Also checks
# the sizes and modes of the shared libraries.
check_files() {
    local found library
    found=$(cd "$1" && find . -type f -printf '%p\n' -o -type l -printf '%p -> %l\n' | LC_ALL=C sort)
    [ "$found" = "$(files "$2")" ] || die "installed files differ:"$'\n'"$(diff <(files "$2") <(echo "$found"))"
    for library in libgdrapi.so.2.6 libgdrx.so.1.0; do
        [ "$(stat -c %a "$1/$2/$library")" = 755 ] || die "$library is not executable by all"
        [ "$(stat -c %s "$1/$2/$library")" -le 450000 ] || die "$library has more than 450,000 bytes: $(size -A "$1/$2/$library")"
    done
    [ -z "$(find "$1" -type f ! -perm -444)" ] || die "not all may read $(find "$1" -type f ! -perm -444)"
    ! grep -rl "@[a-z_]*@\|$work" "$1/$2/pkgconfig" "$1/$2/cmake" || die "placeholders or build paths left over"
}

# run PROGRAM...: runs each program under gdremu.
run() {
    local program
    for program; do
        "$gdremu" -- "$program" || die "$program does not work"
    done
}

# The functions build_... build and run a project in $built. The project finds libgdrapi below $prefix/$libdir by the
# variables that `build` exports.
build_cmake() {
    # Debian's CMake does not search lib64 by itself, so these variables name the directories. The paths lead through a
    # link to lib64, because some systems have such a link: /lib64, which leads to /usr/lib64.
    if [ "$libdir" = lib64 ]; then
        ln -s "$prefix/lib64" "$built/lib64"
        export gdrcopy_DIR=$built/lib64/cmake/gdrcopy GDRCopy_DIR=$built/lib64/cmake/gdrcopy gdrx_DIR=$built/lib64/cmake/gdrx
    fi
    quietly cmake -S "$samples/cmake" -B "$built/cmake"
    quietly cmake --build "$built/cmake"
    run "$built"/cmake/{with_{shared,static,variables},gdrx_{shared,static}}
    no_shared_library "$built"/cmake/gdrx_static
}

build_meson() {
    quietly meson setup "$built/meson" "$samples/meson"
    quietly meson compile -C "$built/meson"
    quietly meson setup -D default_library=static "$built/meson-static" "$samples/meson"
    quietly meson compile -C "$built/meson-static"
    run "$built"/meson{,-static}/program
    no_shared_library "$built/meson-static/program"
}

build_make() {
    quietly make -C "$built" -f "$samples/make/Makefile"
    run "$built"/with_{gdrcopy,gdrapi,gdrx,gdrcopy_archive,gdrx_archive}
    no_shared_library "$built/with_gdrcopy_archive"
    no_shared_library "$built/with_gdrx_archive"
    "$built/static" || die "a program linked with -static does not work"
    ! readelf --program-headers "$built/static" | grep INTERP || die "-static: the program needs a loader"
}

build_autotools() {
    cp -r "$samples/autotools" "$built"
    cp "$samples/program.c" "$built/autotools"
    (cd "$built/autotools" && quietly autoreconf --install && quietly ./configure)
    quietly make -C "$built/autotools"
    run "$built/autotools/program"
}

no_shared_library() {
    ! readelf --dynamic "$1" | grep -E 'lib(gdrapi|gdrx)\.so' || die "$1 needs a shared library"
}

# build PREFIX LIBDIR PROJECT...: builds and runs the projects with the installed library.
build() {
    local prefix=$1 libdir=$2 project
    built=$work/work
    rm -rf "$built"
    mkdir "$built"
    shift 2
    for project; do
        (export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig CMAKE_PREFIX_PATH=$prefix LD_LIBRARY_PATH=$prefix/$libdir
            "build_$project") || exit 1
    done
}

# Installs to the prefix /opt/gdrcopy, once for each name that distributions give to the directory of libraries. Moves
# the tree before it is used.
for libdir in lib lib64 "$multiarch"; do
    root=$work/${libdir//\//-}
    make --no-print-directory --silent lib_install prefix=/opt/gdrcopy libdir="/opt/gdrcopy/$libdir" DESTDIR="$root"
    mv "$root/opt/gdrcopy" "$root/moved"
    check_files "$root/moved" "$libdir"
    for package in gdrcopy gdrapi; do
        [ "$(PKG_CONFIG_PATH=$root/moved/$libdir/pkgconfig pkg-config --modversion $package)" = "$(released libgdrapi)" ] ||
            die "$package.pc has another version"
    done
    [ "$(PKG_CONFIG_PATH=$root/moved/$libdir/pkgconfig pkg-config --modversion gdrx)" = "$(released libgdrx)" ] || die "gdrx.pc has another version"
    projects=(cmake make)
    [ "$libdir" != "$multiarch" ] || projects+=(meson autotools)
    build "$root/moved" "$libdir" "${projects[@]}"
    make --no-print-directory --silent uninstall prefix=/moved libdir="/moved/$libdir" DESTDIR="$root"
    [ -z "$(find "$root" -type f -o -type l)" ] || die "uninstall leaves $(find "$root" -type f -o -type l)"
done

# The prefix is /usr. The .pc file has absolute paths, so that pkg-config can leave out the system's directories. If `make`
# did not set the modes of files, the umask 077 would make them unreadable for other users, and check_files would fail.
root=$work/system
(umask 077 && make --no-print-directory --silent lib_install prefix=/usr DESTDIR="$root")
check_files "$root/usr" lib
grep -qx prefix=/usr "$root/usr/lib/pkgconfig/gdrcopy.pc" || die "gdrcopy.pc has another prefix"
ci/scripts/check-preload.sh "$root/usr/lib"
check_pages "$root/usr"

# rustc prints which libraries the static libraries need. The .pc files must name these, except -lgcc_s. as_set prints a
# list of libraries sorted and without -lgcc_s.
as_set() {
    tr ' ' '\n' <<<"$1" | grep -vx -e -lgcc_s | LC_ALL=C sort -u
}
# check_private PACKAGE CRATE: compares Libs.private of the package's .pc file with rustc's report for the crate.
check_private() {
    local private wanted
    private=$(sed -n 's/^Libs.private: //p' "$root/usr/lib/pkgconfig/$1.pc")
    wanted=$(cargo rustc --quiet --release --package "$2" --lib --crate-type staticlib -- --print native-static-libs 2>&1 |
        sed -n 's/.*native-static-libs: //p')
    [ -n "$wanted" ] || die "rustc does not say what the static library of $2 needs"
    [ "$(as_set "$wanted")" = "$(as_set "$private")" ] || die "Libs.private of $1.pc is '$private', but rustc says '$wanted'"
}
check_private gdrcopy libgdrapi
check_private gdrx gdrx

# Checks that CMake finds the static libraries in a tree without the shared ones.
mkdir -p "$work/archive/lib"
cp -r "$root/usr/include" "$work/archive"
cp -r "$root"/usr/lib/{cmake,lib{gdrapi,gdrx}.a} "$work/archive/lib"
quietly cmake -S "$samples/cmake_static" -B "$work/archive/build" -D CMAKE_PREFIX_PATH="$work/archive"
quietly cmake --build "$work/archive/build"
run "$work"/archive/build/with_{gdrcopy,gdrx}

# Checks that a program can link both static libraries together with a third one that is written in Rust, in either
# order.
rustc --crate-type staticlib -O "$samples/another.rs" -o "$work/libanother.a"
for archives in -lanother\ -lgdrx\ -lgdrapi -lgdrapi\ -lgdrx\ -lanother; do
    # shellcheck disable=SC2086 # $archives has several options.
    quietly gcc -DWITH_gdrx -I"$root/usr/include" "$samples/program.c" -o "$work/program" -Wl,-u,another -L"$work" -L"$root/usr/lib" \
        -Wl,-Bstatic $archives -Wl,-Bdynamic -lgcc_s -lm
    run "$work/program"
done
# Checks that a program can link the static libgdrx and the shared libgdrapi.
quietly gcc -DWITH_gdrx -I"$root/usr/include" "$samples/program.c" -o "$work/program" -L"$root/usr/lib" \
    -Wl,-Bstatic -lgdrx -Wl,-Bdynamic -lgdrapi -lgcc_s -lm
LD_LIBRARY_PATH=$root/usr/lib run "$work/program"

make --no-print-directory --silent gdremu_install prefix=/usr DESTDIR="$root"
"$root/usr/bin/gdremu" -- true || die "the installed gdremu does not work"

# Checks that each link to gdrcopy, such as gdrcopy_copybw, runs the tool of that name, that all programs have man pages,
# and that `make uninstall` also removes the programs.
make --no-print-directory --silent config exes exes_install prefix=/usr DESTDIR="$root"
for tool in copybw copylat apiperf pplat; do
    help=$("$root/usr/bin/gdrcopy_$tool" --help) || die "gdrcopy_$tool --help fails"
    [[ $help == *"Usage: gdrcopy $tool"* ]] || die "gdrcopy_$tool is another tool: $help"
done
trace=$("$gdremu" -- "$root/usr/bin/gdrcopy" trace --lib "$root/usr/lib/libgdrapi.so.2" -- "$work/work/with_gdrcopy" 2>&1 >"$work/log") ||
    die "the installed gdrcopy trace does not work: $trace"
[[ $trace == *" used libgdrapi $root/usr/lib/libgdrapi.so.2.6 "* ]] || die "gdrcopy trace does not see its use: $trace"
[ -s "$root/usr/share/bash-completion/completions/gdrcopy" ] || die "bash has no completions"
check_pages "$root/usr"
for option in $(sed -n 's/.*getopt(argc, argv, "\(.*\)").*/\1/p' c_tests/gdrcopy_sanity/main.c | tr -d : | fold -w 1); do
    grep -q "^\.BI* .*\-$option" "$root/usr/share/man/man1/gdrcopy_sanity.1" || die "gdrcopy_sanity.1 lacks -$option"
done
make --no-print-directory --silent dkms_install DESTDIR="$work/dkms"
check_pages "$work/dkms/usr"

make --no-print-directory --silent uninstall prefix=/usr libdir=/usr/lib DESTDIR="$root"
[ -z "$(find "$root" -type f -o -type l)" ] || die "uninstall leaves $(find "$root" -type f -o -type l)"

echo "install: files, pkg-config, make, CMake, meson, autotools; shared, static and -static; beside another Rust library; moved trees; tools"
