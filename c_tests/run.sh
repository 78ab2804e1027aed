#!/usr/bin/env bash
# Builds the C tests and runs each of them in several ways and on several emulated machines; prints the results as tables.
set -euo pipefail

usage() {
    cat <<END
usage: c_tests/run.sh [options] [program ...]

Runs the named programs of c_tests, or all of them. Exit status 1 if any failed.

  --ways LIST       of these, separated by commas (default: all; none: only machines):
                      linked        with the library found on the library path
                      preloaded     linked with a library that can do nothing, or loading it; the real one in LD_PRELOAD
                      sanitized     linked, the program compiled with ASan and UBSan
                      valgrind      linked, under valgrind's memcheck
  --machines LIST   linked, on these emulated machines (default: all; none: only ways):
                      defects       the real module's defects, driver handles beyond 32 bits
                      traditional   mappings that are not persistent
                      cached        cached mappings, as on a coherent platform
                      device        device mappings
                      2.5 2.4 2.3 2.0   that version of gdrdrv
                      dmabuf        no gdrdrv; CUDA 13.3, whose dma-bufs can be mapped
                      dmabuf-3gpus dmabuf-coherent   the same with 3 GPUs, or on a coherent platform
                      dmabuf-many   the same; the program dmabuf alone, with 10,000 pins at once and 100,000 rounds
                      dmabuf-mixed  4 GPUs, of which two cannot map dma-bufs; only dmabuf_mixed and dmabuf_open
                      dmabuf-none dmabuf-export   no GPU can, as CUDA 13.5 reports, or as CUDA 13.3 does not; only dmabuf_open
                      nv-p2p-dummy nv-p2p-dummy-dmabuf   gdrdrv cannot pin: no other way, or dma-bufs; only nv_p2p_dummy
  --lib DIR         take libgdrapi.so.2 from DIR (default: build/lib, which \`make lib\` fills)
  --real            run on this machine's GPU and /dev/gdrdrv instead of under gdremu
  --provider nvidia run on this machine's GPU under gdremu, which is the driver; put it before --machines
  --prebuilt DIR    linked only, and build nothing: take gdremu, libgdrapi.so.2 and c_tests/ from DIR, as \`make gpu-bundle\` fills it
  -h, --help        this text
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
tests=$root/c_tests
out=$root/build/c_tests
target=${CARGO_TARGET_DIR:-$root/target}
emulator=$target/release/gdremu
standin_cuda=$target/release/libgdremu_libcuda.so

ways=linked,preloaded,sanitized,valgrind
machines=defects,traditional,cached,device,2.5,2.4,2.3,2.0,dmabuf,dmabuf-3gpus,dmabuf-coherent,dmabuf-many,dmabuf-mixed
machines+=,dmabuf-none,dmabuf-export,nv-p2p-dummy,nv-p2p-dummy-dmabuf
lib=$root/build/lib
real=no
provider=host
prebuilt=
programs=()

while [ $# -gt 0 ]; do
    case $1 in
    --ways) ways=$2 && shift 2 ;;
    --machines) machines=$2 && shift 2 ;;
    --lib) lib=$(cd "$2" && pwd) && shift 2 ;;
    --real) real=yes machines=none && shift ;;
    --provider)
        provider=$2
        [ "$provider" = host ] || machines=defects,traditional,2.5,2.4,2.3,2.0
        shift 2
        ;;
    --prebuilt) prebuilt=$(cd "$2" && pwd) ways=linked && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) programs+=("$1") && shift ;;
    esac
done
plain=$out/plain watched=$out/watched
if [ -n "$prebuilt" ]; then
    plain=$prebuilt/c_tests lib=$prebuilt emulator=$prebuilt/gdremu watched=$prebuilt/watched
fi
IFS=, read -ra ways <<<"${ways/#none/}"
IFS=, read -ra machines <<<"${machines/#none/}"

if [ ${#programs[@]} -eq 0 ] && [ -n "$prebuilt" ]; then
    for binary in "$plain"/*; do
        programs+=("$(basename "$binary")")
    done
elif [ ${#programs[@]} -eq 0 ]; then
    programs=(header_c99)
    ! command -v g++ >/dev/null || programs+=(header_cxx17)
    for source in "$tests"/*.c; do
        programs+=("$(basename "$source" .c)")
    done
fi

die() {
    echo "c_tests/run.sh: $*" >&2
    exit 1
}

[ -e "$lib/libgdrapi.so.2" ] || die "no libgdrapi.so.2 in $lib: run \`make lib\` first, or name another place with --lib"
[ -n "$prebuilt" ] || [ -e "$standin_cuda" ] || die "$standin_cuda is missing: run \`cargo build --release --workspace\` first"
[[ " ${ways[*]} " != *" valgrind "* ]] || command -v valgrind >/dev/null ||
    die "valgrind is missing: run scripts/install-deps.sh, or leave it out with --ways"

# ---- Building ----

warnings=(-Wall -Wextra -pedantic -Werror)
sanitizers=(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -static-libasan)

# build PROGRAM FOLDER FLAG ...
build() {
    local program=$1 binary=$2/$1
    shift 2
    mkdir -p "$(dirname "$binary")"
    # libc comes before the stand-in, which has functions of the same names; programs get only the libraries they use.
    local libraries=(-Wl,--as-needed -L"$lib" -l:libgdrapi.so.2 -lpthread -ldl -lc "$standin_cuda")
    case $program in
    header_c99) gcc -std=c99 "${warnings[@]}" "$@" -I"$root/include" "$tests/header/c99.c" -o "$binary" "${libraries[@]}" ;;
    header_cxx17) g++ -std=c++17 "${warnings[@]}" "$@" -I"$root/include" "$tests/header/cxx17.cpp" -o "$binary" "${libraries[@]}" ;;
    *)
        [ -e "$tests/$program.c" ] || die "there is no program $program"
        gcc -std=c99 -D_GNU_SOURCE "${warnings[@]}" "$@" -I"$root/include" -I"$tests" "$tests/$program.c" -o "$binary" "${libraries[@]}"
        ;;
    esac
}

# The library that aborts in every function.
build_absent() {
    mkdir -p "$out/absent"
    ln -sf libgdrapi.so.2 "$out/absent/libgdrapi.so"
    gcc -std=c99 "${warnings[@]}" -shared -fPIC -Wl,-soname,libgdrapi.so.2 "$tests/absent/libgdrapi.c" -o "$out/absent/libgdrapi.so.2"
}

# A program that lost its sanitizer on the way would pass for the wrong reason.
check_sanitized() {
    nm "$1" | grep __asan_init >/dev/null || die "$1 has no AddressSanitizer in it"
}

build_all() {
    local program way
    make --no-print-directory --silent -C "$root" build/c_tests/watched
    build_absent
    for program in "${programs[@]}"; do
        build "$program" "$plain" -O2 -g
        for way in "${ways[@]}"; do
            if [ "$way" = sanitized ]; then
                build "$program" "$out/sanitized" -O1 -g "${sanitizers[@]}"
                check_sanitized "$out/sanitized/$program"
            fi
        done
    done
}

# ---- Running ----

# gdremu's exit status where a program ended well, but with buffers still pinned.
leak=66

# machine WAY: gdremu's options.
machine() {
    case $1 in
    defects) echo --stale-handle-bug --handle-base 0x100000000 ;;
    traditional) echo --traditional ;;
    cached | device) echo --platform "$1" ;;
    2.4) echo --driver-version 2.4 --strict-sizes ;;
    2.*) echo --driver-version "$1" ;;
    dmabuf | dmabuf-many) echo --no-gdrdrv --cuda-version 13.3 ;;
    dmabuf-3gpus) echo --no-gdrdrv --cuda-version 13.3 --gpus 3 ;;
    dmabuf-mixed) echo --no-gdrdrv --cuda-version 13.5 --gpus 4 --dmabuf no,mmap,export,mmap ;;
    dmabuf-coherent) echo --no-gdrdrv --cuda-version 13.3 --coherent ;;
    dmabuf-none) echo --no-gdrdrv --cuda-version 13.5 --gpus 2 --dmabuf no,export ;;
    dmabuf-export) echo --no-gdrdrv --cuda-version 13.3 --dmabuf export ;;
    nv-p2p-dummy) echo --nv-p2p-dummy ;;
    nv-p2p-dummy-dmabuf) echo --nv-p2p-dummy --cuda-version 13.3 ;;
    esac
}

# loads_by_itself PROGRAM: whether it takes the library from the library path by dlopen.
loads_by_itself() {
    ! readelf --dynamic "$plain/$1" | grep 'NEEDED.*libgdrapi' >/dev/null
}

# applies PROGRAM WAY: whether the program is made for the way.
applies() {
    case $1:$2 in
    dlopen:preloaded) false ;; # it unloads the library, too
    *:dmabuf-many) [ "$1" = dmabuf ] ;;
    dmabuf_mixed:*) [ "$2" = dmabuf-mixed ] || [ "$real" = yes ] ;;
    dmabuf_open:*) [[ $2 == dmabuf* ]] || [ "$real" = yes ] ;;
    *:dmabuf-mixed | *:dmabuf-none | *:dmabuf-export) false ;;
    nv_p2p_dummy:*) [[ $2 == nv-p2p-dummy* ]] ;;
    *:nv-p2p-dummy*) false ;;
    open_fails:* | header_*:*) [ -z "$(machine "$2")" ] ;; # they need no driver
    esac
}

applies_to_any() {
    local program=$1 way
    shift
    for way in "$@"; do
        applies "$program" "$way" && return 0
    done
    return 1
}

# run_program PROGRAM WAY: its output on stdout and stderr, its exit status.
run_program() {
    local program=$1 way=$2 binary=$plain/$1
    local library_path=$lib command=("$watched")
    local environment=() leaks=(--leak-exit $leak)

    if [ "$way" != dmabuf-many ] && { [ -n "$(machine "$way")" ] || [ "$provider" = nvidia ]; }; then
        environment+=(CHECK_SLOWNESS=100) # not slow, but the same again; or slow, as reads through BAR1 are
    fi

    if [ "$real" = no ] && [ "$program" != open_fails ]; then
        [ "$program" != never_closed ] || leaks=()
        # shellcheck disable=SC2207 # The options are words.
        command+=("$emulator" --provider "$provider" ${leaks[@]+"${leaks[@]}"} $(machine "$way") --)
    fi
    case $way in
    preloaded)
        library_path=$out/absent
        environment+=(LD_PRELOAD="$lib/libgdrapi-preload.so")
        ;;
    sanitized)
        binary=$out/sanitized/$program
        environment+=(UBSAN_OPTIONS=print_stacktrace=1)
        # What an unloaded library leaves behind has no names left to tell it by; valgrind, which keeps them, judges it.
        ! loads_by_itself "$program" || environment+=(ASAN_OPTIONS=detect_leaks=0)
        ;;
    valgrind)
        environment+=(CHECK_SLOWNESS=100)
        command+=(valgrind --quiet --fair-sched=yes --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite
            --keep-debuginfo=yes --suppressions="$tests/valgrind.supp")
        ;;
    esac
    env LD_LIBRARY_PATH="$library_path" "${environment[@]}" "${command[@]}" "$binary"
}

failures=()
waived=()

# verdict PROGRAM WAY: sets `word` for the table; remembers failures and why tests were waived.
verdict() {
    local log=$out/logs/$2/$1.log status=0
    mkdir -p "$(dirname "$log")"
    word=-
    applies "$1" "$2" || return 0
    run_program "$1" "$2" >"$log" 2>&1 || status=$?
    case $status in
    0) word=ok ;;
    2) word=waived && waived+=("$(grep '^waived' "$log")") ;;
    "$leak") # also the status of a test that failed before it gave its buffers back
        grep -q "^ok " "$log" && word=LEAK || word=FAILED
        failures+=("$log")
        ;;
    124) word=HANGS && failures+=("$log") ;;
    *) word="FAILED $status" && failures+=("$log") ;;
    esac
}

# cell TEXT WAY: one of the column of that way.
cell() {
    printf '%-*s' $((${#2} < 11 ? 12 : ${#2} + 2)) "$1"
}

# table WAY ...: runs all programs.
table() {
    local program way word
    [ $# -gt 0 ] || return 0
    printf '%-29s' program
    for way in "$@"; do
        cell "$way" "$way"
    done
    echo
    for program in "${programs[@]}"; do
        applies_to_any "$program" "$@" || continue
        printf '%-29s' "$program"
        for way in "$@"; do
            verdict "$program" "$way"
            cell "$word" "$way"
        done
        echo
    done
    echo
}

[ -n "$prebuilt" ] || build_all
table ${ways[@]+"${ways[@]}"}
table ${machines[@]+"${machines[@]}"}

[ ${#waived[@]} -eq 0 ] || printf '%s\n' "${waived[@]}" | sort -u
for log in ${failures[@]+"${failures[@]}"}; do
    printf -- '---- %s\n' "${log#"$root"/}"
    tail -n 40 "$log"
done
[ ${#failures[@]} -eq 0 ]
