#!/usr/bin/env python3
"""Counts the sentences of Markdown and comments that break the rules in CONTRIBUTING.md, per directory and rule.

  scripts/ci/sentences.py            fails if a count exceeds its limit in sentences.txt
  scripts/ci/sentences.py --list     prints each finding
  scripts/ci/sentences.py --update   stores the counts as limits
"""
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Path(__file__).with_suffix(".txt")
RULES = ("headless", "colon", "long", "banned")
MOST_WORDS = 25

SLASHES = {".rs", ".c", ".h", ".hpp", ".cpp", ".cu", ".cuh"}
HASHES = {".sh", ".py", ".mk", ".toml", ".yml", ".yaml"}

# The first group is a comment; strings and characters are matched so that no comment starts in one.
SLASH_TOKEN = re.compile(
    r"""(//[^\n]*|/\*.*?\*/)|r(\#*)".*?"\2|"(?:\\.|[^"\\])*"|'(?:\\[^']+|[^'\\\n])'""", re.DOTALL)
HASH_TOKEN = re.compile(r"""(?:^|(?<=\s))(\#(?:(?![!]).)*)$|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""", re.MULTILINE)

ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
CODE = re.compile(r"(`+).+?\1", re.DOTALL)
URL = re.compile(r"<?https?://\S+")
LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
HEADING = re.compile(r"#+ ")
TARGET = re.compile(r"\[[^\]]+\]: ")
END = re.compile(r"""(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\betc)[.!?]["')*_]*\s+""")
# Labels are up to four words at the start of an item or cell, and capitals (SAFETY, EINVAL). At the start of a text
# they are a word or a command line (`need PACKAGE...`).
ITEM_LABEL = re.compile(r"(?:\W*\w+){1,4}\W*:\s")
LABEL = re.compile(r"\S+(?: [^a-z\s]+)*:\s")
CAPITALS = re.compile(r"(?:[A-Z]+|CODE)(?:, [A-Z]+)*:\s")
# The forms of SAFETY comments and of defaults are no clauses.
COLON = re.compile(r"(?<![\[(]default):(?=\s)(?! contract of\b)")
HEADLESS = re.compile(r"\W*(?:What|Whether|Of|As for)\s")
BANNED = re.compile(r"\bbut for\b|\bof which\b|, too\b(?=[ ,.;:)]|$)(?! \w+ (?:to|for)\b)")


def comments(path, text):
    """Lines (number, text) of the comments of a source file; None after each block."""
    if path.suffix in SLASHES:
        end = -1
        for token in SLASH_TOKEN.finditer(text):
            comment = token[1]
            if comment is None:
                continue
            # Comments on lines that follow each other are one text, if each starts its line.
            start = text.rfind("\n", 0, token.start()) + 1
            own = not text[start:token.start()].strip()
            if not own or not (comment.startswith("//") and end >= 0 and not text[end:token.start()].strip(" \t")[1:]):
                yield None
            number = text.count("\n", 0, token.start()) + 1
            if comment.startswith("//"):
                yield number, re.sub(r"^//[/!]*<?", "", comment)
            else:
                for offset, line in enumerate(comment[2:-2].split("\n")):
                    yield number + offset, re.sub(r"^\s*\*+<? ?|^[*!]<?", " ", line)
            end = token.end() if own else -1
    else:
        for number, line in enumerate(text.split("\n"), 1):
            found = next((t for t in HASH_TOKEN.finditer(line) if t[1]), None)
            if found is None or line[:found.start()].strip():
                yield None
            if found:
                yield number, found[1].lstrip("#")


def blocks(lines, markdown):
    """Texts (lines, kind) between blank lines, items, tables and code; kind is "text", "item", "cell" or "code"."""
    block, kind, fence, indent = [], "text", False, 0
    for entry in lines:
        number, line = entry or (0, "")
        bare = line.strip()
        width = len(line) - len(line.lstrip())
        opens = bare.startswith(("```", "~~~"))
        table = bare.startswith("|")
        item = ITEM.match(line)
        # Headings, rulers and the addresses of links are no text.
        heading = HEADING.match(bare) or set(bare) <= set("-=*+/# ") or TARGET.match(bare)
        # Text that is indented more than its block is an example.
        example = not fence and not item and width >= (4 if markdown and not block else indent + 4) and bare
        if opens or fence or table or item or heading or example or not bare:
            if block:
                yield block, kind
                block = []
            kind = "text"
        if opens:
            fence = not fence
            yield [], "code"
        elif table:
            for cell in re.split(r"(?<!\\)\|", CODE.sub("CODE", bare).strip("|")):
                yield [(number, cell)], "cell"
        elif entry is None or fence or heading or not bare:
            if entry is None:
                fence = False
        elif example:
            yield [], "code"
        else:
            if item:
                kind = "item"
                line = line[item.end():]
            if not block:
                indent = item.end() if item else width
            block.append((number, line))
    if block:
        yield block, kind


def sentences(lines, markdown):
    """Sentences (line number, text, colons that count)."""
    for block, kind in blocks(lines, markdown):
        text = "".join(line.strip() + "\n" for _, line in block)
        # Code and addresses become one word; their line breaks stay, so that positions keep their lines.
        word = lambda match: "CODE" + "\n" * match[0].count("\n")
        text = URL.sub("CODE", LINK.sub(lambda m: m[1], CODE.sub(word, text)))
        begin = 0
        for stop in [match.end() for match in END.finditer(text)] + [len(text)]:
            sentence = text[begin:stop]
            lead = len(sentence) - len(sentence.lstrip())
            number = block[min(text.count("\n", 0, begin + lead), len(block) - 1)][0] if block else 0
            sentence = " ".join(sentence.split())
            label = CAPITALS if begin else LABEL if kind == "text" else ITEM_LABEL
            body = label.sub("", sentence, count=1) if label.match(sentence) else sentence
            if sentence:
                yield number, sentence, len(COLON.findall(body))
            begin = stop


def findings(path):
    """Findings (line number, rule, sentence) of a file."""
    text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
    markdown = path.suffix == ".md"
    if markdown:
        text = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
        lines = enumerate(text.split("\n"), 1)
    else:
        lines = comments(path, text)
    found = []
    for number, sentence, colons in sentences(lines, markdown):
        length = len(re.findall(r"\S*\w\S*", sentence))
        question = sentence.rstrip("\"')*_").endswith("?")
        if HEADLESS.match(sentence) and not question:
            found.append((number, "headless", sentence))
        found += [(number, "colon", sentence)] * colons
        if length > MOST_WORDS:
            found.append((number, "long", sentence))
        found += [(number, "banned", sentence)] * len(BANNED.findall(sentence))
    return found


def main():
    option = sys.argv[1] if len(sys.argv) > 1 else ""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    counts = {}
    for path in map(Path, filter(None, files.split("\0"))):
        if path.suffix not in SLASHES | HASHES | {".md"} and path.name != "Makefile" or not (ROOT / path).is_file():
            continue
        directory = path.parts[0] if len(path.parts) > 1 else "."
        found = findings(path)
        counts.setdefault(directory, Counter()).update(rule for _, rule, _ in found)
        if option == "--list":
            for number, rule, sentence in found:
                print(f"{path}:{number}: {rule}: {sentence}")
    if option == "--list":
        return 0
    if option == "--update":
        LIMITS.write_text("".join(f"{name:12}" + "".join(f"{counts[name][r]:6}" for r in RULES) + "\n"
                                  for name in sorted(counts)))
        return 0
    limits = {name: dict(zip(RULES, map(int, numbers))) for name, *numbers in map(str.split, LIMITS.open())}
    status = 0
    for name, count in sorted(counts.items()):
        for rule in RULES:
            limit = limits.get(name, {}).get(rule, 0)
            if count[rule] > limit:
                print(f"sentences: {name}: {count[rule]} sentences break the rule \"{rule}\", {limit} are allowed; "
                      "see CONTRIBUTING.md, and scripts/ci/sentences.py --list", file=sys.stderr)
                status = 1
            elif count[rule] < limit:
                print(f"sentences: {name}: {rule} fell from {limit} to {count[rule]}: scripts/ci/sentences.py --update")
    return status


sys.exit(main())
