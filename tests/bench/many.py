"""What scripts/bench-many runs: a mount of thousands of files beside `ls`, `grep` on plain texts, and Python's asdf."""
import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "target/release/asdf-mount"
DATA = ROOT / "target/bench/many"
KEY = "F158_WANTED"
HEAD = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n"
# Files that Python is asked about: it takes seconds for each.
ASKED = 8
# How often two things are done that are compared, one after the other: other programs disturb some of it.
TIMES = 7
# Asks with Python's asdf, in one process, which of the files hold the key.
PYTHON = """
import sys, asdf
def holds(node):
    if isinstance(node, dict):
        return any(holds(value) for value in node.values())
    if isinstance(node, list):
        return any(holds(value) for value in node)
    return isinstance(node, str) and node == sys.argv[1]
for path in sys.argv[2:]:
    with asdf.open(path) as file:
        if holds(file.tree):
            print(path)
"""


def steps(count):
    """So many of the small mappings that a pipeline writes into its trees."""
    numbers = random.Random(count)
    for _ in range(count):
        n = numbers.randrange(1 << 30)
        yield f"- name: step_{n}\n  status: COMPLETE\n  parameters: {{threshold: {n / 7:.6f}, kernel: [1, {n % 9}, 1], suffix: cal}}\n"


# More than the longest tree holds: each has a part of them, as to make others for each takes longer than all that is measured.
STEPS = list(steps(12_000))


def tree(number, size):
    """A tree of about so many bytes, as a pipeline writes them: many small mappings, some arrays, one key to look for."""
    parts = [HEAD, f"number: {number}\nfilter: {KEY if number % 50 == 0 else 'F184'}\n"]
    parts.append("data: !core/ndarray-1.0.0 {source: 0, datatype: float32, byteorder: little, shape: [16, 16]}\n")
    parts.append("steps:\n")
    count = max(1, size // len(STEPS[0]))
    first = random.Random(number).randrange(len(STEPS) - count)
    return "".join(parts + STEPS[first : first + count]) + "...\n"


def write(path, text):
    data = os.urandom(1024)
    header = b"\xd3BLK" + (48).to_bytes(2, "big") + bytes(8) + 3 * len(data).to_bytes(8, "big") + bytes(16)
    path.write_bytes(text.encode() + header + data)


def make(count):
    """The files, in a tree of directories, and their texts as plain files beside them."""
    done = DATA / f"done-{count}"
    if not done.exists():
        for top in ("files", "texts"):
            shutil.rmtree(DATA / top, ignore_errors=True)
        for other in DATA.glob("done-*"):
            other.unlink()
        for number in range(count):
            place = f"visit{number // 100:03}"
            for top in ("files", "texts"):
                (DATA / top / place).mkdir(parents=True, exist_ok=True)
            text = tree(number, random.Random(number).randrange(30 << 10, 600 << 10))
            write(DATA / "files" / place / f"obs_{number:05}.asdf", text)
            (DATA / "texts" / place / f"obs_{number:05}.yaml").write_text(text)
        done.touch()
    return DATA / "files", DATA / "texts"


def make_flat(count):
    """One directory with so many small files."""
    flat = DATA / f"flat-{count}"
    if not flat.exists():
        flat.mkdir(parents=True)
        first = flat / "f000000.asdf"
        write(first, tree(1, 300))
        for number in range(1, count):
            # their own inodes, as files have: no hard links
            shutil.copyfile(first, flat / f"f{number:06}.asdf")
    return flat


def seconds(*command, fails=False, **options):
    start = time.perf_counter()
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, **options)
    taken = time.perf_counter() - start
    if done.returncode and not fails:
        sys.exit(f"{command}: {done.returncode}")
    return taken, done.stdout.decode()


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class Mount:
    """A mount, with what its daemon takes."""

    def __init__(self, directory, *options):
        self.path = DATA / "mnt"
        self.path.mkdir(parents=True, exist_ok=True)
        pid = DATA / "pid"
        self.seconds, _ = seconds(PROGRAM, "-q", "--pid-file", pid, *options, directory, self.path)
        self.pid = int(pid.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        seconds(PROGRAM, "-u", self.path)

    def status(self, name):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def peak_descriptors(self, action):
        """What an action gives, and the most descriptors that were seen open meanwhile."""
        ended = threading.Event()
        seen = []

        def watch():
            while not ended.wait(0.02):
                seen.append(self.descriptors())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            done = action()
        finally:
            ended.set()
            watcher.join()
        return done, max(seen, default=0)

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))


def row(what, value, bound, holds):
    print(f"{what:<62}{value:>14}  {bound:<18}{'ok' if holds else 'NOT'}", flush=True)


def beside(what, ours, theirs):
    """Both by turns, each as a function that gives its seconds: a row of each with its median, and all of them. The two medians."""
    both = [(theirs(), ours()) for _ in range(TIMES)]
    medians = []
    for name, times in zip(what, zip(*both)):
        median = statistics.median(times)
        medians.append(median)
        row(f"{name}, median of {TIMES}", f"{1000 * median:.1f} ms", f"{1000 * min(times):.1f} to {1000 * max(times):.1f} ms", True)
    plain, taken = medians
    return taken, plain


def starts(files):
    """Beside `ls -R` of the same files."""

    def start():
        with Mount(files, "-r") as mount:
            return mount.seconds

    taken, plain = beside(("ls -R of the files", "mount of them"), start, lambda: seconds("ls", "-R", files)[0])
    row("mount", f"{taken / plain:.1f} x ls -R", "<= 1.5 x", taken <= 1.5 * plain)


def trees(count, python):
    files, texts = make(count)
    starts(files)
    for show in ("tree:arrays:blocks:info", "tree"):
        drop_caches()
        with Mount(files, "-r", "-o", f"cache=64M,show={show}") as mount:
            grep = ("grep", "-rl", KEY, "--include=tree.yaml", mount.path)
            (cold, found), peak = mount.peak_descriptors(lambda: seconds(*grep))
            assert len(found.splitlines()) == (count + 49) // 50, found
            row(f"grep cold, show={show}", f"{cold:.1f} s", f"{python / cold:.0f} x Python", python >= 20 * cold)
            names = ("grep of plain texts", f"grep warm, show={show}")
            warm, plain = beside(names, lambda: seconds(*grep)[0], lambda: seconds("grep", "-rl", KEY, texts)[0])
            row(f"speed of grep warm, show={show}", f"{plain / warm:.2f} of plain", ">= 0.5", plain >= 0.5 * warm)
            rss = mount.status("VmHWM")
            row("peak memory", f"{rss:.0f} MiB", "<= 128 MiB", rss <= 128)
            row("descriptors, threads", f"{peak}, {mount.threads()}", "<= 128", peak <= 128)


def total(paths):
    return sum(path.stat().st_size for path in paths)


def with_python(count):
    """Seconds that Python takes for so many files, from those for the bytes of a few."""
    files, _ = make(count)
    every = sorted(files.rglob("*.asdf"))
    some = every[:: max(1, count // ASKED)]
    drop_caches()
    taken, _ = seconds(sys.executable, "-c", PYTHON, KEY, *some)
    whole = taken * total(every) / total(some)
    row(f"Python asdf, from {len(some)} of {count} files", f"{whole:.0f} s", "", True)
    return whole


def flat(count):
    directory = make_flat(count)

    def listed(place):
        taken, lines = seconds("sh", "-c", f"ls -U {place} | wc -l")
        assert int(lines) == count, lines
        return taken

    with Mount(directory, "-r") as mount:
        names = (f"ls -U of {count} files", "the same of their mount")
        taken, plain = beside(names, lambda: listed(mount.path), lambda: listed(directory))
        row("ls -U of the mount", f"{taken / plain:.1f} x plain", "<= 2 x", taken <= 2 * plain)
        rss = mount.status("VmRSS")
        row("memory then", f"{rss:.0f} MiB", "<= 64 MiB", rss <= 64)


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--files", type=int, default=5000)
    words.add_argument("--flat", type=int, default=100_000)
    options = words.parse_args()
    trees(options.files, with_python(options.files))
    flat(options.flat)


if __name__ == "__main__":
    main()
