"""FILE itself: made by hand, and parsed strictly, by no code of the program under test; and the filesystems that it lies on."""
import bz2
import contextlib
import hashlib
import pathlib
import re
import struct
import subprocess
import zlib
from dataclasses import dataclass

import lz4.block
import yaml
import zstandard

MAGIC = b"\xd3BLK"
HEADER = ">I4sQQQ16s"
INDEX = b"#ASDF BLOCK INDEX"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAKE = {"ext4": (64 << 20, ["mkfs.ext4", "-q", "-F"]), "xfs": (300 << 20, ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"]),
        "btrfs": (256 << 20, ["mkfs.btrfs", "-q", "-f"])}


class Odd(Exception):
    """FILE is not what a strict reader takes."""


@dataclass
class Block:
    """A block: its decoded bytes, and what its header says."""
    data: bytes
    code: str = ""
    summed: bool = True
    streamed: bool = False


def lz4_encode(data):
    pieces = [lz4.block.compress(data[at:at + (1 << 22)]) for at in range(0, len(data), 1 << 22)]
    return b"".join(struct.pack("!I", len(piece)) + piece for piece in pieces)


def lz4_decode(data):
    out, at = [], 0
    while at < len(data):
        length, = struct.unpack_from("!I", data, at)
        out.append(lz4.block.decompress(data[at + 4:at + 4 + length]))
        at += 4 + length
    return b"".join(out)


ENCODE = {"": bytes, "zlib": zlib.compress, "bzp2": bz2.compress, "lz4": lz4_encode, "zstd": zstandard.compress}
DECODE = {"": bytes, "zlib": zlib.decompress, "bzp2": bz2.decompress, "lz4": lz4_decode,
          "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)}


def stored_block(block):
    stored = ENCODE[block.code](block.data)
    sizes = (0, 0, 0) if block.streamed else (len(stored), len(stored), len(block.data))
    checksum = hashlib.md5(stored).digest() if block.summed and not block.streamed else bytes(16)
    code = block.code.encode().ljust(4, b"\0")
    return MAGIC + struct.pack(">H", 48) + struct.pack(HEADER, block.streamed, code, *sizes, checksum) + stored


def make(text, blocks, padding, pad=b"\0", index=True):
    """The bytes of a file."""
    out, offsets = bytearray(text + pad * padding), []
    for block in blocks:
        offsets.append(len(out))
        out += stored_block(block)
    if index and blocks and not blocks[-1].streamed:
        out += INDEX + b"\n%YAML 1.1\n---\n" + b"".join(b"- %d\n" % offset for offset in offsets) + b"...\n"
    return bytes(out)


def parse(raw):
    """Text and blocks of a file, all of it accounted for."""
    end = re.search(rb"\n\.\.\.(\r?\n|$)", raw)
    if not end:
        raise Odd("no tree ends")
    text, first = raw[:end.end()], raw.find(MAGIC, end.end())
    padding = raw[end.end():] if first < 0 else raw[end.end():first]
    if padding.strip(b" \0"):
        raise Odd(f"in the padding stands {padding.strip(bytes(1))[:60]!r}")
    if first < 0:
        return text, []
    blocks, offsets, at = [], [], first
    while raw[at:at + 4] == MAGIC:
        offsets.append(at)
        block, at = parse_block(raw, at, len(blocks))
        blocks.append(block)
    check_index(raw[at:], offsets)
    return text, blocks


def parse_block(raw, at, number):
    size, = struct.unpack_from(">H", raw, at + 4)
    flags, code, allocated, used, length, checksum = struct.unpack_from(HEADER, raw, at + 6)
    start, streamed, code = at + 6 + size, bool(flags & 1), code.rstrip(b"\0").decode()
    if streamed:
        return Block(raw[start:], code, False, True), len(raw)
    if used > allocated or start + allocated > len(raw):
        raise Odd(f"block {number}: used {used}, allocated {allocated}, and {len(raw) - start} bytes are left")
    stored = raw[start:start + used]
    try:
        data = DECODE[code](stored)
    except Exception as error:               # whatever a codec throws
        raise Odd(f"block {number}: {code}: {error}") from error
    if len(data) != length:
        raise Odd(f"block {number}: {len(data)} bytes, where its header says {length}")
    summed = checksum != bytes(16)
    if summed and checksum not in (hashlib.md5(stored).digest(), hashlib.md5(data).digest()):
        raise Odd(f"block {number}: the checksum is wrong")
    return Block(data, code, summed), start + allocated


def check_index(rest, offsets):
    if not rest:
        return
    if not rest.startswith(INDEX):
        raise Odd(f"behind the blocks stands {rest[:60]!r}")
    found = yaml.load(rest.split(b"---")[1].split(b"...")[0], LOADER)
    if found != offsets or not rest.endswith((b"...\n", b"...")):
        raise Odd(f"the index says {found}, the blocks are at {offsets}")


@contextlib.contextmanager
def filesystem(kind, folder):
    """A directory on a filesystem of that kind, made for it; `None`: on whatever the folder is on."""
    where = pathlib.Path(folder, kind or "here")
    where.mkdir()
    if kind is None:
        yield where
        return
    with contextlib.ExitStack() as stack:
        if kind == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", where)
        else:
            size, command = MAKE[kind]
            image = pathlib.Path(folder, kind + ".img")
            with open(image, "wb") as out:
                out.truncate(size)
            run(*command, image)
            device = run("losetup", "--find", "--show", image).strip()
            stack.callback(run, "losetup", "--detach", device)
            run("mount", device, where)
        stack.callback(run, "umount", where)
        yield where


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout
