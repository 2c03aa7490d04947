#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the example's kernels, which are a user's, for every architecture with one CUDA compiler.

They see the headers of include/moetail/device, src/device and src/protocol and no others: nvcc as an installed tree lays them down, NVRTC
from memory. NVRTC also checks the PTX that each access must become and that nothing spills. Exit status: 0 compiled, 1 rejected, 77 the
compiler is not installed. With --expect-rejection a header includes one of the library's own kernels, and 0 means that it was refused.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "protocol_compile"))
import compilers  # noqa: E402
import nvrtc  # noqa: E402

EXAMPLE = ROOT / "examples" / "decode_kernels.cu"
ARCHITECTURES = ("sm_90a", "sm_100a", "sm_103a", "sm_120a")
CONTROL = '#include "kernels/view.hpp"\n'
# Entry -> what its PTX must hold.
EXPECTED = {
    "engine_publish": ("griddepcontrol.wait", "ld.relaxed.sys.global.u64", "st.relaxed.sys.global.v4.u32",
                       "multimem.st.relaxed.sys.global.v4.f32"),
    "engine_fill": ("griddepcontrol.wait", "st.relaxed.sys.global.v4.u32", "st.relaxed.sys.global.u32"),
    "engine_add_output": ("griddepcontrol.wait", "ld.relaxed.sys.global.v4.u32", "st.global.v4.u32"),
}


def room_headers():
    """Include name -> file: what a user's kernel may see."""
    rooms = ((ROOT / "include", "moetail/device/*.cuh"), (ROOT / "src", "device/*.hpp"), (ROOT / "src", "protocol/*.hpp"))
    return {path.relative_to(base).as_posix(): path for base, pattern in rooms for path in sorted(base.glob(pattern))}


def entries_of(ptx):
    """Entry -> its text, the functions that it calls not included."""
    return {match.group(1): match.group(0)
            for match in re.finditer(r"\.visible \.entry (\w+)\(.*?\n}", ptx, re.S)}


def check_ptx(ptx, log):
    entries = entries_of(ptx)
    for entry, texts in EXPECTED.items():
        for text in texts:
            if text not in entries.get(entry, ""):
                return f"{entry} lacks {text}"
    spills = [int(count) for count in re.findall(r"(\d+) bytes spill", log)]
    return f"spills: {spills}" if any(spills) or not spills else ""


def compile_with_nvrtc(library, control):
    headers = {name: path.read_text() for name, path in room_headers().items()}
    source = EXAMPLE.read_text()
    if control:
        headers["moetail/device/publish.cuh"] += CONTROL
    for arch in ARCHITECTURES:
        ok, log, ptx = nvrtc.compile_program(library, source, headers,
                                             ["--std=c++20", "--ptxas-options=-v", f"--gpu-architecture={arch}"])
        complaint = log if not ok else check_ptx(ptx, log)
        if complaint:
            return False, f"{arch}: {complaint}"
    return True, ""


def compile_with_nvcc(compiler, control):
    """Host code too, with all of the door's headers, as an engine's source file has it."""
    with tempfile.TemporaryDirectory() as name:
        prefix = pathlib.Path(name) / "include"
        for folder, to in (("include/moetail", "moetail"), ("src/base", "moetail/base"), ("src/protocol", "moetail/protocol"),
                           ("src/device", "moetail/device")):
            shutil.copytree(ROOT / folder, prefix / to, dirs_exist_ok=True)
        if control:
            with open(prefix / "moetail/device/publish.cuh", "a", encoding="utf-8") as file:
                file.write(CONTROL)
        codes = [f"-gencode=arch=compute_{arch[3:]},code={arch}" for arch in ARCHITECTURES]
        done = subprocess.run([compiler, "-std=c++20", *codes, "-I", str(prefix), "-I", str(prefix / "moetail"), "-c", str(EXAMPLE),
                               "-o", str(pathlib.Path(name) / "unit.o")],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode == 0, done.stdout + done.stderr


def main():
    args = compilers.parse(__doc__, ["nvcc", "nvrtc"])
    found, status = compilers.find(args)
    if found is None:
        return status
    ok, log = (compile_with_nvrtc if args.compiler == "nvrtc" else compile_with_nvcc)(found, args.expect_rejection)
    if args.expect_rejection:
        refused = not ok and "kernels/view.hpp" in log
        print(f"{args.compiler}: {'refused a kernel of the library, as it must' if refused else 'did not refuse it'}\n{log}")
        return 0 if refused else 1
    print(f"{args.compiler}: {EXAMPLE.name} {'compiled for' if ok else 'did not compile for one of'} {', '.join(ARCHITECTURES)}\n{log}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
