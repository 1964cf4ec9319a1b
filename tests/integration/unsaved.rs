//! What was written and is not saved: where it is, who is told of it, and what keeps an unmount from losing it.

use std::fs::{self, File};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Mount, Outcome, PROGRAM, can_mount, is_root, run};
use crate::sample::Sample;

fn unmount(mount: &Mount) -> Outcome {
    run(Command::new(PROGRAM).arg("-u").arg(&mount.dir))
}

/// A shell script in a name space of its own for mounts, with the program as its `$0` and a sample beside it.
fn script(text: &str) -> (TempDir, Outcome) {
    let dir = TempDir::new().unwrap();
    Sample::new("a: 1\n").write(dir.path());
    fs::create_dir(dir.path().join("mnt")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", text, PROGRAM]);
    let said = run(command.current_dir(fs::canonicalize(dir.path()).unwrap()));
    (dir, said)
}

/// Where the disk was full the text was in memory only, and gone at unmount.
#[test]
fn a_text_that_has_no_room_beside_the_file_is_kept_elsewhere() {
    const SCRIPT: &str = "
mkdir small state tmp
mount -t tmpfs -o size=64k none small
cp sample.asdf small/f.asdf
export TMPDIR=$PWD/tmp
for home in state sample.asdf; do
    XDG_STATE_HOME=$PWD/$home \"$0\" small/f.asdf mnt
    head -c 100000 /dev/zero > small/fill
    (cat mnt/tree.yaml; head -c 9000 /dev/zero | tr '\\0' x) > new
    cat new > mnt/tree.yaml
    \"$0\" -u mnt
    echo $?
    rm small/fill
done";
    if !can_mount() || !is_root() {
        return;
    }
    let (dir, said) = script(SCRIPT);
    assert_eq!(said.stdout, "40\n40\n", "{}", said.stderr);
    let text = fs::read(dir.path().join("new")).unwrap();
    for kept in ["state/asdf-mount", "tmp"] {
        let kept = dir.path().join(kept).join("f.asdf.rejected.yaml");
        assert_eq!(fs::read(&kept).unwrap(), text, "{}", kept.display());
    }
}

#[test]
fn a_text_in_memory_only_keeps_the_mount_until_it_can_be_kept_or_is_given_up() {
    const SCRIPT: &str = "
mkdir ro
mount -t tmpfs none ro
touch ro/f.asdf none
mount --bind sample.asdf ro/f.asdf
mount -o remount,ro ro
export XDG_STATE_HOME=$PWD/none TMPDIR=$PWD/none/tmp
\"$0\" --log-file log ro/f.asdf mnt
(cat mnt/tree.yaml; echo more) > mnt/new
mv mnt/new mnt/tree.yaml
rm mnt/new
tail -n 1 mnt/tree.yaml
\"$0\" -u mnt
echo $?
mount -o remount,rw ro
\"$0\" -u mnt
echo $?
tail -n 1 ro/f.asdf.rejected.yaml
mount -o remount,ro ro
\"$0\" --log-file log ro/f.asdf mnt
echo more >> mnt/tree.yaml
\"$0\" -u --discard mnt
echo $?";
    if !can_mount() || !is_root() {
        return;
    }
    let (dir, said) = script(SCRIPT);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines, ["more", "41", "40", "more", "40"], "{}", said.stderr);
    let complaints: Vec<&str> = said
        .stderr
        .lines()
        .filter(|line| line.starts_with("asdf-mount: mnt: "))
        .collect();
    let unmounted = "asdf-mount: mnt: unmounted, but the tree that was refused is not saved: it";
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    assert!(complaints[0].starts_with(
        "asdf-mount: mnt: not unmounted: the tree that was refused is in memory only; "
    ));
    assert!(complaints[1].starts_with(&format!("{unmounted} is kept in /")));
    assert!(complaints[1].ends_with("/ro/f.asdf.rejected.yaml"));
    assert_eq!(
        complaints[2],
        format!("{unmounted} could not be kept on disk, and is gone")
    );
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(
        log.contains("the text is in memory only, and gone at unmount: "),
        "{log}"
    );
    assert!(log.contains("the tree that was refused is lost: "), "{log}");
}

#[test]
fn files_that_are_in_memory_only_are_named_and_those_of_editors_are_not() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    for name in [".tree.yaml.swp", "tree.yaml~", "4913", "results.csv"] {
        fs::write(mount.path(name), "1,2\n").unwrap();
    }
    fs::copy(mount.path("tree.yaml"), mount.path("same.yaml")).unwrap();
    File::create(mount.path("empty")).unwrap();
    let status = mount.text("info/status");
    let lines: Vec<&str> = status
        .lines()
        .filter(|line| line.starts_with("memory "))
        .collect();
    assert_eq!(
        lines,
        ["memory    results.csv (4 bytes): in memory only, gone at unmount"]
    );
    let said = unmount(&mount);
    assert_eq!(said.code, 0);
    let gone = "unmounted, and with it went what was in its memory only: results.csv (4 bytes)\n";
    assert!(said.stderr.ends_with(gone), "{}", said.stderr);
}
