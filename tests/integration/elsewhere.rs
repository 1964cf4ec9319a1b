//! References to other files, and what may be opened for them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::inotify;
use tempfile::TempDir;

use crate::common::{Mount, Place, asdf_mount, can_mount, run};
use crate::sample::{Block, Sample, array, array_with};

/// A folder with a file `name` of the sample in it, beside others.
fn add(folder: &Path, name: &str, sample: &Sample) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, sample.bytes()).unwrap();
    path
}

/// `other.asdf`, with an array in a mapping.
fn other(data: &[u8]) -> Sample {
    let body = format!(
        "meta:\n  {}title: none\nfirst: {{$ref: '#/meta/flux'}}\n",
        array("flux", 0, "uint8", "[5]")
    );
    Sample::new(&body).block(Block::raw(data))
}

/// The last field of each line of `info/arrays.tsv`, by the first.
fn problem(mount: &Mount, path: &str) -> String {
    let table = mount.table("info/arrays.tsv");
    let line = table.iter().find(|line| line[0] == path);
    line.unwrap_or_else(|| panic!("{path} is not in {table:?}"))[8].clone()
}

#[test]
fn a_reference_to_another_file_is_listed_and_not_followed() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let body = "flux: {$ref: 'other.asdf#/meta/flux'}\nnone: {$ref: 'none.asdf#/x'}\n";
    let file = add(dir.path(), "main.asdf", &Sample::new(body));
    let far = add(dir.path(), "other.asdf", &other(b"hello"));
    let watch = Watch::new(&far);
    let main = Mount::new(&file, &["-r"]);
    assert_eq!(main.names("arrays"), Vec::<String>::new());
    let lines = main.table("info/arrays.tsv");
    let lines: Vec<_> = lines[1..]
        .iter()
        .map(|it| [&*it[0], &it[6], &it[8]])
        .collect();
    let why = "in another file; mount that";
    assert_eq!(
        lines,
        [
            ["flux", "other.asdf#/meta/flux", why],
            ["none", "none.asdf#/x", why]
        ]
    );
    assert!(!watch.was_opened());
}

/// Every name in a tree of directories, without following links.
fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), found);
        }
        found.push(entry.path());
    }
}

/// Tells whether a file has been opened by anybody.
struct Watch(std::os::fd::OwnedFd);

impl Watch {
    fn new(path: &Path) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN).unwrap();
        Self(watch)
    }

    fn was_opened(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 4096]).is_ok_and(|n| n > 0)
    }
}

#[test]
fn no_hostile_uri_opens_a_file_outside() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let inside = root.join("in");
    fs::create_dir_all(inside.join("sub")).unwrap();
    let secret = add(&root, "secret.asdf", &other(b"hello"));
    symlink("../secret.asdf", inside.join("link.asdf")).unwrap();
    symlink("..", inside.join("up")).unwrap();
    let absolute = secret.to_str().unwrap();
    let uris = [
        "../secret.asdf".to_owned(),
        "%2e%2e/secret.asdf".to_owned(),
        "..%2fsecret.asdf".to_owned(),
        "sub/../../secret.asdf".to_owned(),
        "./sub/.././../secret.asdf".to_owned(),
        "in/../../secret.asdf".to_owned(),
        "link.asdf".to_owned(),
        "up/secret.asdf".to_owned(),
        absolute.to_owned(),
        format!("file:{absolute}"),
        format!("file://{absolute}"),
        format!("file://localhost{absolute}"),
        format!("FILE://{absolute}"),
        format!("file:///proc/self/root{absolute}"),
        format!("/proc/self/root{absolute}"),
        format!("http://127.0.0.1{absolute}"),
        format!("//127.0.0.1{absolute}"),
    ];
    let body: String = uris
        .iter()
        .enumerate()
        .map(|(i, uri)| {
            let fields = format!("source: '{uri}', datatype: uint8, byteorder: big, shape");
            array_with(&format!("a{i}"), &format!("{fields}: [5]"))
                + &array_with(&format!("s{i}"), &format!("{fields}: ['*']"))
                + &format!("r{i}: {{$ref: '{uri}#/meta/flux'}}\n")
        })
        .collect();
    let file = add(&inside, "main.asdf", &Sample::new(&body));
    // so that a link to it would be possible
    let elsewhere = Mount::new(&secret, &["-r"]);
    let watch = Watch::new(&secret);

    let mount = Mount::new(&file, &["-r"]);
    let mut names = Vec::new();
    walk(&mount.dir, &mut names);
    for path in &names {
        let outside = path.is_symlink() || fs::read(path).is_ok_and(|bytes| bytes == b"hello");
        assert!(!outside, "{}", path.display());
    }
    for i in 0..uris.len() {
        let name = format!("arrays/a{i}.bin");
        assert_eq!(mount.read(&name).unwrap_err().raw_os_error(), Some(5));
        assert_ne!(problem(&mount, &format!("s{i}")), "");
        assert_ne!(problem(&mount, &format!("r{i}")), "");
    }
    asdf_mount(["--check", file.to_str().unwrap()]);
    asdf_mount(["--list", file.to_str().unwrap()]);
    assert!(!watch.was_opened());
    fs::read(&secret).unwrap();
    assert!(watch.was_opened(), "the watch sees nothing at all");
    drop((mount, elsewhere));
}

#[test]
fn an_external_source_in_the_mount_itself_does_not_wait_for_itself() {
    if !can_mount() {
        return;
    }
    let fields = "datatype: uint8, byteorder: big, shape: [5]";
    let body = array_with("x", &format!("source: 'mnt/blocks/0.bin', {fields}"));
    let within = Sample::new("a: 1\n").block(Block::raw(b"hello"));
    let place = Place::of(&Sample::new(&body).block(Block::raw(&within.bytes())));
    let said = place.mount(&["-r", "-o", "threads=1"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let said = run(Command::new("cat").arg(place.mnt.join("arrays/x.bin")));
    place.unmount();
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(!said.stderr.is_empty());
}
