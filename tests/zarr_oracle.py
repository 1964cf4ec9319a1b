#!/usr/bin/env python3
"""What zarr-python and xarray read of zarr/ in a mount, against the NPY files in arrays/.

    zarr_oracle.py compare MNT     compares each array of MNT, which is mounted with -o zarr
    zarr_oracle.py many MNT        opens zarr/ of all files of MNT as one dataset
    zarr_oracle.py references MNT JSON   compares each array of the references, opened by fsspec, with MNT

One line a difference, or an array that Zarr does not have; the last line is "N equal, N different, N left out".
"""
import csv
import json
import os
import sys
import warnings

import numpy as np
import xarray as xr
import zarr

warnings.simplefilter("ignore")
PLAIN = {"consolidated": True, "mask_and_scale": False, "decode_times": False}


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def check_same(found, want, by):
    """Two arrays have the same shape, bits and type, but for the byte order."""
    found, want = (np.asarray(of).astype(of.dtype.newbyteorder("=")) for of in (found, want))
    if (found.dtype, found.shape, found.tobytes()) != (want.dtype, want.shape, want.tobytes()):
        raise ValueError(f"by {by}: {found.dtype} {found.shape}, or other elements")


def tell(outcomes):
    outcomes = list(outcomes)
    counts = {outcome: sum(found == outcome for found, _ in outcomes) for outcome in ("equal", "different", "left out")}
    for outcome, why in outcomes:
        if outcome != "equal":
            print(f"{outcome}: {why}")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["different"] else 0


def compare(mount):
    files = {row["path"]: row["file"] for row in rows(f"{mount}/info/arrays.tsv")}
    consolidated = zarr.open_group(f"{mount}/zarr", mode="r", use_consolidated=True)
    groups = {}
    for row in rows(f"{mount}/info/zarr.tsv"):
        path, directory = row["path"], row["directory"]
        if directory == "-":
            yield "left out", f"{path}: {row['problem']}"
            continue
        group, name = os.path.split(directory)
        try:
            want = np.load(f"{mount}/{files[path]}")
            if group not in groups:
                groups[group] = xr.open_zarr(f"{mount}/{group}", **PLAIN)
            check_same(zarr.open_array(f"{mount}/{directory}", mode="r")[...], want, "its own metadata")
            check_same(consolidated[directory.removeprefix("zarr/")][...], want, "those of the root")
            check_same(groups[group][name].values, want, "xarray")
            yield "equal", path
        except Exception as error:  # whatever it is, the array can't be read
            yield "different", f"{path}: {type(error).__name__}: {error}"


def many(mount):
    whole = xr.open_mfdataset(f"{mount}/*/zarr/run", engine="zarr")
    names = sorted(os.listdir(mount))
    parts = [np.load(f"{mount}/{name}/arrays/run/flux.npy") for name in names]
    check_same(whole.flux.values, np.concatenate(parts), "xarray")
    assert whole.flux.dims == ("time", "x"), whole
    assert whole.flux.attrs["unit"] == "Jy", whole.flux.attrs
    assert whole.flux.chunks, "read lazily"
    yield "equal", "flux"


def references(mount, file):
    files = {row["path"]: row["file"] for row in rows(f"{mount}/info/arrays.tsv")}
    with open(file) as text:
        keys = json.load(text)["refs"]
    groups = {}
    for row in rows(f"{mount}/info/zarr.tsv"):
        path, node = row["path"], row["directory"].removeprefix("zarr/")
        if f"{node}/.zarray" not in keys:
            yield "left out", path
            continue
        group, name = os.path.split(node)
        try:
            if group not in groups:
                options = {**PLAIN, "consolidated": False, "storage_options": {"fo": file}}
                groups[group] = xr.open_zarr(f"reference://{group}", **options)
            found, want = groups[group][name].values, np.load(f"{mount}/{files[path]}")
            if want.dtype.kind == "U" and (found == want).all():
                found = found.astype(want.dtype)  # xarray makes those of Zarr 2 longer
            check_same(found, want, "reference")
            yield "equal", path
        except Exception as error:  # whatever it is, the array can't be read
            yield "different", f"{path}: {type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(tell(globals()[sys.argv[1]](*sys.argv[2:])))
