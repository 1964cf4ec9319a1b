"""One run of the model: a mounted file, processes that work on it, and each system call held against the reference."""
import errno
import os
import pathlib
import pickle
import random
import select
import shutil
import subprocess
import sys

import disk
import mounting
import texts
from reference import OK, OURS, TREE, Data, Divergence, Reference

HERE = pathlib.Path(__file__).resolve().parent
WORKERS = 3
# How long a call may take, and how long what comes after a call's end may be awaited.
PATIENCE = 20
SOON = 5
OPTIONS = ["", "threads=1", "save=replace", "cache=16M"]


class Worker:
    """The other side of worker.py."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, str(HERE / "worker.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, *command):
        pickle.dump(command, self.process.stdin)
        self.process.stdin.flush()

    def receive(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            raise Divergence(f"a call takes more than {PATIENCE} s")
        return pickle.load(self.process.stdout)

    def call(self, *command):
        """(errno or 0, value)."""
        self.send(*command)
        kind, value = self.receive()
        return (OK, value) if kind == "ok" else (value, None)

    def end(self):
        self.process.kill()
        self.process.communicate()


def name_of(number):
    return errno.errorcode.get(number, str(number)) if number else "0"


def brief(value):
    text = repr(value)
    return text if len(text) < 100 else f"{text[:80]}…({len(value)})" if hasattr(value, "__len__") else text[:90]


class Session:
    """What a run has: the reference, the mount, the workers, and what was done."""

    def __init__(self, args, seed, folder, base):
        self.args, self.random, self.base = args, random.Random(seed), base
        self.options = args.options if args.options is not None else OPTIONS[seed % len(OPTIONS)]
        self.file, self.dir = folder / "sample.asdf", base / "mnt"
        self.history, self.step, self.slots = [], 0, 0
        self.handles, self.streams, self.maps, self.known = {}, {}, {}, {TREE}
        self.inos, self.past, self.times = {}, set(), {}
        self.lagging = self.looking = False
        self.seen = None
        self.reference = Reference(*self.sample())
        self.workers = [Worker() for _ in range(WORKERS)]
        self.mount = None

    def sample(self):
        """The first FILE."""
        rng, blocks = self.random, []
        for _ in range(rng.choice([0, 1, 2, 3, 3, 4])):
            length = rng.choice([8, 100, 1000, 5000, 40000])
            blocks.append(disk.Block(rng.randbytes(length // 8) * 8, rng.choice(["", "", "zlib", "lz4", "bzp2", "zstd"]), rng.random() < 0.8))
        if rng.random() < 0.2:
            blocks.append(disk.Block(rng.randbytes(600), "", False, True))
        text = texts.new_text(rng, blocks)
        padding = rng.choice([0, 100, 1000, 5000]) if blocks else 0
        pad = rng.choice([b"\0", b" "])
        self.file.write_bytes(disk.make(text, blocks, padding, pad, rng.random() < 0.9))
        return text, blocks

    # ------------------------------------------------------------ mounting

    def start(self):
        self.dir.mkdir(exist_ok=True)
        options = [*(["-o", self.options] if self.options else []), "--log-file", str(self.base / "log")]
        said = subprocess.run([self.args.bin, *options, str(self.file), str(self.dir)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=mounting.PATIENCE)
        if said.returncode:
            raise Divergence(f"mounting: exit status {said.returncode}: {said.stderr}")
        self.daemon = next(iter(mounting.daemons(self.dir)))
        if self.random.random() < 0.3 and not self.args.quiet:
            self.beside = Lister(self.dir)

    beside = None

    def stop_beside(self):
        if self.beside:
            self.beside.end()
            self.beside = None

    def kill(self):
        """The daemon dies; what was open is of no use any more."""
        self.stop_beside()
        try:
            os.kill(self.daemon, 9)
        except ProcessLookupError:
            pass
        mounting.wait_until(lambda: not mounting.running(self.daemon))

    def detach(self):
        for worker in self.workers:
            worker.call("drop")
        subprocess.run(["umount", "-l", str(self.dir)], capture_output=True, timeout=mounting.PATIENCE)
        self.handles.clear()
        self.streams.clear()
        self.maps.clear()
        self.inos.clear()

    def start_over(self):
        """What a new mount knows."""
        self.reference.start()
        self.known = {TREE}
        self.times = {}

    def unmount(self):
        self.stop_beside()
        for worker in self.workers:
            worker.call("drop")
        gone = mounting.wait_until(lambda: not mounting.mounted(self.dir) or subprocess.run(
            ["umount", str(self.dir)], capture_output=True, timeout=mounting.PATIENCE).returncode == 0)
        if not gone:
            mounting.abort(self.dir)
            raise Divergence("the mount can't be unmounted")
        if not mounting.wait_until(lambda: not mounting.running(self.daemon)):
            raise Divergence("the daemon outlives its mount")
        self.detach()

    def end(self):
        """Whatever happened, nothing is left."""
        self.stop_beside()
        mounting.abort(self.dir)
        if hasattr(self, "daemon") and mounting.running(self.daemon):
            os.kill(self.daemon, 9)
            mounting.wait_until(lambda: not mounting.running(self.daemon))
        for worker in self.workers:
            worker.end()
        subprocess.run(["umount", "-l", str(self.dir)], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    # ------------------------------------------------------------ calls

    def path(self, name):
        return str(self.dir / name)

    def call(self, w, *command):
        shown = " ".join(brief(part).replace(str(self.dir) + "/", "") for part in command[1:])
        self.history.append(f"{self.step}: {'  looks: ' if self.looking else ''}{w} {command[0]} {shown}")
        code, value = self.workers[w].call(*command)
        self.history[-1] += f" = {name_of(code)}"
        return code, value

    def must(self, what, code, want):
        wanted = want if isinstance(want, (set, frozenset)) else {want}
        if code not in wanted:
            raise Divergence(f"{what}: {name_of(code)}, where {' or '.join(sorted(map(name_of, wanted)))} is right")

    def slot(self):
        self.slots += 1
        return f"f{self.slots}"

    # files of the root

    def open_text(self, w, name, flags):
        """Opens a file of the root; its slot, or None."""
        ref, slot = self.reference, self.slot()
        file = ref.names.get(name)
        self.known.add(name)
        if file and flags & os.O_CREAT and flags & os.O_EXCL:
            want = errno.EEXIST
        elif not file and not flags & os.O_CREAT:
            want = errno.ENOENT
        elif file and file.target is not None:
            return None
        else:
            want = OK
        code, found = self.call(w, "open", slot, self.path(name), flags)
        self.must(f"opening {name}", code, want)
        if code:
            return None
        made = not file
        file = file or ref.make(name)
        write = flags & os.O_ACCMODE != os.O_RDONLY
        handle = ref.open_text(name, write, not made and bool(flags & os.O_TRUNC), bool(flags & os.O_APPEND))
        handle.sync, handle.readable = bool(flags & os.O_DSYNC), flags & os.O_ACCMODE != os.O_WRONLY
        self.handles[slot] = (w, handle)
        self.note_ino(file, found)
        return slot

    def note_ino(self, file, found):
        if file.ino is None:
            # for a moment the name may still lead to the file of before another program's change
            file.ino = None if self.lagging else found["ino"]
        elif file.ino != found["ino"]:
            raise Divergence(f"inode {found['ino']}, where it was {file.ino} before")

    def write(self, slot, data, offset=None):
        """Writes at an offset, or at the end if the descriptor appends. Now and then fcntl(2) turns that round for this one write."""
        _, handle = self.handles[slot]
        turned = (not isinstance(handle, Data) or handle.node.kind == "block") and self.random.random() < 0.03
        if turned:
            self.set_append(slot, not handle.append)
            offset = offset or 0
        code = self.write_as_opened(slot, data, offset)
        if turned:
            self.set_append(slot, not handle.append)
        return code

    def set_append(self, slot, append):
        w, handle = self.handles[slot]
        self.must(f"fcntl {slot}", self.call(w, "set_append", slot, append)[0], OK)
        handle.append = append

    def write_as_opened(self, slot, data, offset):
        w, handle = self.handles[slot]
        ref = self.reference
        if isinstance(handle, Data):
            want = ref.write_data(handle, offset or 0, data)
        else:
            ref.write_text(handle, offset or 0, data)
            want = OK
            if handle.sync:
                want = ref.flush_text(handle, errno.EIO)
        appends = handle.append or offset is None
        code, _ = self.call(w, "write", slot, data) if appends else self.call(w, "pwrite", slot, data, offset)
        self.must(f"writing {slot}", code, want)
        return code

    def resize(self, slot, length):
        w, handle = self.handles[slot]
        if isinstance(handle, Data):
            want = self.reference.resize_data(handle, length)
        else:
            self.reference.resize_text(handle, length)
            want = OK
        self.must(f"ftruncate {slot}", self.call(w, "ftruncate", slot, length)[0], want)

    def fsync(self, slot):
        w, handle = self.handles[slot]
        ref = self.reference
        want = ref.flush_data(handle, False) if isinstance(handle, Data) else ref.flush_text(handle, errno.EIO)
        code, _ = self.call(w, "fsync", slot)
        self.must(f"fsync {slot}", code, want)
        return code

    def close(self, slot):
        w, handle = self.handles.pop(slot)
        ref = self.reference
        if isinstance(handle, Data):
            want = ref.flush_data(handle)
            ref.release_data(handle)
            self.lagging |= want != OK or bool(handle.writing)
        else:
            want = ref.flush_text(handle)
            before = (ref.tree, ref.rejected)
            ref.release_text(handle)
            self.lagging |= before != (ref.tree, ref.rejected)
        code, _ = self.call(w, "close", slot)
        self.must(f"close {slot}", code, want)
        return code

    def close_in_child(self, slot):
        """A process that inherited the descriptor closes it: half a text is no fault of it."""
        w, handle = self.handles[slot]
        want = self.reference.flush_text(handle, inherited=True)
        code, _ = self.call(w, "close_in_child", slot)
        self.must(f"close {slot} in a child", code, OK if want == errno.EINVAL else want)

    def read(self, slot):
        w, _ = self.handles[slot]
        code, found = self.call(w, "read_all", slot)
        self.compare_held(slot, code, found)

    # names

    def rename(self, w, old, new, flags=0):
        self.known |= {old, new}
        want = self.reference.rename(old, new, flags)
        code, _ = self.call(w, "rename", self.path(old), self.path(new), flags)
        self.must(f"renaming {old} to {new}", code, want)
        return code

    def unlink(self, w, name):
        want = OK if name in self.reference.names else errno.ENOENT
        if want == OK:
            self.reference.take(name)
        code, _ = self.call(w, "unlink", self.path(name))
        self.must(f"removing {name}", code, want)
        return code

    def link(self, w, old, new):
        self.known |= {old, new}
        want = self.reference.link(old, new) if old in self.reference.names else errno.ENOENT
        code, _ = self.call(w, "link", self.path(old), self.path(new))
        self.must(f"linking {old} as {new}", code, want)
        return code

    def symlink(self, w, target, name):
        self.known.add(name)
        want = errno.EEXIST if name in self.reference.names else OK
        if want == OK:
            self.reference.make(name, target)
        code, _ = self.call(w, "symlink", target, self.path(name))
        self.must(f"a symlink {name}", code, want)
        return code

    def truncate_text(self, w, name, length):
        """truncate(2) by path: saved at once."""
        ref = self.reference
        handle = ref.open_text(name, True)
        ref.resize_text(handle, length)
        want = ref.flush_text(handle)
        ref.release_text(handle)
        code, _ = self.call(w, "truncate", self.path(name), length)
        self.must(f"truncating {name}", code, want)
        self.lagging |= code != OK

    # blocks and arrays

    def open_data(self, w, kind, name, flags):
        ref, slot, path, handle = self.reference, self.slot(), self.data_path(kind, name), None
        write, node = flags & os.O_ACCMODE != os.O_RDONLY, ref.node(kind, name)
        if (path in ref.gone or not node) and not flags & os.O_CREAT:
            want = errno.ENOENT
        else:
            # a name that is made while it is gone is the file of before, emptied
            truncate = bool(node) and bool(flags & os.O_TRUNC or path in ref.gone)
            want, handle = ref.open_data(kind, name, write, truncate, bool(flags & os.O_APPEND))
        code, found = self.call(w, "open", slot, self.path(path), flags)
        self.must(f"opening {path}", code, want)
        if flags & os.O_CREAT:
            ref.back(path)                   # also if another file of the block is being written
        if code:
            return None
        handle.readable, handle.ino = flags & os.O_ACCMODE != os.O_WRONLY, found["ino"]
        self.handles[slot] = (w, handle)
        self.note_node(path, handle.node, found)
        return slot

    @staticmethod
    def data_path(kind, name):
        return f"blocks/{name}.bin" if kind == "block" else f"arrays/{name}.{kind}"

    def note_node(self, path, node, found):
        """A number never stands for two forms of a name, or two states of its bytes, but for what grows. A name may get another one without need."""
        ino = found["ino"]
        before = self.inos.get((path, ino), node)
        if before is not node and not node.block.streamed and self.reference.shown(node) not in before.versions:
            raise Divergence(f"{path} is another file now, and has inode {ino} as before")
        if not self.lagging:                 # else the name may still lead to the number of before
            if node.ino not in (None, ino):
                node.earlier.append(node.saved())
            node.ino, self.inos[path, ino] = ino, node

    def import_file(self, w, kind, name, scratch):
        """The rename of a scratch file over a block or array."""
        path = self.data_path(kind, name)
        want = self.reference.import_file(kind, name, scratch)
        code, _ = self.call(w, "rename", self.path(scratch), self.path(path))
        self.must(f"renaming {scratch} to {path}", code, want)
        if not code:
            self.reference.back(path)

    def remove_array(self, w, path):
        want = errno.ENOENT if path in self.reference.gone else OK
        self.must(f"removing {path}", self.call(w, "unlink", self.path(path))[0], want)
        if not want:
            self.reference.remove_array(path)

    def truncate_block(self, w, number, length):
        gone = f"blocks/{number}.bin" in self.reference.gone
        length = length or 1                 # to nothing is the same as O_TRUNC where arrays need the bytes
        want = errno.ENOENT if gone else self.reference.truncate_block(number, length)
        self.must(f"truncating block {number}", self.call(w, "truncate", self.path(f"blocks/{number}.bin"), length)[0], want)

    def remove_block(self, w, number):
        want = self.reference.remove_block(number)
        self.must(f"removing block {number}", self.call(w, "unlink", self.path(f"blocks/{number}.bin"))[0], want)

    def recompress(self, w, number, code):
        gone = f"blocks/{number}.bin" in self.reference.gone
        want = errno.ENOENT if gone else self.reference.recompress(number, code, code != "nope")
        value = (code or "none").encode()
        found, _ = self.call(w, "setxattr", self.path(f"blocks/{number}.bin"), "user.asdf.compression", value)
        if want == errno.EBUSY and found == OK:
            self.reference.blocks[number].code = code
            return
        self.must(f"compressing block {number}", found, want)

    # listings that are held open

    def directory(self, name):
        """What names a directory has: {name: file, or None}."""
        ref, inside = self.reference, name + "/" if name else ""
        entries = {file[len(inside):]: of for file, of in ref.names.items() if file.rpartition("/")[0] == name}
        if name == "":
            return {**dict.fromkeys(OURS), **entries}
        if name == "blocks":
            numbers = range(len(ref.blocks) + (len(ref.blocks) in ref.writing))
            return entries | dict.fromkeys({f"{number}.bin" for number in numbers} - {gone.removeprefix(inside) for gone in ref.gone})
        for path in ref.arrays():
            first, _, rest = ("arrays/" + path).removeprefix(inside).partition("/")
            if not ("arrays/" + path).startswith(inside):
                continue
            entries |= dict.fromkeys([first] if rest else {f"{first}.bin", f"{first}.npy"} - {gone.removeprefix(inside) for gone in ref.gone})
        return entries

    def opendir(self, w, name):
        slot = self.slot()
        self.must(f"opendir {name}", self.call(w, "opendir", slot, self.path(name))[0], OK)
        entries = self.directory(name)
        self.streams[slot] = {"worker": w, "dir": name, "always": set(entries), "got": [], "ever": {key: {file} for key, file in entries.items()}}
        return slot

    def names_changed(self):
        for stream in self.streams.values():
            entries = self.directory(stream["dir"])
            stream["always"] &= set(entries)
            for name, file in entries.items():
                stream["ever"].setdefault(name, set()).add(file)

    def getdents(self, slot, room):
        """The next names of a listing; whether there are no more."""
        self.names_changed()                 # one may have come back since the last look
        stream = self.streams[slot]
        code, found = self.call(stream["worker"], "getdents", slot, room)
        self.must("getdents", code, OK)
        self.history[-1] += f" {' '.join(name for name, _, _ in found)}"
        stream["got"] += found
        for name, ino, _ in found:
            if name not in stream["ever"]:
                raise Divergence(f"a listing shows {name}, which was not there at any time since it was opened")
            inos = {file.ino for file in stream["ever"][name] if file}
            if inos and None not in inos | {None} - inos and ino not in inos:
                raise Divergence(f"a listing shows {name} with inode {ino}, which it never had")
        if found:
            return False
        names = [name for name, _, _ in stream["got"]]
        if len(set(names)) < len(names):
            raise Divergence(f"a listing shows a name twice: {sorted(names)}")
        if missing := stream["always"] - set(names):
            raise Divergence(f"a listing leaves out {sorted(missing)}, there all the time")
        return True

    def closedir(self, slot):
        self.must("closedir", self.call(self.streams.pop(slot)["worker"], "close", slot)[0], OK)

    # maps

    def map(self, slot):
        w, handle = self.handles[slot]
        name = self.slot()
        self.must("mmap", self.call(w, "map", name, slot, len(handle.file.data))[0], OK)
        self.maps[name] = (w, handle)
        return name

    def store(self, name, offset, data):
        """Writes into a map; the file system hears of it at msync, fsync or close."""
        w, _ = self.maps[name]
        self.must("storing", self.call(w, "store", name, offset, data)[0], OK)

    def unmap(self, name):
        w, _ = self.maps.pop(name)
        self.must("munmap", self.call(w, "unmap", name)[0], OK)

    def msync(self, name):
        w, _ = self.maps[name]
        return self.call(w, "msync", name)[0]

    # held descriptors

    def compare_held(self, slot, code, found):
        """A number that its name does not lead to any more shows what it was opened for, as long as that exists."""
        _, handle = self.handles[slot]
        if not handle.readable:
            return
        node = handle.node if isinstance(handle, Data) else None
        if code == errno.ESTALE and (node.versions if node else handle.file.stale):
            return
        if code == errno.ESTALE and node and handle.beside and not handle.beside.patched:
            return                           # the close has given the other files of the block the next number
        self.must(f"reading {slot}", code, OK)
        if node and node.ino != handle.ino and mixed(found[1], [*node.earlier, node.saved()]):
            return                           # the name has got another number without need
        if node and node.versions and node.block.streamed:
            return                           # it may show what it has grown to
        if node and node.versions and mixed(found[1], [*node.versions, node.saved()]):
            return
        self.same(f"through {slot}", found[1], self.reference.shown(node) if node else handle.file.data)

    @staticmethod
    def same(what, found, want):
        if found == want:
            return
        at = len(os.path.commonprefix([found, want]))
        differ = f"from byte {at} on {found[at:at + 60]!r}, not {want[at:at + 60]!r}"
        raise Divergence(f"{what}: {len(found)} bytes, where {len(want)} are right; {differ}")


def mixed(found, versions):
    """Whether each byte is one of these versions'."""
    lines = [version for version in versions if len(version) == len(found)]
    return found in lines or bool(lines) and all(byte in column for byte, column in zip(found, zip(*lines)))


class Lister:
    """A process that lists the mount again and again, as `ls -l` in a loop."""

    def __init__(self, folder):
        # with a slash, as a process that has the path itself among its arguments is taken for the daemon, see `mounting.daemons`
        self.process = subprocess.Popen(["sh", "-c", f"while ls -l {folder}/ {folder}/blocks {folder}/arrays; do :; done >/dev/null 2>&1"],
                                        start_new_session=True)

    def end(self):
        os.killpg(self.process.pid, 9)
        self.process.wait()
