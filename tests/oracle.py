#!/usr/bin/env python3
"""Write ASDF files with Python's asdf and print what a mount of each has to show.

    oracle.py FOLDER

For each file a line "file NAME", then lines "MD5 PATH" for tree.yaml, blocks and arrays. The expected bytes come from
reading the file again with asdf and numpy.
"""
import hashlib
import pathlib
import sys
import warnings

import asdf
import numpy as np

RANDOM = np.random.default_rng(20260401)
SCALARS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16", "b1", "S7", "U5"]


def values(dtype, shape=(3, 5)):
    raw = RANDOM.integers(1, 100, shape)
    return raw.astype(str).astype(dtype) if dtype[0] in "SU" else raw.astype(dtype)


def image():
    """A field of stars: a smooth sky, its noise, and some bright spots; compresses as real images do."""
    y, x = np.mgrid[0:512, 0:700]
    sky = 1000 + 20 * np.sin(x / 90) + 10 * np.cos(y / 70) + RANDOM.normal(0, 3, x.shape)
    for cy, cx in RANDOM.integers(0, 512, (80, 2)):
        sky += 20000 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 4)
    return sky.astype("<i2")


def files():
    """Name, tree, and options of each file."""
    little = {d: values(d) for d in SCALARS}
    yield "datatypes.asdf", {"little": little, "big": {d: values(d).astype(np.dtype(d).newbyteorder(">")) for d in little}}, {}
    record = np.zeros(7, dtype=[("id", "<i4"), ("place", ">f8", (2,)), ("flag", "?"), ("name", "S3")])
    record["id"], record["place"], record["name"] = range(7), RANDOM.random((7, 2)), b"abc"
    yield "structured.asdf", {"table": record}, {}
    whole = np.arange(1000, dtype="<f8").reshape(10, 100)
    yield "views.asdf", {"whole": whole, "part": whole[2:7, ::3], "turned": whole.T, "back": whole[::-1, ::-1],
                         "fortran": np.asfortranarray(values("i4"))}, {}
    yield "inline.asdf", {"a": values("i8"), "b": values("f8"), "deep": values("f4", (2, 1, 3))}, {"all_array_storage": "inline"}
    yield "nested.asdf", {"roman": {"data": values("f4"), "meta": {"list": [values("i4"), {"deep": values("u1")}]}}}, {"pad_blocks": True}
    for code in ("zlib", "bzp2", "lz4"):
        yield f"{code}.asdf", {"image": image(), "small": values("i4"), "none": np.zeros(0, "i4")}, {"all_array_compression": code}
    yield "many.asdf", {"list": [np.full(k % 7, k, "<i4") for k in range(300)]}, {}
    yield "no_index.asdf", {"a": values("i4"), "b": values("i4")}, {"include_block_index": False}


def arrays(node, path=()):
    """Each array of a tree, with its path."""
    if isinstance(node, dict):
        items = [(k, v) for k, v in node.items() if k not in ("asdf_library", "history")]
    elif isinstance(node, list):
        items = enumerate(node)
    else:
        if hasattr(node, "dtype"):
            yield "/".join(path), np.asarray(node)
        return
    for key, value in items:
        yield from arrays(value, (*path, str(key)))


def text_of(raw):
    """The text part of the file: to the end of the line `...`, or of the comments where there is no tree."""
    return raw[:raw.index(b"\n...\n") + 5]


def md5(data):
    return hashlib.md5(data).hexdigest()


def main():
    folder = pathlib.Path(sys.argv[1])
    warnings.simplefilter("ignore")
    for name, tree, options in files():
        path = folder / name
        asdf.AsdfFile(tree).write_to(path, **options)
        print("file", name)
        print(md5(text_of(path.read_bytes())), "tree.yaml")
        with asdf.open(path, lazy_load=False, memmap=False, validate_checksums=True) as opened:
            for where, array in arrays(opened.tree):
                print(md5(np.ascontiguousarray(array).tobytes()), f"arrays/{where}.bin")
            for number, block in enumerate(opened._blocks.blocks):
                print(md5(np.asarray(block.data).tobytes()), f"blocks/{number}.bin")


if __name__ == "__main__":
    main()
