# SPDX-License-Identifier: Apache-2.0
"""What the compile checks have in common: the flags that say where CUDA may be, and the compiler or why there is none."""
import argparse
import shutil

import nvrtc

SKIPPED = 77


def parse(doc, choices):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("compiler", choices=choices)
    parser.add_argument("--expect-rejection", action="store_true")
    parser.add_argument("--cuda-bin", help="where nvcc may be, besides PATH")
    parser.add_argument("--cuda-lib", help="where libnvrtc.so may be, besides the loader's path")
    parser.add_argument("--required", action="store_true", help="a compiler that is not installed is a failure")
    return parser.parse_args()


def find(args):
    """The compiler, NVRTC as a library; where it is not installed, an exit status in its place."""
    if args.compiler == "nvrtc":
        found = nvrtc.load(args.cuda_lib)
    else:
        found = shutil.which(args.compiler) or (shutil.which(args.compiler, path=args.cuda_bin) if args.cuda_bin else None)
    if found is None:
        print(f"skipped: {args.compiler} is not installed on this machine")
        return None, 1 if args.required else SKIPPED
    return found, 0
