//! FILE on disks that do not tell all at once: attributes come from a cache, times are whole seconds, names can't be removed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use tempfile::TempDir;

use crate::common::{Mount, Mounted, Outcome, asdf_mount, can_mount, eventually, is_root, run};
use crate::sample::{Block, Sample, array};

const ESTALE: Option<i32> = Some(116);

fn sample(note: char, data: u8) -> Sample {
    let arrays = [
        array("a", 0, "uint8", "[3000]"),
        array("z", 1, "uint8", "[3000]"),
    ]
    .concat();
    Sample::new(&format!("note: {note}\n{arrays}"))
        .padding(&[0; 3000])
        .block(Block::raw(&[data; 3000]))
        .block(Block::zlib(&[7; 3000]))
}

/// FILE in a directory, and the same behind bindfs(1), which remembers attributes, names and pages for a second.
struct Behind {
    dir: TempDir,
    file: PathBuf,
    there: PathBuf,
    _mounted: Mounted,
}

impl Behind {
    fn new() -> Option<Self> {
        if !can_mount() || !is_root() {
            return None;
        }
        let dir = TempDir::new().unwrap();
        let [here, there] = ["here", "there"].map(|name| dir.path().join(name));
        fs::create_dir(&here).unwrap();
        fs::create_dir(&there).unwrap();
        let file = sample('1', 7).write(&here);
        if Command::new("bindfs").arg("--version").output().is_err() {
            println!("skipped: no bindfs here");
            return None;
        }
        let said = run(Command::new("bindfs").arg(&here).arg(&there));
        assert_eq!(said.code, 0, "{}", said.stderr);
        Some(Self {
            file,
            there: there.join("sample.asdf"),
            _mounted: Mounted(there),
            dir,
        })
    }
}

/// Writes another text, and gives what fsync says.
fn save(mount: &Mount, text: &str) -> Option<i32> {
    let mut tree = File::create(mount.path("tree.yaml")).unwrap();
    tree.write_all(text.as_bytes()).unwrap();
    tree.sync_all().err().and_then(|error| error.raw_os_error())
}

/// Their block was cut off, or their whole file replaced by a copy of the old one, and the save returned 0.
#[test]
fn what_is_changed_behind_a_cache_is_not_saved_over() {
    let in_place = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        let at = bytes
            .windows(7)
            .position(|part| part == b"note: 1")
            .unwrap()
            + 6;
        let file = File::options().write(true).open(file).unwrap();
        file.write_all_at(b"9", at as u64).unwrap();
    };
    let longer = |file: &Path| {
        let bytes = sample('9', 7).block(Block::raw(&[3; 500])).bytes();
        fs::write(file, bytes).unwrap();
    };
    let replaced = |file: &Path| {
        let new = file.with_extension("new");
        fs::write(&new, sample('9', 9).bytes()).unwrap();
        fs::rename(new, file).unwrap();
    };
    let deeds = [in_place as fn(&Path), longer, replaced];
    for (deed, done) in ["in place", "longer", "replaced"].into_iter().zip(deeds) {
        for length in [10, 9000] {
            let Some(behind) = Behind::new() else {
                return;
            };
            let mount = Mount::new(&behind.there, &[]);
            let text = mount.text("tree.yaml");
            // the attributes are asked for, and remembered from now on
            mount.text("info/status");
            std::thread::sleep(Duration::from_millis(1100));
            mount.text("info/status");
            done(&behind.file);
            let theirs = fs::read(&behind.file).unwrap();
            let mine = text.replace("note: 1", &format!("note: {}", "x".repeat(length)));
            assert_eq!(save(&mount, &mine), ESTALE, "{deed} {length}");
            assert_eq!(fs::read(&behind.file).unwrap(), theirs, "{deed} {length}");
            // and it is shown when bindfs has forgotten what was there, also of a file that bindfs takes for the one before
            eventually(deed, || mount.text("tree.yaml").contains("note: 9"));
            let data = if deed == "replaced" { 9 } else { 7 };
            assert_eq!(mount.read("blocks/0.bin").unwrap(), [data; 3000], "{deed}");
            let text = mount.text("tree.yaml");
            assert_eq!(
                save(&mount, &text.replace("note: 9", "note: 4")),
                None,
                "{deed}"
            );
            drop(mount);
            assert!(
                fs::read(&behind.file)
                    .unwrap()
                    .windows(7)
                    .any(|part| part == b"note: 4")
            );
        }
    }
}

/// A copy of FILE was made of pages from before, so that the other machine's data were gone.
#[test]
fn data_that_are_written_behind_a_cache_stay() {
    let Some(behind) = Behind::new() else {
        return;
    };
    let log = behind.dir.path().join("log");
    let mount = Mount::new(&behind.there, &["--log-file", log.to_str().unwrap()]);
    let text = mount.text("tree.yaml");
    mount.read("blocks/0.bin").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    mount.text("info/status");
    let bytes = fs::read(&behind.file).unwrap();
    let at = bytes.windows(3).position(|part| part == [7; 3]).unwrap() as u64 + 100;
    let file = File::options().write(true).open(&behind.file).unwrap();
    file.write_all_at(b"WWW", at).unwrap();
    drop(file);
    let grown = text.replace("note: 1", &format!("note: {}", "x".repeat(9000)));
    assert_eq!(save(&mount, &grown), None);
    let saved = fs::read(&behind.file).unwrap();
    assert!(
        saved
            .windows(5)
            .any(|part| part == [7, b'W', b'W', b'W', 7])
    );
    let block = mount.read("blocks/0.bin").unwrap();
    assert_eq!(block[100..103], *b"WWW");
    drop(mount);
    let said = fs::read_to_string(log).unwrap();
    assert_eq!(
        said.matches("where locks may not hold").count(),
        1,
        "{said}"
    );
}

/// FILE on a file system whose times are whole seconds.
struct Coarse {
    _dir: TempDir,
    file: PathBuf,
    _mounted: Mounted,
}

impl Coarse {
    fn new() -> Option<Self> {
        if !can_mount() || !is_root() {
            return None;
        }
        let dir = TempDir::new().unwrap();
        let [image, place] = ["image", "place"].map(|name| dir.path().join(name));
        fs::create_dir(&place).unwrap();
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let made = run(Command::new("mkfs.ext4")
            .args(["-qF", "-I", "128"])
            .arg(&image));
        assert_eq!(made.code, 0, "{}", made.stderr);
        let mounted = Mounted::new(&place, &["-o", "loop", image.to_str().unwrap()]);
        Some(Self {
            file: sample('1', 7).write(&place),
            _mounted: mounted,
            _dir: dir,
        })
    }

    /// Writes the bytes in the second that FILE's times are of; `false` if that is over.
    fn write_in_same_second(&self, bytes: &[u8], at: u64) -> bool {
        in_same_second(&self.file, bytes, at)
    }

    /// Another file on that file system.
    fn other(&self, name: &str) -> PathBuf {
        self.file.with_file_name(name)
    }
}

/// Writes the bytes in the second that the times of a file are of; `false` if that is over.
fn in_same_second(path: &Path, bytes: &[u8], at: u64) -> bool {
    let before = fs::metadata(path).unwrap().ctime();
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.metadata().unwrap().ctime() == before
}

/// Where a part begins.
fn find(bytes: &[u8], part: &[u8]) -> u64 {
    bytes.windows(part.len()).position(|it| it == part).unwrap() as u64
}

/// It was never shown, and an edit of a compressed block took it back.
#[test]
fn a_change_within_the_tick_of_a_clock_is_shown() {
    let bytes = sample('1', 7).bytes();
    let tree = find(&bytes, b"note: 1") + 6;
    let data = find(&bytes, &[7; 100]) + 50;
    for options in [&[][..], &["-r"]] {
        for (at, part) in [(tree, &b"9"[..]), (data, b"WWW")] {
            let Some(coarse) = Coarse::new() else {
                return;
            };
            let mut mount = None;
            // the second may be over before all of this is done
            eventually("in one second", || {
                mount = None;
                fs::write(&coarse.file, &bytes).unwrap();
                let mounted = mount.insert(Mount::new(&coarse.file, options));
                mounted.text("tree.yaml");
                mounted.read("blocks/0.bin").unwrap();
                coarse.write_in_same_second(part, at)
            });
            let mount = mount.unwrap();
            eventually("shown", || {
                mount.text("tree.yaml").contains("note: 9")
                    || mount.read("blocks/0.bin").unwrap().contains(&b'W')
            });
        }
    }
}

/// A change in the second of a save of ours was never shown either.
#[test]
fn a_change_within_the_tick_of_a_save_is_shown() {
    let Some(coarse) = Coarse::new() else {
        return;
    };
    let mount = Mount::new(&coarse.file, &[]);
    let text = mount.text("tree.yaml");
    let mut n = 0;
    eventually("in one second", || {
        n += 1;
        assert_eq!(
            save(&mount, &text.replace("note: 1", &format!("note: {n}"))),
            None
        );
        assert_eq!(mount.read("blocks/1.bin").unwrap(), [7; 3000]);
        let bytes = fs::read(&coarse.file).unwrap();
        coarse.write_in_same_second(b"WWW", find(&bytes, &[7; 100]) + 50)
    });
    eventually("shown", || {
        mount.read("blocks/0.bin").unwrap().contains(&b'W')
    });
}

/// As long as one program had such an array open, others were shown the bytes of before.
#[test]
fn a_change_of_an_external_array_within_the_tick_of_a_clock_is_shown() {
    let Some(coarse) = Coarse::new() else {
        return;
    };
    let other = coarse.other("other.asdf");
    let bytes = |data: u8| Sample::new("{}\n").block(Block::zlib(&[data; 100])).bytes();
    let (before, after) = (bytes(7), bytes(8));
    assert_eq!(before.len(), after.len());
    fs::write(&other, &before).unwrap();
    let tree = "a: !core/ndarray-1.0.0 {source: other.asdf, datatype: uint8, byteorder: little, shape: [100]}\n";
    fs::write(&coarse.file, Sample::new(tree).bytes()).unwrap();
    // else FILE itself is compared once more, and all that is known of the other one is dropped with it
    std::thread::sleep(Duration::from_millis(3100));
    let mount = Mount::new(&coarse.file, &[]);
    let mut open = None;
    eventually("in one second", || {
        fs::write(&other, &before).unwrap();
        let array = open.insert(File::open(mount.path("arrays/a.bin")).unwrap());
        let mut data = [0; 100];
        array.read_exact_at(&mut data, 0).unwrap();
        assert_eq!(data, [7; 100]);
        in_same_second(&other, &after, 0)
    });
    eventually("shown", || mount.read("arrays/a.bin").unwrap() == [8; 100]);
    drop(open);
}

/// A file that had been repaired was called bad for ever, and of a closed one the kernel kept the bytes of before.
#[test]
fn a_change_of_a_closed_member_within_the_tick_of_a_clock_is_shown() {
    let Some(coarse) = Coarse::new() else {
        return;
    };
    let bytes = sample('1', 7).bytes();
    let bad = [b"!", &bytes[1..]].concat();
    let names = ["a.asdf", "bad.asdf", "torn.asdf"].map(|name| coarse.other(name));
    fs::write(&names[0], &bytes).unwrap();
    let mount = Mount::new(coarse.file.parent().unwrap(), &["-o", "open=1"]);
    eventually("in one second", || {
        let mut broken = bytes.clone();
        broken[find(&bytes, b"note:") as usize + 6] = b'[';
        for (name, bytes) in names.iter().zip([&bytes, &bad, &broken]) {
            fs::write(name, bytes).unwrap();
        }
        mount.read("a.asdf/blocks/0.bin").unwrap();
        mount.read("bad.asdf/info/status").unwrap();
        mount.read("torn.asdf/info/arrays.tsv").unwrap();
        mount.read("sample.asdf/tree.yaml").unwrap();
        in_same_second(&names[0], b"WWW", find(&bytes, &[7; 100]) + 50)
            && in_same_second(&names[1], b"#", 0)
            && in_same_second(&names[2], b"1", find(&bytes, b"note:") + 6)
    });
    let problems = || {
        let table = mount.table(".asdf-mount/files.tsv");
        let problem = |row: &Vec<String>| row[5].clone();
        table.iter().skip(1).map(problem).collect::<String>()
    };
    assert!(problems().contains("not an ASDF file"), "{}", problems());
    eventually("no problem", || problems().is_empty());
    assert!(!mount.text(".asdf-mount/status").contains("problem"));
    assert!(mount.read("a.asdf/blocks/0.bin").unwrap().contains(&b'W'));
}

/// A copy of FILE that could not be removed was left by each save.
#[test]
fn nothing_is_left_where_names_can_not_be_removed() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = sample('1', 7).write(dir.path());
    let directory = File::open(dir.path()).unwrap();
    let flags = ioctl_getflags(&directory).unwrap_or(IFlags::empty());
    if ioctl_setflags(&directory, flags | IFlags::APPEND).is_err() {
        println!("skipped: no such flag here");
        return;
    }
    let said = std::panic::catch_unwind(|| {
        for options in [&[][..], &["-o", "save=replace"]] {
            let mount = Mount::new(&file, options);
            let text = mount.text("tree.yaml");
            for length in [9000, 10] {
                let other = text.replace("note: ", &format!("note: {}", "x".repeat(length)));
                assert_eq!(save(&mount, &other), None);
            }
            assert_eq!(save(&mount, "#ASDF 1.0.0\n--- [\n...\n"), Some(5));
        }
    });
    ioctl_setflags(&directory, flags).unwrap();
    said.unwrap();
    let names = fs::read_dir(dir.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["sample.asdf"]);
}

/// Runs the program with what a shell makes its standard output.
fn with_output(output: &str, words: &[&str]) -> Outcome {
    let script = format!("exec \"$0\" \"$@\" {output}");
    run(Command::new("sh")
        .args(["-c", &script, crate::common::PROGRAM])
        .args(words))
}

/// It exited with 0, and nobody had anything of it.
#[test]
fn a_closed_standard_output_is_an_error() {
    let dir = TempDir::new().unwrap();
    let file = sample('1', 7).write(dir.path());
    let file = file.to_str().unwrap();
    for words in [
        &["--tree", file][..],
        &["--list", file],
        &["--list", "--json", file],
        &["--check", file],
        &["--check", "--json", file],
        &["--cookbook"],
        &["--version"],
        &["--help"],
    ] {
        for output in [">&-", "1</dev/null"] {
            let said = with_output(output, words);
            assert_eq!(said.code, 1, "{words:?} {output}");
            assert!(
                said.stderr.contains("standard output: Bad file descriptor"),
                "{}",
                said.stderr
            );
        }
    }
    assert_eq!(asdf_mount(["--tree", file]).code, 0);
    let said = with_output(">&-", &["--check", "-q", file]);
    assert_eq!((said.code, &*said.stderr), (0, ""), "nothing is printed");
}
