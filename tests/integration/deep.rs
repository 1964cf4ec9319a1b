//! Deep trees: what an array costs does not grow with the length of its path.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Mount, Outcome, PROGRAM, Place, asdf_mount, can_mount, mounted, run};
use crate::sample::Sample;

/// `levels` mappings, each the only value of the one around it under a key of 200 bytes, around `body`.
fn nested(levels: usize, body: impl Fn(&str) -> String) -> Sample {
    let mut text = "x0: &x !core/ndarray-1.0.0 [1]\n".to_owned();
    for level in 0..levels {
        writeln!(text, "{}{:k<200}:", " ".repeat(level), level + 1).unwrap();
    }
    text.push_str(&body(&" ".repeat(levels)));
    Sample::new(&text)
}

/// What the program says of a file, with 512 MiB of address space.
fn cramped(mode: &str, sample: &Sample) -> Outcome {
    let place = Place::of(sample);
    let command = format!("ulimit -v {} && exec \"$0\" \"$@\"", 512 << 10);
    run(Command::new("sh")
        .args(["-c", &command, PROGRAM, mode])
        .arg(&place.file))
}

#[test]
fn many_arrays_far_down_take_little_memory() {
    let arrays = nested(100, |indent| {
        (0..15_000).fold(String::new(), |mut text, i| {
            writeln!(text, "{indent}a{i}: !core/ndarray-1.0.0 [1]").unwrap();
            text
        })
    });
    let said = cramped("--check", &arrays);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.contains("15001 arrays"), "{}", said.stdout);
}

#[test]
fn many_broken_arrays_and_rules_far_down_are_told_in_brief() {
    let broken = nested(100, |indent| {
        (0..5_000).fold(String::new(), |mut text, i| {
            writeln!(text, "{indent}a{i}: !core/ndarray-1.0.0 {{}}").unwrap();
            writeln!(text, "{indent}s{i}: !core/software-1.0.0 {{}}").unwrap();
            text
        })
    });
    let said = cramped("--check", &broken);
    assert_eq!((said.code, said.stderr.as_str()), (23, ""));
    for end in ["kkk/a4999: ", "kkk/s4999: "] {
        assert!(said.stdout.contains(end), "{end}");
    }
    let longest = said.stdout.lines().map(str::len).max();
    assert!(longest < Some(1000), "{longest:?}");
}

#[test]
fn links_far_down_are_listed_without_their_paths() {
    if !can_mount() {
        return;
    }
    let (_dir, mount) = mounted(&nested(100, |indent| {
        (0..10_000).fold(String::new(), |mut text, i| {
            writeln!(text, "{indent}a{i}: *x").unwrap();
            text
        })
    }));
    assert_eq!(mount.names("arrays").len(), 3);
    let peak = mount.peak();
    assert!(peak < 300 << 10, "{peak} kB");
}

#[test]
fn what_a_limit_leaves_out_is_told() {
    let place = Place::of(&Sample::new(
        "a: {$ref: '#/b'}\nb: {$ref: '#/a'}\nc: !core/ndarray-1.0.0 [1]\n",
    ));
    let said = asdf_mount([Path::new("--check"), &place.file]);
    assert_eq!(said.code, 1, "{}{}", said.stdout, said.stderr);
    let why = "tree: line 6, column 4: a reference ($ref) leads in a circle";
    assert!(said.stdout.contains(why), "{}", said.stdout);
    if can_mount() {
        let mount = Mount::new(&place.file, &["-r"]);
        let status = mount.text("info/status");
        assert!(status.contains(why), "{status}");
        assert_eq!(
            fs::metadata(mount.path("info/status")).unwrap().len(),
            status.len() as u64
        );
    }
}
