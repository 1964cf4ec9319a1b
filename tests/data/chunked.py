#!/usr/bin/env python3
"""Writes chunked.asdf, arrays in the internal store of asdf-zarr, and what asdf-zarr reads of them to chunked.tsv.

    chunked.py          needs asdf-zarr 0.0.4, which needs zarr-python 2

Each line of chunked.tsv has the path of an array and the MD5 of the NPY file of its elements. Three arrays can't be shown, and have
none there: of a filter, a compressor and a datatype that are not known.
"""
import hashlib
import io
import pathlib

import asdf
import asdf_zarr  # noqa: F401, without it there are no arrays
import numcodecs
import numpy as np
import zarr

HERE = pathlib.Path(__file__).parent
RAMP = np.arange(77, dtype="<i4").reshape(7, 11)
CUBE = np.random.default_rng(1).integers(0, 9, (5, 6, 7)).astype("<u2")
RECORD = np.dtype([("a", "<i4"), ("b", ">f8", (2,)), ("c", "S3")])
CODECS = {
    "zlib": numcodecs.Zlib(), "bz2": numcodecs.BZ2(), "lz4": numcodecs.LZ4(), "zstd": numcodecs.Zstd(), "lzma": numcodecs.LZMA(),
    "blosc": numcodecs.Blosc("zstd", 5, numcodecs.Blosc.BITSHUFFLE), "gzip": numcodecs.GZip(),
}
FILLS = {
    "nan": ("<f4", np.nan), "infinite": (">f8", -np.inf), "true": ("|b1", True), "complex": ("<c8", 1 - 2j), "bytes": ("|S5", b"ab"),
    "text": ("<U3", "xé"), "half": ("<f2", 1.5), "zero": ("<f8", -0.0), "record": (RECORD, (7, (1.0, 2.0), b"yy")),
}


def made(shape, chunks, dtype, compressor=None, **options):
    return zarr.create(shape, chunks=chunks, dtype=dtype, compressor=compressor, store=zarr.storage.KVStore({}), **options)


def of(array, chunks, **options):
    found = made(array.shape, chunks, array.dtype, **options)
    found[...] = array
    return found


def partly(dtype, fill):
    found = made((6, 5), (4, 2), dtype, fill_value=fill)
    found[:3, 2:4] = np.zeros((3, 2), dtype)
    return found


tree = {
    "plain": of(RAMP, (4, 6)),
    "usual": zarr.array(RAMP, chunks=(4, 6), store=zarr.storage.KVStore({})),
    "fortran": of(RAMP.astype(">f8"), (4, 6), order="F"),
    "wide": of(RAMP, (9, 20)),
    "empty": made((0, 3), (2, 2), "<i4"),
    "absent": made((5, 3), (2, 2), "<i4", fill_value=7),
    "codec": {name: of(CUBE, (2, 3, 7), compressor=codec) for name, codec in CODECS.items()},
    "fill": {name: partly(*kind) for name, kind in FILLS.items()},
    "filtered": of(RAMP, (7, 11), filters=[numcodecs.Delta(dtype="<i4")]),
    "date": of(np.array(["2020-01-01"], "M8[D]"), (1,)),
}
path = HERE / "chunked.asdf"
asdf.AsdfFile(tree).write_to(path)
lines = []
with asdf.open(path) as file:
    for key in tree:
        group = {f"{key}/{name}": array for name, array in file[key].items()} if key in ("codec", "fill") else {key: file[key]}
        for name, array in group.items():
            if name in ("codec/gzip", "filtered", "date"):
                continue
            npy = io.BytesIO()
            np.save(npy, np.array(array[...], order="C"))
            lines.append(f"{name}\t{hashlib.md5(npy.getvalue()).hexdigest()}\n")
(HERE / "chunked.tsv").write_text("".join(lines))
