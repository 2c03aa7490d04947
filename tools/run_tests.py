#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ctest for one preset and says how it went. The last line is 'N passed, N failed', with ', N skipped' where so,
and with the preset's name before it if that is not `cpu`.

Exit status 0 only if at least one test was executed and none failed. A test that ctest could not start has failed; only
a test that said itself that it skips counts as skipped, and its reason is printed.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULT = re.compile(r"^\s*(\d+)/(\d+) Test\s+#\d+: (\S+) \.+(.*)$")
STARTED = re.compile(r"^(\s+Start\s+\d+: |Test project )")


def skip_reason(output):
    """What a skipped test printed: GoogleTest's text below 'Skipped', or a script's line 'skipped: ...'."""
    match = (re.search(r"^\S+:\d+: Skipped\n(.+)$", output, re.MULTILINE)
             or re.search(r"^skipped: (.+)$", output, re.MULTILINE))
    return match.group(1).strip() if match else "no reason given"


def read_junit(path):
    """Returns (names passed, names failed, [(name skipped, reason)])."""
    passed, failed, skipped = [], [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        note = case.find("skipped")
        if status == "run":
            passed.append(name)
        elif status == "disabled":
            skipped.append((name, "disabled in its source"))
        elif status == "notrun" and note is not None and note.get("message", "").startswith("SKIP_"):
            skipped.append((name, skip_reason(case.findtext("system-out") or "")))
        else:
            failed.append(name)
    return passed, failed, skipped


def summary(passed, failed, skipped):
    """The closing line."""
    line = f"{len(passed)} passed, {len(failed)} failed"
    return line + (f", {len(skipped)} skipped" if skipped else "")


class Progress:
    """Shows ctest's output: failures in full; what passed as one moving line on a terminal, every 100th otherwise."""

    def __init__(self, stream):
        self.stream = stream
        self.terminal = stream.isatty()

    def show(self, line):
        match = RESULT.match(line)
        if match and re.search(r"Passed|Skipped|Not Run \(Disabled\)", match.group(4)):
            self.step(int(match.group(1)), int(match.group(2)), match.group(3))
        elif not STARTED.match(line) and line.strip():
            self.stream.write(("\r\033[K" if self.terminal else "") + line)

    def step(self, done, total, name):
        if self.terminal:
            self.stream.write(f"\r\033[K[{done}/{total}] {name[:80]}")
        elif done % 100 == 0 or done == total:
            self.stream.write(f"[{done}/{total}]\n")
        self.stream.flush()

    def finish(self):
        if self.terminal:
            self.stream.write("\r\033[K")


def run_ctest(command, progress):
    """Runs ctest and passes its output on, up to its own summary, which ours replaces."""
    environment = dict(os.environ, GTEST_COLOR="no", CTEST_OUTPUT_ON_FAILURE="1")
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as ctest:
        in_summary = False
        for line in ctest.stdout:
            in_summary = in_summary or "% tests passed" in line
            if not in_summary:
                progress.show(line)
    progress.finish()
    return ctest.returncode


def self_test():
    junit = ROOT / "tests" / "tools" / "junit_sample.xml"
    passed, failed, skipped = read_junit(junit)
    expected = (["Ring.Advances", "tools.layers"], ["Ring.Fails", "Cli.HasNoProgram", "Ring.TakesTooLong"],
                [("Engine.NeedsAvx512", "this machine has no AVX-512 BF16"),
                 ("protocol_compile.nvcc", "nvcc is not installed on this machine"),
                 ("Ring.Off", "disabled in its source")])
    if (passed, failed, skipped) != expected:
        print(f"read {(passed, failed, skipped)}\nexpected {expected}")
        return 1
    if summary(passed, failed, skipped) != "2 passed, 3 failed, 3 skipped" or summary(["a"], [], []) != \
            "1 passed, 0 failed":
        print("the closing line is wrong")
        return 1
    print("run_tests: the sample is counted as it must be")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--filter", help="regular expression that a test's name must match")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()

    junit = ROOT / "build" / args.preset / "ctest.xml"
    junit.unlink(missing_ok=True)
    command = ["ctest", "--preset", args.preset, "--output-junit", str(junit)]
    if args.filter:
        command += ["--tests-regex", args.filter]
    status = run_ctest(command, Progress(sys.stdout))
    if not junit.exists():
        print(f"ctest ended with status {status} and ran no test")
        return 1
    passed, failed, skipped = read_junit(junit)
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")
    for name in failed:
        print(f"failed {name}")
    label = "" if args.preset == "cpu" else f"{args.preset}: "
    print(label + summary(passed, failed, skipped), flush=True)
    return 0 if passed and not failed and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
