#!/usr/bin/env bash
# Installs the wheel into a fresh virtual environment, and runs the tests there on emulated GPUs, with
# NumPy and mypy if pip can get them.
#
#   packaging/python/check.sh WHEEL GDREMU
set -euo pipefail

wheel=$(realpath "$1")
export GDREMU
GDREMU=$(realpath "$2")
cd "$(dirname "$0")/tests"
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT

python3 -m venv "$venv"
"$venv/bin/pip" --quiet --disable-pip-version-check install --no-index "$wheel"
# The environment's package, not the one next to the tests; no cache files here.
python=("$venv/bin/python" -B)
"$GDREMU" -- "${python[@]}" test_preload.py
"$venv/bin/pip" --quiet --disable-pip-version-check install numpy mypy ||
    echo "pip cannot install NumPy and mypy: their tests are skipped"
"$GDREMU" -- "${python[@]}" test_wheel.py
for profile in default traditional cached dmabuf; do
    for test in test_device.py test_mapping.py; do
        "$GDREMU" --profile $profile --leak-exit 9 -- "${python[@]}" $test
    done
done
