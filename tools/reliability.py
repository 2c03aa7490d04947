#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of faults and of hostile input at length and writes the table of docs/reliability.md from what they recorded.

A test says by RecordProperty what it tried (fault), on what (engine), how often (tries) and what happened (outcome). Here stands which
rows there have to be. A test that fails, a test of the named suites without a record, a row without a test, a record without a row, a soak
that lost a call or is not there: each is printed, the page stays as it was, and the exit status is 1. The rows of a GPU come from a log of
its program, where there is one; otherwise they say that they were not run, and why.

Logs: build/reliability/NAME.xml of each program with build/reliability/run.json (date, commit), soak.json (make soak), build/fuzz/fuzz.json
(make fuzz); --no-run takes them as they are.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import reliability_rows  # noqa: E402  (found through the line above)

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- table, written by tools/reliability.py -->", "<!-- end of the table -->"
PROGRAM_SECONDS = 1800
KEYS = ("fault", "tries", "outcome")


class Problems(list):
    def add(self, text):
        self.append(text)


def commit_of_tree():
    done = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run_programs(build, out):
    """Every program of the list, each with its log. What is left of an earlier run goes first: a log that is not written is not there."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "run.json").unlink(missing_ok=True)  # says what all of the logs are of
    env = dict(os.environ, MOETAIL_TEST_THOROUGH="1", RC_PARAMS=os.environ.get("RC_PARAMS", "max_success=1000"))
    for name, program in reliability_rows.PROGRAMS.items():
        log = out / f"{name}.xml"
        log.unlink(missing_ok=True)
        print(f"== {name}", flush=True)
        with open(out / f"{name}.log", "w", encoding="utf-8") as text:
            try:
                subprocess.run([str(build / "bin" / name), f"--gtest_filter={program['filter']}", f"--gtest_output=xml:{log}"], env=env,
                               stdin=subprocess.DEVNULL, stdout=text, stderr=subprocess.STDOUT, timeout=PROGRAM_SECONDS, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}", flush=True)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    (out / "run.json").write_text(json.dumps({"date": today, "commit": commit_of_tree()}) + "\n", encoding="utf-8")


def read_program(path, program, problems):
    """The records of one program's log, as (fault, engine, tries, outcome), and [(suite's test, reason)] of what it skipped."""
    records, skipped = [], []
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        problems.add(f"{path.name}: no log of a run that ended: {error}")
        return records, skipped
    if not cases:
        problems.add(f"{path.name}: no test ran")
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        found = {item.get("name"): item.get("value") for item in case.iter("property")}
        note = case.find("skipped")
        if case.find("failure") is not None or case.get("result") not in ("completed", "skipped"):
            problems.add(f"{path.name}: {name}: failed or did not end")
        elif note is not None:
            skipped.append((name, note.get("message", "").splitlines()[-1] if note.get("message") else "no reason given"))
        elif not any(key in found for key in KEYS):
            if not re.search(program["without"], name):
                problems.add(f"{path.name}: {name}: no record of what it tried")
        elif not all(found.get(key) for key in KEYS) or not found["tries"].isdigit() or int(found["tries"]) == 0:
            problems.add(f"{path.name}: {name}: a record with a part missing, or tried 0 times: {found}")
        else:
            records.append((found["fault"], found.get("engine", program["engine"]), int(found["tries"]), found["outcome"]))
    return records, skipped


def merge(records):
    """One row of the same fault on the same engine: what was tried is added up, outcomes that differ stand beside each other."""
    rows = {}
    for fault, engine, tries, outcome in records:
        row = rows.setdefault((fault, engine), {"tries": 0, "outcomes": []})
        row["tries"] += tries
        if outcome not in row["outcomes"]:
            row["outcomes"].append(outcome)
    return rows


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def soak_row(path, problems):
    line = read_json(path)
    if line is None:
        problems.add(f"{path.name}: no line of a soak: make soak writes it")
        return []
    if line.get("lost") != 0 or line.get("faults") != 0 or line.get("calls", 0) < reliability_rows.SOAK_CALLS:
        problems.add(f"{path.name}: accepted is {reliability_rows.SOAK_CALLS} calls or more of which none is lost: {json.dumps(line)}")
    outcome = f"{line.get('lost')} lost, {line.get('faults')} faults under {line.get('stalls')} stalls, {line.get('seconds')} s, seed {line.get('seed')}"
    return [(reliability_rows.SOAK_ROW, line.get("soak"), line.get("calls"), outcome, line.get("date"), line.get("commit"))]


def fuzz_rows(path, problems):
    lines = read_json(path)
    if lines is None:
        return [(f"libFuzzer: {name}", "host", 0, "not run: no log of make fuzz", "-", "-") for name in reliability_rows.FUZZ]
    rows = []
    for name in reliability_rows.FUZZ:
        line = lines.get(name, {})
        if line.get("failed", True) or line.get("runs", 0) <= 0:
            problems.add(f"{path.name}: {name}: failed, or no run: {json.dumps(line)}")
        rows.append((f"libFuzzer: {name}", "host", line.get("runs", 0), f"an error or consistent views, {line.get('seconds')} s, address sanitizer",
                     line.get("date"), line.get("commit")))
    return rows


def gpu_rows(path, problems):
    """Rows of the GPU program's log: `pass NAME (...)`, before it `tried N: ...` where a case counts. Its commit stands in a line `commit: ...`,
    its date is the file's."""
    text = path.read_text(encoding="utf-8", errors="replace") if path is not None and path.exists() else None
    if text is not None:
        results = {name: word for word, name in re.findall(r"^(pass|FAIL) (\S+)", text, re.MULTILINE)}
        if not results:
            problems.add(f"{path.name}: no case of the GPU program in it")
    tried, counted = {}, 0
    for number, name in re.findall(r"^  tried (\d+): |^(?:pass|FAIL) (\S+)", text or "", re.MULTILINE):
        if name:
            tried[name] = counted or 1
        counted = 0 if name else counted + int(number)
    commit = re.findall(r"^commit: (\S+)", text or "", re.MULTILINE)
    date = datetime.date.fromtimestamp(path.stat().st_mtime).isoformat() if text is not None else "-"
    rows = []
    for fault, cases in reliability_rows.GPU:
        if not cases:
            rows.append((fault, "cuda loopback", 0, "not run: the GPU program has no such case", "-", "-"))
        elif text is None:
            rows.append((fault, "cuda loopback", 0, "not run: no log of the GPU program (make gpu-test on a machine with a GPU)", "-", "-"))
        else:
            missing = [case for case in cases if case not in results]
            problems.extend(f"{path.name}: {case}: {results.get(case, 'not in the log')}" for case in cases if results.get(case) == "FAIL")
            outcome = f"not run: {', '.join(missing)} not in the log" if missing else f"passed: {', '.join(cases)}"
            rows.append((fault, "cuda loopback", 0 if missing else sum(tried.get(case, 0) for case in cases), outcome, date, commit[-1] if commit else "not in the log"))
    return rows


def collect(out, fuzz, gpu, problems):
    """[(section, rows)] in the order of the page."""
    run = read_json(out / "run.json") or {}
    date, commit = run.get("date", "?"), run.get("commit", "?")
    if not run:
        problems.add("run.json: no record of a run")
    records, skipped = [], []
    for name, program in reliability_rows.PROGRAMS.items():
        more, left_out = read_program(out / f"{name}.xml", program, problems)
        records += more
        skipped += left_out
    rows = merge(records)
    sections, listed = [], set()
    for section, faults in reliability_rows.SECTIONS:
        lines = []
        for fault in faults:
            keys = [key for key in rows if key[0] == fault and key[1] != reliability_rows.PROCESSES]
            listed.update(keys)
            if not keys:
                problems.add(f"no test recorded the row '{fault}'" + (f" (skipped: {skipped})" if skipped else ""))
            lines += [(fault, key[1], rows[key]["tries"], "; or ".join(rows[key]["outcomes"]), date, commit) for key in keys]
        sections.append((section, lines))
    of_processes = [key for key in rows if key[1] == reliability_rows.PROCESSES]
    if not of_processes:
        problems.add("no test recorded a row for ranks that are processes")
    sections.append(("Ranks that are processes", [(key[0], key[1], rows[key]["tries"], "; or ".join(rows[key]["outcomes"]), date, commit)
                                                  for key in of_processes]))
    problems.extend(f"the record '{key[0]}' on {key[1]} has no row in tools/reliability_rows.py"
                    for key in rows if key not in listed and key[1] != reliability_rows.PROCESSES)
    sections.append(("Soak and fuzzing", soak_row(out / "soak.json", problems) + fuzz_rows(fuzz, problems)))
    sections.append(("On a GPU", gpu_rows(gpu, problems)))
    return sections


def table(sections):
    text = ""
    for section, rows in sections:
        text += f"\n### {section}\n\n| fault or input | engine | tried | what happened | date | commit |\n|---|---|---|---|---|---|\n"
        for row in rows:
            cells = [f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|") for cell in row]
            text += "| " + " | ".join(cells) + " |\n"
    return text


def write_page(page, sections):
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{page}: accepted is one line '{BEGIN}' and one line '{END}' after it")
    head, rest = text.split(BEGIN)
    page.write_text(head + BEGIN + "\n" + table(sections) + "\n" + END + rest.split(END)[1], encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cpu")
    parser.add_argument("--logs", type=pathlib.Path, default=ROOT / "build" / "reliability")
    parser.add_argument("--fuzz", type=pathlib.Path, default=ROOT / "build" / "fuzz" / "fuzz.json")
    parser.add_argument("--gpu", type=pathlib.Path, help="a log of the GPU program")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs" / "reliability.md")
    parser.add_argument("--no-run", action="store_true", help="read the logs that are there")
    args = parser.parse_args()
    if not args.no_run:
        run_programs(args.build, args.logs)
    problems = Problems()
    sections = collect(args.logs, args.fuzz, args.gpu, problems)
    for problem in problems:
        print(problem)
    count = sum(len(rows) for _, rows in sections)
    if problems:
        print(f"reliability: {len(problems)} problems, {args.page.name} is as it was")
        return 1
    write_page(args.page, sections)
    print(f"reliability: {count} rows in {args.page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
