#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one GoogleTest case that must fail by an assertion: the negative control of a safeguard built away.

Usage: expect_failure.py --test Suite.Case -- PROGRAM. Exit status 0 only if exactly that case ran and an assertion in
it failed. A pass, a crash, a time-out, an exception that escaped, a skip and a missing case are all failures of the
control: they do not show that the assertion sees what the safeguard prevents.
"""
import argparse
import re
import subprocess
import sys

ASSERTION = re.compile(r"^\S+:\d+: Failure$", re.MULTILINE)
# GoogleTest gives no file and line for an exception that left the test body.
ESCAPED = "unknown file: Failure"


def judge(test, returncode, output):
    """Why the control is not fulfilled, or None where it is."""
    if returncode < 0:
        return f"the program was ended by signal {-returncode}"
    if f"[ RUN      ] {test}\n" not in output or "[==========] Running 1 test from" not in output:
        return f"the program has no case {test}"
    if returncode == 0:
        return f"{test} did not fail although its safeguard is built away"
    if returncode != 1 or f"[  FAILED  ] {test}" not in output:
        return f"the program ended with status {returncode} and not by a failed assertion"
    if ESCAPED in output:
        return "an exception escaped from the test body"
    if not ASSERTION.search(output):
        return "no assertion of the test failed"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", required=True)
    parser.add_argument("--timeout", type=float, default=120, help="seconds")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    try:
        done = subprocess.run([*args.command, f"--gtest_filter={args.test}", "--gtest_color=no"], check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=args.timeout)
        output = done.stdout.decode(errors="replace")
        reason = judge(args.test, done.returncode, output)
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        reason = f"no end within {args.timeout:g} s"
    if reason:
        print(f"{output}\ncontrol not fulfilled: {reason}")
        return 1
    print(f"control fulfilled: {args.test} failed by this assertion\n{output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
