//! Far files that are looked at again, by this mount or the next one, cost next to nothing; and what a mount says of their servers.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{Mount, PROGRAM, asdf_mount, can_mount, eventually, run};
use crate::far_server::Server;
use crate::sample::{Block, Sample, array, noise};

/// What a mount of a bucket that a server has is made by.
fn of_bucket(server: &Server, options: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env("AWS_ENDPOINT_URL", server.origin())
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .args(["-o", &format!("no-sign-request,{options}")]);
    command
}

/// A file with a text of about so many bytes in front of a block of 1 MiB.
fn file_of_text(len: usize) -> Vec<u8> {
    let lines = "k: 0123456789\n".repeat(len / 14);
    let tree = format!("{}{lines}", array("a", 0, "uint8", "[1048576]"));
    Sample::new(&tree)
        .block(Block::raw(&noise(1 << 20)))
        .bytes()
}

/// How many requests came, and how many bytes of files were sent.
fn cost(server: &Server) -> (usize, usize) {
    let state = server.state();
    (state.requests.len(), state.sent)
}

/// Of each file its end came too, and four times as much as a text that was a little longer than 64 KiB.
#[test]
fn trees_alone_cost_hardly_more_than_their_bytes_and_then_nothing() {
    if !can_mount() {
        return;
    }
    let server = Server::new();
    let lens = [500, 13_000, 60_000, 70_000, 200_000, 800_000];
    for (n, len) in (0..).zip(lens) {
        server.put(&format!("/pub/x/{n}.asdf"), file_of_text(len));
    }
    let kept = TempDir::new().unwrap();
    let kept = fs::canonicalize(kept.path()).unwrap().join("kept");
    let all_trees = |mount: &Mount| {
        let texts = (0..lens.len()).map(|n| mount.text(&format!("{n}.asdf/tree.yaml")).len());
        texts.sum::<usize>()
    };
    let options = format!("show=tree,open=2,remote-cache={}:64M", kept.display());
    let mount = Mount::by(&mut of_bucket(&server, &options), Path::new("s3://pub/x/"));
    let len = all_trees(&mount);
    let (requests, sent) = cost(&server);
    assert!(
        sent <= len * 13 / 10 + lens.len() * (64 << 10),
        "{sent} for {len}"
    );
    assert!(!server.state().requests.iter().any(|request| {
        // of none the end, where the block index is
        let range = request
            .lines()
            .find_map(|line| line.strip_prefix("range: bytes="));
        let last = range.and_then(|range| range.split_once('-')).unwrap().1;
        last.trim().parse::<usize>().unwrap() > 1 << 20
    }));
    assert_eq!(mount.names("3.asdf"), ["tree.yaml"]);
    let table = mount.text(".asdf-mount/files.tsv");
    let row = table.lines().find(|line| line.starts_with("5.asdf\t"));
    assert!(row.unwrap().contains("\topen\t-\t-\t"), "{table}");
    assert_eq!(all_trees(&mount), len);
    assert_eq!(cost(&server), (requests, sent), "the second pass");
    drop(mount);
    let mount = Mount::by(&mut of_bucket(&server, &options), Path::new("s3://pub/x/"));
    assert_eq!(all_trees(&mount), len);
    assert_eq!(cost(&server), (requests, sent), "the next mount");
}

/// The first piece came with each mount, although it was on disk.
#[test]
fn the_next_mount_of_a_url_asks_whether_the_file_is_the_same() {
    if !can_mount() {
        return;
    }
    let (server, kept) = (Server::new(), TempDir::new().unwrap());
    server.put("/a.asdf", file_of_text(13_000));
    server.put("/b.asdf", file_of_text(100_000));
    let kept = fs::canonicalize(kept.path()).unwrap().join("kept");
    let options = format!("remote-cache={}:64M", kept.display());
    let list = kept.with_file_name("list");
    let urls = ["/a.asdf", "/b.asdf"].map(|path| server.url(path).display().to_string());
    fs::write(&list, urls.join("\n")).unwrap();
    let read_one = || {
        let mount = Mount::new(&server.url("/a.asdf"), &["-o", &options]);
        mount.read("arrays/a.bin").unwrap()
    };
    let read_many = || {
        let files_from = ["--files-from", list.to_str().unwrap()];
        let place = TempDir::new().unwrap();
        let place = fs::canonicalize(place.path()).unwrap();
        let said = asdf_mount(
            [
                &["-o", &options],
                &files_from[..],
                &[place.to_str().unwrap()],
            ]
            .concat(),
        );
        assert_eq!(said.code, 0, "{said:?}");
        let trees = ["a.asdf", "b.asdf"].map(|name| fs::read(place.join(name).join("tree.yaml")));
        let gone = asdf_mount([Path::new("-u"), &place]);
        assert_eq!(gone.code, 0, "{gone:?}");
        trees.map(Result::unwrap)
    };
    let (array, trees) = (read_one(), read_many());
    let (requests, sent) = cost(&server);
    assert!(read_one() == array && read_many() == trees);
    let (again, sent_again) = cost(&server);
    assert_eq!(sent_again, sent);
    assert!(
        (requests + 1..=requests + 3).contains(&again),
        "{again} behind {requests}"
    );
    // of another state nothing is taken
    server.put("/a.asdf", file_of_text(14_000));
    assert!(read_one() == array && read_many()[0].len() > trees[0].len());
}

/// It did not say anything of the server.
#[test]
fn the_status_of_a_far_file_tells_of_its_server() {
    if !can_mount() {
        return;
    }
    let server = Server::new();
    server.put("/d/a.asdf", file_of_text(13_000));
    let mount = Mount::new(&server.url("/d/a.asdf?key=hush"), &["-o", "timeout=1"]);
    let line = |name: &str| {
        let status = mount.text("info/status");
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("{name:<10}")));
        line.unwrap_or_else(|| panic!("{status}")).to_owned()
    };
    assert_eq!(line("server"), server.origin());
    assert_eq!(
        line("validator"),
        "ETag \"v1\", changed at 2026-11-22T20:00:00Z"
    );
    assert_eq!(line("error"), "none");
    assert!(line("hits").contains(" pieces in memory, 0 on disk"));
    let (requests, sent) = cost(&server);
    assert_eq!(line("requests"), format!("{requests}, {sent} bytes came"));
    server.hang(Some("/d/a.asdf"));
    assert!(mount.read("blocks/0.bin").is_err());
    let error = line("error");
    assert!(
        error.contains("-o timeout=") && error.ends_with(" s ago"),
        "{error}"
    );
    assert!(!mount.text("info/status").contains("hush"));
    server.hang(None);
}

/// A search passed them by, and only the log told why.
#[test]
fn files_of_a_list_whose_servers_fail_are_told_of_also_when_they_are_closed() {
    if !can_mount() {
        return;
    }
    let (server, place) = (Server::new(), TempDir::new().unwrap());
    let place = fs::canonicalize(place.path()).unwrap();
    server.put("/good.asdf", file_of_text(500));
    server.put("/other.asdf", file_of_text(700));
    let urls = ["/good.asdf", "/missing.asdf", "/other.asdf"];
    let mut list = urls
        .map(|path| server.url(path).display().to_string())
        .to_vec();
    list.push("http://127.0.0.1:1/refused.asdf".to_owned());
    fs::write(place.join("list"), list.join("\n")).unwrap();
    let mountpoint = place.join("mnt");
    let said = run(Command::new(PROGRAM)
        .args(["-o", "timeout=1,open=1", "--files-from"])
        .args([place.join("list"), mountpoint.clone()]));
    assert_eq!(said.code, 0, "{said:?}");
    let text = |name: &str| fs::read_to_string(mountpoint.join(name));
    let bad = [
        ("missing.asdf", Errno::NOENT, "404"),
        // the server is asked until the time is over
        ("refused.asdf", Errno::TIMEDOUT, "refused"),
    ];
    for (name, errno, why) in bad {
        let names = fs::read_dir(mountpoint.join(name)).unwrap();
        assert_eq!(names.count(), 2, "info and tree.yaml");
        let unread = text(&format!("{name}/tree.yaml")).unwrap_err();
        assert_eq!(Errno::from_io_error(&unread), Some(errno), "{name}");
        let status = text(&format!("{name}/info/status")).unwrap();
        assert!(status.contains(why), "{status}");
        assert!(status.contains("\nserver    http://127.0.0.1:"), "{status}");
        assert!(status.contains("\nrequests  "), "{status}");
    }
    // each closes the one before
    for name in ["good.asdf", "other.asdf"] {
        assert!(text(&format!("{name}/tree.yaml")).unwrap().contains("k: "));
    }
    let (table, status) = (text(".asdf-mount/files.tsv"), text(".asdf-mount/status"));
    let (table, status) = (table.unwrap(), status.unwrap());
    for (name, _, why) in bad {
        let row = table.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(row.contains(why), "{table}");
        assert!(status.contains(&format!("problem   {name}: ")), "{status}");
    }
    let gone = asdf_mount([Path::new("-u"), &mountpoint]);
    assert_eq!(gone.code, 0, "{gone:?}");
}

/// It was empty for a second: the kernel had kept the length of before.
#[test]
fn a_tree_that_can_be_read_at_last_is_never_read_as_empty() {
    if !can_mount() {
        return;
    }
    let (server, place) = (Server::new(), TempDir::new().unwrap());
    let list = fs::canonicalize(place.path()).unwrap().join("list");
    let urls = ["/a.asdf", "/b.asdf"].map(|path| server.url(path).display().to_string());
    fs::write(&list, urls.join("\n")).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["-o", "timeout=1", "--files-from"]);
    let mount = Mount::by(&mut command, &list);
    let tree = mount.path("a.asdf/tree.yaml");
    // the file is tried again each second, by the open and not by the lookup before it
    assert!(mount.text("a.asdf/info/status").contains("404"));
    std::thread::park_timeout(Duration::from_millis(500));
    assert!(fs::read(&tree).is_err());
    server.put("/a.asdf", file_of_text(500));
    eventually("it is read", || {
        let read = fs::read(&tree);
        assert_ne!(read.as_ref().ok(), Some(&Vec::new()));
        read.is_ok()
    });
}

/// A listing and the attributes of its files were asked for again every ten seconds, also of an archive that never changes.
#[test]
fn of_what_never_changes_a_second_look_asks_nothing() {
    if !can_mount() {
        return;
    }
    let looked_at = |ttl: &str| {
        let server = Server::new();
        for name in ["a.asdf", "b.asdf", "y/c.asdf"] {
            let file = Sample::new(&array("flux", 0, "uint8", "[5]")).block(Block::raw(b"hello"));
            server.put(&format!("/pub/x/{name}"), file.bytes());
        }
        let mut command = of_bucket(&server, &format!("remote-ttl={ttl}"));
        let mount = Mount::by(&mut command, Path::new("s3://pub/x/"));
        let first = list(&mount);
        assert_eq!(first.matches(" flux.npy\n").count(), 3, "{first}");
        let before = asked(&server);
        (server, mount, first, before)
    };
    let (never, mount, first, before) = looked_at("never");
    let (again, other, _, least) = looked_at("0s");
    // the kernel keeps what it knows for a second
    eventually("asked again", || {
        list(&other);
        asked(&again) > least
    });
    assert_eq!(list(&mount), first);
    assert_eq!(asked(&never), before);
}

/// What `ls -lR` prints of a mount.
fn list(mount: &Mount) -> String {
    let said = run(Command::new("ls").arg("-lR").arg(&mount.dir));
    assert_eq!(said.code, 0, "{}", said.stderr);
    // that file tells how long ago the server was asked
    let lines = said.stdout.lines().filter(|line| !line.ends_with("status"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// How often files were asked for, and listings.
fn asked(server: &Server) -> (usize, usize) {
    let state = server.state();
    (state.requests.len(), state.listings)
}

/// What is shown of a key was taken for the key: there was no such object, or it was another one.
#[test]
fn objects_below_a_bucket_are_opened_by_their_keys() {
    let server = Server::new();
    let keys = ["%E2%80%8E.asdf", "\u{200e}.asdf"];
    for (blocks, key) in (1..).zip(keys) {
        let sample = (0..blocks).fold(Sample::new("a: 1\n"), |sample, _| {
            sample.block(Block::raw(b"hello"))
        });
        server.put(&format!("/pub/x/{key}"), sample.bytes());
    }
    // no URL leads to it, which the status tells of where all are looked at
    server.put("/pub/x/\u{85}.asdf", b"no ASDF".to_vec());
    let say = |action: &str, urls: &[&str]| {
        let mut command = of_bucket(&server, "timeout=5");
        let said = run(command.arg(action).args(urls));
        let code = if *urls == ["s3://pub/x/"] { 11 } else { 0 };
        assert_eq!(said.code, code, "{said:?}");
        said.stdout
    };
    let [percent, mark] = keys.map(|key| format!("s3://pub/x/{key}"));
    for urls in [&["s3://pub/x/"][..], &[&percent, &mark], &[&mark, &percent]] {
        let said = say("--check", urls);
        assert!(said.contains(": ok: 1 block,"), "{said}");
        assert!(said.contains(": ok: 2 blocks,"), "{said}");
    }
    let references = say("--references", &["s3://pub/x/"]);
    assert!(references.contains("%8E.asdf/") && references.contains("%8E.asdf#2/"));
    // another program knows nothing of what is shown here
    assert_eq!(say("--list", &[&mark]).matches("%E2").count(), 0);
}
