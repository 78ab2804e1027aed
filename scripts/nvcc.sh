#!/usr/bin/env bash
# scripts/nvcc.sh: installs NVIDIA's CUDA compiler from Python wheels into build/nvcc, unless it is there, and prints
# the path of nvcc. If the wheels cannot be fetched, exits with 77. If NVCC_WHEELS names a directory of wheels, takes
# these instead.
set -euo pipefail
cd "$(dirname "$0")/.."

version=13.5.37
directory=$PWD/build/nvcc/$version
if [ ! -e "$directory" ]; then
    rm -rf "$directory.part"
    python3 -m pip install --quiet --no-deps --only-binary=:all: ${NVCC_WHEELS:+--no-index --find-links "$NVCC_WHEELS"} \
        --target "$directory.part" nvidia-{cuda-nvcc,nvvm,cuda-crt,cuda-runtime}==$version nvidia-cuda-cccl==13.3.5.0.6 >&2 ||
        { echo "nvcc: skipped: the wheels cannot be fetched" >&2; exit 77; }
    # `nvcc -cudart shared` links with this name of the library.
    ln -s libcudart.so.13 "$directory.part/nvidia/cu13/lib/libcudart.so"
    mv "$directory.part" "$directory"
fi
echo "$directory/nvidia/cu13/bin/nvcc"
