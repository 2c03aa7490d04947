#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_test.py over a folder whose program and tool are scripts: what it counts, and that nothing but passes is a success."""
import json
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "gpu_test.py"
PASSED = {"results": [{"verdict": "pass"}, {"verdict": "pass"}]}
FAILED = {"results": [{"verdict": "pass"}, {"verdict": "fail"}]}


def run(program, report, tool_status, *arguments, compiles=""):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tool = f"""#!/bin/sh
if [ "$1" = warmup ]; then touch "$MOETAIL_CACHE_DIR/kernel"; echo ready; exit 0; fi
{compiles}
cat <<'END'
{json.dumps(report)}
END
exit {tool_status}
"""
        listed = 'if [ "$1" = list ]; then printf "front.a\\nfront.b\\nmodes.c\\n"; exit 0; fi\n'
        for script, text in (("gpu_test", "#!/bin/sh\n" + listed + program), ("moetail", tool)):
            (folder / script).write_text(text)
            (folder / script).chmod(0o755)
        done = subprocess.run([sys.executable, "-B", str(TOOL), name, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip().splitlines()[-1], done.stdout


def main():
    fine = "for name; do echo pass $name; done; echo \"$# passed, 0 failed, 0 skipped\""
    first_group = '[ "$1" = front.a ] && '
    rows = 12 * 2 + 3  # two rows a call in two worlds, and the warm-up's three
    cases = [
        ("all passes", run(fine, PASSED, 0), (0, f"{3 + rows} passed, 0 failed, 0 skipped")),
        ("cases alone", run(fine, PASSED, 0, "front"), (0, "2 passed, 0 failed, 0 skipped")),
        ("no case of that name", run(fine, PASSED, 0, "back"), (1, "0 passed, 0 failed, 0 skipped")),
        ("rows alone", run("exit 9", PASSED, 0, "--rows"), (0, f"{rows} passed, 0 failed, 0 skipped")),
        ("a case fails", run("echo FAIL a; echo '1 passed, 1 failed, 0 skipped'; exit 1", PASSED, 0, "front"),
         (1, "1 passed, 1 failed, 0 skipped")),
        ("a group crashes, the next one runs", run(first_group + "{ echo pass front.a; kill -SEGV $$; }\n" + fine, PASSED, 0, "."),
         (1, "2 passed, 1 failed, 0 skipped")),
        ("the program crashes behind its count", run(fine + "; kill -SEGV $$", PASSED, 0, "front"), (1, "1 passed, 1 failed, 0 skipped")),
        ("the program says nothing", run("exit 0", PASSED, 0, "front"), (1, "0 passed, 2 failed, 0 skipped")),
        ("no GPU", run("echo skipped: none; exit 77", PASSED, 0), (0, "0 passed, 0 failed, 1 skipped")),
        ("a row fails", run(fine, FAILED, 1, "--rows"), (1, f"{12 + 2} passed, {12 + 12 + 1} failed, 0 skipped")),
        ("the tool refuses", run(fine, {}, 2, "--rows"), (1, "2 passed, 13 failed, 0 skipped")),
        ("a warm run compiles", run(fine, PASSED, 0, "--rows", compiles='touch "$MOETAIL_CACHE_DIR/another"'),
         (1, f"{rows - 1} passed, 1 failed, 0 skipped")),
    ]
    failures = [f"{name}: {seen[:2]}, expected {expected}\n{seen[2]}" for name, seen, expected in cases if seen[:2] != expected]
    print("\n".join(failures) or f"{len(cases)} outcomes counted right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
