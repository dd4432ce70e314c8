#!/usr/bin/env python3
"""Prints the library's public API, one declaration a line: what a program that depends on the crate can see.

  scripts/public-api.py

Reads the text of src/**/*.rs. `pub` means public there, since the lint `unreachable_pub` is on. Taken are declarations
that begin with `pub`, the bodies of public enums and traits and of exported macros, and the heads of trait
implementations; sorted, without comments and places, so that code may move between modules.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
DECLARATION = re.compile(r"^( *)(?:pub (?!\()|impl\b.* for |macro_rules! )")
WITH_BODY = re.compile(r"^ *(?:pub (?:unsafe )?(?:enum|trait)\b|macro_rules!)")


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
        ends = {found[1] + "}"} if WITH_BODY.match(line) else set()
        text = [line]
        while not (text[-1] in ends if ends and not text[0].endswith(("{}", ";")) else re.search(r"[{;,]$|\}$", text[-1])):
            at += 1
            if at == len(lines):
                break
            text.append(lines[at])
        yield re.sub(r"\s+", " ", " ".join(text)).strip()
        at += 1


def main():
    api = set()
    for path in sorted((ROOT / "src").rglob("*.rs")):
        if path.name == "tests.rs" or "bin" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not re.match(r"^ *//", line)]
        api.update(declarations(lines))
    print(*sorted(api), sep="\n")


if __name__ == "__main__":
    main()
