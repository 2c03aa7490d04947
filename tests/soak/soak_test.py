#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A short soak, and its controls: with one bit of one rank's input changed, or one rank dead in one call, the soak has to say that calls were
lost and end with status 1. Usage: soak_test.py PROGRAM [CALLS]"""
import json
import subprocess
import sys

CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 1500


def soak(program, plant):
    done = subprocess.run([program, "--calls", str(CALLS), "--seed", "7", "--plant", plant], capture_output=True, text=True, check=False,
                          timeout=300)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"stderr": done.stderr}


def main():
    wrong = []
    for plant, status, lost, faults in (("none", 0, range(1), range(1)), ("bit", 1, range(1, 2), range(1)),
                                        ("death", 1, range(1, 33), range(1, 2))):
        ended, line = soak(sys.argv[1], plant)
        fine = (ended == status and line.get("calls") == CALLS and line.get("lost") in lost and line.get("faults") in faults
                and line.get("stalls", 0) > 0)
        if not fine:
            wrong.append(f"--plant {plant}: status {ended}, {line}")
    refused = subprocess.run([sys.argv[1], "--calls", "-3"], capture_output=True, text=True, check=False)
    if refused.returncode != 2 or "accepted is" not in refused.stderr:
        wrong.append(f"--calls -3: status {refused.returncode}, {refused.stderr}")
    print("\n".join(wrong) or f"soak: {CALLS} calls lost nothing; a changed bit and a dead rank are seen")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
