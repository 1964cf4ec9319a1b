"""Makes the payloads in this directory with the reference libraries.

    python -m pip install lz4 zstandard blosc blosc2 numpy && python make.py

The tests compute the decoded bytes again by the same formula (`pattern` in src/codec/chunked.rs).
"""
import lzma
import struct
import subprocess
from pathlib import Path

import blosc
import blosc2
import lz4.frame
import numpy as np
import zstandard

HERE = Path(__file__).parent


def pattern(size):
    n = np.arange(-(-size // 2), dtype=np.uint32)
    outlier = (n * np.uint32(2654435761)) >> np.uint32(20)
    value = n // 64 ^ np.where(n % 499 == 0, outlier, 0).astype(np.uint32)
    return value.astype("<u2").tobytes()[:size]


def save(name, payload):
    (HERE / name).write_bytes(payload)


def lz4_frames():
    data = pattern(270_001)
    small = lz4.frame.BLOCKSIZE_MAX64KB
    save("linked.lz4", lz4.frame.compress(data))
    save("linked_sums.lz4", lz4.frame.compress(data, block_checksum=True, content_checksum=True, store_size=False))
    save("apart.lz4", lz4.frame.compress(data, block_linked=False, block_size=small))
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    parts = [lz4.frame.compress(part, block_linked=False, block_size=small, content_checksum=True, block_checksum=True)
             for part in (data[:100_000], b"", data[100_000:])]
    save("frames.lz4", skippable.join(parts))
    # Flushed in the middle: a block that is not full.
    c = lz4.frame.LZ4FrameCompressor(block_linked=False, block_size=small, auto_flush=True)
    save("short.lz4", c.begin() + c.compress(data[:100_000]) + c.compress(data[100_000:]) + c.flush())


def zstd_frames():
    data = pattern(270_001)
    save("single.zst", zstandard.ZstdCompressor().compress(data))
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()          # no content size
    save("unsized.zst", stream.compress(data) + stream.flush())
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    parts = [zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data[at:at + 100_000])
             for level, at in ((3, 0), (19, 100_000), (1, 200_000))]
    save("frames.zst", skippable.join(parts))
    # The seekable format: frames of unknown size with a table behind them.
    parts, table = [], b""
    for at in range(0, len(data), 70_000):
        part = data[at:at + 70_000]
        stream = zstandard.ZstdCompressor().compressobj()
        parts.append(stream.compress(part) + stream.flush())
        table += struct.pack("<II", len(parts[-1]), len(part))
    table += struct.pack("<IBI", len(parts), 0, 0x8F92EAB1)
    save("seekable.zst", b"".join(parts) + struct.pack("<II", 0x184D2A5E, len(table)) + table)


def xz_streams():
    data = pattern(270_001)
    save("single.xz", lzma.compress(data, check=lzma.CHECK_CRC64))
    blocks = subprocess.run(["xz", "--block-size=100000", "-T1", "-c"], input=data, capture_output=True, check=True)
    save("blocks.xz", blocks.stdout + bytes(8))          # stream padding
    save("streams.xz", lzma.compress(data[:100_000]) + lzma.compress(data[100_000:]))


def chunks(name, records):
    """Chunks one after the other, each behind its length and that of the data."""
    save(name, b"".join(struct.pack("<II", len(chunk), size) + chunk for size, chunk in records))


def blosc1_chunks():
    records = []
    blosc.set_blocksize(2048)
    blosc.set_nthreads(1)                # blocks in order
    for codec in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in (blosc.NOSHUFFLE, blosc.SHUFFLE, blosc.BITSHUFFLE):
            for typesize in (1, 2, 4, 8, 9, 12, 17):
                size = 3001 if codec in ("zlib", "lz4hc") else 5003
                records.append((size, blosc.compress(pattern(size), typesize, 5, shuffle, codec)))
    for size, typesize in ((0, 1), (1, 1), (15, 4), (127, 8), (128, 8), (2048, 8), (2049, 8), (4096, 3)):
        records.append((size, blosc.compress(pattern(size), typesize, 5, blosc.SHUFFLE, "zstd")))
    records.append((3000, blosc.compress(pattern(3000), 4, 0)))          # stored
    blosc.set_blocksize(0)
    chunks("blosc1.chunks", records)


def blosc2_chunks():
    f, records = blosc2.Filter, []
    codecs = (blosc2.Codec.BLOSCLZ, blosc2.Codec.LZ4, blosc2.Codec.LZ4HC, blosc2.Codec.ZLIB, blosc2.Codec.ZSTD)

    def add(size, **options):
        options.setdefault("filters_meta", [0] * len(options["filters"]))
        records.append((size, blosc2.compress2(pattern(size), nthreads=1, **options)))

    for codec in codecs:
        for filters in ([f.NOFILTER], [f.SHUFFLE], [f.BITSHUFFLE]):
            for typesize in (1, 4, 7):
                add(3001, codec=codec, filters=filters, typesize=typesize, blocksize=1120)
    for filters in ([f.DELTA], [f.DELTA, f.SHUFFLE], [f.DELTA, f.BITSHUFFLE], [f.SHUFFLE, f.BYTEDELTA],
                    [f.SHUFFLE, f.BITSHUFFLE]):
        for typesize in (1, 2, 4, 8, 16):
            add(4096, codec=codecs[4], filters=filters, typesize=typesize, blocksize=1024)
    add(5000, codec=codecs[4], filters=[f.SHUFFLE], filters_meta=[2], typesize=4, blocksize=2000)
    for splitmode in blosc2.SplitMode:
        add(5000, codec=codecs[1], filters=[f.SHUFFLE], typesize=4, blocksize=2000, splitmode=splitmode)
    for codec in (codecs[1], codecs[2], codecs[4]):
        add(30_000, codec=codec, filters=[f.SHUFFLE], typesize=2, blocksize=8000, use_dict=True)
    add(3000, codec=codecs[4], filters=[f.SHUFFLE], typesize=4, clevel=0)
    add(1, codec=codecs[4], filters=[f.SHUFFLE], typesize=1)
    chunks("blosc2.chunks", records)


def blosc2_specials():
    """Frames with chunks that are runs, and with chunks of their own size; and chunks of constant bytes."""
    for value in (blosc2.SpecialValue.ZERO, blosc2.SpecialValue.NAN, blosc2.SpecialValue.UNINIT, blosc2.SpecialValue.VALUE):
        frame = blosc2.SChunk(chunksize=4000 * 8, cparams={"typesize": 8})
        frame.fill_special(10_000, value, *([3.25] if value == blosc2.SpecialValue.VALUE else []))
        save(f"{value.name.lower()}.b2frame", frame.to_cframe())
    save("constant.b2chunk", blosc2.compress2(np.full(4000, 0x07070701, "<u4"), typesize=4, codec=blosc2.Codec.LZ4,
                                              filters=[blosc2.Filter.SHUFFLE], filters_meta=[0], blocksize=4000))
    frame = blosc2.SChunk(chunksize=60_000, cparams={"typesize": 2, "blocksize": 8000, "nthreads": 1})
    frame.append_data(pattern(200_000)[:60_000])
    for at in range(60_000, 200_000, 60_000):
        frame.append_data(pattern(200_000)[at:at + 60_000])
    save("pattern.b2frame", frame.to_cframe())


if __name__ == "__main__":
    lz4_frames()
    zstd_frames()
    xz_streams()
    blosc1_chunks()
    blosc2_chunks()
    blosc2_specials()
