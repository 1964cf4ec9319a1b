//! Arrays that are written anew, with another shape, datatype or byte order: as numpy.save, cp and scripts do.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Mount, asdf_mount, can_mount, eventually, run};
use crate::corpus::python;
use crate::sample::{Block, Sample, array, array_with, ramp};

/// A file as numpy.save writes it.
fn npy(descr: &str, fortran_order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran_order}, 'shape': {shape}, }}");
    let text = format!("{text:<117}\n");
    let len = u16::try_from(text.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\0", &len[..], text.as_bytes(), data].concat()
}

fn writable(sample: &Sample) -> (TempDir, PathBuf, Mount) {
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    (dir, file, mount)
}

fn errno<T>(done: std::io::Result<T>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

/// Writes a file anew and closes it; the errno of the first call that failed.
fn rewrite(path: &Path, bytes: &[u8]) -> Option<i32> {
    let mut file = match File::create(path) {
        Ok(file) => file,
        error => return errno(error),
    };
    if let error @ Err(_) = file.write_all(bytes) {
        return errno(error);
    }
    // what `close` would say, too, which the standard library does not tell
    errno(file.sync_all())
}

const EIO: Option<i32> = Some(5);
const EPERM: Option<i32> = Some(1);
const EROFS: Option<i32> = Some(30);
const ESTALE: Option<i32> = Some(116);

#[test]
fn another_shape_and_type_are_saved_with_the_block_and_nothing_else_of_the_text_changes() {
    if !can_mount() {
        return;
    }
    for zlib in [false, true] {
        let old = ramp(48);
        let block = if zlib {
            Block::zlib(&old)
        } else {
            Block::raw(&old)
        };
        let tree = [
            &array("x", 0, "int16", "[4, 6]"),
            "# the other\n",
            &array("y", 1, "uint8", "[3]"),
        ]
        .concat();
        let (_dir, file, mount) =
            writable(&Sample::new(&tree).block(block).block(Block::raw(b"abc")));
        let text = mount.text("tree.yaml");
        let data: Vec<u8> = (0..40_000_u32).flat_map(u32::to_be_bytes).collect();
        assert_eq!(
            rewrite(
                &mount.path("arrays/x.npy"),
                &npy(">u4", "False", "(2, 20000)", &data)
            ),
            None
        );
        let wanted = text
            .replacen("int16", "uint32", 1)
            .replacen("little", "big", 1)
            .replacen("[4, 6]", "[2, 20000]", 1);
        assert_eq!(mount.text("tree.yaml"), wanted);
        assert_eq!(mount.read("arrays/x.bin").unwrap(), data);
        assert_eq!(mount.read("blocks/0.bin").unwrap(), data);
        assert!(mount.read("arrays/x.npy").unwrap().ends_with(&data));
        assert_eq!(mount.read("arrays/y.bin").unwrap(), b"abc");
        // Fortran order: the elements are put in C order
        let turned = npy(
            ">u4",
            "True",
            "(2, 3)",
            &[0, 3, 1, 4, 2, 5].map(u32::to_be_bytes).concat(),
        );
        assert_eq!(rewrite(&mount.path("arrays/x.npy"), &turned), None);
        let in_order: Vec<u8> = (0..6_u32).flat_map(u32::to_be_bytes).collect();
        assert_eq!(mount.read("arrays/x.bin").unwrap(), in_order);
        // of the same shape, too, where nothing is said anew
        assert_eq!(rewrite(&mount.path("arrays/x.npy"), &turned), None);
        assert_eq!(mount.read("arrays/x.bin").unwrap(), in_order);
        assert_eq!(mount.text("tree.yaml"), wanted.replace("20000", "3"));
        mount.unmount();
        assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
    }
}

#[test]
fn what_cannot_be_declared_anew_is_refused_and_stays() {
    if !can_mount() {
        return;
    }
    let view = |name: &str, shape: &str| {
        array_with(
            name,
            &format!("source: 0, datatype: uint8, byteorder: little, shape: {shape}"),
        )
    };
    let tree = [
        view("a", "[2]"),
        view("b", "[4]"),
        array("part", 1, "uint8", "[3]"),
        "inline: !core/ndarray-1.0.0 [1, 2]\n".to_owned(),
        array("own", 2, "uint8", "[4]"),
        array_with(
            "turned",
            "source: 3, datatype: uint8, byteorder: little, shape: [4], strides: [-1], offset: 3",
        ),
    ];
    let sample = Sample::new(&tree.concat())
        .block(Block::raw(b"abcd"))
        .block(Block::raw(b"efgh"));
    let sample = sample.block(Block::raw(b"ijkl")).block(Block::raw(b"mnop"));
    let (_dir, file, mount) = writable(&sample);
    let before = fs::read(&file).unwrap();
    let status = |why: &str| {
        let text = mount.text("info/status");
        assert!(text.contains(why), "{why}: {text}");
    };
    let longer = npy("|u1", "False", "(5,)", b"12345");
    for (name, why) in [
        ("a", "other arrays lie in its block"),
        ("part", "a view of a part of its block"),
        ("turned", "a view of a part of its block"),
    ] {
        assert_eq!(
            rewrite(&mount.path(&format!("arrays/{name}.npy")), &longer),
            EPERM,
            "{name}"
        );
        status(why);
    }
    assert_eq!(rewrite(&mount.path("arrays/inline.npy"), &longer), Some(30));
    let own = mount.path("arrays/own.npy");
    for (bytes, wanted, why) in [
        (&b"hello"[..], EIO, "no NPY file"),
        (
            &npy("|O", "False", "(1,)", b"x"),
            EIO,
            "ASDF has no datatype for NumPy's \"|O\"",
        ),
        (
            &longer[..90],
            EIO,
            "90 bytes written, which is no whole NPY header",
        ),
        (&longer[..130], EIO, "130 bytes written of 133"),
        (
            &[&longer[..], b"6"].concat(),
            EIO,
            "134 bytes written of 133",
        ),
    ] {
        assert_eq!(rewrite(&own, bytes), wanted, "{why}");
        status(why);
    }
    // with the type and shape that it has, a shared block may be written
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(
        rewrite(
            &mount.path("arrays/a.npy"),
            &npy("|u1", "False", "(2,)", b"AB")
        ),
        None
    );
    assert_eq!(mount.read("arrays/b.bin").unwrap(), b"ABcd");
    assert_eq!(rewrite(&own, &longer), None);
    assert_eq!(mount.read("arrays/own.bin").unwrap(), b"12345");
}

#[test]
fn who_wrote_by_what_was_there_before_is_told_so() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "uint8", "[4]")).block(Block::raw(b"abcd"));
    let (_dir, _, mount) = writable(&sample);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let x = mount.path("arrays/x.npy");
    let mut tree = options.open(mount.path("tree.yaml")).unwrap();
    let mut old = options.open(&x).unwrap();
    assert_eq!(rewrite(&x, &npy("|u1", "False", "(6,)", b"first!")), None);
    assert_eq!(errno(old.write_all(b"ABCD")), ESTALE);
    tree.set_len(0).unwrap();
    let text = String::from_utf8_lossy(sample.tree()).replace("[4]", "[2]");
    tree.write_all(text.as_bytes()).unwrap();
    assert_eq!(errno(tree.sync_all()), ESTALE);
    drop((old, tree));
    assert_eq!(mount.read("arrays/x.bin").unwrap(), b"first!");
    eventually("the tree of the file is shown", || {
        mount.text("tree.yaml").contains("shape: [6]")
    });
    // a block that is written is left to that
    let mut block = options.open(mount.path("blocks/0.bin")).unwrap();
    block.write_all(b"F").unwrap();
    assert_eq!(errno(File::create(&x)), Some(16));
    drop(block);
    eventually("the block is saved", || {
        mount.read("arrays/x.bin").unwrap() == b"First!"
    });
}

/// A program that had read the header of an array went on in the elements of another one.
#[test]
fn what_was_opened_is_read_on_in_new_elements_but_not_in_another_array() {
    if !can_mount() {
        return;
    }
    let tree = [
        array("x", 0, "uint8", "[2, 4]"),
        array("grows", 1, "uint8", "['*', 2]"),
    ]
    .concat();
    let sample = Sample::new(&tree).block(Block::raw(b"abcdefgh"));
    let dir = TempDir::new().unwrap();
    let file = sample.block(Block::raw(b"1122")).write(dir.path());
    let mount = Mount::new(&file, &["-o", "fits,previews=16"]);
    let names = [
        "arrays/x.bin",
        "arrays/x.npy",
        "fits/x.fits",
        "previews/x.png",
    ];
    let open = |name: &str| File::open(mount.path(name)).unwrap();
    // the bytes of a file from one in the middle on, which the header of another shape has, too
    let read = |file: &File| {
        let mut bytes = vec![0; 4000];
        let len = file.read_at(&mut bytes, 2)?;
        bytes.truncate(len);
        Ok::<_, std::io::Error>(bytes)
    };
    let readers = names.map(open);
    let before = readers.each_ref().map(|file| read(file).unwrap());
    let x = mount.path("arrays/x.npy");
    assert_eq!(
        rewrite(&x, &npy("|u1", "False", "(2, 4)", b"ABCDEFGZ")),
        None
    );
    // who has the file itself open reads the new bytes; others what the kernel has read before, or nothing
    let is_old = |file: &File, before: &Vec<u8>| {
        read(file).map_or_else(
            |error| error.raw_os_error() == ESTALE,
            |found| found == *before,
        )
    };
    for ((name, file), before) in names.iter().zip(&readers).zip(&before) {
        let new = read(&open(name)).unwrap();
        assert_ne!(new, *before);
        let is_right = if x.ends_with(name) {
            read(file).unwrap() == new
        } else {
            is_old(file, before)
        };
        assert!(is_right, "{name}");
    }
    let mut own = OpenOptions::new();
    let own = own.read(true).write(true).truncate(true).open(&x).unwrap();
    own.write_all_at(&npy("|u1", "False", "(4, 2)", b"ABCDEFGH"), 0)
        .unwrap();
    own.sync_all().unwrap();
    let shared = read(&own).unwrap();
    for ((name, file), before) in names.iter().zip(&readers).zip(&before) {
        let is_own = x.ends_with(name) && is_old(file, &shared);
        assert!(is_own || is_old(file, before), "{name}");
        assert!(read(&open(name)).is_ok(), "{name}");
    }
    assert!(read(&own).unwrap().ends_with(b"ABCDEFGH"));

    // rows that are added behind those of before change nothing of them
    let grows = ["arrays/grows.bin", "arrays/grows.npy"].map(open);
    let options = OpenOptions::new()
        .append(true)
        .open(mount.path("blocks/1.bin"));
    options.unwrap().write_all(b"33").unwrap();
    eventually("the array has another row", || {
        mount.read("arrays/grows.bin").unwrap() == b"112233"
    });
    // who has it open reads the rows that it had, or an error
    for file in grows {
        let is_old = read(&file).map_or_else(
            |error| error.raw_os_error() == ESTALE,
            |found| found.ends_with(b"22"),
        );
        assert!(is_old);
    }
    let tree = mount.text("tree.yaml").replace("['*', 2]", "[3, 2]");
    let tree = tree.replace("uint8", "int8");
    let number = || fs::metadata(mount.path("arrays/grows.bin")).unwrap().ino();
    let before = number();
    fs::write(mount.path("tree.yaml"), tree).unwrap();
    assert_ne!(number(), before);
}

#[test]
fn numpy_saves_any_array_and_finds_it_again() {
    const PROGRAM: &str = "
import sys, asdf, numpy as np
mount, file = sys.argv[1:]
arrays = [
    np.arange(12, dtype='<f4').reshape(3, 4), np.arange(6, dtype='>i8'), np.array(3.5), np.zeros((0, 3)),
    np.asfortranarray(np.arange(24.).reshape(2, 3, 4)), np.arange(8, dtype='f4').reshape(2, 4).T,
    np.array([(1, 2.5, b'ab'), (3, 4.5, b'c')], dtype=[('a', '<i2'), ('b x', '>f8'), ('yes', 'S2')]),
    np.zeros((2, 2), dtype=[('p', '<f4', (2,)), ('q', [('r', '>i4')])]),
    np.array([True, False]), np.array(['\\u03b1\\u03b2', 'c']), np.array([b'xyz']), np.array([1 + 2j], dtype='c8'),
    np.arange(100000, dtype='i8'), np.arange(5, dtype='>u2'),
]
other = np.load(mount + '/arrays/y.npy')
for a in arrays:
    np.save(mount + '/arrays/x.npy', a)
    with asdf.open(file) as found:
        python = np.array(found['x'])
        assert np.array_equal(found['y'], other)
    for b in [np.load(mount + '/arrays/x.npy'), python]:
        assert b.shape == a.shape and np.array_equal(a, b), (a, b)
    assert np.load(mount + '/arrays/x.npy').dtype == a.dtype
";
    let Some(python) = python().filter(|_| can_mount()) else {
        return;
    };
    for block in [Block::raw, Block::zlib, Block::bzp2] {
        let tree = [
            array("x", 0, "float64", "[2, 3]"),
            array("y", 1, "uint8", "[3]"),
        ]
        .concat();
        let (_dir, file, mount) = writable(
            &Sample::new(&tree)
                .block(block(&ramp(48)))
                .block(Block::raw(b"abc")),
        );
        let mut command = Command::new(&python);
        let said = run(command.args(["-c", PROGRAM]).arg(&mount.dir).arg(&file));
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (0, ""),
            "{}",
            mount.text("info/status")
        );
        let new = TempDir::new().unwrap();
        let copy = new.path().join("new.npy");
        fs::write(&copy, npy("<i2", "False", "(1, 2)", b"\x01\0\x02\0")).unwrap();
        let said = run(Command::new("cp")
            .arg(&copy)
            .arg(mount.path("arrays/x.npy")));
        assert_eq!(said.stderr, "");
        assert_eq!(mount.read("arrays/x.bin").unwrap(), b"\x01\0\x02\0");
        mount.unmount();
        assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
    }
}

/// They went without a word.
#[test]
fn files_that_users_have_made_beside_data_are_named_as_they_go_with_the_mount() {
    if !can_mount() {
        return;
    }
    let tree = ["m:\n  ", &array("x", 0, "uint8", "[4]")].concat();
    let (_dir, _, mount) = writable(&Sample::new(&tree).block(Block::raw(b"abcd")));
    let made = ["arrays/m/x_2.npy", "blocks/0.new.bin"];
    let tools = [
        "arrays/m/.z",
        "arrays/m/tmpsmni9_tj.npy",
        "blocks/0.bin.tmp",
    ];
    for name in made.iter().chain(&tools) {
        fs::write(mount.path(name), "123").unwrap();
    }
    File::create(mount.path("arrays/m/x_empty.npy")).unwrap();
    let told = || {
        let status = mount.text("info/status");
        let lines = status.lines().filter(|line| line.starts_with("scratch "));
        lines.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let want = made.map(|name| {
        format!(
            "scratch   {name} (3 bytes) exists only in this mount: copy it out before unmounting"
        )
    });
    assert_eq!(told(), want.into());
    for name in made {
        fs::remove_file(mount.path(name)).unwrap();
    }
    assert_eq!(told(), BTreeSet::new());
}

/// A refused name is told in `info/status`, in words of what was to be made.
fn refuses_names_that_no_tool_makes(mount: &Mount) {
    let own = |name: &str| errno(File::create(mount.path(name)));
    assert_eq!(
        [
            own("arrays/m/y.npy"),
            own("arrays/z.npy"),
            own("arrays/m/xnew.npy"),
            own("arrays/x_new.npy"),
            own("blocks/x.bin"),
            own("blocks/7.bin.new"),
            own("info/.x")
        ],
        [EPERM; 7]
    );
    let status = mount.text("info/status");
    for why in [
        "refused   arrays/m/xnew.npy: not permitted: arrays follow the tree: to add one, add it to tree.yaml; ",
        "refused   blocks/x.bin: not permitted: a new block must have the next number, ",
    ] {
        assert!(status.contains(why), "{status}");
    }
}

#[test]
fn tools_that_write_beside_a_file_and_rename_replace_arrays_and_blocks() {
    if !can_mount() {
        return;
    }
    let tree = ["m:\n  ", &array("x", 0, "uint8", "[4]")].concat();
    let sample = Sample::new(&tree)
        .block(Block::zlib(b"abcd"))
        .block(Block::raw(b"efgh"));
    let (_dir, file, mount) = writable(&sample);
    let new = TempDir::new().unwrap();
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        let said = run(command
            .args(["-ec", script, "sh"])
            .arg(&mount.dir)
            .arg(new.path()));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{script}");
    };
    let put = |name: &str, bytes: &[u8]| fs::write(new.path().join(name), bytes).unwrap();
    let shows = |bytes: &[u8]| {
        assert_eq!(mount.read("arrays/m/x.bin").unwrap(), bytes);
        assert_eq!(mount.names("arrays/m"), ["x.bin", "x.npy"]);
        assert_eq!(mount.names("blocks"), ["0.bin", "1.bin"]);
    };
    put("x.npy", &npy("|u1", "False", "(6,)", b"123456"));
    shell("mv $2/x.npy $1/arrays/m/x.npy");
    shows(b"123456");
    put("x.npy", &npy("|u1", "False", "(2, 1)", b"78"));
    if run(Command::new("rsync").arg("--version")).code == 0 {
        shell("rsync -a $2/x.npy $1/arrays/m/");
        shows(b"78");
    }
    shell("cp $2/x.npy $1/next.npy; mv $1/next.npy $1/arrays/m/x.npy; test ! -e $1/next.npy");
    shows(b"78");
    // as a careful script
    shell(
        "cp $2/x.npy $1/arrays/m/.x.tmp; printf 9 >> $1/arrays/m/.x.tmp; truncate -s -1 $1/arrays/m/.x.tmp; ls -a $1/arrays/m | grep -x .x.tmp; chmod 600 $1/arrays/m/.x.tmp; mv $1/arrays/m/.x.tmp $1/arrays/m/x.npy",
    );
    shows(b"78");
    put("0.bin", b"xy");
    shell("cp $2/0.bin $1/arrays/m/x.bin.tmp; mv $1/arrays/m/x.bin.tmp $1/arrays/m/x.bin");
    shows(b"xy");
    shell("cp $2/0.bin $1/arrays/m/x.bin.part; mv $1/arrays/m/x.bin.part $1/arrays/m/x.bin.new");
    shell("mv $1/arrays/m/x.bin.new $1/arrays/m/x.bin");
    shell(
        "cp $2/0.bin $1/arrays/m/tmpsmni9_tj.bin; mv $1/arrays/m/tmpsmni9_tj.bin $1/arrays/m/x.bin",
    );
    for name in [
        "y.tmp.bin",
        "x.new.bin",
        "x_tmp.bin",
        "x.bin-journal",
        "x copy.bin",
    ] {
        shell(&format!(
            "cp $2/0.bin \"$1/arrays/m/{name}\"; mv \"$1/arrays/m/{name}\" $1/arrays/m/x.bin"
        ));
    }
    shows(b"xy");
    shell("printf ijklmn > $1/blocks/.1.bin.tmp; mv $1/blocks/.1.bin.tmp $1/blocks/1.bin");
    assert_eq!(mount.read("blocks/1.bin").unwrap(), b"ijklmn");
    shell(
        "printf new > $1/blocks/.2.bin.tmp; mv $1/blocks/.2.bin.tmp $1/blocks/2.bin; rm $1/blocks/2.bin; printf x > $1/blocks/a~; rm $1/blocks/a~",
    );
    shows(b"xy");
    refuses_names_that_no_tool_makes(&mount);
    // what can't be replaced stays with what was to replace it
    for text in ["", "no array"] {
        fs::write(mount.path("arrays/m/.x"), text).unwrap();
        for name in ["arrays/m/x.npy", "arrays/m/x.bin"] {
            let refused = fs::rename(mount.path("arrays/m/.x"), mount.path(name));
            assert_eq!(errno(refused), EIO, "{name}");
        }
        assert_eq!(mount.text("arrays/m/.x"), text);
    }
    // it follows FILE, and is not to be changed
    let removed = errno(fs::remove_file(mount.path("info/status")));
    assert_eq!(removed, EROFS);
    fs::remove_file(mount.path("arrays/m/.x")).unwrap();
    // what is removed stays
    fs::remove_file(mount.path("arrays/m/x.npy")).unwrap();
    assert_eq!(mount.names("arrays/m"), ["x.bin"]);
    eventually("it is there again", || mount.names("arrays/m").len() == 2);
    shows(b"xy");
    assert_eq!(
        errno(fs::rename(
            mount.path("blocks/0.bin"),
            mount.path("blocks/.0")
        )),
        EPERM
    );
    mount.unmount();
    assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
}

/// File systems that stand on this one empty a file by its name where a program says `O_TRUNC`, and open it then: that was refused.
#[test]
fn a_file_that_is_emptied_by_its_name_is_written_anew() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "uint8", "[3]")).block(Block::raw(b"abc"));
    let (_dir, file, mount) = writable(&sample);
    let (array, block) = (mount.path("arrays/x.bin"), mount.path("blocks/0.bin"));
    for (path, bytes) in [(&array, "ABC"), (&block, "DEF")] {
        let script = "import os, sys; path, data = sys.argv[1:]; os.truncate(path, 0); assert os.path.getsize(path) == 0; open(path, 'r+').write(data)";
        let mut python = Command::new("python3");
        let said = run(python.args(["-c", script]).arg(path).arg(bytes));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        assert_eq!(mount.read("blocks/0.bin").unwrap(), bytes.as_bytes());
    }
    // nobody opens it: it keeps its bytes
    let script = "import os, sys; os.truncate(sys.argv[1], 0)";
    let mut python = Command::new("python3");
    assert_eq!(run(python.args(["-c", script]).arg(&array)).code, 0);
    eventually("it is there again", || {
        mount.read("arrays/x.bin").unwrap() == b"DEF"
    });
    mount.unmount();
    assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
}

/// `mv` removes the target before it copies from another file system: a block that arrays use could not be replaced like that.
#[test]
fn a_block_is_replaced_from_another_file_system() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "uint8", "[3]")).block(Block::raw(b"abc"));
    let (dir, file, mount) = writable(&sample);
    let (new, block) = (dir.path().join("new"), mount.path("blocks/0.bin"));
    fs::write(&new, b"ABC").unwrap();
    let moved = run(Command::new("mv").args([&new, &block]));
    assert_eq!((moved.code, moved.stderr.as_str()), (0, ""));
    assert_eq!(mount.read("arrays/x.bin").unwrap(), b"ABC");
    // too short for the array: what is there stays
    fs::write(&new, b"A").unwrap();
    assert_ne!(run(Command::new("mv").args([&new, &block])).code, 0);
    assert_eq!(mount.read("arrays/x.bin").unwrap(), b"ABC");
    // a name that was only taken away comes back
    eventually("it is there again", || block.exists());
    fs::remove_file(&block).unwrap();
    assert!(!block.exists());
    eventually("it is there again", || block.exists());
    assert_eq!(mount.read("blocks/0.bin").unwrap(), b"ABC");
    mount.unmount();
    assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
}

/// The daemon summed the hole up for hours, and all other saves waited for it.
#[test]
fn a_hole_that_is_longer_than_the_disk_is_refused_at_once() {
    const ENOSPC: Option<i32> = Some(28);
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "uint8", "[3]")).block(Block::raw(b"abc"));
    let (_dir, _file, mount) = writable(&sample);
    let path = mount.path("arrays/x.npy");
    let file = File::create(&path).unwrap();
    let head = npy("|u1", "False", "(35184372088832,)", b"");
    (&file).write_all(&head).unwrap();
    let made = file.set_len(head.len() as u64 + (1 << 45));
    assert_eq!(errno(made.and_then(|()| file.sync_all())), ENOSPC);
    drop(file);
    let hole = mount.path("blocks/.0.bin.tmp");
    let file = File::create(&hole).unwrap();
    file.set_len(1 << 45).unwrap();
    drop(file);
    assert_eq!(errno(fs::rename(&hole, mount.path("blocks/0.bin"))), ENOSPC);
    assert_eq!(mount.read("blocks/0.bin").unwrap(), b"abc");
    fs::remove_file(&hole).unwrap();
    assert_eq!(rewrite(&path, &npy("|u1", "False", "(2,)", b"xy")), None);
    assert_eq!(mount.read("blocks/0.bin").unwrap(), b"xy");
}

/// As much as had been copied was saved, and for an array the close of another descriptor saved it.
#[test]
fn what_fails_half_way_leaves_a_block_as_it_was() {
    // the spool lies on a disk that takes less than two blocks
    const SCRIPT: &str = "
mkdir small
mount -t tmpfs -o size=13m none small
chattr +i full || exit 77
export TMPDIR=$PWD/small
\"$0\" full/sample.asdf mnt
head -c 8388608 /dev/urandom > mnt/blocks/.0.bin.tmp
mv -T mnt/blocks/.0.bin.tmp mnt/blocks/0.bin 2>/dev/null
echo $?
head -c 3 mnt/blocks/0.bin
wc -c < mnt/blocks/0.bin
\"$0\" -u mnt 2>/dev/null
chattr -i full";
    if !can_mount() || !crate::common::is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    let data = [b"abc", &vec![b'z'; 8_388_605][..]].concat();
    let sample = Sample::new(&array("x", 0, "uint8", "[8388608]")).block(Block::zlib(&data));
    let file = sample.write(&full);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, crate::common::PROGRAM]);
    let said = run(command.current_dir(fs::canonicalize(dir.path()).unwrap()));
    if said.code == 77 {
        println!("skipped: no immutable directories here");
        return;
    }
    assert_eq!(said.stdout, "1\nabc8388608\n", "{}", said.stderr);
    assert_eq!(fs::read(&file).unwrap(), sample.bytes());
}

/// What has been synced.
#[test]
fn what_a_map_has_changed_counts_when_its_file_is_renamed_over_another() {
    const PROGRAM: &str = r"
import mmap, os, sys
def replace(name, data):
    temporary = os.path.join(os.path.dirname(name), '.made.tmp')
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, len(data))
    stored = mmap.mmap(fd, len(data))
    os.close(fd)
    stored[:] = data
    stored.flush()
    os.replace(temporary, name)
    assert stored[:] == data
mount = sys.argv[1]
replace(mount + '/arrays/x.bin', b'WXYZ')
tree = open(mount + '/tree.yaml', 'rb').read()
replace(mount + '/tree.yaml', tree.replace(b'y:', b'z:'))
";
    let Some(python) = python().filter(|_| can_mount()) else {
        return;
    };
    let tree = [array("x", 0, "uint8", "[4]"), array("y", 1, "uint8", "[4]")];
    let sample = Sample::new(&tree.concat());
    let sample = sample.block(Block::raw(b"abcd")).block(Block::raw(b"efgh"));
    let (_dir, file, mount) = writable(&sample);
    let mut command = Command::new(&python);
    let said = run(command.args(["-c", PROGRAM]).arg(&mount.dir));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(mount.read("arrays/x.bin").unwrap(), b"WXYZ");
    assert_eq!(mount.read("arrays/z.bin").unwrap(), b"efgh");
    mount.unmount();
    assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
}

/// The kernel hands a map over page by page.
#[test]
fn a_map_is_taken_in_as_a_whole_however_large_it_is() {
    const PROGRAM: &str = r"
import mmap, os, sys
block, size = sys.argv[1], 60000000
fd = os.open(block + '.tmp', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, size)
stored = mmap.mmap(fd, size)
stored[:] = b'x' * size
stored.flush()
os.replace(block + '.tmp', block)
found = open(block, 'rb').read()
print(len(found) - found.count(b'x'))
";
    let Some(python) = python().filter(|_| can_mount()) else {
        return;
    };
    let sample = Sample::new("a: 1\n").block(Block::raw(b"abc"));
    let (_dir, _file, mount) = writable(&sample);
    let mut command = Command::new(&python);
    let said = run(command
        .args(["-c", PROGRAM])
        .arg(mount.path("blocks/0.bin")));
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("0\n", ""));
}

fn open_rw(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

#[test]
fn an_array_written_in_place_is_emptied_and_becomes_another_one() {
    if !can_mount() {
        return;
    }
    let tree = array("a", 0, "int32", "[4]");
    let (_dir, file, mount) = writable(&Sample::new(&tree).block(Block::raw(&ramp(16))));
    let array = open_rw(&mount.path("arrays/a.npy"));
    let header = mount.read("arrays/a.npy").unwrap().len() - 16;
    array.write_all_at(&[9; 4], header as u64).unwrap();
    array.set_len(0).unwrap();
    let new = npy("<i2", "False", "(3,)", &[7; 6]);
    array.write_all_at(&new, 0).unwrap();
    array.sync_all().unwrap();
    drop(array);
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [7; 6]);
    mount.unmount();
    let saved = fs::read(&file).unwrap();
    assert!(saved.windows(6).any(|window| window == [7; 6]));
}

#[test]
fn who_wrote_a_part_of_what_is_given_up_is_told_so() {
    if !can_mount() {
        return;
    }
    let tree = array("a", 0, "int32", "[4096]");
    let sample = Sample::new(&tree).block(Block::raw(&ramp(16384)));
    let (dir, file, mount) = writable(&sample);
    let path = mount.path("arrays/a.bin");
    let other = open_rw(&path);
    let first = File::create(&path).unwrap();
    first.write_all_at(&[1; 8192], 0).unwrap();
    other.write_all_at(&[2; 8192], 8192).unwrap();
    let beside = dir.path().join("beside");
    fs::copy(&file, &beside).unwrap();
    fs::rename(&beside, &file).unwrap();
    assert_eq!(errno(first.sync_all()), ESTALE);
    assert_eq!(errno(other.sync_all()), ESTALE);
}
