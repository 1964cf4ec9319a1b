"""Makes the payloads in this directory with the reference libraries.

    python -m pip install lz4 zstandard blosc blosc2 numpy && python make.py

The tests compute the decoded bytes again by the same formula (`pattern` in src/codec/chunked.rs).
"""
import struct
from pathlib import Path

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
    data = pattern(400_001)
    small, large = lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX256KB
    save("linked.lz4", lz4.frame.compress(data))
    save("linked_sums.lz4", lz4.frame.compress(data, block_checksum=True, content_checksum=True, store_size=False))
    save("apart.lz4", lz4.frame.compress(data, block_linked=False, block_size=small))
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    parts = [lz4.frame.compress(part, block_linked=False, block_size=large, content_checksum=True, block_checksum=True)
             for part in (data[:100_000], b"", data[100_000:])]
    save("frames.lz4", skippable.join(parts))
    # Flushed in the middle: a block that is not full.
    c = lz4.frame.LZ4FrameCompressor(block_linked=False, block_size=small, auto_flush=True)
    save("short.lz4", c.begin() + c.compress(data[:100_000]) + c.compress(data[100_000:]) + c.flush())


def zstd_frames():
    data = pattern(400_001)
    save("single.zst", zstandard.ZstdCompressor().compress(data))
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()          # no content size
    save("unsized.zst", stream.compress(data) + stream.flush())
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    parts = [zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data[at:at + 100_000])
             for level, at in ((3, 0), (19, 100_000), (1, 200_000), (3, 300_000), (3, 400_000))]
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


if __name__ == "__main__":
    lz4_frames()
    zstd_frames()
