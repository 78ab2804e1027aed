# check-deb.sh and check-rpm.sh source this file after tree.sh, and use its variables. It makes the contents of stand-ins for
# NVIDIA's packages of GDRCopy 2.6, and a simulated kernel that loads their module and gdrdrv-c. The files only have the names
# of NVIDIA's files, and the scripts do what NVIDIA's scripts do.
# shellcheck shell=bash disable=SC2034,SC2154

nvidia_programs=(copybw copylat apiperf sanity gdrcopy_{copybw,copylat,apiperf,sanity,pplat})
nvidia_headers=(gdrapi.h gdrconfig.h)
nvidia_sources=(gdrdrv.c gdrdrv.h Makefile nv-p2p-dummy.c scripts/script.sh)

# nvidia_files DIR FILE...: makes stand-ins for these files in DIR.
nvidia_files() {
    local file
    for file in "${@:2}"; do
        mkdir -p "$(dirname "$1/$file")"
        echo "of NVIDIA" >"$1/$file"
    done
}

# nvidia_library DIR: makes a stand-in for libgdrapi, with its links.
nvidia_library() {
    nvidia_files "$1" libgdrapi.so.2.6
    ln -s libgdrapi.so.2.6 "$1/libgdrapi.so.2"
    ln -s libgdrapi.so.2 "$1/libgdrapi.so"
}

# nvidia_module ROOT: makes stand-ins for gdrdrv's sources, with the dkms.conf that DKMS needs.
nvidia_module() {
    nvidia_files "$1/usr/src/gdrdrv-2.6" "${nvidia_sources[@]}"
    cat >"$1/usr/src/gdrdrv-2.6/dkms.conf" <<'END'
PACKAGE_NAME=gdrdrv
PACKAGE_VERSION=2.6
BUILT_MODULE_NAME[0]=gdrdrv
DEST_MODULE_LOCATION[0]=/extra
AUTOINSTALL=yes
END
}

# The shell commands by which the scripts of NVIDIA's packages install and remove gdrdrv.
nvidia_dkms_install='dkms add -m gdrdrv -v 2.6 || :
for kernel in $(uname -r) $(ls /lib/modules | tail -n 1); do
    dkms build -m gdrdrv -v 2.6 -k $kernel && dkms install -m gdrdrv -v 2.6 -k $kernel || :
done'
nvidia_dkms_remove='dkms remove -m gdrdrv -v 2.6 --all || :'

# no_nvidia_files DIR...: checks that nothing of NVIDIA's packages is left in these directories of the tree, and that nothing
# starts their module.
no_nvidia_files() {
    ! in_tree grep -rlx 'of NVIDIA' "$@" || die "files of the replaced packages are left"
    ! in_tree find /etc /usr/lib/systemd /usr/libexec \( -path '*/init.d/gdr*' -o -path '*/rc?.d/*gdr*' -o -name gdrcopy.service \
        -o -name 50-gdrdrv.conf -o -path '*/gdrcopy/*' \) -not -name '*.dpkg-bak' | grep . || die "NVIDIA's service is left"
}

# new_kernel: makes a simulated kernel in the directory $tree, with headers and modules that are only stand-ins. It has the
# version of the running kernel, and no module is loaded.
new_kernel() {
    kernel=$(uname -r)
    mkdir -p "$tree/lib/modules/$kernel/build/include" "$tree/run/kernel/module"
    touch "$tree"/run/kernel/{misc,devices} "$tree/lib/modules/$kernel"/modules.{order,builtin,builtin.modinfo} \
        "$tree/lib/modules/$kernel/build/.config"
    cp packaging/stand-ins/kernel.mk "$tree/lib/modules/$kernel/build/Makefile"
    # The DKMS of Debian 13 regards a kernel without modules as removed.
    mkdir "$tree/lib/modules/$kernel/kernel"
    gcc -x c -c /dev/null -o "$tree/lib/modules/$kernel/kernel/another.ko"
    in_tree depmod "$kernel"
    install packaging/stand-ins/modprobe "$tree/usr/sbin/modprobe.new"
    mv "$tree/usr/sbin/modprobe.new" "$tree/usr/sbin/modprobe"
    ln -f "$tree/usr/sbin/modprobe" "$tree/usr/sbin/rmmod"
}

# new_gpu_driver: makes the part of the GPU driver's sources that gdrdrv needs.
new_gpu_driver() {
    mkdir -p "$tree/usr/src/nvidia-1"
    touch "$tree/usr/src/nvidia-1"/nv-p2p.{c,h} "$tree/usr/src/nvidia-1/Module.symvers"
}

# gpu_driver ROOT NAME VERSION: makes sources of a GPU driver for DKMS in ROOT. Each version gets a different nv-p2p.h, which is the
# interface for gdrdrv. NAME is nvidia or nvidia-open, the two kinds of drivers, which have different licenses.
gpu_driver() {
    local license=NVIDIA sources=$1/usr/src/$2-$3
    [ "$2" = nvidia ] || license='Dual MIT/GPL'
    mkdir -p "$sources"
    printf '// %s\nMODULE_LICENSE("%s");\n' "$3" "$license" >"$sources/nv-p2p.c"
    echo "// $3" >"$sources/nv-p2p.h"
    printf '%s\n' "PACKAGE_NAME=$2" "PACKAGE_VERSION=$3" 'BUILT_MODULE_NAME[0]=nvidia' 'DEST_MODULE_LOCATION[0]=/extra' \
        AUTOINSTALL=yes >"$sources/dkms.conf"
}

# reboot: simulates a reboot, after which the GPU driver that is installed now is loaded, and gdrdrv is not.
reboot() {
    rm -rf "$tree"/run/kernel/module/* "$tree/dev/gdrdrv"
    truncate --size 0 "$tree"/run/kernel/{misc,devices}
    in_tree_quietly modprobe nvidia
}

# replace_driver OLD NEW: replaces the GPU driver OLD by NEW, each given as NAME/VERSION. No package is installed, so the
# trigger that builds gdrdrv again does not run.
replace_driver() {
    in_tree_quietly sh -c "dkms remove $1 --all && rm -r /usr/src/nvidia*"
    gpu_driver "$tree" "${2%/*}" "${2#*/}"
    in_tree_quietly dkms install "$2"
    reboot
}

# check_stale STATUS: checks that gdrdrv-load has this exit status if gdrdrv was built for another GPU driver, and that the
# command that gdrdrv-load prints builds and loads gdrdrv.
check_stale() {
    local command status=0
    in_tree gdrdrv-load >"$work/load.log" 2>&1 || status=$?
    [ $status = "$1" ] || die "gdrdrv-load has exit status $status for a stale module: $(cat "$work/load.log")"
    command=$(sed -n 's/.*another GPU driver than the installed one. Run: //p' "$work/load.log")
    [ -n "$command" ] || die "gdrdrv-load does not say what to run: $(cat "$work/load.log")"
    in_tree_quietly sh -c "$command"
    check_loaded $our_number
}

# check_driver_updates: installs packages of GPU drivers, and checks that the package of gdrdrv builds gdrdrv again after each.
# Then replaces GPU drivers without packages, and checks that the command that gdrdrv-load prints builds gdrdrv again. The
# calling script defines install_driver NAME VERSION, which installs a package of a GPU driver, and remove_driver.
check_driver_updates() {
    local driver
    for driver in "nvidia 1" "nvidia 2" "nvidia-open 2" "nvidia 2"; do
        # shellcheck disable=SC2086 # These are several words.
        install_driver $driver
        [ "$(grep -c '^gdrdrv: built for' "$work/log")" = 1 ] || die "not built once for $driver: $(cat "$work/log")"
        if grep -q 1 "$tree/run/kernel/module/nvidia/version" 2>/dev/null; then
            in_tree_quietly rmmod gdrdrv
            ! in_tree gdrdrv-load >"$work/load.log" 2>&1 || die "gdrdrv was loaded over a GPU driver that it was not built for"
            grep -q 'the GPU driver 2 is installed, but 1 is loaded: reboot' "$work/load.log" || die "$(cat "$work/load.log")"
        fi
        reboot
        in_tree_quietly gdrdrv-load
        check_loaded $our_number
    done
    remove_driver

    gpu_driver "$tree" nvidia 2
    in_tree_quietly dkms install nvidia/2
    replace_driver nvidia/2 nvidia/3
    check_stale 1
    # nvidia-open has the same symbol versions as nvidia, the proprietary driver. So the kernel accepts a gdrdrv that was built
    # for nvidia, and gdrdrv-load loads it (status 0), but still says how to build it again.
    replace_driver nvidia/3 nvidia-open/3
    check_stale 0
    replace_driver nvidia-open/3 nvidia/3
    check_stale 1
    in_tree_quietly gdrdrv-load --rebuild
    [ ! -s "$work/log" ] || die "built again for the same GPU driver: $(cat "$work/log")"
    in_tree_quietly sh -c 'rmmod gdrdrv && dkms remove nvidia/3 --all && rm -r /usr/src/nvidia-3'
    rm -r "$tree/run/kernel/module/nvidia"
    echo "GPU driver: gdrdrv was built again after updates and changes of its kind"
}

# check_module SOURCE: checks that DKMS has installed a gdrdrv.ko that was made from this source in /usr/src. The simulated
# kernel's modules contain the checksums of their sources.
check_module() {
    local module
    module=$(find "$tree/lib/modules/$kernel" -name gdrdrv.ko)
    grep -q "$(sha256sum <"$tree/usr/src/gdrdrv-2.6/$1" | cut -d' ' -f1)" "${module:-/dev/null}" ||
        die "DKMS has no module made of $1: $(in_tree dkms status)"
}

# check_loaded NUMBER: checks that gdrdrv is loaded, that /dev/gdrdrv has this device number, and that all users may use
# it.
check_loaded() {
    [ -e "$tree/run/kernel/module/gdrdrv" ] || die "gdrdrv is not loaded"
    local node
    node=$(stat -c '%t:%T %a' "$tree/dev/gdrdrv" || true)
    [ "$node" = "$1 666" ] || die "the number and mode of the node are $node, not $1 666"
}
nvidia_number=f0:0
our_number=a:78

check_unloaded() {
    [ ! -e "$tree/run/kernel/module/gdrdrv" ] || die "gdrdrv is still loaded"
    [ ! -e "$tree/dev/gdrdrv" ] || die "the node is left"
}
