#!/usr/bin/env bash
# Runs the library's tests and gdrdrv-c's own tests in virtual machines that use gdrdrv-c, with and without persistent pins.
set -euo pipefail

usage() {
    cat <<END
usage: gdrdrv-c/vm/check.sh [options]

Checks the module's sources (static.sh), then runs two to four virtual machines at a time, with two processors each, whose
tests print TAP. The last line is "N passed, N failed, N skipped"; exit status 1 if any failed.
\`make tools emulator\` comes first.

  --kernel SERIES   see run.sh (default: 6.1)
  --library DIR     test libgdrapi.so.2 of that directory, NVIDIA's for example (default: build/lib)
  --module          only the module's own tests, which need neither library nor emulator
  --quick           only the C tests of the library and most of the module's own, with persistent pins and fewer rounds;
                    without clang and checkpatch
  --all             after everything on 6.1: packaging; the module's tests on 5.10, 6.12 and the newest kernel, then, both of
                    them built here, on one with lockdep and KASAN and one with KCSAN; mutants.sh
  -h, --help        this text
END
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
lib=$root/build/lib
gdremu=$target/release/gdremu
logs=$root/build/gdrdrv-c/logs
tests=$root/gdrdrv-c/tests/run.sh

series=6.1
with_library=true
is_quick=false
all_kernels=false
while [ $# -gt 0 ]; do
    case $1 in
    --kernel) series=$2 && shift 2 ;;
    --library) lib=$(realpath "$2") && shift 2 ;;
    --module) with_library=false && shift ;;
    --quick) is_quick=true && shift ;;
    --all) all_kernels=true && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done
if $is_quick && ! $with_library; then # --quick runs the library's tests, too, so it needs the library
    usage >&2 && exit 2
fi

has_huge_pages=false
is_instrumented=false # true for a kernel that debug-kernel.sh builds with checks, which slow everything many times
limit=3000
case $series in
6.12 | newest) has_huge_pages=true ;;
debug | kcsan) is_instrumented=true limit=7200 ;;
esac

# ---- Virtual machines and their results ----

failures=0
built=0
declare -A machines

# build KERNEL BRANCH LICENSE: builds a variant of the modules that is not run, to see that it compiles.
build() {
    if "$here/modules.sh" "$@" >/dev/null; then
        built=$((built + 1))
    else
        echo "FAILED: build for $*" && failures=$((failures + 1))
    fi
}

# start NAME OPTION ... -- COMMAND ...: starts in the background a virtual machine that runs the command.
start() {
    local name=$1
    shift
    "$here/run.sh" --kernel "$series" --timeout $limit --dmesg "$logs/$name.dmesg" "$@" >"$logs/$name.log" 2>&1 &
    machines[$name]=$!
}

# finish NAME TITLE: waits for the virtual machine, and prints its log.
finish() {
    local status=0
    wait "${machines[$1]}" || status=$?
    printf '\n== %s\n' "$2"
    cat "$logs/$1.log"
    # A virtual machine that fails for another reason than a failed test counts as one more failure.
    [ $status -le 1 ] || { echo "FAILED: exit status $status (gdrdrv-c/vm/run.sh --help)" && failures=$((failures + 1)); }
}

# finish_script NAME TITLE: does the same as finish. A script that has not printed "# 1 passed" counts as one more failure.
finish_script() {
    finish "$@"
    grep -q '^# 1 passed' "$logs/$1.log" || failures=$((failures + 1))
}

# sum WORD: prints the sum of the numbers before this word, such as "passed", in the TAP summaries of all tests.
sum() {
    sed -nE 's/^# ([0-9]+ passed, [0-9]+ failed.*)$/\1/p' "$logs"/*.log | grep -oE "[0-9]+ $1" | awk '{ n += $1 } END { print n + 0 }'
}

# Prints the totals of all tests and builds. Fails if one of them has failed.
report() {
    local failed=$(($(sum failed) + failures))
    printf '\n%d passed, %d failed, %d skipped, %d more shapes of the module built\n' "$(sum passed)" "$failed" "$(sum skipped)" $built
    [ "$failed" -eq 0 ]
}

# ---- Phases ----

# Calls this script again, once for each kernel. Also checks the packaging, and that tests notice broken modules (mutants).
run_all_kernels() {
    local status=0
    "$0" --library "$lib" || status=1
    printf '\n==== Packaging\n'
    for series in 6.1 6.12; do
        "$here/packaging.sh" "$("$here/kernel.sh" $series)" || status=1
    done
    for series in 5.10 6.12 newest debug kcsan; do
        printf '\n==== Linux %s\n' $series
        "$0" --module --kernel $series || status=1
    done
    printf '\n==== Mutants\n'
    "$here/mutants.sh" || status=1
    return $status
}

build_tests() {
    local needed
    echo "Building the tests"
    make --no-print-directory --silent -j"$(nproc)" -C "$root/gdrdrv-c/tests"
    $with_library || return 0
    for needed in "$lib/libgdrapi.so.2" "$gdremu" "$root/build/tools/bin/gdrcopy"; do
        [ -e "$needed" ] || { echo "check.sh: no $needed: run \`make tools emulator\` first" >&2 && exit 2; }
    done
    make --no-print-directory --silent -j"$(nproc)" -C "$root" -f c_tests/programs.mk plain
    ! $is_quick || return 0
    model=$(cd "$root" && cargo test --quiet --no-run --workspace --test emulated --message-format=json |
        sed -n '/"package_id":"[^"]*#libgdrapi@/s/.*"executable":"\([^"]*\)".*/\1/p')
}

# These programs run for each change, and on kernels whose checks slow all accesses. memory_types and huge_pages are left
# out, because they access much GPU memory.
short=(
    answers contract pins tracepoints limits tokens owners killed ignored_puts failed_puts "removed 30" waits
    "stale_maps unpin 30" "reused_tables 50" "races 50" "fuzz 5000"
)

check_quickly() {
    start persistent -- "$here/check-guest.sh" persistent "$gdremu" "$lib"
    start module-persistent -- "$tests" "${short[@]}"
    finish persistent "the library, pins that outlive a free"
    finish module-persistent "the module, pins that outlive a free"
}

build_variants() {
    local kernel architecture
    kernel=$("$here/kernel.sh" "$series")
    build "$kernel" 570 open
    [ "$series" = debug ] || build "$kernel" 515 proprietary # in the debug kernel, only GPL modules can use locks
    [ "$series" = 6.1 ] || return 0
    "$root/ci/scripts/apt-install.sh" gcc-aarch64-linux-gnu gcc-powerpc64le-linux-gnu
    for architecture in arm64 ppc64el; do
        kernel=$("$here/kernel.sh" "$series" $architecture)
        build "$kernel" 515 open
        build "$kernel" 580 open
        build "$kernel" 580 proprietary
    done
}

check_library() {
    start persistent -- "$here/check-guest.sh" persistent "$gdremu" "$lib" "$model"
    start traditional --traditional -- "$here/check-guest.sh" traditional "$gdremu" "$lib" "$model"
    finish persistent "the library, pins that outlive a free"
    finish traditional "the library, pins that end with a free"
}

# Checks the installation and the loading of the module, with DKMS and without.
check_installed() {
    local kernel modules
    "$root/ci/scripts/apt-install.sh" dkms jq
    kernel=$("$here/kernel.sh" "$series")
    modules=$("$here/modules.sh" "$kernel")
    start stale --no-modules -- "$here/check-stale.sh" "$kernel" "$("$here/modules.sh" "$kernel" 525)" "$modules" "$gdremu" "$lib"
    start modes --no-modules -- "$here/check-modes.sh" "$modules"
    start nvidia --no-modules -- "$here/check-nvidia.sh" "$kernel" "$modules" "$("$here/nvidia-stand-in.sh" "$kernel")"
    finish_script stale "a module that is stale after an update of the GPU driver"
    finish_script modes "permissions of the node"
    finish_script nvidia "a module beside NVIDIA's"
}

check_module() {
    start module-persistent -- "$tests" "$@"
    start module-traditional --traditional -- "$tests" "$@"
    finish module-persistent "the module, pins that outlive a free"
    finish module-traditional "the module, pins that end with a free"
}

few=(contract answers owners)

check_huge_pages() {
    start module-adjacent --emugpu longest_run=65536 -- "$tests" "${few[@]}" huge_pages
    start module-adjacent-traditional --traditional --emugpu longest_run=100 -- "$tests" "${few[@]}" huge_pages killed
    finish module-adjacent "the module, huge pages"
    finish module-adjacent-traditional "the module, huge pages, pins that end with a free"
}

check_gpu_drivers() {
    start module-proprietary --proprietary -- "$tests" "${few[@]}" memory_types killed waits
    start module-coherent --emugpu "coherent=1 mixed=1" -- "$tests" "${few[@]}" memory_types
    start module-525 --branch 525 -- "$tests" "${few[@]}"
    start module-515 --branch 515 -- "$tests" "${few[@]}" waits
    finish module-proprietary "the module, a proprietary GPU driver"
    finish module-coherent "the module, a GPU with a coherent link"
    finish module-525 "the module, a GPU driver that cannot force PCIe"
    finish module-515 "the module, a GPU driver without calls of their own for persistent pins"
}

# ---- The run ----

if $all_kernels; then
    run_all_kernels
    exit
fi

rm -rf "$logs"
mkdir -p "$logs"
build_tests
if $is_quick; then
    [ "$series" != 6.1 ] || "$here/static.sh" --quick || failures=$((failures + 1))
    check_quickly
    report
    exit
fi
if [ "$series" = 6.1 ]; then
    "$here/static.sh" || failures=$((failures + 1))
fi
build_variants
if $with_library; then
    check_library
fi
if $with_library && [ "$series" = 6.1 ]; then
    check_installed
fi
if $is_instrumented; then
    check_module "${short[@]}"
    report
    exit
fi
check_module
if $has_huge_pages; then
    check_huge_pages
fi
check_gpu_drivers
report
