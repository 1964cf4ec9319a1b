"""ASDF files from Python, through a mount that lasts as long as it is used.

    with asdf_mount.mount("galaxy.asdf") as m:
        print(m.tree["meta"], m["data"].mean())

The program ``asdf-mount`` serves the mount; this module starts it, and needs nothing else. An array is an ``np.memmap`` where NumPy is
there, so that only what is used of it is read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap as _mmap
import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Type, Union

__all__ = ["Error", "File", "Mount", "MountError", "SaveError", "mount"]

#: The value of an option of the program, as in ``cache="64M"``; ``True`` is an option without a value.
Option = Union[str, int, bool, "os.PathLike[str]", None]

_TREE = "tree.yaml"
#: The options that are spelt with an underscore; the others have hyphens.
_UNDERSCORES = {"allow_external", "allow_other", "allow_root", "auto_unmount"}
#: The exit statuses of ``-u``: something that was written is not saved; it did not unmount because of that, or as it is in use.
_PENDING, _UNKEPT, _BUSY = 40, 41, 10
#: How long ``-u`` waits for the daemon, in seconds.
_TIMEOUT = 15
#: What stands in a reason behind it.
_KEPT = "; your text is in "


class Error(Exception):
    """What the program refuses."""


class MountError(Error):
    """A file that is not mounted, and why: ``status`` is the exit status of the program, as its manual has it."""

    def __init__(self, reason: str, status: int = 1) -> None:
        super().__init__(reason)
        self.status = status


class SaveError(Error):
    """A text that is not saved: ``reason``, and the ``line`` of the text that is at fault, from 1, if it is one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        found = re.search(r"\bline (\d+)", reason)
        self.line: Optional[int] = int(found.group(1)) if found else None


class File(Mapping[str, Any]):
    """A mounted file. As a mapping it has the arrays, by the paths of their files, which are those of the tree, such as ``"meta/flux"``."""

    def __init__(self, path: Path, writable: bool, whole: Optional[File] = None) -> None:
        self._whole = whole
        self._saving: threading.Lock = whole._saving if whole else threading.Lock()
        self.path = path
        """The directory that shows the file."""
        self.writable = writable
        """Whether arrays and the tree can be written."""

    def __getitem__(self, name: str) -> Any:
        """The array at a path of the tree. Of a mount of many files, the file of that name.

        With NumPy an ``np.memmap``, which can be written if the mount is ``writable``, the array is in a block, and no other array of
        this block is being written; ``flush()`` saves what was written. Without NumPy an ``mmap.mmap`` of the elements, in C order and
        their declared byte order, or ``b""`` if there are none.
        """
        file = self._find(name)
        if isinstance(file, File):
            return file
        if self.writable:
            try:
                return _array(file, True)
            except OSError as error:
                # such as an array whose elements stand in the tree
                if error.errno not in (errno.EROFS, errno.EACCES, errno.EBUSY):
                    raise
        return _array(file, False)

    def _find(self, name: str) -> Union[Path, File]:
        """The NPY file of an array, or of a mount of many files the file of that name."""
        arrays = self._arrays
        file = arrays / f"{name}.npy"
        # unlike `is_file` this takes a name that is too long for one that is not there
        if name and os.path.normpath(name) == name and name[0] != "/" and name.split("/")[0] != "..":
            if os.path.isfile(file):
                return file
            inner = self.path / name
            if not arrays.is_dir() and os.path.isfile(inner / _TREE):
                return File(inner, self.writable, self)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """The paths of all arrays that can be read, as their files are named; of a mount of many files, the paths of those."""
        if not self._arrays.is_dir():
            return self._files()
        # a field may be of any length, and nothing is quoted
        head, *rows = [line.split("\t") for line in self._read("info/arrays.tsv").decode().split("\n") if line]
        files = [row[head.index("file")] for row in rows]
        # a name of a file that is too long is cut; a hyphen stands for an array without a file
        return (file[len("arrays/") : -len(".npy")] for file in files if file.startswith("arrays/") and (self.path / file).is_file())

    def _files(self) -> Iterator[str]:
        for place, inner, _ in os.walk(self.path):
            files = sorted(name for name in inner if os.path.isfile(os.path.join(place, name, _TREE)))
            inner[:] = sorted(set(inner).difference(files))
            yield from (os.path.relpath(os.path.join(place, name), self.path) for name in files)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        with contextlib.suppress(KeyError):
            return isinstance(name, str) and self._find(name) is not None
        return False

    # a mapping would compare all its arrays
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    @property
    def _arrays(self) -> Path:
        self._check()
        return self.path / "arrays"

    def _check(self) -> None:
        """Refuses what is not mounted any more."""
        if self._whole is not None:
            self._whole._check()

    @property
    def tree(self) -> Any:
        """The tree, as ``asdf-mount --tree --json`` prints it: a tag is the key ``"!tag"``. ``None`` if there is none."""
        tree = json.loads(self._read("info/tree.json"))
        if isinstance(tree, dict) and set(tree) == {"!error"}:
            raise Error(str(tree["!error"]))
        return tree

    @property
    def text(self) -> str:
        """The text of the tree, byte for byte, with the lines in front of it."""
        return self._read(_TREE).decode()

    def _read(self, name: str) -> bytes:
        """The bytes of a file of the mount that is there if one file is mounted and all of it is shown."""
        self._check()
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            if (self.path / _TREE).is_file():
                raise Error(f"{name} is not shown: mount without the option show") from None
            raise Error("many files are mounted, of which each has its own tree: take one by its name") from None

    def save(self, text: Union[str, bytes]) -> None:
        """Saves a text as the tree; it is on disk when this returns.

        Raises SaveError if the text is refused. The file then keeps its tree, and the mount goes on showing that.
        """
        self._check()
        if not self.writable:
            raise SaveError("mounted read-only; mount(..., writable=True) saves")
        # a text that is renamed is a tree or refused, also an empty one
        new = self.path / f"{_TREE}.{secrets.token_hex(4)}"
        with self._saving:
            try:
                if _attribute(self.path / _TREE, "error") is not None:
                    # that of another program stays where it is on disk
                    _setxattr(self.path, "user.asdf.revert", b"")
                new.write_bytes(text.encode() if isinstance(text, str) else text)
                os.rename(new, self.path / _TREE)
            except OSError as error:
                if error.errno == errno.EPERM:
                    self._read(_TREE)
                # an error of the rename, which names two files, is of this text
                reason = self._give_up() if error.filename2 is not None else None
                raise SaveError(reason or f"{_TREE}: {error.strerror}") from error
            finally:
                with contextlib.suppress(OSError):
                    new.unlink()

    def _give_up(self) -> Optional[str]:
        """Gives up a text that was refused, and the copy of it, which the caller has. Why it was."""
        reason, kept = (_attribute(self.path / _TREE, name) for name in ("error", "rejected"))
        if reason is None:
            return None
        _setxattr(self.path, "user.asdf.revert", b"discard")
        if kept is not None:
            Path(kept).unlink(missing_ok=True)
        return reason.partition(_KEPT)[0]


class Mount(File):
    """A mount, which is closed at the end of a ``with``, by ``close()``, or with the interpreter, however that ends."""

    def __init__(self, program: str, source: str, writable: bool, options: Dict[str, Option]) -> None:
        """Mounts; ``mount()`` has the meaning of the arguments."""
        # the daemon makes the directory, and removes it, also when this process is killed
        path = Path(tempfile.gettempdir()).resolve() / f"asdf-mount-{secrets.token_hex(8)}"
        super().__init__(path, writable)
        listed = ["until-eof"] + ([] if writable else ["ro"])
        listed += [text for name, value in options.items() for text in _option(name, value)]
        command = [program, "-o", ",".join(listed), "--", source, str(path)]
        # the mount goes when no process has the other end any more
        input_end, lifeline = os.pipe()
        try:
            done = subprocess.run(command, stdin=input_end, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except BaseException as error:
            os.close(lifeline)
            if isinstance(error, OSError):
                raise MountError(f"{program}: {error.strerror}") from error
            raise
        finally:
            os.close(input_end)
        said = _said(done.stderr)
        self._close = weakref.finalize(self, _unmount, program, path, lifeline, os.getpid())
        if done.returncode:
            self._close.detach()
            os.close(lifeline)
            raise MountError(said or f"exit status {done.returncode}", done.returncode)
        if writable and os.statvfs(path).f_flag & os.ST_RDONLY:
            self.close()
            raise MountError(said or f"{source}: it can only be read", os.EX_NOPERM)
        if said:
            warnings.warn(said, stacklevel=3)

    def _check(self) -> None:
        if not self._close.alive:
            raise ValueError("the mount is closed")

    def __reduce__(self) -> Any:
        raise TypeError("a mount can't be sent to another process: mount the file there, or send its path")

    def close(self) -> None:
        """Unmounts. Arrays that are still used stay readable; the file stays locked until they go.

        Raises SaveError if something that was written is not saved.
        """
        lost = self._close()
        if lost:
            raise SaveError(lost)

    def __enter__(self) -> Mount:
        self._check()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except SaveError as lost:
            if error is None:
                raise
            # the first error is the one to tell; this one is not passed over
            warnings.warn(str(lost), stacklevel=2)


def mount(source: Union[str, "os.PathLike[str]"], writable: bool = False, **options: Option) -> Mount:
    """Mounts an ASDF file, a directory of such files, or a URL of one or the other.

    ``options`` are those that ``asdf-mount -o help`` lists, with underscores for hyphens, as in ``cache="64M", verify=True``.

    Raises MountError if it can't be mounted, or can't be written although it is to be ``writable``. What the program says besides is
    a warning.
    """
    return Mount(_program(), os.fspath(source), writable, options)


def _program() -> str:
    """The program: the one that ``ASDF_MOUNT`` names, the one that was installed with this module, or the one on ``PATH``."""
    named = os.environ.get("ASDF_MOUNT")
    if named:
        return named
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"), os.path.dirname(sys.executable), None]
    found = next(filter(None, (shutil.which("asdf-mount", path=folder) for folder in folders)), None)
    if not found:
        raise MountError("asdf-mount is not on PATH; ASDF_MOUNT can name the program")
    return found


def _option(name: str, value: Option) -> List[str]:
    """An option as ``-o`` takes it, or nothing for one that is not set."""
    name = name if name in _UNDERSCORES else name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    if name == "umask" and isinstance(value, int):
        value = f"{value:o}"  # the program reads digits in base 8
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return ["{}={}".format(name, text.replace("\\", "\\\\").replace(",", "\\,"))]


def _said(stderr: bytes) -> str:
    """What the program has said, without its name."""
    lines = os.fsdecode(stderr).splitlines()
    start = "asdf-mount: "
    return "; ".join(line[len(start) :] if line.startswith(start) else line for line in lines)


def _unmount(program: str, path: Path, lifeline: int, owner: int) -> Optional[str]:
    """Unmounts; what was written and is not saved, if anything."""
    if os.getpid() != owner:
        # a process that was forked: the mount is its parent's
        return None
    command = [program, "-u", "--timeout", str(_TIMEOUT), "--", str(path)]
    is_kept = False
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        unsaved = _attribute(path, "unsaved") if done.returncode == _BUSY else None
        is_kept = done.returncode == _UNKEPT
    finally:
        if not is_kept:
            # where something of it is in use, the daemon takes it out of sight now, and goes on until that ends
            os.close(lifeline)
    with contextlib.suppress(OSError):
        # where the daemon was killed
        path.rmdir()
    return _said(done.stderr) if done.returncode in (_PENDING, _UNKEPT) else unsaved


def _attribute(path: Path, name: str) -> Optional[str]:
    try:
        return os.fsdecode(_getxattr(path, f"user.asdf.{name}"))
    except OSError:
        return None


def _getxattr(path: Path, name: str) -> bytes:
    if hasattr(os, "getxattr"):
        return os.getxattr(path, name)
    import ctypes

    value = ctypes.create_string_buffer(1 << 16)
    size = _xattr("getxattr", path, name, value, len(value))
    return value.raw[:size]


def _setxattr(path: Path, name: str, value: bytes) -> None:
    if hasattr(os, "setxattr"):
        os.setxattr(path, name, value)
    else:
        _xattr("setxattr", path, name, value, len(value), 0)


def _xattr(function: str, path: Path, name: str, value: Any, size: int, *flags: int) -> int:
    """Calls the C library. Older versions of Python lack these functions where that is musl, as in Alpine (their issue 101857)."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True)[function]
    result: int = call(os.fsencode(path), name.encode(), value, ctypes.c_size_t(size), *flags)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _array(path: Path, writable: bool) -> Any:
    """The array of a NPY file."""
    try:
        import numpy
    except ImportError:
        return _elements(path.with_suffix(".bin"), writable)
    mode: Any = "r+" if writable else "r"
    try:
        # NumPy takes no header of hundreds of columns from a stranger
        return numpy.load(path, mmap_mode=mode, max_header_size=1 << 30)
    except TypeError:
        # before 1.24 it has no such limit
        return numpy.load(path, mmap_mode=mode)


def _elements(path: Path, writable: bool) -> Union[_mmap.mmap, bytes]:
    """The elements of an array, without NumPy."""
    with open(path, "r+b" if writable else "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        return _mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_WRITE if writable else _mmap.ACCESS_READ)
