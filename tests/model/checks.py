"""Looks at the mount and at FILE, and holds them against the reference."""
import errno
import hashlib
import os
import random
import time

import disk
from reference import OK, OURS, TREE, Divergence


def after_a_step(session):
    """Some looks, in an order of chance: each of them changes what the kernel keeps, and may hide what another would find."""
    if session.lagging:
        # what comes of the end of a call behind its answer must be seen before the next one
        return everything(session)
    looks = [look for look, odds in LOOKS if session.random.random() < odds]
    session.random.shuffle(looks)
    look_by(session, looks, session.random.randrange(len(session.workers)))


def everything(session):
    """All looks, after what may take a moment to be seen."""
    session.lagging = True
    look_by(session, [look for look, _ in LOOKS], 0)


def look_by(session, looks, by):
    """Looks by a worker; for a while again and again, where the last call had consequences behind its end."""
    until = time.monotonic() + (session.args.lag if session.lagging else 0)
    # what is looked at does not depend on how often that is tried
    seed = session.random.random()
    session.names_changed()
    session.looking = True
    for look in [whole, *looks]:
        while True:
            session.reference.wait()
            try:
                look(session, by, random.Random(seed))
                break
            except Divergence:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
    session.lagging = session.looking = False


# ---------------------------------------------------------------- FILE

# How far the clock of filesystems lags behind that of processes, in ns.
TICK = 20_000_000


def rejected_text(file):
    """What FILE.rejected.yaml holds."""
    path = file.with_name(file.name + ".rejected.yaml")
    return path.read_bytes() if path.exists() else None


def odd_beside(file, ref):
    """What lies beside FILE and should not, or holds another refused text than the last one; None if all is as it should be."""
    name = file.name + ".rejected.yaml"
    left = set(os.listdir(file.parent)) - {file.name, name, "lost+found"}
    if (found := rejected_text(file)) != ref.rejected:
        return f"{name} holds {found!r:.200}, not {ref.rejected!r:.200}"
    return f"beside FILE lies {sorted(left)}" if left else None


def whole(session, *_):
    """FILE holds what was acknowledged, all of it and nothing else, and so does its directory."""
    ref, file = session.reference, session.file
    raw = file.read_bytes()
    state = (hashlib.sha1(raw).digest(), ref.committed, [(block.data, block.code) for block in ref.blocks])
    if state != session.seen:
        try:
            text, blocks = disk.parse(raw)
        except disk.Odd as odd:
            raise Divergence(f"FILE: {odd}") from odd
        holds(session, text, blocks)
        session.seen = state
    # the kernel tells the mount of the last close of a refused text after that has returned, and then it is put aside
    until = time.monotonic() + 2
    while (odd := odd_beside(file, ref)) and time.monotonic() < until:
        time.sleep(0.01)
    if odd:
        raise Divergence(odd)


def holds(session, text, blocks):
    ref = session.reference
    # a line break that the text lacks at its end is there before blocks
    ending = b"\n" if blocks and not ref.committed.endswith(b"\n") else b""
    if text != ref.committed + ending:
        at = len(os.path.commonprefix([text, ref.committed]))
        raise Divergence(f"FILE's tree differs from byte {at} on: {text[at:at + 80]!r}, where {ref.committed[at:at + 80]!r} was saved")
    if len(blocks) != len(ref.blocks):
        raise Divergence(f"FILE has {len(blocks)} blocks, where there are {len(ref.blocks)}")
    for number, (found, want) in enumerate(zip(blocks, ref.blocks)):
        if found.data != want.data:
            at = len(os.path.commonprefix([found.data, want.data]))
            raise Divergence(f"FILE's block {number} has {len(found.data)} bytes, not {len(want.data)}, and differs from byte {at} on")
        if (found.code, found.streamed, found.summed) != (want.code, want.streamed, want.summed):
            raise Divergence(f"FILE's block {number} is {found.code, found.streamed, found.summed}, not {want.code, want.streamed, want.summed}")


# ---------------------------------------------------------------- the mount

def names(session, by, rng):
    """Each name of the root that was ever used is what it must be, or is not there; without a listing."""
    ref = session.reference
    known = sorted(session.known)
    rng.shuffle(known)
    how = rng.choice(["stat", "read", "both"])
    for name in known:
        file = ref.names.get(name)
        if how != "read" or file is None or file.target is not None:
            code, found = session.call(by, "stat", session.path(name))
            session.must(f"looking at {name}", code, OK if file else errno.ENOENT)
            if file:
                attributes(session, name, file, found)
        if how != "stat" and file and file.target is None:
            code, data = session.call(by, "read", session.path(name))
            session.must(f"reading {name}", code, OK)
            session.same(name, data, file.data)


def attributes(session, name, file, found):
    session.note_ino(file, found)
    length = len(file.target if file.target is not None else file.data)
    if found["nlink"] != file.names:
        raise Divergence(f"{name} has {found['nlink']} names, not {file.names}")
    if found["size"] != length:
        raise Divergence(f"{name} has {found['size']} bytes, not {length}")


def listing(session, by, rng):
    """The root as `ls -l` or `os.listdir` shows it."""
    ref = session.reference
    want = set(session.directory(""))
    if rng.random() < 0.5:
        code, found = session.call(by, "listdir", session.path(""))
        session.must("listing the root", code, OK)
        if set(found) != want or len(found) != len(want):
            raise Divergence(f"the root is listed as {found}, not {sorted(want)}")
        return
    code, found = session.call(by, "scandir", session.path(""))
    session.must("listing the root", code, OK)
    if sorted(entry[0] for entry in found) != sorted(want):
        raise Divergence(f"the root is listed as {sorted(entry[0] for entry in found)}, not {sorted(want)}")
    for name, ino, lstat in found:
        if lstat is None or lstat["ino"] != ino:
            raise Divergence(f"{name} is listed with inode {ino} and found with {lstat and lstat['ino']}")
        if name in ref.names:
            attributes(session, name, ref.names[name], lstat)


def held(session, by, rng):
    """What is open shows what it must, in each process."""
    slots = sorted(session.handles)
    rng.shuffle(slots)
    for slot in slots:
        if session.handles[slot][1].readable:
            session.read(slot)


def under(session, node, ino):
    """What a number of a name shows. One that it got without need shows nothing of what is not saved: that came through another number."""
    ref = session.reference
    writing = ref.writing.get(node.number)
    writers = {handle.ino for _, handle in session.handles.values() if writing and getattr(handle, "writing", None) is writing}
    return node.saved() if writing and writing.overlay is not None and ino not in writers else ref.shown(node)


def data(session, by, rng):
    """Blocks and arrays, by their names."""
    ref = session.reference
    wanted = [("block", number) for number in range(len(ref.blocks) + 2)]
    wanted += [(kind, name) for name in sorted({*ref.arrays(), *session.past}) for kind in ("bin", "npy")]
    session.past |= set(ref.arrays())
    for kind, name in rng.sample(wanted, len(wanted) if session.lagging else min(len(wanted), 8)):
        path = session.data_path(kind, name)
        node = None if path in ref.gone else ref.node(kind, name)
        code, found = session.call(by, "stat", session.path(path))
        absent = {errno.ENOENT, errno.ENOTDIR} if kind != "block" else errno.ENOENT
        session.must(f"looking at {path}", code, OK if node else absent)
        if not node:
            continue
        session.note_node(path, node, found)
        want = under(session, node, found["ino"])
        if found["size"] != len(want):
            raise Divergence(f"{path} has {found['size']} bytes, not {len(want)}")
        code, found = session.call(by, "read", session.path(path))
        session.must(f"reading {path}", code, OK)
        session.same(path, found, want)


def directories(session, by, rng):
    """blocks/ and each directory of arrays/, as they are listed."""
    folders = {"blocks", "arrays"}
    for path in session.reference.arrays():
        parts = path.split("/")
        folders |= {"/".join(["arrays", *parts[:at]]) for at in range(1, len(parts))}
    for folder in sorted(folders):
        code, found = session.call(by, "listdir", session.path(folder))
        session.must(f"listing {folder}", code, OK)
        entries = session.directory(folder)
        if sorted(found) != sorted(entries):
            raise Divergence(f"{folder} is listed as {found}, not {sorted(entries)}")


def times(session, by, rng):
    """Times do not go back; that of the tree changes with its bytes, and that of a block with nothing else."""
    ref = session.reference
    wanted = [(TREE, file, file.data) for file in [ref.tree] if file]
    wanted += [("blocks/0.bin", node, node.changes) for node in [ref.node("block", 0)] if node and "blocks/0.bin" not in ref.gone]
    for name, thing, state in wanted:
        code, found = session.call(by, "fresh_mtime", session.path(name))
        session.must(f"the time of {name}", code, OK)
        before, content = session.times.get(thing, (0, None))
        if found < before - TICK:
            raise Divergence(f"the time of {name} went back by {before - found} ns")
        if name == TREE and content not in (None, state) and found == before:
            raise Divergence(f"{name} has changed, but its time has not")
        if name != TREE and content == state and found != before:
            raise Divergence(f"{name} has not changed, but its time has, by {found - before} ns")
        session.times[thing] = (found, state)


LOOKS = [(names, 0.6), (listing, 0.3), (held, 0.5), (data, 0.4), (directories, 0.15), (times, 0.2)]
