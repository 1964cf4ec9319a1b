#!/usr/bin/env python3
"""Change tree.yaml through a mount with the programs that people use, and look at what they say and at the file.

    editors.py --bin PROGRAM [--only GLOB] [--beside] [-v]

Every case is PROGRAM/SITUATION. The situations: an edit that fits into the padding, one that outgrows it, one that leaves
an invalid tree, and a read-only mount. With --beside, `ls -l`, `cat` and `find` look at the mount all the while. Each asserts what the program reported, what the file on disk holds, and that
Python's asdf opens it with its checksums validated. Programs that draw on a terminal get one. Run outside /tmp (TMPDIR):
vim and emacs make no backups below /tmp. One line a failing case; the last line is "N passed, N failed".
"""
import argparse
import concurrent.futures
import contextlib
import fcntl
import fnmatch
import inspect
import io
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import warnings

import asdf
import numpy as np
import yaml

import beside
import mounting

OLD = "original text"
# What replaces it; never shorter, so that programs that overwrite in place leave no tail.
EDITS = {"fits": "modified text", "grows": "x" * 900, "invalid": "no: valid: yaml here", "read-only": "modified text"}
ROOM = 300                                   # bytes of padding: enough for `fits`, too little for `grows`
ARRAY = np.arange(1000, dtype="<i4")
SOFT = np.tile(np.arange(100, dtype="u1"), 500)


def sample():
    """A file with its padding as we want it, from Python's asdf."""
    out = io.BytesIO()
    file = asdf.AsdfFile({"note": OLD, "count": 1, "array": ARRAY, "soft": SOFT})
    file.set_array_compression(SOFT, "zlib")
    file.write_to(out)
    raw = out.getvalue()
    text_end = raw.index(b"\n...\n") + 5
    first = raw.index(b"\xd3BLK", text_end)
    index = raw.index(b"#ASDF BLOCK INDEX")
    shift = text_end + ROOM - first
    moved = re.sub(rb"(?m)^- (\d+)", lambda m: b"- %d" % (int(m[1]) + shift), raw[index:])
    return raw[:text_end] + b" " * ROOM + raw[first:index] + moved


SAMPLE = sample()
TREE = SAMPLE[:SAMPLE.index(b"\n...\n") + 5]


# ---------------------------------------------------------------- programs

class Task:
    """One edit: in `mnt`, OLD in tree.yaml is to become `new`. A program returns what it reported: "" when all went well."""

    def __init__(self, mnt, work, situation):
        self.mnt, self.work, self.situation = mnt, work, situation
        self.yaml = mnt / "tree.yaml"
        self.new = EDITS[situation]
        self.text = TREE.replace(OLD.encode(), self.new.encode())
        self.copy = work / "new.yaml"
        self.copy.write_bytes(self.text)
        # vim takes TMPDIR for a place that needs no backups
        self.env = {k: v for k, v in os.environ.items() if k not in ("TMPDIR", "TMP", "TEMP")} | {"HOME": str(work), "LANG": "C.UTF-8"}

    def run(self, *command, **options):
        """A program without a terminal; reports what it said if it failed or complained."""
        done = subprocess.run(command, cwd=self.mnt, env=self.env, capture_output=True, text=True, errors="replace", timeout=60, **options)
        return f"{done.returncode}: {done.stderr}{done.stdout}" if done.returncode or done.stderr else ""

    def shell(self, script):
        return self.run("bash", "-c", script, "bash", str(self.copy))

    def terminal(self, *command, term="xterm"):
        return Terminal(command, self.mnt, self.env | {"TERM": term})


class Terminal:
    """A program on a pseudo terminal."""

    def __init__(self, command, cwd, env):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(command, cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal)
        os.close(slave)
        self.screen, self.seen = "", 0

    def poll(self, timeout):
        if select.select([self.master], [], [], timeout)[0]:
            try:
                raw = os.read(self.master, 65536).decode("utf-8", "replace")
            except OSError:                  # the other side is closed
                return False
            # Without escape sequences; cursor movements become blanks, so that words drawn apart stay apart.
            raw = re.sub(r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78]", "", raw)
            self.screen += re.sub(r"\x1b\[[0-9;?>=!]*[A-Za-z@`]", " ", raw)
        return True

    def expect(self, pattern, limit=20):
        """Wait until the program drew this, behind what was expected before; the match, or None when the program ended."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if match := re.search(pattern, self.screen[self.seen:]):
                self.seen += match.end()
                return match
            if not self.poll(0.05) or self.process.poll() is not None and not self.poll(0):
                match = re.search(pattern, self.screen[self.seen:])
                self.seen += match.end() if match else 0
                return match
        raise TimeoutError(f"no {pattern!r} on the screen: {self.screen[-400:]!r}")

    def send(self, keys):
        os.write(self.master, keys.encode())

    def quiet(self, pause=0.15):
        """Wait until the program stops drawing."""
        while select.select([self.master], [], [], pause)[0] and self.poll(0):
            pass

    def ended(self, limit):
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline and self.process.poll() is None:
            self.poll(0.02)
        return self.process.poll() is not None

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


def vi(*options, program="vim"):
    """vim or neovim with these settings."""
    def edit(task):
        terminal = task.terminal(program, *options, "tree.yaml")
        try:
            terminal.expect(OLD)
            terminal.quiet()
            terminal.send(f":%s/{OLD}/{task.new}/\r")
            terminal.quiet()
            terminal.send(":w\r")
            said = terminal.expect(r"E\d+: [^\r\n]*|\d+L, \d+B[^\r\n]* written|\d+ lines?, \d+ (bytes|characters)[^\r\n]* written")
            if task.situation == "read-only" and said and said[0].startswith("E45"):
                terminal.send("\r:w!\r")
                said = terminal.expect(r"E\d+: [^\r\n]*")
            terminal.quiet()
            terminal.send("\r:qa!\r")
            if not terminal.ended(10):
                return "did not end"
            return said[0] if said and said[0].startswith("E") else ""
        finally:
            terminal.close()
    return edit


def nano(*options):
    def edit(task):
        terminal = task.terminal("nano", "--ignorercfiles", *options, "tree.yaml")
        try:
            terminal.expect(OLD)
            terminal.send("\x1c")
            terminal.expect("Search")
            terminal.send(OLD + "\r")
            terminal.expect("Replace with")
            terminal.send(task.new + "\r")
            terminal.expect("instance")
            terminal.send("a")
            terminal.expect("Replaced 1")
            terminal.send("\x0f")
            terminal.expect("Write")
            terminal.send("\r")
            said = terminal.expect(r"Wrote \d+ lines|Error [^\[\]]*")[0]
            terminal.quiet()
            terminal.send("\x18")
            if not terminal.ended(0.5):
                terminal.send("n")
            if not terminal.ended(10):
                return "did not end"
            return said if said.startswith("Error") else ""
        finally:
            terminal.close()
    return edit


def emacs(*settings):
    def edit(task):
        terminal = task.terminal("emacs", "-nw", "-Q", *settings, "tree.yaml", term="vt100")
        try:
            terminal.expect(OLD)
            terminal.quiet()
            terminal.send("\x1bxreplace-string\r")
            if terminal.expect("Replace string|read-only")[0] == "read-only":
                terminal.send("\x18\x03")
                return "the buffer is read-only" if terminal.ended(10) else "did not end"
            terminal.send(OLD + "\r")
            terminal.expect("with")
            terminal.send(task.new + "\r")
            terminal.expect("Replaced 1")
            terminal.send("\x18\x13")
            terminal.expect(r"Wrote |rror|Invalid|Read-only")
            terminal.quiet(0.4)
            # a precious file is written under another name first, and "Wrote" says nothing of its rename
            said = re.search(r"[^\r\n]*(rror[,:/]|Invalid argument|Read-only|Renaming:)[^\r\n]*", terminal.screen)
            terminal.send("\x18\x03")
            if not terminal.ended(0.7):      # a buffer that was not saved
                terminal.send("n")
                terminal.quiet(0.3)
                terminal.send("yes\r")
            if not terminal.ended(10):
                return "did not end"
            return said[0] if said else ""
        finally:
            terminal.close()
    return edit


def micro(task):
    terminal = task.terminal("micro", "tree.yaml")
    try:
        terminal.expect(OLD)
        terminal.quiet()
        terminal.send("\x05")
        terminal.quiet()
        terminal.send(f"replaceall '{OLD}' '{task.new}'\r")
        terminal.expect("Replaced 1|readonly|read-only")
        terminal.quiet()
        terminal.send("\x13")
        said = terminal.expect(r"Saved|invalid argument|[Rr]ead-?only[^\r\n]*|permission[^\r\n]*|input/output[^\r\n]*")[0]
        terminal.quiet()
        terminal.send("\x11")
        if not terminal.ended(0.5):
            terminal.send("n")
        if not terminal.ended(10):
            return "did not end"
        return "" if said == "Saved" else said
    finally:
        terminal.close()


def ed(task):
    return task.run("ed", "-s", "tree.yaml", input=f",s/{OLD}/{task.new}/\nw\nq\n")


def python(body):
    """A Python program in which `path`, `text` (the new tree), `old` and `new` are given."""
    head = "import os, sys\npath, text, old, new = 'tree.yaml', open(sys.argv[1], 'rb').read(), sys.argv[2].encode(), sys.argv[3].encode()\n"
    return lambda task: task.run(sys.executable, "-c", head + body, str(task.copy), OLD, task.new)


def command(*words):
    """A command in which NEW stands for a file with the new tree and EDIT for the replacement."""
    return lambda task: task.run(*[word.replace("NEW", str(task.copy)).replace("EDIT", task.new) for word in words])


def patch(task):
    (task.work / "old.yaml").write_bytes(TREE)
    diff = subprocess.run(["diff", "-u", "old.yaml", "new.yaml"], cwd=task.work, capture_output=True, text=True).stdout
    return task.run("patch", "--force", "tree.yaml", input=diff)


def dd(task):
    at = TREE.index(OLD.encode())
    return task.shell(f'tail -c +{at + 1} "$1" | dd of=tree.yaml bs=65536 oflag=seek_bytes iflag=fullblock seek={at} conv=notrunc status=none')


def truncate(task):
    return task.run("truncate", "--size=-20", "tree.yaml")


def dump(text):
    """What a YAML library makes of a text: without its comments, and without an end."""
    return yaml.serialize(yaml.compose(text), explicit_start=True, version=(1, 1), tags={"!": "tag:stsci.edu:asdf/"})


DUMP = "import yaml\n" + inspect.getsource(dump)

PROGRAMS = {
    "vim": vi("--clean"),
    "vim with backup": vi("--clean", "--cmd", "set backup writebackup backupcopy=no"),
    "vim with backupcopy": vi("--clean", "--cmd", "set backup writebackup backupcopy=yes"),
    "vim without backup": vi("--clean", "--cmd", "set nobackup nowritebackup noswapfile"),
    "nvim": vi("--clean", program="nvim"),
    "nvim with backup": vi("--clean", "--cmd", "set backup backupdir=. backupcopy=no", program="nvim"),
    "nano": nano(),
    "nano with backup": nano("--backup"),
    "emacs": emacs(),
    "emacs without backup": emacs("--eval", "(setq make-backup-files nil)"),
    "emacs precious": emacs("--eval", "(setq file-precious-flag t)"),
    "micro": micro,
    "ed": ed,
    "sed -i": command("sed", "-i", f"s/{OLD}/EDIT/", "tree.yaml"),
    "perl -pi": command("perl", "-pi", "-e", f"s/{OLD}/EDIT/", "tree.yaml"),
    "perl -pi.bak": command("perl", "-pi.bak", "-e", f"s/{OLD}/EDIT/", "tree.yaml"),
    "python w": python("with open(path, 'wb') as f: f.write(text)"),
    "python r+": python("with open(path, 'r+b') as f:\n f.write(text)\n f.truncate()"),
    "python os.replace": python("with open('.tmp', 'wb') as f: f.write(text)\nos.replace('.tmp', path)"),
    "python fsync": python("with open(path, 'wb') as f:\n f.write(text)\n f.flush()\n os.fsync(f.fileno())"),
    "python mmap": python("import mmap\nwith open(path, 'r+b') as f:\n f.truncate(len(text))\n m = mmap.mmap(f.fileno(), 0)\n m[:] = text\n m.flush()\n os.fsync(f.fileno())"),
    "cp": command("cp", "NEW", "tree.yaml"),
    "mv": command("mv", "--force", "NEW", "tree.yaml"),
    "mv in the mount": command("sh", "-c", "cp NEW .tree.new && mv -f .tree.new tree.yaml"),
    "install": command("install", "-m", "644", "NEW", "tree.yaml"),
    "rsync": command("rsync", "--ignore-times", "NEW", "tree.yaml"),
    "rsync --inplace": command("rsync", "--ignore-times", "--inplace", "NEW", "tree.yaml"),
    "tee": command("sh", "-c", "tee tree.yaml <NEW >/dev/null"),
    "cat >": command("bash", "-c", "cat NEW >tree.yaml"),
    "compound >": command("bash", "-c", "{ head -n 4 NEW; tail -n +5 NEW | head -n 3; echo '# said in between'; tail -n +8 NEW; } >tree.yaml"),
    "PyYAML": python(DUMP + "with open(path, 'w') as f: f.write(dump(text))"),
    "PyYAML rename": python(DUMP + "with open('.tmp', 'w') as f: f.write(dump(text))\nos.replace('.tmp', path)"),
    "dd notrunc": dd,
    "patch": patch,
    "truncate": truncate,
}

# Programs that see no error whatever we return: a shell does not look at what close says, and each of the commands
# within a compound redirection has closed the file before the text was whole.
SILENT = {("compound >", "invalid")}
# Cutting off the end cannot leave a valid tree, and a YAML library dumps no invalid one.
LEFT_OUT = {("truncate", "fits"), ("truncate", "grows"), ("PyYAML", "invalid"), ("PyYAML rename", "invalid")}


def expected_text(program, task):
    if program == "compound >":
        lines = task.text.splitlines(keepends=True)
        return b"".join([*lines[:7], b"# said in between\n", *lines[7:]])
    if program.startswith("PyYAML"):
        return TREE[:TREE.index(b"%YAML")] + dump(task.text).encode() + b"...\n"
    return TREE[:-20] if program == "truncate" else task.text


# ---------------------------------------------------------------- what is asserted

def check_disk(file, text):
    """The file holds this tree, and Python's asdf reads everything in it with its checksums validated."""
    raw = file.read_bytes()
    if not raw.startswith(text):
        same = len(os.path.commonprefix([raw, text]))
        return [f"the file does not hold the saved tree: differs at byte {same}: {raw[same:same + 40]!r}"]
    gap = raw[len(text):raw.index(b"\xd3BLK")]
    if gap.strip(b" "):
        return [f"between tree and first block stands {gap[:40]!r}"]
    bad = []
    with warnings.catch_warnings(), asdf.open(file, validate_checksums=True, lazy_load=False, memmap=False) as opened:
        warnings.simplefilter("ignore")
        if opened["note"].encode() not in text or opened["count"] != 1:
            bad.append(f"Python reads note {opened['note']!r}")
        if not np.array_equal(opened["array"], ARRAY) or not np.array_equal(opened["soft"], SOFT):
            bad.append("Python reads other arrays")
    return bad


def check_valid(program, task, said, file):
    bad = [f"it reported {said!r}"] if said else []
    want = expected_text(program, task)
    if task.yaml.read_bytes() != want:
        bad.append("tree.yaml does not show what was saved")
    return bad + check_disk(file, want)


def check_refused(program, task, said, file):
    bad = [] if said or (program, task.situation) in SILENT else ["it reported nothing"]
    if file.read_bytes() != SAMPLE:
        bad.append("the file changed")
    if task.situation == "invalid":
        spooled = file.with_name(file.name + ".rejected.yaml")
        if not spooled.exists():
            bad.append("the refused text is not kept beside the file")
        elif spooled.read_bytes() != expected_text(program, task):
            bad.append("what is kept beside the file is not the refused text")
        try:
            os.getxattr(task.yaml, "user.asdf.error")
        except OSError as error:
            bad.append(f"user.asdf.error: {error.strerror}")
    elif task.yaml.read_bytes() != TREE:
        bad.append("tree.yaml shows something else")
    return bad


@contextlib.contextmanager
def looked_at(mnt, wanted):
    """A mount at which others look all the time, if that is wanted."""
    with contextlib.ExitStack() as stack:
        for looker in ("ls -l", "cat", "find") if wanted else ():
            stack.enter_context(beside.looking(mnt, beside.LOOKERS[looker]))
        yield


def run_case(args, program, situation):
    with tempfile.TemporaryDirectory(prefix="editor-") as folder:
        folder = pathlib.Path(folder)
        disk, work = folder / "disk", folder / "work"
        disk.mkdir()
        work.mkdir()
        file = disk / "sample.asdf"
        file.write_bytes(SAMPLE)
        refused = situation in ("invalid", "read-only")
        with mounting.Mount(args.bin, file, ["-r"] if situation == "read-only" else []) as mount:
            task = Task(mount.dir, work, situation)
            with looked_at(mount.dir, args.beside):
                said = PROGRAMS[program](task)
            bad = (check_refused if refused else check_valid)(program, task, said, file)
        kept = {"sample.asdf"} | ({"sample.asdf.rejected.yaml"} if situation == "invalid" else set())
        left = {path.name for path in disk.iterdir()}
        if left != kept:
            bad.append(f"after the unmount the folder holds {sorted(left)}")
        return bad + check_disk(file, TREE if refused else expected_text(program, task))


def second_writer(args):
    """A second mount for writing is refused with 13 and names the first; one for reading is not."""
    with tempfile.TemporaryDirectory(prefix="editor-") as folder:
        file = pathlib.Path(folder, "sample.asdf")
        file.write_bytes(SAMPLE)
        other = pathlib.Path(folder, "other")
        other.mkdir()
        with mounting.Mount(args.bin, file):
            done = subprocess.run([args.bin, str(file), str(other)], capture_output=True, text=True, timeout=60)
            with mounting.Mount(args.bin, file, ["-r"]) as reader:
                shown = (reader.dir / "tree.yaml").read_bytes() == TREE
        bad = [] if done.returncode == 13 else [f"exit status {done.returncode}: {done.stderr}"]
        return bad + ([] if shown else ["the reader does not show the tree"])


def pending_at_unmount(args):
    """In the foreground, an unmount while a refused text is pending ends in 40 and keeps the text."""
    with tempfile.TemporaryDirectory(prefix="editor-") as folder:
        file, mnt = pathlib.Path(folder, "sample.asdf"), pathlib.Path(folder, "mnt")
        file.write_bytes(SAMPLE)
        mnt.mkdir()
        process = subprocess.Popen([args.bin, "-f", str(file), str(mnt)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            mounting.wait_until(lambda: mounting.mounted(mnt) and (mnt / "tree.yaml").exists())
            try:
                (mnt / "tree.yaml").write_bytes(TREE.replace(OLD.encode(), b"no: valid: yaml"))
                return ["the invalid text was not refused"]
            except OSError:
                pass
            # a child of another thread has a copy of the descriptor until it has started its program
            unmount = lambda: subprocess.run(["umount", str(mnt)], capture_output=True, timeout=60).returncode == 0
            if not mounting.wait_until(unmount):
                return ["it stays mounted"]
            status = process.wait(30)
        finally:
            mounting.abort(mnt)
            process.kill()
            process.wait()
        bad = [] if status == 40 else [f"exit status {status}"]
        kept = file.with_name("sample.asdf.rejected.yaml")
        return bad + ([] if kept.exists() and b"no: valid: yaml" in kept.read_bytes() else ["the text was not kept"])


SPECIAL = {"second writer is refused": second_writer, "pending text at unmount": pending_at_unmount}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=os.path.abspath)
    parser.add_argument("--only", default="*")
    parser.add_argument("--beside", action="store_true", help="with programs that look at the mount all the while")
    parser.add_argument("-v", action="store_true", help="print passing cases too")
    args = parser.parse_args()
    cases = {f"{p}/{s}": (run_case, p, s) for p in PROGRAMS for s in EDITS if (p, s) not in LEFT_OUT}
    cases |= {name: (action,) for name, action in SPECIAL.items()}
    passed = failed = 0

    def run(name):
        action, *details = cases[name]
        start = time.monotonic()
        try:
            bad = action(args, *details)
        except Exception as error:           # what a case throws is its result
            bad = [f"{type(error).__name__}: {error}"]
        return name, bad, time.monotonic() - start

    wanted = [name for name in cases if fnmatch.fnmatchcase(name, args.only)]
    missing = [tool for tool in ("vim", "nvim", "nano", "emacs", "micro", "ed", "rsync", "patch", "perl") if not shutil.which(tool)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}; scripts/setup test installs them")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for name, bad, seconds in pool.map(run, wanted):
            passed, failed = passed + (not bad), failed + bool(bad)
            if bad:
                print(f"FAIL {name}: " + "; ".join(bad).replace("\n", " "), flush=True)
            elif args.v:
                print(f"ok   {name} ({seconds:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
