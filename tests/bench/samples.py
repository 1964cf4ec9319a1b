"""Files to measure with. Each is made once and kept in target/bench/; the writer is independent of the program."""
import bz2
import hashlib
import json
import pathlib
import struct
import sys
import time
import zlib

import blosc
import blosc2
import lz4.block
import lz4.frame
import numpy as np
import zstandard

MIB = 1 << 20
# Where the stored bytes begin in the files of one block.
OFFSET = 4096
HEAD = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n"


def image(size):
    """Bytes of an int16 image: sky, read noise, stars with wings; compresses about as raw frames of a telescope do."""
    width = 4096
    height = size // (2 * width)
    random = np.random.default_rng(4)
    out = np.empty((height, width), "<i2")
    for top in range(0, height, 512):
        rows = min(512, height - top)
        out[top:top + rows] = 1000 + random.normal(0, 9, (rows, width))
    wings = np.exp(-np.hypot(*np.mgrid[-16:17, -16:17]) / 3)
    for _ in range(height * width // 40_000):
        y, x = random.integers(0, max(height - 33, 1)), random.integers(0, width - 33)
        part = out[y:y + 33, x:x + 33]
        part += (wings * random.pareto(1.5) * 400).clip(0, 20000).astype("<i2")[:part.shape[0]]
    return out


def prefixed(chunks, sizes=None):
    """Chunks behind their lengths: big-endian, as Python's lz4 and Abacus have it; with decoded sizes, little-endian."""
    parts = []
    for number, chunk in enumerate(chunks):
        size = struct.pack("<I", sizes[number]) if sizes else b""
        parts.append(struct.pack(">I", len(chunk) + len(size)) + size + chunk)
    return b"".join(parts)


def pieces(data, size):
    return [data[at:at + size] for at in range(0, len(data), size)]


def lz4_python(data):
    parts = pieces(data, 4 * MIB)
    return prefixed([lz4.block.compress(p, store_size=False) for p in parts], [len(p) for p in parts])


def blosc_chunks(data, **options):
    return [blosc.compress(p, typesize=2, cname="zstd", clevel=1, **options) for p in pieces(data, 4 * MIB)]


def cframe(data):
    return blosc2.SChunk(chunksize=4 * MIB, data=data, cparams={"typesize": 2, "codec": blosc2.Codec.ZSTD}, contiguous=True).to_cframe()


# Framing: code in the block header, and how stored bytes are made of decoded ones.
FRAMINGS = {
    "zlib": (b"zlib", lambda d: zlib.compress(d, 6)),
    "bzp2": (b"bzp2", bz2.compress),
    "lz4": (b"lz4\0", lz4_python),
    "lz4 frame": (b"lz4f", lambda d: lz4.frame.compress(d, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)),
    "zstd": (b"zstd", zstandard.ZstdCompressor(3).compress),
    "blsc (Abacus)": (b"blsc", lambda d: prefixed(blosc_chunks(d))),
    "bls2 (cframe)": (b"bls2", cframe),
}


def block(data, size, code=b"\0\0\0\0"):
    head = struct.pack(">HI4sQQQ16s", 48, 0, code, len(data), len(data), size, hashlib.md5(data).digest())
    return b"\xd3BLK" + head


def single(path, framing, size):
    """A file with one image in one block. Returns offset and length of its stored bytes."""
    entry = f"data: !core/ndarray-1.0.0 {{source: 0, datatype: int16, byteorder: little, shape: [{size // 8192}, 4096]}}\n"
    tree = (HEAD + entry + "...\n").ljust(OFFSET - 54)
    offset = OFFSET
    if not path.exists():
        data = image(size).tobytes()
        code, encode = FRAMINGS.get(framing, (b"\0\0\0\0", bytes))
        stored = encode(data)
        with open(path.with_suffix(".part"), "wb") as out:
            out.write(tree.encode() + block(stored, size, code))
            out.write(stored)
        path.with_suffix(".part").rename(path)
    return offset, path.stat().st_size - offset


def sixteen(path, size):
    """16 blocks of `size` decoded bytes each, every framing in turn."""
    if path.exists():
        return
    data = image(size).tobytes()
    framings = list(FRAMINGS.values())
    stored = [(code, encode(data)) for code, encode in framings]
    with open(path.with_suffix(".part"), "wb") as out:
        out.write((HEAD + "{}\n...\n").encode())
        for n in range(16):
            code, payload = stored[n % len(stored)]
            out.write(block(payload, size, code))
            out.write(payload)
    path.with_suffix(".part").rename(path)


# The columns of a catalogue: 32 bytes a row, with cells of every width.
COLUMNS = {"flag": "u1", "good": "?", "band": "<i2", "flux": "<f4", "ra": "<f8", "dec": "<f8", "id": "<i8"}
DATATYPES = {"u1": "uint8", "?": "bool8", "<i2": "int16", "<f4": "float32", "<f8": "float64", "<i8": "int64"}


def viewed(path, size):
    """An image and a table of `size` bytes each, the table as one block for each column. Returns where their elements begin."""
    rows = size // 32
    parts = {"image": ("<f4", size // 4), **{name: (code, rows) for name, code in COLUMNS.items()}}
    column = "  - !core/column-1.0.0 {name: %s, data: !core/ndarray-1.0.0 {source: %d, datatype: %s, byteorder: little, shape: [%d]}}\n"
    entry = "image: !core/ndarray-1.0.0 {source: 0, datatype: float32, byteorder: little, shape: [%d, 1024]}\ntable: !core/table-1.0.0\n  columns:\n"
    columns = "".join(column % (name, n, DATATYPES[code], rows) for n, (name, code) in enumerate(COLUMNS.items(), 1))
    at, offsets = OFFSET, {}
    for name, (code, count) in parts.items():
        offsets[name] = at
        at += count * np.dtype(code).itemsize + 54
    if not path.exists():
        random = np.random.default_rng(5)
        with open(path.with_suffix(".part"), "wb") as out:
            out.write((HEAD + entry % (size // 4096) + columns + "...\n").ljust(OFFSET - 54).encode())
            for code, count in parts.values():
                data = random.integers(0, 2, count * np.dtype(code).itemsize, "u1").tobytes()
                out.write(block(data, len(data)))
                out.write(data)
        path.with_suffix(".part").rename(path)
    return offsets


def many_blocks(path, count, index):
    """`count` small blocks, each with an array."""
    entry = "- !core/ndarray-1.0.0 {source: %d, datatype: uint8, byteorder: little, shape: [100]}\n"
    tree = (HEAD + "arrays:\n" + "".join(entry % n for n in range(count)) + "...\n").encode()
    if not path.exists():
        one = block(bytes(100), 100) + bytes(100)
        text = b"#ASDF BLOCK INDEX\n%YAML 1.1\n---\n" + b"".join(b"- %d\n" % (len(tree) + n * len(one)) for n in range(count)) + b"...\n"
        path.write_bytes(tree + one * count + (text if index else b""))


def large_tree(path, size):
    """A tree of `size` bytes as a catalogue has them, and one block."""
    if not path.exists():
        line = "- {id: %08d, name: 'source %d', ra: 150.%06d, dec: 2.%06d, flags: [1, 2, 4]}\n"
        lines = "".join(line % (n, n, n, n) for n in range(size // 85))
        tree = HEAD + "data: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [100]}\nsources:\n" + lines + "...\n"
        path.write_bytes(tree.encode() + block(bytes(100), 100) + bytes(100))


# ---------------------------------------------------------------- what Python does with them, in a process of its own

def blosc_extension(code):
    """Teaches asdf a Blosc framing, as packages for it do: asdf hands over the stored bytes, and a buffer to fill."""
    import asdf

    class Compressor(asdf.extension.Compressor):
        label = code

        def decompress(self, blocks, out, **_options):
            stored = b"".join(blocks)
            whole = np.frombuffer(out, "u1")
            if code == b"bls2":
                whole[:] = np.frombuffer(blosc2.schunk_from_cframe(stored)[:], "u1")
                return len(whole)
            at = done = 0
            while at < len(stored):
                length = int.from_bytes(stored[at:at + 4], "big")
                done += blosc.decompress_ptr(stored[at + 4:at + 4 + length], whole.ctypes.data + done)
                at += 4 + length
            return done

    class Extension(asdf.extension.Extension):
        extension_uri = f"asdf://example.org/{code.decode()}-1.0.0"
        compressors = [Compressor()]

    return Extension()


def read_with_asdf(action, path):
    import io
    import warnings

    import asdf
    warnings.simplefilter("ignore")
    if action in ("blsc", "bls2"):
        asdf.get_config().add_extension(blosc_extension(action.encode()))
    # the first file loads the extensions and schemas, which is not what is measured
    warm = io.BytesIO()
    asdf.AsdfFile({"data": np.zeros(10)}).write_to(warm)
    warm.seek(0)
    asdf.open(warm).close()
    start = time.perf_counter()
    with asdf.open(path, lazy_load=True, memmap=False) as file:
        if action != "open":
            np.asarray(file["data"]).sum(dtype="i8")
        return time.perf_counter() - start


def python_side(action, path):
    """Opens a file, or reads its data (of a Blosc code, if that is the action); prints seconds and peak memory in MiB."""
    seconds = read_with_asdf(action, path)
    status = pathlib.Path("/proc/self/status").read_text()
    print(json.dumps([seconds, int(status.split("VmHWM:")[1].split()[0]) >> 10]))


if __name__ == "__main__":
    python_side(*sys.argv[1:])
