//! `--edit`: the user's editor on the tree of FILE, and what comes of its text.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{
    Mount, Outcome, PROGRAM, asdf_mount, assert_refused, can_mount, eventually, is_running,
    mount_table, run,
};
use crate::sample::Sample;

/// A file to edit, an editor made of a script, and a directory for what is temporary.
struct Desk {
    dir: TempDir,
    file: PathBuf,
    editor: PathBuf,
}

impl Desk {
    /// The script gets the tree as `$1`, and `$n`, which counts its runs.
    fn new(script: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let file = Sample::new("a: 1\n").write(dir.path());
        let editor = dir.path().join("editor");
        let counted = "n=$(($(cat \"$0.runs\" 2>/dev/null || echo 0) + 1)); echo $n >\"$0.runs\"";
        fs::write(&editor, format!("#!/bin/sh\n{counted}\n{script}\n")).unwrap();
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Self { dir, file, editor }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn by(&self, command: &mut Command) -> Outcome {
        let said = run(command
            .env("TMPDIR", self.path("tmp"))
            .env_remove("VISUAL")
            .env("EDITOR", &self.editor));
        self.assert_clean();
        said
    }

    fn edit(&self) -> Outcome {
        self.by(Command::new(PROGRAM).arg("--edit").arg(&self.file))
    }

    /// The same on a terminal, on which these lines are typed.
    fn edit_on_terminal(&self, typed: &str) -> Outcome {
        let command = format!("exec '{PROGRAM}' --edit '{}'", self.file.display());
        let lines = self.path("typed");
        fs::write(&lines, typed).unwrap();
        let script = "exec script -qefc \"$1\" /dev/null <\"$2\"";
        self.by(Command::new("sh")
            .args(["-c", script, "sh", &command])
            .arg(lines))
    }

    /// Nothing is left mounted, and nothing in the directory for temporary files.
    fn assert_clean(&self) {
        let tmp = fs::canonicalize(self.path("tmp")).unwrap();
        let mounts = mount_table("mounts");
        assert!(!mounts.contains(tmp.to_str().unwrap()), "{mounts}");
        assert_eq!(fs::read_dir(tmp).unwrap().count(), 0);
    }

    fn kept(&self) -> Option<String> {
        fs::read_to_string(self.path("sample.asdf.rejected.yaml")).ok()
    }

    fn tree(&self) -> String {
        asdf_mount([Path::new("--tree"), &self.file]).stdout
    }
}

#[test]
fn what_the_editor_saves_is_in_the_file() {
    if !can_mount() {
        return;
    }
    // in place, and by a rename; in a directory for this user alone, under the name of FILE
    for script in [
        "test \"$(stat -c %a \"${1%/*}/..\")\" = 700 && cat \"$1\" | sed 's/a: 1/a: 22/' >\"$0.new\" && cat \"$0.new\" >\"$1\"",
        "case $1 in */sample.asdf/tree.yaml) sed -i 's/a: 1/a: 22/' \"$1\" ;; esac",
    ] {
        let desk = Desk::new(script);
        let said = desk.edit();
        assert_eq!(
            (said.code, &*said.stdout, &*said.stderr),
            (0, "", ""),
            "{script}"
        );
        assert!(desk.tree().contains("a: 22\n"), "{script}");
    }
}

/// Ctrl-C, which an editor such as ed(1) takes for its own, ended the shell that had started it, and so the command failed.
#[test]
fn a_key_that_interrupts_an_editor_that_goes_on_is_no_failure() {
    if !can_mount() {
        return;
    }
    // the parent is the shell
    let desk = Desk::new("kill -INT $PPID; kill -QUIT $PPID; sed -i 's/a: 1/a: 22/' \"$1\"");
    let said = desk.edit();
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert!(desk.tree().contains("a: 22\n"));
}

#[test]
fn a_tree_that_is_only_looked_at_changes_nothing() {
    if !can_mount() {
        return;
    }
    let desk = Desk::new("cat \"$1\" >\"$0.seen\"");
    let before = fs::read(&desk.file).unwrap();
    let said = desk.edit();
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert_eq!(fs::read(&desk.file).unwrap(), before);
    assert_eq!(
        fs::read_to_string(desk.path("editor.seen")).unwrap(),
        desk.tree()
    );
}

#[test]
fn the_editor_is_a_command_of_the_shell_and_visual_comes_first() {
    if !can_mount() {
        return;
    }
    let desk = Desk::new("exit 3");
    let mut command = Command::new("env");
    command.args(["VISUAL=sed -i 's/a: 1/a: 22/'", PROGRAM, "--edit"]);
    let said = desk.by(command.arg(&desk.file));
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert!(desk.tree().contains("a: 22\n"));
}

#[test]
fn a_refused_text_is_kept_where_nobody_can_be_asked() {
    if !can_mount() {
        return;
    }
    let desk = Desk::new("sed 's/a: 1/a: [/' \"$1\" >\"$0.new\"; cat \"$0.new\" >\"$1\"");
    let before = fs::read(&desk.file).unwrap();
    let said = desk.edit();
    let kept = fs::canonicalize(desk.path("sample.asdf.rejected.yaml")).unwrap();
    assert_refused(&said, 40, &format!("it is kept in {}", kept.display()));
    let unmounted = format!("asdf-mount: {}: unmounted, but ", desk.file.display());
    assert!(said.stderr.starts_with(&unmounted), "{}", said.stderr);
    assert!(
        said.stderr.contains("line 7, column 1: "),
        "{}",
        said.stderr
    );
    assert_eq!(fs::read(&desk.file).unwrap(), before);
    assert!(desk.kept().unwrap().contains("a: [\n"));
}

#[test]
fn on_a_terminal_the_user_corrects_what_was_refused() {
    if !can_mount() {
        return;
    }
    // the second run sees what the first one has left, also where a rename was refused
    for write in [
        "cat \"$0.new\" >\"$1\"",
        "cp \"$0.new\" \"$1.new\"; mv \"$1.new\" \"$1\"",
    ] {
        let script = format!(
            "if [ $n = 1 ]; then sed 's/a: 1/a: [/' \"$1\"; else sed 's/a: \\[/a: 22/' \"$1\"; fi >\"$0.new\"; {write}"
        );
        let desk = Desk::new(&script);
        let said = desk.edit_on_terminal("what?\nedit\n");
        assert_eq!(said.code, 0, "{}", said.stdout);
        assert!(
            said.stdout.contains("line 7, column 1: "),
            "{}",
            said.stdout
        );
        assert_eq!(said.stdout.matches("[e/k/d]").count(), 2, "{}", said.stdout);
        assert!(desk.tree().contains("a: 22\n"), "{write}");
        assert_eq!(desk.kept(), None);
    }
}

#[test]
fn on_a_terminal_the_user_keeps_or_drops_what_was_refused() {
    if !can_mount() {
        return;
    }
    let script = "sed 's/a: 1/a: [/' \"$1\" >\"$0.new\"; cat \"$0.new\" >\"$1\"";
    for (typed, kept) in [("k\n", true), ("D\n", false), ("e\nk\n", true), ("", true)] {
        let desk = Desk::new(script);
        let said = desk.edit_on_terminal(typed);
        assert_eq!(said.code, 40, "{typed:?}: {}", said.stdout);
        assert_eq!(desk.kept().is_some(), kept, "{typed:?}: {}", said.stdout);
        assert_eq!(
            said.stdout.contains("it is kept in"),
            kept,
            "{}",
            said.stdout
        );
        assert!(desk.tree().contains("a: 1\n"));
    }
}

/// What was saved before stays saved.
#[test]
fn an_editor_that_fails_or_is_not_there_is_told() {
    if !can_mount() {
        return;
    }
    let desk = Desk::new("sed -i 's/a: 1/a: 22/' \"$1\"; exit 3");
    assert_refused(&desk.edit(), 1, "exit status: 3");
    assert!(desk.tree().contains("a: 22\n"));
    fs::remove_file(&desk.editor).unwrap();
    let said = desk.edit();
    assert_eq!(said.code, 1);
    let last = said.stderr.lines().last().unwrap();
    assert!(last.ends_with("set EDITOR to one that is there"), "{last}");
}

#[test]
fn a_file_that_cannot_be_edited_is_refused_before_the_editor_starts() {
    if !can_mount() {
        return;
    }
    let desk = Desk::new("exit 3");
    let draft =
        b"#ASDF 0.1.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/0.1.0/\n--- !core/asdf\na: 1\n...\n";
    fs::write(&desk.file, draft).unwrap();
    assert_refused(&desk.edit(), 11, "it can't be edited: ");
    fs::write(&desk.file, "SIMPLE  =                    T").unwrap();
    assert_refused(&desk.edit(), 20, "sample.asdf: ");
    fs::remove_file(&desk.file).unwrap();
    assert_refused(&desk.edit(), 11, "no such file");
    assert!(!desk.path("editor.runs").exists());
}

#[test]
fn a_mounted_file_is_edited_where_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let desk = Desk::new("exit 3");
    let mount = Mount::new(&desk.file, &[]);
    let there = format!("mounted on {}; edit tree.yaml there", mount.dir.display());
    assert_refused(&desk.edit(), 13, &there);
    assert!(!desk.path("editor.runs").exists());
}

#[test]
fn options_that_an_edit_does_not_heed_are_refused() {
    let desk = Desk::new("exit 3");
    for option in [
        "-r",
        "-f",
        "-oro",
        "-oshow=tree",
        "-oidle=1s",
        "-otimeout=4s",
    ] {
        let mut command = Command::new(PROGRAM);
        let said = desk.by(command.args([option, "--edit"]).arg(&desk.file));
        assert_refused(&said, 2, "has no effect with --edit");
    }
    let mut command = Command::new(PROGRAM);
    let said = desk.by(command.arg("--edit").args([&desk.file, &desk.file]));
    assert_refused(&said, 2, "one argument too many");
    assert!(!desk.path("editor.runs").exists());
}

#[test]
fn the_options_of_saves_are_heeded() {
    if !can_mount() {
        return;
    }
    let desk = Desk::new("sed -i 's/a: 1/a: !core\\/constant-1.0.0 {b: 1}/' \"$1\"");
    let mut command = Command::new(PROGRAM);
    command.args(["--edit", "-o", "grow=never,pad=none"]);
    let said = desk.by(command.arg(&desk.file));
    assert_eq!((said.code, &*said.stderr), (0, ""));
}

/// The editor has refused text in the mount, and a file beside it, when the command is asked to end.
#[test]
fn a_signal_ends_the_editor_and_keeps_the_text() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::TERM, Signal::HUP] {
        let script = "sed 's/a: 1/a: [/' \"$1\" >\"$0.new\"; cat \"$0.new\" >\"$1\"; echo swap >\"${1%/*}/.tree.yaml.swp\"
            echo $$ >\"$0.pid.new\"; mv \"$0.pid.new\" \"$0.pid\"; exec sleep 1000";
        let desk = Desk::new(script);
        let said = desk.path("said");
        // the tests may run under nohup(1)
        let mut command = Command::new("env")
            .args(["--default-signal=HUP", PROGRAM, "--edit"])
            .arg(&desk.file)
            .env("TMPDIR", desk.path("tmp"))
            .env_remove("VISUAL")
            .env("EDITOR", &desk.editor)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        eventually("the editor runs", || desk.path("editor.pid").exists());
        // a key of the terminal is the editor's
        let process = Pid::from_child(&command);
        kill_process(process, Signal::INT).unwrap();
        kill_process(process, Signal::QUIT).unwrap();
        kill_process(process, signal).unwrap();
        let mut status = None;
        eventually("ended", || {
            status = command.try_wait().unwrap();
            status.is_some()
        });
        let said = fs::read_to_string(said).unwrap();
        assert_eq!(status.unwrap().code(), Some(40), "{said}");
        assert!(desk.kept().unwrap().contains("a: [\n"));
        let editor = fs::read_to_string(desk.path("editor.pid")).unwrap();
        assert!(!is_running(editor.trim().parse().unwrap()));
        // what it had beside the tree is where the command says
        let left = said.lines().find_map(|line| {
            line.strip_prefix("asdf-mount: ")?
                .strip_suffix(": left by the editor")
        });
        let left = Path::new(left.unwrap());
        assert_eq!(fs::read_to_string(left).unwrap(), "swap\n");
        fs::remove_dir_all(left.parent().unwrap()).unwrap();
        desk.assert_clean();
    }
}
