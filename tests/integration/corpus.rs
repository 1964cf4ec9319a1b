//! Files that Python's asdf writes, and the bytes that it reads from them again, compared with what a mount shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use md5::{Digest, Md5};
use tempfile::TempDir;

use crate::common::{Mount, PROGRAM, can_mount, run};

/// Python with asdf in it: `scripts/test` makes one and names it.
pub(crate) fn python() -> Option<PathBuf> {
    let named = std::env::var_os("ASDF_MOUNT_PYTHON").map(PathBuf::from);
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin/python");
    let found = named.or_else(|| made.exists().then_some(made));
    if found.is_none() {
        println!("skipped: no Python with asdf here; scripts/test makes one");
    }
    found
}

/// Runs a script of `tests/`, which compares the program with Python's asdf: it makes `more_than` so many comparisons, and none fails.
pub(crate) fn agrees_with_python(script: &str, more_than: u32) {
    let Some(python) = python() else { return };
    let dir = TempDir::new().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(script);
    let mut compared = Command::new(python);
    let said = run(compared.arg(script).arg(PROGRAM).arg(dir.path()));
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    let last = said.stdout.lines().last().unwrap_or_default();
    let passed: u32 = last.split(' ').next().unwrap().parse().unwrap();
    assert!(passed > more_than, "{last}");
}

fn hash(bytes: &[u8]) -> String {
    Md5::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn what_python_wrote_is_read_as_python_reads_it() {
    let Some(python) = python().filter(|_| can_mount()) else {
        return;
    };
    let dir = TempDir::new().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle.py");
    let said = run(Command::new(python).arg(script).arg(dir.path()));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let mut compared = 0;
    let mut wrong = Vec::new();
    for case in said.stdout.split("file ").filter(|case| !case.is_empty()) {
        let (name, files) = case.split_once('\n').unwrap();
        let mount = Mount::new(&dir.path().join(name), &["-r"]);
        for line in files.lines() {
            let (wanted, path) = line.split_once(' ').unwrap();
            let found =
                fs::read(mount.path(path)).map_or_else(|e| e.to_string(), |bytes| hash(&bytes));
            if found != wanted {
                wrong.push(format!("{name}: {path}: {found} instead of {wanted}"));
            }
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 100, "only {compared} files were compared");
}
