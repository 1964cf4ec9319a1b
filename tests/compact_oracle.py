#!/usr/bin/env python3
"""Compare what `asdf-mount --compact` writes with the file that it was made of, as Python's asdf reads both.

    compact_oracle.py ASDF-MOUNT FOLDER

Files of random arrays, of which some are taken out of the tree: every array that stays has the same type and elements in OUT, the rest of the
tree is the same, OUT has no block more than it needs, and --check finds nothing. The last line says how many: "N passed, M failed".
"""
import pathlib
import random
import re
import subprocess
import sys
import warnings

warnings.simplefilter("ignore")

import asdf
import numpy as np

TYPES = ["u1", "<i2", ">i4", "<f4", ">f8", "<c8", "?", "S5", "<U3", [("p", "<i4"), ("q", ">f8", (2,))]]


def some_array(rnd):
    shape = [rnd.randrange(0, 12) for _ in range(rnd.randrange(1, 4))]
    dtype = np.dtype(rnd.choice(TYPES))
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind in "SU":
        return np.full(shape, "ab", dtype)
    if dtype.kind == "b":
        return np.arange(int(np.prod(shape))).reshape(shape) % 3 == 0
    return np.frombuffer(rnd.randbytes(count).replace(b"\x7f", b"\1").replace(b"\xff", b"\2"), dtype).reshape(shape).copy()


def make(rnd, path):
    """A file of which some blocks are used by nothing. The number of those that are."""
    tree = {f"k{i}": some_array(rnd) for i in range(rnd.randrange(2, 9))}
    tree["view"] = next(iter(tree.values()))[::2]
    tree["deep"] = {"l": [some_array(rnd), {"x": asdf.IntegerType(rnd.getrandbits(90))}], "n": 1}
    file = asdf.AsdfFile(tree)
    for key in tree:
        if key.startswith("k"):
            file.set_array_compression(tree[key], rnd.choice([None, "zlib", "bzp2", "lz4"]))
    if rnd.random() < 0.3:
        file["stream"] = asdf.tags.core.stream.Stream([2], np.float64)
    file.write_to(path, pad_blocks=rnd.random() < 0.5)
    raw = path.read_bytes()
    end = raw.index(b"\n...\n") + 5
    first = raw.index(b"\xd3BLK", end)
    last = raw.rfind(b"#ASDF BLOCK INDEX")
    text = raw[:end].decode()
    for key in [key for key in tree if key.startswith("k")][1:]:
        if rnd.random() < 0.5:
            text = re.sub(rf"\n{key}: !core/ndarray-[\d.]+\n(  .*\n|- .*\n)+", f"\n{key}: gone\n", text)
    blocks = raw[first : last if last > 0 else None]
    if "stream" in file.tree:
        blocks += rnd.randbytes(160).replace(b"\x7f", b"\1").replace(b"\xff", b"\2")
    path.write_bytes(text.encode() + bytes(rnd.choice([0, 100, 20000])) + blocks)
    return len(set(re.findall(r"source: (-?\d+)", text)))


def same(a, b):
    if hasattr(a, "dtype"):
        a, b = np.asarray(a), np.asarray(b)
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    passed, wrong = 0, []
    for seed in range(60):
        rnd = random.Random(seed)
        path, out = folder / f"{seed}.asdf", folder / f"{seed}-out.asdf"
        used = make(rnd, path)
        done = subprocess.run([program, "--compact", out, path], capture_output=True, text=True)
        if done.returncode:
            wrong.append(f"FAIL seed {seed}: {done.stderr}")
            continue
        checked = subprocess.run([program, "--check", out], capture_output=True, text=True)
        with asdf.open(path) as before, asdf.open(out, validate_checksums=True) as after:
            faults = [
                (not same(dict(before.tree), dict(after.tree)), "another tree"),
                (f" ok: {used} blocks" not in checked.stdout or "unused" in checked.stdout, f"{checked.stdout}, {used} blocks wanted"),
                (out.stat().st_size > path.stat().st_size + 200, "it is longer"),
            ]
        faults = [why for is_so, why in faults if is_so]
        wrong += [f"FAIL seed {seed}: {why}" for why in faults]
        passed += not faults
    print("\n".join(wrong))
    print(f"{passed} passed, {len(wrong)} failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
