//! Files far away: a mount of a URL is that of the file, what changes or hangs there harms nothing else, and nothing secret is shown.

use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{
    Mount, PROGRAM, Stopped, asdf_mount, assert_refused, can_mount, daemons_of, eventually,
    is_root, is_running, mount_table, mounted_at, run,
};
use crate::far_server::Server;
use crate::sample::{Block, Sample, array, noise};

/// Bytes of a block that are more than what is read ahead of its first bytes.
const LARGE: usize = 24 << 20;

/// A file with arrays over a raw, a compressed and a large block.
fn sample(n: u8) -> Sample {
    let tree = format!(
        "n: {n}\n{}{}{}",
        array("raw", 0, "uint8", "[1000]"),
        array("packed", 1, "uint8", "[300000]"),
        array("large", 2, "uint8", &format!("[{LARGE}]"))
    );
    let bytes = |len| {
        noise(len)
            .iter()
            .map(|byte| byte.wrapping_add(n))
            .collect::<Vec<u8>>()
    };
    Sample::new(&tree)
        .block(Block::raw(&bytes(1000)))
        .block(Block::zlib(&bytes(300_000)))
        .block(Block::raw(&bytes(LARGE)))
}

/// A server that has this sample as `/d/a.asdf`, and the same as a file.
fn served() -> (Server, TempDir, PathBuf) {
    let server = Server::new();
    let bytes = sample(0).bytes();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.asdf");
    fs::write(&file, &bytes).unwrap();
    server.put("/d/a.asdf", bytes);
    (server, dir, file)
}

/// The files below a directory, but for the status, which tells of the mount.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            out.extend(below(&entry.path()));
        } else if entry.file_name() != "status" {
            out.push(entry.path());
        }
    }
    out.sort();
    out
}

fn errno(result: std::io::Result<impl std::fmt::Debug>) -> Option<Errno> {
    Errno::from_io_error(&result.unwrap_err())
}

#[test]
fn the_mount_of_a_url_is_that_of_the_file() {
    if !can_mount() {
        return;
    }
    let (server, _dir, file) = served();
    let far = Mount::new(&server.url("/d/a.asdf"), &[]);
    let near = Mount::new(&file, &["-r"]);
    assert_eq!(far.said.stderr, "");
    let names = |mount: &Mount| -> Vec<PathBuf> {
        let files = below(&mount.dir).into_iter();
        files
            .map(|path| path.strip_prefix(&mount.dir).unwrap().to_owned())
            .collect()
    };
    let all = names(&far);
    assert_eq!(all, names(&near));
    assert!(all.len() > 10, "{all:?}");
    for name in all {
        let name = name.to_str().unwrap();
        assert!(
            far.read(name).unwrap() == near.read(name).unwrap(),
            "{name}"
        );
    }
    let written = fs::write(far.path("tree.yaml"), "");
    assert_eq!(errno(written), Some(Errno::ROFS));
    let status = far.text("info/status");
    let want = format!("file      {}/d/a.asdf\n", server.origin());
    assert!(status.starts_with(&want), "{status}");
    assert!(
        status.contains("read-only: a remote file is only read"),
        "{status}"
    );
}

#[test]
fn what_is_open_of_a_changed_file_is_stale_for_good() {
    if !can_mount() {
        return;
    }
    let (server, _dir, _) = served();
    let mount = Mount::new(&server.url("/d/a.asdf"), &[]);
    let path = mount.path("blocks/2.bin");
    let open = File::open(&path).unwrap();
    let mut buf = [0; 4096];
    open.read_exact_at(&mut buf, 0).unwrap();
    server.put("/d/a.asdf", sample(1).bytes());
    for at in [12 << 20, 16 << 20] {
        assert_eq!(errno(open.read_at(&mut buf, at)), Some(Errno::STALE));
    }
    // the next lookup finds the new one, but what was open does not
    let tree = || mount.text("tree.yaml").contains("n: 1");
    eventually("the new tree is shown", tree);
    let new = File::open(&path).unwrap();
    new.read_exact_at(&mut buf, 20 << 20).unwrap();
    let want: Vec<u8> = noise(LARGE)[20 << 20..][..4096]
        .iter()
        .map(|byte| byte.wrapping_add(1))
        .collect();
    assert!(buf[..] == want);
    // the kernel has a page of the old one, and the server has none any more
    open.read_exact_at(&mut buf, 0).unwrap();
    assert!(buf[..] == noise(LARGE)[..4096]);
    for at in [8 << 20, 20 << 20] {
        assert_eq!(errno(open.read_at(&mut buf, at)), Some(Errno::STALE));
    }
    let listed = fs::read_dir(mount.path("blocks")).unwrap();
    let listed = listed.map(|entry| entry.unwrap());
    let listed = listed.filter(|entry| entry.file_name() == "2.bin");
    let numbers: Vec<u64> = listed.map(|entry| DirEntryExt::ino(&entry)).collect();
    assert_eq!(numbers, [new.metadata().unwrap().ino()]);
    // also when it becomes something that can't be shown
    server.put("/d/a.asdf", b"no such file".to_vec());
    for file in [&open, &new] {
        assert_eq!(errno(file.read_at(&mut buf, 4 << 20)), Some(Errno::STALE));
    }
    let status = || mount.text("info/status").contains("can't be shown");
    eventually("the change is told", status);
    for file in [&open, &new] {
        assert_eq!(errno(file.read_at(&mut buf, 4 << 20)), Some(Errno::STALE));
    }
}

/// Some states have inode numbers of their own.
#[test]
fn what_is_open_of_a_file_that_changes_again_and_again_never_has_bytes_of_another_state() {
    const PLACE: u64 = 23 << 20;
    if !can_mount() {
        return;
    }
    let state = |n: u8| {
        let sample = Sample::new(&array("large", 0, "uint8", &format!("[{LARGE}]")));
        sample.block(Block::raw(&vec![n; LARGE])).bytes()
    };
    let server = Server::new();
    server.put("/a.asdf", state(0));
    let mount = Mount::new(&server.url("/a.asdf"), &[]);
    let path = mount.path("blocks/0.bin");
    let read = |file: &File, at| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).ok().map(|()| byte[0])
    };
    let mut open = Vec::new();
    for n in 0..20 {
        server.put("/a.asdf", state(n));
        // what was not read before is read from the server, and so the change is noticed
        let new = || {
            let file = File::open(&path).ok()?;
            let found = read(&file, u64::from(21 - n) << 20)?;
            (found == n).then_some(file)
        };
        let mut found = None;
        eventually("the new state is shown", || {
            found = new();
            found.is_some()
        });
        let file = found.unwrap();
        assert_eq!(read(&file, PLACE), Some(n));
        open.push(file);
    }
    let newest = open.pop().unwrap();
    assert_eq!(read(&newest, PLACE), Some(19));
    for (n, file) in open.iter().enumerate() {
        // a page that the kernel has read of that state, or nothing
        let found = read(file, PLACE);
        let own = u8::try_from(n).ok();
        assert!(found.is_none() || found == own, "state {n}: {found:?}");
        let read = errno(file.read_at(&mut [0; 4096], 2 << 20));
        let fails = matches!(read, Some(Errno::STALE | Errno::IO));
        assert!(fails, "state {n}: {read:?}");
    }
}

/// More readers than the mount has threads waited, and then nothing else was served.
#[test]
fn a_server_that_hangs_keeps_no_other_file_from_being_read() {
    if !can_mount() {
        return;
    }
    // so long that all of them wait when the others have been read, and so short that they are seen to be given up
    for (timeout, given_up) in [("timeout=100", false), ("timeout=3", true)] {
        let (server, _dir, _) = served();
        server.put("/d/b.asdf", sample(1).bytes());
        let first = server.url("/d/a.asdf");
        let options = ["-o", timeout, first.to_str().unwrap()];
        let mount = Mount::new(&server.url("/d/b.asdf"), &options);
        assert_eq!(mount.names(""), ["a.asdf", "b.asdf"]);
        assert!(mount.text("b.asdf/tree.yaml").contains("n: 1"));
        let path = mount.path("b.asdf/blocks/2.bin");
        let open: Vec<_> = (0..100).map(|_| File::open(&path).unwrap()).collect();
        server.hang(Some("/d/b.asdf"));
        let asked = server.state().requests.len();
        let begun = Instant::now();
        let readers: Vec<_> = (0..)
            .zip(open)
            .map(|(n, file)| {
                std::thread::spawn(move || {
                    let read = file.read_at(&mut [0; 4096], (4 << 20) + n * (64 << 10));
                    (read, begun.elapsed())
                })
            })
            .collect();
        eventually("the server is asked", || {
            server.state().requests.len() > asked
        });
        if !given_up {
            assert_eq!(mount.names(""), ["a.asdf", "b.asdf"]);
            assert!(mount.text("a.asdf/tree.yaml").contains("n: 0"));
            assert!(mount.read("a.asdf/blocks/0.bin").unwrap() == noise(1000));
            assert!(!readers.iter().any(std::thread::JoinHandle::is_finished));
            server.hang(None);
        }
        for reader in readers {
            let (read, after) = reader.join().unwrap();
            if given_up {
                assert_eq!(errno(read), Some(Errno::TIMEDOUT));
                // also where others have made all the requests that there may be
                assert!(after < Duration::from_secs(15), "{after:?}");
            } else {
                assert_eq!(read.unwrap(), 4096);
            }
        }
        server.hang(None);
    }
}

#[test]
fn a_mount_with_readers_of_a_server_that_hangs_can_be_taken_away() {
    // umount -f is for root
    if !can_mount() || !is_root() {
        return;
    }
    let (server, _dir, _) = served();
    let mount = Mount::new(&server.url("/d/a.asdf"), &["-o", "timeout=60"]);
    let path = mount.path("blocks/2.bin");
    let open: Vec<_> = (0..40).map(|_| File::open(&path).unwrap()).collect();
    server.hang(Some("/d/a.asdf"));
    let asked = server.state().requests.len();
    let readers: Vec<_> = (0..)
        .zip(open)
        .map(|(n, file)| {
            std::thread::spawn(move || file.read_at(&mut [0; 4096], (n + 1) << 18).is_err())
        })
        .collect();
    eventually("the server is asked", || {
        server.state().requests.len() > asked
    });
    let daemons = daemons_of(&mount.dir);
    let begun = Instant::now();
    let gone = run(Command::new("umount").args(["-f", "-l"]).arg(&mount.dir));
    assert_eq!(gone.code, 0, "{gone:?}");
    for reader in readers {
        assert!(reader.join().unwrap());
    }
    eventually("the daemon ends", || {
        daemons.iter().all(|daemon| !is_running(*daemon))
    });
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    server.hang(None);
}

/// A program that read from a server that hung could not be killed before `-o timeout` had passed: here after an hour.
#[test]
fn a_program_that_waits_for_a_server_can_be_killed() {
    if !can_mount() {
        return;
    }
    let (server, _dir, _) = served();
    let mount = Mount::new(&server.url("/d/a.asdf"), &["-o", "timeout=3600"]);
    let file = mount.path("blocks/2.bin");
    assert_eq!(mount.names("blocks"), ["0.bin", "1.bin", "2.bin"]);
    server.hang(Some("/d/a.asdf"));
    // through the pages of the kernel, and past them
    for (how, skip, signal) in [("fullblock", 0, Signal::KILL), ("direct", 20, Signal::TERM)] {
        let asked = server.state().requests.len();
        let mut reader = Command::new("dd")
            .arg(format!("if={}", file.display()))
            .args(["of=/dev/null", "bs=1M", "status=none"])
            .args([format!("iflag={how}"), format!("skip={skip}")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the server is asked", || {
            server.state().requests.len() > asked
        });
        kill_process(Pid::from_child(&reader), signal).unwrap();
        assert_eq!(reader.wait().unwrap().signal(), Some(signal.as_raw()));
    }
    server.hang(None);
    assert!(mount.read("blocks/2.bin").unwrap() == noise(LARGE));
}

/// A URL was looked for among the files of this machine, and was said to stay locked.
#[test]
fn a_mount_is_unmounted_by_its_url_and_a_server_that_hangs_is_named() {
    if !can_mount() {
        return;
    }
    let (server, _dir, _) = served();
    let url = server.url("/d/a.asdf");
    let unmount = |name: &Path| asdf_mount([Path::new("-u"), Path::new("--timeout=0"), name]);
    let refused = unmount(&url);
    assert_refused(&refused, 10, "a.asdf: not a mounted ASDF file");
    let mount = Mount::new(&url, &["-o", "timeout=60"]);
    let daemon = daemons_of(&mount.dir)[0];
    let stopped = Stopped::daemon_of(&mount.dir);
    let said = unmount(&url);
    drop(stopped);
    assert_refused(&said, 42, "still mounted: ");
    // a kernel that does not tell which process serves a connection leaves only the URL to be named
    let named = [
        format!("daemon {daemon} is stopped"),
        format!("may wait for the server of {}; umount -l", url.display()),
    ];
    assert!(
        named.iter().any(|it| said.stderr.contains(it)),
        "{}",
        said.stderr
    );
    let said = asdf_mount([Path::new("-u"), &url]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(mounted_at(&mount.dir).is_none());
}

/// All values of a query, and all logins, were one to `-u`: it took away the mount of another file.
#[test]
fn a_mount_is_not_unmounted_by_the_url_of_another_file() {
    if !can_mount() {
        return;
    }
    let (server, _dir, _) = served();
    let url = |query: &str| server.url(&format!("/d/a.asdf{query}"));
    let unmount = |name: &Path| asdf_mount([Path::new("-u"), name]);
    let login = format!("http://me:hush@127.0.0.1:{}/d/a.asdf", server.port());
    let login = PathBuf::from(login);
    let plain = Mount::new(&url(""), &[]);
    assert_refused(&unmount(&login), 10, "a.asdf: not a mounted ASDF file");
    assert_eq!(unmount(&url("#part")).code, 0);
    assert!(mounted_at(&plain.dir).is_none());
    let [a, b] = ["?uri=A", "?uri=B"].map(|query| Mount::new(&url(query), &[]));
    let refused = unmount(&url("?uri=C"));
    assert_refused(&refused, 10, "a.asdf?uri=…: not a mounted ASDF file");
    assert_eq!(unmount(&url("?uri=B")).code, 0);
    assert!(mounted_at(&b.dir).is_none() && mounted_at(&a.dir).is_some());
    // a daemon that does not answer is not taken for the one that is meant
    let stopped = Stopped::daemon_of(&a.dir);
    let why = format!("its daemon does not tell; name {} instead", a.dir.display());
    assert_refused(&unmount(&url("?uri=A")), 10, &why);
    drop(stopped);
    // as findmnt(8) shows it
    eventually("unmounted", || unmount(&url("?uri=…")).code == 0);
    assert!(mounted_at(&a.dir).is_none());
}

/// A daemon that waited for a server went on when its command was killed, and mounted later what nobody waited for any more.
#[test]
fn a_command_that_is_killed_while_it_waits_for_a_server_leaves_no_daemon() {
    if !can_mount() {
        return;
    }
    let (server, dir, _) = served();
    server.hang(Some("/d/a.asdf"));
    let mnt = fs::canonicalize(dir.path()).unwrap().join("mnt");
    let log = dir.path().join("log");
    let mut command = Command::new(PROGRAM)
        .args(["-o", "timeout=60", "--log-file"])
        .args([&log, &server.url("/d/a.asdf"), &mnt])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the server is asked", || {
        !server.state().requests.is_empty()
    });
    assert!(mnt.exists());
    command.kill().unwrap();
    command.wait().unwrap();
    eventually("no daemon", || daemons_of(&mnt).is_empty());
    assert!(!mnt.exists());
    server.hang(None);
}

/// Signals were kept for the mount, which did not come about before the server answered.
#[test]
fn a_signal_ends_the_opening_of_a_file_whose_server_hangs() {
    if !can_mount() {
        return;
    }
    let (server, dir, _) = served();
    server.hang(Some("/d/a.asdf"));
    let mut daemon = Command::new(PROGRAM)
        .args(["-f", "-o", "timeout=60"])
        .arg(server.url("/d/a.asdf"))
        .current_dir(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the server is asked", || {
        !server.state().requests.is_empty()
    });
    let begun = Instant::now();
    let id = Pid::from_child(&daemon);
    kill_process(id, Signal::TERM).unwrap();
    let ended = daemon.wait().unwrap();
    assert_eq!(ended.code(), Some(1));
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    let mut said = String::new();
    std::io::Read::read_to_string(&mut daemon.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("ended by a signal"), "{said}");
    assert!(!dir.path().join("a").exists());
    server.hang(None);
}

/// Readers of a server that hung kept the daemon until `-o timeout` had passed: here for an hour.
#[test]
fn a_signal_ends_a_mount_whose_readers_wait_for_a_server() {
    if !can_mount() {
        return;
    }
    let (server, _dir, _) = served();
    let mount = Mount::new(&server.url("/d/a.asdf"), &["-o", "timeout=3600"]);
    let daemon = daemons_of(&mount.dir)[0];
    let held = File::open(mount.path("blocks/0.bin")).unwrap();
    assert_eq!(mount.names("blocks"), ["0.bin", "1.bin", "2.bin"]);
    server.hang(Some("/d/a.asdf"));
    let asked = server.state().requests.len();
    let reader = Command::new("cat")
        .arg(mount.path("blocks/2.bin"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the server is asked", || {
        server.state().requests.len() > asked
    });
    kill_process(Pid::from_raw(daemon).unwrap(), Signal::TERM).unwrap();
    let ended = reader.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("Input/output error"), "{said}");
    eventually("unmounted", || mounted_at(&mount.dir).is_none());
    // what is here is served as long as it is open
    let mut buf = [0; 1000];
    held.read_exact_at(&mut buf, 0).unwrap();
    assert!(buf[..] == noise(1000));
    drop(held);
    eventually("the daemon ends", || !is_running(daemon));
    server.hang(None);
}

/// The bytes that were asked for with each request.
fn asked(server: &Server) -> Vec<usize> {
    let ranges = server.state().requests.clone().into_iter();
    let ranges = ranges.filter_map(|request| {
        let range = request.to_lowercase();
        let range = range
            .lines()
            .find_map(|line| line.strip_prefix("range: bytes="));
        let (first, last) = range?.split_once('-')?;
        let number = |text: &str| text.trim().parse::<usize>().unwrap();
        Some(number(last) + 1 - number(first))
    });
    ranges.collect()
}

/// A request for each header, and three more.
#[test]
fn mounting_asks_for_the_text_the_index_and_the_headers_that_are_far_from_them() {
    if !can_mount() {
        return;
    }
    for (blocks, most) in [(1, 2), (3, 4), (20, 21)] {
        let tree: String = (0..)
            .take(blocks)
            .map(|n| array(&format!("a{n}"), n, "uint8", "[400000]"))
            .collect();
        let sample = (0..blocks).fold(Sample::new(&tree), |sample, _| {
            sample.block(Block::raw(&noise(400_000)))
        });
        let server = Server::new();
        server.put("/a.asdf", sample.bytes());
        let mount = Mount::new(&server.url("/a.asdf"), &[]);
        assert!(mount.text("tree.yaml").contains("a0"));
        assert_eq!(mount.names("blocks").len(), blocks);
        let asked = asked(&server);
        assert_eq!(asked.len(), most, "{asked:?}");
        assert!(asked.iter().sum::<usize>() <= 2 << 20, "{asked:?}");
    }
}

#[test]
fn an_empty_file_is_said_to_be_empty() {
    let server = Server::new();
    server.put("/d/a.asdf", Vec::new());
    let said = asdf_mount([Path::new("--check"), &server.url("/d/a.asdf")]);
    assert_eq!(said.code, 20, "{said:?}");
    assert!(
        (said.stdout + &said.stderr).contains("empty"),
        "the file is empty"
    );
}

#[test]
fn nothing_secret_is_shown() {
    if !can_mount() {
        return;
    }
    let (server, dir, _) = served();
    let url = format!(
        "http://me:hush1@127.0.0.1:{}/d/a.asdf?token=hush2",
        server.port()
    );
    let log = dir.path().join("log");
    let mount = Mount::new(
        Path::new(&url),
        &["--log-file", log.to_str().unwrap(), "-v"],
    );
    assert!(mount.text("tree.yaml").contains("n: 0"));
    let daemon = daemons_of(&mount.dir)[0];
    let request = server.state().requests[0].to_lowercase();
    assert!(request.contains("token=hush2"), "{request}");
    assert!(
        request.contains("authorization: basic bwu6ahvzade="),
        "{request}"
    );
    for (what, text) in [
        ("mounts", mount_table("mounts")),
        ("status", mount.text("info/status")),
        ("file", mount.attribute("", "user.asdf.file").unwrap()),
        ("log", fs::read_to_string(&log).unwrap()),
        (
            "arguments",
            fs::read_to_string(format!("/proc/{daemon}/cmdline")).unwrap(),
        ),
        ("said", mount.said.stderr.clone()),
    ] {
        assert!(!text.contains("hush"), "{what}: {text}");
        assert!(
            text.contains("/d/a.asdf") || what == "said",
            "{what}: {text}"
        );
    }
    let missing = url.replace("a.asdf", "none.asdf");
    for action in ["--list", "--check", "--tree"] {
        let said = asdf_mount([action, &missing]);
        assert_eq!(said.code, 11, "{said:?}");
        assert!(
            said.stderr.contains("404") && !said.stderr.contains("hush"),
            "{said:?}"
        );
    }
}

/// Crates that talk to servers log whole URLs.
#[test]
fn a_log_of_each_request_holds_no_secret() {
    if !can_mount() {
        return;
    }
    let (server, dir, _) = served();
    let mountpoint = fs::canonicalize(dir.path()).unwrap().join("mnt");
    let log = dir.path().join("log");
    let mut daemon = Command::new(PROGRAM)
        .args(["-d", "--log-file"])
        .arg(&log)
        .arg(server.url("/d/a.asdf?token=hush"))
        .arg(&mountpoint)
        .spawn()
        .unwrap();
    let tree = || fs::read_to_string(mountpoint.join("tree.yaml"));
    eventually("the tree is read", || {
        tree().is_ok_and(|text| text.contains("n: 0"))
    });
    let gone = asdf_mount([Path::new("-u"), &mountpoint]);
    assert_eq!(gone.code, 0, "{gone:?}");
    assert!(daemon.wait().unwrap().success());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("tree.yaml"), "{log}");
    assert!(!log.contains("hush"), "{log}");
}

#[test]
fn what_looks_at_files_looks_at_urls() {
    let (server, dir, file) = served();
    let url = server.url("/d/a.asdf");
    let (url, path) = (url.to_str().unwrap(), file.to_str().unwrap());
    for action in ["--list", "--tree"] {
        let (far, near) = (asdf_mount([action, url]), asdf_mount([action, path]));
        assert_eq!((far.code, far.stdout), (0, near.stdout), "{action}");
    }
    let refused = asdf_mount(["--check", "--repair", path, url]);
    assert_refused(&refused, 2, "leave out --repair");
    assert_eq!(refused.stdout, "");
    let checked = asdf_mount(["--check", url]);
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.stdout.contains(url), "{checked:?}");
    let picture = dir.path().join("x.png");
    let drawn = asdf_mount(["--preview", picture.to_str().unwrap(), url, "packed"]);
    assert_eq!(drawn.code, 0, "{drawn:?}");
    assert!(fs::read(picture).unwrap().starts_with(b"\x89PNG"));
    let refused = asdf_mount(["--explode", dir.path().join("x").to_str().unwrap(), url]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn a_container_without_an_account_says_what_to_set() {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"AZURE_") {
            command.env_remove(name);
        }
    }
    let said = run(command.args(["--list", "az://container/a.asdf"]));
    assert_refused(&said, 11, "set AZURE_STORAGE_ACCOUNT_NAME");
    let emulator = command.env("AZURE_STORAGE_USE_EMULATOR", "1");
    let emulator = emulator.env("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:1");
    assert_refused(&run(emulator), 11, "refused");
}

/// The thread of the requests panicked at a login, and nothing was read by http either.
#[test]
fn without_ca_certificates_http_is_read_and_https_says_what_it_needs() {
    let (server, ..) = served();
    let list = |url: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["--list", "-o", "timeout=1", url]);
        run(command
            .env("SSL_CERT_FILE", "/nonexistent")
            .env("SSL_CERT_DIR", "/nonexistent"))
    };
    let rest = format!("127.0.0.1:{}/d/a.asdf", server.port());
    for login in ["", "me:hush@"] {
        let listed = list(&format!("http://{login}{rest}"));
        assert_eq!(listed.code, 0, "{listed:?}");
        let refused = list(&format!("https://{login}{rest}"));
        assert_refused(&refused, 11, "SSL_CERT_FILE");
        assert!(!refused.stderr.contains("panicked"), "{refused:?}");
    }
}

/// The certificates of the system were said to be missing.
#[test]
fn a_file_without_certificates_is_named() {
    let dir = TempDir::new().unwrap();
    let server = format!("https://127.0.0.1:{}", Server::new().port());
    let list = |url: &str, file: Option<&Path>| {
        let mut command = Command::new(PROGRAM);
        command.args(["--list", "-o", "no-sign-request,timeout=1", url]);
        command
            .env_remove("SSL_CERT_DIR")
            .env_remove("SSL_CERT_FILE");
        command
            .env("AWS_ENDPOINT_URL", &server)
            .env("AWS_REGION", "us-east-1");
        command.envs(file.map(|file| ("SSL_CERT_FILE", file)));
        run(&mut command)
    };
    let far = format!("{server}/a.asdf");
    let written = |name: &str, text: &[u8]| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    for file in [
        written("empty", b""),
        written("der", b"\x30\x82\x01\x02"),
        written(
            "damaged",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ),
        dir.path().to_owned(),
        dir.path().join("none"),
        PathBuf::new(),
    ] {
        for url in [&*far, "s3://pub/a.asdf"] {
            let named = format!("{url}: SSL_CERT_FILE={}: ", file.display());
            assert_refused(&list(url, Some(&file)), 11, &named);
        }
    }
    assert!(!list(&far, None).stderr.contains("SSL_CERT_FILE="));
}

/// The file was said to be damaged.
#[test]
fn a_server_that_goes_away_says_nothing_of_the_file_that_is_checked() {
    let (server, ..) = served();
    let url = server.url("/d/a.asdf");
    let check = || asdf_mount(["--check", "-o", "timeout=1", url.to_str().unwrap()]);
    assert_eq!(check().code, 0);
    let asked = server.state().requests.len();
    server.end_after(asked / 4 * 3);
    let checked = check();
    assert_eq!(
        (checked.code, checked.stdout.as_str()),
        (11, ""),
        "{checked:?}"
    );
    assert!(checked.stderr.contains("/d/a.asdf: "), "{checked:?}");
}

#[test]
fn the_directory_of_a_url_is_named_after_its_last_part() {
    if !can_mount() {
        return;
    }
    let (server, dir, _) = served();
    let mounting = |url: &Path| run(Command::new(PROGRAM).arg(url).current_dir(dir.path()));
    let said = mounting(&server.url("/d/a.asdf?x=1"));
    assert_eq!(said.code, 0, "{said:?}");
    let mountpoint = fs::canonicalize(dir.path()).unwrap().join("a");
    assert!(mounted_at(&mountpoint).is_some());
    let gone = asdf_mount([Path::new("-u"), &mountpoint]);
    assert_eq!(gone.code, 0, "{gone:?}");
    server.put("/d/a", Vec::new());
    let said = mounting(&server.url("/d/a"));
    assert_eq!(said.code, 10, "{said:?}");
    let said = mounting(&server.url("/d/"));
    assert_eq!(said.code, 2, "{said:?}");
}

#[test]
fn a_list_names_files_near_and_far() {
    if !can_mount() {
        return;
    }
    let (server, dir, file) = served();
    server.put("/d/b.asdf", sample(1).bytes());
    let list = dir.path().join("list");
    let url = server.url("/d/b.asdf?key=hush");
    fs::write(&list, format!("{}\n{}\n", file.display(), url.display())).unwrap();
    let place = TempDir::new().unwrap();
    let mountpoint = fs::canonicalize(place.path()).unwrap();
    let arguments = [Path::new("--files-from"), &list, &mountpoint];
    let said = asdf_mount(arguments);
    assert_eq!(said.code, 0, "{said:?}");
    let tree = |name: &str| fs::read_to_string(mountpoint.join(name).join("tree.yaml")).unwrap();
    assert!(tree("a.asdf").contains("n: 0") && tree("b.asdf").contains("n: 1"));
    let status = fs::read_to_string(mountpoint.join("b.asdf/info/status")).unwrap();
    assert!(
        status.contains("/d/b.asdf?key=") && !status.contains("hush"),
        "{status}"
    );
    // the near one can be written, the far one not
    fs::write(mountpoint.join("a.asdf/tree.yaml"), tree("a.asdf")).unwrap();
    let written = fs::write(mountpoint.join("b.asdf/tree.yaml"), "");
    // nobody but root may open for writing what is read only by its mode
    let refused = if is_root() {
        Errno::ROFS
    } else {
        Errno::ACCESS
    };
    assert_eq!(errno(written), Some(refused));
    let gone = asdf_mount([Path::new("-u"), &mountpoint]);
    assert_eq!(gone.code, 0, "{gone:?}");
}

#[test]
fn a_bucket_is_shown_as_directories() {
    if !can_mount() {
        return;
    }
    let server = Server::new();
    for (n, name) in (0..).zip(["x/a.asdf", "x/y/b.asdf", "x/y/note.txt", "z/c.asdf"]) {
        let tree = format!("n: {n}\n");
        server.put(&format!("/pub/{name}"), Sample::new(&tree).bytes());
    }
    // one such made the whole listing fail
    for name in ["x//d.asdf", "x/y/", "x/../e.asdf", "x//note.txt"] {
        server.put(&format!("/pub/{name}"), Vec::new());
    }
    let mut command = Command::new(PROGRAM);
    command
        .env("AWS_ENDPOINT_URL", server.origin())
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .args(["-o", "no-sign-request"]);
    let mount = Mount::by(&mut command, Path::new("s3://pub/x/"));
    assert_eq!(mount.names(""), ["a.asdf", "y"]);
    assert_eq!(mount.names("y"), ["b.asdf"]);
    let status = mount.text(".asdf-mount/status");
    for name in ["/d.asdf", "../e.asdf"] {
        let line = format!("problem   {name}: left out");
        assert!(status.contains(&line), "{status}");
    }
    assert!(!status.contains("note.txt"), "{status}");
    let before = server.state().requests.len();
    let meta = fs::metadata(mount.path("y/b.asdf")).unwrap();
    assert_eq!(changed_at(&meta), 1_795_377_600);
    assert_eq!(
        server.state().requests.len(),
        before,
        "listed, not asked for"
    );
    assert!(mount.text("y/b.asdf/tree.yaml").contains("n: 1"));
    let table = mount.text(".asdf-mount/files.tsv");
    assert!(
        table.contains("y/b.asdf\t") && table.contains("\tclosed\t"),
        "{table}"
    );
}

/// All was said to be well with a bucket of which some objects were not read.
#[test]
fn what_a_bucket_does_not_show_is_checked_or_told_of() {
    let server = Server::new();
    let good = Sample::new("n: 1\n").bytes();
    for name in ["a.asdf", "a.asdf/in.asdf", "/d.asdf", "/d.txt"] {
        server.put(&format!("/pub/x/{name}"), good.clone());
    }
    let said = |flags: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .env("AWS_ENDPOINT_URL", server.origin())
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .args(flags)
            .args(["-o", "no-sign-request", "s3://pub/x/"]);
        run(&mut command)
    };
    let why = "s3://pub/x//d.asdf: left out: its name, ";
    for flags in [
        &["--check"][..],
        &["--check", "--quiet"],
        &["--list"],
        &["--references"],
    ] {
        let said = said(flags);
        assert_eq!(said.code, 11, "{flags:?}: {said:?}");
        assert_eq!(said.stderr.matches(why).count(), 1, "{flags:?}: {said:?}");
        assert!(!said.stderr.contains("d.txt"), "{said:?}");
    }
    let checked = said(&["--check"]).stdout;
    for line in [
        "s3://pub/x/a.asdf/in.asdf: ok",
        "3 files: 2 ok, 0 suspicious, 0 damaged, 1 not checked",
    ] {
        assert!(checked.contains(line), "{checked}");
    }
    let checked = said(&["--check", "--quiet", "--json"]).stdout;
    let record = "{\"file\":\"s3://pub/x//d.asdf\",\"verdict\":\"not checked\"";
    assert!(checked.starts_with(record), "{checked}");
    let references = said(&["--references"]).stdout;
    assert!(references.contains("a.asdf/in.asdf/"), "{references}");
}

/// Each use of a file of a bucket waited for `-o timeout`, once a second had passed since the last attempt.
/// Two lines told it, the first of which had the URL twice.
#[test]
fn a_bucket_that_can_not_be_listed_is_told_of_once() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let said = run(Command::new(PROGRAM)
        // nothing listens there
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .args(["-o", "no-sign-request,timeout=1", "s3://pub/x/"])
        .arg(dir.path().join("mnt")));
    assert_refused(&said, 11, "s3://pub/x/: ");
    assert_eq!(said.stderr.matches("s3:").count(), 1, "{}", said.stderr);
}

#[test]
fn a_file_of_a_bucket_whose_server_hangs_is_not_waited_for_at_each_use() {
    if !can_mount() {
        return;
    }
    let server = Server::new();
    server.put("/pub/x/a.asdf", sample(0).bytes());
    server.hang(Some("/pub/x/a.asdf"));
    let mut command = Command::new(PROGRAM);
    command
        .env("AWS_ENDPOINT_URL", server.origin())
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .args(["-o", "no-sign-request,timeout=3"]);
    let mount = Mount::by(&mut command, Path::new("s3://pub/x/"));
    let text = mount.path("a.asdf/tree.yaml");
    // a search would have passed it by: there was no such file
    let unread = || errno(fs::read(&text));
    assert_eq!(unread(), Some(Errno::TIMEDOUT));
    let (asked, failed) = (server.state().requests.len(), Instant::now());
    assert_eq!(mount.names("a.asdf"), ["info", "tree.yaml"]);
    let status = mount.text("a.asdf/info/status");
    assert!(status.contains("-o timeout="), "{status}");
    let search = run(Command::new("grep").args(["-r", "n: 0"]).arg(&mount.dir));
    assert_eq!(search.code, 2, "{search:?}");
    assert!(search.stderr.contains("a.asdf/tree.yaml: "), "{search:?}");
    while failed.elapsed() < Duration::from_millis(1500) {
        assert_eq!(unread(), Some(Errno::TIMEDOUT));
    }
    assert_eq!(server.state().requests.len(), asked);
    server.hang(None);
    eventually("it is tried again", || {
        mount.read("a.asdf/tree.yaml").is_ok()
    });
}

/// When a file was changed, in seconds.
fn changed_at(meta: &fs::Metadata) -> u64 {
    let since = meta
        .modified()
        .unwrap()
        .duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}
