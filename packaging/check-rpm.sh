#!/usr/bin/env bash
# check-rpm.sh DIR: installs the RPM packages in DIR into a fresh tree with `rpm --root`, over packages with the names and the
# files of NVIDIA's, runs what they contain on an emulated GPU, removes them, and checks that nothing is left. Runs rpmlint,
# too. The tree is Debian's, so it has the C library and DKMS, but no RPM packages that provide them.
set -euo pipefail
rpms=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
. packaging/tree.sh

scripts/ci/apt-install.sh debootstrap rpm rpmlint

lint_rpms "$rpms"

new_tree rpm
in_tree_quietly apt-get install -qq -y --no-install-recommends dkms
new_kernel
new_gpu_driver
contents >"$work/before"

# build NAME: builds a package without architecture from the spec file $work/NAME.spec.
build() {
    rpmbuild -bb --quiet --define "_topdir $work/rpmbuild" --define "_rpmdir $work/rpmbuild" "$work/$1.spec" >/dev/null
}

# header PACKAGE WHAT: how the spec file of a package begins that stands for WHAT.
header() {
    printf '%s\n' "Name: $1" 'Version: 2.6' 'Release: 1' "Summary: stands for $2" 'License: none' 'BuildArch: noarch' \
        '%description' "Stands for $2."
}

# replaced PACKAGE FILE...: a package as NVIDIA's 2.6 is.
replaced() {
    local package=$1 file
    shift
    {
        header "$package" 'the package of NVIDIA'
        echo %install
        for file; do
            printf 'mkdir -p %%{buildroot}/%s && echo replaced > %%{buildroot}/%s\n' "$(dirname "$file")" "$file"
        done
        printf '%s\n' '%files'
        printf '/%s\n' "$@"
    } >"$work/$package.spec"
    build "$package"
}

# What an RPM distribution has: what the packages depend on (anything else that they need is an error), and directories.
directories=(/usr/lib/debug/usr/lib64 /usr/lib/debug/usr /usr/lib/debug /usr/lib/modules-load.d /usr/lib64/cmake /usr/lib64/pkgconfig /usr/share/licenses /usr/share/fish/vendor_completions.d
    /usr/share/fish /usr/share/zsh/site-functions)
{
    printf '%s\n' 'Provides: dkms /bin/sh /sbin/ldconfig /usr/bin/pkg-config rtld(GNU_HASH)'
    rpm -qp --requires "$rpms"/*.rpm | grep -E '^(ld-linux-x86-64|libc|libm|libgcc_s)\.so\.[0-9]+\(' | sort -u | sed 's/^/Provides: /'
    header distribution 'a distribution'
    echo %install
    printf 'mkdir -p %%{buildroot}%s\n' "${directories[@]}"
    printf '%s\n' '%files'
    printf '%%dir %s\n' "${directories[@]}"
} >"$work/distribution.spec"
rm -rf "$work/rpmbuild"
build distribution
replaced gdrcopy usr/bin/gdrcopy_{sanity,copybw,copylat} usr/lib64/libgdrapi.so{,.2,.2.6}
replaced gdrcopy-devel usr/include/{gdrapi,gdrconfig}.h
# It builds a module of the same version by DKMS.
{ header gdrcopy-kmod 'the package of NVIDIA' && cat <<'END'; } >"$work/gdrcopy-kmod.spec"
%install
mkdir -p %{buildroot}/usr/src/gdrdrv-2.6 %{buildroot}/etc/modprobe.d
echo 'install gdrdrv /sbin/modprobe --ignore-install gdrdrv; mknod -m 660 /dev/gdrdrv c 240 0' >%{buildroot}/etc/modprobe.d/50-gdrdrv.conf
cd %{buildroot}/usr/src/gdrdrv-2.6
echo replaced >map.c
cat >dkms.conf <<'CONF'
PACKAGE_NAME=gdrdrv
PACKAGE_VERSION=2.6
MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/gdrdrv/2.6/build modules"
BUILT_MODULE_NAME[0]=gdrdrv
DEST_MODULE_LOCATION[0]=/extra
AUTOINSTALL=yes
CONF
%post
dkms add -m gdrdrv -v 2.6 --rpm_safe_upgrade
dkms install -m gdrdrv -v 2.6
%preun
dkms remove -m gdrdrv -v 2.6 --all --rpm_safe_upgrade
%files
/usr/src/gdrdrv-2.6
%config /etc/modprobe.d/50-gdrdrv.conf
END
build gdrcopy-kmod

# With /proc, which DKMS needs.
rpm_in_tree() {
    unshare --mount --pid --fork sh -c 'mount -t proc proc "$0/proc" && exec rpm --root "$0" --dbpath /var/lib/rpm "$@"' \
        "$tree" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "failed: rpm $*"; }
}
rpm_in_tree --install "$work"/rpmbuild/noarch/*.rpm
check_module
echo '# changed by an administrator' >>"$tree/etc/modprobe.d/50-gdrdrv.conf"
rpm_in_tree --upgrade "$rpms"/*.rpm
[ ! -e "$tree/etc/modprobe.d/50-gdrdrv.conf" ] || die "the replaced package still changes the node's mode"
rm -f "$tree/etc/modprobe.d/50-gdrdrv.conf.rpmsave" # rpm keeps changes of an administrator, where modprobe does not look
rm -f "$tree"/tmp/dkms_rpm_safe_upgrade_lock.* # Of the replaced package.
check_module
! in_tree grep -rlx replaced /usr/bin /usr/include /usr/src /usr/lib64 || die "files of the replaced packages are left"

# Debian's loader does not search /usr/lib64.
echo /usr/lib64 >"$tree/etc/ld.so.conf.d/lib64.conf"
in_tree ldconfig
run_programs
check_debug_symbols "$tree/usr/lib64/libgdrapi.so.2.6"

rm "$tree/etc/ld.so.conf.d/lib64.conf"
rpm_in_tree --erase gdrcopy gdrcopy-debuginfo gdrcopy-devel gdrcopy-kmod gdremu distribution
contents | diff "$work/before" - || die "the packages leave something, see above"
echo "rpm: installed, upgraded from NVIDIA's names, run, removed without remains"
