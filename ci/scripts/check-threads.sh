#!/usr/bin/env bash
# Runs C tests, and a Rust program with threads, under ThreadSanitizer and gdremu. libgdrapi and libgdrx are also
# instrumented.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
out=build/tsan
mkdir -p "$out"

# The sanitizer is an unstable option of rustc. It does not see locks of Rust's standard library, which is not
# instrumented. crates/gdrcopy-core/src/sync.rs says how it sees the locks of libgdrapi.
instrumented=(env RUSTC_BOOTSTRAP=1
    RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg gdrapi_tsan")
built=$target/tsan/x86_64-unknown-linux-gnu/release
for package in libgdrapi gdrx; do
    "${instrumented[@]}" CARGO_TARGET_DIR="$target/tsan" \
        cargo rustc --package $package --lib --crate-type staticlib --release --target x86_64-unknown-linux-gnu
done

# Each library is made into one object with few global symbols, because both contain Rust's standard library. rustc makes
# calls of __tsan_memcpy, __tsan_memmove and __tsan_memset. gcc's runtime has memcpy, memmove and memset instead.
for name in gdrapi gdrx; do
    ld -r --force-group-allocation --whole-archive "$built/lib$name.a" -o "$out/$name.o"
    objcopy --redefine-sym __tsan_memcpy=memcpy --redefine-sym __tsan_memmove=memmove --redefine-sym __tsan_memset=memset \
        --wildcard --keep-global-symbol='gdr*_*' "$out/$name.o"
done

programs=build/c_tests/threads
libraries="$out/gdrapi.o $out/gdrx.o -lgcc_s -lpthread -ldl -lm -lc '$target/release/libgdremu_cuda.so'"
make --no-print-directory --silent -f c_tests/programs.mk CC=gcc libraries="$libraries" build/c_tests/watched \
    "$programs"/{threads,handles,gdrx}
for program in threads handles gdrx; do
    grep -q __tsan_func_entry <(nm "$programs/$program") # Without the sanitizer, no race is found.
    env CHECK_SLOWNESS=20 TSAN_OPTIONS="exitcode=66 die_after_fork=0 suppressions=$PWD/ci/scripts/tsan.supp" \
        build/c_tests/watched "$target/release/gdremu" -- "$programs/$program"
done

project=$target/default_build
ci/scripts/copy-default-build.sh "$project"
"${instrumented[@]}" CARGO_TARGET_DIR="$project/tsan" cargo build --quiet --offline --manifest-path "$project/Cargo.toml" \
    --bin threads --target x86_64-unknown-linux-gnu
TSAN_OPTIONS="exitcode=66 suppressions=$PWD/ci/scripts/tsan.supp" \
    build/c_tests/watched "$target/release/gdremu" -- "$project/tsan/x86_64-unknown-linux-gnu/debug/threads"
echo "the crate's threads: no data race"
