#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the snippets of a page, put into a frame that declares what the page takes for granted.

Usage: check_snippets.py PAGE LANGUAGE FRAME COMPILER [OPTION...]
       the same with --self-test in front: spoils each snippet in turn, and every time the compiler has to refuse
The fenced blocks of LANGUAGE take the places of the lines @SNIPPET@ of FRAME, in order; there must be as many of one as of the other.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = "@SNIPPET@"


def snippets_of(page, language):
    return [body for name, body in FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def fill(frame, snippets):
    # The frame's comment names the place too; a place is a line of its own.
    pieces = re.split(rf"^{PLACE}$", frame.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if len(pieces) != len(snippets) + 1:
        sys.exit(f"{frame.name} has {len(pieces) - 1} places, the page has {len(snippets)} snippets")
    return pieces[0] + "".join(body + piece for body, piece in zip(snippets, pieces[1:]))


def compile_text(text, suffix, command):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / f"snippets{suffix}"
        source.write_text(text, encoding="utf-8")
        done = subprocess.run([*command, "-fsyntax-only", str(source)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
    return done.returncode == 0, done.stdout


def main():
    words = sys.argv[1:]
    spoils = words[:1] == ["--self-test"]
    page, language, frame, *command = words[1:] if spoils else words
    suffix = pathlib.Path(frame).with_suffix("").suffix
    snippets = snippets_of(pathlib.Path(page), language)
    frame = pathlib.Path(frame)
    if not spoils:
        ok, log = compile_text(fill(frame, snippets), suffix, command)
        print(log or f"{len(snippets)} snippets compile")
        return 0 if ok else 1
    for index, body in enumerate(snippets):
        spoilt = re.sub(r"(moetail)(::|_)(\w+)", r"\1\2no_\3", body, count=1)
        if spoilt == body:
            sys.exit(f"snippet {index} names nothing of moetail")
        if compile_text(fill(frame, snippets[:index] + [spoilt] + snippets[index + 1:]), suffix, command)[0]:
            sys.exit(f"snippet {index} compiles with a name that does not exist:\n{spoilt}")
    print(f"{len(snippets)} spoilt snippets are refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
