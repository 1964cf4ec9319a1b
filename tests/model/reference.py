"""What the mount must show and FILE must hold, in memory: the rules of DESIGN, SAVE and the manual, with no I/O.

Each method that changes something takes what the system call returned, 0 or an errno, is told by `expect` which of these are right,
and follows. Where several are legal, the set says so, and is as narrow as can be.
"""
import errno
import time
from dataclasses import dataclass, field

import disk
import texts

TREE = "tree.yaml"
OURS = ("arrays", "blocks", "info")
OK = 0
# How long the kernel keeps what it was told, in seconds, and some more.
KEPT = 1.5
# How long the name tree.yaml is free to the process that has taken it away; and after what part of that nobody relies on it.
FREE, FREE_FOR_SURE = 2.0, 1.0


def asked_again(want):
    """After ESTALE the kernel asks again, and finds that the name is not free any more."""
    return frozenset({want, errno.EEXIST}) if want == errno.ESTALE else want


class Divergence(Exception):
    """The mount does not do what it must."""


@dataclass(eq=False)
class File:
    """A file of the root."""
    data: bytes = b""
    target: str = None
    names: int = 1
    epoch: int = 0
    backup: bool = False
    ino: int = None
    shown_by: object = None                  # the descriptor that wrote what is shown
    superseded: bool = False                 # whether it was tree.yaml, and open, when another program changed FILE
    muddled: float = 0                       # until when the kernel may have pages and sizes of several texts
    handles: list = field(default_factory=list)


@dataclass(eq=False)
class Text:
    """A descriptor of a file of the root."""
    file: File
    write: bool
    append: bool
    epoch: int
    draft: bytes = None
    touched: bool = False
    refused: tuple = None                    # the text, what was committed then, and the errno
    readable: bool = True
    sync: bool = False


@dataclass(eq=False)
class Data:
    """A descriptor of a block or array."""
    kind: str                                # block, bin or npy
    name: object                             # number of the block, or path of the array
    write: bool
    append: bool = False
    block: int = None
    epoch: int = 0
    removals: int = 0
    array: texts.Array = None
    length: int = 0                          # of what was saved of its block when it was opened
    rewritten: bytearray = None              # the elements of an array that was emptied, as far as they are written again
    failed: int = OK                         # why a write of these was refused
    readable: bool = True


@dataclass(eq=False)
class Draft:
    """A block with edits that are not saved."""
    data: bytearray
    base: bytes
    by: set = field(default_factory=set)     # through which files it was changed
    files: set = field(default_factory=set)  # those of them through which something was written

    @property
    def touched(self):
        return bool(self.files)

    def touch(self, kind, name):
        self.by.add((kind, name))
        self.files.add((kind, name))


class Reference:
    """The mount and FILE."""

    def __init__(self, text, blocks):
        self.committed, self.blocks = text, blocks
        self.rejected = []                   # what FILE.rejected.yaml may hold; None or an empty list: it is not there
        self.start()

    def start(self):
        """A new mount."""
        self.names = {TREE: File(self.committed)}
        self.pending = None                  # (text, epoch) of a refused text that is shown
        self.epoch = self.data_epoch = 0
        self.vacancy = None                  # the process that has taken tree.yaml away, and when
        self.drafts, self.writers, self.removals = {}, {}, {}
        self.parsed = {}

    # ------------------------------------------------------------ arrays

    def arrays(self):
        """The arrays of the committed tree."""
        if self.committed not in self.parsed:
            self.parsed = {self.committed: texts.arrays_of(self.committed)}
        return self.parsed[self.committed]

    # ------------------------------------------------------------ texts

    @property
    def tree(self):
        return self.names.get(TREE)

    def is_text(self, file):
        """Whether what is written to it is FILE's text, rather than that of a scratch file."""
        return file is self.tree or file.superseded

    def current(self):
        return self.pending[0] if self.pending else self.committed

    def lookup(self, name, w):
        """What a process finds under a name of the root: tree.yaml is free to the one that has just taken it away."""
        return None if name == TREE and self.vacancy and self.vacancy[0] == w else self.names.get(name)

    def wait(self):
        """Waits until the name is surely free, or surely not."""
        if self.vacancy and time.monotonic() - self.vacancy[1] > FREE_FOR_SURE:
            time.sleep(max(0, self.vacancy[1] + FREE + 0.2 - time.monotonic()))
            self.vacancy = None

    def taken_away(self, name, w):
        """FILE has a tree whatever becomes of the file that is called so."""
        if name == TREE:
            self.pending = None
            self.names[TREE] = File(self.committed, epoch=self.epoch)
            self.vacancy = (w, time.monotonic())

    def give(self, name, file):
        """Gives a name to a file, instead of the one that has it."""
        if old := self.names.get(name):
            old.names -= 1
        self.names[name] = file
        if name == TREE:
            self.vacancy = None

    def open_text(self, name, write, truncate=False, append=False):
        """A file of the root that is there, opened; emptied if it was there before."""
        file = self.names[name]
        if write and file is self.tree:
            self.vacancy = None
        epoch = self.shown_epoch() if file is self.tree else self.epoch
        handle = Text(file, write, append, epoch)
        file.handles.append(handle)
        if truncate:
            self.change(handle, b"")
        return handle

    def make(self, name, target=None):
        file = File(target=target, epoch=self.epoch)
        self.give(name, file)
        return file

    def view(self, handle):
        """What this descriptor shows."""
        return handle.file.data if handle.draft is None or not self.is_text(handle.file) else handle.draft

    def mixed(self, file):
        """Whether descriptors of it show different texts, or did so just now: the kernel has one set of pages for all of them."""
        if any(handle.draft not in (None, file.data) for handle in file.handles):
            file.muddled = time.monotonic() + KEPT
        return time.monotonic() < file.muddled

    def note_mixed(self):
        for file in self.names.values():
            self.mixed(file)

    def change(self, handle, data):
        """The bytes that a descriptor shows, changed through it."""
        file = handle.file
        is_text = self.is_text(file)
        handle.refused = None
        handle.draft, handle.touched = (data, True) if is_text else (None, False)
        file.backup = file.backup and is_text
        if not data:
            file.epoch = self.epoch          # what is written into it from now on is made of the text of now
        file.data, file.shown_by = data, handle

    def write_text(self, handle, offset, data):
        old = self.view(handle) if not handle.append else handle.file.data
        at = len(old) if handle.append else offset
        self.change(handle, old[:at].ljust(at, b"\0") + data + old[at + len(data):])

    def resize_text(self, handle, length):
        self.change(handle, self.view(handle)[:length].ljust(length, b"\0"))

    def text_to_save(self, handle):
        if handle.draft is None or not handle.touched or not self.is_text(handle.file):
            return None
        return None if texts.is_beginning(handle.draft) else handle.draft

    def save_text(self, text, epoch, refusal):
        """What saving a text must answer."""
        if text == self.committed:
            return OK
        if epoch != self.epoch:
            return errno.ESTALE
        return OK if texts.may_be_saved(text, self.committed, self.blocks) else refusal

    def text_saved(self, text):
        self.committed, self.pending, self.rejected = text, None, []

    def show_saved(self, file, text):
        """The file shows FILE's text now, unless it shows what another descriptor has written and not saved."""
        by = file.shown_by
        unsaved = by in file.handles and by.touched and by.draft is not None
        if not unsaved and file.data != text:
            file.data, file.shown_by = text, None
            file.muddled = time.monotonic() + KEPT

    def text_refused(self, text, shown, stale=False, through=None):
        """tree.yaml shows the text that was refused last, if it showed that or an earlier one, and not instead of another program's.

        Nor instead of what was written through another handle than the one that it was written `through`.
        """
        self.rejected = [text]
        showed_one = shown or self.pending
        self.pending = (text, self.epoch) if showed_one and not stale else None
        by = self.tree.shown_by
        of_another = by in self.tree.handles and by.touched and by.draft is not None and by is not through
        if not of_another and self.tree.data != self.current():
            self.show_current()

    def flush_text(self, handle, refusal=errno.EINVAL, inherited=False):
        """close or fsync of a descriptor: what it must answer, and what follows from that.

        As a process closes it that inherited it, a text that is no valid tree stays what it is.
        """
        text = self.text_to_save(handle)
        if text is None:
            return OK
        if handle.refused and handle.refused[0] == text != self.committed:
            stale = handle.epoch != self.epoch
            if stale or handle.refused[1] != self.committed:
                # whether it is refused once more, and kept, depends on when the mount has looked at FILE
                self.rejected = [*(self.rejected or [None]), text] if stale else self.rejected
                return frozenset({errno.ESTALE, *([] if handle.refused[2] == errno.ESTALE else [refusal])}) if stale else refusal
        want = self.save_text(text, handle.epoch, refusal)
        if want == OK:
            self.text_saved(text)
            handle.draft = None
            self.show_saved(handle.file, text)
        elif not (inherited and want == refusal) and not (handle.refused and handle.refused[0] == text and text not in (self.rejected or [text])):
            # one that is refused once more does not take the place of a later one
            self.text_refused(text, True, want == errno.ESTALE, handle)
            handle.refused = (text, self.committed, want)
        return want

    def release_text(self, handle):
        """The end of a descriptor, after its last flush."""
        file = handle.file
        text = self.text_to_save(handle)
        if text is not None and not (handle.refused and handle.refused[0] == text):
            self.flush_text(handle)
        draft = handle.draft
        unfinished = draft is not None and handle.touched and not texts.is_blank(draft) and texts.is_beginning(draft)
        if unfinished and draft != self.committed and self.is_text(file) and not (handle.refused and handle.refused[0] == draft):
            stale = handle.epoch != self.epoch
            self.text_refused(draft, file.shown_by is handle and not stale, stale, handle)
        handle.draft = None
        if draft is not None and handle.touched and file is self.tree and file.shown_by is handle and draft != self.current():
            self.show_current()
        file.handles.remove(handle)

    def show_current(self):
        self.tree.data, self.tree.shown_by = self.current(), None

    # ------------------------------------------------------------ names

    def rename(self, w, old, new, flags):
        """What renameat2 must answer, and what follows."""
        exchange = flags == 2
        if old in OURS or new in OURS:
            return errno.EPERM if self.lookup(old, w) or old in OURS else errno.ENOENT
        first, second = self.lookup(old, w), self.lookup(new, w)
        if not first:
            return errno.ENOENT
        if flags == 1 and second:
            return errno.EEXIST
        if exchange and not second:
            return errno.ENOENT
        if first is second:
            return OK                        # the kernel does not ask for two names of one file
        becomes = first if new == TREE else second if exchange and old == TREE else None
        if becomes and (want := self.save_file(becomes)) != OK:
            self.vacancy = None
            return asked_again(want) if flags == 1 else want
        self.note_backup(first, new)
        if exchange:
            self.note_backup(second, old)
            self.names[old], self.names[new] = second, first
            self.vacancy = None
        else:
            del self.names[old]
            self.give(new, first)
            self.taken_away(old, w)
        return OK

    def shown_epoch(self):
        """That of the text that tree.yaml shows."""
        return self.pending[1] if self.pending else self.epoch

    def note_backup(self, file, new):
        if new == TREE or file is self.tree:
            file.backup = new != TREE
        if new != TREE and file is self.tree:
            file.epoch = self.shown_epoch()

    def save_file(self, file, refusal=errno.EIO):
        """What must be answered when a file becomes tree.yaml."""
        if file is self.tree:
            return OK
        if file.target is not None:
            return errno.EINVAL
        if file.backup and file.data == self.committed:
            return OK
        want = self.save_text(file.data, file.epoch, refusal)
        later = [text for text in self.rejected if text not in (None, file.data)]
        if want == OK:
            self.text_saved(file.data)
        elif later and (file.backup or texts.is_blank(file.data)):
            # it was tree.yaml before that was refused, or has nothing in it: the later one is what is kept
            self.rejected = [*later, *([file.data] if len(later) < len(self.rejected) else [])]
        else:
            self.text_refused(file.data, False, want == errno.ESTALE)
        return want

    def link(self, w, old, new):
        if new in OURS or self.lookup(new, w):
            return errno.EEXIST
        file = self.lookup(old, w)
        if new == TREE and (want := self.save_file(file, errno.EINVAL)) != OK:
            return asked_again(want)
        self.note_backup(file, new)
        file.names += 1
        self.give(new, file)
        return OK

    def unlink(self, w, name):
        file = self.names.pop(name)
        file.names -= 1
        self.taken_away(name, w)

    # ------------------------------------------------------------ blocks and arrays

    def block_data(self, number):
        """What a block shows: its edits, if there are any."""
        if number in self.drafts:
            return bytes(self.drafts[number].data)
        return self.blocks[number].data if number < len(self.blocks) else None

    def open_data(self, kind, name, write, truncate=False, append=False):
        """A block or array that is there, opened."""
        array = None if kind == "block" else self.arrays()[name]
        number = name if kind == "block" else array.block(len(self.blocks))
        handle = Data(kind, name, write, append and kind == "block", number, self.data_epoch, self.removals.get(number, 0), array)
        handle.length = self.saved_length(number)
        if write:
            self.writers[number] = self.writers.get(number, 0) + 1
            if truncate and kind == "block":
                self.draft(number).data[:] = b""
                self.drafts[number].by.add((kind, name))
            elif truncate:
                handle.rewritten = bytearray()
        return handle

    def draft(self, number):
        if number not in self.drafts:
            base = self.blocks[number].data if number < len(self.blocks) else b""
            self.drafts[number] = Draft(bytearray(base), base)
        return self.drafts[number]

    def is_stale(self, handle):
        if handle.epoch != self.data_epoch or handle.removals != self.removals.get(handle.block, 0):
            return True
        return handle.kind != "block" and not self.same_array(handle)

    def same_array(self, handle):
        now = self.arrays().get(handle.name)
        if now is None:
            return False
        same = [(array.block(len(self.blocks)), array.dtype, array.shape, array.offset, array.strides) for array in (now, handle.array)]
        # one that goes to the end of its block has another shape when that has another length
        places = [now.places(length) if None in now.shape else None for length in (handle.length, self.saved_length(handle.block))]
        rows = [places is not None and places.shape for places in places]
        return same[0] == same[1] and rows[0] == rows[1]

    def has_form(self, handle):
        """Whether an array has the datatype, shape and order of elements that a descriptor was opened for, so that it is read on."""
        now = self.arrays().get(handle.name)
        return now is not None and (now.dtype, now.shape, now.strides) == (handle.array.dtype, handle.array.shape, handle.array.strides)

    def saved_length(self, number):
        return len(self.blocks[number].data) if number is not None and number < len(self.blocks) else 0

    def write_data(self, handle, offset, data):
        """What a write must answer, and what follows."""
        if self.is_stale(handle):
            return errno.ESTALE
        if handle.kind == "block":
            draft = self.draft(handle.block)
            at = len(draft.data) if handle.append else offset
            draft.data.extend(bytes(max(0, at + len(data) - len(draft.data))))
            draft.data[at:at + len(data)] = data
        else:
            if handle.rewritten is not None:
                return self.rewrite(handle, offset, data)
            array, shown = handle.array, self.block_data(handle.block)
            cut = None in array.shape and len(shown) < len(self.blocks[handle.block].data)
            if cut or array.places(len(shown)) is None:
                return errno.EBUSY           # somebody has cut the block, and not saved that
            header = len(array.header(shown)) if handle.kind == "npy" else 0
            # one that goes to the end of its block has the length of what is saved
            length = min(len(shown), len(self.blocks[handle.block].data)) if None in array.shape else len(shown)
            if offset < header or offset + len(data) > header + len(array.elements(shown[:length])):
                return errno.EPERM
            draft = self.draft(handle.block)
            self.put(draft, array, offset - header, data)
        draft.touch(handle.kind, handle.name)
        return OK

    def rewrite(self, handle, offset, data):
        """A write into an array that was emptied, which is kept aside."""
        saved = self.blocks[handle.block].data
        header = len(handle.array.header(saved)) if handle.kind == "npy" else 0
        if handle.failed:
            return handle.failed
        if offset + len(data) > header + len(handle.array.elements(saved)):
            handle.failed = errno.EPERM
            return errno.EPERM
        at, written = offset - header, handle.rewritten
        written.extend(bytes(max(0, at + len(data) - len(written))))
        written[at:at + len(data)] = data
        return OK

    @staticmethod
    def put(draft, array, at, data):
        """Bytes into elements, byte `at` of them on."""
        size = int(array.dtype[2])
        places = array.places(len(draft.data)).reshape(-1)
        for index, byte in enumerate(data, at):
            draft.data[int(places[index // size]) + index % size] = byte

    def resize_data(self, handle, length):
        """ftruncate."""
        if self.is_stale(handle):
            return errno.ESTALE
        if handle.kind != "block":
            return errno.EPERM
        draft = self.draft(handle.block)
        if len(draft.data) != length:
            self.set_length(draft, length)
            draft.touch(handle.kind, handle.name)
        return OK

    @staticmethod
    def set_length(draft, length):
        del draft.data[length:]
        draft.data.extend(bytes(length - len(draft.data)))

    def truncate_block(self, number, length):
        """truncate by name: saved at once, with what others have written."""
        held = self.drafts.get(number)
        if held and len(held.data) == length and not held.touched or not held and len(self.blocks[number].data) == length:
            return OK
        if held and held.touched and length < len(held.data):
            return errno.EBUSY               # what is cut off could not be put back if this can't be saved
        if not held or len(held.data) != length:
            if self.breaks_an_array(number, length):
                return errno.EINVAL
            draft = self.draft(number)
            self.set_length(draft, length)
            draft.touch("block", number)
        return self.commit_draft(number)

    def breaks_an_array(self, number, length):
        arrays = [array for array in self.arrays().values() if array.block(len(self.blocks)) == number]
        return any(array.places(length) is None for array in arrays)

    def flush_data(self, handle):
        """close or fsync."""
        if handle.rewritten is not None:
            return self.flush_rewritten(handle)
        draft = self.drafts.get(handle.block) if handle.write else None
        if draft is None or (handle.kind, handle.name) not in draft.files:
            return OK
        return self.commit_draft(handle.block)

    def flush_rewritten(self, handle):
        """The same of an array that was emptied: all of it becomes an edit, or nothing."""
        if not handle.rewritten and not handle.failed:
            return OK
        if self.is_stale(handle):
            return errno.ESTALE
        if handle.failed:
            return handle.failed
        saved = self.blocks[handle.block].data
        if len(handle.rewritten) < len(handle.array.elements(saved)):
            return errno.EINVAL
        draft = self.draft(handle.block)
        if len(draft.data) < len(saved):
            return errno.EBUSY
        self.put(draft, handle.array, 0, handle.rewritten)
        handle.rewritten = None
        draft.touch(handle.kind, handle.name)
        return self.commit_draft(handle.block)

    def commit_draft(self, number):
        draft = self.drafts[number]
        if self.breaks_an_array(number, len(draft.data)):
            return errno.EINVAL
        if number < len(self.blocks):
            self.blocks[number].data = bytes(draft.data)
        else:
            if any(array.source < 0 for array in self.arrays().values()):
                return errno.EINVAL
            self.blocks.append(disk.Block(bytes(draft.data)))
        del self.drafts[number]
        return OK

    def release_data(self, handle):
        if not handle.write:
            return
        self.writers[handle.block] -= 1
        if not self.writers[handle.block]:
            del self.writers[handle.block]
            draft = self.drafts.get(handle.block)
            if draft and draft.touched:
                self.commit_draft(handle.block)
            self.drafts.pop(handle.block, None)

    def remove_block(self, number):
        """unlink of a block."""
        is_edited = any(edited >= number for edited in self.drafts)
        if number >= len(self.blocks):
            # a new block that is open is edited
            return errno.EBUSY if is_edited else errno.ENOENT
        if number + 1 < len(self.blocks):
            return errno.EPERM
        if any(array.block(len(self.blocks)) == number for array in self.arrays().values()):
            return errno.EBUSY
        if is_edited:
            return errno.EBUSY
        if any(array.source < 0 for array in self.arrays().values()):
            return errno.EINVAL
        self.blocks.pop()
        self.removals[number] = self.removals.get(number, 0) + 1
        return OK

    def recompress(self, number, code, known):
        """setfattr of a block's compression."""
        if not known:
            return errno.EINVAL
        block = self.blocks[number]
        if block.code == code:
            return OK
        if block.streamed:
            return errno.EPERM
        if number in self.drafts:
            return errno.EBUSY
        block.code = code
        return OK

    # ------------------------------------------------------------ other programs

    def changed_by_another(self, text, blocks):
        """FILE has been changed by another program, and the mount has noticed."""
        self.data_epoch += 1
        self.blocks = blocks
        if text == self.committed:
            return
        self.committed = text
        self.epoch += 1
        self.pending = None
        if self.tree.handles:
            # who has it open keeps what he has read a part of
            self.tree.superseded = True
            self.give(TREE, File(self.committed, epoch=self.epoch))
        else:
            self.show_current()
