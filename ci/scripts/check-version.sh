#!/usr/bin/env bash
# Checks the versions in the places that scripts/versions.sh lists, and prints all that are wrong. scripts/set-version
# writes these versions. Also checks that the API levels in include/gdrapi.h and include/gdrx.h agree with the versions,
# and with what the libraries report.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh
. scripts/versions.sh

faults=0
fault() {
    echo "check-version: $*" >&2
    faults=$((faults + 1))
}

# number NAME: prints the value of NAME_VERSION, which gdrapi.h or gdrx.h defines.
number() {
    sed -n "s/^#define $1_VERSION \([0-9]*\)$/\1/p" include/gdrapi.h include/gdrx.h
}

# wrong_places PRODUCT [DATE]: prints each place whose text has another version than the product, or another date
# than DATE.
wrong_places() {
    local version file text wanted found line
    version=$(released "$1")
    while IFS='|' read -r file text; do
        wanted=$(filled "$text" "$version" "${2-}")
        found=$(grep -oE -- "$(pattern "$text")" "$file" || true)
        [ -n "$found" ] || echo "$file has no text '$wanted'"
        while read -r line; do
            [ -z "$line" ] || [ "$line" = "$wanted" ] || echo "$file has '$line', not '$wanted'"
        done <<<"$found"
    done < <(places "$1")
}

major=$(number GDR_API_MAJOR) minor=$(number GDR_API_MINOR)
version=$(released libgdrapi)
[[ $version == "$major.$minor".* ]] || fault "include/gdrapi.h is version $major.$minor, Cargo.toml $version"
grep -q "const API: Version = Version::new($major, $minor);" crates/gdrcopy-core/src/types.rs ||
    fault "Version::API is not $major.$minor"
oldest="$(number MINIMUM_GDRDRV_MAJOR), $(number MINIMUM_GDRDRV_MINOR)"
grep -q "const OLDEST_GDRDRV: Version = Version::new($oldest);" crates/gdrcopy-core/src/types.rs ||
    fault "Version::OLDEST_GDRDRV is not $oldest, as in include/gdrapi.h"

# The version of libgdrx is independent of libgdrapi's. The files that have it must agree.
gdrx=$(number GDRX_MAJOR).$(number GDRX_MINOR)
[[ $(released libgdrx) == "$gdrx".* ]] || fault "include/gdrx.h is version $gdrx, crates/gdrx/Cargo.toml $(released libgdrx)"
[[ $(grep '^GDRX_' crates/gdrx/libgdrx.map | tail -n 1) == "GDRX_$gdrx {" ]] || fault "the last version of crates/gdrx/libgdrx.map is not GDRX_$gdrx"
packed="${gdrx%.*} << 16 | ${gdrx#*.}"
grep -qxF "const VERSION: u32 = ${packed% | 0};" crates/gdrx/src/exports.rs || fault "VERSION in crates/gdrx/src/exports.rs is not ${packed% | 0}"

# Man pages that are not generated have the date of the release.
date=$(sed -n 's/^## .* - \(20[0-9-]*\)$/\1/p' CHANGELOG.md | head -n 1)
for product in libgdrapi libgdrx gdremu gdrcopy gdrcopy-core gdrapi-sys; do
    while read -r line; do fault "$line"; done < <(wrong_places $product "$date")
done

# newest FILE PATTERN WANTED: checks that the first line that matches the pattern is the wanted one.
newest() {
    local found
    found=$(grep -m 1 "$2" "$1" || true)
    [ "$found" = "$3" ] || fault "$1 has '$found' before '$3'"
}

newest CHANGELOG.md '^## .* - 20' "## [$version] - $date"
newest packaging/debian/changelog '^gdrcopy ' "gdrcopy ($version-1) unstable; urgency=medium"
changed=$(sed '1,/^%changelog$/d' packaging/rpm/gdrcopy.spec | head -n 1)
[[ $changed == *" - $version-1" ]] || fault "packaging/rpm/gdrcopy.spec has '$changed' as the newest change, not $version-1"
grep -qF "## [$(released gdremu)]" gdremu/CHANGELOG.md || fault "gdremu/CHANGELOG.md has no version $(released gdremu)"

# The crates need each other in exactly the version of this release. With another requirement, cargo could take a
# release with which they were not tested. Dependencies for tests are not checked. They have only a path, so packages
# leave them out.
crates=
for crate in $(members); do
    [ "$(field publish "$crate")" != false ] || continue
    crates+=" $(field name "$crate") $(field version "$crate"),"
    while read -r path requirement; do
        wanted="=$(field version "$crate/$path" | sed 's/+.*//')"
        [ "$requirement" = "$wanted" ] || fault "$crate depends on $path with version '$requirement': write '$wanted'"
    done < <(sed -n '/^\[dependencies\]/,/^\[/s/^[a-z-]* = { path = "\([^"]*\)"\(, version = "\([^"]*\)"\)\{0,1\}.*/\1 \3/p' "$crate/Cargo.toml")
done

while IFS='|' read -r file name locked; do
    grep -A 1 -x "name = \"$name\"" "$file" | grep -qxF "version = \"$locked\"" || fault "$file has another version of $name than $locked"
done < <(locks)

[ $faults = 0 ] || die "$faults faults; scripts/set-version writes all places of a version"
echo "version: $version in header, package, Version::API, gdrapi-sys and packaging; libgdrx $gdrx; crates:${crates%,}"
