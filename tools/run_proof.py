#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves the mailbox protocol with SPIN: every configuration of verify/model holds, every negative control is refuted.

Exit status 0 only if no property fails, every search ended by itself (no limit of depth, memory or time was reached) and each
control was refuted by the property it is there for. What SPIN printed, every refutation's trace and the tables are kept in build/proof.
Without spin: status 77 and a line 'skipped: ...' with --quick, 1 otherwise.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The properties' bits in mailbox.pml; 0 is SPIN's own: at the end of every run every process is at its end.
PROPERTIES = {"stale": 1, "erased": 2, "rearmed": 4, "same": 8, "ends": 0}
MEANING = {"stale": "no stale word is taken for new", "erased": "no fresh word is erased",
           "rearmed": "a word is armed before it is published", "same": "all ranks see the same output rows",
           "ends": "every call ends"}
CUT_SHORT = {"max search depth too small": "the depth limit was reached", "out of memory": "out of memory",
             "reached -DMEMLIM bound": "the memory limit was reached", "Search not completed": "the search was not completed",
             "resize the hashtable": "the hash table could not grow"}


@dataclasses.dataclass
class Search:
    """One run of SPIN: a mode's model at a size. `defines`: its switches, see the model's files."""
    name: str
    mode: str
    defines: tuple = ()
    ranks: int = 2
    blocks: int = 2
    calls: int = 4
    quick: bool = False    # part of --quick
    refutes: str = ""      # a negative control: the property that must fail
    max_depth: int = 10000
    bits: int = 0          # not exhaustive: a bit-state search with 2^bits bits, and announced as such

    def flags(self):
        sizes = [f"-DRANKS={self.ranks}", f"-DBLOCKS={self.blocks}", f"-DCALLS={self.calls}"]
        return sizes + [f"-D{define}" for define in self.defines] + (
            [f"-DCHECKS={PROPERTIES[self.refutes]}"] if self.refutes else [])

    def size(self):
        return f"{self.ranks} x {self.blocks} x {self.calls}"


# Batches of 2, 1, 1, 2 rows where ROWS=2 and nothing else is said; HALVES: words of a line.
CONFIGURATIONS = [
    Search("front", "front", ("ROWS=2",), quick=True),
    Search("front, words of a line", "front", ("ROWS=2", "HALVES=2")),
    Search("front, all batch sequences", "front", ("ROWS=2", "ALL_BATCHES")),
    Search("front, 7 calls", "front", ("ROWS=2", "BATCHES=73"), calls=7),
    Search("front, another batch on one rank", "front", ("ROWS=2", "MISMATCH=2")),
    Search("front, 3 ranks", "front", ("ROWS=2",), ranks=3),
    Search("front, early arrival", "front", ("ROWS=2", "ARRIVES_EARLY")),
    Search("publish", "publish", ("ROWS=2",), blocks=1, quick=True),
    Search("publish, words of a line", "publish", ("ROWS=2", "HALVES=2")),
    Search("publish, all batch sequences", "publish", ("ROWS=2", "ALL_BATCHES"), blocks=1),
    Search("publish, push of two blocks", "publish", ("PUSHERS=2",)),
    Search("publish, early wave", "publish", ("EARLY", "ROWS=2")),
    Search("publish, shared sums", "publish", ("SHARING",)),
    Search("publish, 3 ranks", "publish", ranks=3, blocks=1),
    Search("twoshot", "twoshot", ("ROWS=2",), blocks=1, quick=True),
    Search("twoshot, words of a line", "twoshot", ("ROWS=2", "HALVES=2")),
    Search("twoshot, all batch sequences", "twoshot", ("ROWS=2", "ALL_BATCHES"), blocks=1),
    Search("twoshot, early wave", "twoshot", ("EARLY",)),
    Search("twoshot, 3 ranks", "twoshot", ranks=3, blocks=1),
]


def control(name, mode, refutes, *defines, quick=False):
    """A safeguard left out, under its name in src/protocol."""
    return Search(f"without {name}", mode, (f"MOETAIL_WITHOUT_{name.upper()}",) + defines, refutes=refutes, quick=quick)


CONTROLS = [
    control("third_slot", "front", "erased", quick=True),
    control("rearm_slot", "front", "erased"),
    control("rearm_size", "front", "stale", "ROWS=2"),
    control("dependency_wait", "front", "stale"),
    control("every_word", "front", "stale", "HALVES=2", quick=True),
    control("epoch_advance", "front", "stale"),
    control("push_order", "publish", "stale"),
    control("consumer_order", "front", "same"),
    control("two_records", "front", "stale", "ROWS=2"),
    control("header_check", "front", "ends", "ROWS=2", "MISMATCH=2", quick=True),
    control("last_arrival", "publish", "ends"),
    # Nor may a wave arrive early, beside a push that has yet to read the epoch: docs/protocol.md, "The epoch".
    Search("early_arrival: a wave beside its push", "publish", ("ARRIVES_EARLY",), refutes="ends"),
    # Not a switch of the protocol: the rule for user and library kernels that docs/protocol.md, "The epoch", states.
    Search("push_cut: a block stores to peers alone", "publish", ("PUSHERS=2", "PUSH_BY_OWNER"), refutes="ends"),
]


@dataclasses.dataclass
class Outcome:
    states: int = 0
    depth: int = 0
    seconds: float = 0.0
    violated: str = ""   # the property
    problem: str = ""    # why this outcome proves nothing
    trace: str = ""


def run(command, folder, seconds=None):
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=seconds, check=False)


def read_outcome(text, status):
    """What pan printed. An output that does not tell of a whole search is a problem, never a pass."""
    outcome = Outcome()
    states = re.search(r"^ *([\d.e+]+) states, stored", text, re.MULTILINE)
    depth = re.search(r"depth reached (\d+), errors: (\d+)", text)
    if not states or not depth:
        outcome.problem = f"pan ended with status {status} and no count of states"
        for mark, reason in CUT_SHORT.items():
            if mark in text:
                outcome.problem = f"cut short: {reason}"
        return outcome
    outcome.states, outcome.depth = int(float(states.group(1))), int(depth.group(1))
    errors = int(depth.group(2))
    for assertion in re.findall(r"^pan:\d+: (.*)$", text, re.MULTILINE):
        bit = re.search(r"assertion violated +\( ?!\(\(\d+&(\d+)\)\)", assertion)
        names = [name for name, value in PROPERTIES.items() if bit and value == int(bit.group(1))]
        outcome.violated = "ends" if "invalid end state" in assertion else names[0] if names else f"the model: {assertion}"
    if errors > 0:
        outcome.violated = outcome.violated or "unknown"
        return outcome
    for mark, reason in CUT_SHORT.items():
        if mark in text:
            outcome.problem = f"cut short: {reason}"
    if status != 0 and not outcome.problem:
        outcome.problem = f"pan ended with status {status}"
    return outcome


def folder_of(search, out):
    folder = out / re.sub(r"\W+", "_", search.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write_trace(search, folder, model, violated):
    """Replays the trail: what happened, then the assertion and all variables."""
    trail = next(folder.glob("*.trail"))
    replay = run(["spin", "-k", str(trail), *search.flags(), str(model)], folder)
    head = [f"{search.name}: {search.mode}, {search.size()} (ranks x blocks x calls), {' '.join(search.defines)}",
            f"violates '{violated}': {MEANING.get(violated, violated)}", ""]
    trace = folder.parent / f"{folder.name}.trace.txt"
    trace.write_text("\n".join(head) + replay.stdout)
    return trace


def search_model(search, out, models, limits):
    """Runs one search. limits: (MB of memory, seconds)."""
    folder, model = folder_of(search, out), models / f"{search.mode}.pml"
    made = run(["spin", "-a", *search.flags(), str(model)], folder)
    if made.returncode != 0 or not (folder / "pan.c").exists():
        return Outcome(problem=f"spin -a failed: {made.stdout.strip()[-300:]}")
    # A short search is over before an optimizing compiler is.
    options = ["-O0" if search.quick or search.refutes else "-O2", "-w", "-DSAFETY", "-DNOREDUCE", f"-DMEMLIM={limits[0]}"]
    options += ["-DBITSTATE"] if search.bits else ["-DCOLLAPSE"] if not search.refutes else ["-DREACH"]
    built = run([os.environ.get("CC", "cc"), *options, "-o", "pan", "pan.c"], folder)
    if built.returncode != 0:
        return Outcome(problem=f"pan.c does not compile: {built.stdout.strip()[-300:]}")
    command = ["./pan", f"-m{search.max_depth}"] + ([f"-w{search.bits}"] if search.bits else [])
    if search.refutes:  # for its one property alone (-E: no other end counts), and for a short way there (-i)
        command += ["-i"] if search.refutes == "ends" else ["-i", "-E"]
    begin = time.monotonic()
    try:
        done = run(command, folder, limits[1])
    except subprocess.TimeoutExpired:
        return Outcome(problem=f"cut short: {limits[1]} s were over", seconds=time.monotonic() - begin)
    (folder / "pan.txt").write_text(done.stdout)
    outcome = read_outcome(done.stdout, done.returncode)
    outcome.seconds = time.monotonic() - begin
    if outcome.violated:
        outcome.trace = str(write_trace(search, folder, model, outcome.violated))
    return outcome


def verdict(search, outcome):
    """(fine, text)."""
    if outcome.problem:
        return False, outcome.problem
    if not search.refutes:
        kind = "holds (bit-state search: not exhaustive)" if search.bits else "holds"
        return not outcome.violated, f"violated: {outcome.violated}" if outcome.violated else kind
    if not outcome.violated:
        return False, "not refuted"
    if outcome.violated != search.refutes:
        return False, f"refuted by '{outcome.violated}', not by '{search.refutes}'"
    return True, MEANING[search.refutes]


def trace_events(path):
    """The lines of a trace that say what happened."""
    lines = pathlib.Path(path).read_text().splitlines()
    events = [line.strip() for line in lines if re.match(r"\s*(watched:|rank \d)", line)]
    failed = next((line.strip() for line in lines if "text of failed assertion" in line), "")
    return events + ["and then that property's assertion fails" if failed else "and then nothing moves any more"]


def print_table(head, rows):
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths]] + rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), flush=True)


def markdown(results):
    """The two tables as docs/proof.md has them: a configuration a row, whose one search covers all properties."""
    lines = ["| configuration | model | ranks x blocks x calls | states | depth | all five properties |", "|---|---|---|---|---|---|"]
    lines += [f"| {search.name} | `{' '.join((search.mode,) + search.defines)}` | {search.size()} | {outcome.states:,} | "
              f"{outcome.depth} | {text} |" for search, outcome, _, text in results if not search.refutes]
    lines += ["", "| negative control | model | violates | steps of the trace |", "|---|---|---|---|"]
    for search, outcome, _, text in results:
        if search.refutes:
            events = len(trace_events(outcome.trace)) - 2 if outcome.trace else 0
            model = [search.mode] + [define for define in search.defines if not define.startswith("MOETAIL_WITHOUT")]
            lines.append(f"| {search.name} | `{' '.join(model)}` | {text} | {events} |")
    return "\n".join(lines) + "\n"


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()) if os.path.exists(
        "/proc/cpuinfo") else None
    return cpu.group(1) if cpu else platform.machine()


def commit():
    """The last commit that touched what is run here."""
    paths = ["--", "verify/model", "tools/run_proof.py"]
    last, changed = run(["git", "log", "-1", "--format=%h", *paths], ROOT), run(["git", "status", "--porcelain", *paths], ROOT)
    return (last.stdout.strip() + ("-dirty" if changed.stdout else "")) if last.returncode == 0 else "unknown"


def relative(path):
    return str(pathlib.Path(path).relative_to(ROOT)) if pathlib.Path(path).is_relative_to(ROOT) else str(path)


def prove(searches, out, models, limits, shows_traces):
    """Runs all searches and prints both tables. Returns the number of those that are not fine."""
    results = []
    for search in searches:
        outcome = search_model(search, out, models, limits)
        fine, text = verdict(search, outcome)
        print(f"[{len(results) + 1}/{len(searches)}] {search.name}: {'' if fine else 'NOT PROVEN: '}{text}, "
              f"{outcome.states} states, {outcome.seconds:.1f} s", flush=True)
        results.append((search, outcome, fine, text))
    rows = []
    for search, outcome, fine, text in results:
        if search.refutes:
            continue
        for name in PROPERTIES:
            failed = "VIOLATED" if outcome.violated == name else text if not outcome.violated else "not known"
            rows.append([MEANING[name], search.name, search.size(), str(outcome.states), str(outcome.depth),
                         text if fine else failed])
    print()
    print_table(["property", "configuration", "ranks x blocks x calls", "states", "depth", "verdict"], rows)
    rows = [[search.name, search.size(), text if fine else f"NOT REFUTED: {text}", str(outcome.depth),
             relative(outcome.trace) if outcome.trace else "-"]
            for search, outcome, fine, text in results if search.refutes]
    print()
    print_table(["negative control", "ranks x blocks x calls", "violates", "depth", "trace"], rows)
    for search, outcome, _, _ in results:
        if shows_traces and search.refutes and outcome.trace:
            print(f"\n{search.name}: {outcome.violated}")
            print("\n".join(f"  {event}" for event in trace_events(outcome.trace)))
    bad = [search.name for search, _, fine, _ in results if not fine]
    record = {"date": datetime.date.today().isoformat(), "machine": machine(), "commit": commit(),
              "searches": [dict(dataclasses.asdict(search), **dataclasses.asdict(outcome), fine=fine, verdict=text)
                           for search, outcome, fine, text in results]}
    (out / "tables.md").write_text(f"{record['date']}, {record['machine']}, commit {record['commit']}\n\n" + markdown(results))
    (out / "proof.json").write_text(json.dumps(record, indent=1))
    num_controls = sum(1 for search in searches if search.refutes)
    print(f"\nproof: {len(searches) - num_controls} configurations, {num_controls} negative controls, "
          + (f"not proven: {', '.join(bad)}" if bad else "all as they must be"))
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small configurations and controls alone")
    parser.add_argument("--only", metavar="TEXT", help="searches whose name holds it")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "proof", help="folder for logs and traces")
    parser.add_argument("--memory", type=int, default=12000, metavar="MB", help="limit of one search")
    parser.add_argument("--seconds", type=int, default=3600, help="limit of one search")
    parser.add_argument("--traces", action="store_true", help="prints the controls' traces, which are kept in any case")
    args = parser.parse_args()
    missing = [tool for tool in ("spin", os.environ.get("CC", "cc")) if shutil.which(tool) is None]
    if missing:
        print(f"{'skipped: ' if args.quick else ''}{' and '.join(missing)} not found; on Debian: tools/setup.sh proof")
        return 77 if args.quick else 1
    searches = [search for search in CONFIGURATIONS + CONTROLS
                if (search.quick or not args.quick) and (args.only is None or args.only in search.name)]
    if not searches:
        print(f"--only {args.only}: no search has it in its name", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    bad = prove(searches, args.out.resolve(), ROOT / "verify" / "model", (args.memory, args.seconds), args.traces)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
