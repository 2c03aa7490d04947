#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every lint of the house: clang-format, clang-tidy on host code, the layer check and the text check.

All of them run even if one fails; exit status 0 only if none did. clang-tidy reads build/cpu/compile_commands.json,
so the preset `cpu` must have been configured. Tests are formatted but not tidied: GoogleTest's macros are not ours to
mend.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMATTED = {".hpp", ".h", ".cpp", ".c", ".cu", ".cuh"}
FORMATTED_FOLDERS = ("src", "include", "verify", "cli", "bench", "examples", "tests")
TIDIED = re.compile(r"^(src|verify|cli|bench|examples)/.*\.(cpp|c)$")
COMPILERS = ("c++", "g++", "cc", "gcc", "clang", "clang++")


def formatted_files():
    return sorted(str(path.relative_to(ROOT)) for folder in FORMATTED_FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in FORMATTED)


def run(command, **options):
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options)
    return done.returncode == 0, done.stdout


def check_format():
    files = formatted_files()
    ok, log = run(["clang-format", "--dry-run", "-Werror", *files])
    return ok, log or f"{len(files)} files are formatted"


def without_launcher(command):
    """The compile command from the compiler on: clang-tidy would take ccache for the compiler."""
    words = shlex.split(command)
    first = next((index for index, word in enumerate(words[:3])
                  if re.sub(r"-\d+$", "", os.path.basename(word)) in COMPILERS), 0)
    return words[first:]


def tidied_commands():
    """One compile command a source: the safeguard controls compile the same files again with a switch."""
    commands = {}
    for entry in json.loads((ROOT / "build" / "cpu" / "compile_commands.json").read_text()):
        name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT)
        if TIDIED.match(name) and "MOETAIL_WITHOUT_" not in entry["command"]:
            commands.setdefault(name, {"directory": entry["directory"], "file": entry["file"],
                                       "arguments": without_launcher(entry["command"])})
    return commands


def check_tidy(jobs):
    commands = tidied_commands()
    with tempfile.TemporaryDirectory() as database:
        (pathlib.Path(database) / "compile_commands.json").write_text(json.dumps(list(commands.values())))

        def tidy(name):
            return run(["clang-tidy", "-p", database, "--quiet", "--warnings-as-errors=*",
                        f"--header-filter={re.escape(str(ROOT))}/(src|include|verify|cli|bench|examples)/",
                        "--extra-arg=-Wno-unknown-warning-option", name])

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(tidy, commands))
    complaints = [log for ok, log in results if not ok]
    return bool(commands) and not complaints, "\n".join(complaints) or f"{len(commands)} sources are clean"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fix-format", action="store_true", help="rewrite the sources by .clang-format and stop")
    args = parser.parse_args()
    if args.fix_format:
        return 0 if run(["clang-format", "-i", *formatted_files()])[0] else 1

    lints = {
        "clang-format": check_format,
        "layers": lambda: run([sys.executable, "-B", "tools/check_layers.py"]),
        "text": lambda: run([sys.executable, "-B", "tools/check_text.py"]),
        "clang-tidy": lambda: check_tidy(args.jobs),
    }
    failed = []
    for name, lint in lints.items():
        ok, log = lint()
        print(f"lint {name}: {'ok' if ok else 'FAILED'}\n  {log.strip()}", flush=True)
        failed += [] if ok else [name]
    print(f"lint: failed: {', '.join(failed)}" if failed else "lint: all clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
