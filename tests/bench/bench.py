"""What scripts/bench runs: every comparison side by side in one run, its rounds interleaved; medians and ratios."""
import argparse
import fnmatch
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import numpy
import samples

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import mounting  # noqa: E402

PROGRAM = str(ROOT / "target/release/asdf-mount")
# What a mount runs at the moment: PROGRAM, or the build that --against names.
program = PROGRAM
other_build = None
MEASURE = str(ROOT / "target/release/examples/measure")
DATA = ROOT / "target/bench"
MIB = 1 << 20
# How each native tool decodes the stored bytes on standard input to standard output.
NATIVE = {
    "zlib": ["rapidgzip", "-d", "-c", "-P", "0"],
    "bzp2": ["lbzip2", "-d", "-c"],
    "lz4 frame": ["lz4", "-d", "-c"],
    "zstd": ["zstd", "-d", "-c"],
}

rows = []


def timed(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, **options).stdout


def cat(path):
    """Seconds that `cat` takes."""
    return timed(lambda: subprocess.run(["cat", str(path)], check=True, stdout=subprocess.DEVNULL))


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class Served(mounting.Mount):
    """A mount whose peak memory is known afterwards."""

    peak = 0
    # How many there have been.
    count = 0
    # Seconds that the command took.
    took = 0.0

    def __init__(self, file, options=(), cpu=None):
        Served.count += 1
        super().__init__(program, file, ["-r", *options])
        self.cpu = cpu

    def __enter__(self):
        before = os.sched_getaffinity(0)
        if self.cpu is not None:
            os.sched_setaffinity(0, {self.cpu})
        start = time.perf_counter()
        try:
            return super().__enter__()
        finally:
            self.took = time.perf_counter() - start
            os.sched_setaffinity(0, before)

    def __exit__(self, *details):
        status = pathlib.Path(f"/proc/{self.daemon}/status").read_text()
        self.peak = int(status.split("VmHWM:")[1].split()[0]) >> 10
        super().__exit__(*details)

    def read_ahead(self, kib):
        pathlib.Path(f"/sys/class/bdi/{mounting.mounted(self.dir)}/read_ahead_kb").write_text(str(kib))


def compare(name, unit, sides, rounds, work=None):
    """Run each side once a round. A side gives seconds, or (seconds, peak MiB). The first is ours, the ratio is each
    other's seconds by ours: above 1 we are faster."""
    seconds, peaks = {side: [] for side in sides}, {}
    # the sides that mount; another build goes first every other round, so that neither has the other's warm pages
    ours = set()

    def measure(side, action):
        try:
            got = action()
        except (subprocess.CalledProcessError, OSError, RuntimeError) as error:
            print(f"{name:38} {side:38} not possible: {str(error)[:70]}")
            sides.pop(side, None)
            return
        took, peak = got if isinstance(got, tuple) else (got, None)
        seconds.setdefault(side, []).append(took)
        if peak is not None:
            peaks[side] = max(peaks.get(side, 0), peak)

    def measure_other(side, action):
        global program
        program = other_build
        measure(f"{side}, other build", action)
        program = PROGRAM

    for n in range(rounds):
        for side, action in list(sides.items()):
            mounts = Served.count
            other_first = side in ours and n % 2 == 1
            if other_first:
                measure_other(side, action)
            measure(side, action)
            if other_build and Served.count > mounts:
                ours.add(side)
                if not other_first:
                    measure_other(side, action)
    seconds = {side: values for side, values in seconds.items() if values}
    if not seconds:
        return
    medians = {side: statistics.median(values) for side, values in seconds.items()}
    ours = next(iter(medians.values()))
    for side, median in medians.items():
        value = work / median if work else median * (1e6 if unit == "µs" else 1e3)
        row = {"what": name, "side": side, "value": round(value, 4), "unit": unit, "ratio": round(median / ours, 3),
               "seconds": [round(s, 6) for s in seconds[side]], "peak_mib": peaks.get(side)}
        rows.append(row)
        peak = f"{row['peak_mib']:8}" if row["peak_mib"] is not None else " " * 8
        print(f"{name if side == next(iter(medians)) else '':38} {side:38} {value:10.2f} {unit:6} {row['ratio']:8.2f} {peak}", flush=True)


def python(action, path):
    return tuple(json.loads(run(sys.executable, HERE / "samples.py", action, path)))


def served(file, action, options=(), cpu=None):
    """What `action(mount)` measures, and the peak memory of the daemon."""
    with Served(file, options, cpu) as mount:
        seconds = action(mount)
    return seconds, mount.peak


# ---------------------------------------------------------------- the comparisons

def raw_reads(sizes, rounds):
    path = DATA / f"raw-{sizes['raw']}.asdf"
    offset, length = samples.single(path, None, sizes["raw"])
    work = length / MIB

    # The second read marks each page as active, once: only what comes after it is steady.
    def steady(file):
        cat(file)
        cat(file)
        return cat(file)

    def warm(mount):
        return steady(mount.dir / "blocks/0.bin")

    # The page cache of every FUSE file system has pages of 4 KiB, that of ext4 larger ones; so it is read page by page here.
    def small_pages():
        drop_caches()
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for at in range(0, offset + length, 4096):
                os.pread(file.fileno(), 4096, at)
        seconds = steady(path)
        drop_caches()
        return seconds

    def uncached(mount):
        cat(path)
        return cat(mount.dir / "blocks/0.bin")

    def cold(kib):
        def action(mount):
            if kib:
                mount.read_ahead(kib)
            drop_caches()
            return cat(mount.dir / "blocks/0.bin")
        return action

    def cold_file():
        drop_caches()
        return cat(path)

    yield "raw sequential, warm", lambda name: compare(name, "MiB/s", {
        "mount": lambda: served(path, warm), "cat of the file": lambda: steady(path), "cat, 4 KiB pages": small_pages,
        "mount, first read": lambda: served(path, uncached)}, rounds, work=work)
    yield "raw sequential, cold", lambda name: compare(name, "MiB/s", {
        "mount": lambda: served(path, cold(None)), "mount, read-ahead 128 KiB": lambda: served(path, cold(128)),
        "mount, read-ahead 1 MiB": lambda: served(path, cold(1024)), "cat of the file": cold_file}, rounds, work=work)
    count = sizes["reads"]

    def random(file, at):
        return float(run(MEASURE, "random", file, at, length, count))

    def random_warm(mount):
        cat(mount.dir / "blocks/0.bin")
        return random(mount.dir / "blocks/0.bin", 0)

    yield "raw random 4 KiB, warm", lambda name: compare(name, "µs", {
        "mount": lambda: served(path, random_warm), "mount, first touch": lambda: served(path, lambda m: random(m.dir / "blocks/0.bin", 0)),
        "pread of the file": lambda: (cat(path), random(path, offset))[1]}, rounds)


def views(sizes, rounds):
    """The first read of a FITS file of an array and of a table, whose file is in memory: each is converted as it is read."""
    size = sizes["view"]
    path = DATA / f"viewed-{size}.asdf"

    def first(*names):
        def action(mount):
            cat(path)
            return timed(lambda: subprocess.run(["cat", *(mount.dir / name for name in names)], check=True, stdout=subprocess.DEVNULL))
        return action

    def image_by_numpy(offsets):
        return numpy.memmap(path, "<f4", "r", offsets["image"], size // 4).astype(">f4")

    def table_by_numpy(offsets):
        table = numpy.empty(size // 32, [(name, code.replace("<", ">")) for name, code in samples.COLUMNS.items()])
        for name, code in samples.COLUMNS.items():
            table[name] = numpy.memmap(path, code, "r", offsets[name], size // 32)
        return table

    columns = [f"arrays/table/{name}.bin" for name in samples.COLUMNS]
    for name, arrays, by_numpy in ("image", ["arrays/image.bin"], image_by_numpy), ("table", columns, table_by_numpy):
        def comparison(row, name=name, arrays=arrays, by_numpy=by_numpy):
            offsets = samples.viewed(path, size)
            compare(row, "MiB/s", {
                "mount": lambda: served(path, first(f"fits/{name}.fits"), ["-o", "fits"]),
                "mount, arrays/": lambda: served(path, first(*arrays)),
                "numpy": lambda: (cat(path), timed(lambda: by_numpy(offsets)))[1]}, rounds, work=size / MIB)
        yield f"FITS {name}", comparison


def codecs(sizes, rounds):
    size = sizes["codec"]
    work = size / MIB
    for framing in samples.FRAMINGS:
        path = DATA / f"{framing.replace(chr(32), chr(45))}-{size}.asdf"
        yield f"{framing} sequential", lambda name, f=framing, p=path: codec_sequential(name, f, p, size, work, rounds)
        yield f"{framing} 4 KiB", lambda name, f=framing, p=path: codec_random(name, f, p, size, sizes["codec_reads"], rounds)


def codec_sequential(name, framing, path, size, work, rounds):
    offset, length = samples.single(path, framing, size)
    whole = lambda mount: cat(mount.dir / "blocks/0.bin")  # noqa: E731
    sides = {"mount": lambda: served(path, whole), "mount on one core": lambda: served(path, whole, cpu=0)}
    if framing in ("zlib", "bzp2", "lz4"):
        sides["codec alone"] = lambda: float(run(MEASURE, "codec", framing, path, offset, length))
    sides["Python asdf"] = lambda: python(framing.split()[0] if framing.startswith("bl") else "read", path)
    if tool := NATIVE.get(framing):
        if program := shutil.which(tool[0]) or shutil.which(tool[0], path=str(pathlib.Path(sys.executable).parent)):
            stored = DATA / "stored"
            with open(path, "rb") as file, open(stored, "wb") as out:
                file.seek(offset)
                shutil.copyfileobj(file, out, MIB)
            sides[tool[0]] = lambda: timed(lambda: subprocess.run([program, *tool[1:]], stdin=open(stored, "rb"), stdout=subprocess.DEVNULL, check=True))
    compare(name, "MiB/s", sides, rounds, work=work)


def codec_random(name, framing, path, size, count, rounds):
    samples.single(path, framing, size)

    def touch(at):
        def action(mount):
            with open(mount.dir / "blocks/0.bin", "rb", buffering=0) as file:
                return timed(lambda: os.pread(file.fileno(), 4096, at))
        return action

    def after_a_pass(mount):
        block = mount.dir / "blocks/0.bin"
        cat(block)
        # what the kernel has of the block, not what it has of the file
        with open(block, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return float(run(MEASURE, "random", block, 0, size, count))

    compare(name, "ms", {
        "first touch, in the middle": lambda: served(path, touch(size // 2)),
        "first touch, at the end": lambda: served(path, touch(size - 4096)),
        "after one pass": lambda: served(path, after_a_pass),
        "after one pass, cache=64M": lambda: served(path, after_a_pass, ["-o", "cache=64M"]),
    }, max(1, rounds // 2))


def memory(sizes, rounds):
    """16 readers at random places of 16 blocks, two or three of each framing: what the process takes beside its cache."""
    path = DATA / f"sixteen-{sizes['codec'] // 4}.asdf"

    def readers(mount):
        def one(n):
            return subprocess.Popen([MEASURE, "random", mount.dir / f"blocks/{n}.bin", "0", str(sizes["codec"] // 4), str(sizes["codec_reads"])],
                                    stdout=subprocess.DEVNULL)
        start = time.perf_counter()
        for process in [one(n) for n in range(16)]:
            if process.wait() != 0:
                raise RuntimeError("a reader failed")
        return (time.perf_counter() - start) / (16 * sizes["codec_reads"])

    def comparison(name):
        samples.sixteen(path, sizes["codec"] // 4)
        compare(name, "ms", {f"cache={cache}": lambda c=cache: served(path, readers, ["-o", f"cache={c}"]) for cache in ("16M", "64M", "256M")}, rounds)

    yield "16 readers in 16 blocks", comparison


def opening(sizes, rounds):
    files = {}
    for name, make in {
        "open 1 block": lambda p: samples.many_blocks(p, 1, True),
        f"open {sizes['blocks']} blocks, index": lambda p: samples.many_blocks(p, sizes["blocks"], True),
        f"open {sizes['blocks']} blocks, no index": lambda p: samples.many_blocks(p, sizes["blocks"], False),
        f"open a tree of {sizes['tree'] // MIB} MiB": lambda p: samples.large_tree(p, sizes["tree"]),
    }.items():
        files[name] = DATA / (name.replace(" ", "-").replace(",", "") + ".asdf")
        yield name, lambda name, make=make, path=files[name]: open_once(name, make, path, rounds)
    listed = DATA / f"listed-{sizes['blocks']}.asdf"

    def listing(name):
        samples.many_blocks(listed, sizes["blocks"], True)
        ls = lambda mount: timed(lambda: subprocess.run(["ls", "-lR", str(mount.dir / "arrays")], stdout=subprocess.DEVNULL, check=True))  # noqa: E731
        compare(name, "ms", {"mount": lambda: served(listed, ls), "the same in a directory": lambda: plain_listing(sizes["blocks"])}, rounds)

    yield f"ls -lR of {sizes['blocks']} arrays", listing


def open_once(name, make, path, rounds):
    make(path)

    def mount_time():
        with Served(path) as mount:
            os.listdir(mount.dir / "arrays")
        return mount.took, mount.peak

    def listed_time():
        with Served(path) as mount:
            listing = timed(lambda: os.listdir(mount.dir / "arrays"))
        return mount.took + listing

    compare(name, "ms", {"mount": mount_time, "mount, and list arrays/": listed_time, "asdf.open": lambda: python("open", path)}, rounds)


def plain_listing(count):
    folder = DATA / "plain"
    if not folder.exists():
        (folder / "arrays").mkdir(parents=True)
        for n in range(count):
            (folder / "arrays" / f"{n}.bin").write_bytes(b"")
            (folder / "arrays" / f"{n}.npy").write_bytes(b"")
    return timed(lambda: subprocess.run(["ls", "-lR", str(folder)], stdout=subprocess.DEVNULL, check=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, two rounds: shows that it runs, not how fast it is")
    parser.add_argument("--only", default="*", help="glob on the names of the comparisons")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--codec-mib", type=int, help="decoded size of the compressed blocks, 256 if not given")
    parser.add_argument("--against", metavar="PROGRAM", help="another build, which every comparison measures as well")
    args = parser.parse_args()
    global other_build
    other_build = args.against and str(pathlib.Path(args.against).resolve(strict=True))
    sizes = {"raw": 1024 * MIB, "view": 512 * MIB, "codec": 256 * MIB, "reads": 50_000, "codec_reads": 200, "blocks": 10_000, "tree": 20 * MIB}
    if args.quick:
        sizes = {"raw": 64 * MIB, "view": 32 * MIB, "codec": 16 * MIB, "reads": 2_000, "codec_reads": 20, "blocks": 1_000, "tree": 2 * MIB}
    if args.codec_mib:
        sizes["codec"] = args.codec_mib * MIB
    rounds = args.rounds or (2 if args.quick else 5)
    DATA.mkdir(parents=True, exist_ok=True)
    print(f"{'what':38} {'side':38} {'median':>10} {'':6} {'time/ours':>8} {'peak MiB':>8}")
    for group in (raw_reads, views, codecs, memory, opening):
        for name, comparison in group(sizes, rounds):
            if fnmatch.fnmatch(name, args.only):
                comparison(name)
    result = {"machine": {"cpus": os.cpu_count(), "kernel": os.uname().release}, "sizes": sizes, "rounds": rounds, "rows": rows}
    (ROOT / "target/bench.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
