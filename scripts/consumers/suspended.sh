#!/usr/bin/env bash
# suspended.sh GDRCOPY PORT LOG COMMAND...: runs COMMAND as a server that listens on PORT, and again as its client with the
# address as last argument. Both run under `GDRCOPY checkpoint`, and are suspended and resumed three times. After each, the
# client must report in LOG. Neither ends by itself.
set -u
gdrcopy=$1 port=$2 log=$3
shift 3

"$gdrcopy" checkpoint -- "$@" >"$log.server" 2>&1 &
server=$!
listens=":$(printf %04X "$port") [0-9A-F]*:0000 0A" # Any address, state LISTEN.
while kill -0 $server && ! grep -q "$listens" /proc/net/tcp /proc/net/tcp6; do
    sleep 0.2
done
"$gdrcopy" checkpoint -- "$@" 127.0.0.1 >"$log" 2>&1 &
client=$!
trap 'kill $server $client' EXIT

# Waits for one more report.
progress() {
    local before
    before=$(grep -c '^\[thread' "$log")
    while [ "$(grep -c '^\[thread' "$log")" -le "$before" ]; do
        kill -0 $client && kill -0 $server || return 1
        sleep 0.2
    done
}

progress || exit 1
for _ in 1 2 3; do
    "$gdrcopy" suspend $server && "$gdrcopy" suspend $client && "$gdrcopy" resume $server && "$gdrcopy" resume $client &&
        progress || exit 1
done
