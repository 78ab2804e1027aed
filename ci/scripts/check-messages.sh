#!/bin/sh
# Checks that each message of docs/data/messages.txt is in docs/troubleshooting.md, where users search for it.
# scripts/messages.py makes the list from the sources of the programs that print the messages.
set -eu
cd "$(dirname "$0")/../.."

count=$(grep -c '^[^#]' docs/data/messages.txt)
missing=$(grep '^[^#]' docs/data/messages.txt | sort -u | while read -r message; do
    grep -qF -- "$message" docs/troubleshooting.md || echo "$message"
done)
[ -z "$missing" ] || { printf 'check-messages: docs/troubleshooting.md lacks\n%s\n' "$missing" >&2 && exit 1; }
echo "messages: docs/troubleshooting.md has all $count"
