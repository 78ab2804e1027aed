#!/usr/bin/env bash
# check-reproducible.sh [ARCH]: builds the deb and RPM packages and the Python wheel twice from one release tarball.
# Directories, CARGO_HOME and time zones differ. Compares the packages and the libraries in them by their checksums.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$PWD/build/reproducible
packages=${1:+$1/} # The directory in which make puts the packages for another arch.
rm -rf "$work"
mkdir -p "$work"
make --no-print-directory dist
tarball=$(echo "$PWD"/build/dist/*.tar.gz)

# build NAME TIMEZONE: builds the packages, and writes their checksums to $work/NAME.sha256.
build() {
    local dir=$work/$1
    mkdir -p "$dir/source" "$dir/cargo"
    find "${CARGO_HOME:-$HOME/.cargo}" -maxdepth 1 \( -name registry -o -name 'config*' \) -exec cp -r -t "$dir/cargo" {} +
    tar -xf "$tarball" -C "$dir/source" --strip-components=1
    env -u SOURCE_DATE_EPOCH TZ="$2" CARGO_HOME="$dir/cargo" make -C "$dir/source" deb rpm wheel tarball="$tarball" >"$dir/log" 2>&1 ||
        { tail -n 40 "$dir/log" >&2 && exit 1; }
    (cd "$dir/source/build" && sha256sum packages/gdrapi-*/build/lib/libgdr* "$packages"{deb/*.deb,rpm/*.rpm,wheel/*.whl}) >"$work/$1.sha256"
    # The build directory takes GiBs.
    rm -r "$dir/source/build/packages/target"
}
build first UTC
build the-second-one Asia/Kathmandu

diff "$work/first.sha256" "$work/the-second-one.sha256" || { echo "check-reproducible: the builds differ, see above" >&2 && exit 1; }
cat "$work/first.sha256"
echo "reproducible: $(wc -l <"$work/first.sha256") files are the same in both builds"
