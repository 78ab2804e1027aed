# UCX: its gtests that use gdr_copy, and GPU memory sent from one process to another. FILTERs are gtest's (default:
# '*gdr_copy*' and '*tag_mem_type*', all of them).

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

# ucx_profile NAME FILTER...: runs the tests in a profile of gdremu.
ucx_profile() {
    local name=$1 log filter listed run ok skipped
    shift
    # Not grep -q, which ends ucx_info before its end.
    listed=$("${gdremu[@]}" --profile "$name" -- ucx/bin/ucx_info -d 2>&1 | grep -c 'Transport: gdr_copy')
    row "$ucx" "$name" 'ucx_info lists gdr_copy' 1 $((listed > 0)) 0
    for filter; do
        log=$cache/gtest-$name-${filter//[^a-zA-Z0-9_]/}.log
        "${gdremu[@]}" --profile "$name" -- ucx-build/test/gtest/gtest --gtest_filter="$filter" >"$log" 2>&1 || touch failed
        run=$(count RUN "$log") ok=$(count OK "$log") skipped=$(count SKIP "$log") # A test that skips itself is also OK.
        row "$ucx" "$name" "gtest $filter" "$run" $((ok - skipped)) "$skipped"
    done
}

# Messages of GPU memory from one process to another, copied by gdr_copy, sent over TCP or shared memory.
ucx_two_processes() {
    local transport test port log logs passed
    for transport in tcp sm; do
        logs=() passed=0
        for test in tag_lat tag_bw ucp_am_lat; do
            port=$((20000 + RANDOM % 10000)) log=ucx-$transport-$test.log
            logs+=("$log")
            UCX_TLS=$transport,cuda_copy,gdr_copy "${gdremu[@]}" -- "$here/pair.sh" $port "$log" \
                ucx/bin/ucx_perftest -t $test -m cuda -s 64 -n 100 -w 10 -p $port && passed=$((passed + 1))
        done
        row "$ucx" default "ucx_perftest -m cuda, 2 processes, $transport" ${#logs[@]} $passed 0 "${logs[@]}"
    done
}

# What `gdrcopy trace` reports of a client is what gdb counted.
ucx_traced() {
    local port=$((20000 + RANDOM % 10000)) log=ucx-traced.log reported passed=0
    TRACER=$root/build/tools/bin/gdrcopy UCX_TLS=tcp,cuda_copy,gdr_copy "${gdremu[@]}" -- "$here/pair.sh" $port $log \
        ucx/bin/ucx_perftest -t tag_lat -m cuda -s 64 -n 100 -w 10 -p $port || touch failed
    reported=$(sed -n 's/.* used libgdrapi .*: \(.*\), [0-9]* bytes$/\1/p' $log)
    [ "$reported" != "1 pin, 1 map, $(calls gdr_copy_ ucx-tcp-tag_lat.log) copies" ] || passed=1
    row "$ucx" default 'ucx_perftest under gdrcopy trace' 1 $passed 0
}

ucx() {
    local profiles=(default traditional gdrdrv-2.4 cached two-gpus dmabuf) name ucx
    [ $# -gt 0 ] || set -- '*gdr_copy*' '*tag_mem_type*'
    need autoconf automake libtool
    once fetch-ucx fetch ucx
    once configure-ucx configure_ucx
    once build-ucx build_ucx
    once build-gtest build_gtest

    ucx="UCX $(cat ucx.version)"
    export LD_LIBRARY_PATH=$cache/gdrcopy/lib:$cache/ucx/lib:$cache/cuda/lib64
    for name in "${profiles[@]}"; do
        [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
        ucx_profile "$name" "$@" >"$name.part" &
    done
    wait
    cat "${profiles[@]/%/.part}"
    ucx_two_processes
    ucx_traced
}

