#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every include line of every room against the one direction of the house (CONTRIBUTING.md, "Rooms").

An include of ours is written in quotes from the room down ("protocol/shape.hpp"), except the door's, which may also be
written <moetail/...>. `--self-test` runs the check on includes that it must catch and on some that it must let through.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCE_SUFFIXES = {".hpp", ".h", ".cpp", ".c", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Room -> folder in the tree and what it may include, as prefixes of include names; a name with a suffix is one header.
# Its own room is always allowed. The order decides which room a file belongs to: the longest folder first.
BELOW = ("protocol/", "base/")
ENGINE = ("engine/call.hpp", "engine/group.hpp")
RUNTIME_BELOW = (*BELOW, "engine/", "transport/", "io/", "moetail/")
USERS = (*BELOW, "moetail/", "verify/", "io/", "engine/cpu/ceilings.hpp", "engine/cpu/arith.hpp",
         "engine/cuda/info.hpp")
ROOMS = {
    "engine/cpu": ("src/engine/cpu", (*BELOW, *ENGINE)),
    "engine/cuda": ("src/engine/cuda", (*BELOW, *ENGINE, "device/", "kernels/")),
    "engine": ("src/engine", BELOW),
    "kernels": ("src/kernels", (*BELOW, "device/")),
    "device": ("src/device", ("protocol/",)),
    "protocol": ("src/protocol", ()),
    "base": ("src/base", ()),
    "io": ("src/io", ("base/",)),
    "transport": ("src/transport", BELOW),
    "runtime": ("src/runtime", RUNTIME_BELOW),
    "moetail/device": ("include/moetail/device", ("protocol/", "device/")),
    "moetail": ("include/moetail", BELOW),
    "verify/explore": ("verify/explore", ("protocol/",)),
    "verify": ("verify", (*BELOW, "engine/cpu/hooks.hpp")),
    "cli": ("cli", (*USERS, "bench/")),
    # Drives the device by itself, beside the library: probes and a baseline that the door has no place for.
    "bench/cuda": ("bench/cuda", (*USERS, "engine/cuda/", "kernels/", "device/")),
    # The micro-benchmarks time the memory policy by itself.
    "bench": ("bench", (*USERS, "engine/cpu/memory.hpp")),
    "tests": ("tests", ("",)),
    "examples": ("examples", ("moetail/",)),
}
# The protocol room is compiled where there is no standard library.
NO_SYSTEM_INCLUDES = {"protocol", "device"}


def room_of(path):
    """The room that holds `path` (relative to the root, with slashes), or None."""
    for room, (folder, _) in ROOMS.items():
        if path.startswith(folder + "/"):
            return room
    return None


def is_ours(name):
    return any(name.startswith(room + "/") for room in ROOMS)


def included_room(name):
    """The room that an include names. A room inside another's folder (engine/cpu) stands before it in the table."""
    return next((room for room in ROOMS if name.startswith(room + "/")), None)


def check_line(path, line):
    """Why the include on `line` of the file `path` is not allowed, or None."""
    match = INCLUDE.match(line)
    room = room_of(path)
    if not match or room is None:
        return None
    bracket, name = match.groups()
    allowed = ROOMS[room][1]
    if bracket == "<" and not is_ours(name):
        return f"{room} includes nothing from outside itself" if room in NO_SYSTEM_INCLUDES else None
    if bracket == "<" and not name.startswith("moetail/"):
        return "a header of ours is included in quotes"
    if ".." in name.split("/") or not is_ours(name):
        return "an include starts with the name of a room"
    if included_room(name) != room and not any(name == prefix or (prefix.endswith("/") or not prefix) and name.startswith(prefix)
                                               for prefix in allowed):
        return f"{room} may include {', '.join((room + '/', *allowed))}"
    return None


def check_tree(root):
    """Returns (number of files read, list of complaints)."""
    complaints, num_files = [], 0
    for folder in sorted({folder.split("/")[0] for folder, _ in ROOMS.values()}):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SOURCE_SUFFIXES:
                continue
            num_files += 1
            name = path.relative_to(root).as_posix()
            if room_of(name) is None:
                complaints.append(f"{name}: in no room of the table")
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                reason = check_line(name, line)
                if reason:
                    complaints.append(f"{name}:{number}: {line.strip()}: {reason}")
    return num_files, complaints


WRONG = [
    ("src/protocol/ring.hpp", '#include "base/error.hpp"'),
    ("src/protocol/ring.hpp", "#include <cstdint>"),
    ("src/base/log.hpp", '#include "protocol/shape.hpp"'),
    ("src/io/safetensors.cpp", '#include "protocol/shape.hpp"'),
    ("src/engine/cpu/front.cpp", '#include "transport/host.hpp"'),
    ("src/engine/cpu/front.cpp", '#  include "runtime/world.hpp"'),
    ("src/engine/cpu/front.cpp", '#include "hooks.hpp"'),
    ("src/engine/cpu/front.cpp", '#include "../../transport/host.hpp"'),
    ("src/engine/cpu/front.cpp", "#include <transport/host.hpp>"),
    ("src/engine/cuda/stream.cpp", '#include "engine/cpu/stream.hpp"'),
    ("src/engine/cuda/cache.cpp", '#include "io/atomic_file.hpp"'),
    ("src/engine/group.hpp", '#include "engine/cpu/group.hpp"'),
    ("src/kernels/front.cuh", '#include "engine/cuda/kernel.hpp"'),
    ("src/device/pack.cuh", '#include "kernels/tail_args.hpp"'),
    ("src/device/pack.cuh", "#include <cuda_bf16.h>"),
    ("src/transport/host.cpp", '#include "engine/cpu/hooks.hpp"'),
    ("src/runtime/world.cpp", '#include "verify/oracle.hpp"'),
    ("include/moetail/moetail.hpp", '#include "runtime/world.hpp"'),
    ("include/moetail/moetail.hpp", '#include "device/publisher.hpp"'),
    ("include/moetail/device/publish.cuh", '#include "kernels/view.hpp"'),
    ("verify/explorer.cpp", '#include "engine/cpu/arith.hpp"'),
    ("verify/oracle.cpp", '#include "moetail/moetail.hpp"'),
    ("verify/explore/model.cpp", '#include "verify/oracle.hpp"'),
    ("cli/run.cpp", '#include "engine/cpu/memory.hpp"'),
    ("cli/run.cpp", '#include "runtime/world.hpp"'),
    ("bench/onednn.cpp", '#include "cli/options.hpp"'),
    ("examples/engine.cpp", '#include "base/error.hpp"'),
]
RIGHT = [
    ("src/protocol/ring.hpp", '#include "protocol/words.hpp"'),
    ("src/base/error.hpp", "#include <fmt/format.h>"),
    ("src/io/safetensors.cpp", '#include "base/error.hpp"'),
    ("src/engine/cpu/front.cpp", '#include "protocol/mailbox.hpp"'),
    ("src/engine/cpu/group.hpp", '#include "engine/group.hpp"'),
    ("src/engine/cuda/box_memory.hpp", '#include "kernels/args.hpp"'),
    ("src/kernels/front.cuh", '#include "device/pack.cuh"'),
    ("src/runtime/world.cpp", '#include "engine/cpu/front.hpp"'),
    ("src/runtime/c_api.cpp", '#include "moetail/moetail.h"'),
    ("include/moetail/moetail.hpp", '#include "protocol/shape.hpp"'),
    ("include/moetail/device/publish.cuh", '#include "device/publisher.hpp"'),
    ("examples/engine.cu", "#include <moetail/device/publish.cuh>"),
    ("verify/explorer.cpp", '#include "engine/cpu/hooks.hpp"'),
    ("cli/run.cpp", '#include "engine/cpu/ceilings.hpp"'),
    ("tests/ring_test.cpp", '#include "runtime/world.hpp"'),
    ("examples/engine.cpp", "#include <moetail/moetail.hpp>"),
    ("examples/engine.cpp", "// #include \"base/error.hpp\""),
]


def self_test():
    failures = [f"not caught: {path}: {line}" for path, line in WRONG if check_line(path, line) is None]
    failures += [f"wrongly caught: {path}: {line}: {check_line(path, line)}"
                 for path, line in RIGHT if check_line(path, line) is not None]
    print("\n".join(failures)
          or f"layer check: {len(WRONG)} wrong includes caught, {len(RIGHT)} right ones let through")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        return self_test()
    num_files, complaints = check_tree(ROOT)
    print("\n".join(complaints) or f"layer check: {num_files} files keep the direction")
    return 1 if complaints or not num_files else 0


if __name__ == "__main__":
    sys.exit(main())
