#!/usr/bin/env bash
# check-cross.sh ARCH DIR: checks the packages that were cross-built for ARCH, in DIR/deb, DIR/rpm and DIR/wheel. It checks
# their arch and their libraries, runs lintian and rpmlint, and runs their programs with qemu-user on an emulated GPU.
set -euo pipefail
arch=$1
packages=$(cd "$2" && pwd)
cd "$(dirname "$0")/.."
. packaging/tree.sh

ci/scripts/apt-install.sh lintian rpm rpmlint qemu-user
type=$arch-linux-gnu
debian_arch=$(dpkg-architecture --host-type "$type" -q DEB_HOST_ARCH 2>/dev/null)

# new_tree NAME: makes the root file system $work/ARCH-NAME, which has only the C library of the cross compiler, and puts its
# name into $tree.
new_tree() {
    tree=$work/$arch-$1
    rm -rf "$tree"
    mkdir -p "$tree"
    cp -a "/usr/$type/lib" "$tree"
}

# emulated PROFILE PROGRAM [ARGUMENT...]: runs a program of the tree under gdremu, each in a qemu of its own. gdremu preloads
# its library into the program's qemu. The library is for ARCH, so this computer's loader prints that it is ignored.
emulated() {
    qemu-"$arch" -L "$tree" -E LD_LIBRARY_PATH="${libdir#"$tree"}" "$tree/usr/bin/gdremu" --profile "$1" -- \
        qemu-"$arch" -L "$tree" "$tree$2" "${@:3}"
}

# check_elf DIR: checks that every ELF file in DIR is for ARCH, and prints how many there are.
check_elf() {
    local file machine count=0
    while read -r file; do
        machine=$(readelf --file-header "$file" 2>/dev/null | sed -n 's/^ *Machine: *//p' || true)
        [ -n "$machine" ] || continue
        [ "${machine,,}" = "$arch" ] || die "$file is for $machine"
        count=$((count + 1))
    done < <(find "$1" -type f)
    [ $count -gt 0 ] || die "no ELF file in $1"
    echo "$count ELF files for $arch"
}

# runs LIBRARY: checks that a program can load the library, and that gdr_runtime_get_version reports 2.6.
runs() {
    "$type-gcc" -x c - -o "$work/loads" <<'END'
#include <dlfcn.h>

int main(int argc, char **argv)
{
    int major = 0, minor = 0;
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    void (*version)(int *, int *);

    *(void **)&version = library ? dlsym(library, "gdr_runtime_get_version") : 0;
    if (version)
        version(&major, &minor);
    return major != 2 || minor != 6;
}
END
    qemu-"$arch" -L "/usr/$type" "$work/loads" "$1" || die "$1 cannot be loaded, or has another version"
}

# check_installed: checks the files in $tree, with the libraries in $libdir. Tests of forked children are left out, because
# qemu 7.2 ignores MADV_DONTFORK and MADV_WIPEONFORK. So mappings do not end in a child, and handles are not refused there.
# doctor is left out, because it starts itself, and qemu starts no programs of the other arch.
check_installed() {
    check_elf "$tree/usr"
    ci/scripts/check-symbols.sh "$libdir"/libgdr{api.so.2,x.so.1}
    runs "$libdir/libgdrapi.so"
    check_debug_symbols "$libdir/libgdrapi.so.2.6" "$type-"
    emulated default /usr/bin/gdrcopy doctor --help >/dev/null || die "gdrcopy doctor --help fails"
    run_programs '^(doctor|fork)$|^invalidation_fork_(access_after_free|after_gdr_map|child_gdr_map_parent)_'
}

echo "== deb"
lint_debs "$packages/deb"
new_tree deb
for deb in "$packages"/deb/*.deb; do
    found=$(dpkg-deb --field "$deb" Architecture)
    [[ $found = "$debian_arch" || $found = all ]] || die "$deb is for $found"
    ! dpkg-deb --field "$deb" Depends | grep -e -cross || die "$deb depends on a package of the cross compiler"
    dpkg-deb --extract "$deb" "$tree"
done
libdir=$tree/usr/lib/$type
check_installed
check_linked "$libdir" "$type-gcc"

echo "== rpm"
lint_rpms "$packages/rpm"
new_tree rpm
for rpm in "$packages"/rpm/*.rpm; do
    found=$(rpm -qp --queryformat '%{ARCH}' "$rpm")
    [[ $found = "$arch" || $found = noarch ]] || die "$rpm is for $found"
done
rpm --root "$tree" --dbpath /var/lib/rpm --ignorearch --nodeps --noscripts --install "$packages"/rpm/*.rpm
libdir=$tree/usr/lib64
check_installed

echo "== wheel"
wheel=$(echo "$packages"/wheel/*"_$arch.whl")
tree=$work/$arch-wheel
libdir=$tree/usr/lib/$type
site=$tree/site-packages
rm -rf "$tree"
# Python and the C library of Debian 12 are only unpacked, because the scripts of packages for ARCH cannot run here.
bootstrap "$tree" bookworm --foreign --arch="$debian_arch" --include=python3
for deb in "$tree"/var/cache/apt/archives/*.deb "$packages"/deb/gdremu_*.deb; do
    dpkg-deb --extract "$deb" "$tree"
done
pip=(python3 -m pip --quiet --disable-pip-version-check install --root-user-action ignore --target "$site" --only-binary=:all:
    --python-version 3.11 --platform "manylinux_2_28_$arch")
"${pip[@]}" --platform "$(grep -o "manylinux_[0-9_]*_$arch" <<<"$wheel")" --no-index "$wheel"
"${pip[@]}" numpy || echo "pip cannot install NumPy: its tests are skipped"
check_elf "$site/gdrcopy"
ci/scripts/check-symbols.sh "$site/gdrcopy/lib/libgdrapi.so"
for name in libgdrapi.so libgdrapi-preload.so; do
    runs "$site/gdrcopy/lib/$name"
done
# Tests that fork or start Python again are left out, because qemu does not run them correctly.
PYTHONPATH=$site:$PWD/packaging/python/tests PYTHONDONTWRITEBYTECODE=1 emulated default /usr/bin/python3.11 -c '
import gpu, unittest
from test_mapping import Copies, Lifetimes, OfEveryKindOfObject, Pins, Views, Words
del Lifetimes.test_process_that_ends_with_views_prints_nothing, Pins.test_failures_leave_no_pin_and_can_be_repeated
del Pins.test_close_at_exit_does_not_wait_for_a_thread_that_has_ended, Pins.test_other_interpreters_are_refused
unittest.main()' >"$work/python.log" 2>&1 || die "the Python tests fail, see $work/python.log"
echo "wheel: pip installs it, both names load, Python: $(grep '^Ran' "$work/python.log")"
