//! What members of a mount of many leave when they are closed: files in memory, files of tools beside data, what is not saved.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;

use crate::common::{Mount, PATIENCE, PROGRAM, asdf_mount, can_mount, daemons_of, eventually, run};
use crate::many::{data, files, open_files, sample};
use crate::sample::{Block, Sample, array};

/// Closes all members but this one, which has to be open to say how it stands.
fn close_all_but(mount: &Mount, dir: &Path, name: &str) {
    eventually("others are closed", || {
        mount.read(&format!("{name}/info/status")).unwrap();
        open_files(mount, dir) == 1
    });
}

/// Takes the place of a file, as programs do that write a new one first.
fn replace(dir: &Path, name: &str, sample: &Sample) {
    let new = dir.join("new");
    fs::write(&new, sample.bytes()).unwrap();
    fs::rename(new, dir.join(name)).unwrap();
}

/// A file with an array two directories down.
fn nested(n: usize) -> Sample {
    let tree = format!("n: {n}\nmeta:\n  {}", array("flux", 0, "uint8", "[64]"));
    Sample::new(&tree).block(Block::raw(&data(n)))
}

/// Each closed member kept a descriptor for them: 28 of 90 members failed with `EMFILE`.
#[test]
fn files_beside_data_of_closed_members_share_a_descriptor() {
    const COUNT: usize = 90;
    if !can_mount() {
        return;
    }
    let names: Vec<_> = (0..COUNT).map(|n| format!("{n:02}.asdf")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let dir = files(&names);
    let script = "ulimit -n 80; exec \"$0\" -q -o open=4 \"$1\" \"$2\"";
    let mount = Mount::by(Command::new("sh").args(["-c", script, PROGRAM]), dir.path());
    for (n, name) in names.iter().enumerate() {
        let path = mount.path(&format!("{name}/blocks/.part"));
        fs::write(path, vec![n as u8; 5000]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for (n, name) in names.iter().enumerate() {
        let part = mount.read(&format!("{name}/blocks/.part"));
        assert_eq!(part.unwrap(), vec![n as u8; 5000], "{name}");
    }
    let daemon = daemons_of(&mount.dir)[0];
    let open = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count();
    assert!(open < 60, "{open} descriptors");
}

/// They were dropped when another program had changed FILE, as the directory had another number then; the log said that it was gone.
#[test]
fn files_beside_arrays_stay_in_their_directory_whatever_becomes_of_the_file() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    replace(dir.path(), "a.asdf", &nested(1));
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    fs::write(mount.path("a.asdf/arrays/meta/.flux.bin.Xq12Ab"), data(7)).unwrap();
    fs::write(mount.path("a.asdf/arrays/.top"), "top").unwrap();
    close_all_but(&mount, dir.path(), "b.asdf");
    replace(dir.path(), "a.asdf", &nested(2));
    let part = mount.path("a.asdf/arrays/meta/.flux.bin.Xq12Ab");
    assert_eq!(fs::read(&part).unwrap(), data(7));
    fs::rename(&part, mount.path("a.asdf/arrays/meta/flux.bin")).unwrap();
    assert_eq!(mount.read("a.asdf/blocks/0.bin").unwrap(), data(7));
    fs::write(&part, "x").unwrap();
    close_all_but(&mount, dir.path(), "b.asdf");
    replace(dir.path(), "a.asdf", &sample(3));
    eventually("the member is opened again", || {
        mount.names("a.asdf/arrays") == [".top", "flux.bin", "flux.npy"]
    });
    assert_eq!(mount.read("a.asdf/arrays/.top").unwrap(), b"top");
    // and it is there again when its directory is
    replace(dir.path(), "a.asdf", &nested(4));
    eventually("the directory is there", || fs::read(&part).is_ok());
    assert_eq!(fs::read(&part).unwrap(), b"x");
}

/// Nothing was said of it when FILE had got another tree while it was closed.
#[test]
fn a_copy_of_the_tree_is_named() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    fs::copy(mount.path("a.asdf/tree.yaml"), mount.path("a.asdf/before")).unwrap();
    let len = sample(0).tree().len();
    let line = format!("a.asdf: before ({len} bytes)");
    let named = || mount.attribute("", "user.asdf.scratch");
    assert_eq!(named().as_ref(), Some(&line));
    close_all_but(&mount, dir.path(), "b.asdf");
    assert_eq!(named().as_ref(), Some(&line));
    replace(dir.path(), "a.asdf", &sample(5));
    assert_eq!(named().as_ref(), Some(&line));
    let status = mount.text(".asdf-mount/status");
    assert!(status.contains(&line), "{status}");
    let said = asdf_mount([Path::new("-u"), &mount.dir]);
    assert!(said.stderr.contains(&line), "{}", said.stderr);
}

#[test]
fn the_table_says_what_a_closed_file_has_not_saved() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let logs = TempDir::new().unwrap();
    let log = logs.path().join("log");
    let options = ["-o", "open=1", "--log-file", log.to_str().unwrap()];
    let mount = Mount::new(dir.path(), &options);
    let block = mount.path("a.asdf/blocks/0.bin");
    let refused = run(Command::new("truncate").arg("-s5").arg(block));
    assert_ne!(refused.code, 0);
    close_all_but(&mount, dir.path(), "b.asdf");
    let table = mount.table(".asdf-mount/files.tsv");
    let row = &table[1];
    assert_eq!((row[0].as_str(), row[2].as_str()), ("a.asdf", "unsaved"));
    assert!(row[5].contains("it no longer holds array flux"), "{row:?}");
    let log = fs::read_to_string(&log).unwrap();
    // which of the files it is of
    let told = "/a.asdf: blocks/0.bin: block 0: with 5 bytes it no longer holds array flux";
    assert!(log.contains(told), "{log}");
}

/// They took room for ever, and nothing led to them.
#[test]
fn scratch_files_go_with_a_file_that_is_removed() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf", "sub/c.asdf"]);
    let log = TempDir::new().unwrap();
    let log = log.path().join("log");
    let log_file = log.to_str().unwrap();
    let options = ["-o", "open=1,scratch=64K", "--log-file", log_file];
    let mount = Mount::new(dir.path(), &options);
    fs::write(mount.path("a.asdf/note"), vec![b'x'; 30 << 10]).unwrap();
    fs::write(mount.path("sub/c.asdf/note"), vec![b'x'; 20 << 10]).unwrap();
    close_all_but(&mount, dir.path(), "b.asdf");
    fs::remove_dir_all(dir.path().join("sub")).unwrap();
    // one that is removed and made anew keeps them
    fs::remove_file(dir.path().join("a.asdf")).unwrap();
    let used = || {
        let status = mount.text(".asdf-mount/status");
        let line = status.lines().find(|line| line.contains("scratch files"));
        line.map_or(0, |line| {
            let words = line.split_whitespace();
            words.clone().nth(1).unwrap().parse::<u64>().unwrap()
        })
    };
    assert!(used() > 50 << 10);
    fs::write(dir.path().join("a.asdf"), sample(4).bytes()).unwrap();
    eventually("the room is free again", || used() < 40 << 10);
    assert_eq!(mount.read("a.asdf/note").unwrap().len(), 30 << 10);
    let said = fs::read_to_string(log).unwrap();
    let lost = "sub/c.asdf: removed; note (20480 bytes) existed only in the mount and is lost";
    assert!(said.contains(lost), "{said}");
    let named = mount.attribute("", "user.asdf.scratch");
    assert_eq!(named.as_deref(), Some("a.asdf: note (30720 bytes)"));
}

/// A file that came back was not noted: when it was replaced later, it counted as gone since the first time.
#[test]
fn scratch_files_stay_with_a_file_that_is_replaced_twice() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    fs::write(mount.path("a.asdf/note"), "x").unwrap();
    close_all_but(&mount, dir.path(), "b.asdf");
    let file = dir.path().join("a.asdf");
    for n in 0..2 {
        fs::remove_file(&file).unwrap();
        mount.text(".asdf-mount/status");
        fs::write(&file, sample(n).bytes()).unwrap();
        mount.text(".asdf-mount/status");
        std::thread::sleep(Duration::from_millis(2500));
    }
    assert_eq!(mount.read("a.asdf/note").unwrap(), b"x");
}

/// A file that could not be looked at counted as removed.
#[test]
fn scratch_files_stay_while_their_file_cannot_be_looked_at() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    fs::write(mount.path("a.asdf/note"), "x").unwrap();
    close_all_but(&mount, dir.path(), "b.asdf");
    let daemon = Pid::from_raw(daemons_of(&mount.dir)[0]);
    let limit = |current| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current, maximum };
        prlimit(daemon, Resource::Nofile, limit).unwrap().current
    };
    let before = limit(Some(1));
    let begun = Instant::now();
    let mut failed = 0;
    // longer than a member that is gone is kept, and until that is what was seen
    while begun.elapsed() < Duration::from_secs(4) || failed < 2 && begun.elapsed() < PATIENCE {
        let looked = fs::metadata(mount.path("a.asdf"));
        failed += usize::from(looked.is_err_and(|error| is_lack(&error)));
        std::thread::sleep(Duration::from_millis(200));
    }
    limit(before);
    assert!(failed > 1, "what the test is about");
    assert_eq!(mount.read("a.asdf/note").unwrap(), b"x");
}

/// `-u` passed by what a member had to tell that was opened at that moment.
#[test]
fn what_is_not_saved_is_told_while_members_are_opened_and_closed() {
    if !can_mount() {
        return;
    }
    let names = ["a.asdf", "b.asdf", "c.asdf", "d.asdf"];
    let dir = files(&names);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    for name in names {
        fs::write(mount.path(&format!("{name}/note")), name).unwrap();
    }
    std::thread::scope(|scope| {
        for offset in 0..2 {
            let mount = &mount;
            scope.spawn(move || {
                for n in 0..400 {
                    let name = names[(n + offset) % names.len()];
                    mount.read(&format!("{name}/note")).unwrap();
                }
            });
        }
        for _ in 0..200 {
            let said = mount.attribute("", "user.asdf.scratch").unwrap();
            assert_eq!(said.matches("note (6 bytes)").count(), 4, "{said}");
        }
    });
}

fn is_lack(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

/// It must not show as a directory that holds only why the file can't be read, nor as a file that is only read.
#[test]
fn a_lack_of_descriptors_says_nothing_of_a_file() {
    if !can_mount() {
        return;
    }
    let names: Vec<_> = (0..80).map(|n| format!("{n:02}.asdf")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let dir = files(&names);
    let script = "ulimit -n 64; exec \"$0\" -q -o open=4 \"$1\" \"$2\"";
    let mount = Mount::by(Command::new("sh").args(["-c", script, PROGRAM]), dir.path());
    let open: Vec<_> = names
        .iter()
        .filter_map(|name| File::open(mount.path(&format!("{name}/blocks/0.bin"))).ok())
        .collect();
    assert!(open.len() < names.len(), "what the test is about");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mount, names) = (&mount, &names);
            scope.spawn(move || {
                for n in 0..100 {
                    let name = names[names.len() - 1 - (n + thread) % 10];
                    let found = fs::metadata(mount.path(&format!("{name}/tree.yaml")));
                    let wrong = found.err().filter(|error| !is_lack(error));
                    assert!(wrong.is_none(), "{name}: {wrong:?}");
                }
            });
        }
    });
    let mut byte = [0];
    for file in open {
        file.read_exact_at(&mut byte, 0).unwrap();
    }
    for name in names {
        let block = mount.path(&format!("{name}/blocks/0.bin"));
        // the kernel tells of the last close some time later
        let block = std::iter::repeat_with(|| File::options().write(true).open(&block))
            .find(|opened| !matches!(opened, Err(error) if is_lack(error)));
        let block = block.unwrap().unwrap();
        block
            .write_all_at(b"x", 0)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// If one was left, only the directory that was listed could be opened, and those in it were left out.
#[test]
fn a_lack_of_descriptors_leaves_nothing_out_of_a_listing() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a/x.asdf", "b/y.asdf", "c.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    let daemon = daemons_of(&mount.dir)[0];
    let used = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count();
    let daemon = Pid::from_raw(daemon).unwrap();
    let names = || -> io::Result<Vec<_>> {
        let entries = fs::read_dir(&mount.dir)?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    };
    let (mut lacks, mut lists) = (0, 0);
    for limit in 3..used + 16 {
        let limit = Rlimit {
            current: Some(limit.try_into().unwrap()),
            ..getrlimit(Resource::Nofile)
        };
        prlimit(Some(daemon), Resource::Nofile, limit).unwrap();
        match names() {
            Ok(names) => {
                assert_eq!(names.len(), 3, "{names:?}");
                lists += 1;
            }
            Err(error) => {
                assert!(is_lack(&error), "{error}");
                lacks += 1;
            }
        }
    }
    assert!(lacks > 0 && lists > 0, "{lacks} {lists}");
}
