# Runs cudarc.rs, a program with streams, events, copies and a GPU kernel, to test cudarc.

cudarc_version=0.19.10

build_cudarc() {
    mkdir -p cudarc/src
    cp "$here/cudarc.rs" cudarc/src/main.rs
    printf '%s\n' '[package]' 'name = "consumer"' 'version = "0.0.0"' 'edition = "2024"' '[workspace]' '[dependencies.cudarc]' \
        "version = \"=$cudarc_version\"" 'default-features = false' \
        'features = ["std", "driver", "nvrtc", "fallback-dynamic-loading", "cuda-12080"]' >cudarc/Cargo.toml
    CARGO_TARGET_DIR=$PWD/cudarc/target cargo build --quiet --manifest-path cudarc/Cargo.toml
}

cudarc() {
    local profile log
    # The step's name has the program's checksum, so that the step runs again if the program has changed.
    once "build-cudarc-$cudarc_version-$(cksum <"$here/cudarc.rs" | tr ' ' -)" build_cudarc
    for profile in default two-gpus dmabuf; do
        log=cudarc-$profile.log
        "${gdremu[@]}" --profile $profile -- cudarc/target/debug/consumer >"$log" 2>&1 || touch failed
        # gdremu must refuse functions of graphs, and no others.
        grep '^gdremu:' "$log" | grep -v 'Graph.* is not supported$' >&2 && touch failed
        grep -q '^gdremu: cuGraphInstantiate.* is not supported$' "$log" || touch failed
        row "cudarc $cudarc_version" $profile 'streams, events, copies, kernels' "$(grep -c '^test ' "$log")" "$(grep -c '^ok ' "$log")" 0
    done
}
