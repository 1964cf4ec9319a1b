#!/usr/bin/env python3
"""A process that makes system calls on command, so that descriptors, maps and open directories belong to different processes.

A command is a pickled tuple (name, arguments…) on standard input; the answer is ("ok", value) or ("error", errno). Open things have
names that the other side gives them.
"""
import ctypes
import fcntl
import mmap
import os
import pickle
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
GETDENTS64 = {"x86_64": 217, "aarch64": 61}[os.uname().machine]
STATX_MTIME, AT_STATX_FORCE_SYNC, AT_SYMLINK_NOFOLLOW = 0x40, 0x2000, 0x100

fds, maps = {}, {}


def stat_of(found):
    return {"ino": found.st_ino, "mode": found.st_mode, "nlink": found.st_nlink, "size": found.st_size, "mtime": found.st_mtime_ns}


def do_open(name, path, flags, mode=0o644):
    fds[name] = os.open(path, flags | os.O_CLOEXEC, mode)
    return stat_of(os.fstat(fds[name]))


def do_close(name):
    os.close(fds.pop(name))


def do_close_in_child(name):
    """What a process that inherited the descriptor hears when it closes it."""
    child = os.fork()
    if child == 0:
        try:
            os.close(fds[name])
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise OSError(status, "in a child")


def do_pread(name, length, offset):
    return os.pread(fds[name], length, offset)


def do_read_all(name):
    """Size and bytes as a descriptor shows them."""
    size = os.fstat(fds[name]).st_size
    return size, read_from(fds[name])


def read_from(fd):
    out, at = [], 0
    while piece := os.pread(fd, 1 << 20, at):
        out.append(piece)
        at += len(piece)
    return b"".join(out)


def do_read(path):
    """The bytes of a file, by its name."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_from(fd)
    finally:
        os.close(fd)


def do_pwrite(name, data, offset):
    return os.pwrite(fds[name], data, offset)


def do_write(name, data):
    return os.write(fds[name], data)


def do_set_append(name, append):
    flags = fcntl.fcntl(fds[name], fcntl.F_GETFL)
    fcntl.fcntl(fds[name], fcntl.F_SETFL, flags | os.O_APPEND if append else flags & ~os.O_APPEND)


def do_fsync(name):
    os.fsync(fds[name])


def do_ftruncate(name, length):
    os.ftruncate(fds[name], length)


def do_fstat(name):
    return stat_of(os.fstat(fds[name]))


def do_truncate(path, length):
    os.truncate(path, length)


def do_stat(path):
    return stat_of(os.lstat(path))


def do_fresh_mtime(path):
    """The time of last change, asked of the file system and not of the kernel's memory."""
    out = ctypes.create_string_buffer(256)
    if LIBC.statx(AT_FDCWD, os.fsencode(path), AT_STATX_FORCE_SYNC | AT_SYMLINK_NOFOLLOW, STATX_MTIME, out):
        raise OSError(ctypes.get_errno(), "statx")
    seconds, nanoseconds = struct.unpack_from("qI", out, 0x70)
    return seconds * 10**9 + nanoseconds


def do_rename(old, new, flags=0):
    if LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def do_link(old, new):
    os.link(old, new, follow_symlinks=False)


def do_symlink(target, path):
    os.symlink(target, path)


def do_readlink(path):
    return os.readlink(path)


def do_unlink(path):
    os.unlink(path)


def do_mkdir(path):
    os.mkdir(path)


def do_rmdir(path):
    os.rmdir(path)


def do_chmod(path, mode):
    os.chmod(path, mode)


def do_utime(path, when):
    os.utime(path, ns=(when, when))


def do_setxattr(path, name, value):
    os.setxattr(path, name, value)


def do_getxattr(path, name):
    return os.getxattr(path, name)


def do_fallocate(name, mode, offset, length):
    if LIBC.fallocate64(fds[name], mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def do_map(name, fd, length):
    maps[name] = mmap.mmap(fds[fd], length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def do_load(name):
    return maps[name][:]


def do_store(name, offset, data):
    maps[name][offset:offset + len(data)] = data


def do_msync(name):
    maps[name].flush()


def do_unmap(name):
    maps.pop(name).close()


def do_opendir(name, path):
    fds[name] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def do_getdents(name, room):
    """The next entries of an open directory: (name, inode, type); none at its end."""
    buffer = ctypes.create_string_buffer(room)
    got = LIBC.syscall(GETDENTS64, fds[name], buffer, room)
    if got < 0:
        raise OSError(ctypes.get_errno(), "getdents64")
    out, at = [], 0
    while at < got:
        ino, _, length, kind = struct.unpack_from("=QqHB", buffer.raw, at)
        out.append((os.fsdecode(buffer.raw[at + 19:at + length].split(b"\0")[0]), ino, kind))
        at += length
    return [entry for entry in out if entry[0] not in (".", "..")]


def do_rewind(name):
    os.lseek(fds[name], 0, os.SEEK_SET)


def do_listdir(path):
    return sorted(os.listdir(path))


def do_scandir(path):
    """As `ls -l`: each name with its inode and what lstat says of it, or None where it has gone."""
    out = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                found = stat_of(os.lstat(entry.path))
            except FileNotFoundError:
                found = None
            out.append((entry.name, entry.inode(), found))
    return out


def do_drop():
    """Gives up everything that is open, whatever that says."""
    for open_map in maps.values():
        try:
            open_map.close()
        except (OSError, ValueError):
            pass
    for fd in fds.values():
        try:
            os.close(fd)
        except OSError:
            pass
    fds.clear()
    maps.clear()


def do_batch(commands):
    return [answer(command) for command in commands]


def answer(command):
    try:
        return "ok", globals()["do_" + command[0]](*command[1:])
    except OSError as error:
        return "error", error.errno


def main():
    inward, outward = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            command = pickle.load(inward)
        except EOFError:
            return
        pickle.dump(answer(command), outward)
        outward.flush()


if __name__ == "__main__":
    main()
