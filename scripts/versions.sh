# Lists the places that state a version. scripts/set-version and the scripts that check versions source this file. They
# run in the root directory of the project.
# shellcheck shell=bash

# field NAME CRATE: prints a value of the table [package] or [workspace.package] in the crate's Cargo.toml.
field() {
    sed -n "/^\[.*package\]/,/^\[/s/^$1 = \"\{0,1\}\([^\" ]*\).*/\1/p" "$2/Cargo.toml" | head -n 1
}

# released PRODUCT: prints the product's version.
released() {
    case $1 in
        libgdrapi) field version . ;;
        libgdrx) field version crates/gdrx ;;
        gdremu) field version gdremu ;;
        *) field version "crates/$1" | sed 's/+.*//' ;; # gdrapi-sys has the version of libgdrapi after the plus sign.
    esac
}

# places PRODUCT: prints the texts that state the product's version or the date of its release, as FILE|TEXT. In a text,
# %v is the version, %d the date, and ^ the start of a line. Changelogs are not listed, because they keep what they say
# of older releases.
places() {
    case $1 in
        libgdrapi) cat <<'END' ;;
Cargo.toml|^version = "%v"
crates/gdrapi-sys/Cargo.toml|+%v"
gdrdrv-c/gdrdrv.h|"gdrapi gdrdrv-c %v"
c_tests/gdrcopy_sanity/gdrcopy_sanity.1|1 %d "gdrcopy %v"
gdrdrv-c/system/gdrdrv-load.8|8 %d "gdrcopy %v"
packaging/rpm/gdrcopy.spec|^Version: %v
packaging/python/gdrcopy/__init__.py|^__version__ = "%v"
docs/usage.md|libgdrapi %v (gdrapi)
END
        libgdrx) echo 'crates/gdrx/Cargo.toml|^version = "%v"' ;;
        gdremu) printf 'gdremu%s/Cargo.toml|^version = "%%v"\n' '' /core /cuda /nvidia /preload /ptx ;;
        gdrcopy) echo 'crates/gdrcopy/Cargo.toml|^version = "%v"' ;;
        gdrcopy-core)
            echo 'crates/gdrcopy-core/Cargo.toml|^version = "%v"'
            printf 'crates/%s/Cargo.toml|^gdrcopy-core = { path = "../gdrcopy-core", version = "=%%v"\n' gdrcopy gdrapi-sys
            ;;
        gdrapi-sys) echo 'crates/gdrapi-sys/Cargo.toml|^version = "%v+' ;;
        *) die "$1 is no product with a version: libgdrapi, libgdrx, gdremu, gdrcopy, gdrcopy-core or gdrapi-sys" ;;
    esac
}

# members: prints the directories of the workspace's crates.
members() {
    sed -n 's/^members = \[\(.*\)\]$/\1/p' Cargo.toml | tr -d '",'
}

# locks: prints the entries that Cargo.lock files must have for this project's crates, as FILE|NAME|VERSION.
locks() {
    local crate version
    for crate in . $(members); do
        version=$(field version "$crate")
        grep -q '^version\.workspace' "$crate/Cargo.toml" && version=$(field version .)
        echo "Cargo.lock|$(field name "$crate")|$version"
    done
    echo "packaging/python/Cargo.lock|gdrcopy-core|$(field version crates/gdrcopy-core)"
}

# pattern TEXT: prints the extended regular expression that matches the text with any version and date.
pattern() {
    sed 's/[][+.*(){}$\\/]/\\&/g; s/%v/[0-9]+\\.[0-9]+\\.[0-9]+/g; s/%d/20[0-9]{2}-[0-9]{2}-[0-9]{2}/g' <<<"$1"
}

# filled TEXT VERSION DATE: prints the text with this version and date for %v and %d, and without the ^ at its start.
filled() {
    sed "s/^^//; s/%v/$2/g; s/%d/$3/g" <<<"$1"
}
