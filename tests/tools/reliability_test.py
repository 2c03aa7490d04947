#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/reliability.py over logs made here: whole ones give a page, and each way of spoiling one of them is a problem that is named, status 1,
and a page that stays as it was."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from xml.sax.saxutils import quoteattr

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "reliability.py"
sys.path.insert(0, str(ROOT / "tools"))
import reliability_rows  # noqa: E402  (found through the line above)

PAGE = "# Page\n\n<!-- table, written by tools/reliability.py -->\nstale row\n<!-- end of the table -->\ntail\n"
SOAK = {"soak": "cpu threads", "calls": 1_000_000, "lost": 0, "faults": 0, "stalls": 9, "seconds": 1.5, "seed": 3, "date": "2026-01-02",
        "commit": "abc"}
FUZZ = {name: {"runs": 5, "failed": False, "seconds": 60, "date": "2026-01-02", "commit": "abc"} for name in reliability_rows.FUZZ}


def case(name, properties, body="", result="completed"):
    items = "".join(f"<property name={quoteattr(key)} value={quoteattr(str(value))}/>" for key, value in properties.items())
    return f'<testcase classname="Suite" name="{name}" result="{result}"><properties>{items}</properties>{body}</testcase>\n'


def whole_logs():
    """{program: its log's cases}: every row of the list in the first program, twice, and one record in each of the others."""
    faults = [fault for _, names in reliability_rows.SECTIONS for fault in names]
    cases = {name: [] for name in reliability_rows.PROGRAMS}
    for name in cases:
        engine = reliability_rows.PROGRAMS[name]["engine"]
        cases[name].append(case("One", {"fault": "SIGKILL" if engine == reliability_rows.PROCESSES else faults[0], "tries": 2,
                                        "outcome": "named"} | ({} if engine == reliability_rows.PROCESSES else {"engine": "cpu threads"})))
    for index, fault in enumerate(faults):
        cases["engine_test"].append(case(f"Row{index}", {"fault": fault, "engine": "cpu threads", "tries": 3, "outcome": "as it must be"}))
    return cases


def run(cases, soak=SOAK, fuzz=FUZZ, gpu=None, run_json=True):
    """Returns (status, what was printed, the page)."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program, lines in cases.items():
            if lines is not None:
                (folder / f"{program}.xml").write_text("<testsuites><testsuite>" + "".join(lines) + "</testsuite></testsuites>")
        if run_json:
            (folder / "run.json").write_text('{"date": "2026-01-01", "commit": "0123abc"}')
        for file, content in (("soak.json", soak), ("fuzz.json", fuzz)):
            if content is not None:
                (folder / file).write_text(json.dumps(content))
        (folder / "page.md").write_text(PAGE)
        command = [sys.executable, "-B", str(TOOL), "--no-run", "--logs", name, "--fuzz", str(folder / "fuzz.json"), "--page",
                   str(folder / "page.md")]
        if gpu is not None:
            (folder / "gpu.log").write_text(gpu)
            command += ["--gpu", str(folder / "gpu.log")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr, (folder / "page.md").read_text()


def with_case(cases, program, line):
    return cases | {program: cases[program] + [line]}


def main():
    whole = whole_logs()
    good = {"fault": "a rank killed, at each site", "engine": "cpu threads", "tries": 1, "outcome": "o"}
    gone = [line for line in whole["engine_test"] if "duplicate indices" not in line]
    refused = [
        ("a test fails", with_case(whole, "io_test", case("Bad", good, "<failure message='x'/>")), {}, "Suite.Bad: failed"),
        ("a test did not end", with_case(whole, "io_test", case("Bad", good, result="suppressed")), {}, "Suite.Bad: failed or did not end"),
        ("a test without a record", with_case(whole, "hostile_test", case("Mute", {})), {}, "Suite.Mute: no record"),
        ("a record without an outcome", with_case(whole, "hostile_test", case("Half", good | {"outcome": ""})), {}, "a part missing"),
        ("tried 0 times", with_case(whole, "hostile_test", case("None", good | {"tries": 0})), {}, "tried 0 times"),
        ("a record without a row", with_case(whole, "hostile_test", case("New", good | {"fault": "something new"})), {},
         "'something new' on cpu threads has no row"),
        ("a row without a record", whole | {"engine_test": gone}, {}, "no test recorded the row 'map: duplicate indices'"),
        ("a program that did not run", whole | {"c_api_test": None}, {}, "c_api_test.xml: no log"),
        ("a program without tests", whole | {"c_api_test": []}, {}, "c_api_test.xml: no test ran"),
        ("no record of processes", whole | {"processes_test": [case("ProcessWorld", {})]}, {}, "ranks that are processes"),
        ("no soak", whole, {"soak": None}, "soak.json: no line"),
        ("a call lost", whole, {"soak": SOAK | {"lost": 1}}, "none is lost"),
        ("a short soak", whole, {"soak": SOAK | {"calls": 999_999}}, "1000000 calls or more"),
        ("a fuzz target failed", whole, {"fuzz": FUZZ | {"safetensors": FUZZ["safetensors"] | {"failed": True}}}, "fuzz.json: safetensors"),
        ("a GPU case failed", whole, {"gpu": "pass fault.aborted (1 s)\nFAIL fault.map_index (1 s) x\n"}, "fault.map_index: FAIL"),
        ("a log of no GPU program", whole, {"gpu": "hello\n"}, "no case of the GPU program"),
        ("no record of the run", whole, {"run_json": False}, "run.json"),
    ]
    wrong = []
    for name, cases, more, part in refused:
        status, text, page = run(cases, **more)
        if status != 1 or part not in text or page != PAGE:
            wrong.append(f"{name}: status {status}, page {'as it was' if page == PAGE else 'written'}, expected '{part}':\n{text}")

    status, text, page = run(whole)
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| fault or input")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    if status != 0 or not page.startswith("# Page") or not page.endswith("<!-- end of the table -->\ntail\n") or "stale row" in page:
        wrong.append(f"whole logs: status {status}\n{text}\n{page}")
    if any(len(row) != 6 or "" in row for row in cells):
        wrong.append(f"a row is empty somewhere: {[row for row in cells if len(row) != 6 or '' in row]}")
    # The first row's fault was recorded by six programs, twice each, and three times by its own.
    first = [row for row in cells if row[0] == "a rank killed, at each site"]
    if first != [["a rank killed, at each site", "cpu threads", "15", "named; or as it must be", "2026-01-01", "0123abc"]]:
        wrong.append(f"records of one row are not added up: {first}")
    if not any(row[:5] == ["SIGKILL", "cpu processes", "2", "named", "2026-01-01"] for row in cells):
        wrong.append("the engine of a program that does not say it is lost")
    if not all(row[3].startswith("not run: ") for row in cells if row[1] == "cuda loopback"):
        wrong.append("a GPU row without a log claims to have run")

    status, text, page = run(whole, fuzz=None, gpu="commit: 9876fed\n  other\npass fault.aborted (0.1 s) \n"
                             "  tried 7: calls\npass soak.loopback.t4 (1 s) \n  tried 5: calls\n  tried 3: x\npass soak.streams.t2 (1 s) \npass stress.t4 (1.0 s) \n")
    soaked = [line.split(" | ")[2] for line in page.splitlines() if line.startswith("| calls with random stalls, every output bit of every rank compared | cuda")]
    aborted = [line for line in page.splitlines() if line.startswith("| host abort() in a running call | cuda")]
    if soaked != ["15"]:
        wrong.append(f"what GPU cases tried is not added up: {soaked}")
    if status != 0 or len(aborted) != 1 or "passed: fault.aborted" not in aborted[0] or "9876fed" not in aborted[0] or \
            "not run: stress.t8 not in the log" not in page or "not run: no log of make fuzz" not in page:
        wrong.append(f"a GPU log with some cases: status {status}, {aborted}\n{text}")
    print("\n".join(wrong) or f"reliability: whole logs make a page, {len(refused)} spoilt ones are refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
