#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that need no compiler: licence line, file length, and text that belongs to one machine only.

`--self-test` runs every rule on a text that it must catch and on one that it must let through.
"""
import argparse
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SKIPPED_FOLDERS = {".git", ".cache", "out", "__pycache__", "corpus"}
CODE = {".hpp", ".h", ".cpp", ".c", ".cu", ".cuh", ".py", ".sh", ".cmake", ".in", ".map"}
CODE_NAMES = {"CMakeLists.txt", "Makefile", "run", ".clang-tidy"}
TEXT = CODE | {".md", ".json", ".txt", ".yml", ".toml"}
MAX_LINES = 400
SPDX = "SPDX-License-Identifier: Apache-2.0"

# Folders that exist on one person's machine, and names of package registries: a clone must work anywhere.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(home|root|Users|work|mnt|tmp/h|usr/local/cuda)/\w")
REGISTRY = re.compile(r"\b(deb\.debian\.org|pypi\.org|files\.pythonhosted\.org|conda\.anaconda\.org"
                      r"|registry\.npmjs\.org|proxy\.golang\.org|index\.crates\.io|developer\.download\.nvidia\.com)\b")
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")


def needs_licence(path):
    return path.suffix in CODE or path.name in CODE_NAMES


def check_file(path, text):
    """Complaints about one file, each with its line number."""
    lines = text.splitlines()
    complaints = []
    if needs_licence(path) and not any(SPDX in line for line in lines[:2]):
        complaints.append(f"{path}:1: no line '{SPDX}' at the top")
    if needs_licence(path) and len(lines) > MAX_LINES:
        complaints.append(f"{path}:{len(lines)}: {len(lines)} lines: accepted is at most {MAX_LINES}; divide the file")
    for number, line in enumerate(lines, 1):
        for pattern, reason in ((MACHINE_PATH, "a path of one machine"), (REGISTRY, "the address of a registry"),
                                (UNFINISHED, "a mark of unfinished work")):
            match = pattern.search(line)
            if match and path.name != "check_text.py":
                complaints.append(f"{path}:{number}: '{match.group(0)}': {reason}")
    return complaints


def files(root):
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders
                               if name not in SKIPPED_FOLDERS and not name.startswith("build"))
        for name in sorted(names):
            path = pathlib.Path(folder) / name
            if (path.suffix in TEXT or path.name in CODE_NAMES) and path.name != "LICENSE":
                yield path


def self_test():
    header = f"// {SPDX}\n"
    wrong = ["int a;\n", header + "int a;\n" * MAX_LINES, header + 'const char* a = "/home/somebody/x";\n',
             header + "// fetched from pypi.org\n", header + "// TO" "DO: finish\n"]
    right = [header + "int a;\n", header + "int a;\n" * (MAX_LINES - 1), header + "// see ${HOME}/root/x\n"]
    path = pathlib.Path("a.cpp")
    failures = [f"not caught: {text[-40:]!r}" for text in wrong if len(check_file(path, text)) != 1]
    failures += [f"wrongly caught: {check_file(path, text)}" for text in right if check_file(path, text)]
    print("\n".join(failures) or f"text check: {len(wrong)} wrong texts caught, {len(right)} right ones let through")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        return self_test()
    complaints, num_files = [], 0
    for path in files(ROOT):
        num_files += 1
        complaints += check_file(path.relative_to(ROOT), path.read_text(errors="replace"))
    print("\n".join(complaints) or f"text check: {num_files} files are in order")
    return 1 if complaints or not num_files else 0


if __name__ == "__main__":
    sys.exit(main())
