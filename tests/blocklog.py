#!/usr/bin/env python3
"""One file in a FUSE mount that keeps a log of every write and flush: the disk under a loop device in tests/crash.py.

    blocklog.py IMAGE MOUNTPOINT LOG

The log is a row of records: kind (W or F), offset, length, and the bytes of a write.
"""
import os
import pathlib
import stat
import struct
import sys
import threading

import mfusepy

RECORD = struct.Struct("<cQQ")


class LoggedDisk(mfusepy.Operations):
    """The image as the file `disk`, and nothing else."""

    use_ns = True

    def __init__(self, image, log):
        self.image = os.open(image, os.O_RDWR)
        self.log = open(log, "ab", buffering=0)
        self.guard = threading.Lock()

    def getattr(self, path, fh=None):
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path == "/disk":
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": os.fstat(self.image).st_size}
        raise mfusepy.FuseOSError(2)

    def readdir(self, path, fh):
        return [".", "..", "disk"]

    def open(self, path, flags):
        return 1

    def read(self, path, size, offset, fh):
        return os.pread(self.image, size, offset)

    def write(self, path, data, offset, fh):
        with self.guard:
            os.pwrite(self.image, data, offset)
            self.log.write(RECORD.pack(b"W", offset, len(data)) + data)
        return len(data)

    def fsync(self, path, datasync, fh):
        with self.guard:
            self.log.write(RECORD.pack(b"F", 0, 0))
        return 0

    def flush(self, path, fh):
        return 0


def records(log):
    """The records of a log: (offset, bytes) of a write, None for a flush, and where in the log each one ends."""
    raw, at = pathlib.Path(log).read_bytes(), 0
    while at < len(raw):
        kind, offset, length = RECORD.unpack_from(raw, at)
        at += RECORD.size
        yield (None if kind == b"F" else (offset, raw[at:at + length])), at + length
        at += length


if __name__ == "__main__":
    image, mountpoint, log = sys.argv[1:]
    # direct_io: the kernel shall not gather or reorder what the loop device writes
    mfusepy.FUSE(LoggedDisk(image, log), mountpoint, foreground=True, direct_io=True)
