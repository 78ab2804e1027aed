#!/usr/bin/env bash
# check-deb.sh DIR RELEASE...: in a new root file system (tree) of each Debian RELEASE, installs the packages in DIR over
# stand-ins for NVIDIA's packages, which have the same files and scripts. Goes back to the stand-ins, and upgrades again. Runs
# the programs of the packages on an emulated GPU, removes the packages, and checks that nothing is left. Also runs lintian.
set -euo pipefail
debs=$(cd "$1" && pwd)
releases=("${@:2}")
cd "$(dirname "$0")/.."
. packaging/tree.sh
. packaging/nvidia.sh

ci/scripts/apt-install.sh debootstrap dpkg-dev lintian

lint_debs "$debs"
libdir=usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
installed=(gdrcopy gdrcopy-tests libgdrapi-dev libgdrapi-dbgsym libgdrapi libgdrx-dev libgdrx1 gdrdrv-dkms gdremu)

# package NAME VERSION [FIELD...]: packs $dir as NAME_VERSION.deb into the tree's /root. Adds each FIELD to the control file.
package() {
    mkdir -p "$dir/DEBIAN"
    printf '%s\n' "Package: $1" "Version: $2" "Architecture: $(dpkg --print-architecture)" "${@:3}" \
        'Maintainer: none <none@localhost>' 'Description: stands for the package of NVIDIA' >"$dir/DEBIAN/control"
    dpkg-deb --build --root-owner-group "$dir" "$tree/root/$1_$2.deb" >/dev/null
}

# empty: makes a new, empty $dir.
empty() {
    dir=$work/nvidia-deb
    rm -rf "$dir"
    mkdir -p "$dir"
}

nvidia_debs() {
    local old=('Conflicts: gdrcopy (<= 2.2-1)' 'Replaces: gdrcopy (<= 2.2-1)')
    empty
    nvidia_library "$dir/$libdir"
    nvidia_files "$dir/usr/include" "${nvidia_headers[@]}"
    package libgdrapi 2.6-1 'Multi-Arch: same' "${old[@]}"
    # NVIDIA's versions up to 2.2-1 have the library, the headers and the programs in one package.
    nvidia_files "$dir/usr/bin" "${nvidia_programs[@]}"
    package gdrcopy 2.1-1

    empty
    nvidia_files "$dir/usr/bin" "${nvidia_programs[@]}"
    package gdrcopy-tests 2.6-1 "${old[@]}"

    empty
    package gdrcopy 2.6-1 'Depends: libgdrapi (= 2.6-1), gdrcopy-tests (= 2.6-1), gdrdrv-dkms (= 2.6-1)'

    empty
    nvidia_module "$dir"
    install -D packaging/stand-ins/gdrdrv-service "$dir/etc/init.d/gdrdrv"
    mkdir "$dir/DEBIAN"
    echo /etc/init.d/gdrdrv >"$dir/DEBIAN/conffiles"
    cat >"$dir/DEBIAN/postinst" <<END
#!/bin/sh
$nvidia_dkms_install
update-rc.d gdrdrv defaults
/etc/init.d/gdrdrv start
END
    cat >"$dir/DEBIAN/prerm" <<END
#!/bin/sh
/etc/init.d/gdrdrv stop
$nvidia_dkms_remove
END
    chmod +x "$dir"/DEBIAN/{postinst,prerm}
    package gdrdrv-dkms 2.6-1 'Depends: dkms'
}

install_nvidia() {
    in_tree_quietly sh -c 'dpkg --install /root/*_2.6-1.deb'
    check_module gdrdrv.c
    check_loaded $nvidia_number
}

# install_driver NAME VERSION: installs a package like that of a GPU driver of NVIDIA. NAME is nvidia or nvidia-open. The
# packages of these two kinds of drivers conflict with each other.
install_driver() {
    empty
    gpu_driver "$dir" "$1" "$2"
    mkdir "$dir/DEBIAN"
    printf '%s\n' '#!/bin/sh' "dkms install $1/$2" >"$dir/DEBIAN/postinst"
    printf '%s\n' '#!/bin/sh' "dkms remove $1/$2 --all" >"$dir/DEBIAN/prerm"
    chmod +x "$dir"/DEBIAN/{postinst,prerm}
    package "$1-dkms" "$2" 'Provides: nvidia-dkms-any' 'Conflicts: nvidia-dkms-any' 'Depends: dkms'
    in_tree_quietly apt-get install -qq -y "/root/$1-dkms_$2.deb"
}

remove_driver() {
    in_tree_quietly dpkg --purge nvidia-dkms nvidia-open-dkms
}

# install_ours: installs the packages with dpkg, which is stricter than apt about the order of packages.
install_ours() {
    in_tree_quietly sh -c 'dpkg --install --auto-deconfigure /root/debs/*.deb'
}

# check_upgraded: checks that nothing of NVIDIA's packages is left, and that the module is loaded again.
check_upgraded() {
    no_nvidia_files /usr/bin /usr/include /usr/src "/$libdir"
    check_module map.c
    check_loaded $our_number
}

# new_kernel_installed: runs DKMS as the packages of a kernel and of its headers do. Fails if DKMS fails.
new_kernel_installed() {
    local hooks
    for hooks in postinst.d header_postinst.d; do
        in_tree_quietly run-parts --exit-on-error --arg="$kernel" "/etc/kernel/$hooks"
    done
}

# check_hold: checks that NVIDIA's next version, from a repository, replaces these packages, but not if they are held as
# docs/install.md says.
check_hold() {
    local hold upgrade=(apt-get -o Dir::Etc::sourcelist=/root/repository.list -o Dir::Etc::sourceparts=/dev/null)
    hold=$(sed -n 's/^\(apt-mark hold [a-z -]*[a-z]\) .*/\1/p' docs/install.md)
    [ -n "$hold" ] || die "docs/install.md does not say how packages are held"
    empty
    nvidia_library "$dir/$libdir"
    package libgdrapi 2.999-1 'Multi-Arch: same'
    (cd "$tree/root" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)
    echo 'deb [trusted=yes] file:/root ./' >"$tree/root/repository.list"
    in_tree_quietly "${upgrade[@]}" update
    in_tree "${upgrade[@]}" --simulate dist-upgrade | grep -q '^Inst libgdrapi .*2\.999' || die "NVIDIA's next version replaces nothing"
    in_tree_quietly sh -c "$hold"
    ! in_tree "${upgrade[@]}" --simulate dist-upgrade | grep '^Inst libgdrapi ' || die "a held package is replaced"
    in_tree_quietly sh -c "${hold/hold/unhold}"
    rm "$tree"/root/{libgdrapi_2.999-1.deb,Packages,repository.list}
    echo "hold: NVIDIA's next version does not replace held packages"
}

# gcc_in_tree ARGUMENT...: runs gcc in the tree. The paths in the arguments may begin with $tree.
gcc_in_tree() {
    in_tree gcc "${@//$tree/}"
}

purge() {
    in_tree_quietly dpkg --purge "$@"
    check_unloaded
    contents | diff "$work/before" - || die "the packages leave something, see above"
}

for release in "${releases[@]}"; do
    new_tree "deb-$release" "$release" dkms,gcc,libc6-dev
    new_kernel
    mkdir -p "$tree/etc/init.d" # Most Debians have this directory, from packages that the tree lacks.
    new_kernel_installed # In Debian 11, a hook writes a file, which must be in the list that the next line makes.
    contents >"$work/before"
    nvidia_debs
    mkdir "$tree/root/debs"
    cp "$debs"/*.deb "$tree/root/debs"

    # The tree has a kernel, but no sources of the GPU driver, which gdrdrv needs. So DKMS can only register gdrdrv. When the
    # sources have been added, the hooks of the next kernel package build gdrdrv.
    install_ours
    grep -q 'dkms autoinstall' "$work/log" || die "no word about the module that is not loaded: $(cat "$work/log")"
    new_kernel_installed
    [ "$(in_tree dkms status gdrdrv/2.6 | grep -c added)" = 1 ] || die "DKMS does not have the module, or has built it"
    new_gpu_driver
    new_kernel_installed
    check_module map.c
    rm -r "$tree/usr/src/nvidia-1"
    check_driver_updates
    purge "${installed[@]}"

    new_gpu_driver
    mkdir "$tree/run/kernel/module/nvidia"
    install_nvidia
    install_ours
    check_upgraded
    check_hold
    run_programs
    check_linked "$tree/$libdir" gcc_in_tree
    check_debug_symbols "$tree/$libdir/libgdrapi.so.2.6"

    in_tree_quietly dpkg --remove libgdrx-dev libgdrapi-dev libgdrapi-dbgsym
    install_nvidia
    echo '# changed by an administrator' >>"$tree/etc/init.d/gdrdrv"
    in_tree_quietly sh -c 'apt-get install -qq -y /root/debs/*.deb'
    check_upgraded
    rm -r "$tree/usr/src/nvidia-1"
    purge "${installed[@]}"

    in_tree_quietly dpkg --install /root/gdrcopy_2.1-1.deb
    in_tree_quietly sh -c 'apt-get install -qq -y /root/debs/*.deb'
    no_nvidia_files /usr/bin /usr/include "/$libdir"
    purge "${installed[@]}"
    echo "deb: on $release installed, upgraded from NVIDIA's and back, run, removed without remains"
done
