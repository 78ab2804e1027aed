#!/usr/bin/env bash
# Installs the wheel into fresh virtual environments, and runs the tests there on emulated GPUs, with NumPy, ml_dtypes and
# mypy if pip can get them. Tests python3 and each of python3.9 to python3.14 that runs, including those of pyenv.
#
#   packaging/python/check.sh WHEEL GDREMU
set -euo pipefail

wheel=$(realpath "$1")
# With PYTHONMALLOC=debug, freed objects contain bytes that are not a valid pointer, so using them crashes.
export GDREMU PYTHONMALLOC=debug
GDREMU=$(realpath "$2")
cd "$(dirname "$0")/tests"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if command -v pyenv >/dev/null; then
    export PYENV_VERSION=${PYENV_VERSION-$(pyenv versions --bare | paste -sd:)}
fi

# check PYTHON VENV: makes the virtual environment VENV with this Python, installs the wheel there, and runs the tests.
check() {
    "$1" -m venv "$2"
    local pip=("$2/bin/pip" --quiet --disable-pip-version-check install) profile
    "${pip[@]}" --no-index "$wheel"
    # Python finds gdrcopy only in the environment, because its sources are not beside the tests. -B keeps Python from writing
    # cache files beside the tests.
    local python=("$2/bin/python" -B)
    "$GDREMU" -- "${python[@]}" test_preload.py
    "${pip[@]}" numpy mypy || echo "pip cannot install NumPy and mypy: their tests are skipped"
    "${pip[@]}" ml_dtypes || echo "pip cannot install ml_dtypes: its types are not tested"
    "$GDREMU" -- "${python[@]}" test_wheel.py
    for profile in default traditional cached device dmabuf; do
        "$GDREMU" --profile $profile --leak-exit 9 -- "${python[@]}" test_mapping.py
    done
}

checked=
for python in python3 python3.{9..14}; do
    version=$("$python" -c 'import ensurepip, sys; assert sys.version_info >= (3, 9); print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    [[ " $checked " != *" $version "* ]] || continue
    echo "== Python $version"
    check "$python" "$work/$version"
    checked+=" $version"
done
[ -n "$checked" ] || { echo "check.sh: no Python with venv found" >&2 && exit 1; }
echo "wheel: tested with Python$checked"
