#!/usr/bin/env python3
"""Writes sky.asdf, and places in the sky of its images by gwcs to sky.tsv.

    sky.py          needs gwcs 1.0, asdf-astropy 0.11 and roman_datamodels 1.2 beside asdf

Each directory of sky.asdf has the form of a product of Roman: `l2` of a rate image, with distortion, velocity aberration and the
way from the telescope to the sky; `l3` of a mosaic; `bent` has a distortion that no polynomial of degree 5 follows; `odd` a transform
that is not known. Their planes have a single number each, by strides of 0. Where what is written is worth 1 pixel, sky.tsv has it.
"""
import hashlib
import io
import pathlib
import re
import struct
import tempfile

import asdf
import astropy.units as u
import numpy as np
from astropy.coordinates import ICRS
from astropy.modeling import models as m
from gwcs import WCS, coordinate_frames as cf
from gwcs.geometry import CartesianToSpherical, SphericalToCartesian

HERE = pathlib.Path(__file__).parent
PIXELS = cf.Frame2D(name="detector", axes_order=(0, 1), unit=(u.pix, u.pix))
SKY = cf.CelestialFrame(name="world", reference_frame=ICRS(), unit=(u.deg, u.deg))


def vectors(name):
    return cf.Frame2D(name=name, axes_order=(0, 1), axes_names=("v2", "v3"), unit=(u.arcsec, u.arcsec))


def telescope(size, v2, v3, ra, dec, roll, order, strength, seed):
    """A camera of 0.11 seconds of arc a pixel, whose distortion has random coefficients."""
    rng = np.random.default_rng(seed)

    def polynomial(x, y):
        found = m.Polynomial2D(order)
        for i in range(order + 1):
            for j in range(order + 1 - i):
                k = i + j
                if k > 1:
                    setattr(found, f"c{i}_{j}", strength * rng.normal() * 0.11 / (size / 2) ** k)
        found.c1_0, found.c0_1 = x, y
        return found

    distortion = m.Mapping((0, 1, 0, 1)) | polynomial(0.055, -0.096) & polynomial(0.095, 0.054)
    middle = -(size - 1) / 2
    detector = m.Shift(middle) & m.Shift(middle) | distortion | m.Shift(v2) & m.Shift(v3)
    detector.bounding_box = ((-0.5, size - 0.5), (-0.5, size - 0.5))
    aberration = m.Scale(1.0000301) & m.Scale(1.0000301) | m.Shift(0.03) & m.Shift(-0.04)
    turn = m.RotationSequence3D([v2 / 3600, -v3 / 3600, roll, dec, -ra], axes_order="zyxyz")
    degrees = m.Scale(1 / 3600) & m.Scale(1 / 3600)
    to_sky = degrees | SphericalToCartesian(wrap_lon_at=180) | turn | CartesianToSpherical(wrap_lon_at=360)
    steps = [(PIXELS, detector), (vectors("v2v3"), aberration), (vectors("v2v3vacorr"), to_sky), (SKY, None)]
    return WCS(steps)


def mosaic(info):
    scale, matrix = info["pixel_scale_ref"], np.array(info["rotation_matrix"])
    plane = m.Shift(-info["x_ref"]) & m.Shift(-info["y_ref"]) | m.AffineTransformation2D(matrix) | m.Scale(scale) & m.Scale(scale)
    return WCS([(PIXELS, plane | m.Pix2Sky_TAN() | m.RotateNative2Celestial(info["ra_ref"], info["dec_ref"], 180)), (SKY, None)])


BLOCK = struct.pack("<fIeH", 1.0, 7, 1.5, 7)
PLANES = {"float32": 0, "uint32": 4, "float16": 8, "uint16": 10}


def plane(dtype, shape):
    """What stands for an array until its declaration is put in its place."""
    return f"PLANE {dtype} {shape}"


def declared(plane):
    _, dtype, shape = plane[0].split(" ", 2)
    strides = [0] * shape.count(",") + [0]
    return f"!core/ndarray-1.1.0 {{source: 0, datatype: {dtype}, byteorder: little, shape: {shape}, strides: {strides}, offset: {PLANES[dtype]}}}"


def main():
    import roman_datamodels.datamodels as rdm

    size = 4088
    info = {
        "ra_ref": 269.9, "dec_ref": 65.9, "x_ref": 1234.5, "y_ref": -456.25, "pixel_scale": 1.5277777777777777e-05,
        "pixel_scale_ref": 1.5277777777777777e-05, "projection": "TAN", "rotation_matrix": [[-0.9998, 0.02], [0.02, 0.9998]],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "image.asdf"
        rdm.ImageModel.create_fake_data(shape=(8, 8)).save(file)
        meta = asdf.util.load_yaml(file)["roman"]["meta"]
    del meta["wcs"]
    gwcs = {
        "l2": telescope(size, 1312.9, -1040.7, 270.0, 66.0, 60.0, 5, 4.0, 1),
        "l3": mosaic(info),
        "bent": telescope(size, 1312.9, -1040.7, 0.001, -89.0, 60.0, 7, 40.0, 3),
        "odd": WCS([(PIXELS, m.Pix2Sky_ZEA() | m.RotateNative2Celestial(1, 2, 180)), (SKY, None)]),
    }
    halves = ["err", "var_poisson", "var_rnoise", "var_flat", "chisq", "dumo"]
    planes = {"data": "float32", "dq": "uint32"} | dict.fromkeys(halves, "float16")
    tree = {
        name: {
            "meta": {**meta, "filename": name + ".asdf", "title": "it's a long 'title' " * 12, "wcs": wcs}
            | ({"wcsinfo": info} if name == "l3" else {}),
            **{key: plane(dtype, [size, size]) for key, dtype in planes.items()},
            "amp33": plane("uint16", [2, 4096, 128]),
        }
        for name, wcs in gwcs.items()
    }
    for name in ("l3", "bent", "odd"):
        tree[name] = {key: tree[name][key] for key in ("meta", "data")}
    text = io.BytesIO()
    asdf.AsdfFile(tree).write_to(text, all_array_storage="inline", include_block_index=False)
    text = re.sub("PLANE [^\\]]*\\]", declared, text.getvalue().decode())
    head = struct.pack(">4sHI4sQQQ", b"\xd3BLK", 48, 0, bytes(4), *[len(BLOCK)] * 3)
    (HERE / "sky.asdf").write_bytes(text.encode() + head + hashlib.md5(BLOCK).digest() + BLOCK)
    rng = np.random.default_rng(5)
    with open(HERE / "sky.tsv", "w") as out:
        print("directory", "most", "x", "y", "longitude", "latitude", sep="\t", file=out)
        # in degrees: 1e-9 of the mosaic, 0.05 pixels of the image
        for name, most in {"l2": 0.05 * 0.11 / 3600, "l3": 1e-9}.items():
            for _ in range(40):
                x, y = rng.uniform(-0.5, size - 0.5, 2)
                longitude, latitude = gwcs[name](x, y)
                print(name, most, *(repr(float(value)) for value in (x, y, longitude, latitude)), sep="\t", file=out)


if __name__ == "__main__":
    main()
