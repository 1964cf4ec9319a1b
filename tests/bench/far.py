"""Measures the mount of a file far away beside curl and Python's fsspec with asdf, behind a slow server."""
import argparse
import contextlib
import http.server
import os
import pathlib
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("ASDF_MOUNT", ROOT / "target/release/asdf-mount"))
DATA = ROOT / "target/bench/far"
LATENCY = 0.05
# bytes a second, of all connections together
RATE = 125_000_000
CHUNK = 4 << 20

# Each gives a line with the seconds that its work took; starting Python is left out.
PYTHON = """
import sys, time
import asdf, fsspec
url, work = sys.argv[1:]
begun = time.perf_counter()
with fsspec.open(url, "rb") as file:
    if work.isdecimal():
        file.seek(-int(work), 2)
        while file.read(1 << 20): pass
    else:
        with asdf.open(file, lazy_load=True, memmap=False) as found:
            if work == "middle":
                data = found["packed"]
                bytes(data[data.size // 2:][:4096])
            else:
                found.tree.keys()
print(time.perf_counter() - begun)
"""


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A server of DATA that knows ranges, answers after LATENCY, and counts."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.free = threading.Lock(), 0.0
        self.requests, self.bytes = 0, 0

    def take(self, count):
        """Waits until there is room for so many bytes on the line."""
        with self.lock:
            now = time.monotonic()
            begin = max(self.free, now)
            self.free = begin + count / RATE
            self.bytes += count
        time.sleep(max(0, begin - now))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        with self.server.lock:
            self.server.requests += 1
        time.sleep(LATENCY)
        with open(DATA / self.path.lstrip("/"), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last = 0, size - 1
            asked = self.headers.get("Range")
            if asked:
                first, _, end = asked.removeprefix("bytes=").partition("-")
                first, last = int(first), min(int(end or last), last)
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(last + 1 - first))
            self.send_header("ETag", f'"{os.fstat(file.fileno()).st_mtime_ns:x}"')
            self.end_headers()
            with contextlib.suppress(OSError):
                while self.command == "GET" and first <= last:
                    count = min(last + 1 - first, 256 << 10)
                    self.server.take(count)
                    first += os.sendfile(self.connection.fileno(), file.fileno(), first, count)

    do_HEAD = do_GET


def make(mib):
    """A file with a raw block, and one of lz4 with a quarter of its size."""
    path = DATA / f"far-{mib}.asdf"
    if not path.exists():
        import asdf
        import numpy
        DATA.mkdir(parents=True, exist_ok=True)
        some = numpy.random.default_rng(1)
        raw = some.integers(0, 256, mib << 20, dtype=numpy.uint8)
        packed = some.integers(0, 16, mib << 18, dtype=numpy.uint8)
        file = asdf.AsdfFile({"packed": packed, "raw": raw})
        file.set_array_compression(packed, "lz4", compression_block_size=CHUNK)
        file.write_to(path)
    return path


def measured(server, action):
    """The seconds that an action takes, or that it returns, with the requests and bytes that it makes the server send."""
    before = server.requests, server.bytes
    begun = time.perf_counter()
    seconds = action() or time.perf_counter() - begun
    return seconds, server.requests - before[0], server.bytes - before[1]


def python(url, work):
    done = subprocess.run([sys.executable, "-c", PYTHON, url, work], stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


@contextlib.contextmanager
def mounted(url):
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([PROGRAM, "-q", url, place], check=True)
        try:
            yield pathlib.Path(place)
        finally:
            subprocess.run([PROGRAM, "-u", place], check=True)


def opening(url):
    begun = time.perf_counter()
    with mounted(url) as place:
        (place / "tree.yaml").read_bytes()
        return time.perf_counter() - begun


def reading(path, offset, size):
    """Seconds to read through a mount; how it came about is left out."""
    begun = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        while size > 0 and (got := len(file.read(min(size, 1 << 20)))):
            size -= got
    return time.perf_counter() - begun


def row(what, ours, other, theirs, holds):
    def told(result):
        seconds, requests, count = result
        return f"{seconds:7.2f} s {requests:4} requests {count / 2**20:7.1f} MiB"
    verdict = {True: "ok", False: "NOT", None: ""}[holds]
    print(f"{what:<34}{told(ours)}   {other:<7}{told(theirs)}  {verdict}", flush=True)


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--mib", type=int, default=256)
    mib = words.parse_args().mib
    path = make(mib)
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{path.name}"
        ours = measured(server, lambda: opening(url))
        theirs = measured(server, lambda: python(url, "tree"))
        row("mount and cat tree.yaml", ours, "fsspec", theirs, ours[1] <= 4 and ours[2] <= 2 << 20)
        with mounted(url) as place:
            packed = place / "blocks/0.bin"
            ours = measured(server, lambda: reading(packed, packed.stat().st_size // 2, 4096))
        theirs = measured(server, lambda: python(url, "middle"))
        row("4 KiB in the middle of an lz4 block", ours, "fsspec", theirs, ours[2] <= CHUNK + (1 << 20))
        with mounted(url) as place:
            ours = measured(server, lambda: reading(place / "blocks/1.bin", 0, mib << 20))
        size = path.stat().st_size
        curl = ["curl", "-s", "-o", "/dev/null", "-r", f"{size - (mib << 20)}-{size - 1}", url]
        curl = measured(server, lambda: subprocess.run(curl, check=True) and None)
        row(f"{mib} MiB one after the other", ours, "curl", curl, ours[0] * 0.7 <= curl[0])
        row("", ours, "fsspec", measured(server, lambda: python(url, str(mib << 20))), None)
        server.shutdown()


if __name__ == "__main__":
    main()
