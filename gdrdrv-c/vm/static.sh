#!/usr/bin/env bash
# static.sh: checks the sources of gdrdrv and emugpu without running them. They are built for Linux 6.1 by gcc with W=1
# and sparse, and by clang with W=1, and checkpatch reads them. Every message is a failure.
#
# usage: static.sh [--quick]      --quick leaves out clang, and checkpatch, for which Linux's sources are fetched
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
module=$(dirname "$here")
work=$root/build/gdrdrv-c/static
scripts=$root/build/gdrdrv-c/checkpatch
status=0

"$root/ci/scripts/apt-install.sh" gcc make clang sparse libelf1 >&2
kernel=$("$here/kernel.sh" 6.1)

# report CHECK LOG: prints the result of a check, which has failed if its log contains anything.
report() {
    [ -s "$2" ] || { echo "ok: $1" && return; }
    echo "FAILED: $1"
    cat "$2"
    status=1
}

# compile NAME [variable=value ...]: builds gdrdrv and emugpu from copies of their sources.
compile() {
    local out=$work/$1
    shift
    mkdir -p "$out/emugpu" "$out/gdrdrv"
    cp "$module"/emugpu/{*.[ch],Kbuild} "$out/emugpu"
    cp "$module"/{*.[ch],Kbuild} "$out/gdrdrv"
    # Variables on the command line override the assignments in Debian's headers, which select a gcc.
    make --silent -j"$(nproc)" -C "$kernel/headers" M="$out/emugpu" CONFIG_DEBUG_INFO_BTF_MODULES= "$@" W=1 modules >"$out.log" 2>&1 &&
        make --silent -j"$(nproc)" -C "$kernel/headers" M="$out/gdrdrv" CONFIG_DEBUG_INFO_BTF_MODULES= "$@" W=1 \
            NVIDIA_SRC_DIR="$out/emugpu" KBUILD_EXTRA_SYMBOLS="$out/emugpu/Module.symvers" modules >>"$out.log" 2>&1 ||
        echo "make failed" >>"$out.log"
}

# Debian's headers are configured for gcc. These variables switch off options that clang 14 does not know.
for_clang=(
    CC=clang CONFIG_CC_IS_CLANG=y CONFIG_CC_IS_GCC= CONFIG_GCC_VERSION=0 CONFIG_CC_IMPLICIT_FALLTHROUGH=-Wimplicit-fallthrough
    CONFIG_RETHUNK= CONFIG_SLS= CONFIG_FTRACE_MCOUNT_USE_CC= CONFIG_INIT_STACK_ALL_ZERO=
)

rm -rf "$work"
compile gcc C=2
report "gcc W=1, sparse" "$work/gcc.log"
[ "${1-}" != --quick ] || exit $status
compile clang "${for_clang[@]}" KCFLAGS=-Wno-address-of-packed-member # the kernel's headers cause this warning
grep -q '= *clang' "$work/clang/gdrdrv/.main.o.cmd" || echo "compiled by another compiler" >>"$work/clang.log"
report "clang W=1" "$work/clang.log"

# These checks of checkpatch do not apply:
ignored=(
    LINUX_VERSION_CODE CONSTANT_COMPARISON # the module is built outside the kernel, for several versions
    ARCH_DEFINES CAMELCASE BIT_MACRO       # gdrdrv_uapi.h is also for user space (__powerpc64__, _Static_assert, no BIT())
    NEW_TYPEDEFS                           # the GPU driver's header has one
    UNCOMMENTED_DEFINITION                 # wants a comment at each lock, but ours may describe several locks
    MACRO_ARG_REUSE                        # the GPU driver's header has such a macro
)
[ -e "$scripts/scripts/checkpatch.pl" ] ||
    "$here/source.sh" "$scripts" '*/scripts/checkpatch.pl' '*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch'
# checkpatch looks for names in include/, and leaves a cache in the current directory. Its messages about the layout of
# tracepoints' macros are dropped, because they do not apply.
mkdir "$work/include"
cd "$work"
{
    "$scripts/scripts/checkpatch.pl" --no-tree --root=. --strict --terse --show-types --no-summary --max-line-length=120 \
        --ignore "$(IFS=, && echo "${ignored[*]}")" --file "$module"/*.[ch] "$module"/emugpu/*.[ch] 2>&1 || true # the log decides, not the exit status
} | grep -vE '/trace\.h:[0-9]+: CHECK:(PARENTHESIS_ALIGNMENT|OPEN_ENDED_LINE):' >checkpatch.log || true
report "checkpatch --strict" checkpatch.log
exit $status
