"""Mounting with the program under test, for the Python tests: nothing here waits for ever."""
import contextlib
import os
import pathlib
import subprocess
import tempfile
import time

PATIENCE = 30


def mounted(mountpoint):
    """The `major:minor` of what is mounted at exactly this path, or None. Never touches the mount."""
    wanted, found = str(mountpoint).replace(" ", "\\040"), None
    for line in pathlib.Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields = line.split(" ")
        if fields[4] == wanted:
            found = fields[2]
    return found


def daemons(mountpoint):
    """The processes that have this path among their arguments and are no unmounters."""
    wanted, found = os.fsencode(str(mountpoint)), []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if wanted in arguments[1:] and not arguments[0].endswith(b"umount"):
                    found.append(int(entry.name))
    return found


def wait_until(condition, limit=PATIENCE):
    """Whether the condition came true in time."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def abort(mountpoint):
    """End a mount that does not answer: its requests fail, then it is detached."""
    if device := mounted(mountpoint):
        with contextlib.suppress(OSError):
            pathlib.Path("/sys/fs/fuse/connections", device.split(":")[1], "abort").write_text("1")
        subprocess.run(["umount", "-l", str(mountpoint)], capture_output=True, timeout=PATIENCE)


def running(pid):
    """Whether any thread of the process still lives, and with it what the process had open and locked."""
    try:
        leader = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return leader != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


class Mount:
    """A mounted file; leaving the context unmounts it and waits for the daemon."""

    def __init__(self, program, file, options=(), environment=None):
        self.program, self.file, self.options = program, str(file), list(options)
        self.environment = {**os.environ, **(environment or {})}
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mnt-"))

    def __enter__(self):
        with tempfile.TemporaryFile("w+") as said:
            # to a file: a daemon that keeps standard output would keep a pipe open
            done = subprocess.run([self.program, *self.options, self.file, str(self.dir)], stdin=subprocess.DEVNULL,
                                  stdout=said, stderr=said, timeout=PATIENCE, env=self.environment)
            said.seek(0)
            if done.returncode or not mounted(self.dir):
                raise RuntimeError(f"mounting: exit status {done.returncode}: {said.read()}")
        return self

    @property
    def daemon(self):
        return next(iter(daemons(self.dir)))

    def __exit__(self, *_):
        served_by = daemons(self.dir)
        gone = wait_until(lambda: not mounted(self.dir) or subprocess.run(
            ["umount", str(self.dir)], capture_output=True, timeout=PATIENCE).returncode == 0)
        if not gone:
            abort(self.dir)
        ended = wait_until(lambda: not any(map(running, served_by)))
        self.dir.rmdir()
        if not gone or not ended:
            raise RuntimeError("could not unmount" if not gone else "the daemon outlives its mount")
