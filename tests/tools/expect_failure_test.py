#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test of tools/expect_failure.py: of all the ways a case can end, it accepts the failed assertion alone."""
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "expect_failure.py"
EXPECTED = {
    "FailsByAssertion": (0, "control fulfilled"),
    "Passes": (1, "did not fail although"),
    "Skips": (1, "did not fail although"),
    "Throws": (1, "exception escaped"),
    "Aborts": (1, "ended by signal"),
    "ExitsWithOne": (1, "not by a failed assertion"),
    "NeverEnds": (1, "no end within"),
    "IsMissing": (1, "has no case"),
}


def main():
    wrong = []
    for case, (status, text) in EXPECTED.items():
        done = subprocess.run([sys.executable, "-B", str(TOOL), "--timeout", "2", "--test", f"Outcome.{case}", "--",
                               sys.argv[1]], capture_output=True, text=True, check=False)
        if done.returncode != status or text not in done.stdout:
            wrong.append(f"Outcome.{case}: status {done.returncode}, expected {status} and '{text}':\n{done.stdout}")
    print("\n".join(wrong) or f"expect_failure: {len(EXPECTED)} outcomes judged as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
