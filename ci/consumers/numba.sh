# Runs numba_arrays.py, with numba-cuda from Python wheels.

numba_version=0.30.4

fetch_numba() {
    rm -rf numba
    python3 -m venv numba
    numba/bin/python -m pip install --quiet --only-binary=:all: "numba-cuda==$numba_version" cuda-bindings==13.5.0 numpy
}

numba() {
    local profile log
    need python3-venv
    once "fetch-numba-$numba_version" fetch_numba
    export LD_LIBRARY_PATH=$cache/gdrcopy/lib
    for profile in default gdrdrv-2.4 cached dmabuf; do
        log=numba-$profile.log
        "${gdremu[@]}" --profile $profile --leak-exit 3 -- gdb --batch --nx -x "$here/calls.gdb" --args \
            numba/bin/python "$here/numba_arrays.py" >"$log" 2>&1 || touch failed
        row "numba-cuda $numba_version" $profile numba_arrays.py "$(grep -c '^test ' "$log")" "$(grep -c '^ok ' "$log")" 0 "$log"
    done
}
