//! `--list`: what a mount would show, for people or as JSON. (`--check` is in `check`.)

mod json;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::exit::{Exit, Failure, error_of};
use super::far::{UrlOpener, expanded};
use super::options::Options;
use super::{Args, resolve, say_bytes};
use crate::asdf::external::Sandbox;
use crate::asdf::fits::Fits;
use crate::asdf::names::{SUFFIXES, encode};
use crate::asdf::{self, OpenOptions, Snapshot};
use crate::codec::{Cache, code_text};
use crate::error::{Error, printable};
use crate::save::{self, FilePath, ReadOnly, Recovery};
use crate::view::stats::Stats;

/// Bytes of a list that are put together before they are printed.
const MAX_UNSAID: usize = 1 << 20;

/// Reads a file without changing it. An interrupted save is shown finished.
pub(super) fn read(path: &Path, options: &Options) -> Result<Snapshot, Failure> {
    let (snapshot, _) = read_with(path, options, Cache::new(options.cache))?;
    Ok(snapshot)
}

/// The same with a cache that other files may share. Also gives what an interrupted save has left.
pub(super) fn read_with(
    path: &Path,
    options: &Options,
    cache: Arc<Cache>,
) -> Result<(Snapshot, Recovery), Failure> {
    let (_, opened, reading) = open(path, options, &cache)?;
    let recovery = opened.recovery.clone();
    let snapshot = opened.snapshot(cache, reading);
    let snapshot = snapshot.map_err(|error| Failure::reading(path, &error))?;
    Ok((snapshot, recovery))
}

/// Opens a file to be read: where it is, the file, and how it is to be read.
pub(super) fn open(
    path: &Path,
    options: &Options,
    cache: &Arc<Cache>,
) -> Result<(PathBuf, ReadOnly, OpenOptions), Failure> {
    let fail = |error| Failure::reading(path, &error);
    let far = UrlOpener::new(options, cache).file(path)?;
    let file = far.map_or_else(|| Ok(FilePath::from(&resolve(path)?)), Ok)?;
    let full = file.whole().to_owned();
    let reading = reading_alone(&file, options).map_err(fail)?;
    let opened = save::open_read_only(file).map_err(fail)?;
    Ok((full, opened, reading))
}

/// Of which file an interrupted save was, and where its journal is kept if it has been set aside.
pub(super) fn of_replaced(kept: Option<&OsStr>) -> String {
    let aside = match kept {
        Some(kept) => format!("; its journal is kept as {}", kept.display()),
        None => "; the next writable mount sets its journal aside".to_owned(),
    };
    format!(", of a file that this one has replaced since{aside}")
}

/// How a file is to be read that shares its directory with no other one that is open.
pub(super) fn reading_alone(file: &FilePath, options: &Options) -> Result<OpenOptions, Error> {
    let allowed = options.allow_external.as_deref();
    let sandbox = || Sandbox::new(file.whole(), allowed).map(Arc::new);
    reading(file, options, sandbox)
}

/// How a file is to be read.
pub(super) fn reading(
    file: &FilePath,
    options: &Options,
    sandbox: impl FnOnce() -> Result<Arc<Sandbox>, Error>,
) -> Result<OpenOptions, Error> {
    // With allow_other, external blocks would show other users files that only the user who mounts may read. Beside a far file there
    // is no file of this machine.
    let beside = !options.shown.allow_other && !file.is_far();
    let sandbox = if !beside && options.allow_external.is_none() {
        None
    } else {
        Some(sandbox()?)
    };
    Ok(OpenOptions {
        force: options.force,
        sandbox,
        verify: options.verify,
        text_only: file.is_far() && options.shown.is_text_only(),
    })
}

/// Lists each file, and each in a directory, with its problems behind its lines. The status is that of the last file that can't be
/// read.
pub(super) fn list(paths: &[PathBuf], options: &Options, how: &Args) -> Result<Exit, Failure> {
    let (files, options) = &expanded(paths, options)?;
    let mut status = Exit::Ok;
    let (mut unread, mut blocks, mut arrays) = (0_usize, 0_usize, 0_usize);
    for (n, (path, found)) in files.iter().enumerate() {
        let snapshot = match found.clone().and_then(|()| read(path, options)) {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                super::complain(&failure.message);
                if how.json {
                    json::print_unread(path, &failure)?;
                }
                status = failure.exit;
                unread = unread.saturating_add(1);
                continue;
            }
        };
        blocks = blocks.saturating_add(snapshot.layout().blocks.len());
        arrays = arrays.saturating_add(snapshot.arrays().len());
        let numbers = if how.stats {
            snapshot.all_stats()
        } else {
            Vec::new()
        };
        if how.json {
            if !how.quiet || problems(&snapshot, &numbers).next().is_some() {
                json::print(path, &snapshot, &numbers)?;
            }
            continue;
        }
        if files.len() > 1 && !how.quiet {
            let gap = if n > 0 { "\n" } else { "" };
            let name = path.display().to_string();
            say_bytes(format!("{gap}{}:\n", printable(&name)).as_bytes())?;
        }
        if !how.quiet {
            list_file(&snapshot, &numbers)?;
        }
        for problem in problems(&snapshot, &numbers) {
            let line = format!("{}: {problem}", path.display());
            say_bytes(format!("{}\n", printable(&line)).as_bytes())?;
        }
    }
    if files.len() > 1 && !how.json && !how.quiet {
        let count = files.len();
        let counts = super::counts(blocks, arrays);
        let line = format!("\n{count} files: {counts}, {unread} not read\n");
        say_bytes(line.as_bytes())?;
    }
    Ok(status)
}

/// Prints the tree of a file: its text as it stands there, or as one line of JSON.
pub(super) fn tree(path: &Path, options: &Options, json: bool) -> Result<Exit, Failure> {
    let snapshot = read(path, options)?;
    if !json {
        say_bytes(snapshot.text())?;
        return Ok(Exit::Ok);
    }
    let fail = |error: &Error| Failure::of(Exit::Damaged, path, error_of(path, error));
    let tree = snapshot.tree().transpose().map_err(fail)?;
    let file_of = |node: asdf::tree::Node<'_>| crate::view::json::file_of(&snapshot, node);
    let line = crate::view::json::text(tree, &file_of, false);
    say_bytes(&line.map_err(|error| fail(&error))?)?;
    Ok(Exit::Ok)
}

/// What is odd in a file, or can't be shown.
fn problems(
    snapshot: &Snapshot,
    stats: &[Result<Option<Stats>, Error>],
) -> impl Iterator<Item = String> {
    let arrays = snapshot.arrays().iter().enumerate();
    let arrays = arrays.filter_map(|(i, array)| {
        let unread = || stats.get(i)?.as_ref().err().map(Cow::Borrowed);
        let error = array.problem().or_else(unread)?;
        Some(format!("arrays/{}: {error}", array.file_path()))
    });
    problems_around_arrays(snapshot).chain(arrays)
}

/// What is odd in a file beside its arrays.
fn problems_around_arrays(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let findings = snapshot.layout().findings.iter();
    let findings = findings.map(|finding| finding.error.to_string());
    let tree = match snapshot.tree() {
        Some(Err(error)) => Some(format!("tree.yaml: {error}")),
        _ => None,
    };
    findings.chain(tree)
}

/// Prints the files of a mount with their sizes, one a line.
fn list_file(snapshot: &Snapshot, stats: &[Result<Option<Stats>, Error>]) -> Result<(), Failure> {
    let mut out = String::new();
    let mut said = Ok(());
    let mut line = |size: u64, name: &str, note: &str| {
        let gap = if note.is_empty() { "" } else { "  " };
        let line = format!("{size:>14}  {name}{gap}{note}");
        // writing to a string can't fail
        let _ = writeln!(out, "{}", printable(&line));
        // one write for many lines; a million arrays do not have to fit into memory as text
        if out.len() > MAX_UNSAID {
            let now = say_bytes(out.as_bytes());
            said = std::mem::replace(&mut said, Ok(())).and(now);
            out.clear();
        }
    };
    line(snapshot.layout().text_end, "tree.yaml", "");
    for (n, header) in snapshot.layout().blocks.iter().enumerate() {
        let size = snapshot.block_len(n).unwrap_or(0);
        line(
            size,
            &format!("blocks/{n}.bin"),
            &code_text(header.compression),
        );
    }
    for (n, hdu) in (0..).zip(snapshot.fits().map_or(&[][..], Fits::hdus)) {
        let stem = hdu.file_stem(n);
        let stem = encode(&stem);
        line(hdu.header.len(), &format!("hdus/{stem}.hdr"), "");
        line(hdu.data.len(), &format!("hdus/{stem}.bin"), "");
    }
    for (i, array) in snapshot.arrays().iter().enumerate() {
        let name = format!("arrays/{}", array.file_path());
        if let Some(error) = array.problem() {
            line(0, &name, &format!("(no file: {error})"));
            continue;
        }
        let note = [array.datatype_text(), array.shape_text()]
            .map(Option::unwrap_or_default)
            .join(" ");
        let note = note + &stats.get(i).map_or_else(String::new, stats_note);
        let mut notes = [&*note].into_iter();
        for (suffix, len) in SUFFIXES.iter().zip(array.data().file_lens()) {
            let note = notes.next().unwrap_or_default();
            line(len, &format!("{name}{suffix}"), note);
        }
    }
    for (path, uri) in snapshot.references() {
        line(0, &path, &format!("(refers to {uri})"));
    }
    said?;
    say_bytes(out.as_bytes())
}

/// The statistics of an array, as they are printed behind its type and shape.
fn stats_note(stats: &Result<Option<Stats>, Error>) -> String {
    match stats {
        Err(error) => format!("  (not read: {error})"),
        Ok(None) => String::new(),
        Ok(Some(Stats { range, mean, nan })) => {
            let range = range.map(|(low, high)| format!("{low} .. {high}, "));
            let mean = mean.map(|mean| format!("mean {mean:?}, "));
            let [range, mean] = [range, mean].map(Option::unwrap_or_default);
            format!("  {range}{mean}{nan} NaN")
        }
    }
}
