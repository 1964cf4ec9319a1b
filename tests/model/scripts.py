"""What the processes do: each script is a generator that makes one system call between two yields, so that they interleave."""
import errno
import os

import disk
import texts
from reference import OK, TREE

W, R, RW = os.O_WRONLY, os.O_RDONLY, os.O_RDWR
CREATE, EXCL, TRUNC, APPEND, SYNC = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND, os.O_SYNC


def text_for(session):
    """What an editor saves: mostly a valid tree."""
    rng, blocks = session.random, session.reference.blocks
    text = texts.new_text(rng, blocks)
    luck = rng.random()
    if luck < 0.12:
        return texts.spoilt(rng, text, blocks)
    return texts.unbegun(rng) if luck < 0.17 else text


def pieces(session, data):
    """The data in one to three writes."""
    cuts = sorted(session.random.randrange(len(data) + 1) for _ in range(session.random.choice([0, 0, 1, 2])))
    return [(a, data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)]) if b > a]


def write_all(session, slot, data):
    for at, piece in pieces(session, data):
        session.write(slot, piece, at)
        yield


def written(session, slot, data, syncs=0.5):
    """Writes, perhaps syncs, closes; what the end said."""
    yield from write_all(session, slot, data)
    said = OK
    while session.random.random() < syncs:
        said = session.fsync(slot)
        yield
        syncs /= 2
    return session.close(slot) or said


def scratch_name(session):
    return session.random.choice(["tree.yaml~", ".t", ".tree.yaml.swp", "4913", "u", "v"])


def is_file(session, name):
    file = session.reference.names.get(name)
    return file is not None and file.target is None


# ---------------------------------------------------------------- saving the tree

def in_place(session, w):
    """`>`, nano, `cp`: emptied and written."""
    slot = session.open_text(w, TREE, W | CREATE | TRUNC)
    yield
    if slot:
        yield from written(session, slot, text_for(session))


def over_it(session, w):
    """Python's r+: written over, and cut."""
    slot = session.open_text(w, TREE, RW)
    yield
    if slot:
        text = text_for(session)
        yield from write_all(session, slot, text)
        session.resize(slot, len(text))
        yield
        yield from written(session, slot, b"")


def temporary(session, w):
    """sed -i, os.replace: a new file renamed over it."""
    name = session.random.choice([".t", f".t{session.slots}"])
    slot = session.open_text(w, name, W | CREATE | session.random.choice([EXCL, TRUNC]))
    yield
    if not slot:
        return
    yield from written(session, slot, text_for(session))
    yield
    if is_file(session, name) and session.rename(w, name, TREE):
        yield
        if name in session.reference.names:
            session.unlink(w, name)


def backup_dance(session, w):
    """vim: renamed away, made anew, the backup removed; or put back when that fails."""
    if not is_file(session, TREE):
        return
    session.rename(w, TREE, "tree.yaml~")
    yield
    slot = session.open_text(w, TREE, W | CREATE | session.random.choice([0, TRUNC]))
    yield
    if not slot:
        return
    session.resize(slot, 0)
    yield
    text = text_for(session)
    yield from write_all(session, slot, text)
    if session.random.random() < 0.7:
        session.fsync(slot)
        yield
    failed = session.close(slot)
    yield
    if failed and session.random.random() < 0.8:
        session.unlink(w, TREE)
        yield
        if is_file(session, "tree.yaml~"):
            session.rename(w, "tree.yaml~", TREE)
    elif "tree.yaml~" in session.reference.names:
        session.unlink(w, "tree.yaml~")


def backup_copy(session, w):
    """vim with backupcopy=yes: a copy first, then written where it is."""
    slot = session.open_text(w, "tree.yaml~", W | CREATE | EXCL)
    yield
    if slot:
        yield from written(session, slot, session.reference.committed, 0)
        yield
    yield from over_it(session, w)
    yield
    if slot and "tree.yaml~" in session.reference.names:
        session.unlink(w, "tree.yaml~")


def emacs(session, w):
    """A lock, the backup by rename, a new file, opened once more after the save."""
    locked = session.symlink(w, "somebody@here.1", ".#tree.yaml") == OK
    yield
    if is_file(session, TREE):
        session.rename(w, TREE, "tree.yaml~")
        yield
    slot = session.open_text(w, TREE, W | CREATE | EXCL)
    yield
    if slot:
        yield from written(session, slot, text_for(session), 0.9)
        yield
        again = session.open_text(w, TREE, W)
        yield
        if again:
            session.close(again)
            yield
    if locked and ".#tree.yaml" in session.reference.names:
        session.unlink(w, ".#tree.yaml")


def exchanged(session, w):
    """renameat2(RENAME_EXCHANGE)."""
    slot = session.open_text(w, ".new", W | CREATE | TRUNC)
    yield
    if slot:
        yield from written(session, slot, text_for(session), 0.2)
        yield
        session.rename(w, *session.random.choice([(".new", TREE), (TREE, ".new")]), 2)
        yield
        if ".new" in session.reference.names and session.random.random() < 0.8:
            session.unlink(w, ".new")


def linked(session, w):
    """link and unlink: the backup is another name of it; or the new text is linked to the name that was removed."""
    if session.random.random() < 0.5:
        if is_file(session, TREE):
            session.link(w, TREE, "tree.yaml~")
        yield
        yield from temporary(session, w)
        yield
    else:
        slot = session.open_text(w, ".l", W | CREATE | TRUNC)
        yield
        if not slot:
            return
        yield from written(session, slot, text_for(session), 0)
        yield
        if TREE in session.reference.names:
            session.unlink(w, TREE)
            yield
        if is_file(session, ".l"):
            session.link(w, ".l", TREE)
            yield
    for name in ("tree.yaml~", ".l"):
        if name in session.reference.names:
            session.unlink(w, name)
            yield


def appended(session, w):
    """`>>`, perhaps after the end was cut off."""
    if not is_file(session, TREE):
        return
    data = session.reference.names[TREE].data
    slot = session.open_text(w, TREE, session.random.choice([W, RW]) | APPEND)
    yield
    if slot and data.endswith(b"...\n") and session.random.random() < 0.8:
        session.resize(slot, len(data) - 4)
        yield
        session.write(slot, b"added%d: 1\n" % session.slots)
        yield
        session.write(slot, b"...\n")
        yield
    elif slot:
        session.write(slot, b"# more\n")
        yield
    if slot:
        session.close(slot)


def mapped(session, w):
    """A shared map, saved by msync and fsync, by close, or by the end of the map."""
    if not is_file(session, TREE):
        return
    slot = session.open_text(w, TREE, RW)
    if not slot:
        return
    text = text_for(session) or b"\n"
    session.resize(slot, len(text))
    handle = session.handles[slot][1]
    name = session.map(slot)
    session.store(name, 0, text)
    session.reference.change(handle, text)
    how = session.random.choice(["fsync", "close", "late"])
    if how == "fsync":
        session.fsync(slot)
        session.unmap(name)
        session.close(slot)
    elif how == "close":
        session.close(slot)
        session.unmap(name)
    else:
        session.unmap(name)
        session.close(slot)
    yield


def compound(session, w):
    """`{ a; b; } > tree.yaml`: children close the descriptor that they inherited."""
    slot = session.open_text(w, TREE, W | CREATE | TRUNC)
    yield
    if not slot:
        return
    for at, piece in pieces(session, text_for(session)):
        session.write(slot, piece, at)
        yield
        session.close_in_child(slot)
        yield
    session.close(slot)


def synchronous(session, w):
    """O_SYNC: each write is a save."""
    slot = session.open_text(w, TREE, W | CREATE | TRUNC | SYNC)
    yield
    if slot:
        session.write(slot, text_for(session) or b"\n", 0)
        yield
        session.close(slot)


def made_anew(session, w):
    """mv from elsewhere: removed, then made."""
    if TREE in session.reference.names:
        session.unlink(w, TREE)
        yield
    slot = session.open_text(w, TREE, W | CREATE | EXCL)
    yield
    if slot:
        yield from written(session, slot, text_for(session), 0)


def cut(session, w):
    """truncate by name."""
    if is_file(session, TREE):
        length = len(session.reference.tree.data)
        session.truncate_text(w, TREE, session.random.choice([0, 10, length, max(0, length - 20)]))
    yield


def left_alone(session, w):
    """A backup that lies there for a while, then is put back."""
    name = "backup"
    if name not in session.reference.names and is_file(session, TREE):
        session.rename(w, TREE, name)
        yield
        for _ in range(session.random.randrange(4)):
            yield
    if is_file(session, name):
        session.rename(w, name, TREE, session.random.choice([0, 0, 1]))
        yield
    if name in session.reference.names:
        session.unlink(w, name)


# ---------------------------------------------------------------- other files of the root

def scratch(session, w):
    """Files that editors make beside it, and what they do with them."""
    rng, name = session.random, scratch_name(session)
    slot = None
    if name not in session.reference.names or is_file(session, name):
        slot = session.open_text(w, name, rng.choice([W, RW]) | CREATE | rng.choice([0, EXCL, TRUNC]))
    yield
    for _ in range(rng.randrange(5)):
        other = scratch_name(session)
        what = rng.choice(["write", "rename", "exchange", "noreplace", "unlink", "link", "resize"])
        if what in ("write", "resize") and slot:
            if what == "write":
                session.write(slot, rng.randbytes(rng.choice([1, 100, 5000])), rng.choice([0, 0, 50]))
            else:
                session.resize(slot, rng.choice([0, 10, 6000]))
        elif what == "unlink":
            session.unlink(w, other)
        elif what == "link":
            session.link(w, name, other)
        elif what in ("rename", "exchange", "noreplace") and name != other:
            session.rename(w, name, other, {"rename": 0, "noreplace": 1, "exchange": 2}[what])
        yield
    if slot:
        session.close(slot)


def tidy(session, w):
    """Removes what has been left."""
    for name in sorted(session.reference.names):
        if name != TREE:
            session.unlink(w, name)
            yield


# ---------------------------------------------------------------- reading

def reader(session, w):
    """Something open for reading while others go on."""
    rng, ref = session.random, session.reference
    choices = [name for name in ref.names if is_file(session, name)] * 2 + data_files(session)
    if not choices:
        return
    chosen = rng.choice(choices)
    slot = session.open_text(w, chosen, R) if isinstance(chosen, str) else session.open_data(w, *chosen, R)
    for _ in range(rng.randrange(1, 25)):
        yield
    if slot:
        session.read(slot)
        yield
        session.close(slot)


def lister(session, w):
    """A directory that is open while names change, and read on after that."""
    rng = session.random
    slot = session.opendir(w, rng.choice(["", "", "", "blocks", "arrays"]))
    room = rng.choice([64, 150, 400, 32768])
    for _ in range(rng.randrange(4)):
        yield
    while not session.getdents(slot, room):
        for _ in range(rng.choice([0, 0, 1, 4])):
            yield
    yield
    session.closedir(slot)


# ---------------------------------------------------------------- blocks and arrays

def data_files(session):
    ref = session.reference
    return [("block", number) for number in range(len(ref.blocks))] + [(kind, name) for name in ref.arrays() for kind in ("bin", "npy")]


def edited(session, w):
    """A block or array, written into; it keeps its size."""
    rng, ref = session.random, session.reference
    slot = session.open_data(w, *rng.choice(data_files(session) or [("block", 0)]), rng.choice([W, RW]))
    yield
    if not slot:
        return
    node = session.handles[slot][1].node
    for _ in range(rng.randrange(1, 4)):
        size, header = len(ref.shown(node)), len(node.header())
        if size <= header:
            break
        at = rng.randrange(header, size)
        if session.write(slot, rng.randbytes(rng.randint(1, min(size - at, 300))), at):
            break
        yield
        if rng.random() < 0.3:
            session.fsync(slot)
            yield
    session.close(slot)


def new_elements(session, node):
    """Another file of the same form; now and then not all of it."""
    rng, size, header = session.random, len(node.saved()), node.header()
    data = header + rng.randbytes(size - len(header))
    return data if rng.random() < 0.8 else data[:rng.randrange(size + 1)]


def made_anew_data(session, w):
    """numpy.save, cp, mv from elsewhere: a block or array that is emptied, or removed, and written; or a new file renamed over it."""
    rng, ref = session.random, session.reference
    kind, name = rng.choice(data_files(session) or [("block", 0)])
    node, path = ref.node(kind, name), session.data_path(kind, name)
    if not node:
        return
    how = rng.choice(["emptied", "emptied", "removed", "renamed", "renamed"])
    if how == "renamed":
        beside = f"{path.split('/')[0]}/.new{session.slots}.tmp"
        slot = session.open_text(w, beside, W | CREATE | EXCL)
        yield
        yield from written(session, slot, new_elements(session, node))
        yield
        if beside in ref.names and ref.node(kind, name):
            session.import_file(w, kind, name, beside)
            yield
        if beside in ref.names:
            session.unlink(w, beside)
        return
    if how == "removed":
        session.remove_block(w, name) if kind == "block" else session.remove_array(w, path)
        yield
    slot = session.open_data(w, kind, name, W | CREATE | TRUNC) if ref.node(kind, name) else None
    yield
    if slot:
        yield from written(session, slot, new_elements(session, session.handles[slot][1].node))


def resized(session, w):
    """A block of another size, through a descriptor or by its name; arrays in it may forbid that."""
    rng, ref = session.random, session.reference
    if not ref.blocks:
        return
    number = rng.randrange(len(ref.blocks))
    length = max(0, len(ref.blocks[number].data) + rng.choice([-200, -8, 1, 8, 100, 5000]))
    how = rng.choice(["ftruncate", "truncate", "append", "cp"])
    if how == "truncate":
        session.truncate_block(w, number, length)
        session.lagging = True
        yield
        return
    flags = {"ftruncate": RW, "append": W | APPEND, "cp": W | TRUNC | CREATE}[how]
    slot = session.open_data(w, "block", number, flags)
    yield
    if slot is None:
        return
    if how == "ftruncate":
        session.resize(slot, length)
    elif how == "append":
        session.write(slot, rng.randbytes(rng.choice([1, 100, 3000])))
    else:
        yield from write_all(session, slot, rng.randbytes(max(1, length)))
    yield
    session.close(slot)


def new_block(session, w):
    """cp x blocks/N.bin"""
    ref = session.reference
    number = len(ref.blocks)
    if number > 6:
        return
    slot = session.open_data(w, "block", number, W | CREATE | TRUNC)
    yield
    if slot:
        if session.random.random() < 0.9:
            yield from write_all(session, slot, session.random.randbytes(session.random.choice([1, 500, 4000])))
        session.close(slot)


def last_block(session, w):
    """rm of a block."""
    count = len(session.reference.blocks)
    session.remove_block(w, session.random.choice([count, count - 1, count - 1, count - 1, 0]) if count else 0)
    yield


def encoded(session, w):
    """setfattr of the compression."""
    if session.reference.blocks:
        session.recompress(w, session.random.randrange(len(session.reference.blocks)), session.random.choice([*disk.ENCODE, "nope"]))
    yield


def forbidden(session, w):
    """What the layout does not allow."""
    rng = session.random
    command, want = rng.choice([
        (("mkdir", session.path("d")), errno.EPERM), (("rename", session.path("blocks"), session.path("x")), errno.EPERM),
        (("rename", session.path("info/status"), session.path("x")), errno.EPERM),
        (("rename", session.path("x y"), session.path(TREE)), errno.ENOENT),
        (("unlink", session.path("info/status")), errno.EROFS),
        (("symlink", "a", session.path("blocks/l")), errno.EPERM),
        (("open", "never", session.path("blocks/99.bin"), W | CREATE), errno.EPERM),
        (("open", "never", session.path("info/status"), W), errno.EROFS),
        (("rename", session.path(TREE), session.path("arrays")), {errno.EPERM, errno.EISDIR}),
    ])
    if command[0] == "rename" and command[1].endswith(TREE) and TREE not in session.reference.names:
        want = errno.ENOENT
    session.must(command[0], session.call(w, *command)[0], want)
    yield


SCRIPTS = [(in_place, 4), (over_it, 4), (temporary, 5), (backup_dance, 6), (backup_copy, 2), (emacs, 3), (exchanged, 3), (linked, 2), (appended, 2),
           (mapped, 2), (compound, 2), (synchronous, 2), (made_anew, 2), (cut, 1), (left_alone, 2), (scratch, 7), (tidy, 1), (reader, 7), (lister, 9),
           (edited, 7), (made_anew_data, 4), (resized, 4), (new_block, 2), (last_block, 2), (encoded, 2), (forbidden, 1)]
