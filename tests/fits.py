#!/usr/bin/env python3
"""The FITS files of mounts of other people's files, as astropy reads them, against the values that Python's asdf reads.

    fits.py --bin BIN [-v] DIR…

One case for each *.asdf below a DIR: all of its fits/ is compared, see fits_oracle.py. A file that Python's asdf does not open is left out.
"""
import argparse
import contextlib
import io
import pathlib
import struct
import warnings

import asdf
import blosc

import fits_oracle
import mounting


class Abacus(asdf.extension.Compressor):
    """What files of AbacusSummit have under `blsc`: Blosc chunks, each behind its length. Others have one chunk."""
    label = b"blsc"

    def decompress(self, data, out, **_):
        data, at, done = b"".join(bytes(part) for part in data), 0, 0
        lengths = len(data) > 20 and struct.unpack_from("<I", data, 16) == struct.unpack_from(">I", data)
        while at < len(data):
            length = struct.unpack_from(">I", data, at)[0] if lengths else len(data)
            at += 4 if lengths else 0
            chunk = blosc.decompress(data[at:at + length])
            out[done:done + len(chunk)] = chunk
            at, done = at + length, done + len(chunk)
        return done


class Extension(asdf.extension.Extension):
    extension_uri = "asdf://asdf-mount.test/abacus-1.0.0"
    compressors = [Abacus()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("-v", action="store_true")
    parser.add_argument("dirs", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    asdf.get_config().add_extension(Extension())
    counts, equal = [0, 0], 0
    for directory in arguments.dirs:
        for file in sorted(directory.rglob("*.asdf")):
            name = file.relative_to(directory)
            try:
                asdf.open(file).close()
            except Exception as error:
                print(f"left out: {name}: {type(error).__name__}: {error}".splitlines()[0])
                continue
            said = io.StringIO()
            with mounting.Mount(arguments.bin, file, ["-q", "-r", "-o", f"fits,force,allow_external={directory}"]) as mount:
                with contextlib.redirect_stdout(said):
                    different = fits_oracle.compare(file, mount.dir)
            *differences, last = said.getvalue().splitlines()
            equal += int(last.split()[0])
            counts[different > 0] += 1
            if different:
                print(f"FAIL {name}: {'; '.join(differences)}")
            elif arguments.v:
                print(f"ok   {name}")
    print(f"{equal} FITS files are equal")
    print(f"{counts[0]} passed, {counts[1]} failed")
    return counts[1] > 0


if __name__ == "__main__":
    raise SystemExit(main())
