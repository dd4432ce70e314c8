#!/usr/bin/env python3
"""Prints the library's public API, one declaration a line: what a program that depends on the crate can see.

  scripts/public-api.py

Reads the text of src/**/*.rs and of the libraries in crates. `pub` means public there,
since the lint `unreachable_pub` is on. Taken are declarations that begin with `pub`, the bodies of public enums and traits and
of exported macros, and the heads of trait implementations; sorted, without comments and places, so that code may move between
modules.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
DECLARATION = re.compile(r"^( *)(?:pub (?!\()|impl\b.* for |macro_rules! )")
WITH_BODY = re.compile(r"^ *(?:pub (?:unsafe )?(?:enum|trait)\b|macro_rules!)")


def is_whole(text, end):
    """Whether the lines are a declaration: up to the line `end`, or else up to its body, its semicolon or its comma."""
    if end:
        return text[-1] == end
    joined = " ".join(text)
    depth = sum(joined.count(sign) for sign in "([") - sum(joined.count(sign) for sign in ")]")
    if re.match(r" *pub use ", joined):
        return joined.endswith(";")
    return depth <= 0 and re.search(r"[{;,]$|\}$", joined) is not None


def declarations(lines):
    at = 0
    while at < len(lines):
        line = lines[at]
        if re.match(r"^#\[cfg\(test\)\]$", line) and at + 1 < len(lines) and re.match(r"^mod \w+ \{$", lines[at + 1]):
            return
        found = DECLARATION.match(line)
        is_private_macro = "macro_rules!" in line and not any("macro_export" in before for before in lines[max(at - 2, 0) : at])
        if not found or is_private_macro:
            at += 1
            continue
        end = found[1] + "}" if WITH_BODY.match(line) and not line.endswith(("{}", ";")) else None
        text = [line]
        while not is_whole(text, end):
            at += 1
            if at == len(lines):
                break
            text.append(lines[at])
        yield re.sub(r"\s+", " ", " ".join(text)).strip()
        at += 1


def sources(folder):
    """The folder's files that public names can be in."""
    return (path for path in sorted(folder.rglob("*.rs")) if path.name != "tests.rs")


def main():
    api = set()
    for path in [path for folder in [ROOT / "src", *ROOT.glob("crates/*/src")] for path in sources(folder)]:
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not re.match(r"^ *//", line)]
        api.update(declarations(lines))
    print(*sorted(api), sep="\n")


if __name__ == "__main__":
    main()
