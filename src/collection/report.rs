//! The texts of a collection: how it stands, which files it has, and why a file can't be read.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::contents::Contents;
use super::item::{Item, ItemKind};
use super::listing::LEFT_OUT;
use super::many::{Many, failed, is_lack, is_owner};
use super::members::{Problem, Resolved, problem_of};
use crate::error::printable_bytes;
use crate::save::processes::pid_namespace;
use crate::source::{Stat, len_u64};
use crate::vfs::{self, ClosedFile, Error, FileKind, Node, Result, Text};

/// The directory with what there is to say of the collection.
pub const NAME: &str = ".asdf-mount";
/// The status of the collection.
const STATUS: Node = Node::Tree(0);
/// The table of its files.
const FILES: Node = Node::Tree(1);
/// What is in that directory: each with the node of its directory, its name, and its own node.
const REPORT: [(Node, &str, Node); 2] = [
    (Node::Root, "status", STATUS),
    (Node::Root, "files.tsv", FILES),
];
/// What is in a member that can't be read.
const UNREADABLE: [(Node, &str, Node); 2] = [
    (Node::Root, "info", Node::Info),
    (Node::Info, "status", Node::Status),
];
/// The same if it is not known what is in the member: its tree has a name, so that a shell finds it, and so that what searches for a text
/// does not take the file for one that has none. To open it is an error.
const UNKNOWN: [(Node, &str, Node); 3] = [
    UNREADABLE[0],
    UNREADABLE[1],
    (Node::Root, ClosedFile::TREE_NAME, Node::TREE),
];
/// The most lines of a kind in the status.
const MAX_LINES: usize = 100;

/// Whether a name in a directory is that of the report, whatever DIR has under it.
pub(super) fn takes(directory: Item, name: &OsStr) -> bool {
    directory == Item::ROOT && name == NAME
}

/// What is below the root of the report, or of a member that can't be read.
fn below(part: &Resolved) -> &'static [(Node, &'static str, Node)] {
    match part {
        Resolved::Report => &REPORT,
        Resolved::Unreadable { cause: None, .. } => &UNREADABLE,
        Resolved::Unreadable { cause: Some(_), .. } => &UNKNOWN,
        Resolved::Member(_) | Resolved::Directory => &[],
    }
}

/// Checks that a node is there.
///
/// # Errors
/// [`Error::NotFound`]; of a member, why it is not known what is there.
pub(super) fn check(part: &Resolved, node: Node) -> Result<()> {
    let is_there = node == Node::Root || below(part).iter().any(|(_, _, known)| *known == node);
    is_there.then_some(()).ok_or_else(|| absent(part))
}

/// What is in a directory of the report, or of a member that can't be read.
pub(super) fn names(part: &Resolved, node: Node) -> Result<Vec<(&'static str, Node)>> {
    if check(part, node).is_err() || vfs::kind(node) != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    let names = below(part).iter().filter(|known| known.0 == node);
    Ok(names.map(|(_, name, found)| (*name, *found)).collect())
}

/// The node of a name there.
pub(super) fn find(part: &Resolved, node: Node, name: &OsStr) -> Result<Node> {
    let mut names = names(part, node)?.into_iter();
    let found = names.find(|(known, _)| name == *known);
    match found {
        Some((_, found)) => Ok(found),
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
            (Item::ROOT, Some("pidns")) => pid_namespace().unwrap_or_default(),
            (Item::ROOT, Some("cache_used")) => self.cache.used().to_string(),
            (Item::ROOT, Some(_)) if !is_owner(user) => String::new(),
            (Item::ROOT, Some("unsaved")) => self.losses().unsaved.join("\n"),
            (Item::ROOT, Some("scratch")) => {
                self.close_missing();
                self.losses().scratch.join(", ")
            }
            (Item::ROOT, Some("refused")) => self.trees_with("refused").join("\n"),
            (Item::ROOT, Some("unkept")) => self.trees_with("unkept").join(", "),
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

    /// The trees that were refused, or that are `unkept`: in memory only, after one more attempt to keep them.
    fn trees_with(&self, attribute: &str) -> Vec<String> {
        let name = format!("user.asdf.{attribute}");
        let open = self.open_by_path().into_iter();
        let found = open.filter(|(_, vfs)| vfs.getxattr(Node::Root, name.as_ref()).is_ok());
        let path = |(path, _): (PathBuf, _)| format!("{}/tree.yaml", path.display());
        found.map(path).collect()
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
        let (open, limit) = (self.members.count(), self.members.limit);
        line(
            "open",
            &format_args!("{open} of at most {limit}, unless more are in use"),
        );
        let names = self.items().len().saturating_sub(2);
        line("names", &format_args!("{names} known so far"));
        let (used, budget) = (self.cache.used(), self.cache.budget());
        line(
            "memory",
            &format_args!("{used} of {budget} bytes for decoded data"),
        );
        let scratch = self.scratch.room();
        if scratch.used() > 0 {
            let (used, limit) = (scratch.used(), scratch.limit());
            line(
                "scratch",
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
                "scratch",
                &format_args!("{file} exists only in this mount: copy it out before unmounting"),
            );
        }
        let told = self.problems();
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
    fn problems(&self) -> BTreeSet<(PathBuf, String)> {
        let items = self.members.with_problems().into_iter();
        let told = items.filter_map(|item| {
            let path = self.items().path(item)?;
            let now = if self.contents.has_far() {
                // a server that does not answer is not waited for
                self.members.problem(item).map(|(then, _)| then.stat)
            } else {
                let look = || self.contents.look_at(&path);
                self.with_descriptors(look).ok()
            };
            let reported = self.as_reported(item, now.as_ref());
            let why = self.problem(item, reported.as_ref(), now.as_ref());
            Some((path, why?))
        });
        told.collect()
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

    /// What is wrong with a member: with an `open` one now, with a closed one when it was open last. Of a file that has changed since then,
    /// and has these attributes now, nothing is known.
    fn problem(&self, item: Item, open: Option<&Resolved>, now: Option<&Stat>) -> Option<String> {
        match open {
            Some(Resolved::Member(vfs)) => problem_of(vfs),
            Some(Resolved::Unreadable { why, .. }) => Some(why.to_string()),
            _ => {
                let (then, problem) = self.members.problem(item)?;
                let holds = now.is_some_and(|now| then.holds(now));
                holds.then(|| problem.to_string())
            }
        }
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
                    (ItemKind::Member, Some(item)) => text.row_of_file(self.row(item, &path), 0),
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
        let stat = self.contents.look_at(path).ok();
        let open = self.as_reported(item, stat.as_ref());
        let (state, unsaved, snapshot) = match &open {
            Some(Resolved::Member(vfs)) => ("open", vfs.losses().unsaved, Some(vfs.snapshot())),
            Some(Resolved::Unreadable { .. }) => ("unreadable", Vec::new(), None),
            _ => ("closed", self.members.unsaved(item), None),
        };
        let state = if unsaved.is_empty() { state } else { "unsaved" };
        let size = stat.map_or_else(unknown, |stat| stat.size.to_string());
        let blocks = snapshot.as_ref().and_then(|it| it.block_count());
        let blocks = blocks.map_or_else(unknown, |count| count.to_string());
        let arrays = snapshot.filter(|it| !it.is_unread());
        let arrays = arrays.map_or_else(unknown, |it| it.arrays().len().to_string());
        let problem = || self.problem(item, open.as_ref(), stat.as_ref());
        let failure = || match &open {
            None => self.contents.failure(path).map(|error| error.to_string()),
            Some(_) => None,
        };
        let problem = unsaved.into_iter().next().or_else(problem);
        let problem = problem.or_else(failure).unwrap_or_default();
        // a program opens this path
        let bytes = || printable_bytes(path.as_os_str().as_bytes());
        let path = path.to_str().map_or_else(bytes, str::to_owned);
        [path, size, state.to_owned(), blocks, arrays, problem]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error as Library;
    use std::io;
    use std::time::Instant;

    fn unreadable(cause: Option<Library>) -> Resolved {
        Resolved::Unreadable {
            why: "a test".into(),
            told: Vec::new().into(),
            stat: Stat::from(&std::fs::metadata("/").unwrap()),
            cause,
            until: Instant::now(),
        }
    }

    #[test]
    fn what_is_listed_is_there_and_nothing_else() {
        let failed = Library::io("reading", io::ErrorKind::TimedOut.into());
        for (part, want) in [
            (Resolved::Report, &["status", "files.tsv"][..]),
            (unreadable(None), &["info", "status"]),
            (unreadable(Some(failed)), &["info", "tree.yaml", "status"]),
        ] {
            let mut found = Vec::new();
            for directory in [Node::Root, Node::Info] {
                for (name, node) in names(&part, directory).unwrap_or_default() {
                    assert_eq!(find(&part, directory, name.as_ref()).unwrap(), node);
                    check(&part, node).unwrap();
                    found.push(name);
                }
            }
            assert_eq!(found, want);
            let none = find(&part, Node::Root, "blocks".as_ref()).unwrap_err();
            let is_known = matches!(none, Error::NotFound);
            assert_eq!(is_known, want.len() == 2, "{none}");
            for node in [Node::Blocks, Node::Status, Node::Tree(1)] {
                let listed = names(&part, node);
                assert!(matches!(listed, Err(Error::NotDirectory)), "{node:?}");
            }
            assert!(check(&part, Node::Blocks).is_err());
        }
    }
}
