#!/usr/bin/env bash
# source.sh DIRECTORY [PATTERN ...]: unpacks Debian's sources of Linux 6.1 into DIRECTORY, or only the files that match.
set -euo pipefail

directory=$1
shift
"$(dirname "$0")/../../ci/scripts/apt-install.sh" xz-utils >&2
mkdir -p "$directory"
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
cd "$package"
apt-get download -qq linux-source-6.1 2>apt.log || { cat apt.log >&2 && exit 1; }
dpkg-deb --fsys-tarfile linux-source-6.1_*.deb | tar --extract --to-stdout ./usr/src/linux-source-6.1.tar.xz |
    tar --extract --xz --strip-components=1 --directory="$directory" --wildcards "$@"
