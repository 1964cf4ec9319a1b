//! What was written and is not saved: where it is, who is told of it, and what keeps an unmount from losing it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Mount, Outcome, PROGRAM, Place, can_mount, eventually, is_root, run};
use crate::sample::{Block, Sample, array};

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

/// The daemon, which leaves the working directory, looked for it in the root of the system: a block could not be written, and a message
/// named a path that led nowhere.
#[test]
fn a_relative_path_of_the_directory_for_temporary_files_is_that_of_the_command() {
    const SCRIPT: &str = "
mkdir ro own
mount -t tmpfs none ro
touch ro/f.asdf none
mount --bind sample.asdf ro/f.asdf
mount -o remount,ro ro
export XDG_STATE_HOME=$PWD/none TMPDIR=own
\"$0\" ro/f.asdf mnt
head -c 10000 /dev/zero > mnt/blocks/0.bin
wc -c < mnt/blocks/0.bin
echo more >> mnt/tree.yaml
\"$0\" -u mnt";
    if !can_mount() || !is_root() {
        return;
    }
    let (dir, said) = script(SCRIPT);
    assert_eq!(said.stdout, "10000\n", "{}", said.stderr);
    let kept = fs::canonicalize(dir.path().join("own/f.asdf.rejected.yaml")).unwrap();
    let words = format!("it is kept in {}", kept.display());
    assert!(said.stderr.contains(&words), "{}", said.stderr);
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
rm mnt/tree.yaml
test -e mnt/tree.yaml || echo gone
sleep 2.1
tail -n 1 mnt/tree.yaml
mount -o remount,rw ro
\"$0\" -u mnt
echo $?
tail -n 1 ro/f.asdf.rejected.yaml
mount -o remount,ro ro
\"$0\" --log-file log ro/f.asdf mnt
echo more >> mnt/tree.yaml
\"$0\" -u --discard mnt
echo $?
\"$0\" --log-file log ro/f.asdf mnt
echo older >> mnt/tree.yaml
mount -o remount,rw ro
(cat ro/f.asdf; echo newer) > mnt/new
mv mnt/new mnt/tree.yaml
rm mnt/new
tail -n 1 mnt/tree.yaml
\"$0\" -u mnt
echo $?
tail -n 1 ro/f.asdf.2.rejected.yaml";
    if !can_mount() || !is_root() {
        return;
    }
    let (dir, said) = script(SCRIPT);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "more", "41", "gone", "more", "40", "more", "40", "older", "40", "newer"
        ],
        "{}",
        said.stderr
    );
    let complaints: Vec<&str> = said
        .stderr
        .lines()
        .filter(|line| line.starts_with("asdf-mount: mnt: "))
        .collect();
    let unmounted = "asdf-mount: mnt: unmounted, but the tree that was refused is not saved (";
    assert_eq!(complaints.len(), 4, "{complaints:?}");
    assert!(complaints[0].starts_with(
        "asdf-mount: mnt: not unmounted: the tree that was refused is in memory only; "
    ));
    assert!(complaints[1].starts_with(unmounted) && complaints[1].contains("): it is kept in /"));
    assert!(complaints[1].ends_with("/ro/f.asdf.rejected.yaml"));
    assert!(complaints[2].starts_with(unmounted));
    assert!(complaints[2].ends_with("): it could not be kept on disk, and is lost with the mount"));
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(
        log.contains("your text is in memory only, and gone at unmount: "),
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
        .filter(|line| line.starts_with("scratch "))
        .collect();
    let copy = format!("same.yaml ({} bytes)", mount.text("tree.yaml").len());
    let files = ["results.csv (4 bytes)", &copy];
    let want = files.map(|file| {
        format!("scratch   {file} exists only in this mount: copy it out before unmounting")
    });
    assert_eq!(lines, want);
    let said = unmount(&mount);
    assert_eq!(said.code, 0);
    let gone = files.join(", ");
    let gone = format!("unmounted; {gone} existed only in the mount and are lost\n");
    assert!(said.stderr.ends_with(&gone), "{}", said.stderr);
}

/// The log had an inode number, and `-u` returned 0.
#[test]
fn an_edit_that_is_given_up_is_told_of_by_its_name() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = |n| {
        let sample = Sample::new(&format!("n: {n}\n{}", array("data", 0, "uint8", "[4]")));
        sample.block(Block::raw(&[n; 4]))
    };
    let file = tree(1).write(dir.path());
    let log = dir.path().join("log");
    let mount = Mount::new(&file, &["--log-file", log.to_str().unwrap()]);
    let data = File::options()
        .write(true)
        .open(mount.path("arrays/data.bin"))
        .unwrap();
    data.write_all_at(&[9], 0).unwrap();
    fs::write(&file, tree(22).bytes()).unwrap();
    assert_eq!(data.sync_all().unwrap_err().raw_os_error(), Some(116));
    drop(data);
    let said = "arrays/data.bin: it has been changed since it was opened, by another program";
    eventually("the loss is told of", || {
        let status = mount.text("info/status");
        status.contains(&format!("NOT SAVED: {said}"))
    });
    let unmounted = unmount(&mount);
    assert_eq!(unmounted.code, 40);
    let news = format!("unmounted, but an edit is not saved: {said}");
    assert!(unmounted.stderr.contains(&news), "{}", unmounted.stderr);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(&format!("Fsync {said}")), "{log}");
}

/// The kernel releases the descriptor, upon which the text is refused, after close(2) has returned.
#[test]
fn an_unfinished_text_is_told_of_as_soon_as_it_is_closed() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let saved = mount.text("tree.yaml");
    for n in 0..50 {
        fs::write(mount.path("tree.yaml"), format!("#ASDF 1.0.0\n# {n}\n")).unwrap();
        let status = mount.text("info/status");
        assert!(status.contains("NOT SAVED"), "{n}: {status}");
        fs::write(mount.path("tree.yaml"), &saved).unwrap();
    }
}

/// `tree.yaml` was gone until the next mount.
#[test]
fn the_name_of_the_tree_is_there_again_when_it_was_taken_away() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let tree = mount.text("tree.yaml");
    let shell = |text: &str| {
        run(Command::new("sh")
            .args(["-c", text])
            .current_dir(&mount.dir))
    };
    let lists = || mount.names("").contains(&"tree.yaml".to_owned());
    let refused = "mv tree.yaml tree.yaml~; echo 'a: b: c' > .t; mv .t tree.yaml";
    for (text, code) in [("rm tree.yaml", 0), (refused, 1), ("mv tree.yaml mine", 0)] {
        assert_eq!(shell(text).code, code, "{text}");
        // for everyone, the process that took it away as well
        assert!(!lists() && !mount.path("tree.yaml").exists(), "{text}");
        eventually("two seconds have passed", lists);
        assert_eq!(mount.text("tree.yaml"), tree, "{text}");
    }
    let again = tree.replace("a: 1", "a: 2");
    fs::write(mount.path("tree.yaml"), &again).unwrap();
    assert!(!mount.text("info/status").contains("NOT SAVED"));
    fs::rename(mount.path("tree.yaml~"), mount.path("tree.yaml")).unwrap();
    assert_eq!(mount.text("tree.yaml"), tree);
}

/// As `mv`, `install` and `tar` do, and editors that keep a backup, while others look.
#[test]
fn who_takes_the_tree_away_can_make_it_anew() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let mount = Mount::new(&file, &[]);
    let looks = "while :; do ls -l .; cat tree.yaml; stat tree.yaml; done";
    let mut others = Command::new("sh")
        .args(["-c", looks])
        .current_dir(&mount.dir)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let path = mount.path("tree.yaml");
    let text = mount.text("tree.yaml");
    for n in 2..100 {
        match n % 2 {
            0 => fs::remove_file(&path).unwrap(),
            _ => fs::rename(&path, mount.path("tree.yaml~")).unwrap(),
        }
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut made = made.unwrap_or_else(|error| panic!("{n}: {error}"));
        let text = text.replace("a: 1", &format!("a: {n}"));
        made.write_all(text.as_bytes()).unwrap();
        made.sync_all().unwrap();
        drop(made);
        assert!(fs::read_to_string(&file).unwrap().starts_with(&text), "{n}");
    }
    assert!(others.try_wait().unwrap().is_none());
    others.kill().unwrap();
    others.wait().unwrap();
}

#[test]
fn the_name_of_the_tree_can_be_given_to_another_file_by_a_link() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let [tree, other] = ["tree.yaml", "other"].map(|name| place.mnt.join(name));
    let text = fs::read_to_string(&tree)
        .unwrap()
        .replace("---", "# linked\n---");
    fs::write(&other, &text).unwrap();
    fs::remove_file(&tree).unwrap();
    fs::hard_link(&other, &tree).unwrap();
    assert_eq!(fs::read_to_string(&tree).unwrap(), text);
    assert!(fs::read(&place.file).unwrap().starts_with(text.as_bytes()));
    place.unmount();
}

#[test]
fn a_text_that_a_refused_truncation_leaves_has_its_length_at_once() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let tree = place.mnt.join("tree.yaml");
    let text = fs::read(&tree).unwrap();
    let cut = "import os, sys; os.truncate(sys.argv[1], int(sys.argv[2]))";
    let len = (text.len() - 5).to_string();
    let mut python = Command::new("python3");
    let said = run(python.args(["-c", cut]).arg(&tree).arg(len));
    assert!(said.stderr.contains("Invalid argument"), "{}", said.stderr);
    assert_eq!(fs::read(&tree).unwrap(), text[..text.len() - 5]);
    assert_eq!(fs::metadata(&tree).unwrap().len(), text.len() as u64 - 5);
    let said = run(Command::new(PROGRAM).arg("-u").arg(&place.mnt));
    assert_eq!(said.code, 40, "{}", said.stderr);
}
