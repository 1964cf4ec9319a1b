//! What the command does without mounting: help, refusal of wrong usage, `--list`, `--check`, completions.

use std::fs;
use std::path::Path;
use std::process::Command;

#[cfg(feature = "fuse")]
use crate::common::{Mount, can_mount};
use crate::common::{PROGRAM, Place, asdf_mount, assert_refused, mounted_at, run};
use crate::sample::{Block, Index, Sample, array, array_with, noise};

#[test]
fn version_and_help_go_to_standard_output() {
    let version = asdf_mount(["-V"]);
    assert_eq!(
        (version.code, version.stdout.trim()),
        (0, concat!("asdf-mount ", env!("CARGO_PKG_VERSION")))
    );
    for flag in ["-h", "--help"] {
        let help = asdf_mount([flag]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        assert!(help.stdout.contains("MOUNTPOINT"), "{}", help.stdout);
    }
}

#[test]
fn usage_errors_exit_with_2() {
    let place = Place::new();
    for options in [
        &["--nonsense"][..],
        &["-o", "nonsense"],
        &["-o", "cache=many"],
        &["-o", "allow_external=/nosuch"],
        &["--completions", "csh"],
    ] {
        let said = place.mount(options);
        assert_eq!(said.code, 2, "{options:?}: {}", said.stderr);
        assert!(!said.stderr.is_empty());
        assert!(mounted_at(&place.mnt).is_none());
    }
    assert_eq!(asdf_mount(Vec::<&str>::new()).code, 2);
}

#[cfg(not(feature = "fuse"))]
#[test]
fn a_program_without_fuse_names_all_that_it_does() {
    let place = Place::new();
    let refused = place.mount(&[]);
    assert_refused(&refused, 30, "built without FUSE: only --check, --list, ");
    for action in [
        "--tree",
        "--preview",
        "--page",
        "--references",
        "--explode",
        "--implode",
        "--compact",
    ] {
        assert!(refused.stderr.contains(action), "{action}: {refused:?}");
    }
}

#[cfg(not(feature = "remote"))]
#[test]
fn a_url_is_refused_by_a_program_that_cannot_read_it() {
    for action in ["--list", "--check", "--foreground"] {
        let refused = asdf_mount([action, "https://127.0.0.1:9/a.asdf?token=hush"]);
        assert_eq!((refused.code, &*refused.stdout), (2, ""), "{refused:?}");
        let said = &refused.stderr;
        assert!(
            said.contains("--features remote") && !said.contains("hush"),
            "{said}"
        );
    }
}

#[test]
fn an_option_that_would_have_no_effect_is_refused() {
    let place = Place::new();
    let pid = place.dir.path().join("pid");
    let with_pid = ["--list", "--pid-file", pid.to_str().unwrap()];
    for (options, told) in [
        (&["--check", "-f"][..], "--foreground"),
        (&["--check", "-r"], "--read-only"),
        (&["--check", "--log-file", "/nosuch/log"], "--log-file"),
        (&["--check", "-o", "cache=32M,umask=022"], "-o umask"),
        (&["--check", "-o", "verify"], "-o verify"),
        (&with_pid, "--pid-file"),
        (&["--list", "-d"], "--debug"),
        (&["--list", "-o", "validate=off"], "-o validate"),
        (&["--explode", "parts", "-q"], "--quiet"),
        (&["--implode", "out", "-o", "ro"], "-o ro"),
        (&["-u", "-v"], "--verbose"),
        (&["-u", "-o", "force"], "-o force"),
        (&["--completions", "bash", "-r"], "--read-only"),
        (&["--check", "--stats"], "--stats"),
        (&["--list", "--repair"], "--repair"),
        (&["--tree", "--size", "200"], "--size"),
        (&["--list", "--timeout", "4"], "--timeout"),
        (&["--revert", "--timeout", "4"], "--timeout"),
        (&["--list", "-0"], "-0"),
        (&["--list", "-o", "timeout=4s"], "-o timeout"),
        (&["--list", "-o", "match=*"], "-o match"),
    ] {
        let said = run(Command::new(PROGRAM).args(options).arg(&place.file));
        let advice = format!("asdf-mount: {told}: has no effect with ");
        assert_refused(&said, 2, &advice);
        assert!(said.stderr.ends_with("; leave it out\n"), "{said:?}");
    }
    assert!(!pid.exists());
}

#[test]
fn an_action_takes_the_options_of_mount_that_it_heeds_and_those_for_others() {
    let place = Place::new();
    let external = format!("allow_external={}", place.dir.path().display());
    let of_all = format!("force,cache=32M,{external},_netdev,nofail,noatime,x-systemd.automount");
    let of_check = format!("{of_all},validate=strict,max-check=1G");
    let parts = place.dir.path().join("parts");
    for action in [
        &["--check", "-o", &of_check][..],
        &["--list", "-o", &of_all],
        &["--explode", parts.to_str().unwrap(), "-o", &of_all],
    ] {
        let said = run(Command::new(PROGRAM).args(action).arg(&place.file));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{action:?}");
    }
}

#[test]
fn an_unknown_mount_option_is_named() {
    assert!(
        Place::new()
            .mount(&["-o", "ro,nonsense"])
            .stderr
            .contains("nonsense")
    );
}

#[test]
fn the_list_shows_what_a_mount_would_show() {
    let place = Place::new();
    let said = run(Command::new(PROGRAM).arg("--list").arg(&place.file));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    for word in [
        "tree.yaml",
        "blocks",
        "0.bin",
        "arrays",
        "flux.bin",
        "flux.npy",
        "20",
    ] {
        assert!(
            said.stdout.contains(word),
            "{word} is not in {}",
            said.stdout
        );
    }
}

/// Where an array lies in its block could be read only in a mount.
#[test]
fn the_list_for_programs_says_where_arrays_lie() {
    let fields = "source: 0, datatype: int16, byteorder: big, shape: [3], strides: [4], offset: 2";
    let tree = format!(
        "asdf_library: {{name: mine, version: 1.2}}\n{}{}",
        array_with("a", fields),
        array_with("b", "data: [.inf, -.inf, .nan], datatype: float64"),
    );
    let place = Place::of(&Sample::new(&tree).block(Block::raw(&noise(12))));
    let said = run(Command::new(PROGRAM)
        .args(["--list", "--json", "--stats"])
        .arg(&place.file));
    let list: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(list["asdf_library"], "mine 1.2");
    let (block, a, b) = (&list["blocks"][0], &list["arrays"][0], &list["arrays"][1]);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for (object, key, want) in [
        (block, "header_size", "48"),
        (block, "flags", "0"),
        (block, "framing", "null"),
        (block, "checksum_state", "\"unverified\""),
        (block, "arrays", "[\"a\"]"),
        (block, "problem", "null"),
        (a, "source", "0"),
        (a, "strides", "[4]"),
        (a, "offset", "2"),
        (b, "source", "\"inline\""),
        (b, "strides", "null"),
    ] {
        assert_eq!(object[key], json(want), "{key}");
    }
    assert_eq!(block["checksum"].as_str().map(str::len), Some(32));
    let want = r#"{"min": "-.inf", "max": ".inf", "mean": ".nan", "nan": 1, "problem": null}"#;
    assert_eq!(b["stats"], json(want));
}

/// The list said nothing of damage, and with `-q` more than without.
#[test]
fn the_list_tells_of_damage() {
    let place = Place::new();
    let whole = fs::read(&place.file).unwrap();
    let start = whole.windows(4).position(|at| at == b"\xd3BLK").unwrap();
    fs::write(&place.file, &whole[..start + 60]).unwrap();
    let list = |flags: &[&str]| {
        let said = run(Command::new(PROGRAM)
            .arg("--list")
            .args(flags)
            .arg(&place.file));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        said.stdout
    };
    let problem = format!("{}: block 0: ", place.file.display());
    for flags in [&[][..], &["-q"]] {
        let said = list(flags);
        let told = said.lines().filter(|line| line.starts_with(&problem));
        assert_eq!(told.count(), 1, "{said}");
    }
    assert!(list(&[]).contains("arrays/flux.npy"));
    let json = list(&["--json", "--stats", "-q"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let stats = &json["arrays"][0]["stats"];
    assert!(stats["min"].is_null());
    let why = stats["problem"].as_str().unwrap();
    assert!(why.starts_with("block 0: "), "{why}");
}

/// It was as if all had been looked at and was in order.
#[test]
fn a_directory_without_asdf_files_is_not_in_order() {
    let place = Place::new();
    fs::rename(&place.file, place.file.with_extension("fits")).unwrap();
    for action in ["--check", "--list"] {
        let said = run(Command::new(PROGRAM).arg(action).arg(place.dir.path()));
        let words = "no file below it is named *.asdf; -o match=GLOB finds others";
        assert_refused(&said, 11, words);
    }
}

#[test]
fn a_check_of_a_clean_file_exits_with_0() {
    let said = asdf_mount([Path::new("--check"), &Place::new().file]);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
}

#[test]
fn a_check_names_what_is_suspicious_and_exits_with_1() {
    let wrong_index = Sample::new("a: 1\n")
        .block(Block::raw(&noise(20)))
        .index(Index::Of(vec![7]));
    let said = asdf_mount([Path::new("--check"), &Place::of(&wrong_index).file]);
    assert_eq!(said.code, 1, "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("index"), "{}", said.stdout);
}

/// The same of a stream whose own checksum is cut off, or is wrong behind one byte more than the header says: both were ok.
#[test]
fn a_check_tells_of_a_stream_that_ends_elsewhere() {
    let mut stored = Block::zlib(&noise(20)).stored().to_vec();
    let cut = stored[..stored.len() - 2].to_vec();
    *stored.last_mut().unwrap() ^= 1;
    for (stored, len, why) in [
        (cut, 20, "does not end as it should behind its 20 bytes"),
        (stored, 19, "goes on behind its 19 bytes"),
    ] {
        let block = Block::coded(*b"zlib", stored, len);
        let said = asdf_mount([
            Path::new("--check"),
            &Place::of(&Sample::new("a: 1\n").block(block)).file,
        ]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.stdout.contains(why), "{said:?}");
    }
}

#[test]
fn a_check_of_a_damaged_file_exits_with_23() {
    let wrong_checksum = Sample::new("a: 1\n").block(Block::raw(&noise(20)).checksum([1; 16]));
    let outside = Sample::new(&array("flux", 0, "int32", "[500]")).block(Block::raw(&noise(20)));
    let cut_short = Place::new();
    let whole = fs::read(&cut_short.file).unwrap();
    let start = whole
        .windows(4)
        .position(|bytes| bytes == b"\xd3BLK")
        .unwrap();
    fs::write(&cut_short.file, &whole[..start + 60]).unwrap();
    for (place, word) in [
        (Place::of(&wrong_checksum), "checksum"),
        (Place::of(&outside), "flux"),
        (cut_short, "block 0"),
    ] {
        let said = asdf_mount([Path::new("--check"), &place.file]);
        assert_eq!(said.code, 23, "{}{}", said.stdout, said.stderr);
        assert!(said.stdout.contains(word), "{word}: {}", said.stdout);
    }
}

#[test]
fn a_check_of_several_files_exits_with_the_status_of_the_worst() {
    let odd = Sample::new("a: 1\n")
        .block(Block::raw(&noise(20)))
        .index(Index::Of(vec![7]));
    let wrong = Sample::new("a: 1\n").block(Block::raw(&noise(20)).checksum([1; 16]));
    let newer = String::from_utf8(Sample::new("a: 1\n").tree().to_vec()).unwrap();
    let newer = newer.replace("#ASDF 1.0.0", "#ASDF 2.0.0");
    let places = [
        (0, Place::new()),
        (1, Place::of(&odd)),
        (11, Place::new()),
        (21, Place::of(&Sample::of_text(newer.as_bytes()))),
        (20, Place::of(&Sample::of_text(b"SIMPLE  ="))),
        (23, Place::of(&wrong)),
    ];
    fs::remove_file(&places[2].1.file).unwrap();
    for (i, (worst, one)) in places.iter().enumerate() {
        for (_, other) in &places[..=i] {
            for files in [[&one.file, &other.file], [&other.file, &one.file]] {
                let said = run(Command::new(PROGRAM).arg("--check").args(files));
                assert_eq!(said.code, *worst, "{}{}", said.stdout, said.stderr);
            }
        }
    }
}

#[test]
fn a_check_of_a_directory_tells_of_its_files_in_order() {
    let dir = tempfile::TempDir::new().unwrap();
    // the first takes longer than the others
    for n in 0..30 {
        let data = noise(if n == 0 { 8 << 20 } else { 20 });
        let sample = Sample::new("a: 1\n").block(Block::raw(&data));
        fs::write(dir.path().join(format!("{n:02}.asdf")), sample.bytes()).unwrap();
    }
    fs::write(dir.path().join("07.asdf"), "no ASDF").unwrap();
    let said = run(Command::new(PROGRAM).arg("--check").arg(dir.path()));
    assert_eq!((said.code, said.stderr.lines().count()), (20, 1));
    let mut lines = said.stdout.lines();
    for n in (0..30).filter(|n| *n != 7) {
        let line = lines.next().unwrap();
        assert!(
            line.contains(&format!("{n:02}.asdf: ok: 1 block,")),
            "{line}"
        );
    }
    let last = "30 files: 29 ok, 0 suspicious, 0 damaged, 1 not checked";
    assert_eq!(lines.collect::<Vec<_>>(), [last]);
    let said = run(Command::new(PROGRAM)
        .args(["--check", "--json"])
        .arg(dir.path()));
    let files = said
        .stdout
        .lines()
        .map(|line| line.split_once(".asdf\"").unwrap().0);
    let files: Vec<_> = files.map(|file| &file[file.len() - 2..]).collect();
    assert!(files.is_sorted() && files.len() == 30);
}

/// A file whose array `far` lies in `source`, with `x.asdf` of 96 bytes beside it.
fn external(source: &str, shape: &str) -> Place {
    let fields = format!("source: '{source}', datatype: int64, byteorder: big, shape: {shape}");
    let place = Place::of(&Sample::new(&array_with("far", &fields)));
    let other = Sample::new("a: 1\n").block(Block::raw(&noise(96)));
    fs::write(place.file.with_file_name("x.asdf"), other.bytes()).unwrap();
    place
}

#[test]
fn a_check_looks_for_arrays_in_other_files() {
    for (source, shape, code, words) in [
        ("x.asdf", "[12]", 0, "1 array"),
        ("x.asdf", "['*', 4]", 0, "1 array"),
        ("x.asdf", "[400]", 23, "array far: x.asdf: "),
        (
            "y.asdf",
            "[12]",
            23,
            "array far: external source y.asdf: there is no such file",
        ),
        (
            "y.asdf",
            "['*']",
            23,
            "array far: external source y.asdf: there is no such file",
        ),
        ("test.asdf", "[12]", 23, "far"),
        (
            "/etc/passwd",
            "[12]",
            1,
            "-o allow_external=DIR allows another directory",
        ),
        (
            "http://a.org/x.asdf",
            "['*']",
            1,
            "external source http://a.org/x.asdf is a URL, and only files are read; name the path of a copy",
        ),
    ] {
        let place = external(source, shape);
        let said = asdf_mount([Path::new("--check"), &place.file]);
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (code, ""),
            "{source} {shape}: {}",
            said.stdout
        );
        assert_eq!(said.stdout.lines().count(), 1, "{}", said.stdout);
        assert!(said.stdout.contains(words), "{}", said.stdout);
    }
}

#[cfg(feature = "fuse")]
#[test]
fn an_array_whose_file_is_missing_is_told_of_until_it_can_be_read() {
    if !can_mount() {
        return;
    }
    let place = external("y.asdf", "[12]");
    let mount = Mount::new(&place.file, &["-r"]);
    let why = "array far: external source y.asdf: there is no such file";
    let told = |mount: &Mount| {
        ["info/status", "info/arrays.tsv"].map(|name| mount.text(name).contains(why))
    };
    assert_eq!(told(&mount), [false; 2], "no other file is looked at");
    assert!(mount.read("arrays/far.bin").is_err());
    assert_eq!(told(&mount), [true; 2]);
    let (x, y) = ["x.asdf", "y.asdf"]
        .map(|name| place.file.with_file_name(name))
        .into();
    fs::rename(x, y).unwrap();
    assert_eq!(mount.read("arrays/far.bin").unwrap(), noise(96));
    assert_eq!(told(&mount), [false; 2]);
}

#[test]
fn a_check_says_which_block_does_not_decode() {
    let sample = Sample::new("a: 1\n")
        .block(Block::raw(&noise(20)))
        .block(Block::coded(
            *b"zlib",
            [&b"\x78\x9c"[..], &noise(100)].concat(),
            1000,
        ));
    let said = asdf_mount([Path::new("--check"), &Place::of(&sample).file]);
    assert_eq!(said.code, 23, "{}{}", said.stdout, said.stderr);
    assert!(
        said.stdout.contains("damaged: block 1: zlib: "),
        "{}",
        said.stdout
    );
}

#[test]
fn completions_exist_for_three_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let said = asdf_mount(["--completions", shell]);
        assert_eq!(said.code, 0);
        assert!(
            said.stdout.contains("asdf-mount") && said.stdout.contains("read-only"),
            "{shell}"
        );
    }
}

/// What a hostile key and a hostile URI want to be taken for.
const FORGED: &str = "problem   forged";

/// A file whose tree says so much in a key, in an array that has no file, and in a URI.
pub(crate) fn hostile() -> Sample {
    let good = array("\"y\\n{}\\e[31m\"", 0, "int32", "[5]");
    let bad = array("\"x\\n{}\\e[31m\"", 7, "int32", "[500]");
    let uri = array_with(
        "far",
        "source: \"gone\\n{}\\e[31m.asdf\", datatype: int8, byteorder: big, shape: [1]",
    );
    Sample::new(&(good + &bad + &uri).replace("{}", FORGED)).block(Block::raw(&noise(20)))
}

/// No line begins with what the file wants to say, and no terminal is told anything.
#[track_caller]
pub(crate) fn assert_not_forged(text: &str) {
    assert!(text.contains(FORGED), "nothing of it is said: {text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with(FORGED)), "{text}");
}

#[test]
fn no_text_from_a_file_begins_a_line_of_ours() {
    let place = Place::of(&hostile());
    for action in ["--check", "--list"] {
        assert_not_forged(&asdf_mount([Path::new(action), &place.file]).stdout);
    }
    // what a mount says when it has no more than its standard error
    let odd_name = place.dir.path().join(format!("x\n{FORGED}\u{1b}[31m.asdf"));
    let said = asdf_mount([Path::new("--check"), &odd_name]);
    assert_eq!(said.stderr.lines().count(), 1);
    assert_not_forged(&said.stderr);
}
