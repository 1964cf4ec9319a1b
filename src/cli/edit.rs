//! `--edit`: the tree of FILE in the user's editor, through a mount that no other user can reach and that goes with the editor.

mod asked;

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdin};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::exit::{Exit, Failure};
use super::options::Options;
use super::unmount::wait::Wait;
use super::{UNMOUNT_TIMEOUT, complain, daemon, resolve, unmount};
use crate::error::shell_word;
use crate::save::ONLY_READ;
use crate::source::Mounted;
use asked::Asked;

/// The variables that name an editor, the first that is set counts, and the editor where none is.
const EDITORS: [&str; 2] = ["VISUAL", "EDITOR"];
const DEFAULT_EDITOR: &str = "vi";
/// The exit status of a shell that does not find a command.
const NOT_FOUND: i32 = 127;
/// What a shell adds to the number of the signal that has ended a command, for its exit status.
const BY_SIGNAL: i32 = 128;
/// How long an editor that was asked to end is waited for.
const ENDING: Duration = Duration::from_secs(5);
/// What is edited.
const TREE: &str = "tree.yaml";

/// Mounts FILE, has the user edit its tree, and unmounts it. [`Exit::Pending`] if a text was refused and not corrected.
pub(super) fn edit(
    files: &[PathBuf],
    options: &Options,
    arguments: &[OsString],
) -> Result<Exit, Failure> {
    let [file] = files else {
        return Err(Failure::new(Exit::Usage, "one FILE can be edited at once"));
    };
    if options.urls.has(file) {
        return Err(Failure::of(Exit::File, file, ONLY_READ));
    }
    let whole = resolve(file)?;
    check_not_mounted(&whole)?;
    let place = Place::new(&whole)?;
    let asked = Asked::listen()?;
    let mut arguments = arguments.to_vec();
    arguments.push(place.mountpoint.clone().into());
    match daemon::start(&arguments, false)? {
        Exit::Ok => {}
        failed => return Ok(failed),
    }
    let edited = place.edit(&asked);
    match unmount::one(
        &place.mountpoint,
        file,
        &options.urls,
        UNMOUNT_TIMEOUT,
        false,
    ) {
        Ok(Exit::Ok) => edited,
        Ok(failed) => edited.and(Ok(failed)),
        Err(left) => {
            let then = match Mounted::at(&place.mountpoint) {
                // of a text in memory only, the message says what to do
                Some(_) if left.exit != Exit::Unkept => {
                    format!("; then asdf-mount -u {} unmounts it", shell_word(file))
                }
                _ => String::new(),
            };
            complain(&format!("{}{then}", left.message));
            edited.and(Ok(left.exit))
        }
    }
}

/// Refuses a file that is mounted: its tree can be edited there.
fn check_not_mounted(file: &Path) -> Result<(), Failure> {
    let shows = |mount: &Mounted| mount.looks_ours() && mount.is_of(file);
    let Some(mount) = Mounted::all().into_iter().find(shows) else {
        return Ok(());
    };
    let there = mount.directory().display();
    let word = shell_word(mount.directory());
    let why = format!("mounted on {there}; edit {TREE} there, or asdf-mount -u {word} first");
    Err(Failure::of(Exit::Locked, file, why))
}

/// A directory for this user alone, removed at the end if it is empty, and the mountpoint in it.
struct Place {
    directory: PathBuf,
    /// Named after FILE, since editors show the name. The daemon makes and removes it.
    mountpoint: PathBuf,
}

impl Place {
    fn new(file: &Path) -> Result<Self, Failure> {
        let (parent, process) = (daemon::temporary_files(), std::process::id());
        let mut free = (0_u32..).map(|n| parent.join(format!("asdf-mount-edit-{process}-{n}")));
        let made = free.find_map(|path| {
            // a directory that is there already may be of anybody
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                made => Some(made.map(|()| path)),
            }
        });
        let made = made.unwrap_or_else(|| Err(ErrorKind::AlreadyExists.into()));
        let directory = made.map_err(|error| {
            let advice = "set TMPDIR to a directory where this user can make files";
            Failure::of(Exit::Mountpoint, &parent, format!("{error}; {advice}"))
        })?;
        // a directory below the private one, with the name of FILE: editors show it in their title
        let mountpoint = directory.join(file.file_name().unwrap_or_default());
        Ok(Self {
            directory,
            mountpoint,
        })
    }

    /// Runs the editor until its text is saved or the user gives up.
    fn edit(&self, asked: &Asked) -> Result<Exit, Failure> {
        let tree = self.mountpoint.join(TREE);
        loop {
            let (status, told) = run_editor(&tree, asked)?;
            // an editor that was killed has left its swap files in the mount, which is about to go
            if told || status.is_none_or(was_killed) {
                self.rescue();
            }
            let Some(why) = self.refusal() else {
                return match status {
                    Some(status) if !status.success() => Err(unhappy(status)),
                    _ => Ok(Exit::Ok),
                };
            };
            if told || !stdin().is_terminal() {
                // the unmount says why, and where the text is kept
                return Ok(Exit::Pending);
            }
            complain(&why);
            match ask(asked) {
                Answer::Again => self.show_refused(),
                Answer::Keep => return Ok(Exit::Pending),
                Answer::Drop => {
                    self.drop_refused();
                    return Ok(Exit::Pending);
                }
            }
        }
    }

    /// What is not saved, and why.
    fn refusal(&self) -> Option<String> {
        // the root answers once all that was closed has been saved or refused
        let unsaved = unmount::attribute(&self.mountpoint, "user.asdf.unsaved")?;
        let why = unmount::attribute(&self.mountpoint.join(TREE), "user.asdf.error");
        Some(why.unwrap_or(unsaved).display().to_string())
    }

    /// The file on disk that keeps the refused text, if one does.
    fn kept(&self) -> Option<PathBuf> {
        let kept = unmount::attribute(&self.mountpoint.join(TREE), "user.asdf.rejected");
        kept.map(PathBuf::from)
    }

    /// Makes sure that the editor opens the refused text: one that was renamed over the tree is in its own file only.
    fn show_refused(&self) {
        let tree = self.mountpoint.join(TREE);
        let kept = self.kept().and_then(|kept| fs::read(kept).ok());
        if let Some(kept) = kept
            && fs::read(&tree).ok().as_ref() != Some(&kept)
            && let Err(error) = fs::write(&tree, kept)
        {
            complain(&format!("{}: {error}", tree.display()));
        }
    }

    /// Gives up the refused text, and removes the file that keeps it.
    fn drop_refused(&self) {
        let kept = self.kept();
        if let Err(error) = unmount::give_up(&self.mountpoint, true) {
            return complain(&format!("{}: {error}", self.mountpoint.display()));
        }
        if let Some(kept) = kept
            && let Err(error) = fs::remove_file(&kept)
        {
            complain(&format!("{}: {error}", kept.display()));
        }
    }

    /// Copies what an editor that was ended by a signal has left beside the tree, since it goes with the mount.
    fn rescue(&self) {
        let entries = fs::read_dir(&self.mountpoint).into_iter().flatten();
        let left = entries.flatten().filter(|entry| {
            entry.file_name() != TREE && entry.file_type().is_ok_and(|kind| kind.is_file())
        });
        for entry in left {
            let copy = self.directory.join(entry.file_name());
            match fs::copy(entry.path(), &copy) {
                Ok(_) => complain(&format!("{}: left by the editor", copy.display())),
                Err(error) => complain(&format!("{}: {error}", entry.path().display())),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // what was rescued, or a mount that is in use, stays
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The user's editor, as a shell takes it.
fn editor() -> OsString {
    let set = EDITORS.into_iter().filter_map(env::var_os);
    let mut set = set.filter(|name| !name.is_empty());
    set.next().unwrap_or_else(|| DEFAULT_EDITOR.into())
}

/// Runs the editor. How it has ended, if it has, and whether this process was asked to end meanwhile.
fn run_editor(tree: &Path, asked: &Asked) -> Result<(Option<ExitStatus>, bool), Failure> {
    let editor = editor();
    // keys that interrupt are the editor's: the shell would end by them, though the editor goes on
    let mut script = OsString::from("trap : INT QUIT; ");
    script.push(&editor);
    // EDITOR may have arguments, as "code --wait": the shell splits it, and the path stays one word
    script.push(" \"$@\"");
    let failed =
        |error: std::io::Error| Failure::new(Exit::Other, format!("starting the editor: {error}"));
    let mut running = Command::new("/bin/sh")
        .arg("-c")
        .args([&script, &editor])
        .arg(tree)
        .spawn()
        .map_err(failed)?;
    let process = pidfd_open(Pid::from_child(&running), PidfdFlags::empty());
    let process = process.map_err(|errno| failed(errno.into()))?;
    let told = !asked.wait_for(&process, false);
    if told {
        end_with_descendants(Pid::from_child(&running));
        return Ok((running.try_wait().map_err(failed)?, true));
    }
    Ok((Some(running.wait().map_err(failed)?), false))
}

/// Asks a process and those that it has started to end, and waits for them: an editor is a child of its shell.
fn end_with_descendants(process: Pid) {
    // the shell's child is the editor; to end the shell alone would leave it behind, reading the terminal
    let mut left = vec![process];
    let mut running = Vec::new();
    while let Some(process) = left.pop() {
        let parent = process.as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let children = children.unwrap_or_default();
        let numbers = children.split_whitespace().flat_map(str::parse);
        left.extend(numbers.filter_map(Pid::from_raw));
        // one that has just ended needs no telling
        running.extend(pidfd_open(process, PidfdFlags::empty()));
    }
    for process in &running {
        let _ = pidfd_send_signal(process, Signal::TERM);
    }
    let mut wait = Wait::new(ENDING);
    for process in &running {
        wait.for_end(process, || "waiting for the editor".to_owned());
    }
}

/// Whether a signal has ended the editor, or the shell that has started it says so.
fn was_killed(status: ExitStatus) -> bool {
    status.signal().is_some() || status.code().is_some_and(|code| code > BY_SIGNAL)
}

/// The failure of an editor, which says nothing of what it has saved before.
fn unhappy(status: ExitStatus) -> Failure {
    let advice = match status.code() {
        Some(NOT_FOUND) => "; set EDITOR to one that is there",
        _ => "",
    };
    let editor = editor();
    let why = format!("the editor {}: {status}{advice}", editor.display());
    Failure::new(Exit::Other, why)
}

/// What is to happen to a text that was refused.
enum Answer {
    Again,
    Keep,
    Drop,
}

/// Asks the user on the terminal. No answer, and a key or signal that asks for an end, keep the text.
fn ask(asked: &Asked) -> Answer {
    asked.forget_keys();
    loop {
        let question = b"Edit again, keep the text in its file, or drop it? [e/k/d] ";
        let shown = stderr().write_all(question);
        if shown.is_err() || !asked.wait_for(&stdin(), true) {
            return Answer::Keep;
        }
        // a terminal gives a line at once, of which the first byte counts
        let mut line = [0; 256];
        let read = rustix::io::read(stdin(), &mut line).unwrap_or(0);
        match line.first().filter(|_| read > 0) {
            None | Some(b'k' | b'K') => return Answer::Keep,
            Some(b'e' | b'E') => return Answer::Again,
            Some(b'd' | b'D') => return Answer::Drop,
            Some(_) => {}
        }
    }
}
