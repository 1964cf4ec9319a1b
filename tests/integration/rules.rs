//! The rules of the core tags: held against Python's asdf, and what they do to a save.

use std::fs::{self, File};
use std::io::{self, Write};

use tempfile::TempDir;

use crate::common::{Mount, asdf_mount, can_mount};
use crate::corpus::agrees_with_python;
use crate::sample::Sample;

#[test]
fn the_rules_agree_with_the_schemas_of_python() {
    agrees_with_python("rules_oracle.py", 1000);
}

const BROKEN: &str = "asdf_library: !core/software-1.0.0 {name: n, version: 1.0}\n";

/// A file with a broken rule, mounted with an option.
fn broken(option: &str) -> (TempDir, Mount) {
    let dir = TempDir::new().unwrap();
    let file = Sample::new(BROKEN).padding(&[b' '; 4096]).write(dir.path());
    let mount = Mount::new(&file, &["-o", option]);
    (dir, mount)
}

/// Adds a line to the tree, and says whether that was saved.
fn add(mount: &Mount, line: &str) -> io::Result<()> {
    let text = mount.text("tree.yaml").replace("...\n", line) + "...\n";
    save(mount, &text)
}

fn save(mount: &Mount, text: &str) -> io::Result<()> {
    let mut file = File::create(mount.path("tree.yaml"))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

const GOOD_LINE: &str = "note: good\n";
const BAD_LINE: &str = "t: !time/time-1.1.0 {value: J2000, scale: none}\n";

#[test]
fn a_save_that_breaks_a_rule_is_refused_and_what_was_broken_is_not_held_against_it() {
    if !can_mount() {
        return;
    }
    let (_dir, mount) = broken("validate=warn");
    let status = mount.text("info/status");
    assert!(
        status.contains(
            "problem   tree: line 6, column 55: asdf_library/version: a string is needed"
        ),
        "{status}"
    );
    add(&mount, GOOD_LINE).unwrap();
    add(&mount, BAD_LINE).unwrap_err();
    let status = mount.text("info/status");
    assert!(
        status.contains("t/scale: one of utc, tai,") && status.contains("NOT SAVED"),
        "{status}"
    );
    fs::write(
        mount.path("tree.yaml"),
        mount.text("tree.yaml").replace("none", "tai"),
    )
    .unwrap();
    assert!(!mount.text("info/status").contains("NOT SAVED"));
}

/// Python's asdf raised `ValueError` and `InvalidVersion` when it opened files with such lines, and a save took them.
#[test]
fn a_save_adds_no_extension_by_which_python_does_not_open_the_file() {
    if !can_mount() {
        return;
    }
    let extensions = |items: &[&str]| {
        let items = items.iter().map(|item| format!("  - {item}\n"));
        format!("history:\n  extensions:\n{}", items.collect::<String>())
    };
    let good = "{extension_uri: u, software: {name: n, version: unknown}}";
    let odd = "{extension_uri: u, software: {name: asdf, version: odd}}";
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&extensions(&["{extension_class: c}", good]));
    let file = sample.padding(&[b' '; 4096]).write(dir.path());
    let mount = Mount::new(&file, &[]);
    add(&mount, "  - just a word\n").unwrap_err();
    let status = mount.text("info/status");
    let words = "line 10, column 5: history/extensions/2: a mapping is needed, here is a string";
    assert!(status.contains(words), "{status}");
    save(&mount, &mount.text("tree.yaml").replace("just a word", odd)).unwrap_err();
    let status = mount.text("info/status");
    let words = "line 10, column 56: history/extensions/2/software/version: a version by PEP 440, as in '1.2.0', is needed";
    assert!(status.contains(words), "{status}");
    save(&mount, &mount.text("tree.yaml").replace("odd}", "1.0}")).unwrap_err();
    save(&mount, &mount.text("tree.yaml").replace("1.0}", "'1.0'}")).unwrap();
    mount.unmount();

    // but in a file that has such a line already it does not stand in the way of an edit
    let sample = Sample::new(&extensions(&["{extension_class: c}", odd, "[]"]));
    let file = sample.padding(&[b' '; 4096]).write(dir.path());
    add(&Mount::new(&file, &[]), GOOD_LINE).unwrap();
}

#[test]
fn a_strict_mount_asks_for_a_tree_without_faults_and_a_lax_one_for_nothing_of_the_kind() {
    if !can_mount() {
        return;
    }
    let (_dir, strict) = broken("validate=strict");
    add(&strict, GOOD_LINE).unwrap_err();
    let mended = strict.text("tree.yaml").replace("1.0}", "'1.0'}");
    fs::write(strict.path("tree.yaml"), mended).unwrap();
    assert!(!strict.text("info/status").contains("NOT SAVED"));
    let (_dir, off) = broken("validate=off");
    add(&off, BAD_LINE).unwrap();
    assert!(!off.text("info/status").contains("problem"));
}

#[test]
fn a_check_lists_what_breaks_a_rule_unless_it_is_told_not_to() {
    let dir = TempDir::new().unwrap();
    let file = Sample::new(BROKEN).write(dir.path());
    let said = asdf_mount(["--check".as_ref(), file.as_os_str()]);
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(
        said.stdout
            .contains(": suspicious: tree: line 6, column 55: asdf_library/version")
    );
    let off = [
        "-o".as_ref(),
        "validate=off".as_ref(),
        "--check".as_ref(),
        file.as_os_str(),
    ];
    assert_eq!(asdf_mount(off).code, 0);
}
