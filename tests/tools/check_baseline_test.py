#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_baseline.py: a report is no worse than itself, one ratio a fifth worse is found in each of the recorded files, better is no
fault, and what cannot be compared is never a success."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_baseline.py"
WORSE = 1.2


def row(batch, verdict="pass"):
    return {"mode_asked": "auto", "mode": "front", "form": "rows", "tp": 8, "batch": batch, "layers": 16, "verdict": verdict,
            "median_us": 200.0 if verdict == "pass" else None, "floor_us": 100.0 if verdict == "pass" else None,
            "ratio": {"median": 0.9} if verdict == "pass" else None, "baseline": {"name": "oneDNN"}}


REPORT = {"engine": "cpu", "world": "virtual", "date": "2026-01-01T00:00:00Z", "version": "0", "command_line": ["moetail", "bench"],
          "machine": {"cpu": "a chip", "cores": 2, "dispatch_target": "scalar"},
          "model": {"hidden": 64, "latent": 32, "top_k": 2}, "results": [row(1), row(4)]}


def run(folder, report, *arguments, baseline="recorded.jsonl"):
    path = folder / "report.json"
    path.write_text(json.dumps(report))
    return subprocess.run([sys.executable, "-B", str(TOOL), str(path), str(folder / baseline), *arguments],
                          capture_output=True, text=True, check=False)


def changed(edit):
    report = copy.deepcopy(REPORT)
    edit(report)
    return report


def report_of(records):
    """A report that has the recorded ratios again."""
    first = records[0]
    other = "cuBLASLt" if first["engine"] == "cuda" else "oneDNN"
    rows = [{name: record[name] for name in ("mode_asked", "mode", "form", "tp", "batch", "layers", "verdict")} | {
        "floor_us": 1.0, "median_us": record["ratios"]["over_floor"], "put": record.get("put", "-"),
        "ratio": {"median": record["ratios"].get(f"over_{other}")}, "baseline": {"name": other}} for record in records]
    return REPORT | {name: first[name] for name in ("engine", "world")} | {
        name: first[name] for name in ("cold_rows", "take") if name in first} | {"results": rows, "machine": REPORT["machine"] | {
        "dispatch_target": first["target"]}, "model": {name: first[name] for name in ("hidden", "latent", "top_k")}}


def main():
    wrong = []

    def expect(name, done, status, text):
        if done.returncode != status or text not in done.stdout + done.stderr:
            wrong.append(f"{name}: status {done.returncode}, expected {status} and '{text}':\n{done.stdout}{done.stderr}")

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        expect("record", run(folder, REPORT, "--record"), 0, "2 rows recorded")
        expect("itself", run(folder, REPORT), 0, "no ratio is worse")
        slower = changed(lambda report: report["results"][1].update(median_us=200.0 * WORSE))
        expect("one layer time worse", run(folder, slower), 1, "WORSE  cpu scalar auto T=8 B=4 rows: over_floor 2.000 recorded, 2.400 now")
        expect("the margin is an argument", run(folder, slower, "--margin", "0.25"), 0, "no ratio is worse")
        expect("one ratio worse", run(folder, changed(lambda report: report["results"][0]["ratio"].update(median=0.9 * WORSE))), 1,
               "over_oneDNN 0.900 recorded, 1.080 now")
        expect("better", run(folder, changed(lambda report: report["results"][0].update(median_us=50.0))), 0, "no ratio is worse")
        # Twice the time over twice the floor is a slower machine, not slower code.
        expect("absolute times", run(folder, changed(lambda report: report["results"][0].update(median_us=400.0, floor_us=200.0))), 0,
               "no ratio is worse")
        expect("failed", run(folder, changed(lambda report: report["results"].__setitem__(0, row(1, "fail")))), 1, "its check failed")
        expect("a row less", run(folder, changed(lambda report: report["results"].pop())), 2, "recorded, and not in the report")
        expect("a ratio less", run(folder, changed(lambda report: report["results"][0].update(ratio=None))), 2, "over_oneDNN is recorded")
        expect("another target", run(folder, changed(lambda report: report["machine"].update(dispatch_target="avx2"))), 2, "not in the report")
        expect("no rows", run(folder, REPORT, baseline="none.jsonl"), 2, "no recorded results")
        record = json.loads((folder / "recorded.jsonl").read_text().splitlines()[0])
        del record["ratios"]
        (folder / "spoilt.jsonl").write_text(json.dumps(record))
        expect("a record without ratios", run(folder, REPORT, baseline="spoilt.jsonl"), 2, "no recorded results")
        (folder / "empty.jsonl").write_text("")
        expect("empty file", run(folder, REPORT, baseline="empty.jsonl"), 2, "no ratio was compared")
        expect("no report", run(folder, []), 2, "no report of moetail bench")
        expect("record a failure", run(folder, changed(lambda report: report["results"].append(row(8, "fail"))), "--record"), 2,
               "1 of 3 rows have no ratio")

        recorded = sorted((ROOT / "bench" / "baseline").glob("*.jsonl"))
        if not recorded:
            wrong.append("bench/baseline has no recorded results")
        for path in recorded:
            records = [json.loads(line) for line in path.read_text().splitlines()]
            (folder / path.name).write_text(path.read_text())
            expect(path.name, run(folder, report_of(records), baseline=path.name), 0, "no ratio is worse")
            for i, record in enumerate(records):
                worse = copy.deepcopy(records)
                worse[i]["ratios"]["over_floor"] *= WORSE
                expect(f"{path.name}, row {i} worse", run(folder, report_of(worse), baseline=path.name), 1, "1 worse")
    print("\n".join(wrong) or "check_baseline: every comparison ends as it must")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
