#!/usr/bin/env python3
"""Compares the public items of the crate gdrcopy, with all its features, with docs/data/gdrcopy-api.txt, so that every
change of them is seen. `--write` writes that file. Also fails if an item has two paths, or no example in its
documentation, or if a link of the crate's README leads to no item.

The items are those that have a page of rustdoc. The list has each one's declaration, its methods, and the traits that
it implements. It begins with the version of rustdoc that made the pages. If this computer's rustdoc has another version
and its pages give another list, the two lists are not compared."""

import difflib
import html
import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
listing = root / "docs/data/gdrcopy-api.txt"
pages = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "doc/gdrcopy"
FRONT_PAGE = root / "crates/gdrcopy/README.md"
FEATURES = "testing,cudarc-0-19,cudarc/cuda-13040"
# These are aliases of types whose documentation has an example.
WITHOUT_EXAMPLE = {"type.Result", "owned/type.OwnedArray", "owned/type.OwnedSlice", "owned/type.OwnedWord"}


def text(page: str) -> str:
    page = re.sub("<summary.*?</summary>", "", page, flags=re.DOTALL).replace("</div>", "\n")
    return html.unescape(re.sub("<[^>]*>", "", page))


def items_of(page: str) -> list[str]:
    """Returns the lines of an item's page: its declaration, its methods and its traits, without the traits that each
    type has."""
    page = page[page.index('<pre class="rust item-decl">') :]
    page = re.split('<h2 id="(?:synthetic-implementations|implementors)"', page)[0]
    declaration, rest = page.split("</pre>", 1)
    found = text(declaration).splitlines()
    is_trait = "trait " in found[0]  # The declaration of a trait already has its methods.
    inherent, _, traits = rest.partition('<h2 id="trait-implementations"')
    for level, header in re.findall(r'<h([34]) class="code-header">(.*?)</h\1>', "" if is_trait else inherent, re.DOTALL):
        line = " ".join(text(header).split())
        if level == "4" or line.startswith("impl"):  # Other headers are an enum's variants, which its declaration lists.
            found.append("    " * (int(level) - 2) + line)
    for header in re.findall(r'<h3 class="code-header">(.*?)</h3>', traits, re.DOTALL):
        found.append("    " + " ".join(text(header).split()))
    return [line for line in found if line.strip()]


def main() -> int:
    command = ["cargo", "doc", "--quiet", "--package", "gdrcopy", "--no-deps", "--locked", "--features", FEATURES]
    subprocess.run(command, cwd=root, check=True)
    version = subprocess.run(["rustdoc", "--version"], check=True, capture_output=True, text=True).stdout
    faults, lines = [], [version.split(" (")[0].strip()]
    for index in pages.rglob("index.html"):
        if 'id="reexports"' in index.read_text():
            faults.append(f"{index.relative_to(pages)}: export each item at one path only")
    names = sorted(set(re.findall(r'href="([^"#]*/?\w+\.\w+)\.html"', (pages / "all.html").read_text())))
    # rustdoc does not check these links, because they are URLs. They are URLs so that they also work in README.md itself.
    for item, name in re.findall(r"^\[`(\w+)`\]: https://docs\.rs/gdrcopy/latest/gdrcopy/(.*)\.html$", FRONT_PAGE.read_text(), re.M):
        if name not in names or not name.endswith(f".{item}"):
            faults.append(f"README.md: {name} is no page of {item}")
    for name in names:
        page = (pages / f"{name}.html").read_text()
        if name not in WITHOUT_EXAMPLE and 'class="example-wrap' not in page:
            faults.append(f"{name}: write an example into its documentation")
        lines += [f"{name}:", *(f"    {line}" for line in items_of(page))]
    if "--write" in sys.argv:
        listing.write_text("\n".join(lines) + "\n")
    listed = listing.read_text().splitlines()
    changes = list(difflib.unified_diff(listed[1:], lines[1:], "listed", "public", n=0, lineterm=""))
    if changes and listed[0] != lines[0]:
        print(f"public-api: not compared: the list is of {listed[0]}, and this is {lines[0]}")
    elif changes:
        faults += [*changes, "the public items have changed: if that is meant, run ci/scripts/public-api.py --write"]
    for fault in faults:
        print(f"public-api: {fault}", file=sys.stderr)
    if not faults:
        print(f"public items of gdrcopy: {len(lines)} lines, as listed")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
