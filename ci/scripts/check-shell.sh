#!/bin/sh
# Runs shellcheck on the shell scripts of the repository.
set -eu
cd "$(dirname "$0")/../.."

git grep -lIE '^#!/(usr/bin/env bash|bin/sh)$|^# shellcheck shell=' | xargs shellcheck --external-sources --severity=warning
