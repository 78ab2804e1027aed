#!/usr/bin/env bash
# pair.sh PORT LOG COMMAND...: runs COMMAND as a server that listens on PORT, and again as its client, with the server's
# address as last argument. The client runs under gdb, which counts its calls of libgdrapi. If TRACER is a path of gdrcopy,
# the client runs under its `trace` instead. LOG gets the client's output, and then the counts or the report.
port=$1 log=$2
shift 2

"$@" >"$log.server" 2>&1 &
server=$!
listens=":$(printf %04X "$port") [0-9A-F]*:0000 0A" # This matches the line of a listening socket.
while kill -0 $server 2>/dev/null && ! grep -q "$listens" /proc/net/tcp /proc/net/tcp6; do
    sleep 0.2
done
counter=(gdb --batch --nx -x "$(dirname "$0")/calls.gdb" --args)
[ -z "${TRACER-}" ] || counter=("$TRACER" trace --)
"${counter[@]}" "$@" 127.0.0.1 >"$log" 2>&1
client=$?
[ $client = 0 ] || kill $server
wait $server && [ $client = 0 ]
