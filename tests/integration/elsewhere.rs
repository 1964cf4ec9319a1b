//! References to other files, and what may be opened for them.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::{Mount, can_mount, eventually};
use crate::sample::{Block, Sample, array};

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
fn a_reference_links_to_the_mount_of_the_other_file_while_there_is_one() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let body = "flux: {$ref: 'sub/my%20other.asdf#/meta/flux'}\nall: [{$ref: 'sub/my%20other.asdf#/meta'}]\n\
                via: {$ref: './sub/my%20other.asdf#/first'}\nwhole: {$ref: sub/my%20other.asdf}\n\
                title: {$ref: 'sub/my%20other.asdf#/meta/title'}\nnone: {$ref: 'none.asdf#/x'}\nout: {$ref: '../x.asdf#/x'}\n";
    let file = add(dir.path(), "main.asdf", &Sample::new(body));
    fs::create_dir(dir.path().join("sub")).unwrap();
    let far = add(&dir.path().join("sub"), "my other.asdf", &other(b"hello"));
    let main = Mount::new(&file, &["-r"]);
    assert_eq!(main.names("arrays"), ["all"]);
    assert!(problem(&main, "flux").contains("my other.asdf is not mounted"));
    assert!(problem(&main, "none").contains("none.asdf is not mounted"));
    assert!(problem(&main, "out").contains("outside"));

    let elsewhere = Mount::new(&far, &["-r"]);
    eventually("the links are there", || {
        main.path("arrays/flux.bin").exists()
    });
    assert_eq!(
        main.names("arrays"),
        ["all", "flux.bin", "flux.npy", "via.bin", "via.npy", "whole"]
    );
    for (link, target) in [
        ("flux.bin", "meta/flux.bin"),
        ("via.npy", "meta/flux.npy"),
        ("all/0", "meta"),
        ("whole", ""),
    ] {
        let target = elsewhere.path("arrays").join(target);
        let link = main.path("arrays").join(link);
        assert_eq!(fs::read_link(link).unwrap(), target);
    }
    assert_eq!(main.read("arrays/via.bin").unwrap(), b"hello");
    assert_eq!(main.read("arrays/all/0/flux.bin").unwrap(), b"hello");
    assert_eq!(problem(&main, "flux"), "");
    assert!(problem(&main, "title").contains("no array"));

    elsewhere.unmount();
    eventually("the links are gone", || main.names("arrays") == ["all"]);
}

#[test]
fn two_files_that_refer_to_each_other_do_not_wait_for_each_other() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let files = ["a", "b"].map(|name| {
        let far = if name == "a" { "b" } else { "a" };
        let body = format!(
            "{}far: {{$ref: '{far}.asdf#'}}\nown: {{$ref: '{name}.asdf#/x'}}\n",
            array("x", 0, "uint8", "[5]")
        );
        let sample = Sample::new(&body).block(Block::raw(name.repeat(5).as_bytes()));
        add(dir.path(), &format!("{name}.asdf"), &sample)
    });
    let mounts = files.map(|file| Mount::new(&file, &["-r", "-o", "threads=1"]));
    for (mount, name) in mounts.iter().zip(["a", "b"]) {
        eventually("the links are there", || mount.path("arrays/far").exists());
        let far = mount.read("arrays/far/far/far/x.bin").unwrap();
        assert_ne!(far, name.repeat(5).as_bytes());
        assert_eq!(
            mount.read("arrays/far/far/own.bin").unwrap(),
            name.repeat(5).as_bytes()
        );
    }
}
