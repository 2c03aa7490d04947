#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test of tools/run_proof.py: it must not pass a model with a broken property, a search that was cut short, or a control that
is not refuted, or not by what it is there for. Runs SPIN where it is installed; what pan may print is judged everywhere."""
import contextlib
import io
import pathlib
import shutil
import sys
import tempfile
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import run_proof  # noqa: E402  (found through the line above)

WHOLE = "State-vector 196 byte, depth reached 159, errors: 0\n    26160 states, stored\n"
BROKEN = ("pan:1: assertion violated ( !((15&2))||(word[3]<=1)) (at depth 9)\n"
          "State-vector 196 byte, depth reached 9, errors: 1\n 12 states, stored\n")
# (what pan printed, its exit status, property violated, part of the problem)
PRINTED = [
    (WHOLE, 0, "", ""),
    (WHOLE, 1, "", "status 1"),
    (BROKEN, 0, "erased", ""),
    ("pan:1: invalid end state (at depth 9)\nState-vector 1 byte, depth reached 9, errors: 1\n 12 states, stored\n", 0, "ends", ""),
    ("error: max search depth too small\n" + WHOLE, 0, "", "depth limit"),
    ("pan: reached -DMEMLIM bound\n" + WHOLE, 0, "", "memory limit"),
    ("Warning: Search not completed\n" + WHOLE, 0, "", "not completed"),
    ("pan: out of memory\n", 1, "", "out of memory"),
    ("", -9, "", "no count of states"),
]

Search = run_proof.Search
FRONT = {"mode": "front", "calls": 4}
# (search, memory in MB, is it fine, part of the verdict)
SEARCHES = [
    (Search("holds", quick=True, blocks=1, **FRONT), 500, True, "holds"),
    (Search("property broken", quick=True, defines=("MOETAIL_WITHOUT_THIRD_SLOT",), **FRONT), 500, False, "violated: "),
    (Search("depth limit", quick=True, max_depth=60, **FRONT), 500, False, "depth limit"),
    (Search("memory limit", quick=True, defines=("ROWS=2", "HALVES=2"), **FRONT), 2, False, "cut short"),
    (Search("refuted", defines=("MOETAIL_WITHOUT_THIRD_SLOT",), refutes="erased", **FRONT), 500, True, "no fresh word"),
    (Search("not refuted", defines=("MOETAIL_WITHOUT_NOTHING",), blocks=1, refutes="erased", **FRONT), 500, False, "not refuted"),
    (Search("not this property", defines=("MOETAIL_WITHOUT_EVERY_WORD", "HALVES=2"), blocks=1, refutes="erased", **FRONT),
     500, False, "not refuted"),
    (Search("no such mode", mode="back"), 500, False, "spin -a failed"),
]


def check_printed():
    for text, status, violated, problem in PRINTED:
        outcome = run_proof.read_outcome(text, status)
        if outcome.violated != violated or problem not in outcome.problem or bool(problem) != bool(outcome.problem):
            yield f"{text!r}, status {status}: violated '{outcome.violated}', problem '{outcome.problem}'"


def check_searches(out):
    for search, memory, fine, part in SEARCHES:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            bad = run_proof.prove([search], out, ROOT / "verify" / "model", (memory, 60), shows_traces=True)
        if (bad == 0) != fine or part not in printed.getvalue():
            yield f"{search.name}: {bad} not proven, expected '{part}':\n{printed.getvalue()}"
        if search.name == "refuted" and "re-arms the watched word" not in (out / "refuted.trace.txt").read_text():
            yield "refuted: the trace does not tell what happened"


def check_without_spin():
    """A test that cannot run skips, with a reason; a proof that cannot run has failed."""
    for arguments, status, part in ((["--quick"], 77, "skipped: spin"), ([], 1, "spin")):
        with contextlib.redirect_stdout(io.StringIO()) as printed, mock.patch("shutil.which", return_value=None), \
                mock.patch("sys.argv", ["run_proof.py", *arguments]):
            ended = run_proof.main()
        if ended != status or not printed.getvalue().startswith(part):
            yield f"without spin, {arguments}: status {ended}, {printed.getvalue()!r}"


def main():
    wrong = list(check_printed()) + list(check_without_spin())
    if shutil.which("spin") is not None:
        with tempfile.TemporaryDirectory() as out:
            wrong += check_searches(pathlib.Path(out))
    print("\n".join(wrong) or f"run_proof: {len(PRINTED)} outputs judged as they must be, "
          + (f"{len(SEARCHES)} searches too" if shutil.which("spin") else "no search, since spin is not installed"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
