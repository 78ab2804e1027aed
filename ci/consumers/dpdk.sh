# Runs DPDK's program that tests gpudev, with DPDK's CUDA driver, which maps GPU memory by libgdrapi.

build_dpdk() {
    rm -rf dpdk-build
    # Only libraries and drivers that the program needs are enabled, because it is linked statically with all enabled ones.
    meson setup dpdk-build dpdk-source --optimization=1 -Dplatform=generic -Dtests=false -Denable_apps=test-gpudev \
        -Denable_drivers=bus/pci,gpu/cuda,mempool/ring -Dc_args="-I$cache/cuda/include -I$cache/gdrcopy/include" \
        -Ddisable_libs=bitratestats,cfgfile,flow_classify,gro,gso,jobstats,kni,latencystats,metrics,node,pdump,pipeline,port,power,table,vhost
    grep -q DRIVERS_GPU_CUDA_GDRCOPY_H dpdk-build/rte_build_config.h
    ninja -j"$jobs" -C dpdk-build app/dpdk-test-gpudev
}

dpdk() {
    local profile log
    need meson ninja-build python3-pyelftools
    once fetch-dpdk fetch dpdk
    once build-dpdk build_dpdk

    export LD_LIBRARY_PATH=$cache/gdrcopy/lib
    for profile in default traditional gdrdrv-2.4 cached dmabuf; do
        log=dpdk-$profile.log
        # DPDK's CUDA driver accepts only the GPUs whose PCI device ids it lists. The newest of these is an A100, 0x20b5.
        "${gdremu[@]}" --profile $profile --pci-device 0x20b5 -- gdb --batch --nx -x "$here/calls.gdb" --args \
            dpdk-build/app/dpdk-test-gpudev -l 0 -m 64 --no-huge --no-shconf -a 0000:1b:00.0 >"$log" 2>&1 || touch failed
        row "DPDK $(cat dpdk.version)" $profile dpdk-test-gpudev "$(grep -cE '> TEST: [A-Z][a-z]' "$log")" "$(grep -c '> TEST: PASSED' "$log")" 0 "$log"
    done
}
