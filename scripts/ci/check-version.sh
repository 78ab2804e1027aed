#!/usr/bin/env bash
# Checks the versions. The C API's, of include/gdrapi.h, is that of the root Cargo.toml, `Version::API`, the packages and the
# metadata of gdrapi-sys's own version. Crates of this project that are published depend on each other as they are here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/ci/common.sh

# number NAME: of a version, in gdrapi.h or gdrx.h.
number() {
    sed -n "s/^#define $1_VERSION \([0-9]*\)$/\1/p" include/gdrapi.h include/gdrx.h
}

# field NAME CRATE: of the table [package] or [workspace.package].
field() {
    sed -n "/^\[.*package\]/,/^\[/s/^$1 = \"\{0,1\}\([^\" ]*\).*/\1/p" "$2/Cargo.toml" | head -n 1
}

major=$(number GDR_API_MAJOR) minor=$(number GDR_API_MINOR)
version=$(field version .)
[[ $version == "$major.$minor".* ]] || die "include/gdrapi.h is version $major.$minor, Cargo.toml $version"
grep -q "const API: Version = Version::new($major, $minor);" gdrcopy-core/src/types.rs ||
    die "Version::API is not $major.$minor"
oldest="$(number MINIMUM_GDRDRV_MAJOR), $(number MINIMUM_GDRDRV_MINOR)"
grep -q "const OLDEST_GDRDRV: Version = Version::new($oldest);" gdrcopy-core/src/types.rs ||
    die "Version::OLDEST_GDRDRV is not $oldest, as in include/gdrapi.h"
[[ $(field version gdrapi-sys) == *"+$version" ]] || die "gdrapi-sys has version $(field version gdrapi-sys), without +$version"

# libgdrx has a version of its own.
gdrx=$(number GDRX_MAJOR).$(number GDRX_MINOR)
[[ $(field version gdrx) == "$gdrx".* ]] || die "include/gdrx.h is version $gdrx, gdrx/Cargo.toml $(field version gdrx)"
[[ $(grep '^GDRX_' gdrx/libgdrx.map | tail -n 1) == "GDRX_$gdrx {" ]] || die "the last version of gdrx/libgdrx.map is not GDRX_$gdrx"
packed="${gdrx%.*} << 16 | ${gdrx#*.}"
grep -qxF "const VERSION: u32 = ${packed% | 0};" gdrx/src/exports.rs || die "VERSION in gdrx/src/exports.rs is not ${packed% | 0}"

emulator=$(field version gdremu)
for crate in core cuda preload; do
    [ "$(field version gdremu/$crate)" = "$emulator" ] || die "gdremu/$crate has another version than gdremu, $emulator"
done
grep -qF "## [$emulator]" gdremu/CHANGELOG.md || die "gdremu/CHANGELOG.md has no version $emulator"

grep -qF "\"gdrapi gdrdrv-c $version\"" gdrdrv-c/gdrdrv.h || die "gdrdrv-c is not of version $version"

# Man pages that are not generated.
date=$(sed -n 's/^## .* - \(20[0-9-]*\)$/\1/p' CHANGELOG.md | head -n 1)
for page in c_tests/gdrcopy_sanity/gdrcopy_sanity.1 gdrdrv-c/system/gdrdrv-load.8; do
    grep -q "^\.TH .* $date \"gdrcopy $version\"" "$page" || die "$page is not of gdrcopy $version, $date"
done

# Lines that name the version of the packages.
while read -r file line; do
    grep -qF -- "$line" "packaging/$file" || die "packaging/$file has no line '$line'"
done <<END
debian/changelog gdrcopy ($version-1) unstable; urgency=medium
rpm/gdrcopy.spec Version: $version
python/gdrcopy/__init__.py __version__ = "$version"
END

# Any other dependency could be taken from another release, which these crates were not tested with. Packages leave out
# those for tests that have only a path.
crates=
for crate in $(sed -n 's/^members = \[\(.*\)\]$/\1/p' Cargo.toml | tr -d '",'); do
    [ "$(field publish "$crate")" != false ] || continue
    crates+=" $(field name "$crate") $(field version "$crate"),"
    while read -r path requirement; do
        wanted="=$(field version "$crate/$path" | sed 's/+.*//')"
        [ "$requirement" = "$wanted" ] || die "$crate depends on $path with version '$requirement': write '$wanted'"
    done < <(sed -n '/^\[dependencies\]/,/^\[/s/^[a-z-]* = { path = "\([^"]*\)"\(, version = "\([^"]*\)"\)\{0,1\}.*/\1 \3/p' "$crate/Cargo.toml")
done
echo "version: $version in header, package, Version::API, gdrapi-sys and packaging; libgdrx $gdrx; crates:${crates%,}"
