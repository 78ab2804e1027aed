#!/usr/bin/env bash
# ci/gpu/ucx.sh FILE UCX [BUNDLE]: measures UCX's tag latency between two processes with memory of one GPU, with UCX's
# defaults and with the settings of `gdrcopy tune`. Writes all runs to FILE, and prints a table of medians. Exits with 1
# if a size is more than 5 % slower with the settings, or if a pair of processes failed.
#
# UCX is a directory with an installed UCX that has CUDA and gdr_copy, as `make consumers` builds it. BUNDLE is what
# `make gpu-bundle` made (default: build/gpu). The script needs no compiler, and takes at most eight minutes. If there
# is no /dev/gdrdrv, gdremu's nvidia provider takes its place.
#
# GPU_UCX_OTHER is a directory with another libgdrapi.so.2, to compare with.
# GPU_UCX_SETTINGS is a file that `gdrcopy tune` wrote. Without it, this script makes FILE.env.
# GPU_UCX_CORES are the processes' two cores (default: 4,6, or 0 and the last if there are fewer).
# GPU_UCX_RUNS is how often each size is measured (default: 9).
# GPU_UCX_MESSAGES is how many messages of a size below 2 KiB are sent in a run (default: 3000). Larger sizes get a third.
# GPU_UCX_GDREMU are options of gdremu (default: --provider nvidia).
# UCX_TLS lists UCX's transports (default: sm,gdr_copy,cuda_copy).
set -uo pipefail

die() {
    echo "gpu-ucx: $*" >&2
    exit 2
}

[ $# -ge 2 ] || die "usage: ci/gpu/ucx.sh FILE UCX [BUNDLE]"
root=$(cd "$(dirname "$0")/../.." && pwd)
bundle=$(cd "${3:-$root/build/gpu}" && pwd) || exit 2
ucx=$(cd "$2" && pwd) || exit 2
[ -x "$ucx/bin/ucx_perftest" ] || die "no bin/ucx_perftest in $ucx: \`make consumers\` builds one"
[ -x "$bundle/gdrcopy" ] || die "no gdrcopy in $bundle: run \`make gpu-bundle\`"
# Without gdrdrv, the script starts itself again under gdremu, so that the two measured processes share one emulated
# driver.
if [ ! -e /dev/gdrdrv ] && [ -z "${GPU_UCX_EMULATED-}" ]; then
    read -ra options <<<"${GPU_UCX_GDREMU---provider nvidia}"
    GPU_UCX_EMULATED=1 exec "$bundle/gdremu" ${options[@]+"${options[@]}"} -- "$0" "$@"
fi

file=$1
messages=${GPU_UCX_MESSAGES:-3000} runs=${GPU_UCX_RUNS:-9} last=$(($(nproc --all) - 1))
IFS=, read -r server_core client_core <<<"${GPU_UCX_CORES:-$((last < 6 ? 0 : 4)),$((last < 6 ? last : 6))}"
export UCX_TLS=${UCX_TLS:-sm,gdr_copy,cuda_copy}
own=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
libraries=("ours=$bundle")
[ -z "${GPU_UCX_OTHER-}" ] || libraries+=("other=$GPU_UCX_OTHER")
tests=$(mktemp) output=$(mktemp)
trap 'rm -f "$tests" "$output"' EXIT
for size in 1 8 16 33 64 100 256 1000 1024 2048 4096 8192 16384 24576 32768 65536; do
    count=$messages
    [ $size -lt 2048 ] || count=$((messages < 6 ? 2 : messages / 3))
    echo "$size -t tag_lat -m cuda,cuda -s $size -n $count -w $((count / 10 + 1))"
done >"$tests"

settings=${GPU_UCX_SETTINGS-}
if [ -z "$settings" ]; then
    settings=$file.env
    LD_LIBRARY_PATH=$bundle:$ucx/lib$own timeout -s INT 150 "$bundle/gdrcopy" tune --cpu "$server_core,$client_core" --ucx "$ucx" \
        >"$settings" || die "no settings: gdrcopy tune failed"
fi
mapfile -t tuned < <(grep '^UCX_' "$settings")

# perftest CORE VARIABLE=VALUE... -- ARGUMENT...: replaces this shell by ucx_perftest, with these variables, on this core.
perftest() {
    local core=$1 variables=()
    shift
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    exec timeout -k 1 60 taskset -c "$core" env "${variables[@]}" "$ucx/bin/ucx_perftest" -b "$tests" -f -v "$@"
}

# pair VARIABLE=VALUE...: runs a server and a client with these variables. Prints the client's output, and writes the
# server's to $output.
pair() {
    local port=$((20000 + RANDOM % 10000)) server status
    (perftest "$server_core" "$@" -- -p $port) >"$output" 2>&1 &
    server=$!
    while kill -0 $server 2>/dev/null && ! grep -q ":$(printf %04X $port) [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6; do
        sleep 0.05
    done
    (perftest "$client_core" "$@" -- -p $port 127.0.0.1)
    status=$?
    [ $status = 0 ] || kill $server 2>/dev/null
    wait $server && [ $status = 0 ]
}

failed=0
{
    echo "# ucx_perftest tag_lat, $(LD_LIBRARY_PATH=$ucx/lib$own "$ucx/bin/ucx_info" -v | sed -n 's/.*Library version: /UCX /p'), two processes on one" \
        "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1) GPU, cores $server_core and" \
        "$client_core, ${GPU_UCX_EMULATED:+gdremu ${GPU_UCX_GDREMU---provider nvidia}, }UCX_TLS=$UCX_TLS, $(date -u +%F); tuned:" \
        "${tuned[*]}; columns: memory, size, library, run, iterations and 50th percentile us and average ..., settings"
    for ((run = 1; run <= runs; run++)); do
        for library in "${libraries[@]}"; do
            for setting in default tuned; do
                [ $SECONDS -lt 420 ] || break 3
                [ $setting = default ] || [ ${#tuned[@]} -gt 0 ] || continue
                variables=("LD_LIBRARY_PATH=${library#*=}:$bundle:$ucx/lib$own")
                [ $setting = default ] || variables+=("${tuned[@]}")
                pair "${variables[@]}" >"$output.client" 2>&1 || { sed 's/^/gpu-ucx: /' "$output" "$output.client" >&2; touch "$output.failed"; }
                sed -nE "s/^([0-9]+), *(.*)/cuda,cuda \1 ${library%%=*} $run \2 $setting/p" "$output.client"
            done
        done
    done
} >"$file"
[ ! -e "$output.failed" ] || failed=1
rm -f "$output".*

# Prints a table with a row for each size. A size counts as slower if its fastest tuned run takes over 5 % more than the
# median of the runs with UCX's defaults.
sed '/^#/d' "$file" | awk '{ split($5, csv, ","); print $2, $3, $6, csv[2] }' | sort -k1,1n -k2,2 -k3,3 -k4,4n | awk '
    { key = $1 " " $2 " " $3; value[key, ++count[key]] = $4 }
    !($1 in seen) { seen[$1]; sizes[++rows] = $1 }
    !($2 in seen) { seen[$2]; libraries[++columns] = $2 }
    function median(key) { return value[key, int((count[key] + 1) / 2)] }
    END {
        printf "%8s", "bytes"
        for (column = 1; column <= columns; column++) printf "  %12s  %12s", libraries[column], "tuned"
        print "  (50th percentile, us)"
        for (row = 1; row <= rows; row++) {
            printf "%8s", sizes[row]
            note = ""
            for (column = 1; column <= columns; column++) {
                key = sizes[row] " " libraries[column] " "
                printf "  %12.3f  %12.3f", median(key "default"), median(key "tuned")
                if (value[key "tuned", 1] > 1.05 * median(key "default")) { note = "  SLOWER"; slower = 1 }
            }
            print note
        }
        exit slower || !rows
    }' || failed=1
exit $failed
