#!/usr/bin/env python3
"""Open files with the asdf-python of this environment, and say what it reads of them.

    interop_reader.py <NAMES

For each name on standard input a line of JSON: for each way to open the file, what prevents that, or the arrays: path in the
tree, and the MD5 of the values or what prevents reading them. The first line is the version.
"""
import collections.abc
import hashlib
import inspect
import json
import sys
import warnings

import asdf
import numpy as np

# Arrays in memory, so that no file stays mapped; the option has had two names.
COPIED = {"memmap": False} if "memmap" in inspect.signature(asdf.open).parameters else {"copy_arrays": True}
WAYS = {
    "lazy": {"lazy_load": True},
    "eager": {"lazy_load": False},
    "verified": {"lazy_load": False, "validate_checksums": True},
}


def canonical(array):
    """The values, however they are laid out."""
    array = np.asarray(array)
    return hashlib.md5(repr((array.dtype.newbyteorder("<").descr, array.shape)).encode()
                       + np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()


def arrays(node, path=(), seen=()):
    """Each array of a tree, with its path."""
    if id(node) in seen or len(path) > 40:
        return
    if hasattr(node, "dtype") and hasattr(node, "shape"):
        yield "/".join(path), node
    elif isinstance(node, collections.abc.Mapping):
        for key in list(node):
            yield from arrays(node[key], (*path, str(key)), (*seen, id(node)))
    elif isinstance(node, collections.abc.Sequence) and not isinstance(node, (str, bytes)):
        for number, item in enumerate(node):
            yield from arrays(item, (*path, str(number)), (*seen, id(node)))


def attempt(action):
    """The result, or the error with its message."""
    try:
        return action()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def read(name, options):
    with asdf.open(name, **COPIED, **options) as opened:
        return {path: attempt(lambda: canonical(array)) for path, array in arrays(opened.tree)}


def main():
    warnings.simplefilter("ignore")
    print(json.dumps(asdf.__version__), flush=True)
    for line in sys.stdin:
        name = line.rstrip("\n")
        print(json.dumps({way: attempt(lambda: read(name, options)) for way, options in WAYS.items()}), flush=True)


if __name__ == "__main__":
    main()
