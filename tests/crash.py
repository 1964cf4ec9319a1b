#!/usr/bin/env python3
"""Interrupt saves, and look at what is left.

    crash.py --bin PROGRAM [--quick] [--saves N] [--states N] [--seed N] [--only GLOB] [-v]

kill/KIND: the daemon gets SIGKILL at a random moment of a save, again and again. power/FILESYSTEM/KIND: the filesystem with
FILE lies on a loop device whose writes and flushes are logged; the disk is put together again as a power cut at any point
would leave it (all writes up to there; the last one torn; some of those since the last flush lost), mounted, and FILE with
it. Each time the next mount must make FILE the old or the new one, without a question; nothing that was acknowledged may be
lost; and Python's asdf must open the result with its checksums validated. The last line is "N passed, N failed".
"""
import argparse
import contextlib
import fnmatch
import io
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib

import asdf
import numpy as np

import blocklog
import mounting

HERE = pathlib.Path(__file__).resolve().parent
SECTOR = 512
ARRAY = np.random.default_rng(3).integers(0, 1 << 30, 60_000, dtype="<i4")
SOFT = np.tile(np.arange(250, dtype="u1"), 1600)
DISK_SIZE = {"ext4": 64 << 20, "xfs": 300 << 20, "btrfs": 256 << 20}
MAKE = {"ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], "xfs": ["mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=1"],
        "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"]}
# A 512-byte tear of the checksummed superblock is not something that a disk does, and no btrfs or ext4 survives it.
UNTEARABLE = {"btrfs": range(65536, 65536 + 4096), "ext4": range(4096)}


def sample():
    """A file from Python's asdf: two blocks, one of them compressed."""
    out = io.BytesIO()
    file = asdf.AsdfFile({"note": "version 000000", "filler": "", "array": ARRAY, "soft": SOFT})
    file.set_array_compression(SOFT, "zlib")
    file.write_to(out, pad_blocks=True)
    return out.getvalue()


SAMPLE = sample()


def tree_of(raw):
    return raw[:raw.index(b"\n...\n") + 5]


# ---------------------------------------------------------------- kinds of saves

class Kind:
    """A way to save: what version `n` of the file holds, and how it is made through a mount."""

    options = ()

    def __init__(self):
        self.version = 0

    def tree(self, n):
        """The text of version n."""
        return tree_of(SAMPLE).replace(b"version 000000", b"version %06d" % n)

    def block(self, n):
        """The bytes of block 0, and of block 1."""
        return ARRAY.tobytes(), SOFT.tobytes()

    def save(self, mnt, n):
        with open(mnt / "tree.yaml", "wb") as file:
            file.write(self.tree(n))

    def holds(self, file, n):
        """Whether the file is version n as a whole."""
        raw = file.read_bytes()
        return tree_of(raw) == self.tree(n) and blocks_of(file) == self.block(n)

    def is_between(self, file, old, new):
        """Whether the file may be neither of two versions, but what crashes left of the saves that led from one to the other."""
        return False


class InPlace(Kind):
    """J: a tree that fits."""


class Replace(Kind):
    """R for a tree that fits: save=replace."""

    options = ("-o", "save=replace")


class Grow(Kind):
    """R: each version needs more room than the one before."""

    def tree(self, n):
        return super().tree(n).replace(b"filler: ''", b"filler: '" + b"x" * (9000 * (n % 50)) + b"'")


class Move(Grow):
    """Growth where FILE may not be copied: the blocks move in place, through the journal."""

    options = ("-o", "max-copy=0")


class Block(Kind):
    """A raw block, overwritten in place: as with any file, a crash may leave some of the bytes old and some new."""

    def block(self, n):
        return (ARRAY ^ n).tobytes(), SOFT.tobytes()

    def save(self, mnt, n):
        with open(mnt / "blocks/0.bin", "r+b") as file:
            file.write(self.block(n)[0])

    def is_between(self, file, old, new):
        versions = np.array([np.frombuffer(self.block(n)[0], "u1") for n in range(old, new + 1)])
        mixed, soft = blocks_of(file)
        rest = tree_of(file.read_bytes()) == self.tree(new) and soft == self.block(new)[1] and len(mixed) == versions.shape[1]
        return rest and bool((versions == np.frombuffer(mixed, "u1")).any(axis=0).all())

    def tree(self, n):
        return tree_of(SAMPLE)


class Reencode(Kind):
    """A compressed block."""

    def block(self, n):
        return ARRAY.tobytes(), (SOFT ^ np.uint8(n % 256)).tobytes()

    def tree(self, n):
        return tree_of(SAMPLE)

    def save(self, mnt, n):
        with open(mnt / "blocks/1.bin", "r+b") as file:
            file.write(self.block(n)[1])


KINDS = {"J": InPlace, "replace": Replace, "R": Grow, "moved": Move, "block": Block, "zlib": Reencode}


def blocks_of(file):
    """The decoded bytes of both blocks, by walking along the headers."""
    raw = file.read_bytes()
    at, out = raw.index(b"\xd3BLK", raw.index(b"\n...\n")), []
    while raw[at:at + 4] == b"\xd3BLK":
        start = at + 6 + int.from_bytes(raw[at + 4:at + 6], "big")
        code, allocated, used = raw[at + 10:at + 14], *(int.from_bytes(raw[at + k:at + k + 8], "big") for k in (14, 22))
        stored = raw[start:start + used]
        out.append(zlib.decompress(stored) if code == b"zlib" else stored)
        at = start + allocated
    return tuple(out)


def check(kind, file, saved, begun):
    """Complaints about a recovered file, and which version it is: none of them if it is between two.

    Version `saved` is known to have been whole on disk; nothing of those after it, up to `begun`, was acknowledged.
    """
    try:
        versions = range(saved, begun + 1)
        found = next((n for n in reversed(versions) if kind.holds(file, n)), None)
        if found is None and not (saved < begun and kind.is_between(file, saved, begun)):
            note = re.search(rb"version (\d+)", file.read_bytes())
            return [f"neither of {list(versions)}, the tree says {note and note[1]}"], None
        with warnings.catch_warnings(), asdf.open(file, validate_checksums=True, lazy_load=False, memmap=False) as opened:
            warnings.simplefilter("ignore")
            opened["note"], np.asarray(opened["array"]).sum(), np.asarray(opened["soft"]).sum()
        left = [p.name for p in file.parent.iterdir() if p.name not in (file.name, "mnt", "lost+found")]
        return [f"left behind: {left}"] if left else [], found
    except Exception as error:               # whatever a reader throws is what is wrong with the file
        return [f"{type(error).__name__}: {error}"], None


# ---------------------------------------------------------------- killing the daemon

def kill_case(args, kind):
    """args.saves saves, each cut short at a random moment; the moments cover the time that a save takes."""
    randomly = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        file = pathlib.Path(folder, "sample.asdf")
        file.write_bytes(SAMPLE)
        version, saved, typical, interrupted = 0, 0, 0.01, 0
        for turn in range(args.saves):
            acknowledged, took = interrupted_save(args.bin, kind, file, version + 1, randomly.random() * 1.3 * typical if turn else 60)
            typical = took if turn == 0 else typical
            interrupted += not acknowledged
            with mounting.Mount(args.bin, file, kind.options) as mount:
                shown = (mount.dir / "tree.yaml").read_bytes()
            bad, found = check(kind, file, version + 1 if acknowledged else saved, version + 1)
            if not bad and shown != kind.tree(version + 1 if found is None else found):
                bad = ["the mount after the crash shows something else than it left"]
            if bad:
                return [f"save {turn}: {bad[0]}"]
            version, saved = (version + 1, saved) if found is None else (found, found)
        if args.saves > 20 and not 0 < interrupted < args.saves:
            return [f"{interrupted} of {args.saves} saves were interrupted: the moments are chosen badly"]
    return []


def interrupted_save(program, kind, file, version, delay):
    """Whether the save was acknowledged before the daemon was killed, and how long it took."""
    result = {}
    with mounting.Mount(program, file, kind.options) as mount:
        daemon = mount.daemon

        def save():
            start = time.perf_counter()
            try:
                kind.save(mount.dir, version)
                result["took"] = time.perf_counter() - start
            except OSError as error:
                result["error"] = error

        thread = threading.Thread(target=save)
        thread.start()
        thread.join(delay)
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
        thread.join(mounting.PATIENCE)
        # the lock on FILE goes last, long after the command line of the process has gone
        mounting.wait_until(lambda: not mounting.running(daemon))
        subprocess.run(["umount", "-l", str(mount.dir)], capture_output=True)
    if delay >= 60 and "took" not in result:
        raise RuntimeError(f"an undisturbed save failed: {result.get('error')}")
    return "took" in result, result.get("took", 0.01)


# ---------------------------------------------------------------- cutting the power

def loop_mounted(stack, image, where, options=()):
    """The image, mounted; taken away at the end of the stack."""
    device = subprocess.run(["losetup", "--find", "--show", *options, str(image)], check=True, capture_output=True, text=True).stdout.strip()
    stack.callback(subprocess.run, ["losetup", "--detach", device], check=True)
    return mounted_device(stack, device, where)


def mounted_device(stack, device, where):
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", device, str(where)], check=True, capture_output=True)
    stack.callback(subprocess.run, ["umount", str(where)], check=True)


def prepare(folder, filesystem):
    """An image with a filesystem that holds the sample."""
    image = folder / "base.img"
    with open(image, "wb") as out:
        out.truncate(DISK_SIZE[filesystem])
    subprocess.run([*MAKE[filesystem], str(image)], check=True, capture_output=True)
    with contextlib.ExitStack() as stack:
        loop_mounted(stack, image, folder / "fs")
        (folder / "fs" / "sample.asdf").write_bytes(SAMPLE)
        os.sync()
    return copied(image, folder / "prepared.img")


def copied(image, to):
    """A copy in a file of its own. Another mount namespace may have the old file's filesystem a moment longer, and write its end there."""
    to.unlink(missing_ok=True)
    subprocess.run(["cp", "--sparse=always", str(image), str(to)], check=True)
    return to


def logged_saves(args, kind, folder, base, saves):
    """Save a few times on a disk that keeps a log. The log's records, and its length when each save was acknowledged."""
    disk, log, served = copied(base, folder / "disk.img"), folder / "log", folder / "served"
    log.write_bytes(b"")
    served.mkdir()
    server = subprocess.Popen([sys.executable, str(HERE / "blocklog.py"), str(disk), str(served), str(log)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    marks = []
    try:
        if not mounting.wait_until(lambda: mounting.mounted(served)):
            raise RuntimeError("the logged disk did not come up")
        with contextlib.ExitStack() as stack:
            loop_mounted(stack, served / "disk", folder / "fs", ["--direct-io=on"])
            with mounting.Mount(args.bin, folder / "fs" / "sample.asdf", kind.options) as mount:
                for n in range(1, saves + 1):
                    kind.save(mount.dir, n)
                    marks.append(log.stat().st_size)
    finally:
        # another mount namespace may have the filesystem, and with it the loop device, a moment longer
        mounting.wait_until(lambda: subprocess.run(["umount", str(served)], capture_output=True).returncode == 0 or not mounting.mounted(served))
        server.wait(mounting.PATIENCE)
        served.rmdir()
    return list(blocklog.records(log)), marks


def crash_states(records, filesystem, randomly, limit):
    """(index of the last record, bytes to leave out of the writes since the last flush) for states that a cut could leave."""
    writes = [i for i, (record, _) in enumerate(records) if record]
    chosen = sorted(randomly.sample(writes, min(limit, len(writes))))
    for number, last in enumerate(chosen):
        yield last, "prefix", set(), None
        offset, data = records[last][0]
        if number % 3 == 1 and len(data) > SECTOR and offset not in UNTEARABLE.get(filesystem, ()):
            yield last, "torn", set(), SECTOR * randomly.randrange(1, len(data) // SECTOR)
        if number % 3 == 2:
            flush = max((i for i in range(last) if records[i][0] is None), default=-1)
            yield last, "lost", {i for i in range(flush + 1, last + 1) if randomly.random() < 0.5}, None


def power_case(args, kind, filesystem):
    randomly, bad = random.Random(args.seed), []
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        folder = pathlib.Path(folder)
        base = prepare(folder, filesystem)
        records, marks = logged_saves(args, kind, folder, base, 4)
        rolling, applied = copied(base, folder / "rolling.img"), 0
        for last, how, lost, tear in crash_states(records, filesystem, randomly, args.states):
            flush = max((i for i in range(last) if records[i][0] is None), default=-1)
            with open(rolling, "r+b") as image:
                for record, _ in records[applied:flush + 1]:
                    write_record(image, record)
            applied = max(applied, flush + 1)
            state = copied(rolling, folder / "state.img")
            with open(state, "r+b") as image:
                for i in range(flush + 1, last + 1):
                    if i not in lost:
                        write_record(image, records[i][0], tear if i == last else None)
            acknowledged = sum(mark <= records[last][1] for mark in marks)
            if wrong := recovered(args, kind, folder, state, acknowledged):
                bad.append(f"{how} state at record {last} of {len(records)}, {acknowledged} saves acknowledged: {wrong[0]}")
    return bad[:3]


def write_record(image, record, tear=None):
    if record:
        offset, data = record
        image.seek(offset)
        image.write(data[:tear])


def recovered(args, kind, folder, image, acknowledged):
    """Complaints about what a mount makes of FILE on this disk."""
    with contextlib.ExitStack() as stack:
        try:
            loop_mounted(stack, image, folder / "fs")
        except subprocess.CalledProcessError as error:
            return [f"the filesystem itself does not mount: {error.stderr.decode().strip()}"]
        file = folder / "fs" / "sample.asdf"
        try:
            with mounting.Mount(args.bin, file, kind.options) as mount:
                (mount.dir / "tree.yaml").read_bytes()
        except RuntimeError as error:
            return [str(error)]
        return check(kind, file, acknowledged, acknowledged + 1)[0]


# ---------------------------------------------------------------- main

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath)
    parser.add_argument("--quick", action="store_true", help="15 kills a kind, and 12 power cuts on ext4")
    parser.add_argument("--saves", type=int)
    parser.add_argument("--states", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="*")
    parser.add_argument("-v", action="store_true", help="print passing cases too")
    args = parser.parse_args()
    args.saves = args.saves or (15 if args.quick else 300)
    args.states = args.states or (12 if args.quick else 200)
    print(f"seed {args.seed}")
    cases = {f"kill/{name}": lambda k=k: kill_case(args, k()) for name, k in KINDS.items()}
    for filesystem in ["ext4"] if args.quick else DISK_SIZE:
        for name, k in KINDS.items():
            # where files share blocks, nothing needs to be moved in place
            if name != "moved" or filesystem == "ext4":
                cases[f"power/{filesystem}/{name}"] = lambda k=k, f=filesystem: power_case(args, k(), f)
    if missing := [tool for tool in ("losetup", *(words[0] for words in MAKE.values())) if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]:
        sys.exit(f"not installed: {', '.join(missing)}; scripts/setup test installs them")
    passed = failed = 0
    for name, case in cases.items():
        if not fnmatch.fnmatchcase(name, args.only):
            continue
        start = time.monotonic()
        try:
            bad = case()
        except Exception as error:           # what a case throws is its result
            bad = [f"{type(error).__name__}: {error}"]
        passed, failed = passed + (not bad), failed + bool(bad)
        if bad:
            print(f"FAIL {name}: " + "; ".join(bad).replace("\n", " "), flush=True)
        elif args.v:
            print(f"ok   {name} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
