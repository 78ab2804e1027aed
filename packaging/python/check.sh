#!/usr/bin/env bash
# Installs the wheel into fresh virtual environments, and runs the tests there on emulated GPUs, with NumPy and mypy if
# pip can get them. It does so with python3 and each of python3.9 to python3.13 that runs, those of pyenv too.
#
#   packaging/python/check.sh WHEEL GDREMU
set -euo pipefail

wheel=$(realpath "$1")
# Freed objects have contents that no pointer has.
export GDREMU PYTHONMALLOC=debug
GDREMU=$(realpath "$2")
cd "$(dirname "$0")/tests"
examples=$(realpath ../../../examples/gdrx)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if command -v pyenv >/dev/null; then
    export PYENV_VERSION=${PYENV_VERSION-$(pyenv versions --bare | paste -sd:)}
fi

# check PYTHON VENV
check() {
    "$1" -m venv "$2"
    local pip=("$2/bin/pip" --quiet --disable-pip-version-check install) profile test example
    "${pip[@]}" --no-index "$wheel"
    # The environment's package, not the one next to the tests; no cache files here.
    local python=("$2/bin/python" -B)
    "$GDREMU" -- "${python[@]}" test_preload.py
    "${pip[@]}" numpy mypy || echo "pip cannot install NumPy and mypy: their tests are skipped"
    "$GDREMU" -- "${python[@]}" test_wheel.py
    for profile in default traditional cached device dmabuf; do
        for test in test_device.py test_many.py test_mapping.py test_views.py; do
            "$GDREMU" --profile $profile --leak-exit 9 -- "${python[@]}" $test
        done
    done
    if "${python[@]}" -c 'import numpy' 2>/dev/null; then
        for example in flags.py doorbells.py "rows.py 16"; do
            # shellcheck disable=SC2086 # A name, and an argument.
            (cd "$examples" && "$GDREMU" -- "${python[@]}" $example)
        done
    fi
}

checked=
for python in python3 python3.{9..13}; do
    version=$("$python" -c 'import ensurepip, sys; assert sys.version_info >= (3, 9); print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    [[ " $checked " != *" $version "* ]] || continue
    echo "== Python $version"
    check "$python" "$work/$version"
    checked+=" $version"
done
[ -n "$checked" ] || { echo "check.sh: no Python with venv found" >&2 && exit 1; }
echo "wheel: tested with Python$checked"
