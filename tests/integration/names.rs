//! Names and attributes at the limits of what the system has: too long, as long as may be, taken, not there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{Mount, asdf_mount, can_mount, eventually, mounted, run};
use crate::sample::{Block, Sample, array, array_with, noise};

fn errno<T>(done: std::io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&done.err()?)
}

#[test]
fn a_name_of_256_bytes_is_refused_for_its_length_and_one_of_255_is_not() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("flux", 0, "uint8", "[4]")).block(Block::raw(&noise(4)));
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    let (longest, too_long) = ("n".repeat(255), "n".repeat(256));
    File::create(mount.path("s")).unwrap();
    for dir in ["", "blocks", "arrays", "info"] {
        let path = |name: &str| mount.path(dir).join(name);
        let there = fs::metadata(path(&longest));
        assert_eq!(errno(there), Some(Errno::NOENT), "{dir}");
        let done = [
            fs::metadata(path(&too_long)).map(drop),
            File::create(path(&too_long)).map(drop),
            fs::create_dir(path(&too_long)),
            fs::remove_file(path(&too_long)),
            fs::remove_dir(path(&too_long)),
            symlink("x", path(&too_long)),
            fs::hard_link(mount.path("s"), path(&too_long)),
            fs::rename(mount.path("s"), path(&too_long)),
            fs::rename(path(&too_long), mount.path("s")),
        ];
        for (n, done) in done.into_iter().enumerate() {
            assert_eq!(errno(done), Some(Errno::NAMETOOLONG), "{dir} {n}");
        }
    }
    fs::rename(mount.path("s"), mount.path(&longest)).unwrap();
    fs::hard_link(mount.path(&longest), mount.path(&"m".repeat(255))).unwrap();
    symlink("x", mount.path(&"l".repeat(255))).unwrap();
    let len = |name: &String| name.len();
    assert_eq!(mount.names("").iter().map(len).max(), Some(255));
}

/// Files of 255 bytes in one directory, whose names begin alike.
fn long_names(dir: &TempDir, sample: &Sample) -> [PathBuf; 2] {
    let file = sample.write(dir.path());
    ["1", "2"].map(|end| {
        let path = dir.path().join(format!("{}{end}.asdf", "n".repeat(249)));
        fs::copy(&file, &path).unwrap();
        path
    })
}

#[test]
fn a_file_whose_name_is_as_long_as_may_be_is_saved_in_every_way() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = array("flux", 0, "uint8", "['*']");
    let streamed = Sample::new(&tree).block(Block::streamed(&noise(4)));
    for file in long_names(&dir, &streamed) {
        let mount = Mount::new(&file, &[]);
        let text = mount.text("tree.yaml");
        for more in ["a: 1\n".to_owned(), format!("a: {}\n", "x".repeat(9000))] {
            // its journal lies beside it, and it outgrows its space
            let saved = text.replace("...\n", &format!("{more}...\n"));
            fs::write(mount.path("tree.yaml"), &saved).unwrap();
            assert!(fs::read(&file).unwrap().starts_with(saved.as_bytes()));
        }
        fs::write(mount.path("tree.yaml"), "#ASDF 1.0.0\n--- [\n").unwrap();
        let kept = PathBuf::from(mount.attribute("tree.yaml", "user.asdf.rejected").unwrap());
        assert_eq!(kept.parent(), fs::canonicalize(dir.path()).ok().as_deref());
        assert_eq!(fs::read(&kept).unwrap(), b"#ASDF 1.0.0\n--- [\n");
        fs::write(mount.path("tree.yaml"), &text).unwrap();
        eventually("what was kept goes", || !kept.exists());
        assert_eq!(mount.read("blocks/0.bin").unwrap(), noise(4));
    }
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 3, "beside the sample and the two there is something");
}

/// Why a block can't be read was `problem` in the list, `error` as attribute, and nothing in the table.
#[test]
fn what_is_known_of_blocks_and_arrays_is_called_alike_everywhere() {
    if !can_mount() {
        return;
    }
    let damaged = Block::coded(*b"zlib", b"\x78\x9cnonsense".to_vec(), 16);
    let inline = array_with("nulls", "data: [1, ~]");
    let flux = "flux: !unit/quantity-1.1.0\n  unit: Jy\n  ".to_owned();
    let flux = flux + &array("value", 0, "uint8", "[16]");
    let outside = array("lost", 7, "uint8", "[1]");
    let (_dir, mount) = mounted(&Sample::new(&(flux + &inline + &outside)).block(damaged));
    let before = mount.table("info/blocks.tsv");
    assert_eq!(
        before[1].last().map(String::as_str),
        Some(""),
        "nothing is read for the table"
    );
    mount.read("arrays/flux/value.bin").unwrap_err();
    let file = mount.attribute("", "user.asdf.file").unwrap();
    let said = asdf_mount(["--list", "--json", &file]);
    let list: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    // `own`: what is in the table only
    for (table, objects, files, own) in [
        (
            "blocks",
            &list["blocks"],
            &["blocks/0.bin"][..],
            &[] as &[&str],
        ),
        (
            "arrays",
            &list["arrays"],
            &["arrays/flux/value.bin", "arrays/nulls.npy"],
            &["tag"],
        ),
    ] {
        let rows = mount.table(&format!("info/{table}.tsv"));
        let keys = objects[0].as_object().unwrap();
        let columns = rows[0]
            .iter()
            .filter(|column| !own.contains(&column.as_str()));
        let columns: BTreeSet<&String> = columns.collect();
        assert_eq!(columns, keys.keys().collect());
        for (file, row) in files.iter().zip(&rows[1..]) {
            for name in attributes(&mount, file) {
                if own.contains(&name.as_str()) {
                    continue;
                }
                let at = rows[0].iter().position(|column| *column == name);
                let value = mount.attribute(file, &format!("user.asdf.{name}"));
                assert_eq!(value.as_ref(), Some(&row[at.unwrap()]), "{file} {name}");
            }
        }
    }
    let problem = |file: &str| mount.attribute(file, "user.asdf.problem").unwrap();
    assert!(problem("blocks/0.bin").starts_with("block 0: "));
    assert_eq!(
        problem("arrays/nulls.bin"),
        "1 null in the tree reads as zero"
    );
    let arrays = mount.table("info/arrays.tsv");
    let tails: Vec<_> = arrays[1..]
        .iter()
        .map(|row| [&*row[0], &*row[9], &*row[10]])
        .collect();
    let want = [
        ["flux/value", "arrays/flux/value.npy", "Jy"],
        ["nulls", "arrays/nulls.npy", "-"],
        ["lost", "-", "-"],
    ];
    assert_eq!(tails, want);
    for (n, [_, file, _]) in want.into_iter().enumerate() {
        let listed = list["arrays"][n]["file"].as_str();
        assert_eq!(listed.unwrap_or("-"), file);
    }
}

/// The names of the attributes of a file that are listed, without what they begin with.
fn attributes(mount: &Mount, file: &str) -> Vec<String> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(mount.path(file), &mut names).unwrap();
    let names = std::str::from_utf8(&names[..len]).unwrap();
    let names = names.split_terminator('\0');
    names
        .map(|name| name.strip_prefix("user.asdf.").unwrap().to_owned())
        .collect()
}

#[test]
fn an_attribute_is_made_or_replaced_only_as_the_flags_allow() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("flux", 0, "uint8", "[4000]"));
    let file = sample.block(Block::raw(&[7; 4000])).write(dir.path());
    let mount = Mount::new(&file, &[]);
    let set = |name: &str, flags| {
        let name = format!("user.asdf.{name}");
        rustix::fs::setxattr(mount.path("blocks/0.bin"), name, b"zlib", flags)
    };
    let compression = || mount.attribute("blocks/0.bin", "user.asdf.compression");
    let before = fs::read(&file).unwrap();
    assert_eq!(set("compression", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("nosuch", XattrFlags::REPLACE), Err(Errno::NODATA));
    assert_eq!(set("nosuch", XattrFlags::CREATE), Err(Errno::OPNOTSUPP));
    assert_eq!(set("offset", XattrFlags::REPLACE), Err(Errno::OPNOTSUPP));
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(compression().as_deref(), Some("none"));
    assert_eq!(set("compression", XattrFlags::REPLACE), Ok(()));
    assert_eq!(compression().as_deref(), Some("zlib"));
}

#[cfg(feature = "blosc")]
#[test]
fn a_dialect_of_blsc_is_chosen_and_shown_and_an_edit_keeps_it() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let data = vec![7; 100_000];
    let sample = Sample::new(&array("flux", 0, "uint8", "[100000]"));
    let file = sample.block(Block::raw(&data)).write(dir.path());
    let mount = Mount::new(&file, &[]);
    let block = mount.path("blocks/0.bin");
    let shown = || {
        let compression = mount.attribute("blocks/0.bin", "user.asdf.compression");
        let framing = mount.table("info/blocks.tsv")[1][5].clone();
        (compression.unwrap(), framing)
    };
    let flags = XattrFlags::empty();
    for (name, framing) in [
        ("blsc", "prefixed chunks"),
        ("blsc:chunk", "one chunk"),
        ("blsc", "prefixed chunks"),
        ("zlib", "zlib stream"),
        ("blsc:chunk", "one chunk"),
    ] {
        rustix::fs::setxattr(&block, "user.asdf.compression", name.as_bytes(), flags).unwrap();
        let want = (name.to_owned(), framing.to_owned());
        let (compression, found) = shown();
        assert_eq!(compression, want.0);
        assert!(found == want.1 || name == "zlib", "{found}");
        assert_eq!(fs::read(&block).unwrap(), data);
    }
    let mut edited = data;
    edited[50_000] = 9;
    let open = File::options().write(true).open(&block).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, &[9], 50_000).unwrap();
    drop(open);
    eventually("it is saved", || {
        mount.text("info/status").contains("block 0 saved")
    });
    assert_eq!(shown(), ("blsc:chunk".to_owned(), "one chunk".to_owned()));
    assert_eq!(fs::read(&block).unwrap(), edited);
    drop(mount);
    let mount = Mount::new(&file, &["-r"]);
    assert_eq!(mount.read("arrays/flux.bin").unwrap(), edited);
}

#[test]
fn a_shell_in_a_directory_of_arrays_finds_what_is_there_after_each_change() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let within = |name: &str| format!("{name}:\n  {}", array("x", 0, "uint8", "[4]"));
    let sample = |tree: &str| Sample::new(tree).block(Block::raw(b"abcd"));
    let file = sample(&within("sub")).write(dir.path());
    let other = sample(&(within("b") + &within("sub"))).bytes();
    fs::write(dir.path().join("other"), other).unwrap();
    let mount = Mount::new(&file, &[]);
    // the mount keeps attributes for a second
    let script = "cd \"$1\"/arrays/sub && show() { sleep 1.1; ls; cat x.bin; echo; } && show &&
        sed -i 's/^sub:/a: {y: 1}\\n&/' ../../tree.yaml && show && cp \"$2\"/other \"$3\" && show";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]);
    let said = run(shell.args([mount.dir.as_path(), dir.path(), &file]));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(said.stdout, "x.bin\nx.npy\nabcd\n".repeat(3));
}
