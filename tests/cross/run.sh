#!/bin/sh
# Runs the checks of crates/gdrcopy-core/tests/copy_routines, and programs with the C headers, on emulated AArch64 and
# POWER CPUs. It needs Debian on x86-64.
#
#   tests/cross/run.sh        with some of the alignments
#   GDRCOPY_TEST_ALL=1 …      with all alignments
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
work=${CARGO_TARGET_DIR:-$root/target}/cross
mkdir -p "$work"

# Returns whether the Rust toolchain in use has the standard library of a target.
has_std() {
    ls "$(rustc --print target-libdir --target "$1" 2>/dev/null)"/libstd-*.rlib >/dev/null 2>&1
}

# Unpacks Debian's Rust toolchain, with the libraries for AArch64 and POWER, into $work/debian. apt could not install
# the packages while Debian's archive has different versions of them for the three archs.
unpack_debian_rust() {
    debian=$work/debian
    [ -e "$debian/complete" ] && return
    rm -rf "$debian"
    mkdir -p "$debian/lists/partial"
    cd "$debian"
    apt() {
        command=$1
        shift
        "apt-$command" -o Dir::State::Lists="$debian/lists" -o APT::Architectures::=amd64 \
            -o APT::Architectures::=arm64 -o APT::Architectures::=ppc64el "$@"
    }
    # The update may fail for a part of Debian's archive that is just being updated. If packages are missing, the script
    # fails below.
    apt get update || true
    versions() { apt cache madison "$1" | awk '{ print $3 }'; }
    version=
    for candidate in $(versions libstd-rust-web-dev:arm64); do
        versions libstd-rust-web-dev:ppc64el | grep -qxF "$candidate" || continue
        versions rustc-web | grep -qxF "$candidate" || continue
        version=$candidate
        break
    done
    if [ -z "$version" ]; then
        echo "no version of rustc-web for AMD64, ARM64 and PPC64EL; try a later apt-get update" >&2
        exit 1
    fi
    upstream=${version%%+*}                             # for example 1.85.0 of 1.85.0+dfsg3-1~deb12u3
    driver=libstd-rust-web-${upstream%.*}               # this package has the compiler's shared library
    # shellcheck disable=SC2046 # One word for each package.
    "$root/ci/scripts/apt-install.sh" $(apt cache depends "$driver=$version" | awk '/Depends: libllvm/ { print $2 }')
    apt get download "rustc-web=$version" "$driver=$version" \
        "libstd-rust-web-dev:arm64=$version" "libstd-rust-web-dev:ppc64el=$version"
    for package in *.deb; do dpkg-deb -x "$package" .; done
    touch complete
    cd "$root"
}

# compile MACHINE FILE: compiles tests/cross/main.rs for the machine into the file.
compile() {
    target=$1-unknown-linux-gnu
    set -- --edition 2024 -O -C debug-assertions=on --target "$target" \
        -C "linker=$1-linux-gnu-gcc" -o "$2" tests/cross/main.rs
    if has_std "$target"; then
        rustc "$@"
    else
        unpack_debian_rust
        LD_LIBRARY_PATH=$work/debian/usr/lib/x86_64-linux-gnu \
            "$work/debian/usr/bin/rustc" --sysroot "$work/debian/usr" "$@"
    fi
}

# check_fences MACHINE PROGRAM FUNCTION FENCES: checks that a function has this sequence of fences, loads of words
# ("load") and stores of words ("store"). A call of a copy routine that is not inlined is "call". A * stands for any
# sequence, such as the fence that gdrx.h adds only if the process has mappings of several types.
check_fences() {
    found=$("$1-linux-gnu-objdump" --disassemble="$3" "$work/$2" | awk -F'\t' '
        $3 ~ /^(dmb|dsb)$/ { print $3, $4 }
        $3 ~ /^(dgh|lwsync|hwsync)/ { print $3 }
        $3 ~ /^bl .*portable4read/ { print "call" }
        $3 == "hint" && $4 ~ /^#0x6/ { print "dgh" }
        $3 ~ /^lwz / || $3 == "ldr" && $4 ~ /^w/ { print "load" }
        $3 ~ /^stw / || $3 == "str" && $4 ~ /^w/ { print "store" }' | uniq | tr '\n' ' ')
    # shellcheck disable=SC2254 # $4 is a pattern.
    case $found in
    $4" ") echo "ok: $3: $4" ;;
    *)
        echo "$1: $3 is \"$found\", not \"$4 \"" >&2
        exit 1
        ;;
    esac
}

# check_headers CPU MACHINE: compiles and runs programs with the C headers, in C and C++.
check_headers() {
    for language in c:gcc:c99 c++:g++:c++17; do
        compiler=${language#*:}
        "$1-linux-gnu-${compiler%:*}" -std="${language##*:}" -pedantic -Wall -Wextra -Werror -Iinclude \
            -x "${language%%:*}" c_tests/header/config.c -o "$work/config"
        "qemu-$2" -L "/usr/$1-linux-gnu" "$work/config"
    done
    echo "ok: gdrapi.h and gdrconfig.h, C99 and C++17"
    # This program calls neither libgdrapi nor libgdrx, which were not built for this arch.
    "$1-linux-gnu-gcc" -std=c99 -O2 -pedantic -Wall -Wextra -Werror -Iinclude c_tests/header/words.c -o "$work/$1-words"
    "qemu-$2" -L "/usr/$1-linux-gnu" "$work/$1-words"
    echo "ok: words of gdrx.h"
}

"$root/ci/scripts/apt-install.sh" gcc-aarch64-linux-gnu gcc-powerpc64le-linux-gnu \
    g++-aarch64-linux-gnu g++-powerpc64le-linux-gnu libc6-dev-arm64-cross libc6-dev-ppc64el-cross qemu-user

echo "== AArch64"
compile aarch64 "$work/aarch64"
qemu-aarch64 -L /usr/aarch64-linux-gnu "$work/aarch64"
check_fences aarch64 aarch64 probe_write "dmb sy load store dmb st dgh"
check_fences aarch64 aarch64 probe_read "dmb sy load store dmb ld"
check_fences aarch64 aarch64 probe_gather "dmb sy*dmb ld"
check_headers aarch64 aarch64
check_fences aarch64 aarch64-words probe_store "dmb sy store dmb st dgh*"
check_fences aarch64 aarch64-words probe_load "dmb sy load dmb ld*"

echo "== POWER"
compile powerpc64le "$work/powerpc64le"
qemu-ppc64le -L /usr/powerpc64le-linux-gnu "$work/powerpc64le"
check_fences powerpc64le powerpc64le probe_write "hwsync load store hwsync"
check_fences powerpc64le powerpc64le probe_read "hwsync load store hwsync"
check_fences powerpc64le powerpc64le probe_gather "hwsync*hwsync"
check_headers powerpc64le ppc64le
check_fences powerpc64le powerpc64le-words probe_store "hwsync store hwsync*"
check_fences powerpc64le powerpc64le-words probe_load "hwsync load hwsync*"
