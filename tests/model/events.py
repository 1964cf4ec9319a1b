"""What happens to the mount as a whole: it is killed, unmounted, or another program changes FILE."""
import errno
import os
import subprocess
import time
import warnings

import asdf
import numpy as np

import checks
import disk
import mounting
import scripts
import texts
from reference import OK, TREE, Data, Divergence
from session import SOON

ODDS = 0.012


def killed(session):
    """SIGKILL between two calls: what was acknowledged is in FILE, what was not saved is gone."""
    session.kill()
    session.detach()
    again(session)
    return True


def killed_in_a_save(session):
    """SIGKILL in the middle of a save: FILE is the old one or the new one."""
    ref, w = session.reference, 0
    if not scripts.is_file(session, TREE):
        return False
    text = texts.new_text(session.random, ref.blocks)
    slot = session.open_text(w, TREE, os.O_RDWR)
    handle = session.handles[slot][1]
    session.write(slot, text, 0)
    session.resize(slot, len(text))
    old, rejected = ref.committed, ref.rejected
    want = ref.flush_text(handle)
    session.history.append(f"{session.step}: {w} close {slot}, and SIGKILL")
    session.workers[w].send("close", slot)
    time.sleep(session.random.random() * 0.006)
    session.kill()
    kind, _ = session.workers[w].receive()
    session.detach()
    if kind != "ok":
        ref.committed = saved_text(session, {old, text} if want == OK else {old})
    if kind != "ok" and checks.rejected_text(session.file) == rejected:
        ref.rejected = rejected              # it goes, or another takes its place, at the end
    again(session)
    return True


def saved_text(session, allowed):
    """Which of these FILE has after a crash: the next mount may have to finish the save."""
    ref = session.reference
    session.start()
    session.unmount()
    text, _ = disk.parse(session.file.read_bytes())
    if not {text, text.rstrip(b"\n")} & allowed:
        raise Divergence("after a crash in a save, FILE's tree is neither the old nor the new one")
    session.history.append(f"{session.step}: FILE has the {'new' if text != ref.committed else 'same'} tree")
    return text


def remounted(session):
    """An unmount in order, with everything closed."""
    close_all(session)
    session.unmount()
    again(session)
    return True


def close_all(session):
    for slot in list(session.streams):
        session.closedir(slot)
    for slot in list(session.handles):
        session.close(slot)


def again(session):
    """A new mount of what FILE is."""
    ref = session.reference
    checks.whole(session)
    session.file.with_name(session.file.name + ".rejected.yaml").unlink(missing_ok=True)
    ref.rejected = None
    ref.committed, _ = disk.parse(session.file.read_bytes())
    session.start_over()
    session.start()
    checks.everything(session)


def ended(session):
    """The end of a run."""
    close_all(session)
    session.lagging = True
    checks.everything(session)
    session.unmount()
    checks.whole(session)


# ---------------------------------------------------------------- other programs

def foreign(session):
    """Another program changes FILE. What was made of the state before can't be saved, and the mount shows the new one."""
    ref, rng = session.reference, session.random
    if ref.gone:
        return False
    how = rng.choice([replaced, replaced, rewritten, updated, touched])
    early = rng.random() < 0.4
    text, blocks = how(session)
    session.history.append(f"{session.step}: another program: {how.__name__}")
    if early:
        stale(session, text, blocks)
        return False
    ref.changed_by_another(text, blocks)
    wait_until_seen(session)
    return False


def stale(session, text, blocks):
    """The edits that wait are refused, whether or not the mount has looked at FILE since."""
    ref = session.reference
    waiting = [slot for slot, (_, handle) in session.handles.items() if not isinstance(handle, Data) and ref.unsaved(handle)]
    ref.changed_by_another(text, blocks)
    changed = session.file.stat().st_mtime_ns
    for slot in waiting:
        session.fsync(slot)              # a save of the tree leaves the time of blocks as it is
    wait_until_seen(session, changed)


def wait_until_seen(session, changed=None):
    """The mount looks at FILE at most once a second."""
    ref, until = session.reference, time.monotonic() + SOON
    shown = "blocks/0.bin" if ref.blocks else TREE
    wanted = (changed or session.file.stat().st_mtime_ns) if ref.blocks else ref.tree.data
    while session.call(0, "fresh_mtime" if ref.blocks else "read", session.path(shown)) != (OK, wanted):
        session.history.pop()
        if time.monotonic() > until:
            raise Divergence("another program's change is not shown")
        time.sleep(0.02)
    session.history.pop()
    session.lagging = True


def fresh_file(session):
    """Another text and other blocks."""
    rng = session.random
    blocks = [disk.Block(rng.randbytes(rng.choice([8, 900, 6000])), rng.choice(["", "zlib"])) for _ in range(rng.randrange(4))]
    return texts.new_text(rng, blocks), blocks


def replaced(session):
    """A new file renamed over it."""
    text, blocks = fresh_file(session)
    other = session.file.with_name(".other")
    other.write_bytes(disk.make(text, blocks, 300))
    os.replace(other, session.file)
    return text, blocks


def rewritten(session):
    """Written where it is."""
    text, blocks = fresh_file(session)
    raw = disk.make(text, blocks, 300)
    with open(session.file, "r+b") as out:
        out.write(raw)
        out.truncate()
    return text, blocks


def updated(session):
    """Python's update()."""
    if any(block.streamed for block in session.reference.blocks):
        return replaced(session)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with asdf.open(session.file, mode="rw", memmap=False, lazy_load=False) as opened:
            opened["note"] = f"from Python {session.slots}"
            if session.random.random() < 0.5:
                opened["python"] = np.arange(session.random.randrange(2, 400), dtype="<i4")
            opened.update()
    try:
        return disk.parse(session.file.read_bytes())
    except disk.Odd:
        # it leaves in the padding what lay there before
        return replaced(session)


def touched(session):
    """Its time is changed, and nothing else."""
    os.utime(session.file)
    ref = session.reference
    return ref.committed, ref.blocks


EVENTS = [(killed, 2), (killed_in_a_save, 3), (remounted, 2), (foreign, 5)]
