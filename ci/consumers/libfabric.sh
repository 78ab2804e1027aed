# Builds libfabric twice: once linked with libgdrapi and CUDA, and once so that it loads them with dlopen. fabtests are
# libfabric's tests. They send GPU memory from one process to another over libfabric's provider shm, because the provider
# tcp does not take GPU memory. They are linked with libfabric_register.c, which registers this memory.

# Makes the configure scripts, which the source package lacks.
prepare_libfabric() {
    (cd libfabric-source && ./autogen.sh)
    (cd libfabric-source/fabtests && ./autogen.sh)
}

# build_libfabric VARIANT OPTION...: builds a static library, so that fabtests can be linked with libfabric_register.c.
build_libfabric() {
    local variant=$1
    shift
    rm -rf "libfabric-$variant"
    mkdir "libfabric-$variant"
    cd "libfabric-$variant"
    ../libfabric-source/configure --prefix="$PWD/installed" --with-cuda="$cache/cuda" --with-gdrcopy="$cache/gdrcopy" \
        --enable-only --enable-shm --disable-shared "$@" \
        LDFLAGS="-L$cache/cuda/lib64/stubs -Wl,--allow-shlib-undefined"
    grep -q 'HAVE_GDRCOPY 1' config.h
    make -s -j"$jobs" install CFLAGS='-g0 -O1'
}

# build_fabtests VARIANT: builds those programs of fabtests that can send GPU memory.
build_fabtests() {
    local libfabric=$cache/libfabric-$1 source=$cache/libfabric-source
    rm -rf "fabtests-$1"
    mkdir "fabtests-$1"
    cd "fabtests-$1"
    # The check for libfabric in fabtests' configure cannot link a static libfabric. So the variable sets its result.
    ac_cv_lib_fabric_fi_getinfo=yes "$source/fabtests/configure" --with-libfabric="$libfabric/installed" --with-cuda="$cache/cuda"
    cc -D_GNU_SOURCE -O1 -I"$cache/cuda/include" -I"$libfabric" -I"$source/include" -I"$source" -c "$here/libfabric_register.c"
    # libfabric and fabtests both have a copy of the functions for atomic operations, hence --allow-multiple-definition.
    make -s -j"$jobs" CFLAGS='-g0 -O1' "${fabtests[@]/#/benchmarks/}" \
        LDFLAGS="-L$libfabric/installed/lib -L$cache/gdrcopy/lib -L$cache/cuda/lib64 -L$cache/cuda/lib64/stubs \
            -Wl,--allow-shlib-undefined,--as-needed,--wrap=ofi_mr_regattr,--allow-multiple-definition" \
        LIBS='libfabric_register.o -lfabric -lgdrapi -lcudart -lcuda -latomic -lpthread -lrt -ldl'
}

# libfabric_profile VARIANT PROFILE: runs each program as server and client. The programs check the data.
libfabric_profile() {
    local program port log logs=() passed=0
    for program in "${fabtests[@]}"; do
        port=$((20000 + RANDOM % 10000)) log=fabtests-$1-$2-$program.log
        logs+=("$log")
        "${gdremu[@]}" --profile "$2" --leak-exit 3 -- "$here/pair.sh" $port "$log" \
            "fabtests-$1/benchmarks/$program" -p shm -D cuda -E=$port -v -S 1024 -I 10 && passed=$((passed + 1))
    done
    row "libfabric $(cat libfabric.version)" "$2" "fabtests -p shm -D cuda, 2 processes, $1" ${#logs[@]} $passed 0 "${logs[@]}"
}

libfabric() {
    local fabtests=(fi_rdm_pingpong fi_rdm_tagged_pingpong fi_rdm_bw fi_rdm_tagged_bw) variant profile
    need autoconf automake libtool
    once fetch-libfabric fetch libfabric
    once prepare-libfabric prepare_libfabric
    once build-libfabric-linked build_libfabric linked
    once build-libfabric-dlopen build_libfabric dlopen --enable-cuda-dlopen --enable-gdrcopy-dlopen
    export LD_LIBRARY_PATH=$cache/gdrcopy/lib FI_HMEM_CUDA_USE_GDRCOPY=1
    for variant in linked dlopen; do
        once build-fabtests-$variant build_fabtests $variant
        for profile in default traditional gdrdrv-2.4 cached dmabuf; do
            libfabric_profile $variant $profile
        done
    done
}
