#!/usr/bin/env python3
"""Edits of other people's files through the mount, as other programs see them.

    interop.py --bin PROGRAM --readers PYTHON… --files DIR… [--copies N] [--seed N] [--only GLOB] [-v]

Each copy of a file gets one edit: a value of the same length, 20 KiB more in the tree, one element of an array, or a block
encoded as zlib, bzp2 or lz4. Each reader is a Python with a version of asdf in it. It opens the file before and after in three
ways (lazily, all at once, and with the checksums verified), and what it could open and read before it must open and read after,
with the same values but for the element that was changed; and --check must not find more. The edits are the same for a seed.

One thing is asked of no reader: to verify the checksum of a block that was stored raw before and is compressed now. It is the
standard's, that of the stored bytes, which asdf before 5.3 takes to be wrong.

One line a failure; the last line is "N passed, N failed", one for each copy and reader.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

import mounting
from interop_reader import canonical

READER = pathlib.Path(__file__).with_name("interop_reader.py")
CODECS = ("zlib", "bzp2", "lz4")
KINDS = ("value", "growth", "element", *CODECS)
# Keys whose values are free text in every schema, with a plain value: schemas of the domains want one of some words elsewhere.
FREE = re.compile(rb"\b(?:author|title|description|comment|telescope|origin): [A-Za-z][A-Za-z ]*[A-Za-z](?=[,}\r\n])")
FILLER = b"interop_filler: " + b"x" * 20480 + b"\n"
# How long a reader may take for one file.
PATIENCE = 60


# What a reader says of a file that it hangs at, or dies of.
DEAD = {"error": "it does not come back, or has died"}


class Inapplicable(Exception):
    """The edit can't be done to this file."""


# ---------------------------------------------------------------- edits

def save(tree, texts):
    """Write the first of these texts that is accepted."""
    for text in texts:
        try:
            tree.write_bytes(text)
            return
        except OSError:
            continue
    raise Inapplicable


def edit_value(mnt, _):
    text = (mnt / "tree.yaml").read_bytes()
    places = [found.end() for found in FREE.finditer(text)]
    save(mnt / "tree.yaml", (text[:end - 1] + (b"y" if text[end - 1:end] == b"x" else b"x") + text[end:] for end in places[:5]))


def edit_growth(mnt, _):
    text = (mnt / "tree.yaml").read_bytes()
    end = text.rindex(b"...")
    save(mnt / "tree.yaml", [text[:end] + FILLER + text[end:]])


def table(mnt, name):
    """A table of info/, as dictionaries."""
    head, *rows = [line.split("\t") for line in (mnt / "info" / name).read_text().rstrip("\n").split("\n")]
    return [dict(zip(head, row)) for row in rows]


def edit_element(mnt, rng):
    """Changes an element of an array that has a block for itself. Which, and what the values are then."""
    own = {row["arrays"] for row in table(mnt, "blocks.tsv") if row["arrays"] and "," not in row["arrays"]}
    paths = sorted(path for path in own if re.fullmatch(r"[\w./-]+", path) and (mnt / "arrays" / f"{path}.npy").exists())
    rng.shuffle(paths)
    for path in paths:
        changed = change_element(mnt / "arrays" / f"{path}.npy", rng)
        if changed is not None:
            return {path: canonical(changed)}
    raise Inapplicable


def change_element(file, rng):
    """Changes an element of an array, if it is of numbers; all values then. The map is gone on return, as it keeps the mount busy."""
    try:
        array = np.load(file, mmap_mode="r+")
    except (OSError, ValueError):
        return None
    if not array.size or array.dtype.kind not in "iufc":
        return None
    at = tuple(rng.randrange(n) for n in array.shape)
    changed = np.array(array)
    changed[at] = array[at] = 1 if changed[at] == 0 else 0
    array.flush()
    return changed


def encode(code):
    def edit(mnt, rng):
        blocks = [row for row in table(mnt, "blocks.tsv") if row["compression"] != code and int(row["data_size"])]
        rng.shuffle(blocks)
        for row in blocks:
            try:
                os.setxattr(mnt / "blocks" / f"{row['block']}.bin", "user.asdf.compression", code.encode())
            except OSError:
                continue
            return {"new": True} if row["compression"] == "none" else {}
        raise Inapplicable
    return edit


EDITS = {"value": edit_value, "growth": edit_growth, "element": edit_element} | {code: encode(code) for code in CODECS}


class Copy:
    """A copy of a file, with one edit."""

    def __init__(self, original, file, kind):
        self.original, self.file, self.kind = original, file, kind
        self.expected, self.new_code = {}, False

    def edit(self, binary, seed):
        """Whether the edit could be done."""
        shutil.copyfile(self.original, self.file)
        rng = random.Random(f"{seed} {self.original.name} {self.kind}")
        try:
            with mounting.Mount(binary, self.file) as mount:
                if not os.access(mount.dir, os.W_OK) or "read-only" in (mount.dir / "info/status").read_text():
                    raise Inapplicable
                said = EDITS[self.kind](mount.dir, rng) or {}
        except (Inapplicable, RuntimeError, ValueError):
            self.file.unlink()
            return False
        self.new_code = said.pop("new", False)
        self.expected = said
        return True


# ---------------------------------------------------------------- readers

class Reader:
    """An asdf-python that reads one file after the other; begun anew when it does not come back."""

    def __init__(self, python):
        self.python, self.process, self.version = python, None, None

    def start(self):
        self.process = subprocess.Popen([self.python, READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.version = tuple(int(part) for part in json.loads(self.process.stdout.readline()).split(".")[:2])

    def read(self, file):
        if self.process is None:
            self.start()
        self.process.stdin.write(f"{file}\n")
        self.process.stdin.flush()
        with concurrent.futures.ThreadPoolExecutor(1) as waiting:
            answer = waiting.submit(self.process.stdout.readline)
            try:
                line = answer.result(PATIENCE)
            except concurrent.futures.TimeoutError:
                line = ""
                self.process.kill()
        if line:
            return json.loads(line)
        self.stop()
        return {}

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def lost(copy, before, after, version):
    """What a reader has lost of a file."""
    bad = []
    for way, had in before.items():
        has = after.get(way, DEAD)
        if "error" in had or (way == "verified" and copy.new_code and version < (5, 3)):
            continue
        if "error" in has:
            bad.append(f"{way}: {has['error']}")
            continue
        for path, value in had.items():
            want = copy.expected.get(path, value)
            if isinstance(value, str) and has.get(path) != want:
                bad.append(f"{way}: array {path}: {has.get(path, 'is missing')} instead of {want}")
    return bad


def check(binary, file):
    """The exit status of --check."""
    return subprocess.run([binary, "--check", str(file)], capture_output=True, timeout=PATIENCE).returncode


def read_all(python, originals, copies):
    """What one reader has lost of each copy, and how much it reads. `originals`: where each is, away from its neighbours."""
    reader = Reader(python)
    before = {original: reader.read(place) for original, place in originals.items()}
    losses, opened = {}, collections.Counter()
    for copy in copies:
        after = reader.read(copy.file)
        if reader.version is None:
            raise RuntimeError(f"{python} does not start")
        losses[copy] = lost(copy, before[copy.original], after, reader.version)
        for way, had in before[copy.original].items():
            opened[way] += "error" not in had
    reader.stop()
    return ".".join(map(str, reader.version or ())), losses, opened


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath)
    parser.add_argument("--readers", nargs="+", required=True, type=os.path.abspath)
    parser.add_argument("--files", nargs="+", required=True, type=pathlib.Path)
    parser.add_argument("--copies", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*", help="files and edits, as NAME/EDIT")
    parser.add_argument("-v", action="store_true", help="print the copies too")
    args = parser.parse_args()
    files = sorted(file.resolve() for folder in args.files for file in folder.rglob("*.asdf"))
    pairs = [(file, kind) for file in files for kind in KINDS if fnmatch.fnmatchcase(f"{file.name}/{kind}", args.only)]
    random.Random(args.seed).shuffle(pairs)
    with tempfile.TemporaryDirectory(prefix="interop-") as folder:
        copies, start = [], time.monotonic()
        for number, (file, kind) in enumerate(pairs):
            if len(copies) == args.copies:
                break
            place = pathlib.Path(folder, str(number))
            place.mkdir()
            copy = Copy(file, place / file.name, kind)
            if copy.edit(args.bin, args.seed):
                copies.append(copy)
                if args.v:
                    print(f"{file.name}/{kind}", flush=True)
        kinds = collections.Counter(copy.kind for copy in copies)
        originals = {}
        for number, original in enumerate(sorted({copy.original for copy in copies})):
            # away from the files beside it, as its copies are
            place = pathlib.Path(folder, f"original-{number}")
            place.mkdir()
            originals[original] = shutil.copy(original, place)
        print(f"{len(copies)} copies of {len(originals)} files in {time.monotonic() - start:.0f} s: "
              + ", ".join(f"{kind} {kinds[kind]}" for kind in KINDS), flush=True)

        checked = {original: check(args.bin, place) for original, place in originals.items()}
        losses = {copy: [f"exit status {after} instead of {checked[copy.original]}"]
                  if (after := check(args.bin, copy.file)) > checked[copy.original] else [] for copy in copies}
        results = [("--check", losses, {})]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results += pool.map(lambda python: read_all(python, originals, copies), args.readers)
        passed = failed = 0
        for name, losses, opened in results:
            bad = {copy: what for copy, what in losses.items() if what}
            for copy, what in bad.items():
                print(f"FAIL {copy.original.name}/{copy.kind} {name}: " + "; ".join(what[:3]).replace("\n", " "))
            read = ", ".join(f"{way} {count}" for way, count in opened.items())
            print(f"{name}: {len(losses) - len(bad)} as before, {len(bad)} not" + (f" (opened before: {read})" if read else ""))
            passed, failed = passed + len(losses) - len(bad), failed + len(bad)
        print(f"{passed} passed, {failed} failed")
        sys.exit(1 if failed or not copies else 0)


if __name__ == "__main__":
    main()
