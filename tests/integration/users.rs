//! What other users, threads and full disks meet: whose a new file is, who hears of a refusal, and where a refused text goes.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use crate::common::{
    Mount, Outcome, PROGRAM, Place, asdf_mount, assert_refused, can_mount, eventually, is_root, run,
};
use crate::sample::{Block, Sample, array, noise};

const NOBODY: u32 = 65534;

/// A script as the user without privileges; `$1` is the mount.
fn as_nobody(mount: &Mount, script: &str) -> Outcome {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(&mount.dir);
    run(command.uid(NOBODY).gid(NOBODY))
}

/// A Python program with these arguments. What it prints.
fn python(program: &str, args: &[&Path]) -> String {
    let said = run(Command::new("python3").args(["-c", program]).args(args));
    assert_eq!(said.stderr, "");
    said.stdout
}

/// Owner, group and permission bits.
fn facts(path: &Path) -> (u32, u32, u32) {
    facts_of(&fs::metadata(path).unwrap())
}

fn facts_of(meta: &fs::Metadata) -> (u32, u32, u32) {
    (meta.uid(), meta.gid(), meta.mode() & 0o777)
}

/// A file of root that the group of nobody may write, mounted for all.
fn shared() -> (TempDir, PathBuf, Mount) {
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
    chown(&file, Some(0), Some(NOBODY)).unwrap();
    let mount = Mount::new(&file, &["-o", "allow_other"]);
    fs::set_permissions(mount.dir.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    (dir, file, mount)
}

#[test]
fn a_file_is_its_makers_until_it_is_the_tree() {
    // Every file of the root was the owner's of FILE: `sed -i` of another user could not give its copy the mode of the tree, and
    // renamed it over that with 0600, after which only the owner could read the tree.
    if !can_mount() || !is_root() {
        return;
    }
    let (_dir, file, mount) = shared();
    let tree = mount.path("tree.yaml");
    let own = (0, NOBODY, 0o664);
    assert_eq!(facts(&tree), own);

    let said = as_nobody(
        &mount,
        "umask 077; cd \"$1\"; echo hi > new; cat new; ln -s x link",
    );
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("hi\n", ""));
    assert_eq!(facts(&mount.path("new")), (NOBODY, NOBODY, 0o600));
    let link = fs::symlink_metadata(mount.path("link")).unwrap();
    assert_eq!((link.uid(), link.gid()), (NOBODY, NOBODY));

    let is_own = |what: &str| eventually(what, || facts(&tree) == own);
    let saved = |what: &str| fs::read_to_string(&file).unwrap().contains(what);
    let said = as_nobody(&mount, "umask 077; sed -i 's/a: 1/a: 2/' \"$1/tree.yaml\"");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    is_own("a renamed file is the tree");
    assert!(saved("a: 2"));

    let script = "cd \"$1\"; cp tree.yaml copy; rm tree.yaml; umask 077; sed 's/a: 2/a: 3/' copy > tree.yaml";
    let said = as_nobody(&mount, script);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    is_own("a file made anew is the tree");
    assert!(saved("a: 3"));

    let script = "cd \"$1\"; umask 077; sed 's/a: 2/a: 4/' copy > next; chmod 600 next";
    assert_eq!(as_nobody(&mount, script).code, 0);
    let next = mount.path("next");
    assert_eq!(facts(&next), (NOBODY, NOBODY, 0o600));
    renameat_with(CWD, &tree, CWD, &next, RenameFlags::EXCHANGE).unwrap();
    is_own("an exchanged file is the tree");
    assert!(saved("a: 4"));
    assert_eq!(as_nobody(&mount, "cat \"$1/tree.yaml\"").code, 0);
}

/// `shutil.copy` and `cp -p` saved all, and then said that the mode could not be changed.
#[test]
fn owner_and_mode_are_those_of_the_file_and_no_tool_is_told_otherwise() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = array("x", 0, "uint8", "[5]");
    let file = Sample::new(&tree)
        .block(Block::raw(b"hello"))
        .write(dir.path());
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let mount = Mount::new(&file, &[]);
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        run(command.args(["-ec", script, "sh"]).arg(&mount.dir))
    };
    for name in ["info/status", "arrays", "blocks", "info"] {
        for change in ["chmod 600", "chmod 666", "chown 65534", "chgrp 65534"] {
            let said = shell(&format!("{change} \"$1/{name}\""));
            assert_ne!(said.code, 0, "{change} {name}");
            assert!(said.stderr.contains("Operation not permitted"), "{said:?}");
        }
    }
    assert_eq!(facts(&mount.path("tree.yaml")), (0, 0, 0o644));
    assert_eq!(facts(&file), (0, 0, 0o644));
    let held = File::open(mount.path("tree.yaml")).unwrap();
    for name in ["tree.yaml", "blocks/0.bin", "arrays/x.npy", "."] {
        let changes = [
            ("chmod 600", (0, 0, 0o600)),
            ("chmod 776", (0, 0, 0o666)),
            ("chown 65534", (NOBODY, 0, 0o666)),
            ("chgrp 65534", (NOBODY, NOBODY, 0o666)),
            ("chown 0:0", (0, 0, 0o666)),
            ("chmod 644", (0, 0, 0o644)),
        ];
        for (change, want) in changes {
            let said = shell(&format!("{change} \"$1/{name}\""));
            assert_eq!((said.code, &*said.stderr), (0, ""), "{change} {name}");
            assert_eq!(facts(&file), want, "{change} {name}");
            for other in ["tree.yaml", "blocks/0.bin", "arrays/x.bin"] {
                assert_eq!(facts(&mount.path(other)), want, "{change} {name}: {other}");
            }
            let search = (want.2 & 0o444) >> 2;
            // the kernel keeps those of the root for a second
            let want = (want.0, want.1, want.2 | search);
            eventually("the root has them", || facts(&mount.dir) == want);
        }
        let said = shell(&format!("chmod 4644 \"$1/{name}\""));
        assert!(said.stderr.contains("Operation not permitted"), "{said:?}");
    }
    fs::set_permissions(&file, Permissions::from_mode(0o754)).unwrap();
    eventually("it is shown", || facts(&mount.path("tree.yaml")).2 == 0o644);
    assert_eq!(shell("chmod 600 \"$1/tree.yaml\"").code, 0);
    assert_eq!(facts(&file).2, 0o710, "execute bits stay");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    eventually("it is shown", || facts(&mount.path("tree.yaml")).2 == 0o644);
    assert_eq!(facts_of(&held.metadata().unwrap()).2, 0o644);
    assert!(
        std::io::read_to_string(held)
            .unwrap()
            .contains("!core/ndarray")
    );
    assert!(mount.text("info/status").contains("nothing saved"));
    let quiet = |script: &str| {
        let said = shell(script);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{script}");
    };
    for script in [
        "cd \"$1\"; chmod 644 tree.yaml blocks/0.bin arrays/x.npy; chown 0:0 tree.yaml arrays/x.bin; chmod 755 arrays .",
        "cd \"$1\"; touch arrays blocks/0.bin tree.yaml",
        "cd \"$1\"; cp tree.yaml ../new.yaml; install ../new.yaml tree.yaml; chmod 755 tree.yaml blocks/0.bin",
        "cd \"$1\"; cp arrays/x.bin ../x.bin; install ../x.bin arrays/x.bin; cmp ../x.bin arrays/x.bin",
        "cd \"$1\"; mkdir ../copy; cp -rp . ../copy; cp -p ../copy/tree.yaml .; cp -p ../copy/arrays/x.npy arrays",
        "cd \"$1\"; cp -p arrays/x.bin ../x.bin; printf HELLO > ../x.bin; cp -p ../x.bin arrays",
        "cd \"$1\"; sed -i 's/x:/y:/' tree.yaml; sed -i 's/y:/x:/' tree.yaml",
        "cd \"$1\"; tar -cf ../t.tar tree.yaml; tar -xf ../t.tar; cp tree.yaml notes; chmod 600 notes; chown 65534 notes",
    ] {
        quiet(script);
    }
    if run(Command::new("rsync").arg("--version")).code == 0 {
        quiet(
            "cd \"$1\"; rsync -a ../copy/tree.yaml . && rsync -a --inplace --whole-file ../copy/arrays/ arrays/",
        );
    }
    assert_eq!(facts(&mount.path("notes")), (NOBODY, 0, 0o600));
    assert_eq!(facts(&mount.path("tree.yaml")), (0, 0, 0o644));
    let block = mount.read("blocks/0.bin").unwrap();
    assert!(block.eq_ignore_ascii_case(b"hello"), "{block:?}");
}

/// What the owner that is shown may do is what an option says: FILE's owner is asked for as well.
#[test]
fn who_may_change_owner_and_mode_of_the_file_may_do_so_through_the_mount() {
    if !can_mount() || !is_root() {
        return;
    }
    let (_dir, file, mount) = shared();
    let refused = |mount: &Mount, script: &str| {
        let said = as_nobody(mount, script);
        assert!(
            said.stderr.contains("Operation not permitted"),
            "{script}: {said:?}"
        );
    };
    refused(&mount, "chmod 666 \"$1/tree.yaml\"");
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    let tree = mount.path("tree.yaml");
    eventually("it is shown", || facts(&tree).0 == NOBODY);
    let said = as_nobody(
        &mount,
        "chmod 606 \"$1/tree.yaml\" && chgrp 65534 \"$1/tree.yaml\"",
    );
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert_eq!(facts(&file), (NOBODY, NOBODY, 0o606));
    refused(&mount, "chown 0 \"$1/tree.yaml\"");
    refused(&mount, "chgrp 0 \"$1/tree.yaml\"");
    mount.unmount();

    // a file of root that is shown as one of nobody
    chown(&file, Some(0), Some(0)).unwrap();
    let mount = Mount::new(&file, &["-o", "allow_other,uid=65534"]);
    fs::set_permissions(mount.dir.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(facts(&mount.path("tree.yaml")).0, NOBODY);
    refused(&mount, "chmod 666 \"$1/tree.yaml\"");
    assert!(chown(mount.path("tree.yaml"), Some(1), None).is_err());
    let set = |mode| fs::set_permissions(mount.path("tree.yaml"), Permissions::from_mode(mode));
    set(0o640).unwrap();
    assert_eq!(facts(&file), (0, 0, 0o640));
    mount.unmount();

    let mount = Mount::new(&file, &["-o", "umask=027"]);
    let set = |mode| fs::set_permissions(mount.path("tree.yaml"), Permissions::from_mode(mode));
    set(0o666).unwrap();
    assert_eq!(facts(&file), (0, 0, 0o640));
    set(0o400).unwrap();
    assert_eq!(facts(&file), (0, 0, 0o400));
    mount.unmount();

    let mount = Mount::new(&file, &["-r"]);
    let refused = fs::set_permissions(mount.path("tree.yaml"), Permissions::from_mode(0o600));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(30));
}

/// The mode of what is being written and not closed is FILE's at once, as that of any file.
#[test]
fn a_file_is_given_its_mode_while_it_is_written_and_saved_then() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("x", 0, "uint8", "[5]")).block(Block::raw(b"hello"));
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    for (name, bytes) in [
        (
            "tree.yaml",
            mount.text("tree.yaml").replace("x:", "y:").into_bytes(),
        ),
        ("blocks/0.bin", b"HELLO".to_vec()),
        ("blocks/0.bin", b"longer than it was".to_vec()),
    ] {
        for mode in [0o600, 0o644] {
            let mut open = File::create(mount.path(name)).unwrap();
            open.write_all(&bytes).unwrap();
            open.set_permissions(Permissions::from_mode(mode)).unwrap();
            assert_eq!(facts(&file).2, mode, "{name}");
            open.sync_all().unwrap();
            drop(open);
            assert_eq!(facts_of(&fs::metadata(mount.path(name)).unwrap()).2, mode);
            assert_eq!(mount.read(name).unwrap(), bytes);
            assert_eq!(facts(&file).2, mode, "{name}");
        }
    }
}

#[test]
fn a_refusal_is_told_to_whichever_thread_closes_but_not_to_heirs() {
    // The kernel names threads, and a close by another thread than the one that opened was taken for that of a child.
    const PROGRAM: &str = "
import os, sys, threading
def elsewhere(do):
    out = []
    thread = threading.Thread(target=lambda: out.append(do()))
    thread.start()
    thread.join()
    return out[0]
def here(do):
    return do()
def close(fd):
    try:
        os.close(fd)
        return 0
    except OSError as error:
        return error.errno
def broken(path, opening, closing):
    fd = opening(lambda: os.open(path, os.O_WRONLY | os.O_TRUNC))
    os.write(fd, sys.argv[3].encode() if path == sys.argv[1] else b'x')
    return closing(lambda: close(fd))
for path in sys.argv[1:3]:
    for opening in (here, elsewhere):
        for closing in (here, elsewhere):
            print(broken(path, opening, closing))
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, sys.argv[3].encode() if path == sys.argv[1] else b'x')
    child = os.fork()
    if child == 0:
        os._exit(close(fd))
    print('child', os.waitpid(child, 0)[1])
    print(close(fd))
";
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("a", 0, "uint8", "[4]")).block(Block::raw(&noise(4)));
    let mount = Mount::new(&sample.write(dir.path()), &[]);
    let text = mount.text("tree.yaml").replace("a: !core", "a: [!core");
    let args = [
        mount.path("tree.yaml"),
        mount.path("blocks/0.bin"),
        text.into(),
    ];
    let said = python(PROGRAM, &args.each_ref().map(PathBuf::as_path));
    let each = "22\n22\n22\n22\nchild 0\n22\n";
    assert_eq!(said, format!("{each}{each}"));
}

/// The data were saved, and the close failed with EACCES: fuser lets no other user close.
#[test]
fn a_close_after_the_user_was_given_up_says_what_became_of_the_data() {
    const PROGRAM: &str = "
import os, sys
for text in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
        os.setuid(65534)
        os.write(fd, text.encode())
        try:
            os.close(fd)
        except OSError as error:
            os._exit(error.errno)
        try:
            os.stat(sys.argv[1])
        except PermissionError:
            os._exit(0)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let mount = Mount::new(&file, &[]);
    // the mountpoint is what other users may not look into
    fs::set_permissions(mount.dir.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let text = mount.text("tree.yaml");
    let edited = text.replace("a: 1", "a: 2");
    let args = [
        mount.path("tree.yaml"),
        edited.clone().into(),
        text.replace("a: 1", "a: [1").into(),
    ];
    let said = python(PROGRAM, &args.each_ref().map(PathBuf::as_path));
    assert_eq!(said, "0\n22\n");
    assert!(fs::read(&file).unwrap().starts_with(edited.as_bytes()));
}

/// It was kept beside FILE and told of, as if it had been all of the text.
#[test]
fn half_a_text_that_a_child_of_the_shell_has_written_is_not_refused() {
    const WHOLE: &str = r#"{ cat "$1"; [ ! -e "$4" ] || echo kept; cat "$2"; } > "$3""#;
    const HALF: &str = r#"{ cat "$1"; cat "$1"; } > "$3""#;
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let text = mount.text("tree.yaml").replace("a: 1", "a: [1, 2]");
    let (half, rest) = text.split_at(text.find(", 2").unwrap());
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    fs::write(&first, half).unwrap();
    fs::write(&second, rest).unwrap();
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    let tree = mount.path("tree.yaml");
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]);
        run(shell.args([&first, &second, &tree, &rejected])).stdout
    };
    assert_eq!(shell(WHOLE), "");
    assert_eq!(mount.text("tree.yaml"), text);
    assert!(!rejected.exists());
    shell(HALF);
    eventually("kept", || rejected.exists());
    assert_eq!(fs::read_to_string(&rejected).unwrap(), half.repeat(2));
}

#[test]
fn a_block_longer_than_the_disk_is_refused_before_anything_is_made_of_it() {
    // A petabyte of zeros was digested first, for hours, and nothing else could be saved meanwhile.
    const PROGRAM: &str = "
import os, sys
def tried(do):
    try:
        do()
        return 0
    except OSError as error:
        return error.errno
length = 1 << 50
for path in sys.argv[1:]:
    if os.path.exists(path):
        print(tried(lambda: os.truncate(path, length)))
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, length)
    print(tried(lambda: os.close(fd)))
";
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("a", 0, "uint8", "[4]"))
        .block(Block::raw(&noise(4)))
        .block(Block::zlib(&noise(4000)))
        .block(Block::raw(&noise(4)));
    let file = sample.write(dir.path());
    let before = fs::read(&file).unwrap();
    let mount = Mount::new(&file, &[]);
    let blocks = [0, 1, 2, 3].map(|n| mount.path(&format!("blocks/{n}.bin")));
    let said = python(PROGRAM, &blocks.each_ref().map(PathBuf::as_path));
    assert_eq!(said, "28\n".repeat(7));
    assert_eq!(fs::read(&file).unwrap(), before);
    let status = mount.text("info/status");
    assert!(status.contains("bytes more, but the disk has"), "{status}");
    let text = mount.text("tree.yaml").replace("a: ", "b: ");
    fs::write(mount.path("tree.yaml"), &text).unwrap();
    assert!(fs::read(&file).unwrap().starts_with(text.as_bytes()));
}

#[test]
fn an_unmount_says_where_a_refused_text_is_or_that_it_is_gone() {
    // It sent the user to a file beside FILE, wherever the text was kept, and if it was not kept at all.
    const SCRIPT: &str = "
mkdir ro state
mount -t tmpfs none ro
touch ro/f.asdf none
mount --bind sample.asdf ro/f.asdf
mount -o remount,ro ro
export TMPDIR=$PWD/none
for home in state none; do
    XDG_STATE_HOME=$PWD/$home \"$0\" ro/f.asdf mnt
    echo more >> mnt/tree.yaml
    grep 'NOT SAVED' mnt/info/status
    \"$0\" -u --discard mnt
    echo $?
done";
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let place = fs::canonicalize(dir.path()).unwrap();
    Sample::new("a: 1\n").write(&place);
    fs::create_dir(place.join("mnt")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, PROGRAM]);
    let said = run(command.current_dir(&place));
    let kept = place.join("state/asdf-mount/f.asdf.rejected.yaml");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{} {}", said.stdout, said.stderr);
    assert!(lines[0].ends_with(&format!("your text is in {}", kept.display())));
    assert!(
        lines[2].contains("your text is in memory only, and gone at unmount: "),
        "{}",
        lines[2]
    );
    assert_eq!([lines[1], lines[3]], ["40", "40"]);
    let unmounted = "asdf-mount: mnt: unmounted, but the tree that was refused is not saved (line 8, column 1: \
        there is text behind the `...` line that ends the tree; remove it, or the early `...`): it";
    let complaints: Vec<&str> = said
        .stderr
        .lines()
        .filter(|line| line.contains("unmounted"))
        .collect();
    assert_eq!(
        complaints,
        [
            format!("{unmounted} is kept in {}", kept.display()),
            format!("{unmounted} could not be kept on disk, and is lost with the mount"),
        ]
    );
    assert!(fs::read_to_string(kept).unwrap().ends_with("more\n"));
}

#[test]
fn a_mount_for_writing_wants_the_file_for_itself_and_a_save_nobody_else_who_writes() {
    const EBUSY: Option<i32> = Some(16);
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let read_only = Mount::new(&place.file, &["-r"]);
    let again = Mount::new(&place.file, &["-r"]);
    assert_refused(&place.mount(&[]), 13, "another mount");
    let repair = [
        "--check".as_ref(),
        "--repair".as_ref(),
        place.file.as_os_str(),
    ];
    assert_eq!(asdf_mount(repair).code, 13);
    read_only.unmount();
    again.unmount();

    let mount = Mount::new(&place.file, &[]);
    assert_refused(&place.mount(&[]), 13, "another mount");
    Mount::new(&place.file, &["-r"]).unmount();
    assert_eq!(asdf_mount(repair).code, 13);
    let other = File::options().append(true).open(&place.file).unwrap();
    let text = mount.text("tree.yaml").replace("flux", "flow");
    for (name, bytes) in [("tree.yaml", text.as_bytes()), ("blocks/0.bin", &[1; 20])] {
        let mut file = File::create(mount.path(name)).unwrap();
        file.write_all(bytes).unwrap();
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), EBUSY, "{name}");
    }
    drop(other);
    eventually(
        "the tree is saved once FILE is open for writing nowhere else",
        || {
            let mut tree = File::create(mount.path("tree.yaml")).unwrap();
            tree.write_all(text.as_bytes()).unwrap();
            tree.sync_all().is_ok()
        },
    );
    assert_eq!(mount.text("tree.yaml"), text);
}

#[test]
fn a_save_that_is_refused_while_a_program_is_executed_does_not_wait_for_that() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = Mount::new(&place.file, &[]);
    let writer = File::options().append(true).open(&place.file).unwrap();
    let text = mount.text("tree.yaml").replace("flux", "flow");
    let mut tree = File::create(mount.path("tree.yaml")).unwrap();
    tree.write_all(text.as_bytes()).unwrap();
    // the kernel closes our files in the new process, which is refused with the name of that process or without
    assert!(Command::new("true").status().unwrap().success());
    drop(writer);
    // if tests share a process, a program that another one starts has our `writer` too, until the kernel has closed `tree` in it
    eventually(
        "the tree is saved once FILE is open for writing nowhere else",
        || tree.sync_all().is_ok(),
    );
    assert_eq!(mount.text("tree.yaml"), text);
}
