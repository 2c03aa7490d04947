#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every fuzz target of the preset `fuzz` for some time, starting from its corpus.

What a run finds is kept in build/fuzz/found/NAME: new inputs, and as crash-* and its like what broke the target. To
keep an input for ever, copy it to tests/fuzz/corpus/NAME.
"""
import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    args = parser.parse_args()
    build = ROOT / "build" / "fuzz"
    targets = sorted((ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))
    failed = []
    for source in targets:
        name = source.stem.removesuffix("_fuzz")
        found = build / "found" / name
        found.mkdir(parents=True, exist_ok=True)
        print(f"== {source.stem}, {args.seconds} s", flush=True)
        done = subprocess.run([build / "bin" / source.stem, f"-max_total_time={args.seconds}", "-rss_limit_mb=2048",
                               "-timeout=10", "-print_final_stats=1", f"-artifact_prefix={found}/", str(found),
                               str(source.parent / "corpus" / name)], stdin=subprocess.DEVNULL, check=False)
        failed += [source.stem] if done.returncode != 0 else []
    print(f"fuzz: {len(targets)} targets" + (f", failed: {', '.join(failed)}" if failed else ", none failed"))
    return 1 if failed or not targets else 0


if __name__ == "__main__":
    sys.exit(main())
