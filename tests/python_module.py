#!/usr/bin/env python3
"""The Python module of the wheel, on the program under test.

    python_module.py --bin PROGRAM [-v] [--mounts N]

Each case mounts, in this process or in one that is killed. N mounts one after the other, 40 by default, leave nothing behind: no process,
no descriptor, no directory.
"""
import argparse
import ast
import contextlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest.mock
import warnings

import mounting

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "package/python"
OLDEST = (3, 9)
sys.path.insert(0, str(PACKAGE))
import asdf_mount  # noqa: E402

HEAD = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n"
TREE = """\
meta: {filter: F184, none: !core/ndarray-1.0.0 {data: [], datatype: int16}}
data: !core/ndarray-1.0.0 {source: 0, datatype: float32, byteorder: little, shape: [2, 3]}
deep: [{flux: !core/ndarray-1.0.0 {source: 1, datatype: int16, byteorder: big, shape: [4]}}]
...
"""
cases = []


def case(run):
    cases.append(run)
    return run


def block(data):
    sizes = b"".join(len(data).to_bytes(8, "big") for _ in range(3))
    return b"\xd3BLK\0\x30\0\0\0\0\0\0\0\0" + sizes + bytes(16) + data


def sample(directory, name="galaxy.asdf"):
    import array
    floats = array.array("f", range(6))
    shorts = array.array("h", [1, -2, 3, -4])
    shorts.byteswap()
    path = pathlib.Path(directory) / name
    path.write_bytes((HEAD + TREE).encode() + block(floats.tobytes()) + block(shorts.tobytes()))
    return path


def raises(kind, run):
    try:
        run()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def left():
    """What a mount leaves: its directory, and its place in the table of mounts."""
    directory = tempfile.tempdir
    names = [path.name for path in pathlib.Path(directory).glob("asdf-mount-*")]
    table = pathlib.Path("/proc/self/mountinfo").read_text(errors="replace")
    return names + [line for line in table.splitlines() if f" {directory}/asdf-mount-" in line]


@case
def arrays_are_found_by_their_paths(place):
    with asdf_mount.mount(sample(place)) as m:
        assert list(m) == ["meta/none", "data", "deep/0/flux"], list(m)
        assert len(m) == 3 and "data" in m and "meta" not in m and "../data" not in m and 5 not in m
        data, flux = m["data"], m["deep/0/flux"]
        assert type(data).__name__ == "memmap" and data.shape == (2, 3) and data.mean() == 2.5
        assert flux.tolist() == [1, -2, 3, -4] and not flux.flags.writeable
        assert m["meta/none"].shape == (0,)
        for name in ["nothing", "", "meta", "/data", "deep/0/../0/flux"]:
            raises(KeyError, lambda: m[name])
        del data, flux
    assert raises(ValueError, lambda: m["data"]).args == ("the mount is closed",)


@case
def a_key_too_long_for_a_name_hides_no_array(place):
    # the list of the arrays was an error, and so was a look at this one
    path, key = sample(place), "x" * 300
    path.write_bytes(path.read_bytes().replace(b"\ndata:", b"\n" + key.encode() + b":"))
    with asdf_mount.mount(path) as m:
        none, cut, flux = m
        assert (none, flux) == ("meta/none", "deep/0/flux") and cut.startswith("xxx"), cut
        assert m[cut].shape == (2, 3) and key not in m
        raises(KeyError, lambda: m[key])


@case
def a_scratch_file_is_no_array_whatever_its_name(place):
    # a hyphen stands for the file of an array that has none
    path = sample(place)
    path.write_bytes(path.read_bytes().replace(b"source: 1", b"source: 7"))
    with asdf_mount.mount(path, writable=True) as m:
        (m.path / "-").write_text("a note")
        assert list(m) == ["meta/none", "data"], list(m)
        (m.path / "-").unlink()


@case
def the_tree_is_a_dict(place):
    with asdf_mount.mount(sample(place)) as m:
        assert m.tree["meta"]["filter"] == "F184"
        assert m.tree["data"]["!file"] == "data.npy" or m.tree["data"]["!tag"]
        assert m.text == HEAD + TREE
        assert (m.path / "tree.yaml").read_text() == m.text and isinstance(m.path, pathlib.Path)


@case
def a_tree_need_not_be_a_dict(place):
    # there was a TypeError, or the error of a tree that is not valid
    path = pathlib.Path(place) / "any.asdf"
    for root, want in [("[1, 2]", [1, 2]), ("5", 5), ("null", None), ("", None), ("{}", {}), ('["!error"]', ["!error"])]:
        path.write_text(f"#ASDF 1.0.0\n%YAML 1.1\n--- {root}\n...\n")
        with asdf_mount.mount(path) as m:
            assert m.tree == want and not list(m), (root, m.tree)
    path.write_text("#ASDF 1.0.0\n")
    with asdf_mount.mount(path) as m:
        assert m.tree is None and not list(m)
    path.write_text("#ASDF 1.0.0\n--- [\n...\n")
    with asdf_mount.mount(path) as m:
        assert "line" in str(raises(asdf_mount.Error, lambda: m.tree))


@case
def a_tree_that_is_not_shown_has_its_reason(place):
    # the error named a path below the mount
    for source, options, why in [(place, {}, "many files"), (sample(place), {"show": "tree"}, "show")]:
        with asdf_mount.mount(source, **options) as m:
            assert why in str(raises(asdf_mount.Error, lambda: m.tree))


@case
def a_table_of_many_columns_is_an_array(place):
    # its datatype was too long for a field of a table, and for NumPy
    path, columns = sample(place), 3000
    datatype = ", ".join(f"{{name: a_rather_long_name_of_a_column_{n}, datatype: int8}}" for n in range(columns))
    table = f"t: !core/ndarray-1.0.0 {{source: 0, shape: [2], datatype: [{datatype}], byteorder: big}}\n...\n"
    path.write_bytes((HEAD + table).encode() + block(bytes(2 * columns)))
    with asdf_mount.mount(path) as m:
        assert list(m) == ["t"] and len(m["t"].dtype) == columns


@case
def what_is_saved_is_in_the_file(place):
    path = sample(place)
    with asdf_mount.mount(path, writable=True) as m:
        m.save(m.text.replace("F184", "F158"))
        assert not m["meta/none"].flags.writeable
        data = m["data"]
        data[1, 2] = 50
        data.flush()
        assert m.tree["meta"]["filter"] == "F158"
        del data
    assert b"F158" in path.read_bytes()
    with asdf_mount.mount(path) as m:
        assert m["data"][1, 2] == 50


@case
def a_text_that_is_refused_raises_with_line_and_reason(place):
    path = sample(place)
    before = path.read_bytes()
    with asdf_mount.mount(path, writable=True) as m:
        error = raises(asdf_mount.SaveError, lambda: m.save(m.text.replace("F184", "[F184")))
        assert error.line == 5 and "line 5" in error.reason and str(error) == error.reason, error.reason
        assert "rejected" not in error.reason, error.reason
        for text in ["", "#ASDF 1.0.0\n", "nonsense", b"\xff\xfe"]:
            raises(asdf_mount.SaveError, lambda: m.save(text))
        assert m.text == HEAD + TREE
        assert [entry.name for entry in m.path.iterdir() if entry.is_file()] == ["tree.yaml"]
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["galaxy.asdf"]


@case
def a_refused_text_of_another_program_stays(place):
    """A save that failed removed the file that had it, and told its reason."""
    path = sample(place)
    theirs = HEAD + TREE.replace("F184", "[theirs")
    kept = path.with_name("galaxy.asdf.rejected.yaml")
    with contextlib.suppress(asdf_mount.SaveError), asdf_mount.mount(path, writable=True, scratch="100K") as m:
        with contextlib.suppress(OSError):
            (m.path / "tree.yaml").write_text(theirs)
        error = raises(asdf_mount.SaveError, lambda: m.save(b"a: " + b"x" * 200_000))
        assert "No space left" in error.reason, error.reason
        assert kept.read_text() == theirs
        error = raises(asdf_mount.SaveError, lambda: m.save(HEAD + TREE.replace("deep:", "deep: [")))
        assert error.line == 8, error.reason
        assert m.text == HEAD + TREE and kept.read_text() == theirs
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["galaxy.asdf", kept.name]


@case
def a_save_that_fails_without_a_fault_of_the_text_leaves_nothing(place):
    """The text stayed beside FILE, once more at each try, and close() raised again what had been told."""
    path = sample(place)
    with asdf_mount.mount(path, writable=True) as m:
        text = m.text.replace("F184", "F213")
        with open(path, "r+b"):
            for _ in range(2):
                error = raises(asdf_mount.SaveError, lambda: m.save(text))
                assert "open for writing" in error.reason, error.reason
        m.save(text)
    assert b"F213" in path.read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == ["galaxy.asdf"]


@case
def an_unmount_that_is_interrupted_ends_the_mount(place):
    """FILE stayed mounted and locked until the interpreter ended."""
    m = asdf_mount.mount(sample(place))
    with unittest.mock.patch("subprocess.run", side_effect=KeyboardInterrupt):
        raises(KeyboardInterrupt, m.close)
    while left():
        time.sleep(0.01)


@case
def threads_that_save_have_each_their_own_reason(place):
    """Two threads gave up the same text: one raised FileNotFoundError, or had no reason."""
    with asdf_mount.mount(sample(place), writable=True) as m:
        text, wrong = m.text, []

        def run(n):
            for _ in range(10):
                try:
                    m.save(text.replace("F184", f"[F{n}" if n % 2 else f"F{n}"))
                    wrong.extend([n] if n % 2 else [])
                except asdf_mount.SaveError as error:
                    wrong.extend([error.reason] if error.line != 5 or not n % 2 else [])
                except Exception as error:
                    wrong.append(repr(error))
        threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong


@case
def an_array_is_not_looked_for_outside_the_mount(place):
    import numpy
    numpy.save(pathlib.Path(place) / "out.npy", numpy.arange(3))
    with asdf_mount.mount(sample(place)) as m:
        for name in [f"{place}/out", os.path.relpath(f"{place}/out", m.path / "arrays")]:
            assert name not in m
            raises(KeyError, lambda: m[name])


@case
def a_text_of_a_killed_daemon_raises_save_error(place):
    with asdf_mount.mount(sample(place), writable=True) as m:
        text = m.text
        os.kill(int(os.getxattr(m.path, "user.asdf.pid")), signal.SIGKILL)
        raises(asdf_mount.SaveError, lambda: m.save(text))


@case
def a_mount_is_read_only_unless_it_is_to_be_writable(place):
    path = sample(place)
    with asdf_mount.mount(path) as m:
        assert "writable=True" in raises(asdf_mount.SaveError, lambda: m.save(m.text)).reason
        assert not m.writable
    path.write_text("#ASDF 0.1.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/0.1.0/\n--- !core/asdf\na: 1\n...\n")
    error = raises(asdf_mount.MountError, lambda: asdf_mount.mount(path, writable=True))
    assert "read-only" in str(error), error
    with asdf_mount.mount(path) as m:
        assert m.tree["a"] == 1


@case
def what_can_not_be_mounted_raises_with_the_status_of_the_program(place):
    error = raises(asdf_mount.MountError, lambda: asdf_mount.mount(pathlib.Path(place) / "none.asdf"))
    assert error.status == 11 and "no such file" in str(error), error
    error = raises(asdf_mount.MountError, lambda: asdf_mount.mount(sample(place), nonsense=True))
    assert error.status == 2 and "unknown option" in str(error), error


@case
def options_are_those_of_the_program(place):
    path = sample(place, "a,b\\c.asdf")
    with asdf_mount.mount(path, cache="32M", validate="off", verify=True, fits=None, fsname="x,y\\z", writable=True) as m:
        table = pathlib.Path("/proc/self/mounts").read_text()
        assert f"x,y\\134z {m.path} " in table, table
        status = (m.path / "info/status").read_text()
        assert "cache=32M,validate=off,verify" in status, status
    # a number is written as Python writes a mask
    with asdf_mount.mount(path, umask=0o027) as m:
        mode = os.stat(m.path / "tree.yaml").st_mode
        assert mode & 0o077 == 0o040, oct(mode)


@case
def a_directory_has_its_files_by_their_names(place):
    below = pathlib.Path(place) / "night"
    below.mkdir()
    (below / "sub").mkdir()
    for name in ["a.asdf", "b.asdf", "sub/c.asdf"]:
        sample(below, name)
    with asdf_mount.mount(below, writable=True) as m:
        assert list(m) == ["a.asdf", "b.asdf", "sub/c.asdf"] and "c.asdf" not in m
        assert m["b.asdf"]["data"].sum() == 15
        raises(KeyError, lambda: m["../night"])
        assert "sub/c.asdf" in m and m["sub/c.asdf"]["data"].sum() == 15
        assert "take one by its name" in str(raises(asdf_mount.Error, lambda: m.save("")))
        m["a.asdf"].save(m["a.asdf"].text.replace("F184", "F158"))
        assert m["a.asdf"].tree["meta"]["filter"] == "F158"
        member = m["a.asdf"]
    assert raises(ValueError, lambda: member["data"]).args == ("the mount is closed",)
    assert b"F158" in (below / "a.asdf").read_bytes()


@case
def another_array_of_a_block_that_is_being_written_can_be_read(place):
    path = sample(place)
    path.write_bytes(path.read_bytes().replace(b"\ndata:", b"\nsame: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: big, shape: [3]}\ndata:"))
    with asdf_mount.mount(path, writable=True) as m:
        data = m["data"]
        assert "same" in m and not m["same"].flags.writeable and data.flags.writeable
        del data
        assert mounting.wait_until(lambda: m["same"].flags.writeable)


@case
def a_mount_is_not_sent_to_another_process(place):
    with asdf_mount.mount(sample(place)) as m:
        assert "send its path" in str(raises(TypeError, lambda: pickle.dumps(m)))


@case
def two_mounts_are_never_equal(place):
    # all their arrays were compared, which is an error of NumPy, and none was a key of a dict
    path = sample(place)
    with asdf_mount.mount(path) as m, asdf_mount.mount(path) as other:
        assert m == m and m != other and {m: 1, other: 2}[m] == 1


@case
def a_closed_mount_is_not_entered_again(place):
    m = asdf_mount.mount(sample(place))
    m.close()
    assert raises(ValueError, m.__enter__).args == ("the mount is closed",)


@case
def a_killed_daemon_leaves_no_directory(place):
    with asdf_mount.mount(sample(place)) as m:
        os.kill(int(os.getxattr(m.path, "user.asdf.pid")), signal.SIGKILL)
        assert mounting.wait_until(lambda: not mounting.daemons(m.path))
    assert not m.path.exists() and not left()


@case
def an_exception_unmounts_and_is_the_one_that_is_raised(place):
    def run():
        with asdf_mount.mount(sample(place), writable=True) as m:
            # by another way than save, so that it is pending at the end
            with contextlib.suppress(OSError), open(m.path / "tree.yaml", "w") as tree:
                tree.write("#ASDF 1.0.0\n--- [\n")
            raise ZeroDivisionError
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        raises(ZeroDivisionError, run)
    assert any("not saved" in str(warning.message) for warning in said), said
    assert not left()


@case
def what_is_not_saved_raises_at_the_end(place):
    def run():
        with asdf_mount.mount(sample(place), writable=True) as m:
            with contextlib.suppress(OSError), open(m.path / "tree.yaml", "w") as tree:
                tree.write("#ASDF 1.0.0\n--- [\n")
    error = raises(asdf_mount.SaveError, run)
    assert "rejected.yaml" in error.reason and error.line == 3, error.reason

    def run_with_an_array_in_use():
        with asdf_mount.mount(sample(place), writable=True) as m:
            used.extend([m["data"], m.path])
            used[0][0, 0] = 7
            with contextlib.suppress(OSError), open(m.path / "tree.yaml", "w") as tree:
                tree.write("#ASDF 1.0.0\n--- [\n")
    used = []
    error = raises(asdf_mount.SaveError, run_with_an_array_in_use)
    assert error.line == 3, error.reason
    path = used.pop()
    used.clear()
    assert mounting.wait_until(lambda: not left() and not mounting.daemons(path))


@case
def an_array_outlives_the_mount(place):
    path = sample(place)
    with asdf_mount.mount(path) as m:
        data = m["data"]
    assert mounting.wait_until(lambda: not mounting.mounted(m.path))
    assert data.sum() == 15
    del data
    assert mounting.wait_until(lambda: not left() and not mounting.daemons(m.path))


@case
def without_numpy_an_array_is_a_map(place):
    script = """
        import sys
        sys.modules["numpy"] = None
        import asdf_mount
        with asdf_mount.mount(sys.argv[1], writable=True) as m:
            with m["deep/0/flux"] as flux:
                assert flux[:] == bytes([0, 1, 255, 254, 0, 3, 255, 252]), flux[:]
                flux[1] = 7
                flux.flush()
            assert m["meta/none"] == b""
    """
    path = sample(place)
    run_python(script, path)
    assert bytes([0, 7, 255, 254, 0, 3, 255, 252]) in path.read_bytes()


@case
def a_refusal_has_its_reason_where_os_reads_no_attributes(place):
    # as in Python 3.11.2 with musl: the refusal was an AttributeError
    script = """
        import os, sys
        del os.getxattr, os.setxattr
        import asdf_mount
        with asdf_mount.mount(sys.argv[1], writable=True) as m:
            saved = m.text
            try:
                m.save(saved.replace("F184", "[F184"))
            except asdf_mount.SaveError as error:
                assert error.line == 5 and "rejected" not in error.reason, error.reason
            else:
                raise AssertionError("not refused")
            assert m.text == saved
    """
    path = sample(place)
    run_python(script, path)
    assert [entry.name for entry in path.parent.iterdir()] == ["galaxy.asdf"]


def python(script, *arguments, **more):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def run_python(script, *arguments):
    process = python(script, *arguments)
    out, error = process.communicate(timeout=mounting.PATIENCE)
    assert process.returncode == 0, error
    return out


HOLD = """
    import asdf_mount, sys, time
    m = asdf_mount.mount(sys.argv[1], writable=True)
    data = m["data"]
    print(m.path, flush=True)
    time.sleep(1000)
"""


@case
def a_killed_interpreter_leaves_nothing(place):
    for number in [signal.SIGKILL, signal.SIGTERM]:
        process = python(HOLD, sample(place))
        path = process.stdout.readline().strip()
        assert mounting.mounted(path)
        process.send_signal(number)
        process.communicate(timeout=mounting.PATIENCE)
        assert mounting.wait_until(lambda: not left() and not mounting.daemons(path)), left()


@case
def the_end_of_the_interpreter_unmounts(place):
    path = run_python("import asdf_mount, sys\nm = asdf_mount.mount(sys.argv[1])\nprint(m.path)", sample(place)).strip()
    assert not left() and not mounting.daemons(path)


@case
def a_forked_process_leaves_the_mount_alone(place):
    out = run_python("""
        import asdf_mount, os, sys
        m = asdf_mount.mount(sys.argv[1])
        child = os.fork()
        if not child:
            m["data"].sum()
            del m
            sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        print(m["data"].sum())
    """, sample(place))
    assert out == "15.0\n", out
    assert not left()


@case
def threads_mount_at_once(place):
    failures = []

    def run(path):
        try:
            with asdf_mount.mount(path) as m:
                assert m["data"].sum() == 15
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=[sample(place, f"{n}.asdf")]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@case
def many_mounts_leave_nothing(place):
    path = sample(place)
    before = len(os.listdir("/proc/self/fd"))
    for n in range(arguments.mounts):
        with asdf_mount.mount(path, writable=n % 2 == 0) as m:
            assert m["data"][0, 1] == 1
    assert len(os.listdir("/proc/self/fd")) == before
    assert not left()
    assert not list(pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@case
def the_program_is_found_beside_the_interpreter_and_on_the_path(place):
    bin = pathlib.Path(place) / "bin"
    bin.mkdir()
    (bin / "asdf-mount").symlink_to(os.environ["ASDF_MOUNT"])
    script = "import asdf_mount, sys\nwith asdf_mount.mount(sys.argv[1]) as m: print(asdf_mount._program())"
    environment = {key: value for key, value in os.environ.items() if key != "ASDF_MOUNT"}
    environment["PYTHONPATH"] = str(PACKAGE)
    path = sample(place)

    def found(script, **more):
        command = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, timeout=mounting.PATIENCE)
        return done.stdout.strip() or done.stderr

    on_path = found(script, PATH=f"{bin}:{os.environ['PATH']}")
    assert on_path == str(bin / "asdf-mount"), on_path
    beside = found(f"import sysconfig\nsysconfig.get_path = lambda *_: {str(bin)!r}\n{script}", PATH="/nowhere")
    assert beside == str(bin / "asdf-mount"), beside
    nowhere = found(script, PATH="/nowhere")
    assert "ASDF_MOUNT can name the program" in nowhere, nowhere


@case
def the_example_of_the_readme_runs(place):
    readme = (ROOT / "README.md").read_text()
    example = readme.split("```python\n")[1].split("```")[0]
    assert len(example.splitlines()) == 3, example
    sample(place)
    here = os.getcwd()
    os.chdir(place)
    try:
        out = run_python(example)
    finally:
        os.chdir(here)
    assert out == "F184 2.5\n", out


@case
def the_oldest_python_understands_it(place):
    text = (PACKAGE / "asdf_mount/__init__.py").read_text()
    ast.parse(text, feature_version=OLDEST)
    assert len(text.splitlines()) <= 400
    assert (PACKAGE / "asdf_mount/py.typed").exists()


def main():
    failed, outside = 0, tempfile.gettempdir()
    for run in cases:
        with tempfile.TemporaryDirectory(dir=outside) as place:
            # files lie beside the mounts, whose directory is looked at for what is left
            place = os.path.realpath(place)
            (pathlib.Path(place) / "files").mkdir()
            tempfile.tempdir = os.environ["TMPDIR"] = place
            try:
                run(f"{place}/files")
                assert not left(), left()
                if arguments.verbose:
                    print(f"ok   {run.__name__}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL {run.__name__}: {type(error).__name__} {error}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("-v", dest="verbose", action="store_true")
    parser.add_argument("--mounts", type=int, default=40)
    arguments = parser.parse_args()
    os.environ["ASDF_MOUNT"] = os.path.realpath(arguments.bin)
    sys.exit(main())
