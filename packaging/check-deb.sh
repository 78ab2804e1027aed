#!/usr/bin/env bash
# check-deb.sh DIR: in a fresh Debian 12 tree, installs the packages in DIR over packages with the names and the files of
# NVIDIA's, runs what they contain on an emulated GPU, removes them, and checks that nothing is left. Runs lintian, too.
set -euo pipefail
debs=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
. packaging/tree.sh

scripts/ci/apt-install.sh debootstrap lintian

lint_debs "$debs"

new_tree deb
in_tree_quietly apt-get install -qq -y --no-install-recommends dkms
new_kernel
contents >"$work/before"

# replaced PACKAGE FILE...: installs a package as NVIDIA's 2.6 would be.
replaced() {
    local package=$1 dir=$work/replaced/$1 file
    shift
    rm -rf "$dir"
    mkdir -p "$dir/DEBIAN"
    for file; do
        mkdir -p "$dir/$(dirname "$file")"
        echo replaced >"$dir/$file"
    done
    printf '%s\n' "Package: $package" 'Version: 2.6-1' "Architecture: $(dpkg --print-architecture)" 'Maintainer: none <none@localhost>' \
        'Description: stands for the package of NVIDIA' >"$dir/DEBIAN/control"
    dpkg-deb --build --root-owner-group "$dir" "$tree/root/$package.deb" >/dev/null
    in_tree_quietly dpkg --install "/root/$package.deb"
}
libdir=usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
replaced libgdrapi usr/include/{gdrapi,gdrconfig}.h "$libdir"/libgdrapi.so{,.2,.2.6}
replaced gdrcopy-tests usr/bin/gdrcopy_{sanity,copybw,copylat,apiperf,pplat}
replaced gdrdrv-dkms usr/src/gdrdrv-2.6/{dkms.conf,gdrdrv.c}
replaced gdrcopy usr/share/doc/gdrcopy/README

mkdir "$tree/root/debs"
cp "$debs"/*.deb "$tree/root/debs"
# By dpkg, which is stricter than apt about the order.
in_tree_quietly sh -c 'dpkg --install /root/debs/*.deb'
! in_tree grep -rlx replaced /usr/bin /usr/include /usr/src "/$libdir" || die "files of the replaced packages are left"
# There is a kernel, but no GPU driver yet.
[ "$(in_tree dkms status gdrdrv/2.6 | grep -c added)" = 1 ] || die "DKMS does not have the module"
new_gpu_driver
in_tree_quietly dkms autoinstall
check_module
run_programs
check_debug_symbols "$tree/$libdir/libgdrapi.so.2.6"

rm -r "$tree/usr/src/nvidia-1"
in_tree_quietly dpkg --purge gdrcopy gdrcopy-tests libgdrapi-dev libgdrapi-dbgsym libgdrapi gdrdrv-dkms gdremu
contents | diff "$work/before" - || die "the packages leave something, see above"
echo "deb: installed, upgraded from NVIDIA's names, run, removed without remains"
