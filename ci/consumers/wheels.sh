# Tests the libraries in the Python wheels of NCCL and NVSHMEM. nccl.c and nvshmem.c call only those functions of the
# libraries that call libgdrapi. Other functions use NVIDIA's CUDA runtime, which the libraries contain, and which finds
# no GPU under gdremu.

nccl_version=2.32.3
nvshmem_version=3.8.0

fetch_wheels() {
    rm -rf wheels-download wheels
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest wheels-download \
        "nvidia-nccl-cu13==$nccl_version" "nvidia-nvshmem-cu13==$nvshmem_version"
    for wheel in wheels-download/*.whl; do
        python3 -m zipfile -e "$wheel" wheels
    done
    rm -r wheels-download
}

# offsets LIBRARY FUNCTION...: prints the functions' offsets in the library, as nm does.
offsets() {
    local library=$1 function
    shift
    nm -C "$library" >symbols
    for function; do
        sed -n "s/^\([0-9a-f]*\) t \((anonymous namespace)::\)\?$function(.*)\$/\1/p" symbols
    done
}

# wheel NAME VERSION LIBRARY FUNCTION...: compiles and runs NAME.c, which calls these functions of the library.
wheel() {
    local name=$1 version=$2 library=$cache/wheels/nvidia/$3 profile log arguments
    shift 3
    mapfile -t arguments < <(offsets "$library" "$@")
    cc -Wall -Werror -I"$cache/cuda/include" -I"$cache/gdrcopy/include" "$here/$name.c" -o "$name" \
        -L"$cache/cuda/lib64/stubs" -lcuda -Wl,--allow-shlib-undefined >"$name.log" 2>&1 ||
        skip "$name.c does not compile, see $cache/$name.log"
    for profile in default traditional high-handles gdrdrv-2.4 cached dmabuf; do
        log=$name-$profile.log
        "${gdremu[@]}" --profile $profile --leak-exit 3 -- gdb --batch --nx -x "$here/calls.gdb" --args \
            "./$name" "$library" "${arguments[@]}" >"$log" 2>&1 || touch failed
        row "$name $version" $profile "$name.c" "$(grep -c '^test ' "$log")" "$(grep -c '^ok ' "$log")" 0 "$log"
    done
}

wheels() {
    once "fetch-wheels-$nccl_version-$nvshmem_version" fetch_wheels
    export LD_LIBRARY_PATH=$cache/gdrcopy/lib:$cache/wheels/nvidia/nvshmem/lib
    wheel nccl $nccl_version nccl/lib/libnccl.so.2 \
        wrap_gdr_{symbols,open,pin_buffer,map,get_info,copy_to_mapping,unmap,unpin_buffer,close}
    wheel nvshmem $nvshmem_version nvshmem/lib/nvshmem_transport_ibrc.so.7 \
        nvshmemt_gdrcopy_{backend_init,pin,map,copy_to,copy_from,unmap,unpin,close}
}
