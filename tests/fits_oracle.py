#!/usr/bin/env python3
"""The FITS files of a mount, as astropy reads them, against the values that Python's asdf reads.

    fits_oracle.py make FILE           writes a file with arrays and tables of all kinds
    fits_oracle.py compare FILE MNT    compares each file of MNT/fits with FILE, which is mounted there with -o fits
    fits_oracle.py sky TSV MNT         compares coordinates of images in MNT/fits/*.fits with those that a table has

One line a difference; the last line is "N equal, N different". Where fitsverify is installed, it must find nothing.
"""
import pathlib
import shutil
import subprocess
import sys
import urllib.parse
import warnings

import asdf
import numpy as np
from astropy.io import fits

NUMBERS = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 bool complex64 float16"


def make(file):
    from astropy.table import QTable, Table
    from astropy.time import Time
    import astropy.units as u

    tree = {}
    for name in NUMBERS.split():
        for order in "<>":
            array = np.arange(24).reshape(2, 3, 4).astype(name)
            if array.dtype.kind in "iu":
                array.flat[:2] = np.iinfo(name).max, np.iinfo(name).min
            if array.dtype.kind == "f":
                array.flat[:2] = np.nan, np.inf
            tree[name + {"<": "_little", ">": "_big"}[order]] = array.astype(array.dtype.newbyteorder(order))
    tree["fortran"] = np.asfortranarray(np.arange(600, dtype="<u2").reshape(20, 30))
    tree["strided"] = np.arange(10000, dtype=">i2").reshape(100, 100)[::2, ::-3]
    tree["masked"] = np.ma.masked_array(np.arange(5, dtype="u2"), [0, 1, 0, 0, 1])
    tree["scalar"] = np.array(5.0)
    tree["empty"] = np.zeros((0, 3))
    tree["halves"] = np.arange(65536, dtype="<u2").view("<f2")
    tree["long"] = np.arange(300_000, dtype="<f4")
    tree["flux"] = np.arange(5.0) * u.Jy
    tree["record"] = np.array(
        [(i, i / 2, b"ab", "xy", i % 2, 3 + 4j, [[1, 2], [3, i]], i) for i in range(5000)],
        dtype=[("a", "<u2"), ("b", ">f8"), ("s", "S5"), ("u", "<U4"), ("t", "?"), ("c", "<c8"), ("m", "<i4", (2, 2)), ("half", "f2")])
    tree["ones"] = np.array([([1], [b"a"])] * 3, dtype=[("a", "u2", (1,)), ("b", "S1", (1,))])
    tree["rows"] = np.zeros((3, 4), dtype=[("x", "<i8"), ("y", [("z", "<f4"), ("w", "i1")])])
    tree["table"] = Table({"x": np.arange(4, dtype="u4"), "name": ["a", "bb", "ccc", "d"], "y": np.arange(8.0).reshape(4, 2)})
    tree["table"]["y"].unit = "km"
    tree["quantities"] = QTable({"q": np.arange(4.0) * u.m, "when": Time(["2020-01-01"] * 4)})
    tree["a.fits"] = {"z": np.arange(3)}
    tree["all"] = {
        "data": np.arange(6.0).reshape(2, 3), "err": np.arange(6, dtype="f2").reshape(2, 3), "z": np.arange(3) * 1j,
        "record": tree["record"], "table": Table({"x": [1, 2]}), "q": np.arange(3.0) * u.km, "text": np.array([b"ab"]), "in": {"y": np.arange(2)},
        "list": [np.arange(2), np.arange(3)], "meta": {"number": 5, "deep": {"text": "it's " * 50, "none": None, "truth": True, "float": 0.1}},
    }
    tree["a"] = np.arange(3)
    asdf.AsdfFile(tree).write_to(file, all_array_compression="lz4")


def at(tree, path):
    """What stands at a path of the tree. Masks are those of masked arrays."""
    for step in path.split("/"):
        step = urllib.parse.unquote(step)
        if hasattr(tree, "dtype"):
            tree = np.ma.getmaskarray(tree[...])
        elif isinstance(tree, list):
            tree = tree[int(step)]
        else:
            tree = tree[step] if step in tree else {str(key): value for key, value in tree.items()}[step]
    return tree


def same(found, wanted):
    """Whether a column or image has these values. astropy has no arrays without
    elements, strings as text, and columns of int8 as float64. FITS has no float16."""
    wanted = np.ma.getdata(np.asanyarray(wanted))
    if found is None:
        return wanted.size == 0
    found = np.asarray(found)
    if wanted.dtype.kind == "S":
        wanted = np.char.decode(wanted, "ascii")
    if found.dtype.kind == "S":
        found = np.char.decode(found, "ascii")
    if wanted.dtype.kind == "b" and found.dtype.kind == "u":
        wanted = wanted.astype("u1")
    if wanted.dtype.newbyteorder("=") == "f2":
        return found.dtype == ">f4" and np.array_equal(found.view(">u4"), wanted.astype(">f4").view(">u4"))
    if wanted.dtype == "i1" and found.dtype == "f8":
        found = found.astype("i1")
    kinds = {found.dtype.kind, wanted.dtype.kind}
    sizes = found.dtype.itemsize == wanted.dtype.itemsize or kinds == {"U"}
    return sizes and len(kinds) == 1 and found.shape == wanted.shape and np.array_equal(found, wanted, equal_nan=kinds <= set("fc"))


def leaves(array, name=""):
    """The columns of a structured array, those of inner structures too."""
    for field in array.dtype.names:
        inner = array[field]
        if inner.dtype.names and inner.shape == array.shape:
            yield from leaves(inner, f"{name}{field}_")
        else:
            yield f"{name}{field}", inner


def columns(value):
    """The columns of a structured array or of a table of the tree."""
    if isinstance(value, dict):
        names = value.get("colnames", [])
        for n, column in enumerate(value["columns"]):
            data = column.get("data", column.get("value")) if isinstance(column, dict) else column
            yield (column.get("name") if isinstance(column, dict) else None) or names[n], data, column.get("unit")
    else:
        yield from ((name, data, None) for name, data in leaves(value.reshape(-1)))


def differences(hdus, value, left_out):
    if "re" in hdus:
        for part in ("re", "im"):
            wanted = np.atleast_1d(getattr(np.asanyarray(value), {"re": "real", "im": "imag"}[part]))
            if not same(hdus[part].data, wanted):
                yield f"{part}: {hdus[part].data!r} instead of {wanted!r}"
        return
    if len(hdus) == 1:
        data = hdus[0].data
        if not same(data, np.atleast_1d(np.asanyarray(value))):
            yield f"{data!r} instead of {value!r}"
        return
    wanted = {name: (data, unit) for name, data, unit in columns(value) if name not in left_out}
    if list(wanted) != hdus[1].columns.names:
        yield f"columns {hdus[1].columns.names} instead of {list(wanted)}"
        return
    for name, (data, unit) in wanted.items():
        if not same(hdus[1].data[name], data):
            yield f"{name}: {hdus[1].data[name]!r} instead of {data!r}"
        if unit is not None and str(unit) != hdus[1].columns[name].unit:
            yield f"{name}: unit {hdus[1].columns[name].unit} instead of {unit}"


def is_directory(value):
    """Whether it stands for all that it holds: it is no array, and no table."""
    return isinstance(value, list) or isinstance(value, dict) and "columns" not in value


def of_directory(hdus, tree, path, rows):
    """The differences of the file of a directory: its extensions are the arrays and tables in it, those of quantities too."""
    directory = at(tree, path)
    keys = [str(key) for key in (directory if isinstance(directory, dict) else range(len(directory)))]
    names = [urllib.parse.unquote(row["path"].removeprefix(path + "/")) for row in rows]
    wanted = {}
    for row, name in zip(rows, names):
        if row["path"].startswith(path + "/") and row["file"] != "-":
            value = at(tree, row["path"])
            key = name.removesuffix("/value") if name.endswith("/value") and "unit" in at(tree, row["path"].removesuffix("/value")) else name
            if key in keys and not is_directory(value):
                wanted[key] = value, row["path"]
    extensions = list(hdus[1:])
    for key in sorted(wanted, key=keys.index):
        value, own = wanted[key]
        is_table = isinstance(value, dict) or np.asanyarray(value).dtype.names
        parts = [extensions.pop(0) for _ in range(2 if not is_table and np.iscomplexobj(value) else 1)]
        left_out = {row["path"].removeprefix(own + "/") for row in rows if row["file"] == "-" and row["path"].startswith(own + "/")}
        if len(parts) == 2:
            parts = {0: None, "re": parts[0], "im": parts[1]}
        for difference in differences([None, *parts] if is_table else parts, value, left_out):
            yield f"{key}: {difference}"
    for extension in extensions:
        yield f"{extension.name} too many"


def compare(file, mnt):
    mnt = pathlib.Path(mnt)
    verify = shutil.which("fitsverify")
    head, *rows = [line.split("\t") for line in (mnt / "info/fits.tsv").read_text().rstrip("\n").split("\n")]
    rows = [dict(zip(head, row)) for row in rows]
    counts = [0, 0]
    with warnings.catch_warnings(), asdf.config_context() as config:
        warnings.simplefilter("ignore")
        # without those of astropy, tables are the mappings that they are in the tree
        for package in {extension.package_name for extension in config.extensions} - {None, "asdf", "asdf-compression", "asdf_compression"}:
            config.remove_extension(package=package)
        with asdf.open(file, memmap=False, lazy_load=True) as opened:
            for row in rows:
                if row["file"] == "-":
                    continue
                name = mnt / row["file"]
                prefix = row["path"] + "/"
                left_out = {other["path"].removeprefix(prefix) for other in rows if other["file"] == "-" and other["path"].startswith(prefix)}
                found = [] if name.stat().st_size == int(row["bytes"]) else ["another size"]
                try:
                    value = at(opened.tree, row["path"])
                    with fits.open(name, memmap=False, uint=True, character_as_bytes=False) as hdus:
                        if is_directory(value):
                            found += of_directory(hdus, opened.tree, row["path"], rows)
                        else:
                            found += differences(hdus, value, left_out)
                except Exception as error:
                    found.append(f"{type(error).__name__}: {error}")
                if verify and subprocess.run([verify, "-e", "-q", name], capture_output=True).returncode:
                    found.append(subprocess.run([verify, name], capture_output=True, text=True).stdout)
                for difference in found:
                    print(f"{row['file']}: {difference}")
                counts[bool(found)] += 1
    print(f"{counts[0]} equal, {counts[1]} different")
    return counts[1]


def sky(table, mnt):
    """Each image that has the shape of SCI has the coordinates of the table, and others have none."""
    from astropy.wcs import WCS

    head, *rows = [line.split("\t") for line in pathlib.Path(table).read_text().rstrip("\n").split("\n")]
    different = 0
    for name in sorted({row[0] for row in rows}):
        of_image = np.array([row[1:] for row in rows if row[0] == name], float)
        most, x, y, longitude, latitude = of_image.T
        with fits.open(pathlib.Path(mnt) / f"fits/{name}.fits", memmap=True) as hdus:
            for hdu in hdus[1:]:
                if hdu.shape != hdus["SCI"].shape:
                    different += "CTYPE1" in hdu.header
                    continue
                found = WCS(hdu.header).all_pix2world(x, y, 0)
                away = np.hypot((found[0] - longitude) * np.cos(np.deg2rad(latitude)), found[1] - latitude)
                if not (away <= most).all():
                    print(f"{name}: {hdu.name}: {away.max()} degrees instead of {most.max()}")
                    different += 1
    print(f"{different} different")
    return different


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", file]:
            make(file)
        case ["compare", file, mnt]:
            sys.exit(compare(file, mnt) > 0)
        case ["sky", table, mnt]:
            sys.exit(sky(table, mnt) > 0)
        case _:
            sys.exit(__doc__)
