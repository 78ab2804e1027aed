#!/usr/bin/env bash
# ci/consumers.sh [--only NAME]... [FILTER...]: builds programs that use libgdrapi or CUDA, unmodified, against this
# library, and runs their tests under gdremu. Their sources and binaries are Debian's packages, crates and Python
# wheels. A NAME is one of ucx, libfabric, dpdk, cudarc, numba, aws_ofi_nccl, wheels and functions (default: all).
# `wheels` stands for NCCL's and NVSHMEM's Python wheels, and `functions` for a check that gdremu has the functions that
# UCX, libfabric and DPDK name. FILTERs are those of UCX's gtest (ci/consumers/ucx.sh). Prints a table. Exits with 1 if a
# test fails, or if a row of the table counts no test.
#
# Each consumer has a file in ci/consumers/, with a function of its name that builds it, runs it and prints its rows.
#
# Programs are fetched once with apt-get, pip and cargo into CONSUMERS_CACHE (default: ~/.cache/gdrapi-consumers), and
# built there. If a program cannot be fetched or built, it is skipped with the reason, and the exit status is 77.
# CONSUMERS_JOBS (default: 2) is how many compilers run at a time, and how many of gdremu's profiles
# (`gdremu --list-profiles`) are tested at a time.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/ci/consumers
cache=${CONSUMERS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gdrapi-consumers}
built=${CARGO_TARGET_DIR:-$root/target}/release
gdremu=("$root/build/c_tests/watched" "$built/gdremu")
jobs=${CONSUMERS_JOBS:-2}

skip() {
    echo "consumers: skipped: $*" >&2
    exit 77
}

# need PACKAGE...: installs Debian packages that are missing.
need() {
    "$root/ci/scripts/apt-install.sh" "$@" >&2 || skip "cannot install $*"
}

# once NAME COMMAND...: runs a step unless it has succeeded before. Its output goes to NAME.log.
once() {
    local name=$1
    shift
    [ -e "$cache/$name.done" ] && return
    echo "consumers: $name ..." >&2
    (set -e; "$@") >"$cache/$name.log" 2>&1
    # The line above does not end with `|| ...`, because bash would then ignore the `set -e` in that line.
    [ $? = 0 ] || skip "$name failed, see $cache/$name.log"
    touch "$cache/$name.done"
}

# Configures apt for this script only, and fetches the lists of source packages of three releases of Debian.
list_sources() {
    local mirror suite
    mkdir -p apt/lists/partial apt/cache/archives/partial
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | sed -n 1p)
    for suite in sid trixie bookworm; do
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
    done >apt/sources.list
    cat >apt/apt.conf <<-END
	Dir::Etc::sourcelist "$PWD/apt/sources.list";
	Dir::Etc::sourceparts "/dev/null";
	Dir::State::lists "$PWD/apt/lists";
	Dir::Cache "$PWD/apt/cache";
	APT::Sandbox::User "";
	END
    APT_CONFIG=$PWD/apt/apt.conf apt-get update
}

# fetch PACKAGE: fetches sources of the package into PACKAGE-source. It takes the newest version that can be fetched. If there is
# none, it takes the newest original sources, without Debian's patches.
fetch() {
    local package=$1 what version
    export APT_CONFIG=$PWD/apt/apt.conf
    apt-cache showsrc "$package" | sed -n 's/^Version: //p' | sort -uVr >"$package.versions"
    for what in --download-only --tar-only; do
        while read -r version; do
            rm -rf "$package"_* "$package-source"
            apt-get source --download-only $what "$package=$version" || continue
            if [ $what = --tar-only ]; then
                mkdir "$package-source"
                tar -xf "$package"_*.orig.tar.* -C "$package-source" --strip-components 1
                version=${version%-*}
            else
                dpkg-source --no-check -x "$package"_*.dsc "$package-source"
            fi
            echo "$version" >"$package.version"
            return
        done <"$package.versions"
    done
    return 1
}

# Makes a CUDA toolkit for the consumers, from headers and libraries of Python wheels, with gdremu's library as libcuda.
make_cuda() {
    rm -rf wheels unpacked cuda
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest wheels nvidia-cuda-runtime-cu12==12.9.79 \
        nvidia-cuda-nvcc-cu12==12.9.86 nvidia-nvml-dev-cu12==12.9.79
    for wheel in wheels/*.whl; do
        python3 -m zipfile -e "$wheel" unpacked
    done
    mkdir -p cuda/include cuda/lib64/stubs
    cp -r unpacked/nvidia/*/include/. cuda/include
    cp unpacked/nvidia/cuda_runtime/lib/* cuda/lib64
    ln -s libcudart.so.12 cuda/lib64/libcudart.so
    cp "$built/libgdremu_cuda.so" cuda/lib64/stubs/libcuda.so
    echo 'int nvmlInit(void) { return 1; }' | cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -x c - \
        -o cuda/lib64/stubs/libnvidia-ml.so
    rm -r unpacked wheels
}

columns='%-24s %-12s %-45s %6s %6s %8s %7s %6s %7s\n'

# row CONSUMER PROFILE TEST RUN PASSED SKIPPED [LOG...]: prints a row of the table. LOGs are those of runs under gdb. If
# they count no call of libgdrapi, the row has failed.
row() {
    local consumer=$1 profile=$2 test=$3 run=$4 passed=$5 skipped=$6 maps=- copies=-
    shift 6
    if [ $# -gt 0 ]; then
        maps=$(calls gdr_map "$@") copies=$(calls gdr_copy_ "$@")
        [ $((maps + copies)) -gt 0 ] || touch failed
    fi
    [ "$run" -gt 0 ] && [ "$run" = $((passed + skipped)) ] || touch failed
    # shellcheck disable=SC2059 # $columns is a format.
    printf "$columns" "$consumer" "$profile" "$test" "$run" "$passed" "$skipped" $((run - passed - skipped)) "$maps" "$copies"
}

# calls FUNCTION LOG...: prints how many calls gdb counted of functions whose names begin with FUNCTION.
calls() {
    awk -v name="$1" '/breakpoint +keep/ { found = index($0, name) } found && /already hit/ { sum += $4 } END { print sum + 0 }' "${@:2}"
}

# shellcheck source-path=SCRIPTDIR/consumers
. "$here/dpdk.sh"
. "$here/libfabric.sh"
. "$here/aws_ofi_nccl.sh"
. "$here/cudarc.sh"
. "$here/functions.sh"
. "$here/numba.sh"
. "$here/ucx.sh"
. "$here/wheels.sh"

# Bash reads a whole function before it runs it, so this file can be edited while the script runs.
main() {
    local consumers=() name status=0
    while [ "${1-}" = --only ]; do
        [ -f "$here/${2-}.sh" ] || { echo "consumers: --only must be one of:" "$(basename -as .sh "$here"/*.sh | paste -sd' ')" >&2; exit 2; }
        consumers+=("$2")
        shift 2
    done
    [ ${#consumers[@]} -gt 0 ] || consumers=(ucx libfabric dpdk cudarc numba aws_ofi_nccl wheels functions)
    [ -x "${gdremu[0]}" ] && [ -x "${gdremu[1]}" ] || skip "gdremu is missing: run \`make consumers\`"
    mkdir -p "$cache" && cd "$cache" || exit 1
    need dpkg-dev g++ gdb make pkg-config python3-pip

    # The library is installed in each run, because it may have changed. Consumers are not built again, because the
    # library's interface does not change.
    make -s -C "$root" lib_install prefix="$cache/gdrcopy" libdir="$cache/gdrcopy/lib" >gdrcopy.log || skip "no library, see $cache/gdrcopy.log"
    once list-sources list_sources
    once cuda make_cuda

    rm -f failed
    for name in "${consumers[@]}"; do
        ("$name" "$@") >"$name.rows"
        [ $? != 77 ] || status=77
    done
    # shellcheck disable=SC2059 # $columns is a format.
    printf "$columns" consumer profile test tests passed skipped failed maps copies
    cat "${consumers[@]/%/.rows}"
    [ ! -e failed ] || status=1
    exit $status
}

main "$@"
