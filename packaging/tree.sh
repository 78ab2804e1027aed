# The scripts packaging/check-*.sh and build-in.sh source this file. Its functions make trees, run programs in them, and
# run linters. A tree is a directory with the root file system of a newly installed Debian. The functions need root and
# debootstrap.
# shellcheck shell=bash

work=$PWD/build/package-check
mkdir -p "$work"

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# bootstrap DIR RELEASE [OPTION...]: makes a minimal Debian of that release in DIR.
bootstrap() {
    local mirror
    mirror=$(. /etc/os-release && apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" \
        'Component: main' | head -n 1)
    debootstrap --variant=minbase "${@:3}" "$2" "$1" "$mirror" >"$work/debootstrap.log" || die "debootstrap fails, see $work/debootstrap.log"
}

# new_tree NAME RELEASE PACKAGES: makes $work/NAME, with these packages (a list with commas), and puts its name into $tree.
new_tree() {
    local debian=$work/$2-$3
    if [ ! -e "$debian" ]; then
        rm -rf "$debian.part"
        bootstrap "$debian.part" "$2" --include="$3"
        mv "$debian.part" "$debian"
    fi
    tree=$work/$1
    rm -rf "$tree"
    cp -a "$debian" "$tree"
}

# with_mounts COMMAND...: runs a command in a new mount namespace, so that nothing stays mounted. If the tree has a simulated
# kernel (new_kernel), its files hide those of this computer's kernel in /proc and /sys.
with_mounts() {
    unshare --mount --pid --fork sh -c '
        mount -t proc proc "$0/proc" && mount -t sysfs -o ro sysfs "$0/sys" && mount -t tmpfs tmpfs "$0/dev/shm" || exit
        if [ -e "$0/run/kernel" ]; then
            for file in misc devices; do mount --bind "$0/run/kernel/$file" "$0/proc/$file" || exit; done
            mount --bind "$0/run/kernel/module" "$0/sys/module" || exit
        fi
        exec "$@"' "$tree" "$@"
}

# in_tree COMMAND...: runs a command in the tree, without the variables of this environment. DKMS 2.8 runs lsb_release,
# a Python program. Python must write no cache files, because they would count as files that our packages leave behind.
in_tree() {
    with_mounts env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1 \
        chroot "$tree" "$@"
}

# in_tree_quietly COMMAND...: prints the command's output only if it fails.
in_tree_quietly() {
    in_tree "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "failed: $*"; }
}

# contents: lists the files of the tree. Leaves out /root, the file systems that the kernel mounts, and the databases,
# caches and logs of the package managers.
contents() {
    (cd "$tree" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./root -o -path ./var/cache \
        -o -path ./var/log -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/lib/rpm \) -prune \
        -o -printf '%y %p -> %l\n' | LC_ALL=C sort)
}

# check_debug_symbols LIBRARY [PREFIX]: checks that the library is stripped, and that debuggers find its debug symbols in the
# tree. PREFIX is the prefix of the names of binutils.
check_debug_symbols() {
    local id address line
    [ -z "$(readelf --section-headers --wide "$1" | grep -F .symtab)" ] || die "$1 has a symbol table"
    id=$(readelf --notes "$1" | sed -n 's/.*Build ID: //p')
    address=$("${2:-}nm" --dynamic "$1" | sed -n 's/ T gdr_pin_buffer$//p')
    line=$("${2:-}addr2line" --exe "$tree/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug" "0x$address") || die "no debug symbols of $1"
    [[ $line == */src/exports.rs:* ]] || die "the debug symbols have gdr_pin_buffer in $line"
    echo "debug symbols: found by build ID"
}

# emulated PROFILE PROGRAM [ARGUMENT...]: runs a program of the tree on an emulated GPU.
emulated() {
    in_tree gdremu --profile "$1" -- "${@:2}"
}

# run_programs [NOT]: runs the installed programs on an emulated GPU: doctor, trace, copybw, gdrcopy_sanity and the C tests. A C
# test exits with 4 if it cannot test this profile of the emulator. Tests whose names match NOT are left out.
run_programs() {
    local not=${1:-^$} tests test profile status passed=0 waived=0
    if [[ ! doctor =~ $not ]]; then
        emulated default /usr/bin/gdrcopy doctor >"$work/doctor.log" || die "gdrcopy doctor fails, see $work/doctor.log"
        emulated default /usr/bin/gdrcopy trace -- /usr/libexec/gdrcopy-tests/copy >"$work/trace.log" 2>&1 ||
            die "gdrcopy trace fails, see $work/trace.log"
        grep -q " used libgdrapi " "$work/trace.log" || die "gdrcopy trace sees no use of libgdrapi, see $work/trace.log"
        echo "doctor, trace: work"
    fi
    emulated default /usr/bin/gdrcopy_copybw -s 65536 >"$work/copybw.log" 2>&1 || die "gdrcopy copybw fails, see $work/copybw.log"
    mapfile -t tests < <(emulated default /usr/bin/gdrcopy_sanity -l | grep -vE "$not" | sed 's/^/-t/')
    emulated default /usr/bin/gdrcopy_sanity "${tests[@]}" >"$work/sanity.log" 2>&1 || die "gdrcopy_sanity fails, see $work/sanity.log"
    for test in "$tree"/usr/libexec/gdrcopy-tests/*; do
        test=${test##*/}
        [[ ! $test =~ $not ]] || continue
        profile=default
        [ "$test" != nv_p2p_dummy ] || profile=nv-p2p-dummy
        status=0
        emulated $profile "/usr/libexec/gdrcopy-tests/$test" >"$work/$test.log" 2>&1 || status=$?
        case $status in
        0) passed=$((passed + 1)) ;;
        4) waived=$((waived + 1)) ;;
        *) die "$test fails, see $work/$test.log" ;;
        esac
    done
    [ $passed -ge 25 ] || die "only $passed C tests passed"
    echo "copybw: works; gdrcopy_sanity: $(grep '^Total' "$work/sanity.log"); C tests: $passed passed, $waived waived"
}

# check_linked LIBDIR [COMPILER]: checks that programs that are linked with the shared and the static libraries of the tree
# work.
check_linked() {
    local linked
    cp tests/install/program.c "$tree/root"
    for linked in "-L$1 -lgdrx -lgdrapi" "$1/libgdrx.a $1/libgdrapi.a"; do
        # shellcheck disable=SC2086 # Each word is an option.
        "${2:-gcc}" -DWITH_gdrx -I"$tree/usr/include" "$tree/root/program.c" -o "$tree/usr/bin/program" $linked -lpthread -ldl # glibc before 2.34 needs -lpthread and -ldl
        emulated default /usr/bin/program 2>/dev/null || die "a program linked with $linked does not work"
        rm "$tree/usr/bin/program"
    done
    echo "linked with the shared and the static libraries: works"
}

# lint_debs DIR: runs lintian on the packages in DIR. In Debian's archive, the first upload of a package closes a bug report.
# These packages are not for the archive.
lint_debs() {
    lintian --allow-root --suppress-tags initial-upload-closes-no-bugs --show-overrides "$1"/*.changes >"$work/lintian" || true
    ! grep '^[EW]:' "$work/lintian" >&2 || die "lintian complains, see above"
    grep -q '^O:' "$work/lintian" || die "lintian found nothing to override: did it run?"
    echo "lintian: no errors, no warnings, $(grep -c '^O:' "$work/lintian") overridden with reasons"
}

# lint_rpms DIR: runs rpmlint on the packages in DIR.
lint_rpms() {
    rpmlint -c packaging/rpm/rpmlint.toml "$1"/*.rpm >"$work/rpmlint" || { cat "$work/rpmlint" >&2 && die "rpmlint complains"; }
    echo "rpmlint:$(tail -n 1 "$work/rpmlint"), $(grep -c "^ *'" packaging/rpm/rpmlint.toml) filters with reasons"
}
