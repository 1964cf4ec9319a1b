"""Writes npy_headers.tsv: what numpy writes in front of arrays of the types in `src/asdf/npy.rs`'s tests.

    python3 npy_headers.py > npy_headers.tsv        # recorded with numpy 2.4.6 on Python 3.11

Columns: name of the case, shape, F or C, header as hexadecimal digits; of long headers its first 12 bytes, its length and its
64-bit FNV-1a hash instead.
"""
import io
import warnings

import numpy as np
from numpy.lib import _format_impl as npy

warnings.simplefilter("ignore")
LONG = 2000


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def row(case, descr, shape=(3, 4), order="C"):
    descr = npy.dtype_to_descr(np.dtype(descr))
    raw_row(case, descr, shape, order)


def raw_row(case, descr, shape=(3, 4), order="C"):
    out = io.BytesIO()
    npy._write_array_header(out, {"descr": descr, "fortran_order": order == "F", "shape": shape})
    header = out.getvalue()
    text = header.hex()
    if len(header) > LONG:
        text = f"{header[:12].hex()} {len(header)} {fnv(header):016x}"
    print(case, ",".join(map(str, shape)), order, text, sep="\t")


NAMES = {"int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
         "float16": "f2", "float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16", "bool8": "b1",
         "[ascii,0]": "S0", "[ascii,5]": "S5", "[ucs4,0]": "U0", "[ucs4,3]": "U3"}
for name, code in NAMES.items():
    row(name + " little", "<" + code)
    row(name + " big", ">" + code)
for shape in [(), (3,), (0,), (1, 2, 3), (2**62, 1), (7,) * 32]:
    row("float64 little", "<f8", shape)
    row("float64 little", "<f8", shape, "F")

row("nested", [("a", "<f4"), ("b", ">i2", (2, 3)), ("c", [("d", "S3"), ("e", "<U2", (4,))], (2,)), ("f", "?")])
row("empty", [])
row("zero", [("a", "u1", (0,)), ("b", "S0"), ("c", [])])
row("unnamed", [("", "<f4"), ("x", "<f4"), ("", [("", "u1")])])

# Names; numpy has no dtype for the last ones, whose header is that of the names we give.
QUOTED = ["it's", 'say "x"', "it's \"x\"", "back\\slash", "tab\tnewline\nreturn\rescape\x1bnul\0delete\x7f", "%s {}", "f0"]
row("quoted", [(name, "u1") for name in QUOTED])
LATIN = ["é", "\xa0", "\x80\x9f\xad", "ÿ'"]
row("latin", [(name, "u1") for name in LATIN])
UNICODE = ["日本", "e\u0301", "\u200b\u2028\ue000\ud7ff", "\U0001f52d", "\U000e0001", "\u0378", "\ufeff"]
row("unicode", [(name, "u1") for name in UNICODE])
raw_row("twice", [(name, "|u1") for name in ["x", "x_2", "x_3", "x_4", "f4_2", "f5", "f4"]])

# Lengths on both sides of what version 1.0 can hold; 20 bytes a field.
for count in range(3268, 3276):
    row(f"fields {count}", [(f"n{i:06d}", "u1") for i in range(count)])
row("unicode fields 6000", [(f"ñ{i:05d}", "u1") for i in range(3000)] + [(f"ω{i:05d}", "u1") for i in range(3000)])
