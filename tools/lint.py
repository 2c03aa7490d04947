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
# Compiled only where oneDNN, or Google Benchmark, is installed.
OPTIONAL = re.compile(r"^bench/(onednn_.*|.*_micro)\.cpp$")
UNITY = re.compile(r"^unity_\d+_cxx\.cxx$")
INCLUDED = re.compile(r'^#include "(.+)"$', re.MULTILINE)
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


def sources_of(entry):
    """The sources that one compile command is for. CMake writes a room as one translation unit that includes its sources;
    each is tidied by itself, so that each still includes what it uses."""
    path = pathlib.Path(entry["directory"], entry["file"])
    if not UNITY.match(path.name):
        return [str(path)]
    return INCLUDED.findall(path.read_text())


def tidied_commands(entries, root):
    """One compile command a source: the safeguard controls compile the same files again with a switch."""
    commands = {}
    for entry in entries:
        if "MOETAIL_WITHOUT_" in entry["command"]:
            continue
        for source in sources_of(entry):
            name = os.path.relpath(source, root)
            if TIDIED.match(name):
                arguments = [source if word == entry["file"] else word for word in without_launcher(entry["command"])]
                commands.setdefault(name, {"directory": entry["directory"], "file": source, "arguments": arguments})
    return commands


def untidied(names, root):
    """Host sources that no compile command named: they would pass unseen."""
    files = {str(path.relative_to(root)) for folder in FORMATTED_FOLDERS for path in (root / folder).rglob("*")}
    return sorted(file for file in files - set(names) if TIDIED.match(file) and not OPTIONAL.match(file))


def check_tidy(jobs):
    commands = tidied_commands(json.loads((ROOT / "build" / "cpu" / "compile_commands.json").read_text()), ROOT)
    missing = untidied(commands, ROOT)
    if missing:
        return False, f"no compile command in build/cpu for {', '.join(missing)}"
    with tempfile.TemporaryDirectory() as database:
        (pathlib.Path(database) / "compile_commands.json").write_text(json.dumps(list(commands.values())))

        def tidy(name):
            return run(["clang-tidy", "-p", database, "--quiet", "--warnings-as-errors=*",
                        f"--header-filter={re.escape(str(ROOT))}/(src|include|verify|cli|bench|examples)/",
                        "--extra-arg=-Wno-unknown-warning-option", name])

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(tidy, commands))
    complaints = [log for ok, log in results if not ok]
    return not complaints, "\n".join(complaints) or f"{len(commands)} sources are clean"


def self_test():
    """A room of two sources in one unit, one of them compiled again as a control, and a source that nothing compiles."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "cli").mkdir()
        for name in ("a.cpp", "b.cpp", "forgotten.cpp"):
            (root / "cli" / name).write_text("int x;\n")
        unit = root / "unity_0_cxx.cxx"
        unit.write_text(f'/* generated */\n\n#include "{root}/cli/a.cpp"\n\n#include "{root}/cli/b.cpp"\n')
        entries = [{"directory": folder, "file": str(unit), "command": f"/usr/bin/ccache /usr/bin/c++ -DROOM -c {unit}"},
                   {"directory": folder, "file": f"{root}/cli/a.cpp",
                    "command": f"/usr/bin/c++ -DMOETAIL_WITHOUT_X -c {root}/cli/a.cpp"}]
        commands = tidied_commands(entries, root)
        expected = {f"cli/{name}": ["/usr/bin/c++", "-DROOM", "-c", f"{root}/cli/{name}"] for name in ("a.cpp", "b.cpp")}
        found = {name: command["arguments"] for name, command in commands.items()}
        if found != expected or untidied(commands, root) != ["cli/forgotten.cpp"]:
            print(f"found {found}, left out {untidied(commands, root)}\nexpected {expected} and cli/forgotten.cpp")
            return 1
    print("lint: a unit is taken apart, and a source that nothing compiles is named")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fix-format", action="store_true", help="rewrite the sources by .clang-format and stop")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
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
