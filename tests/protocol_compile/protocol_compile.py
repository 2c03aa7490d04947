#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header of src/protocol with one compiler, in one translation unit (host compilers: also each alone).

Exit status: 0 compiled, 1 rejected, 77 the compiler is not installed. With --expect-rejection a header that includes
<cstdint> is added to the room and 0 means that the compiler refused it for that reason.
"""
import pathlib
import subprocess
import sys
import tempfile

import compilers
import nvrtc

HERE = pathlib.Path(__file__).resolve().parent
SOURCE_ROOT = HERE.parents[1] / "src"
PROBE = HERE / "probe.cu"
ARCH = "sm_90a"
NO_PROBE = "the probe's entry is not in the PTX"
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror"]
CONTROL = {"protocol/control.hpp": "#pragma once\n#include <cstdint>\n"}


def room_headers():
    """Include name -> text of every header of the room."""
    headers = {path.relative_to(SOURCE_ROOT).as_posix(): path.read_text()
               for path in sorted((SOURCE_ROOT / "protocol").rglob("*.hpp"))}
    if not headers:
        sys.exit(f"no header found in {SOURCE_ROOT / 'protocol'}")
    return headers


def includes(names):
    return "".join(f'#include "{name}"\n' for name in names)


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def compile_on_host(compiler, headers, folder):
    """Each header alone, then all of them in one unit. No include path of the standard library: it must not matter."""
    units = {name.replace("/", "_"): includes([name]) for name in headers}
    units["all_headers"] = includes(headers)
    for unit, text in units.items():
        source = folder / f"{unit}.cpp"
        source.write_text(text)
        ok, log = run([compiler, "-std=c++20", *WARNINGS, "-nostdinc", "-nostdinc++", "-I", str(folder), "-c",
                       str(source), "-o", str(folder / "unit.o")])
        if not ok:
            return False, f"{unit}: {log}"
    return True, ""


def compile_with_nvcc(compiler, headers, folder):
    """Device and host in one object, then PTX, in which the probe's entry must appear."""
    source = folder / "all_headers.cu"
    source.write_text(includes(headers) + PROBE.read_text())
    common = [compiler, "-std=c++20", "-x", "cu", f"-arch={ARCH}", "-Werror", "all-warnings", "-I", str(folder)]
    ok, log = run([*common, "-c", str(source), "-o", str(folder / "unit.o")])
    if not ok:
        return False, log
    ptx = folder / "unit.ptx"
    ok, log = run([*common, "--ptx", str(source), "-o", str(ptx)])
    if ok and not has_probe(ptx.read_text()):
        return False, NO_PROBE
    return ok, log


def compile_with_nvrtc(library, headers):
    source = includes(headers) + PROBE.read_text()
    ok, log, ptx = nvrtc.compile_program(
        library, source, headers, ["--std=c++20", "-default-device", f"--gpu-architecture={ARCH}"])
    if ok and not has_probe(ptx):
        return False, NO_PROBE
    return ok, log


def has_probe(ptx):
    return ".entry moetail_protocol_probe" in ptx


def main():
    args = compilers.parse(__doc__, ["g++", "clang++", "nvcc", "nvrtc"])
    found, status = compilers.find(args)
    if found is None:
        return status

    headers = room_headers()
    if args.expect_rejection:
        headers |= CONTROL
    if args.compiler == "nvrtc":
        ok, log = compile_with_nvrtc(found, headers)
    else:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for header, text in headers.items():
                (folder / header).parent.mkdir(parents=True, exist_ok=True)
                (folder / header).write_text(text)
            ok, log = (compile_with_nvcc if args.compiler == "nvcc" else compile_on_host)(found, headers, folder)

    if args.expect_rejection:
        refused = not ok and "cstdint" in log
        print(f"{args.compiler}: {'refused <cstdint>, as it must' if refused else 'did not refuse <cstdint>'}\n{log}")
        return 0 if refused else 1
    print(f"{args.compiler}: {len(headers)} headers {'compiled' if ok else 'did not compile'}\n{'' if ok else log}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
