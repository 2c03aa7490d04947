#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that is tested on a GPU, from a folder that may have been built elsewhere (make gpu-build): the GPU program's cases, then
rows of `moetail run` in loopback and replay, and a warm-up that must leave a run nothing to compile.

Usage: gpu_test.py FOLDER [CASE...]   with names of cases the program alone, those whose name holds one of them
       gpu_test.py FOLDER --rows      the tool's part alone
The last line is "N passed, N failed, N skipped". Logs go to $OUT, or into the folder.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

GROUP_SECONDS = 120
ROW_SECONDS = 120
BATCHES = "1,2,4,8,16,32,64,128"
SHORT = ["--engine", "cuda", "--layers", "2", "--steps", "3", "--quiet", "--json", "-"]
# Every mode at every batch that it serves at T = 8, then the forms of the input, then the other rank counts.
ROWS = [
    ["--mode", "front,publish,twoshot", "--batch", BATCHES],
    ["--mode", "front_poll", "--batch", "1,2,4,8,16"],
    ["--form", "permuted", "--residual", "--mode", "front,publish,twoshot,front_poll", "--batch", "2,16"],
    ["--form", "partial", "--mode", "front,publish,twoshot", "--batch", "2,16"],
    ["--form", "published", "--mode", "publish,twoshot,front_poll", "--batch", "2,16"],
    ["--tp", "1,2,4,16", "--mode", "front,publish", "--batch", "4"],
]


def environment(folder, cache):
    """Nothing of ours makes multicast objects; what we load must not either. The libraries that were carried are found first."""
    libraries = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return os.environ | {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
                         "LD_LIBRARY_PATH": ":".join(libraries), "MOETAIL_CACHE_DIR": str(cache)}


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, name, fine, reason=""):
        self.passed += fine
        self.failed += not fine
        if not fine:
            print(f"FAIL {name} {reason}", flush=True)


def groups_of(folder, env, filters):
    """The program's cases by the first part of their names, in the program's order: those that hold a filter, or all."""
    listed = subprocess.run([str(folder / "gpu_test"), "list"], capture_output=True, text=True, env=env, timeout=GROUP_SECONDS, check=True)
    groups = {}
    for name in listed.stdout.split():
        if not filters or any(filter in name for filter in filters):
            groups.setdefault(name.split(".")[0], []).append(name)
    return groups


def run_group(folder, env, group, names, file, count):
    """A process for each group, with a time limit, since a kernel that spins never returns: it costs its group, not the rest."""
    log = pathlib.Path(file.name)
    begin, start = time.monotonic(), log.stat().st_size
    try:
        status = subprocess.run(["stdbuf", "-oL", str(folder / "gpu_test"), *names], stdout=file, stderr=subprocess.STDOUT, env=env,
                                timeout=GROUP_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        status = None
    text = log.read_bytes()[start:].decode(errors="replace")
    print("".join(line + "\n" for line in text.splitlines() if line.startswith("FAIL "))[-3000:], end="")
    last = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped", text, re.MULTILINE)
    if status == 77:
        print(text, end="")
    elif last and status in (0, 1):
        count.passed += int(last[-1][0])
        count.failed += int(last[-1][1])
    else:  # what it did not come to has not passed, and who dies behind the last case has not either
        passed = min(len(re.findall("^pass ", text, re.MULTILINE)), len(names) - 1)
        count.passed += passed
        count.failed += len(names) - passed
        print(f"FAIL {group}: {len(names) - passed} of {len(names)} cases",
              f"still running after {GROUP_SECONDS} s" if status is None else f"exit status {status}")
    print(f"{group}: {len(names)} cases, {time.monotonic() - begin:.0f} s", flush=True)
    return status


def run_program(folder, env, log, filters, count):
    begin = time.monotonic()
    status = 0
    with open(log, "w", encoding="utf-8") as file:
        built = folder / "commit"
        print(f"commit: {built.read_text().strip() if built.exists() else 'unknown'}", file=file, flush=True)
        for group, names in groups_of(folder, env, filters).items():
            status = run_group(folder, env, group, names, file, count)
            if status == 77:
                return status
    print(f"the program took {time.monotonic() - begin:.0f} s (log: {log})", flush=True)
    return status


def run_tool(folder, env, arguments):
    return subprocess.run([str(folder / "moetail"), *arguments], capture_output=True, text=True, env=env, timeout=ROW_SECONDS,
                          check=False)


def run_rows(folder, env, log, count):
    begin = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        for world in ("virtual", "replay"):
            for row in ROWS:
                arguments = ["run", "--world", world, *row, *SHORT]
                name = " ".join(["moetail", *arguments[:-4]])
                row_begin = time.monotonic()
                try:
                    done = run_tool(folder, env, arguments)
                    report = json.loads(done.stdout) if done.stdout.startswith("{") else {}
                except subprocess.TimeoutExpired:
                    count.add(name, False, f"still running after {ROW_SECONDS} s")
                    continue
                results = report.get("results", [])
                for result in results:
                    count.add(name, result["verdict"] == "pass", json.dumps(result))
                if done.returncode != 0 or not results:
                    count.add(name, False, f"exit status {done.returncode}: {done.stderr.strip()[-500:]}")
                file.write(f"{name}: {len(results)} rows, {time.monotonic() - row_begin:.1f} s\n{done.stdout}\n{done.stderr}\n")
                print(f"{name}: {len(results)} rows, {time.monotonic() - row_begin:.1f} s", flush=True)
    print(f"the rows took {time.monotonic() - begin:.0f} s (log: {log})", flush=True)


def run_warmup(folder, env, count):
    """After a warm-up a run of the same configurations compiles nothing."""
    with tempfile.TemporaryDirectory() as cache:
        own = env | {"MOETAIL_CACHE_DIR": cache}
        which = ["--tp", "8", "--batch", "1,8,32", "--mode", "front,publish,twoshot"]
        warm = run_tool(folder, own, ["warmup", *which])
        kept = set(os.listdir(cache))
        print(warm.stdout.strip().splitlines()[-1:] or warm.stderr, flush=True)
        count.add("moetail warmup", warm.returncode == 0 and len(kept) > 0, warm.stderr)
        run = run_tool(folder, own, ["run", *which, *SHORT])
        count.add("moetail run after it", run.returncode == 0, run.stderr)
        more = set(os.listdir(cache)) - kept
        count.add("moetail run after it compiles nothing", not more, f"{sorted(more)}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    only_rows, cases = sys.argv[2:] == ["--rows"], sys.argv[2:]
    out = pathlib.Path(os.environ.get("OUT") or folder)
    count = Count()
    with tempfile.TemporaryDirectory() as fresh:
        env = environment(folder, os.environ.get("MOETAIL_CACHE_DIR") or fresh)
        status = 0 if only_rows else run_program(folder, env, out / "gpu-test.log", cases, count)
        if status == 77:
            print("0 passed, 0 failed, 1 skipped")
            return 0
        if only_rows or not cases:
            run_rows(folder, env, out / "gpu-rows.log", count)
            run_warmup(folder, env, count)
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped")
    return 0 if count.failed == 0 and count.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
