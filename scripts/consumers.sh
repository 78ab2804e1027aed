#!/usr/bin/env bash
# scripts/consumers.sh [FILTER...]: builds UCX, from Debian's source package and unmodified, against this library, and runs
# its own tests under gdremu in several profiles. Prints a table; exits with 1 if a test failed, if a filter selected none, or
# if `ucx_info -d` does not list gdr_copy. FILTERs are gtest's (default: '*gdr_copy*' and '*tag_mem_type*', all of them).
#
# Fetches with apt-get and pip, once, into CONSUMERS_CACHE (default: ~/.cache/gdrapi-consumers), and builds there. Needs a C++
# compiler, autoconf, automake, libtool, pkg-config, dpkg-dev, python3 with pip. What cannot be fetched or built is skipped
# with the reason, and exit status 77. CONSUMERS_JOBS (default: 2) compilers, later profiles, run at a time. On two busy
# cores (2026-11-22): 19 minutes to fetch and build, 11 minutes for the tests.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${CONSUMERS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gdrapi-consumers}
built=${CARGO_TARGET_DIR:-$root/target}/release
gdremu=$built/gdremu
jobs=${CONSUMERS_JOBS:-2}
[ $# -gt 0 ] || set -- '*gdr_copy*' '*tag_mem_type*'

skip() {
    echo "consumers: skipped: $*" >&2
    exit 77
}

# once NAME COMMAND...: runs a step unless it has succeeded before; its output goes to NAME.log.
once() {
    local name=$1
    shift
    [ -e "$cache/$name.done" ] && return
    echo "consumers: $name ..." >&2
    (set -e && "$@") >"$cache/$name.log" 2>&1 || skip "$name failed, see $cache/$name.log"
    touch "$cache/$name.done"
}

# The newest UCX that can be fetched, by an apt configuration of our own.
fetch_ucx() {
    local mirror suite version
    mkdir -p apt/lists/partial apt/cache/archives/partial
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | head -n 1)
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
    export APT_CONFIG=$PWD/apt/apt.conf
    apt-get update
    apt-cache showsrc ucx | sed -n 's/^Version: //p' | sort -uVr >versions
    while read -r version; do
        rm -rf ucx_* ucx-source
        apt-get source --download-only "ucx=$version" || continue
        dpkg-source --no-check -x ucx_*.dsc ucx-source
        echo "$version" >version
        return
    done <versions
    return 1
}

# What UCX takes for a CUDA toolkit: headers out of Python wheels, and libraries to link with.
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
    cp "$built/libgdremu_libcuda.so" cuda/lib64/stubs/libcuda.so
    echo 'int nvmlInit(void) { return 1; }' | cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -x c - \
        -o cuda/lib64/stubs/libnvidia-ml.so
    rm -r unpacked wheels
}

configure_ucx() {
    (cd ucx-source && ./autogen.sh)
    rm -rf ucx-build
    mkdir ucx-build
    cd ucx-build
    # Undefined symbols of libcuda and libnvidia-ml are for gdremu to define.
    ../ucx-source/configure --prefix="$cache/ucx" --with-gdrcopy="$cache/gdrcopy" --with-cuda="$cache/cuda" --without-verbs \
        --without-rdmacm --without-java --without-go --without-rocm --without-fuse3 --disable-numa --disable-doxygen-doc \
        --enable-mt --enable-gtest LDFLAGS=-Wl,--allow-shlib-undefined
    grep -q 'uct_cuda_MODULES.*gdrcopy' config.h
}

# make_in DIRECTORY [TARGET]: nothing of UCX runs long enough for optimization to pay.
make_in() {
    make -s -j"$jobs" -C "ucx-build/$1" ${2:+"$2"} CFLAGS='-g0 -O1 -Wno-error' CXXFLAGS='-g0 -O0 -Wno-error' \
        LIBS='-lrt -lstdc++'
}

build_ucx() {
    for part in ucm ucs uct ucp tools/info tools/perf; do # gtest loads a module of the last.
        make_in "src/$part" install
    done
}

build_gtest() {
    make_in test/gtest
}

# count PATTERN LOG: how many lines of gtest's log begin with [ PATTERN ].
count() {
    grep -c "^\[ *$1 *\]" "$2"
}

# profile NAME: runs the tests in a profile of gdremu, and writes its rows of the table to NAME.rows.
profile() {
    local name=$1 listed=no log filter status run ok skipped
    # Not grep -q, which ends ucx_info before its end.
    [ "$("$gdremu" --profile "$name" -- ucx/bin/ucx_info -d 2>&1 | grep -c 'Transport: gdr_copy')" -gt 0 ] && listed=yes
    for filter in "${filters[@]}"; do
        log=$cache/gtest-$name-${filter//[^a-zA-Z0-9_]/}.log
        "$gdremu" --profile "$name" -- ucx-build/test/gtest/gtest --gtest_filter="$filter" >"$log" 2>&1
        status=$?
        run=$(count RUN "$log") ok=$(count OK "$log") skipped=$(count SKIP "$log") # A test that skips itself is OK, too.
        [ $status = 0 ] && [ "$run" = "$ok" ] && [ "$run" -gt 0 ] && [ $listed = yes ] || touch failed
        printf '%-12s %-8s %-16s %6d %6d %8d %7d\n' "$name" $listed "$filter" "$run" $((ok - skipped)) "$skipped" $((run - ok))
    done >"$name.rows"
}

# In a function, so that all of it is read before anything runs.
main() {
    for tool in g++ autoreconf libtoolize pkg-config dpkg-source python3; do
        command -v "$tool" >/dev/null || skip "there is no $tool"
    done
    [ -x "$gdremu" ] || skip "there is no $gdremu: run \`make consumers\`"
    mkdir -p "$cache" && cd "$cache" || exit 1

    # The library is always the present one; the interface that UCX is built against does not change.
    make -s -C "$root" lib_install prefix="$cache/gdrcopy" libdir="$cache/gdrcopy/lib" >gdrcopy.log || skip "no library, see $cache/gdrcopy.log"
    once fetch-ucx fetch_ucx
    once cuda make_cuda
    once configure-ucx configure_ucx
    once build-ucx build_ucx
    once build-gtest build_gtest

    export LD_LIBRARY_PATH=$cache/gdrcopy/lib:$cache/ucx/lib:$cache/cuda/lib64
    filters=("$@")
    local profiles=(default traditional gdrdrv-2.4 cached two-gpus dmabuf)
    rm -f failed ./*.rows
    for name in "${profiles[@]}"; do
        [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
        profile "$name" &
    done
    wait

    printf 'UCX %s\n%-12s %-8s %-16s %6s %6s %8s %7s\n' "$(cat version)" profile gdr_copy filter tests passed skipped failed
    cat "${profiles[@]/%/.rows}"
    [ ! -e failed ]
}

main "$@"
