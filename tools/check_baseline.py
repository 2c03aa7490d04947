#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the ratios of a benchmark's report with recorded ones, one-sided: `check_baseline.py REPORT.json BASELINE.jsonl`.

Ratios only, never times: the layer over the machine's own floor of the same run, and ours over the baseline program's. A row of the
recorded results that the report lacks is an error, and so is a report with nothing to compare. `--record` writes the report's ratios
to the file instead, with machine, date, version and command. Exit status: 0 no ratio is worse than the recorded one by more than
--margin, 1 one is, 2 the files cannot be compared."""
import argparse
import json
import pathlib
import sys

KEY = ("target", "engine", "world", "mode_asked", "mode", "form", "tp", "batch", "hidden", "latent", "top_k", "layers", "put", "cold_rows",
       "take")
# What a GPU's rows have besides; older files and the CPU's lack it.
WITHOUT = {"put": "-", "cold_rows": False, "take": False}


class NotComparable(Exception):
    """The files do not say what is to be compared."""


def ratios_of(row):
    """The ratios of a row that passed, each better when smaller."""
    if row["verdict"] != "pass":
        return {}
    ratios = {}
    if row.get("floor_us"):
        ratios["over_floor"] = row["median_us"] / row["floor_us"]
    if isinstance(row.get("ratio"), dict) and row["ratio"].get("median"):
        ratios["over_" + row["baseline"]["name"]] = row["ratio"]["median"]
    return ratios


def records_of(report):
    """A record a row, as a line of a baseline file has it."""
    model, machine = report["model"], report["machine"]
    for row in report["results"]:
        record = {name: row[name] for name in ("mode_asked", "mode", "form", "tp", "batch")}
        record |= {"engine": report["engine"], "world": report["world"], "layers": row["layers"]}
        record |= {name: model[name] for name in ("hidden", "latent", "top_k")}
        record |= {name: row.get(name, report.get(name, without)) for name, without in WITHOUT.items()}
        record |= {"verdict": row["verdict"], "ratios": ratios_of(row)}
        record |= {"target": machine["dispatch_target"], "machine": machine.get("gpu") or f"{machine['cpu']}, {machine['cores']} cores",
                   "date": report["date"], "version": report["version"],
                   # Where the files of a run lay is its machine's own.
                   "command": " ".join(["moetail", *(pathlib.PurePath(word).name if word.startswith("/") else word
                                                     for word in report["command_line"][1:])])}
        yield record


def key_of(record):
    return tuple((WITHOUT | record)[name] for name in KEY)


def read_report(path):
    try:
        return list(records_of(json.loads(path.read_text())))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotComparable(f"{path}: no report of moetail bench --json ({type(error).__name__}: {error})") from None


def read_baseline(path):
    try:
        records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        for record in records:
            if not record["ratios"]:
                raise ValueError("a record without ratios")
        return {key_of(record): record for record in records}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotComparable(f"{path}: no recorded results ({type(error).__name__}: {error})") from None


def compare(new, recorded, margin):
    """Prints a line a ratio; returns the number of worse ones."""
    now = {key_of(record): record for record in new}
    worse = compared = 0
    for key, old in recorded.items():
        name = f"{old['engine']} {old['target']} {old['mode_asked']} T={old['tp']} B={old['batch']} {old['form']}"
        name += f" {old['put']}" if old.get("put", "-") != "-" else ""
        if key not in now:
            raise NotComparable(f"{name}: recorded, and not in the report")
        if now[key]["verdict"] != "pass":
            print(f"WORSE  {name}: its check failed")
            worse += 1
            continue
        for ratio, before in old["ratios"].items():
            after = now[key]["ratios"].get(ratio)
            if after is None:
                raise NotComparable(f"{name}: {ratio} is recorded, and not in the report")
            compared += 1
            is_worse = after > before * (1 + margin)
            worse += is_worse
            print(f"{'WORSE ' if is_worse else 'ok    '} {name}: {ratio} {before:.3f} recorded, {after:.3f} now")
    if not compared and not worse:
        raise NotComparable("no ratio was compared")
    return worse


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("baseline", type=pathlib.Path)
    parser.add_argument("--margin", type=float, default=0.15, help="how much worse is still noise (0.15: 15 %%)")
    parser.add_argument("--record", action="store_true", help="write the report's ratios to the baseline file")
    options = parser.parse_args()
    try:
        new = read_report(options.report)
        if options.record:
            failed = [record for record in new if not record["ratios"]]
            if failed or not new:
                raise NotComparable(f"{options.report}: {len(failed)} of {len(new)} rows have no ratio to record")
            options.baseline.write_text("".join(json.dumps(record) + "\n" for record in new))
            print(f"{len(new)} rows recorded in {options.baseline}")
            return 0
        worse = compare(new, read_baseline(options.baseline), options.margin)
    except NotComparable as error:
        print(f"cannot be compared: {error}", file=sys.stderr)
        return 2
    print(f"{worse} worse" if worse else "no ratio is worse than recorded")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
