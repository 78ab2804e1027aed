# Checks that gdremu has all functions of CUDA and NVML that the sources of UCX, libfabric and DPDK name, except those that
# are listed here.

# functions_of CONSUMER DIRECTORY FUNCTION...: prints the row of a program with sources in DIRECTORY. In it, functions that
# gdremu has count as passed. The listed FUNCTIONs, which gdremu refuses, count as skipped.
functions_of() {
    local consumer=$1 directory=$2 named has lacking unexpected
    shift 2
    python3 "$here/functions.py" cuda/include "$built/libgdremu_cuda.so" "$directory=./$directory" >"functions-$directory.log"
    IFS=$'\t' read -r _ named has _ <"functions-$directory.log"
    lacking=$(cut -f 7- "functions-$directory.log" | tr '\t ' '\n' | grep '^cu\|^nvml')
    unexpected=$(grep -vxF "$(printf '%s\n' "$@")" <<<"$lacking")
    [ -z "$unexpected" ] || echo "consumers: $consumer names functions that gdremu lacks: ${unexpected//$'\n'/ }" >&2
    row "$consumer" - 'functions of CUDA and NVML' "$named" "$has" $((named - has - $(wc -w <<<"$unexpected")))
}

functions() {
    once fetch-ucx-$ucx_version fetch_ucx
    once fetch-libfabric fetch libfabric
    once fetch-dpdk fetch dpdk
    # gdremu has no pitched memory, no pools that programs create, and no sharing of VMM memory. UCX has calls for all of these.
    functions_of "UCX $ucx_version" ucx-source cuMemAllocFromPoolAsync cuMemAllocPitch_v2 cudaMallocPitch \
        cuMem{ExportTo,ImportFrom}ShareableHandle cuMemPool{Create,Destroy,SetAccess} \
        cuMemPool{ExportPointer,ExportToShareableHandle,ImportFromShareableHandle,ImportPointer}
    functions_of "libfabric $(cat libfabric.version)" libfabric-source
    functions_of "DPDK $(cat dpdk.version)" dpdk-source
}
