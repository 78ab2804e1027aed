#!/usr/bin/env bash
# check-rpm.sh DIR: installs the RPM packages in DIR into a new root file system (tree) with `rpm --root`, over stand-ins
# for NVIDIA's packages for RHEL 9, RHEL 8 and SUSE, which have the same files and scripts. Goes back to the stand-ins,
# and upgrades again. Runs the programs of the packages on an emulated GPU, removes the packages, and checks that nothing
# is left. Also runs rpmlint. The tree is a Debian, so it has the C library and DKMS, but no RPM packages that provide
# them.
set -euo pipefail
rpms=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
. packaging/tree.sh
. packaging/nvidia.sh

ci/scripts/apt-install.sh debootstrap rpm rpmlint

lint_rpms "$rpms"

new_tree rpm bookworm dkms,gcc
new_kernel
new_gpu_driver
mkdir -p "$tree/run/kernel/module/nvidia" "$tree/run/systemd/system" "$tree"/etc/{rc.d/rc{0..6}.d,systemd/system} \
    "$tree/usr/lib/systemd/system"
install packaging/stand-ins/{systemctl,chkconfig} "$tree/usr/bin"
# build NAME: builds a package without architecture from the spec file $work/NAME.spec.
build() {
    rpmbuild -bb --quiet --define "_topdir $work/rpmbuild" --define "_rpmdir $work/rpmbuild/$1" "$work/$1.spec" >/dev/null
}

# header PACKAGE WHAT: prints the beginning of a spec file, for a package that takes the place of WHAT.
header() {
    printf '%s\n' "Name: $1" 'Version: 2.6' 'Release: 1' "Summary: stands for $2" 'License: none' 'BuildArch: noarch' \
        '%description' "Stands for $2."
}

# nvidia NAME PACKAGE [SCRIPT...]: makes a package of the files in $dir, with the lines SCRIPT... in its spec file.
nvidia() {
    {
        header "$2" 'the package of NVIDIA'
        printf '%s\n' '%install' "cp -a $dir/. %{buildroot}" "${@:3}" '%files'
        find "$dir" -type d -path '*gdr*' -printf '%%%%dir /%P\n' -o -not -type d -printf '/%P\n'
    } >"$work/$1.spec"
    build "$1"
    rm -rf "$dir"
}

# nvidia_kmod SYSTEM START STOP: makes the package of NVIDIA's module for this system, from the files in $dir. Its
# scripts install the module and run the command START, or run STOP and remove the module.
nvidia_kmod() {
    nvidia_module "$dir"
    nvidia "$1" gdrcopy-kmod %post "$nvidia_dkms_install" "$2" \
        %preun "$3" 'dkms uninstall -m gdrdrv -v 2.6 || :' "$nvidia_dkms_remove" 'rm -f /lib/modules/*/weak-updates/gdrdrv.ko*' \
        '%triggerin -- kmod-nvidia-latest-dkms' "$nvidia_dkms_install" '%triggerun -- kmod-nvidia-latest-dkms' "$3" 'rmmod gdrdrv || :'
}

# Our packages depend on packages of the distribution. This package stands for all of them, and has the distribution's
# directories. A dependency on anything else is an error.
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

dir=$work/nvidia-rpm
rm -rf "$dir"
nvidia_files "$dir/usr/bin" "${nvidia_programs[@]}"
nvidia_library "$dir/usr/lib64"
nvidia library gdrcopy
nvidia_files "$dir/usr" include/{gdrapi,gdrconfig}.h share/doc/gdrcopy-devel/README.md
nvidia headers gdrcopy-devel
install -D packaging/stand-ins/gdrdrv-service "$dir/usr/libexec/gdrcopy/gdrcopy"
mkdir -p "$dir/usr/lib/systemd/system"
printf '%s\n' '[Service]' Type=oneshot RemainAfterExit=yes 'ExecStart=/usr/libexec/gdrcopy/gdrcopy start' \
    'ExecStop=/usr/libexec/gdrcopy/gdrcopy stop' '[Install]' WantedBy=multi-user.target >"$dir/usr/lib/systemd/system/gdrcopy.service"
nvidia_kmod rhel-9 'systemctl enable gdrcopy; systemctl start gdrcopy' 'systemctl stop gdrcopy; systemctl disable gdrcopy'
install -D packaging/stand-ins/gdrdrv-service "$dir/etc/init.d/gdrcopy"
nvidia_kmod rhel-8 'chkconfig --add gdrcopy; /etc/init.d/gdrcopy start' '/etc/init.d/gdrcopy stop; chkconfig gdrcopy off'
mkdir -p "$dir/etc/modprobe.d"
cat >"$dir/etc/modprobe.d/50-gdrdrv.conf" <<'END'
install gdrdrv modprobe --ignore-install gdrdrv; rm -f /dev/gdrdrv; mknod -m 660 /dev/gdrdrv c 240 0; chgrp video /dev/gdrdrv
remove gdrdrv modprobe -r --ignore-remove gdrdrv; rm -f /dev/gdrdrv
END
nvidia_kmod suse 'modprobe gdrdrv' :

rpm_in_tree() {
    with_mounts rpm --root "$tree" --dbpath /var/lib/rpm "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "failed: rpm $*"; }
}

# install_nvidia SYSTEM [OPTION...]: installs stand-ins for NVIDIA's packages for this system, with these options of rpm.
install_nvidia() {
    rpm_in_tree "${@:2}" "$work"/rpmbuild/{library,headers,"$1"}/noarch/*.rpm
    [ -e "$tree/run/kernel/module/gdrdrv" ] || die "NVIDIA's package has not loaded its module"
}

install_ours() {
    rm -f "$tree/run/systemd/reloaded"
    rpm_in_tree --upgrade "$rpms"/*.rpm
}

# install_driver NAME VERSION: installs a package like those of NVIDIA's GPU drivers. It replaces a package of another version, or
# of the other kind of driver. NAME is nvidia or nvidia-open.
install_driver() {
    rm -rf "$dir"
    gpu_driver "$dir" "$1" "$2"
    {
        header "$1-dkms" 'a package of NVIDIA' | sed "s/^Version: .*/Version: $2/"
        printf '%s\n' %install "cp -a $dir/. %{buildroot}" %post "dkms install --force $1/$2" %preun "dkms remove $1/$2 --all" \
            %files "/usr/src/$1-$2"
    } >"$work/driver.spec"
    rm -rf "$work/rpmbuild/driver"
    build driver
    [ -e "$tree/var/lib/dkms/$1" ] || remove_driver
    rpm_in_tree --upgrade "$work"/rpmbuild/driver/noarch/*.rpm
}

remove_driver() {
    local package
    for package in nvidia-dkms nvidia-open-dkms; do
        ! rpm --root "$tree" --dbpath /var/lib/rpm --query --quiet $package || rpm_in_tree --erase $package
    done
}

# check_upgraded: checks that nothing of NVIDIA's packages is left, and that the module is loaded again.
check_upgraded() {
    no_nvidia_files /usr/bin /usr/include /usr/src /usr/lib64
    [ -e "$tree/run/systemd/reloaded" ] || die "systemd still knows NVIDIA's service"
    [ -z "$(ls -A "$tree/run/systemd/running" 2>/dev/null)" ] || die "NVIDIA's service still runs"
    check_module map.c
    check_loaded $our_number
}

erase() {
    rpm_in_tree --erase gdrcopy gdrcopy-debuginfo gdrcopy-devel gdrcopy-kmod gdremu libgdrx1 libgdrx-devel
    check_unloaded
    contents | diff "$work/before" - || die "the packages leave something, see above"
}

rpm_in_tree --install "$work"/rpmbuild/distribution/noarch/*.rpm
contents >"$work/before"
for system in rhel-9 rhel-8 suse; do
    install_nvidia $system --install
    check_module gdrdrv.c
    install_ours
    check_upgraded
    if [ $system = rhel-9 ]; then
        # Debian's loader does not search /usr/lib64.
        echo /usr/lib64 >"$tree/etc/ld.so.conf.d/lib64.conf"
        in_tree ldconfig
        run_programs
        check_linked "$tree/usr/lib64"
        check_debug_symbols "$tree/usr/lib64/libgdrapi.so.2.6"
        rm "$tree/etc/ld.so.conf.d/lib64.conf"
    fi
    # Goes back to the stand-ins for NVIDIA's packages, and upgrades again.
    rpm_in_tree --erase gdrcopy-debuginfo gdremu libgdrx1 libgdrx-devel
    install_nvidia $system --upgrade --oldpackage
    install_ours
    check_upgraded
    erase
    echo "rpm: on $system installed, upgraded from NVIDIA's and back, removed without remains"
done

# If programs use NVIDIA's module, the module stays loaded, and its device node stays.
install_nvidia suse --install
touch "$tree/run/kernel/in_use"
install_ours
grep -q 'rmmod gdrdrv && gdrdrv-load' "$work/log" || die "no word about NVIDIA's module, which is in use: $(cat "$work/log")"
! grep -q 'gdrdrv is not loaded' "$work/log" || die "NVIDIA's module is said not to be loaded: $(cat "$work/log")"
[ "$(stat -c %t:%T "$tree/dev/gdrdrv")" = $nvidia_number ] || die "the node of NVIDIA's module is gone"
rm "$tree/run/kernel/in_use"
in_tree_quietly sh -c 'rmmod gdrdrv && gdrdrv-load'
check_upgraded
erase

# If our module cannot be built for a kernel, such as the 4.18 of RHEL 8, NVIDIA's module stays. The other packages are
# upgraded.
install_nvidia rhel-8 --install
mv "$tree/lib/modules/$kernel/build/Makefile" "$work/Makefile"
! with_mounts rpm --root "$tree" --dbpath /var/lib/rpm --upgrade "$rpms"/*.rpm >"$work/log" 2>&1 || die "a module that works was replaced"
grep -q "gdrdrv stays: there are no headers: dnf install kernel-devel-$kernel" "$work/log" || die "no reason: $(cat "$work/log")"
check_module gdrdrv.c
in_tree_quietly sh -c 'rmmod gdrdrv && modprobe gdrdrv'
mv "$work/Makefile" "$tree/lib/modules/$kernel/build/Makefile"
rpm_in_tree --upgrade "$rpms"/gdrcopy-kmod-*.rpm
check_upgraded
erase
echo "rpm: without headers NVIDIA's module stays"

rm -r "$tree/usr/src/nvidia-1" "$tree/run/kernel/module/nvidia"
contents >"$work/before"
install_ours
check_driver_updates
erase
