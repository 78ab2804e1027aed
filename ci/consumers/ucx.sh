# Runs those gtests of UCX that use gdr_copy, and sends GPU memory from one process to another. The arguments
# FILTER are filters of gtest (default: '*gdr_copy*' and '*tag_mem_type*', which select all tests that use gdr_copy).

ucx_version=1.22.0

# Fetches a release of UCX, which the crate ucx-rs contains unchanged.
fetch_ucx() {
    rm -rf ucx-crate ucx-source
    mkdir -p ucx-crate/src ucx-source
    touch ucx-crate/src/lib.rs
    printf '%s\n' '[package]' 'name = "fetch"' '[dependencies.ucx-rs]' 'version = "=0.1.0"' 'default-features = false' >ucx-crate/Cargo.toml
    cargo vendor --quiet --manifest-path ucx-crate/Cargo.toml ucx-crate/vendor
    tar -xzf ucx-crate/vendor/ucx-rs/vendor/ucx-$ucx_version.tar.gz -C ucx-source --strip-components 1
}

# UCX is built as for a release, because ci/gpu/ucx.sh measures it on a GPU.
configure_ucx() {
    rm -rf ucx ucx-build
    mkdir ucx-build
    cd ucx-build
    # The stubs of libcuda and libnvidia-ml lack functions that gdremu defines when UCX runs, so the linker must accept that.
    ../ucx-source/contrib/configure-release --prefix="$cache/ucx" --with-gdrcopy="$cache/gdrcopy" --with-cuda="$cache/cuda" \
        --without-verbs --without-rdmacm --without-java --without-go --without-rocm --without-fuse3 --disable-doxygen-doc \
        --enable-mt --enable-gtest LDFLAGS=-Wl,--allow-shlib-undefined
    grep -q 'uct_cuda_MODULES.*gdrcopy' config.h
}

# make_in DIRECTORY LEVEL [TARGET]: builds this directory of UCX with this level of optimization.
make_in() {
    make -s -j"$jobs" -C "ucx-build/$1" ${3:+"$3"} CFLAGS="-g0 -O$2 -Wno-error" CXXFLAGS="-g0 -O$2 -Wno-error" LIBS='-lrt -lstdc++'
}

build_ucx() {
    for part in ucm ucs uct ucp tools/info tools/perf; do # gtest loads a module that is built with tools/perf.
        make_in "src/$part" 3 install
    done
    # ci/gpu/ucx.sh needs these libraries on machines without compilers.
    cp cuda/lib64/libcudart.so.12 "$(cc -print-file-name=libgomp.so.1)" ucx/lib
}

# gtest is not optimized, because compiling it takes longer than running it.
build_gtest() {
    local test
    # Some tests include a header that the release lacks. None of them is needed here, so their files are emptied.
    for test in $(grep -rl 'include "cuda_vmm_mem_buffer.h"' ucx-source/test/gtest); do
        : >"$test"
    done
    make_in test/gtest 0
}

# count PATTERN LOG: prints how many lines of gtest's log begin with [ PATTERN ].
count() {
    grep -c "^\[ *$1 *\]" "$2"
}

# ucx_profile NAME FILTER...: runs the tests in a profile of gdremu.
ucx_profile() {
    local name=$1 log filter listed run ok skipped
    shift
    # With `grep -q`, ucx_info would end early, because grep closes the pipe at the first match.
    listed=$("${gdremu[@]}" --profile "$name" -- ucx/bin/ucx_info -d 2>&1 | grep -c 'Transport: gdr_copy')
    row "$ucx" "$name" 'ucx_info lists gdr_copy' 1 $((listed > 0)) 0
    for filter; do
        log=$cache/gtest-$name-${filter//[^a-zA-Z0-9_]/}.log
        "${gdremu[@]}" --profile "$name" -- ucx-build/test/gtest/gtest --gtest_filter="$filter" >"$log" 2>&1 || touch failed
        # gtest also writes OK for skipped tests.
        run=$(count RUN "$log") ok=$(count OK "$log") skipped=$(count SKIP "$log")
        row "$ucx" "$name" "gtest $filter" "$run" $((ok - skipped)) "$skipped"
    done
}

# Sends messages from one process's GPU memory to another's over TCP or shared memory. UCX's transport gdr_copy copies
# them from and to the GPU.
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

# `gdrcopy trace` counts a write and a read of each message, and two pins, because the client registers memory to send
# and memory to receive. The warm-up is off (-w 0), because UCX would warm up for a fixed time, and so make a different
# number of copies in each run.
ucx_traced() {
    local port=$((20000 + RANDOM % 10000)) log=ucx-traced.log passed=0
    TRACER=$root/build/tools/bin/gdrcopy UCX_TLS=tcp,cuda_copy,gdr_copy "${gdremu[@]}" -- "$here/pair.sh" $port $log \
        ucx/bin/ucx_perftest -t tag_lat -m cuda -s 64 -n 100 -w 0 -p $port &&
        grep -q ' used libgdrapi .*: 2 pins, 2 maps, 200 copies, 12800 bytes$' $log && passed=1
    row "$ucx" default 'ucx_perftest under gdrcopy trace' 1 $passed 0
}

# Prints the variables of UCX that `gdrcopy tune` sets. tune runs a stand-in for ucx_perftest. From the times that the
# stand-in prints, tune concludes that all these variables must be set.
ucx_settings() {
    mkdir -p ucx-tuned
    cc "$root/tools/tests/ucx_perftest.c" -o ucx-tuned/ucx_perftest
    ln -sf ../ucx/bin/ucx_info ucx-tuned/ucx_info
    FAKE_TIMES=$(
        for size in 256 1024 2048 4096 8192 16384 24576 32768 65536 1048576; do
            printf 'cuda,cuda %s %s\n' "default $size" 9 "model $size" 9 "eager $size" $((size > 16384 ? 90 : 1)) "rendezvous $size" 9
        done
    ) "${gdremu[@]}" -- "$root/build/tools/bin/gdrcopy" tune --ucx ucx-tuned --budget 20
}

# agree NAME GIVEN PRINTED: checks that UCX understood its variable NAME. GIVEN is the value that tune set. PRINTED is
# the value that ucx_info prints. Both must have the same keys and numbers, but UCX rounds them and changes their units.
agree() {
    printf '%s\n%s\n' "$2" "$3" | awk -v name="$1" '
        function number(text) {
            return text * (text ~ /us$/ ? 1000 : text ~ /GBps$/ ? 1024 : 1)
        }
        {
            fields = split($0, pairs, ",")
            for (field = 1; field <= fields; field++) {
                if (split(pairs[field], pair, ":") == 2) value[NR, pair[1]] = pair[2]
                else value[NR, ""] = pair[1]
            }
            for (key in value) { split(key, part, SUBSEP); keys[part[2]] }
        }
        END {
            for (key in keys) {
                given = (1, key) in value ? value[1, key] : value[1, ""]
                if (key == "") continue
                if (given ~ /^[a-z]/ ? given != value[2, key] : (number(given) - number(value[2, key])) ^ 2 > (value[2, key] ~ /GBps$/ ? 27 : 26)) {
                    print name ": " key " is " value[2, key] ", not " given
                    wrong = 1
                }
            }
            exit wrong
        }' >&2
}

# Checks that UCX accepts the variables that `gdrcopy tune` prints, that tune works with UCX's own ucx_perftest, and
# that tune names the variables that Debian's older UCX does not know.
ucx_tuned() {
    local name given log=ucx-tuned.log port=$((20000 + RANDOM % 10000)) run=0 passed=0 settings=()
    export UCX_TLS=sm,cuda_copy,gdr_copy
    ucx_settings >tune.env 2>$log || touch failed
    mapfile -t settings < <(grep ^UCX_ tune.env)
    env "${settings[@]}" "${gdremu[@]}" -- ucx/bin/ucx_info -cf >ucx-info.log 2>&1
    for name in UCX_GDR_COPY_BW UCX_GDR_COPY_LAT UCX_RNDV_THRESH; do
        run=$((run + 1)) given=$(sed -n "s/^$name=//p" tune.env)
        [ -n "$given" ] && agree $name "$given" "$(sed -n "s/^$name=//p" ucx-info.log)" && passed=$((passed + 1))
    done
    ! grep -E 'UCX +(ERROR|WARN)' ucx-info.log >&2 || touch failed
    row "$ucx" default 'ucx_info takes the settings of gdrcopy tune' $run $passed 0

    env "${settings[@]}" "${gdremu[@]}" -- "$here/pair.sh" $port $log ucx/bin/ucx_perftest -t tag_lat -m cuda -s 8192 -n 100 -w 10 \
        -p $port && ! grep -E 'UCX +(ERROR|WARN)' $log $log.server >&2
    row "$ucx" default 'ucx_perftest takes them' 1 $(($? == 0)) 0 $log

    "${gdremu[@]}" --profile two-gpus -- "$root/build/tools/bin/gdrcopy" tune --ucx ucx --budget 3600 --json tune.json >$log 2>&1 &&
        python3 - tune.json <<-'END'
	import json, sys
	rows = json.load(open(sys.argv[1]))["messages"]
	# Each row has the times of four modes of UCX: default, model, eager and rendezvous. Only rows of host memory have no
	# times of the mode `model`, because the model describes GPU memory only.
	wrong = [row for row in rows if [bool(runs) for runs in row["runs_ns"]] != [True, row["route"] != "host", True, True]]
	sys.exit(f"gdrcopy tune: {wrong}" if wrong or {row["route"] for row in rows} != {"host", "cuda", "cuda 0-1"} else 0)
	END
    row "$ucx" two-gpus 'gdrcopy tune runs ucx_perftest' 1 $(($? == 0)) 0

    LD_LIBRARY_PATH=$cache/gdrcopy/lib PATH=/usr/bin:/bin "${gdremu[@]}" -- "$root/build/tools/bin/gdrcopy" tune --budget 8 >$log 2>&1 &&
        grep -q '^# UCX [0-9.]* does not know UCX_GDR_COPY_BW' $log
    row "UCX $(dpkg-query -f '${Version}' -W ucx-utils)" default 'gdrcopy tune names what is missing' 1 $(($? == 0)) 0
}

ucx() {
    local profiles=(default traditional gdrdrv-2.4 cached two-gpus dmabuf) name ucx
    [ $# -gt 0 ] || set -- '*gdr_copy*' '*tag_mem_type*'
    need ucx-utils
    once fetch-ucx-$ucx_version fetch_ucx
    once configure-ucx-$ucx_version configure_ucx
    once build-ucx-$ucx_version build_ucx
    once build-gtest-$ucx_version build_gtest

    ucx="UCX $ucx_version"
    export LD_LIBRARY_PATH=$cache/gdrcopy/lib:$cache/ucx/lib:$cache/cuda/lib64
    for name in "${profiles[@]}"; do
        [ "$(jobs -rp | wc -l)" -lt "$jobs" ] || wait -n
        ucx_profile "$name" "$@" >"$name.part" &
    done
    wait
    cat "${profiles[@]/%/.part}"
    ucx_two_processes
    ucx_traced
    ucx_tuned
}

