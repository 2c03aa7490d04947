#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of both fuzz targets into corpus/ beside this file; the result is committed."""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {"U8": 1, "BF16": 2, "F32": 4, "I32": 4, "F64": 8}


def packed(header, data=b""):
    """Length, header and data. A header that is no text is written as compact JSON."""
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    return struct.pack("<Q", len(text.encode())) + text.encode() + data


def laid_out(tensors, metadata=None):
    """A file of (name, dtype, shape) with bytes that count up (small, so that they are right as map entries)."""
    header = {"__metadata__": metadata} if metadata is not None else {}
    begin = 0
    for name, dtype, shape in tensors:
        size = SIZES[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    return packed(text, bytes(i // 16 % 2 if i % 4 == 0 else 0 for i in range(begin)))


def step(form, ranks=2, weights="F32", residual=False, metadata=None):
    tensors = []
    for rank in range(ranks):
        stem = f"layer.1.rank.{rank}."
        if form == "partial":
            tensors.append((stem + "partial", "BF16", [2, 8]))
        else:
            tensors.append((stem + "rows", "BF16", [4, 8]))
            tensors.append((stem + "weights", weights, [2, 2]))
        if form == "permuted":
            tensors.append((stem + "map", "I32", [2, 2]))
        tensors.append((stem + "shared", "BF16", [2, 16]))
        if residual:
            tensors.append((stem + "residual", "BF16", [2, 16]))
    return laid_out(tensors, metadata)


def one(begin=0, end=4, shape=(4,), dtype="U8"):
    return {"a": {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}}


SAFETENSORS = {
    "no_bytes": b"",
    "no_tensor": packed("{}"),
    "padded": packed("{}      "),
    "one": packed(one(), b"1234"),
    "scalar": packed(one(0, 8, (), "F64"), b"12345678"),
    "empty_tensor": packed(one(0, 0, (0, 3), "F32")),
    "mixed": laid_out([("f", "F64", [1]), ("i", "I32", [3]), ("b", "BF16", [2, 2]), ("u", "U8", [3])], {"k": "v"}),
    "packed_types": packed({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]},
                            "b": {"dtype": "F6_E3M2", "shape": [4], "data_offsets": [1, 4]}}, b"1234"),
    "misaligned": packed({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                          "b": {"dtype": "BF16", "shape": [2], "data_offsets": [1, 5]}}, b"12345"),
    "escapes": packed('{"\\u0061\\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"),
    "long_length": struct.pack("<Q", 2**64 - 1) + b"{}",
    "past_the_end": packed(one(0, 2**63, (2**63,)), b"1234"),
    "overflow": packed(one(0, 0, (2**32, 2**32))),
    "overlap": packed(one() | {"b": one(2, 6)["a"]}, b"123456"),
    "hole": packed(one() | {"b": one(5, 9)["a"]}, b"123456789"),
    "twice": packed('{"a":%s,"a":%s}' % ((json.dumps(one()["a"]),) * 2), b"1234"),
    "deep": packed('{"a":' + "[" * 200),
    "step_rows": step("rows"),
    "step_permuted": step("permuted", weights="BF16", residual=True),
    "step_partial": step("partial", metadata={"top_k": "16", "tp": "2", "eps": "1e-05", "moetail_step": "1"}),
}


def tail(layer, kind, prefix=""):
    return f"{prefix}model.layers.{layer}.block_sparse_moe.routed_expert_{kind}.weight"


def index(entries, **more):
    return json.dumps({**more, "weight_map": entries}).encode()


CHECKPOINT_INDEX = {
    "no_bytes": b"",
    "no_entry": index({}),
    "two_shards": index({tail(1, "up_proj"): "model-00001-of-00002.safetensors",
                         tail(1, "norm"): "model-00002-of-00002.safetensors"}, metadata={"total_size": 12}),
    "prefix": index({tail(1, "up_proj", "language_model."): "a.safetensors", "lm_head.weight": "parts/b"}),
    "leaves": index({tail(1, "up_proj"): "../a.safetensors"}),
    "absolute": index({tail(1, "norm"): "/a"}),
    "nested": index({}, metadata={"weight_map": [1, None, True, {"x": -2.5}]}),
    "wrong_kind": b'{"weight_map":{"a":1}}',
    "deep": b'{"a":' + b"[" * 70,
    "ranges": b"1,3,5-7",
    "tail_name": tail(12, "norm", "language_model.").encode(),
    "step_name": b"layer.3.rank.7.weights",
}


def main():
    for target, seeds in (("safetensors", SAFETENSORS), ("checkpoint_index", CHECKPOINT_INDEX)):
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in seeds.items():
            (folder / name).write_bytes(contents)


if __name__ == "__main__":
    main()
