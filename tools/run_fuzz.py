#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every fuzz target of the preset `fuzz` for some time, starting from its corpus. What it said in figures is kept in
build/fuzz/fuzz.json, for tools/reliability.py.

What a run finds is kept in build/fuzz/found/NAME: new inputs, and as crash-* and its like what broke the target. To
keep an input for ever, copy it to tests/fuzz/corpus/NAME.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_BYTES = 1 << 16  # of an input: room for a header with many tensors, and small enough to run thousands of times a second


def command_of(source, program, found, seconds):
    """libFuzzer's command line for one target: its corpus and, where there is one, its dictionary NAME.dict."""
    name = source.stem.removesuffix("_fuzz")
    command = [str(program), f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", "-rss_limit_mb=2048", "-timeout=10",
               "-print_final_stats=1", f"-artifact_prefix={found}/"]
    dictionary = source.with_name(f"{name}.dict")
    command += [f"-dict={dictionary}"] if dictionary.exists() else []
    return command + [str(found), str(source.parent / "corpus" / name)]


def executed_units(text):
    """How many inputs libFuzzer ran, by its closing statistics; 0 where it did not come to them."""
    match = re.search(r"^stat::number_of_executed_units:\s*(\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def run_target(command):
    """Runs one target; what it prints is passed on. Returns (exit status, inputs run)."""
    lines = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as target:
        for line in target.stdout:
            sys.stdout.write(line)
            lines = (lines + [line])[-40:]  # the statistics are the last ten
    return target.returncode, executed_units("".join(lines))


def self_test():
    """Every dictionary of the tree reaches its target, and a target without one asks for none."""
    fuzz = ROOT / "tests" / "fuzz"
    named = {word for source in fuzz.glob("*_fuzz.cpp") for word in command_of(source, "p", "found", 1) if "-dict=" in word}
    expected = {f"-dict={path}" for path in fuzz.glob("*.dict")}
    without = [word for word in command_of(fuzz / "no_such_fuzz.cpp", "p", "found", 1) if "-dict=" in word]
    largest = max(path.stat().st_size for path in (fuzz / "corpus").rglob("*") if path.is_file())
    if not expected or named != expected or without or largest > MAX_BYTES:
        print(f"dictionaries named {named}, in the tree {expected}; without one {without}; largest seed {largest} bytes")
        return 1
    if executed_units("Done\nstat::number_of_executed_units: 4711\nstat::x: 1\n") != 4711 or executed_units("==1== ERROR") != 0:
        print("the count of executed inputs is misread")
        return 1
    print(f"run_fuzz: {len(expected)} dictionaries reach their targets")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    build = ROOT / "build" / "fuzz"
    targets = sorted((ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))
    failed, said = [], {}
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True, text=True,
                            check=False).stdout.strip()
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    for source in targets:
        name = source.stem.removesuffix("_fuzz")
        found = build / "found" / name
        found.mkdir(parents=True, exist_ok=True)
        print(f"== {source.stem}, {args.seconds} s", flush=True)
        status, runs = run_target(command_of(source, build / "bin" / source.stem, found, args.seconds))
        failed += [source.stem] if status != 0 else []
        said[name] = {"runs": runs, "failed": status != 0, "seconds": args.seconds, "date": today, "commit": commit or "unknown"}
    (build / "fuzz.json").write_text(json.dumps(said) + "\n", encoding="utf-8")
    print(f"fuzz: {len(targets)} targets" + (f", failed: {', '.join(failed)}" if failed else ", none failed"))
    return 1 if failed or not targets else 0


if __name__ == "__main__":
    sys.exit(main())
