#!/usr/bin/env python3
"""Save tree.yaml again and again while other programs look at the mount: each save that was acknowledged must be in FILE.

    beside.py --bin PROGRAM [--seconds S] [--saves N] [--only GLOB] [-v]

Every case is SAVER/LOOKER, and runs for S seconds or N saves. The savers: vim with either way of backups, `sed -i`, the backup dance, and a
rename over it, by system calls. The lookers: `ls -l`, `cat`, `find`, Python's os.listdir, and listings that are opened, waited with and then read
on. A save that reports an error fails the case, and so does one that is not in FILE when it has returned. In the case sizes, each save changes the
shape of an array, and the file of that must have its new size at once, while others look it up anew all the time. The last line is "N passed, N failed".
"""
import argparse
import contextlib
import fnmatch
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "model"))

import disk              # noqa: E402
import mounting          # noqa: E402

HEAD = b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n"
PADDING = 4000
READ_ON = """
import os, random, time
while True:
    with os.scandir({mnt!r}) as entries:
        time.sleep(random.random() * 0.003)
        for entry in entries:
            try: entry.stat(follow_symlinks=False)
            except FileNotFoundError: pass
"""

LOOK_UP = """
import os
while True:
    for name in ("a.bin", "a.npy"):
        os.stat(os.path.join({mnt!r}, "arrays", name))
    for entry in os.scandir(os.path.join({mnt!r}, "arrays")):
        entry.stat()
"""
DROP = ["sh", "-c", "while :; do echo 2 > /proc/sys/vm/drop_caches; sleep 0.001; done"]


def text(number):
    return HEAD + b"note: %d\n...\n" % number


def vim(how):
    def save(mnt, number):
        done = subprocess.run(
            ["vim", "-u", "NONE", "-i", "NONE", "-n", "-es", "-c", f"set backupskip= backupcopy={how} writebackup",
             "-c", f"%s/^note: .*/note: {number}/", "-c", "wq", str(mnt / "tree.yaml")], capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
        return done.returncode
    return save


def sed(mnt, number):
    return subprocess.run(["sed", "-i", f"s/^note: .*/note: {number}/", str(mnt / "tree.yaml")], capture_output=True, timeout=60).returncode


def written(path, number):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(fd, text(number))
        os.fsync(fd)
    finally:
        os.close(fd)


def dance(mnt, number):
    os.rename(mnt / "tree.yaml", mnt / "tree.yaml~")
    written(mnt / "tree.yaml", number)
    os.unlink(mnt / "tree.yaml~")
    return 0


def over_it(mnt, number):
    written(mnt / ".t", number)
    os.rename(mnt / ".t", mnt / "tree.yaml")
    return 0


SAVERS = {"vim": vim("no"), "vim with backupcopy": vim("yes"), "sed -i": sed, "backup dance": dance, "rename": over_it}
LOOKERS = {
    "ls -l": ["sh", "-c", "while :; do ls -l {mnt}; done"],
    "cat": ["sh", "-c", "while :; do cat {mnt}/tree.yaml; done"],
    "find": ["sh", "-c", "while :; do find {mnt} -type f; done"],
    "listdir": [sys.executable, "-c", "import os\nwhile True: os.listdir({mnt!r})"],
    "read on": [sys.executable, "-c", READ_ON],
}


@contextlib.contextmanager
def looking(mnt, command):
    """A program that looks at the mount all the time, in a session of its own."""
    words = [command[0], *(word.format(mnt=str(mnt)) for word in command[1:])]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def saved(file):
    """The number of the version that FILE has."""
    with open(file, "rb") as opened:
        found = re.search(rb"^note: (\d+)$", opened.read(PADDING), re.M)
    return found and int(found[1])


def case(args, saver, looker):
    """Complaints, and how many saves were acknowledged."""
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        file = pathlib.Path(folder, "sample.asdf")
        file.write_bytes(text(0) + bytes(PADDING))
        number, lost, refused, until = 0, [], [], time.monotonic() + args.seconds
        with mounting.Mount(args.bin, file) as mount, looking(mount.dir, LOOKERS[looker]):
            while number < args.saves and time.monotonic() < until:
                number += 1
                try:
                    status = SAVERS[saver](mount.dir, number)
                except OSError as error:
                    status = error
                if status:
                    refused.append((number, status))
                    break
                if saved(file) != number:
                    lost.append(number)
        bad = [f"{len(lost)} of {number} acknowledged saves are lost: {lost[:5]}"] if lost else []
        return bad + [f"save {number}: {status}" for number, status in refused], number


def sizes(args):
    """As `case`, of saves after which a file has another size."""
    def shaped(size):
        return HEAD + b"a: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [%d]}\n...\n" % size

    with tempfile.TemporaryDirectory(prefix="beside-") as folder, contextlib.ExitStack() as stack:
        file = pathlib.Path(folder, "sample.asdf")
        file.write_bytes(disk.make(shaped(1), [disk.Block(bytes(10000))], 100))
        mnt = stack.enter_context(mounting.Mount(args.bin, file)).dir
        for command in [[sys.executable, "-c", LOOK_UP]] * 3 + [DROP]:
            stack.enter_context(looking(mnt, command))
        array = str(mnt / "arrays/a.bin")
        number, old, until = 0, [], time.monotonic() + args.seconds
        while number < args.saves and time.monotonic() < until:
            number += 1
            size = 1 + number % 9999
            fd = os.open(mnt / "tree.yaml", os.O_WRONLY | os.O_TRUNC)
            os.write(fd, shaped(size))
            os.fsync(fd)
            # see the module documentation of src/vfs/kernel.rs: the first may come while the kernel takes in the reply to another process
            if size not in (os.stat(array).st_size for _ in range(2)):
                old.append(number)
            os.close(fd)
    return [f"{len(old)} of {number} saves left the size of before: {old[:5]}"] if old else [], number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--saves", type=int, default=10**9)
    parser.add_argument("--only", default="*")
    parser.add_argument("-v", action="store_true", help="print passing cases too")
    args = parser.parse_args()
    passed = failed = 0
    cases = {f"{saver}/{looker}": functools.partial(case, args, saver, looker) for saver in SAVERS for looker in LOOKERS}
    for name, run in {**cases, "sizes": functools.partial(sizes, args)}.items():
        if not fnmatch.fnmatchcase(name, args.only):
            continue
        start = time.monotonic()
        bad, count = run()
        passed, failed = passed + (not bad), failed + bool(bad)
        if bad:
            print(f"FAIL {name}: " + "; ".join(bad), flush=True)
        elif args.v:
            print(f"ok   {name} ({time.monotonic() - start:.1f} s)", flush=True)
            print(f"     {count} saves", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
