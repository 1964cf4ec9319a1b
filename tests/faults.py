#!/usr/bin/env python3
"""Let the system calls of saves fail, one after the other, and look at what the mount makes of it.

    faults.py --bin PROGRAM [--quick] [--trials N] [--seed N] [--jobs N] [--only GLOB] [-v]

KIND/CALL#N/ERRNO/once|ever: during a save of that kind the N-th system call of that name by the thread that saves fails with
ERRNO, that one or all from there on. Which calls there are is found by watching a save. FILE must be the old or the new one, as
the mount reads it and as the next mount finds it; nothing that was acknowledged may be lost, and nothing that was not may be
thrown away before its writer was told; each call fails with an errno that the manual has for it; a text is kept; and when the
fault is over the mount saves again, or says that it is read-only. The last line is "N passed, N failed".
"""
import argparse
import collections
import concurrent.futures
import contextlib
import errno
import fnmatch
import hashlib
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import mounting

MAGIC = b"\xd3BLK"
RAW = bytes((n * n >> 3) & 255 for n in range(12_000))
SOFT = bytes(n * n % 251 % 12 for n in range(30_000))
STREAM = b"stream" * 100
NEW_RAW = RAW[:3000] + bytes(byte ^ 0x55 for byte in RAW[3000:5000]) + RAW[5000:]
NEW_SOFT = SOFT[:10_000] + bytes((byte + 1) % 12 for byte in SOFT[10_000:12_000]) + SOFT[12_000:]
TREE = (b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%%YAML 1.1\n%%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\nnote: %s\n"
        b"a: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [12000]}\n"
        b"b: !core/ndarray-1.0.0 {source: 1, datatype: uint8, byteorder: little, shape: [30000]}\n...\n")
OLD_TREE, NEW_TREE, LONG_TREE = TREE % b"old", TREE % b"new", TREE % (b"x" * 9000)

# The calls that are let fail, and the errno of each: what disks say, what processes run out of, and what a directory forbids.
CALLS = {
    "pwrite64": ["EIO", "ENOSPC"], "fdatasync": ["EIO", "ENOSPC"], "fsync": ["EIO", "ENOSPC"], "ftruncate": ["EIO", "ENOSPC"],
    "fallocate": ["EIO", "ENOSPC", "EINTR"], "copy_file_range": ["EIO", "ENOSPC"], "pread64": ["EIO", "ENOMEM"],
    "renameat2": ["EIO", "ENOSPC"], "renameat": ["EIO", "ENOSPC"], "unlinkat": ["EIO", "EACCES"], "openat": ["EMFILE", "EACCES", "EIO"],
    "statx": ["EIO", "ENOMEM"], "fstat": ["EIO"], "fstatfs": ["EIO"], "ioctl": ["EIO"], "flock": ["EIO"], "lseek": ["EIO"],
}
# What makes one way to save impossible, so that another is tried, at whose end there is no room.
IMPOSSIBLE = {"EACCES"}


def block(data, code=b"", streamed=False):
    stored = zlib.compress(data) if code == b"zlib" else data
    sizes = (0, 0, 0, bytes(16)) if streamed else (len(stored), len(stored), len(data), hashlib.md5(stored).digest())
    return MAGIC + struct.pack(">HI4s3Q16s", 48, int(streamed), code, *sizes) + stored


def sample(padding, streamed):
    blocks = [block(RAW), block(SOFT, b"zlib")] + [block(STREAM, streamed=True)] * streamed
    return OLD_TREE + bytes(padding) + b"".join(blocks)


def parsed(file):
    """The text of a file, and of each block its decoded bytes, code and whether it has a checksum. Throws at any fault."""
    raw = file.read_bytes()
    at = raw.index(b"\n...\n") + 5
    text, found = raw[:at], []
    at = raw.find(MAGIC, at)
    while raw[at:at + 4] == MAGIC:
        size, flags, code, allocated, used, length, md5 = struct.unpack(">HI4s3Q16s", raw[at + 4:at + 54])
        start = at + 6 + size
        end = len(raw) if flags & 1 else start + used
        stored = raw[start:end]
        if any(md5) and hashlib.md5(stored).digest() != md5:
            raise ValueError(f"block {len(found)} has a false checksum")
        data = zlib.decompress(stored) if code == b"zlib" else stored
        if len(stored) != end - start or not flags & 1 and len(data) != length:
            raise ValueError(f"block {len(found)} is cut short")
        found.append((data, code.rstrip(b"\0"), any(md5)))
        at = end if flags & 1 else start + allocated
    if raw[at:] and not raw[at:].startswith(b"#ASDF BLOCK INDEX"):
        raise ValueError(f"{len(raw) - at} bytes of something behind the last block")
    return text, found


def write_all(fd, data, at):
    """Whether all was written; the kernel may have passed on only some of it when the rest fails."""
    while data:
        done = os.pwrite(fd, data, at)
        data, at = data[done:], at + done
    return True


# ---------------------------------------------------------------- kinds of saves

class Kind:
    """A way to save: what FILE is before and after it, and the calls that a program makes."""

    options, padding, streamed, links = (), 2000, False, 1
    text, blocks, code = OLD_TREE, (RAW, SOFT), b""

    def is_old(self, found):
        return found[0] == OLD_TREE and [data for data, *_ in found[1]] == self.old_blocks() and found[1][0][1] == b""

    def is_new(self, found):
        return found[0] == self.text and tuple(data for data, *_ in found[1]) == self.new_blocks() and found[1][0][1] == self.code

    def is_between(self, found):
        """Neither, but as any file may be while it is written."""
        return False

    def old_blocks(self):
        return [RAW, SOFT] + [STREAM] * self.streamed

    def new_blocks(self):
        return self.blocks + (STREAM,) * self.streamed

    def run(self, mnt, say):
        raise NotImplementedError

    def write(self, path, flags, data, say, at=0):
        """Write through one descriptor as an editor does, and ask again when it is not saved; what was written must stay readable."""
        fd = say("open", lambda: os.open(path, flags, 0o644))
        if fd is None:
            return
        if say("write", lambda: write_all(fd, data, at)):
            for _ in range(3):
                if say("fsync", lambda: os.fsync(fd) or True):
                    break
                if not say.blind:
                    say.wrong("what was written can't be read back", os.pread(fd, len(data), at) != data)
        say("close", lambda: os.close(fd))


class Fits(Kind):
    """J."""

    text = NEW_TREE

    def run(self, mnt, say):
        self.write(mnt / "tree.yaml", os.O_RDWR | os.O_TRUNC, self.text, say)


class Renamed(Fits):
    """J, as most editors save."""

    def run(self, mnt, say):
        (mnt / ".tmp").write_bytes(self.text)
        say("rename", lambda: os.rename(mnt / ".tmp", mnt / "tree.yaml") or True)


class Anew(Fits):
    """R for a text that fits."""

    options = ("-o", "save=replace")


class Grown(Fits):
    """R."""

    text, padding = LONG_TREE, 100


class Moved(Grown):
    """J, with all blocks moved in place, as FILE has two names."""

    links = 2


class BesideStream(Fits):
    """J with its journal in a sidecar."""

    streamed = True


class Raw(Kind):
    """A raw block, written where it is."""

    blocks = (NEW_RAW, SOFT)

    def run(self, mnt, say):
        self.write(mnt / "blocks/0.bin", os.O_RDWR, self.blocks[0], say)

    def is_between(self, found):
        data, _, checked = found[1][0]
        either = len(data) == len(RAW) and all(byte in pair for byte, *pair in zip(data, RAW, NEW_RAW))
        return either and not checked and found[0] == OLD_TREE and found[1][1][0] == SOFT


class RawGrown(Raw):
    """A raw block that gets longer."""

    blocks = (NEW_RAW * 2, SOFT)

    def is_between(self, found):
        return False


class Soft(Kind):
    """A compressed block."""

    blocks = (RAW, NEW_SOFT)

    def run(self, mnt, say):
        self.write(mnt / "blocks/1.bin", os.O_RDWR, self.blocks[1], say)


class Redeclared(Kind):
    """An array that gets another datatype: its declaration in the tree, and its block."""

    blocks = (NEW_RAW, SOFT)
    text = OLD_TREE.replace(b"uint8, byteorder: little, shape: [12000]", b"uint16, byteorder: little, shape: [6000]")

    def run(self, mnt, say):
        header = b"{'descr': '<u2', 'fortran_order': False, 'shape': (6000,), }".ljust(117) + b"\n"
        npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + self.blocks[0]
        self.write(mnt / "arrays/a.npy", os.O_RDWR | os.O_TRUNC, npy, say)


class Encoded(Kind):
    """A block that is encoded anew."""

    code = b"zlib"

    def run(self, mnt, say):
        say("setxattr", lambda: os.setxattr(mnt / "blocks/0.bin", "user.asdf.compression", b"zlib") or True)


class EncodedInPlace(Encoded):
    links = 2


class Added(Kind):
    """A new block."""

    blocks = (RAW, SOFT, b"fresh" * 1000)

    def run(self, mnt, say):
        self.write(mnt / "blocks/2.bin", os.O_RDWR | os.O_CREAT, self.blocks[2], say)


class Appended(Kind):
    """A streamed block that grows."""

    streamed = True

    def new_blocks(self):
        return RAW, SOFT, STREAM + b"more" * 2000

    def run(self, mnt, say):
        self.write(mnt / "blocks/2.bin", os.O_RDWR, b"more" * 2000, say, len(STREAM))


KINDS = {"fits": Fits, "renamed": Renamed, "anew": Anew, "grown": Grown, "moved": Moved, "beside-stream": BesideStream, "raw": Raw,
         "raw-grown": RawGrown, "soft": Soft, "redeclared": Redeclared, "encoded": Encoded, "encoded-in-place": EncodedInPlace,
         "added": Added, "appended": Appended}


# ---------------------------------------------------------------- one trial

class Said(list):
    """What each call of a program came to, and complaints about it; `blind` if nothing can be read meanwhile."""

    def __init__(self, blind=False):
        self.bad, self.blind = [], blind

    def __call__(self, name, call):
        """The call's result, None if it failed."""
        try:
            result = call()
            self.append((name, 0))
            return result
        except OSError as error:
            self.append((name, error.errno))
            return None

    def wrong(self, complaint, is_so=True):
        if is_so and complaint not in self.bad:
            self.bad.append(complaint)

    def errors(self):
        return {code for _, code in self if code}

    def saved(self):
        """Whether the last attempt to save was acknowledged."""
        last = [code for name, code in self if name != "write"][-1:]
        return last == [0] and not [code for name, code in self[-2:] if name != "close" and code]

    def __str__(self):
        return " ".join(f"{name}:{errno.errorcode[code] if code else 'ok'}" for name, code in self)


@contextlib.contextmanager
def traced(daemon, log, *arguments):
    """The daemon with strace on it, all of its threads, when it has gone to the background."""
    detached = mounting.wait_until(lambda: all(os.readlink(f"/proc/{daemon}/fd/{fd}") == "/dev/null" for fd in range(3)))
    if not detached:
        raise RuntimeError("the daemon does not go to the background")
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", str(log), "-p", str(daemon), *arguments], stderr=subprocess.DEVNULL)

    def attached():
        tasks = pathlib.Path(f"/proc/{daemon}/task").glob("*/status")
        return tracer.poll() is not None or all(f"TracerPid:\t{tracer.pid}\n" in task.read_text() for task in tasks)

    try:
        if not mounting.wait_until(attached) or tracer.poll() is not None:
            raise RuntimeError("strace can't be attached")
        yield
    finally:
        tracer.terminate()
        tracer.wait(mounting.PATIENCE)


@contextlib.contextmanager
def scene(program, kind):
    """FILE in a folder of its own, mounted."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        folder = pathlib.Path(folder)
        (folder / "data").mkdir()
        file = folder / "data" / "x.asdf"
        file.write_bytes(sample(kind.padding, kind.streamed))
        if kind.links > 1:
            os.link(file, folder / "other-name")
        environment = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
        yield folder, file, lambda options=kind.options: mounting.Mount(program, file, ["-o", "threads=1", *options], environment)


def calls_of(program, kind):
    """How often the thread that saves makes each call."""
    with scene(program, kind) as (folder, _, mounted), mounted() as mount:
        said = Said()
        with traced(mount.daemon, folder / "log", "-e", "trace=" + ",".join(f"?{call}" for call in CALLS)):
            kind.run(mount.dir, said)
        if said.errors() or said.bad:
            raise RuntimeError(f"without a fault: {said} {said.bad}")
        counts = collections.Counter()
        for line in (folder / "log").read_text(errors="replace").splitlines():
            if match := re.match(r"(\d+) +(\w+)\(", line):
                counts[match[1], match[2]] += 1
    thread = max({thread for thread, _ in counts}, key=lambda t: sum(n for (u, _), n in counts.items() if u == t))
    return {call: n for (of, call), n in counts.items() if of == thread}


def fresh(path):
    """The bytes of a file of the mount as the daemon has them now."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)


def look(mount, kind, said):
    """Whether FILE is new, as the mount shows it; complaints about what is neither, and about reads that fail."""
    try:
        shown = fresh(mount.dir / "arrays/a.bin"), fresh(mount.dir / "arrays/b.bin")
    except OSError as error:
        said.wrong(f"reading an array: {error}")
        return
    said.wrong("wrong bytes in an array", shown[1] not in (SOFT, kind.new_blocks()[1]))
    either = len(shown[0]) == len(RAW) and all(byte in pair for byte, *pair in zip(shown[0], RAW, kind.new_blocks()[0]))
    said.wrong("wrong bytes in an array", not either)


def status_of(mount):
    lines = (mount.dir / "info/status").read_text().splitlines()
    return {line[:9].strip(): line[10:] for line in lines}


def text_is_kept(folder, kind, status):
    places = [folder / "data" / "x.asdf.rejected.yaml", folder / "state/asdf-mount/x.asdf.rejected.yaml"]
    kept = any(place.exists() and place.read_bytes() == kind.text for place in places)
    return kept or "saved, but" in status["save"] or "can't be kept" in status["save"]


def trial(program, kind, call, when, code):
    said = Said(blind=call == "pread64")
    with scene(program, kind) as (folder, file, mounted):
        with mounted() as mount:
            with traced(mount.daemon, folder / "log", "-e", f"trace={call}", "-e", f"inject={call}:error={code}:when={when}"):
                kind.run(mount.dir, said)
            injected = (folder / "log").read_text(errors="replace").count("(INJECTED)")
            first = list(said)
            status = status_of(mount)
            allowed = {getattr(errno, code)} | ({errno.ENOSPC} if code in IMPOSSIBLE else set()) | {errno.EROFS}
            said.wrong("a call fails with something else", not said.errors() <= allowed)
            saves = [code for name, code in said if name in ("fsync", "rename", "setxattr", "close")]
            said.wrong("the save itself is said to be read-only", saves[:1] == [errno.EROFS])
            said.wrong("another program is blamed", "changed" in status or "another program" in status["save"])
            acknowledged = said.saved()
            # of a block into which nothing could be written yet, the checksum alone may be
            finished = acknowledged or ("saved, but" in status["save"] and "not verified while" not in status["save"])
            look(mount, kind, said)
            said.wrong("tree.yaml shows another text than FILE has", finished and fresh(mount.dir / "tree.yaml") != kind.text)
            if not finished and isinstance(kind, Fits):
                said.wrong("the text is not kept: " + status["save"], not text_is_kept(folder, kind, status))
            if status["mount"] == "writable":
                again = Said()
                if not finished or isinstance(kind, Fits):
                    kind.run(mount.dir, again)
                said.wrong(f"then, without a fault: {again} {again.bad}", again.errors() or again.bad)
                finished = True
            else:
                with contextlib.suppress(OSError):
                    os.close(os.open(mount.dir / "tree.yaml", os.O_RDWR))
                    said.wrong("read-only, but it opens for writing")
            look(mount, kind, said)
        with mounted(()) as mount:
            status = status_of(mount)
            said.wrong(f"the next mount is not writable: {status['mount']}", status["mount"] != "writable")
        try:
            found = parsed(file)
            new = kind.is_new(found)
            said.wrong("an acknowledged save is lost", finished and not new)
            said.wrong("FILE is neither old nor new", not (new or kind.is_old(found) or kind.is_between(found)))
        except ValueError as error:
            said.wrong(f"FILE: {error}")
        left = {entry.name for entry in file.parent.iterdir()} - {file.name, "x.asdf.rejected.yaml"}
        said.wrong(f"left behind: {sorted(left)}", left)
    return [f"{wrong} ({' '.join(f'{n}:{errno.errorcode.get(c, c) if c else 0}' for n, c in first)}, {injected} injected)" for wrong in said.bad]


# ---------------------------------------------------------------- main

def trials(program, only):
    """All trials there are, by name."""
    found = {}
    for name, make in KINDS.items():
        if not only.startswith(name + "/") and not only.startswith(("*", "?", "[")):
            continue
        kind = make()
        for call, count in sorted(calls_of(program, kind).items()):
            for n in range(1, count + 1):
                for code in CALLS[call]:
                    for how, when in (("once", f"{n}"), ("ever", f"{n}+")):
                        if not (code == "EINTR" and how == "ever"):
                            found[f"{name}/{call}#{n}/{code}/{how}"] = (kind, call, when, code)
    return {name: case for name, case in found.items() if fnmatch.fnmatchcase(name, only)}


def outcome(program, case):
    start = time.monotonic()
    try:
        return trial(program, *case), time.monotonic() - start
    except Exception as error:               # what a case throws is its result
        return [f"{type(error).__name__}: {error}"], time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath)
    parser.add_argument("--quick", action="store_true", help="200 trials, chosen by the seed")
    parser.add_argument("--trials", type=int, help="so many, chosen by the seed; else all of them")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--only", default="*")
    parser.add_argument("-v", action="store_true", help="print passing cases too")
    args = parser.parse_args()
    if not shutil.which("strace"):
        sys.exit("not installed: strace; scripts/setup test installs it")
    print(f"seed {args.seed}")
    cases = trials(args.bin, args.only)
    limit = args.trials or (200 if args.quick else len(cases))
    chosen = random.Random(args.seed).sample(sorted(cases), min(limit, len(cases)))
    passed = failed = 0
    # not threads: what one starts holds for a moment what the others have open, and so closes it once more
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        running = {pool.submit(outcome, args.bin, cases[name]): name for name in sorted(chosen)}
        for done in concurrent.futures.as_completed(running):
            bad, took = done.result()
            passed, failed = passed + (not bad), failed + bool(bad)
            if bad:
                print(f"FAIL {running[done]}: " + "; ".join(bad).replace("\n", " "), flush=True)
            elif args.v:
                print(f"ok   {running[done]} ({took:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
