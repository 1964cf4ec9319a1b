//! The texts of a collection: how it stands, which files it has, and why a file can't be read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::contents::Contents;
use super::item::{Item, ItemKind};
use super::many::{Many, failed, is_lack, is_owner};
use super::members::{Problem, Resolved, problem_of};
use crate::error::printable_bytes;
use crate::source::{Stat, len_u64};
use crate::vfs::{self, ClosedFile, Error, Node, Result, Text};

/// The directory with what there is to say of the collection.
pub const NAME: &str = ".asdf-mount";
/// The status of the collection.
const STATUS: Node = Node::Tree(0);
/// The table of its files.
const FILES: Node = Node::Tree(1);
/// What is in that directory.
const REPORT: [(&str, Node); 2] = [("status", STATUS), ("files.tsv", FILES)];
/// What is in a member that can't be read, and in its `info/`.
const UNREADABLE: [(&str, Node); 1] = [("info", Node::Info)];
const INFO: [(&str, Node); 1] = [("status", Node::Status)];
/// What is in one of which it is not known what is in it.
const TREE: (&str, Node) = (ClosedFile::TREE_NAME, Node::TREE);
/// What is said of a file of a bucket whose name can't be shown.
const LEFT_OUT: &str =
    "left out: no file can be called so, or its time in the listing is impossible";
/// The most lines of a kind in the status.
const MAX_LINES: usize = 100;

/// Whether a name in a directory is that of the report, whatever DIR has under it.
pub(super) fn takes(directory: Item, name: &OsStr) -> bool {
    directory == Item::ROOT && name == NAME
}

/// Checks that a node is there.
///
/// # Errors
/// [`Error::NotFound`]; of a member, why it is not known what is there.
pub(super) fn check(part: &Resolved, node: Node) -> Result<()> {
    match part {
        Resolved::Report if matches!(node, Node::Root | STATUS | FILES) => Ok(()),
        Resolved::Unreadable { .. } if matches!(node, Node::Root | Node::Info | Node::Status) => {
            Ok(())
        }
        // its name is there, so that a shell finds it; to open it is an error
        Resolved::Unreadable { cause: Some(_), .. } if node == Node::TREE => Ok(()),
        _ => Err(absent(part)),
    }
}

/// What is in a directory of the report, or of a member that can't be read.
pub(super) fn names(part: &Resolved, node: Node) -> Result<Vec<(&'static str, Node)>> {
    match (part, node) {
        (Resolved::Report, Node::Root) => Ok(REPORT.to_vec()),
        // what searches for a text is not to take the file for one that has none
        (Resolved::Unreadable { cause: Some(_), .. }, Node::Root) => {
            Ok([&UNREADABLE[..], &[TREE]].concat())
        }
        (Resolved::Unreadable { .. }, Node::Root) => Ok(UNREADABLE.to_vec()),
        (Resolved::Unreadable { .. }, Node::Info) => Ok(INFO.to_vec()),
        _ => Err(Error::NotDirectory),
    }
}

/// The node of a name there.
pub(super) fn find(part: &Resolved, node: Node, name: &OsStr) -> Result<Node> {
    let mut names = names(part, node)?.into_iter();
    let found = names.find(|(known, _)| name == *known);
    match found {
        Some((_, found)) => check(part, found).map(|()| found),
        None if node == Node::Root => Err(absent(part)),
        None => Err(Error::NotFound),
    }
}

/// Why something that a member or the report may have is not there: nothing else is known of a member whose disk or server has failed.
fn absent(part: &Resolved) -> Error {
    match part {
        Resolved::Unreadable {
            cause: Some(cause), ..
        } => cause.clone().into(),
        _ => Error::NotFound,
    }
}

impl Many {
    /// A text, as it is now.
    pub(super) fn text(&self, part: &Resolved, node: Node) -> Result<String> {
        match (part, node) {
            (Resolved::Report, STATUS) => Ok(self.status()),
            (Resolved::Report, FILES) => {
                let table = self.table()?;
                self.table_len
                    .store(len_u64(table.len()), Ordering::Relaxed);
                Ok(table)
            }
            (Resolved::Unreadable { why, told, .. }, Node::Status) => Ok(status_of(why, told)),
            (_, Node::Root | Node::Info) => Err(Error::IsDirectory),
            _ => Err(absent(part)),
        }
    }

    /// Its length; of the table, which takes a walk through all directories, that of when it was last made.
    pub(super) fn text_len(&self, part: &Resolved, node: Node) -> Result<u64> {
        let known = self.table_len.load(Ordering::Relaxed);
        if matches!((part, node), (Resolved::Report, FILES)) && known > 0 {
            return Ok(known);
        }
        if matches!(part, Resolved::Unreadable { .. }) && node == Node::TREE {
            return Ok(0);
        }
        Ok(len_u64(self.text(part, node)?.len()))
    }

    /// The value of an extended attribute of an item, if it is known without opening a member: of the root, those by which
    /// `asdf-mount -u` asks. Those that name files, which may be closed to other users, are for the user who mounted it and root.
    pub(super) fn attribute(&self, item: Item, name: &OsStr, user: u32) -> Option<Result<Vec<u8>>> {
        let ours = name
            .to_str()
            .and_then(|name| name.strip_prefix("user.asdf."));
        let kind = self.items().kind(item);
        let value = match (item, ours) {
            (Item::ROOT, Some("pid")) => std::process::id().to_string(),
            (Item::ROOT, Some("pidns")) => vfs::pid_namespace().unwrap_or_default(),
            (Item::ROOT, Some("cache_used")) => self.cache.used().to_string(),
            (Item::ROOT, Some(_)) if !is_owner(user) => String::new(),
            (Item::ROOT, Some("unsaved")) => self.losses().unsaved.join("\n"),
            (Item::ROOT, Some("scratch")) => {
                self.close_missing();
                self.losses().scratch.join(", ")
            }
            (Item::ROOT, Some("unkept")) => self.unkept().join(", "),
            (_, Some(_)) if kind == Some(ItemKind::Member) => return None,
            _ => String::new(),
        };
        let value = Some(vfs::shortened(value).into_bytes());
        Some(
            value
                .filter(|value| !value.is_empty())
                .ok_or(Error::NoAttribute),
        )
    }

    /// The refused trees that are in memory only, after one more attempt to keep them.
    fn unkept(&self) -> Vec<String> {
        let name = OsStr::new("user.asdf.unkept");
        let open = self.open_by_path().into_iter();
        let lost = open.filter(|(_, vfs)| vfs.getxattr(Node::Root, name).is_ok());
        lost.map(|(path, _)| format!("{}/tree.yaml", path.display()))
            .collect()
    }

    /// `.asdf-mount/status`: one screen for people.
    fn status(&self) -> String {
        self.close_missing();
        let mut text = Text::default();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            text.line(format_args!("{name:<10}{value}"));
        };
        match self.contents.directory() {
            Some(directory) => line("directory", &directory.display()),
            None => line("files", &"a list"),
        }
        let mount = if self.read_only {
            "read-only"
        } else {
            "writable"
        };
        line("mount", &mount);
        let all = self.members.all();
        let limit = self.members.limit();
        line(
            "open",
            &format_args!("{} of at most {limit}, unless more are in use", all.len()),
        );
        let names = self.items().len().saturating_sub(2);
        line("names", &format_args!("{names} known so far"));
        let (used, budget) = (self.cache.used(), self.cache.budget());
        line(
            "memory",
            &format_args!("{used} of {budget} bytes for decoded data"),
        );
        let scratch = self.options.scratch.room();
        if scratch.used() > 0 {
            let (used, limit) = (scratch.used(), scratch.limit());
            line(
                "memory",
                &format_args!("{used} of {limit} bytes for scratch files"),
            );
        }
        if let Err(error) = Contents::check_descriptors() {
            line(
                "problem",
                &format_args!("no more files can be opened: {error}; ulimit -n raises the limit"),
            );
        }
        for name in self.contents.left_out().iter().take(MAX_LINES) {
            line("problem", &format_args!("{name}: {LEFT_OUT}"));
        }
        let losses = self.losses();
        for unsaved in losses.unsaved.iter().take(MAX_LINES) {
            line("save", &format_args!("NOT SAVED: {unsaved}"));
        }
        for file in losses.scratch.iter().take(MAX_LINES) {
            line(
                "memory",
                &format_args!("{file} exists only in this mount: copy it out before unmounting"),
            );
        }
        let told = self.problems(&all);
        for (path, why) in told.iter().take(MAX_LINES) {
            line("problem", &format_args!("{}: {why}", path.display()));
        }
        if let Some(more) = told.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
            line(
                "problem",
                &format_args!("and {more} more files, see files.tsv"),
            );
        }
        text.into_string()
    }

    /// What is wrong with members, by their paths: with those that are open now, and with closed ones when they were open last.
    fn problems(&self, all: &[(Item, Resolved)]) -> Vec<(PathBuf, String)> {
        let mut items = self.members.with_problems();
        items.extend(all.iter().map(|(item, _)| *item));
        items.sort_unstable();
        items.dedup();
        let told = items.into_iter().filter_map(|item| {
            let path = self.items().path(item)?;
            let now = if self.contents.has_far() {
                // a server that does not answer is not waited for
                self.members.problem(item).map(|(then, _)| then.stat)
            } else {
                let look = || self.contents.look_at(&path);
                self.with_descriptors(look).ok()
            };
            let why = match self.as_reported(item, now.as_ref()) {
                Some(Resolved::Member(vfs)) => problem_of(&vfs),
                Some(Resolved::Unreadable { why, .. }) => Some(why.to_string()),
                _ => self.before(item, now.as_ref()),
            };
            Some((path, why?))
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        told
    }

    /// A member, if it is open, whose file has these attributes now. One that had a problem when its times may have hidden a change is
    /// opened to see whether it still has.
    fn as_reported(&self, item: Item, now: Option<&Stat>) -> Option<Resolved> {
        let is_same = |then: &Stat| now.is_some_and(|now| now.is_untouched_since(then));
        let doubtful =
            |(then, _): Problem| is_same(&then.stat) && now.is_some_and(|now| !then.holds(now));
        match self.members.open(item) {
            // of a file that has changed since, nothing is known
            Some(Resolved::Unreadable { stat, .. }) if !is_same(&stat) => None,
            None if self.members.problem(item).is_some_and(doubtful) => self.part(item).ok(),
            open => open,
        }
    }

    /// What was wrong with a member when it was open last, if its file, which has these attributes now, has not changed since.
    fn before(&self, item: Item, now: Option<&Stat>) -> Option<String> {
        let (then, problem) = self.members.problem(item)?;
        now.is_some_and(|now| then.holds(now))
            .then(|| problem.to_string())
    }

    /// `.asdf-mount/files.tsv`: one line a file, in the order of the paths. Opens none of them but those whose problem may be out of
    /// date.
    fn table(&self) -> Result<String> {
        self.close_missing();
        let mut text = Text::default();
        text.row(["path", "size", "state", "blocks", "arrays", "problem"]);
        let mut directories = vec![(Item::ROOT, PathBuf::new())];
        while let Some((directory, way)) = directories.pop() {
            let entries = match self.with_descriptors(|| self.contents.entries(&way)) {
                Ok(entries) => entries,
                Err(error) if is_lack(&error) => return Err(failed(&way, error)),
                // it is gone, or closed to us
                Err(_) => continue,
            };
            let entries = entries.iter();
            let mut entries: Vec<_> = entries.filter(|entry| !takes(directory, entry.0)).collect();
            entries.sort_by_key(|entry| entry.0);
            let mut below = Vec::new();
            for (name, kind) in entries {
                let path = way.join(name);
                let item = self.items().of(directory, kind, name);
                match (kind, item) {
                    (ItemKind::Directory, Some(item)) => below.push((item, path)),
                    (ItemKind::Member, Some(item)) => text.row(self.row(item, &path)),
                    (_, None) => {}
                }
            }
            directories.extend(below.into_iter().rev());
        }
        Ok(text.into_string())
    }

    /// The line of a member. What only an open one knows is `-` of a closed one; what is not saved goes before other problems.
    fn row(&self, item: Item, path: &Path) -> [String; 6] {
        let unknown = || "-".to_owned();
        let stat = self.contents.look_at(path);
        let size = match &stat {
            Ok(stat) => stat.size.to_string(),
            Err(_) => unknown(),
        };
        let now = stat.as_ref().ok();
        let [state, blocks, arrays, problem] = match self.as_reported(item, now) {
            None | Some(Resolved::Directory | Resolved::Report) => {
                let unsaved = self.members.unsaved(item).into_iter().next();
                let state = if unsaved.is_some() {
                    "unsaved"
                } else {
                    "closed"
                };
                let failure = || self.contents.failure(path).map(|error| error.to_string());
                let before = || self.before(item, now);
                let problem = unsaved.or_else(before).or_else(failure).unwrap_or_default();
                [state.to_owned(), unknown(), unknown(), problem]
            }
            Some(Resolved::Unreadable { why, .. }) => {
                let why = why.to_string();
                ["unreadable".to_owned(), unknown(), unknown(), why]
            }
            Some(Resolved::Member(vfs)) => {
                let snapshot = vfs.snapshot();
                let unsaved = vfs.losses().unsaved;
                let state = if unsaved.is_empty() {
                    "open"
                } else {
                    "unsaved"
                };
                let arrays = if snapshot.is_unread() {
                    unknown()
                } else {
                    snapshot.arrays().len().to_string()
                };
                let blocks = snapshot.block_count();
                let blocks = blocks.map_or_else(unknown, |count| count.to_string());
                let problem = unsaved.into_iter().next().or_else(|| problem_of(&vfs));
                [
                    state.to_owned(),
                    blocks,
                    arrays,
                    problem.unwrap_or_default(),
                ]
            }
        };
        let path = printable_bytes(path.as_os_str().as_bytes());
        [path, size, state, blocks, arrays, problem]
    }
}

/// `info/status` of a member whose file can't be read.
fn status_of(why: &str, told: &[(&str, String)]) -> String {
    let mut text = Text::default();
    text.line(format_args!("mount     not readable: {why}"));
    for (name, told) in told {
        text.line(format_args!("{name:<10}{told}"));
    }
    text.into_string()
}
