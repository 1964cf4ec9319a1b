//! What a new user meets first: where a mount goes, what is said of mistakes, and what programs get without one.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{
    Outcome, PROGRAM, Place, asdf_mount, assert_refused, can_mount, daemons_of, eventually,
    is_root, is_running, mount_table, mounted_at, run,
};
use crate::corpus::python;
use crate::sample::Sample;

/// The program in the directory of a place.
fn here(place: &Place, args: &[&str]) -> Outcome {
    run(Command::new(PROGRAM)
        .args(args)
        .current_dir(place.dir.path()))
}

#[test]
fn a_missing_mountpoint_is_made_and_removed() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::remove_dir(&place.mnt).unwrap();
    assert_eq!(place.mount(&[]).code, 0);
    assert!(place.mnt.join("tree.yaml").exists());
    place.unmount();
    assert!(!place.mnt.exists());
}

#[test]
fn the_directory_named_after_the_file_is_used_if_it_is_empty_or_dead() {
    if !can_mount() {
        return;
    }
    let mut place = Place::new();
    place.mnt = place.mnt.with_file_name("sample");
    fs::create_dir(&place.mnt).unwrap();
    assert_eq!(here(&place, &["sample.asdf"]).code, 0);
    let mut pid = [0; 10];
    let len = rustix::fs::getxattr(&place.mnt, "user.asdf.pid", &mut pid[..]).unwrap();
    let daemon = str::from_utf8(&pid[..len]).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(daemon).unwrap(), Signal::KILL).unwrap();
    eventually("gone", || !is_running(daemon));
    assert_eq!(here(&place, &["sample.asdf"]).code, 0);
    place.unmount();
    assert!(place.mnt.exists(), "it was there before");
    fs::write(place.mnt.join("mine"), "").unwrap();
    let said = here(&place, &["sample.asdf"]);
    assert_refused(
        &said,
        10,
        "sample: there already and not empty; name a MOUNTPOINT",
    );
    fs::rename(&place.file, place.dir.path().join("noext")).unwrap();
    assert_refused(
        &here(&place, &["noext"]),
        10,
        "name a MOUNTPOINT behind FILE",
    );
}

#[test]
fn a_second_mount_on_the_same_directory_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let said = place.mount(&["-r"]);
    let (file, mnt) = (fs::canonicalize(&place.file).unwrap(), place.mnt.display());
    let words = format!(
        "already mounted ({}); asdf-mount -u {mnt} first",
        file.display()
    );
    assert_refused(&said, 10, &words);
    place.unmount();
}

#[test]
fn what_a_mount_hides_is_told() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::write(place.mnt.join("mine"), "").unwrap();
    let said = place.mount(&[]);
    let words = "not empty; its 1 entry is hidden until you unmount";
    assert!(said.stderr.contains(words), "{}", said.stderr);
    assert_eq!(said.code, 0);
    place.unmount();
    // what is not mounted hides nothing
    fs::write(&place.file, "no ASDF file\n").unwrap();
    let said = place.mount(&[]);
    assert_ne!(said.code, 0, "{}", said.stderr);
    assert!(!said.stderr.contains("hidden"), "{}", said.stderr);
}

#[test]
fn a_mount_has_a_type_of_its_own_for_root_too() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let table = mount_table("mounts");
    let mnt = place.mnt.to_str().unwrap();
    let line = table.lines().find(|line| line.contains(mnt)).unwrap();
    assert_eq!(line.split(' ').nth(2), Some("fuse.asdf-mount"), "{line}");
    place.unmount();
}

/// A program that ends with the test.
struct Sleeping(Child);

impl Drop for Sleeping {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_mount_is_named_by_its_file_and_by_what_is_inside() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for name in [
        place.file.clone(),
        place.mnt.join("arrays"),
        place.mnt.join("tree.yaml"),
    ] {
        assert_eq!(place.mount(&[]).code, 0);
        let said = run(Command::new(PROGRAM).arg("-u").arg(&name));
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (0, ""),
            "{}",
            name.display()
        );
        assert!(mounted_at(&place.mnt).is_none());
    }
    assert_refused(
        &asdf_mount(["-u", "/nonexist"]),
        10,
        "no such file or directory",
    );
    assert_refused(&asdf_mount(["-u", "/proc"]), 10, "not a mounted ASDF file");
}

#[test]
fn what_keeps_a_mount_busy_is_named() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let mut sleep = Command::new("sleep");
    let sleep = Sleeping(sleep.arg("600").current_dir(&place.mnt).spawn().unwrap());
    let said = here(&place, &["-u", "mnt"]);
    let words = format!("busy: in use by sleep ({}): close", sleep.0.id());
    assert_refused(&said, 10, &words);
    // the command is not named as long as something else is
    let mut inside = Command::new(PROGRAM);
    let said = run(inside.args(["-u", "."]).current_dir(&place.mnt));
    assert_refused(&said, 10, &words);
    drop(sleep);
    place.unmount();
}

#[test]
fn a_file_that_is_something_else_is_called_by_its_name() {
    for (bytes, words) in [
        (&b"\x1f\x8b\x08\0\0\0\0\0"[..], "gunzip -k"),
        (b"\x89HDF\r\n\x1a\n\0", "HDF5"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "git lfs pull",
        ),
        (b"", "empty: 0 bytes"),
    ] {
        let place = Place::of(&Sample::of_text(bytes));
        assert_refused(&place.mount(&[]), 20, words);
    }
    assert_refused(&asdf_mount(["ftp://x.org/a.asdf"]), 11, "download it first");
    // nothing listens there
    let place = Place::new();
    let far = here(&place, &["-o", "timeout=2", "http://127.0.0.1:1/a.asdf"]);
    if cfg!(feature = "remote") {
        assert_refused(&far, 11, "Connection refused");
        assert_refused(&far, 11, "check the name of the host and the network");
    } else {
        assert_refused(&far, 2, "--features remote");
    }
    assert_refused(&here(&place, &["list"]), 11, "--list does that");
    let said = here(&place, &["mnt", "sample.asdf"]);
    assert_refused(&said, 2, "did you mean asdf-mount sample.asdf mnt?");
    let said = here(&place, &["sample.asdf", "sample.asdf", "mnt"]);
    assert_refused(&said, 2, "the same name as sample.asdf");
    let said = here(&place, &["--explode", "sample.asdf", "out"]);
    assert_refused(&said, 2, "did you mean --explode out sample.asdf?");
}

#[test]
fn mount_options_are_found_without_the_manual() {
    for args in [["-o", "help"].as_slice(), &["--help"]] {
        let said = asdf_mount(args);
        assert_eq!(said.code, 0);
        assert!(
            said.stdout.contains("allow_external=DIR"),
            "{}",
            said.stdout
        );
    }
    let short = asdf_mount(["-h"]).stdout;
    assert!(
        !short.contains("allow_external") && short.contains("-o help"),
        "{short}"
    );
    let said = asdf_mount(["-o", "verfy", "x.asdf", "m"]);
    assert_refused(&said, 2, "-o verfy: unknown option; did you mean verify?");
    let said = asdf_mount(["-o", "cache", "x.asdf", "m"]);
    assert_refused(&said, 2, "-o cache: needs a size, as in cache=256M");
    let mut narrow = Command::new(PROGRAM);
    let help = run(narrow.arg("--help").env("COLUMNS", "80")).stdout;
    let long = help.lines().find(|line| line.len() > 80);
    assert_eq!(long, None);
    let mut narrow = Command::new(PROGRAM);
    let help = run(narrow.arg("-h").env("COLUMNS", "60")).stdout;
    let mut usage = help.lines().take_while(|line| *line != "Arguments:");
    assert_eq!(usage.find(|line| line.len() > 60), None);
}

#[test]
fn lists_and_checks_of_directories_are_for_programs_too() {
    let place = Place::new();
    fs::write(place.dir.path().join("bad.asdf"), "hello").unwrap();
    let said = here(&place, &["--list", "--json", "."]);
    assert_eq!(said.code, 20);
    assert!(said.stderr.contains("bad.asdf: not an ASDF file but text"));
    let listed: Vec<serde_json::Value> = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [unread, listed] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(unread["file"], "./bad.asdf");
    assert!(unread["blocks"].is_null(), "{unread}");
    let why = unread["problems"][0].as_str().unwrap();
    assert!(why.starts_with("not an ASDF file but text"), "{why}");
    assert_eq!(listed["file"], "./sample.asdf");
    assert_eq!(listed["arrays"][0]["path"], "flux");
    assert_eq!(listed["arrays"][0]["shape"], serde_json::json!([5]));
    assert_eq!(listed["blocks"][0]["used_size"], 20);
    assert_eq!(listed["arrays"][0]["bytes"], 20);
    let said = here(&place, &["--list", "."]);
    assert_eq!(said.code, 20);
    let last = "2 files: 1 block, 1 array, 1 not read";
    assert_eq!(said.stdout.lines().last(), Some(last));
    let odd = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        a: !core/ndarray-1.0.0 {source: 7, shape: [2], datatype: int8, byteorder: little}\n...\n";
    fs::write(place.dir.path().join("odd.asdf"), odd).unwrap();
    let said = here(&place, &["--list", "-q", "."]);
    assert_eq!(said.code, 20);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(
        matches!(lines[..], [line] if line.starts_with("./odd.asdf: arrays/a: ")),
        "{lines:?}"
    );
    fs::remove_file(place.dir.path().join("odd.asdf")).unwrap();
    let said = here(&place, &["--check", "."]);
    assert_eq!(said.code, 20);
    let last = "2 files: 1 ok, 0 suspicious, 0 damaged, 1 not checked";
    assert_eq!(said.stdout.lines().last(), Some(last));
    let said = here(&place, &["--check", "-q", "sample.asdf"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    let said = here(&place, &["--check", "--json", "."]);
    let verdicts: Vec<serde_json::Value> = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let why = verdicts[0]["findings"][0]["text"].as_str().unwrap();
    assert!(why.starts_with("not an ASDF file but text"), "{why}");
    let verdicts: Vec<_> = verdicts.iter().map(|object| &object["verdict"]).collect();
    assert_eq!(verdicts, ["not checked", "ok"]);
    // what is in order is left out for programs too
    let said = here(&place, &["--check", "-q", "--json", "sample.asdf"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    let said = here(&place, &["--list", "-q", "--json", "sample.asdf"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
}

#[test]
fn a_tree_is_printed_as_it_stands_and_as_json() {
    let place = Place::new();
    let said = here(&place, &["--tree", "sample.asdf"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(
        fs::read(&place.file)
            .unwrap()
            .starts_with(said.stdout.as_bytes())
    );
    let said = here(&place, &["--tree", "--json", "sample.asdf"]);
    let tree: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(tree["!tag"], "tag:stsci.edu:asdf/core/asdf-1.1.0");
    assert_eq!(tree["flux"]["shape"], serde_json::json!([5]));
    assert_eq!(tree["flux"]["!file"], "arrays/flux.npy");
    if !can_mount() {
        return;
    }
    assert_eq!(place.mount(&["-r"]).code, 0);
    let shown = fs::read_to_string(place.mnt.join("info/tree.json")).unwrap();
    place.unmount();
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&shown), json(&said.stdout));
    assert!(shown.lines().all(|line| line.len() < 100), "{shown}");
    let mut bytes = fs::read(&place.file).unwrap();
    let key = bytes.windows(5).position(|window| window == b"flux:");
    bytes[key.unwrap() + 4] = b'[';
    fs::write(&place.file, bytes).unwrap();
    assert_eq!(place.mount(&["-r"]).code, 0);
    let shown = fs::read_to_string(place.mnt.join("info/tree.json")).unwrap();
    place.unmount();
    assert!(shown.starts_with("{\"!error\":\"line "), "{shown}");
}

#[test]
fn a_log_file_has_the_time_of_each_line() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let log = place.dir.path().join("log");
    let said = place.mount(&["-v", "--log-file", log.to_str().unwrap()]);
    assert_eq!(said.code, 0);
    place.unmount();
    let log = fs::read_to_string(log).unwrap();
    let year = |line: &str| line.get(..2) == Some("20") && line.get(10..11) == Some("T");
    assert!(log.lines().count() >= 2 && log.lines().all(year), "{log}");
    let file = fs::canonicalize(&place.file).unwrap();
    let mount = format!("]: {} on {}: ", file.display(), place.mnt.display());
    let mut lines = log.lines().skip_while(|line| !line.contains(": mounted "));
    assert!(
        lines.next().is_some() && lines.all(|line| line.contains(&mount)),
        "{log}"
    );
}

#[test]
fn a_mount_that_is_not_used_goes_if_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // on a busy machine the mount may be gone before its file is opened
    let held = loop {
        assert_eq!(place.mount(&["-o", "idle=100ms"]).code, 0);
        if let Ok(file) = fs::File::open(place.mnt.join("tree.yaml")) {
            break file;
        }
        eventually("unmounted", || mounted_at(&place.mnt).is_none());
    };
    let daemon = daemons_of(&place.mnt)[0];
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert!(mounted_at(&place.mnt).is_some(), "a file of it is open");
    drop(held);
    eventually("unmounted", || mounted_at(&place.mnt).is_none());
    eventually("ended", || !is_running(daemon));
}

#[test]
fn a_mount_that_would_lack_descriptors_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for limit in ["8", "12", "20"] {
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let mut shell = Command::new("bash");
        let shell = shell.args(["-c", &script, PROGRAM]);
        let said = run(shell.arg(&place.file).arg(&place.mnt).stdin(Stdio::null()));
        assert_eq!(said.code, 1, "{limit}: {}", said.stderr);
        assert!(mounted_at(&place.mnt).is_none());
    }
}

#[test]
fn bash_completes_files_options_and_mounts() {
    let place = Place::new();
    let script = r#"
        eval "$("$0" --completions bash)"
        complete_line() {
            COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
            _asdf_mount 2>/dev/null
            echo "${COMPREPLY[*]}"
        }
        complete_line "asdf-mount sa"
        complete_line "asdf-mount -o ro,gr"
        complete_line "asdf-mount --che"
        complete_line "asdf-mount -o fits,pre"
        complete_line "asdf-mount -o show="
        complete_line "asdf-mount sp\\ ace/m"
        complete_line "asdf-mount 'sp ace/m"
        complete_line "asdf-mount --preview sa"
    "#;
    let folder = place.dir.path().join("sp ace");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("more.asdf"), "").unwrap();
    let said = run(Command::new("bash")
        .args(["-c", script, PROGRAM])
        .current_dir(place.dir.path()));
    let want = [
        "sample.asdf",
        "ro,grow=auto ro,grow=never",
        "--check",
        "fits,previews fits,previews=",
        "tree arrays blocks info",
        "sp ace/more.asdf",
        "sp ace/more.asdf",
        "sample.asdf",
    ];
    assert_eq!(said.stdout.lines().collect::<Vec<_>>(), want);
    for shell in ["zsh", "fish"] {
        let said = asdf_mount(["--completions", shell]);
        let script = said.stdout;
        let open = ["@FLAGS@", "@MOUNT_OPTIONS@", "@MOUNT_POINTS@"];
        let open = open.iter().any(|part| script.contains(part));
        assert!(said.code == 0 && !open, "{script}");
        assert!(!script.contains("FILEs"), "{script}");
        // its colons would end the specification
        assert!(!script.contains(":_values"), "{script}");
        if run(Command::new("sh").args(["-c", &format!("command -v {shell}")])).code == 0 {
            let read = run(Command::new(shell).args(["-n", "-c", &script]));
            assert_eq!((read.code, read.stderr.as_str()), (0, ""), "{shell}");
        }
    }
}

/// A blank in the name of a mountpoint was completed to the escape that the table of mounts has for it.
#[test]
fn mountpoints_are_completed_as_they_are_called() {
    if !can_mount() {
        return;
    }
    let mut place = Place::new();
    place.mnt = place.mnt.with_file_name("m n");
    assert_eq!(place.mount(&[]).code, 0);
    let script = r#"
        eval "$("$0" --completions bash)"
        for line in "-u m" "--revert $PWD/m"; do
            COMP_LINE="asdf-mount $line" COMPREPLY=()
            COMP_POINT=${#COMP_LINE}
            _asdf_mount 2>/dev/null
            echo "${COMPREPLY[*]}"
        done
    "#;
    let folder = fs::canonicalize(place.dir.path()).unwrap();
    let said = run(Command::new("bash")
        .args(["-c", script, PROGRAM])
        .current_dir(&folder));
    let fish =
        "$argv[1] --completions fish | source; __asdf_mount_points; complete -C 'asdf-mount '";
    let has_fish = run(Command::new("sh").args(["-c", "command -v fish"])).code == 0;
    fs::write(folder.join("notes.txt"), "").unwrap();
    let mut in_fish = Command::new("fish");
    in_fish.args(["-c", fish, PROGRAM]).current_dir(&folder);
    let of_fish = has_fish.then(|| run(&mut in_fish));
    place.unmount();
    let want = format!("m n\n{}/m n\n", folder.display());
    assert_eq!(said.stdout, want);
    if let Some(said) = of_fish {
        let mountpoint = format!("{}/m n", folder.display());
        let names = said.stdout.lines();
        let names = names.map(|line| line.split('\t').next().unwrap_or(line));
        let (points, names): (Vec<&str>, Vec<&str>) = names.partition(|name| name.starts_with('/'));
        assert!(points.contains(&mountpoint.as_str()), "{said:?}");
        assert_eq!(names, ["m n/", "mnt/", "sample.asdf"]);
    }
}

#[test]
fn the_manual_and_the_cookbook_are_in_the_program() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    for (flag, page) in [
        ("--man", "asdf-mount.1"),
        ("--semantics", "asdf-mount-semantics.7"),
        ("--cookbook", "asdf-mount-cookbook.7"),
    ] {
        let said = asdf_mount([flag]);
        let is_same = said.stdout == fs::read_to_string(pages.join(page)).unwrap();
        assert!(is_same, "{flag} prints another text than man/{page} has");
    }
}

/// What stands between two texts.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let rest = text.split_once(start).unwrap().1;
    rest.split_once(end).unwrap().0
}

#[test]
fn the_transcript_of_the_readme_runs_as_it_stands() {
    let Some(python) = python().filter(|_| can_mount()) else {
        println!("skipped: no Python with asdf, or no FUSE");
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let demo = fs::read_to_string(root.join("scripts/demo")).unwrap();
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let transcript = between(&readme, "```\n$ ", "\n```");
    let (mut script, mut want) = (String::new(), String::new());
    for line in format!("$ {transcript}").lines() {
        match line.strip_prefix("$ ") {
            Some(command) => script.extend([command, "\n"]),
            None => want.extend([line, "\n"]),
        }
    }
    let place = tempfile::TempDir::new().unwrap();
    let bins = [Path::new(PROGRAM), &python].map(|program| program.parent().unwrap().to_owned());
    let path = std::env::join_paths(
        bins.into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let path = path.unwrap();
    let sample = between(&demo, "<<'PYTHON'\n", "\nPYTHON");
    let made = run(Command::new(&python)
        .args(["-c", sample])
        .current_dir(place.path()));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mut shell = Command::new("bash");
    let shell = shell.args(["-e", "-c", &script]).env("PATH", path);
    let said = run(shell.current_dir(place.path()));
    assert_eq!((said.code, said.stdout), (0, want), "{}", said.stderr);
}
