"""What the mount must show and FILE must hold, in memory: the five laws of the mount, with no I/O.

Each method that changes something returns what the system call must return, 0 or an errno, and does what follows from it.
"""
import contextlib
import dataclasses
import errno
import time
from dataclasses import dataclass, field

import disk
import texts

TREE = "tree.yaml"
OURS = ("arrays", "blocks", "info")
OK = 0
# How long the name of a thing of FILE is gone after it was removed; and after what part of that nobody relies on it.
GONE, GONE_FOR_SURE = 2.0, 1.0


class Divergence(Exception):
    """The mount does not do what it must."""


@dataclass(eq=False)
class File:
    """A scratch file, or the one that is tree.yaml: bytes and names."""
    data: bytes = b""
    epoch: int = 0                           # which of FILE's texts it was made of
    target: str = None                       # of a symbolic link
    names: int = 1
    ino: int = None
    dirty: bool = False                      # written since it was last saved
    kept: int = OK                           # the error of a close that refused it, if it was not written to since
    stale: bool = False                      # it was tree.yaml when another program changed that, or has been imported
    handles: list = field(default_factory=list)


@dataclass(eq=False)
class Text:
    """A descriptor of a File."""
    file: File
    write: bool
    append: bool = False
    readable: bool = True
    sync: bool = False


@dataclass(eq=False)
class Node:
    """One number of a block or array: the same number, the same form."""
    kind: str                                # block, bin or npy
    name: object                             # number of the block, or path of the array
    number: int                              # of its block
    block: disk.Block                        # the bytes of FILE that it shows
    array: texts.Array = None
    ino: int = None                          # the last one that was seen
    changes: int = 0                         # of its bytes, while it has this number
    versions: list = None                    # what it may also show, once its name has the next number
    earlier: list = dataclasses.field(default_factory=list)  # what it showed when its name got another number without need

    def header(self):
        return self.array.header(self.block.data) if self.kind == "npy" else b""

    def saved(self):
        """What FILE's bytes are to it."""
        return self.block.data if self.kind == "block" else self.header() + self.array.elements(self.block.data)

    def spliced(self, shown):
        """The bytes of its block that make it show this; None if no bytes do."""
        if self.kind == "block":
            return bytes(shown)
        header, data, size = self.header(), bytearray(self.block.data), int(self.array.dtype[2])
        if len(shown) != len(self.saved()) or shown[:len(header)] != header:
            return None
        for at, place in enumerate(self.array.places(len(data)).reshape(-1)):
            data[place:place + size] = shown[len(header) + at * size:][:size]
        return bytes(data)


@dataclass(eq=False)
class Writing:
    """The one file of the mount that has a block open for writing."""
    node: Node
    descriptors: int = 0
    overlay: bytearray = None                # all its bytes, if they are to be imported
    touched: bool = False                    # whether the overlay holds more than the emptiness that open(2) made
    emptied: bool = False                    # an array was, and is written from its beginning on
    patched: bool = False                    # whether bytes were written into a raw block since the last close
    owed: bool = False                       # its checksum, since then


@dataclass(eq=False)
class Data:
    """A descriptor of a block or array."""
    node: Node
    append: bool = False
    writing: Writing = None
    readable: bool = True
    ino: int = None
    beside: Writing = None                   # the other file of the block that was being patched when this was opened


class Reference:
    """The mount and FILE."""

    def __init__(self, text, blocks):
        self.committed, self.blocks = text, blocks
        self.rejected = None                 # what FILE.rejected.yaml holds
        self.rejected_of = None              # and its file, and the epoch of that text
        self.start()

    def start(self):
        """A new mount."""
        self.names = {TREE: File(self.committed)}
        self.gone = {}                       # names of FILE's things that were removed, and when
        self.epoch, self.parsed = 0, {}
        self.nodes, self.replaced, self.writing = {}, [], {}

    def arrays(self):
        """The arrays of the committed tree."""
        if self.committed not in self.parsed:
            self.parsed = {self.committed: texts.arrays_of(self.committed)}
        return self.parsed[self.committed]

    # ------------------------------------------------------------ names

    @property
    def tree(self):
        return self.names.get(TREE)

    def wait(self):
        """Waits until names that were removed are surely gone, or surely not."""
        for name, when in list(self.gone.items()):
            if time.monotonic() - when > GONE_FOR_SURE:
                time.sleep(max(0, when + GONE + 0.2 - time.monotonic()))
                self.back(name)

    def is_overdue(self):
        """Whether a name has come back in the middle of a step, as the machine stood still for a second: a call may be on either side of it."""
        return any(time.monotonic() - when > GONE for when in self.gone.values())

    def back(self, name):
        if self.gone.pop(name, None) and name == TREE:
            self.give(TREE, File(self.committed, self.epoch))

    def give(self, name, file):
        """Gives a name to a file, instead of the one that has it."""
        if old := self.names.get(name):
            old.names -= 1
        self.names[name] = file
        self.gone.pop(name, None)

    def take(self, name):
        self.names.pop(name).names -= 1
        if name == TREE:
            self.gone[TREE] = time.monotonic()

    def make(self, name, target=None):
        file = File(epoch=self.epoch, target=target, dirty=True)
        self.give(name, file)
        return file

    def rename(self, old, new, flags):
        """renameat2."""
        exchange = flags == 2
        if old in OURS or new in OURS:
            return errno.EPERM if old in self.names or old in OURS else errno.ENOENT
        first, second = self.names.get(old), self.names.get(new)
        if not first or exchange and not second:
            return errno.ENOENT
        if flags == 1 and second:
            return errno.EEXIST
        if first is second:
            return OK                        # the kernel does not ask for two names of one file
        becomes = first if new == TREE else second if exchange and old == TREE else None
        if becomes and (want := self.becomes_tree(becomes, errno.EIO)) != OK:
            return want
        if exchange:
            self.names[old], self.names[new] = second, first
        else:
            first.names += 1
            self.give(new, first)
            self.take(old)
        return OK

    def link(self, old, new):
        if new in OURS or new in self.names:
            return errno.EEXIST
        file = self.names[old]
        if new == TREE and (want := self.becomes_tree(file, errno.EINVAL)) != OK:
            return want
        file.names += 1
        self.give(new, file)
        return OK

    # ------------------------------------------------------------ texts

    def open_text(self, name, write, truncate=False, append=False):
        handle = Text(self.names[name], write, append)
        handle.file.handles.append(handle)
        if truncate:
            self.change(handle, b"")
        return handle

    def change(self, handle, data):
        """The bytes of a file, changed through a descriptor."""
        file = handle.file
        file.data, file.dirty, file.kept = data, True, OK
        if not data:
            file.epoch = self.epoch          # what is written into it from now on is made of the text of now

    def write_text(self, handle, offset, data):
        old = handle.file.data
        at = len(old) if handle.append else offset
        self.change(handle, old[:at].ljust(at, b"\0") + data + old[at + len(data):])

    def resize_text(self, handle, length):
        self.change(handle, handle.file.data[:length].ljust(length, b"\0"))

    def verdict(self, file, refusal):
        """Whether the bytes of a file can become FILE's text."""
        if file.data == self.committed:
            return OK
        if file.stale or file.epoch != self.epoch:
            return errno.ESTALE
        return OK if texts.may_be_saved(file.data, self.committed, self.blocks) else refusal

    def saved(self, file):
        with self.changing():
            self.committed = file.data
        file.dirty, self.rejected = False, None

    def reject(self, file, why=errno.EINVAL):
        """Keeps a text that is refused; one that is blank, or was refused before and not written to since, is not worth another."""
        again, file.kept = file.kept, errno.EINVAL if why == errno.EIO else why
        if self.rejected is None or not (again or texts.is_blank(file.data)):
            self.rejected, self.rejected_of = file.data, (file, file.epoch)

    def unsaved(self, handle):
        """Whether a flush of a descriptor saves something: the file that is tree.yaml, or was as another program changed FILE."""
        file = handle.file
        return handle.write and file.dirty and (file is self.tree or file.stale)

    def flush_text(self, handle, refusal=errno.EINVAL, inherited=False):
        """close or fsync. As a process closes a descriptor that it inherited, a text that is no valid tree, or was refused, stays what it is."""
        file = handle.file
        if inherited and handle.write and file.dirty and file.kept:
            return file.kept
        if not self.unsaved(handle) or texts.is_beginning(file.data):
            return OK
        want = self.verdict(file, refusal)
        if want == OK:
            self.saved(file)
        elif not (inherited and want == refusal):
            self.reject(file, want)
        return want

    def release_text(self, handle):
        """The end of a descriptor, after its last flush. The last one that writes leaves no blank text: what was refused of it is shown again."""
        file, unsaved = handle.file, self.unsaved(handle)
        file.handles.remove(handle)
        if unsaved and not any(other.write for other in file.handles) and texts.is_beginning(file.data):
            if not texts.is_blank(file.data):
                self.reject(file)
            elif file is self.tree and self.rejected is not None and self.rejected_of == (file, self.epoch):
                self.give(TREE, File(self.rejected, self.epoch, dirty=True, kept=errno.EINVAL))
                self.rejected_of = (self.tree, self.epoch)
            elif file is self.tree:
                self.give(TREE, File(self.committed, self.epoch))

    def becomes_tree(self, file, refusal):
        """What must be answered when a file gets the name tree.yaml. FILE's text that is put back is no save, but a file that was written is one."""
        if file.target is not None:
            return errno.EINVAL
        want = self.verdict(file, refusal)
        if want != OK:
            self.reject(file, want)
        elif file.dirty or file.data != self.committed:
            self.saved(file)
        return want

    # ------------------------------------------------------------ numbers

    def node(self, kind, name):
        """The number that the name of a block or array has now; None if it has none."""
        key = (kind, name)
        if key not in self.nodes:
            array = None if kind == "block" else self.arrays().get(name)
            number = name if kind == "block" else array.block(len(self.blocks)) if array else None
            if number is None or number >= len(self.blocks):
                return None
            self.nodes[key] = Node(kind, name, number, self.blocks[number], array)
        return self.nodes[key]

    def shown(self, node):
        """What a current number shows."""
        writing = self.writing.get(node.number)
        return bytes(writing.overlay) if writing and writing.node is node and writing.overlay is not None else node.saved()

    @contextlib.contextmanager
    def changing(self, *numbers, through=None):
        """What changes blocks, or FILE's text: names whose things it changes get the next number, but for the one that it came through."""
        before = [(node, self.shown(node), self.form(node)) for node in self.nodes.values()]
        yield
        for node, old, form in before:
            if node is not through and (node.number in numbers or form != self.form(node)):
                self.replace(node, old)

    def form(self, node):
        if node.kind == "block":
            return True
        array = self.arrays().get(node.name)
        number = array and array.block(len(self.blocks))
        if array is None or number >= len(self.blocks):
            return None
        places = array.places(len(self.blocks[number].data))
        return number, array.dtype, places.shape, places.tobytes()

    def replace(self, node, old):
        node.versions = [old]
        self.replaced.append(self.nodes.pop((node.kind, node.name)))

    # ------------------------------------------------------------ blocks and arrays

    def open_data(self, kind, name, write, truncate=False, append=False):
        """(errno, descriptor) of a block or array that is there, or of a new block."""
        node = self.node(kind, name)
        if not node:
            if self.blocks and self.blocks[-1].streamed:
                return errno.EPERM, None
            node = self.nodes[kind, name] = Node(kind, name, name, disk.Block(b""))
            self.writing[name] = Writing(node, 0, bytearray(), True)
        writing = None
        if write:
            writing = self.writing.setdefault(node.number, Writing(node))
            if writing.node is not node:
                return errno.EBUSY, None
            writing.descriptors += 1
            if truncate:
                writing.emptied, node.changes = kind != "block", node.changes + 1
                self.keep(writing, b"", touched=node.number >= len(self.blocks))
        other = self.writing.get(node.number)
        beside = other if other and other.patched and other.node is not node else None
        return OK, Data(node, append and kind == "block", writing, beside=beside)

    def write_data(self, handle, offset, data):
        node, writing = handle.node, handle.writing
        if node.versions is not None:
            return errno.ESTALE
        shown = bytearray(self.shown(node))
        at = len(shown) if handle.append else offset
        end = at + len(data)
        header = slice(at, min(end, len(node.header())))     # what goes into the header must be there already
        if node.kind != "block" and not writing.emptied and (end > len(shown) or shown[header] != data[:max(0, header.stop - at)]):
            return errno.EPERM
        fits = end <= len(shown)
        shown.extend(bytes(max(0, at - len(shown))))
        shown[at:end] = data
        if writing.overlay is None and fits and not node.block.code:
            self.patch(writing, shown)
        else:
            self.keep(writing, shown)
        node.changes += 1
        return OK

    def keep(self, writing, shown, touched=True):
        """Bytes that are imported at a close. What was patched before gets its checksum."""
        writing.node.block.summed |= writing.owed
        writing.patched = writing.owed = False
        writing.overlay, writing.touched = None if shown is None else bytearray(shown), touched and shown is not None

    def patch(self, writing, shown):
        """A write into a raw block: FILE's at once."""
        node = writing.node
        for other in self.replaced:
            if other.block is node.block:
                other.versions.append(other.saved())
        # the other files get the next number by the first write; from then on, until the close, they are read as FILE is
        with self.changing(*[] if writing.patched else [node.number], through=node):
            node.block.data = node.spliced(shown)
        for other in self.nodes.values():
            other.changes += other is not node and other.number == node.number
        writing.patched, writing.owed = True, writing.owed or node.block.summed
        node.block.summed = False

    def resize_data(self, handle, length):
        """ftruncate of a block."""
        node, writing = handle.node, handle.writing
        if node.versions is not None:
            return errno.ESTALE
        if len(self.shown(node)) != length or writing.overlay == b"":    # unlike O_TRUNC alone, it asks for no bytes
            self.keep(writing, self.shown(node)[:length].ljust(length, b"\0"))
            node.changes += 1
        return OK

    def truncate_block(self, number, length):
        """truncate by name: imported at once, or nothing changes."""
        writing = self.writing.get(number)
        node = self.node("block", number)
        if writing and writing.node is not node:
            return errno.EBUSY
        shown = self.shown(node)
        if len(shown) == length and not (writing and writing.touched):
            if writing and writing.patched:
                self.keep(writing, None)     # it ends as a close of the file does, with a checksum
            return OK
        return self.import_data(node, node.spliced(shown[:length].ljust(length, b"\0")), node)

    def import_data(self, node, data, through=None, text=None):
        """A block gets these bytes, and FILE this text with them; or nothing changes."""
        number, arrays = node.number, (texts.arrays_of(text) if text else self.arrays()).values()
        if data is None or any(array.block(len(self.blocks)) == number and array.places(len(data)) is None for array in arrays):
            return errno.EINVAL
        if number == len(self.blocks) and any(array.source < 0 for array in arrays):
            return errno.EINVAL
        writing = self.writing.get(number, Writing(node))
        with self.changing(number, through=through):
            self.blocks[number:number + 1] = [dataclasses.replace(node.block, data=data, summed=node.block.summed or writing.owed)]
            self.reload(text or self.committed)
        node.block = self.blocks[number] if through else node.block
        node.changes += 1
        writing.overlay, writing.touched, writing.emptied, writing.patched, writing.owed = None, False, False, False, False
        return OK

    def import_file(self, kind, name, scratch):
        """The rename of a scratch file over a block or array. An NPY file of another form brings that along, if all of the block is the array's."""
        node, file = self.node(kind, name), self.names[scratch]
        writing = self.writing.get(node.number)
        if writing and (writing.node is not node or writing.overlay is not None):
            return errno.EBUSY
        if writing:
            self.keep(writing, None)         # the checksum comes first, even if the file is refused then
        data, text = node.spliced(file.data), None
        if kind == "npy" and data is None and (other := texts.read_npy(file.data)):
            dtype, shape, data = other
            users = [array for array in self.arrays().values() if array.block(len(self.blocks)) == node.number]
            if users != [node.array] or not node.array.covers(len(node.block.data)):
                return errno.EPERM
            text = texts.redeclared(self.committed, node.name, node.array, dtype, shape)
        if self.import_data(node, data, text=text) != OK:
            return errno.EIO
        self.writing.pop(node.number, None)
        file.stale, file.dirty = True, False
        self.take(scratch)
        return OK

    def flush_data(self, handle, close=True):
        """close or fsync. Elements that were written before the tree has changed go where the array was in its block."""
        writing, node = handle.writing, handle.node
        if not writing:
            return OK
        if writing.patched and self.writing.get(node.number) is not writing:
            return errno.ESTALE              # another program has changed FILE since
        if writing.patched and close:
            self.keep(writing, None)
        if not writing.touched:
            return OK
        if node.versions is not None and (writing.emptied or self.writing.get(node.number) is not writing):
            return errno.ESTALE
        want = self.import_data(node, node.spliced(writing.overlay), node)
        return errno.EIO if want and not close else want

    def release_data(self, handle):
        """The end of a descriptor: what the last one that writes has not imported is given up. An emptiness alone was never FILE's."""
        if not (writing := handle.writing):
            return
        writing.descriptors -= 1
        if not writing.descriptors:
            node = writing.node
            if writing.touched:
                for other in self.nodes.values():
                    other.changes += other.number == node.number
                if node.versions is None:
                    self.replace(node, bytes(writing.overlay))
            if self.writing.get(node.number) is writing:
                del self.writing[node.number]

    def remove_block(self, number):
        """unlink of a block: the last one, which no array uses, goes; the name of another one comes back."""
        path, used = f"blocks/{number}.bin", {array.block(len(self.blocks)) for array in self.arrays().values()}
        last = number + 1 == len(self.blocks) and number not in used
        if path in self.gone:
            return errno.ENOENT
        if number in self.writing or last and number + 1 in self.writing:
            return errno.EBUSY
        if number >= len(self.blocks):
            return errno.ENOENT
        if not last:
            self.gone[path] = time.monotonic()
            return OK
        if any(array.source < 0 for array in self.arrays().values()):
            return errno.EINVAL
        with self.changing(number):
            self.blocks.pop()
        self.gone.pop(path, None)
        return OK

    def remove_array(self, path):
        """unlink of an array's file: the array stays."""
        self.gone[path] = time.monotonic()

    def recompress(self, number, code, known):
        """setfattr of a block's compression. Its bytes stay the same, and so does its number."""
        block = self.blocks[number]
        if not known:
            return errno.EINVAL
        if block.code == code:
            return OK
        if block.streamed:
            return errno.EPERM
        if number in self.writing:
            return errno.EBUSY
        block.code = code
        return OK

    # ------------------------------------------------------------ other programs

    def changed_by_another(self, text, blocks):
        """FILE has been changed by another program, and the mount has noticed."""
        for node in list(self.nodes.values()):
            self.replace(node, self.shown(node))
        self.blocks, self.writing = blocks, {}
        self.reload(text)

    def reload(self, text):
        """FILE has this text, which was not saved through tree.yaml."""
        if text == self.committed:
            return
        self.committed = text
        self.epoch += 1
        if self.tree:
            self.tree.stale = True
            self.give(TREE, File(text, self.epoch))
