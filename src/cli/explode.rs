//! `--explode` and `--implode`: one file as several, and several as one. Blocks are copied as they are stored.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::complain;
use super::exit::{Exit, Failure};
use super::interrupt;
use super::options::Options;
use super::progress::Progress;
use super::report::open;
use crate::asdf::Snapshot;
use crate::asdf::decl::Storage;
use crate::asdf::external::Sandbox;
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::Severity;
use crate::asdf::sources::{block_index, storages, with_sources};
use crate::asdf::tree::Tree;
use crate::codec::Cache;
use crate::error::{Error, Place, Result, percent_encoded};
use crate::save::rope::Rope;
use crate::save::{self, Room, WholeBlock};
use crate::source::{Memory, Source, Stat};

/// A file that is taken apart or put together.
pub(super) struct Original {
    path: PathBuf,
    pub(super) snapshot: Snapshot,
    permissions: Permissions,
    /// From when it was opened.
    stat: Stat,
}

impl Original {
    /// Opens a file that can be taken apart or put together, and that no mount writes.
    pub(super) fn open(path: &Path, options: &Options) -> Result<Self, Failure> {
        let fail = |error: &Error| Failure::reading(path, error);
        let io = |cause| Failure::reading(path, &Error::io("opening it", cause));
        if options.urls.has(path) {
            let why = "a remote FILE is not exploded, imploded or compacted; download it first";
            return Err(Failure::of(Exit::Usage, path, why));
        }
        let cache = Cache::new(options.cache);
        let (full, opened, reading) = open(path, options, &cache)?;
        if opened.locked {
            let why = "a mount has it for writing; unmount it";
            return Err(Failure::of(Exit::Locked, path, why));
        }
        let stat = opened.file.stat;
        let snapshot = opened.snapshot(cache, reading);
        let snapshot = snapshot.map_err(|error| fail(&error))?;
        let snapshot = plain(snapshot).map_err(|error| Failure::within(path, &error))?;
        let permissions = full.metadata().map_err(io)?.permissions();
        Ok(Self {
            path: full,
            snapshot,
            permissions,
            stat,
        })
    }

    /// Checks that nobody has written it since it was opened: what is made of it would be a mixture of two states.
    fn check_unchanged(&self) -> Result<()> {
        if self.snapshot.stat()?.is_untouched_since(&self.stat) {
            return Ok(());
        }
        let why = "it was changed by another program meanwhile: try again".to_owned();
        Err(Error::Stale { why })
    }

    /// Warns of each other file that the tree of the new file `out` names, by a reference or one of `sources`, and that is found from the
    /// directory of this file, but not from that of `out`.
    pub(super) fn tell_unreached(&self, out: &Path, sources: &[Storage]) -> Result<()> {
        let failed = |cause| Error::io(out.display().to_string(), cause);
        let there = Sandbox::new(&out.canonicalize().map_err(failed)?, None)?;
        let here = Sandbox::new(&self.path, None)?;
        let leads = |from: &Sandbox, uri| from.located(uri).is_ok_and(|path| path.exists());
        let references = self.snapshot.references().map(|(_, uri)| uri);
        let sources = sources.iter().filter_map(|storage| match storage {
            Storage::External(uri) => Some(&**uri),
            Storage::Block(_) | Storage::Fits(_) => None,
        });
        let uris = references.chain(sources);
        // what stands behind it is a place in the file
        let files: BTreeSet<&str> = uris.filter_map(|uri| uri.split('#').next()).collect();
        for uri in files {
            if leads(&here, uri) && !leads(&there, uri) {
                complain(&format!(
                    "{}: it names {uri}, which is in the directory of {}: copy that, too",
                    out.display(),
                    self.path.display()
                ));
            }
        }
        Ok(())
    }
}

/// The snapshot, if its blocks can be taken over: a whole file of file format 1.
fn plain(snapshot: Snapshot) -> Result<Snapshot> {
    let layout = snapshot.layout();
    if !layout.dialect.writable || snapshot.fits().is_some() {
        let why = format!(
            "{}: only ASDF 1.x files can be exploded, imploded or compacted",
            snapshot.container()
        );
        return Err(Error::unsupported(Place::File, why));
    }
    match layout.worst() {
        Some(worst) if worst.severity > Severity::Odd => Err(worst.error.clone()),
        _ => Ok(snapshot),
    }
}

/// The failure to write what is made of `file` to `out`, or into that directory. Where that can't be written, it is the matter, and not
/// the file.
pub(super) fn unwritten(file: &Path, out: &Path, error: &Error) -> Failure {
    let why = match error {
        Error::Io { what, cause } if cause.kind() == ErrorKind::AlreadyExists => {
            format!("{what}: it is there already, and nothing is replaced; name another")
        }
        Error::Io { what, .. } if what.starts_with(&*out.to_string_lossy()) => error.to_string(),
        error => format!("{}: {error}", file.display()),
    };
    Failure::new(Exit::Other, why)
}

/// Block `n` of a file, to be put into another.
pub(super) fn block(snapshot: &Snapshot, n: usize) -> Result<WholeBlock> {
    let header = snapshot.layout().blocks.get(n);
    let header = header.ok_or_else(|| Error::corrupt(Place::File, "a file without a block"))?;
    Ok(WholeBlock {
        header: header.clone(),
        stored: snapshot.stored(n)?,
    })
}

/// Makes a directory, with those above it that are missing. Gives the ones that it has made, the innermost first.
fn make_directory(directory: &Path) -> io::Result<Vec<&Path>> {
    let is_missing = |it: &&Path| !it.as_os_str().is_empty() && !it.exists();
    let missing: Vec<_> = directory.ancestors().take_while(is_missing).collect();
    let up = directory.parent().filter(|up| up.is_dir());
    let made = std::fs::create_dir_all(directory)
        .and_then(|()| File::open(up.unwrap_or(Path::new(".")))?.sync_all());
    if made.is_err() {
        remove_empty(&missing);
    }
    made.map(|()| missing)
}

/// Removes directories, the innermost first. One in which another program has made a file stays.
fn remove_empty(directories: &[&Path]) {
    for directory in directories {
        let _ = std::fs::remove_dir(directory);
    }
}

/// Writes `file` to `directory` as a tree and one file for each block that an array uses.
pub(super) fn explode(directory: &Path, file: &Path, options: &Options) -> Result<Exit, Failure> {
    let original = Original::open(file, options)?;
    let fail = |error: Error| unwritten(file, directory, &error);
    let count = original.snapshot.layout().blocks.len();
    let ending = format!("{count:04}.asdf").len();
    let stem = file.file_stem().unwrap_or_default();
    let stem = save::short_enough(stem, ending);
    let stem = stem.to_string_lossy();
    let name = |n: usize| format!("{stem}{n:04}.asdf");
    let tree = directory.join(file.file_name().unwrap_or_default());
    check_apart(&original.snapshot).map_err(fail)?;
    let text = exploded_text(&original.snapshot, &name).map_err(fail)?;
    let kept = kept(&original.snapshot).map_err(fail)?;
    if tree.symlink_metadata().is_ok() {
        let there = ErrorKind::AlreadyExists.into();
        return Err(fail(Error::io(tree.display().to_string(), there)));
    }
    let check_not_ended = interrupt::heed()?;
    let made_directories = make_directory(directory)
        .map_err(|cause| fail(Error::io(directory.display().to_string(), cause)))?;
    let mut progress = Progress::new("exploding", original.snapshot.layout().len, true);
    let mut made = Vec::new();
    let mut write = |path: PathBuf, text: Vec<u8>, blocks: &[WholeBlock]| {
        let bytes = save::whole(text, blocks, Room::Absent)?;
        if path != tree && path.exists() && save::is_published(&path, &bytes)? {
            // a run that was killed has come so far
            progress.add(bytes.len());
            return Ok(());
        }
        save::publish(&path, &bytes, original.permissions.clone(), &mut |len| {
            progress.add(len);
            original.check_unchanged()?;
            check_not_ended()
        })?;
        made.push(path);
        Ok(())
    };
    let head = head(&original.snapshot);
    let users = original.snapshot.block_users();
    let done = (0..count)
        .filter(|&n| users.get(n).is_some_and(|users| !users.is_empty()))
        .try_for_each(|n| {
            let block = block(&original.snapshot, n)?;
            write(directory.join(name(n)), head.clone(), &[block])
        })
        .and_then(|()| write(tree.clone(), text, &kept));
    if done.is_err() {
        for path in made {
            // what can't be removed is harmless without the tree
            let _ = std::fs::remove_file(path);
        }
        remove_empty(&made_directories);
    }
    done.map_err(fail)?;
    original.tell_unreached(&tree, &[]).map_err(fail)?;
    Ok(Exit::Ok)
}

/// The text with a name for each block number.
fn exploded_text(snapshot: &Snapshot, name: &dyn Fn(usize) -> String) -> Result<Vec<u8>> {
    let count = snapshot.layout().blocks.len();
    with_sources(snapshot, &|storage| match storage {
        Storage::Block(source) => {
            let n = block_index(*source, count)?;
            Ok(Storage::External(as_uri(&name(n))))
        }
        Storage::External(uri) => {
            let why = format!("it names {uri} already; --implode it first");
            Err(Error::unsupported(Place::File, why))
        }
        Storage::Fits(_) => Ok(storage.clone()),
    })
}

/// That no block of an array is one of an array in chunks as well: those stay with the tree.
fn check_apart(snapshot: &Snapshot) -> Result<()> {
    let users = snapshot.block_users();
    let is_shared = |n: &usize| users.get(*n).is_some_and(|users| !users.is_empty());
    match snapshot.chunk_blocks()?.into_iter().find(is_shared) {
        None => Ok(()),
        Some(n) => {
            let why = "it is an array and a chunk of another one";
            Err(Error::unsupported(Place::Block(n), why))
        }
    }
}

/// The blocks that stay with the tree: those that no array uses. Something else in the tree may name them by their numbers, as
/// the chunks of zarr are named, so that an empty block holds the place of each one in front of them that goes.
fn kept(snapshot: &Snapshot) -> Result<Vec<WholeBlock>> {
    let users = snapshot.block_users();
    let count = users
        .iter()
        .rposition(Vec::is_empty)
        .map_or(0, |last| last.saturating_add(1));
    let keep = |(n, users): (usize, &Vec<usize>)| {
        if users.is_empty() {
            return block(snapshot, n);
        }
        Ok(WholeBlock {
            header: BlockHeader::new(0),
            stored: Arc::new(Memory::new(Vec::new())),
        })
    };
    users.iter().take(count).enumerate().map(keep).collect()
}

/// The text of a file for one block: the same versions, and a tree that says nothing.
fn head(snapshot: &Snapshot) -> Vec<u8> {
    let mut text: Vec<u8> = snapshot
        .text()
        .split_inclusive(|&byte| byte == b'\n')
        .take_while(|line| line.starts_with(b"#"))
        .flatten()
        .copied()
        .collect();
    let root = snapshot.tree().and_then(Result::ok).and_then(Tree::root);
    let tag = root.and_then(|root| root.tag().map(|tag| format!("!<{tag}> ")));
    let tree = format!("%YAML 1.1\n--- {}{{}}\n...\n", tag.unwrap_or_default());
    text.extend_from_slice(tree.as_bytes());
    text
}

/// A file name as a relative URI.
fn as_uri(name: &str) -> String {
    percent_encoded(name, |c| !(c.is_ascii_alphanumeric() || "-._~".contains(c)))
}

/// Writes `file` to `out` with every block that its arrays name in other files.
pub(super) fn implode(out: &Path, file: &Path, options: &Options) -> Result<Exit, Failure> {
    let original = Original::open(file, options)?;
    let fail = |error: Error| unwritten(file, out, &error);
    let sandbox = Sandbox::new(&original.path, options.allow_external.as_deref()).map_err(fail)?;
    let (text, blocks) = imploded(&original.snapshot, &sandbox).map_err(fail)?;
    let bytes = save::whole(text, &blocks, Room::Usual).map_err(fail)?;
    publish("imploding", &original, out, &bytes)?.map_err(fail)?;
    original.tell_unreached(out, &[]).map_err(fail)?;
    Ok(Exit::Ok)
}

/// Writes what was made of `original` to a new file, whole, or not at all if a signal ends the process or another program writes the
/// original. `what`: what is being done, for the progress bar.
pub(super) fn publish(
    what: &'static str,
    original: &Original,
    out: &Path,
    bytes: &Rope,
) -> Result<Result<()>, Failure> {
    if out == Path::new("-") {
        let why = "a new file is not written to standard output; ./- names a file called so";
        return Err(Failure::of(Exit::Usage, out, why));
    }
    let mut progress = Progress::new(what, bytes.len(), true);
    let check_not_ended = interrupt::heed()?;
    let permissions = original.permissions.clone();
    Ok(save::publish(out, bytes, permissions, &mut |len| {
        progress.add(len);
        original.check_unchanged()?;
        check_not_ended()
    }))
}

/// The text with a block number for each name, and the blocks.
fn imploded(snapshot: &Snapshot, sandbox: &Sandbox) -> Result<(Vec<u8>, Vec<WholeBlock>)> {
    let own = snapshot.layout().blocks.len();
    let mut blocks = (0..own)
        .map(|n| block(snapshot, n))
        .collect::<Result<Vec<_>>>()?;
    let mut numbers = HashMap::new();
    // nothing can stand behind a streamed block
    let mut last = blocks.pop_if(|block| block.header.streamed());
    let own_last = last.is_some();
    let numbered = own.saturating_sub(1);
    if own_last && snapshot.chunk_blocks()?.contains(&numbered) {
        let why = "a streamed block for chunks of an array, which would get another number";
        return Err(Error::unsupported(Place::Block(numbered), why));
    }
    let mut last_name = None;
    for storage in storages(snapshot)? {
        let Storage::External(uri) = storage else {
            continue;
        };
        if numbers.contains_key(&uri) || last_name.as_ref() == Some(&uri) {
            continue;
        }
        let other = plain(sandbox.snapshot(&uri, snapshot.cache())?)?;
        let found = block(&other, 0)?;
        if found.header.streamed() {
            if last.replace(found).is_some() {
                let why = format!("{uri}: a second streamed block");
                return Err(Error::unsupported(Place::File, why));
            }
            last_name = Some(uri);
        } else {
            numbers.insert(uri, blocks.len());
            blocks.push(found);
        }
    }
    if let Some(uri) = last_name {
        numbers.insert(uri, blocks.len());
    }
    blocks.extend(last);
    let text = with_sources(snapshot, &|storage| {
        let n = match storage {
            Storage::Block(source) => match block_index(*source, own)? {
                n if own_last && n.saturating_add(1) == own => blocks.len().saturating_sub(1),
                n => n,
            },
            Storage::External(uri) => *numbers
                .get(uri)
                .ok_or_else(|| Error::corrupt(Place::File, format!("{uri}: not read")))?,
            Storage::Fits(_) => return Ok(storage.clone()),
        };
        Ok(Storage::Block(i64::try_from(n).unwrap_or(i64::MAX)))
    })?;
    Ok((text, blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::{Sample, block_with};
    use crate::source::read_all;

    const TREE: &str = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        a: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: big, shape: [3]}\n\
        b: !core/ndarray-1.0.0 {source: 1, datatype: uint8, byteorder: big, shape: [60]}\n\
        c: !core/ndarray-1.0.0 {source: -1, datatype: uint8, byteorder: big, shape: ['*', 2]}\n...\n";

    /// `zlib.compress(bytes(range(20)) * 3)` of Python.
    const ZLIB: &[u8] = b"\x78\x9c\x63\x60\x64\x62\x66\x61\x65\x63\xe7\xe0\xe4\xe2\xe6\xe1\xe5\xe3\x17\x10\x14\x12\x66\x20\x52\x0c\x00\x3c\x5a\x02\x3b";

    fn options() -> Options {
        Options::default()
    }

    fn arrays(path: &Path) -> Vec<Vec<u8>> {
        let snapshot = super::super::report::read(path, &options()).unwrap();
        let all = 0..snapshot.arrays().len();
        all.map(|i| read_all(&*snapshot.array_bin(i).unwrap(), 1000).unwrap())
            .collect()
    }

    /// It had the bytes of before in front of those of after.
    #[test]
    fn nothing_is_made_of_a_file_that_is_written_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let [file, out] = ["a.asdf", "out.asdf"].map(|name| dir.path().join(name));
        std::fs::write(&file, Sample::new().bytes()).unwrap();
        let original = Original::open(&file, &options()).unwrap();
        let bytes = save::whole(TREE.into(), &[], Room::Absent).unwrap();
        std::fs::write(&file, "other").unwrap();
        let made = publish("compacting", &original, &out, &bytes).unwrap();
        assert!(matches!(made, Err(Error::Stale { .. })) && !out.exists());
    }

    /// The input was named, though the disk of the new file was the full one.
    #[test]
    fn a_full_disk_is_told_of_the_file_that_is_written() {
        const ENOSPC: i32 = 28;
        let full = |what: &str| Error::io(what, io::Error::from_raw_os_error(ENOSPC));
        let said = |out: &str, what: &str| {
            let failure = unwritten(Path::new("in.asdf"), Path::new(out), &full(what));
            // no path is taken off
            failure.about(Path::new("none")).to_owned()
        };
        for (out, what) in [("out.asdf", "out.asdf"), ("parts", "parts/in0000.asdf")] {
            assert!(said(out, what).starts_with(&format!("{what}: No space")));
        }
        assert!(said("out.asdf", "reading").starts_with("in.asdf: reading: "));
    }

    #[test]
    fn what_is_exploded_and_imploded_is_the_same_again() {
        let dir = tempfile::tempdir().unwrap();
        let (file, parts) = (dir.path().join("é x.asdf"), dir.path().join("parts"));
        let sample = Sample::new()
            .text(TREE.as_bytes())
            .block(b"abc")
            .stored(block_with(*b"zlib", ZLIB, 60, 100))
            .streamed(b"123456");
        std::fs::write(&file, sample.bytes()).unwrap();
        explode(&parts, &file, &options()).unwrap();
        let tree = parts.join("é x.asdf");
        let text = std::fs::read_to_string(&tree).unwrap();
        assert_eq!(text, {
            let names = TREE.replace("source: 0", "source: '%C3%A9%20x0000.asdf'");
            let names = names.replace("source: 1", "source: '%C3%A9%20x0001.asdf'");
            names.replace("source: -1", "source: '%C3%A9%20x0002.asdf'")
        });
        assert_eq!(arrays(&tree), arrays(&file));

        let out = dir.path().join("out.asdf");
        implode(&out, &tree, &options()).unwrap();
        assert_eq!(arrays(&out), arrays(&file));
        let again = super::super::report::read(&out, &options()).unwrap();
        assert_eq!(
            **again.text(),
            TREE.replace("source: -1", "source: 2").as_bytes()
        );
        assert_eq!(again.layout().blocks[1].compression, *b"zlib");
        assert_eq!(read_all(&*again.stored(1).unwrap(), 100).unwrap(), ZLIB);
        // the tree has the name that the file is called by
        let link = dir.path().join("latest.asdf");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let linked = dir.path().join("linked");
        explode(&linked, &link, &options()).unwrap();
        assert!(linked.join("latest0000.asdf").exists());
        assert_eq!(arrays(&linked.join("latest.asdf")), arrays(&file));
        // what a run that was killed has made is used again, and what it had begun goes
        std::fs::remove_file(&tree).unwrap();
        std::fs::remove_file(parts.join("é x0001.asdf")).unwrap();
        std::fs::write(
            parts.join(".é x0001.asdf.asdf-mount-0123456789abcdef"),
            "half",
        )
        .unwrap();
        let first = || {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(parts.join("é x0000.asdf")).unwrap().ino()
        };
        let before = first();
        explode(&parts, &file, &options()).unwrap();
        assert_eq!((arrays(&tree), first()), (arrays(&file), before));
        assert_eq!(std::fs::read_dir(&parts).unwrap().count(), 4);
        // nothing is replaced, and nothing left behind
        let there = "there already, and nothing is replaced; name another";
        let again = implode(&out, &tree, &options()).unwrap_err();
        assert_eq!(again.message, format!("{}: it is {there}", out.display()));
        let again = explode(&parts, &file, &options()).unwrap_err();
        assert!(again.message.ends_with(there), "{}", again.message);
        assert_eq!(std::fs::read_dir(&parts).unwrap().count(), 4);
    }

    #[test]
    fn a_block_file_that_is_another_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (file, parts) = (dir.path().join("x.asdf"), dir.path().join("parts"));
        let sample = Sample::new().text(TREE.as_bytes()).block(b"abc");
        let sample = sample.stored(block_with(*b"zlib", ZLIB, 60, 100));
        std::fs::write(&file, sample.block(b"123456").bytes()).unwrap();
        std::fs::create_dir(&parts).unwrap();
        std::fs::write(parts.join("x0001.asdf"), "mine").unwrap();
        let refused = explode(&parts, &file, &options()).unwrap_err();
        assert!(refused.message.contains("x0001.asdf: it is there already"));
        assert_eq!(std::fs::read(parts.join("x0001.asdf")).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(&parts).unwrap().count(), 1);
    }

    #[test]
    fn a_name_of_255_bytes_is_exploded_and_imploded() {
        let dir = tempfile::tempdir().unwrap();
        let name = format!("{}.asdf", "n".repeat(250));
        let (file, parts) = (dir.path().join(&name), dir.path().join("parts"));
        let sample = Sample::new().text(TREE.as_bytes()).block(b"abc");
        let sample = sample.stored(block_with(*b"zlib", ZLIB, 60, 100));
        std::fs::write(&file, sample.block(b"123456").bytes()).unwrap();
        explode(&parts, &file, &options()).unwrap();
        assert_eq!(arrays(&parts.join(&name)), arrays(&file));
        let out = dir.path().join("o".repeat(255));
        implode(&out, &parts.join(&name), &options()).unwrap();
        assert_eq!(arrays(&out), arrays(&file));
    }

    #[test]
    fn what_cannot_be_taken_apart_is_no_unknown_version() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.asdf");
        let refused = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            explode(&dir.path().join("parts"), &file, &options()).unwrap_err()
        };
        let draft = refused(b"%FINF 0.1.0\n%YAML 1.1\n---\na: 1\n...\n");
        assert_eq!(draft.exit, Exit::Other);
        let why = "x.asdf: FINF draft: only ASDF 1.x files can be exploded, imploded or compacted";
        assert!(draft.message.ends_with(why), "{}", draft.message);
        let cut = refused(&[TREE.as_bytes(), b"\xd3BLK\0\x30\0"].concat());
        assert_eq!(cut.exit, Exit::Damaged, "{}", cut.message);
    }

    #[test]
    fn a_block_that_no_array_uses_stays_with_the_tree_under_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let (file, parts) = (dir.path().join("x.asdf"), dir.path().join("parts"));
        let array = |name: &str, source: u8, len: u8| {
            format!(
                "{name}: !core/ndarray-1.0.0 {{source: {source}, datatype: uint8, byteorder: big, shape: [{len}]}}\n"
            )
        };
        let text = format!(
            "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\n{}chunks: !zarr {{map: 1}}\n{}...\n",
            array("a", 0, 3),
            array("b", 2, 2)
        );
        let sample = Sample::new()
            .text(text.as_bytes())
            .block(b"abc")
            .stored(block_with(*b"zlib", ZLIB, 60, 100))
            .block(b"de");
        std::fs::write(&file, sample.bytes()).unwrap();
        explode(&parts, &file, &options()).unwrap();
        let names = std::fs::read_dir(&parts).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["x.asdf", "x0000.asdf", "x0002.asdf"]);
        let out = dir.path().join("out.asdf");
        implode(&out, &parts.join("x.asdf"), &options()).unwrap();
        for path in [parts.join("x.asdf"), out] {
            assert_eq!(arrays(&path), [&b"abc"[..], b"de"], "{}", path.display());
            let read = super::super::report::read(&path, &options()).unwrap();
            let unused = read_all(&*read.stored(1).unwrap(), 100);
            assert_eq!(unused.unwrap(), ZLIB, "{}", path.display());
            assert!(read.block_users()[1].is_empty());
        }
    }

    #[test]
    fn a_streamed_block_that_no_array_uses_is_taken_along() {
        let dir = tempfile::tempdir().unwrap();
        let (file, parts) = (dir.path().join("x.asdf"), dir.path().join("parts"));
        let text = TREE
            .lines()
            .filter(|line| !line.starts_with("c:") && !line.starts_with("b:"));
        let text: String = text.flat_map(|line| [line, "\n"]).collect();
        let sample = Sample::new().text(text.as_bytes()).block(b"abc");
        std::fs::write(&file, sample.streamed(b"so far").bytes()).unwrap();
        explode(&parts, &file, &options()).unwrap();
        let (tree, out) = (parts.join("x.asdf"), dir.path().join("out.asdf"));
        implode(&out, &tree, &options()).unwrap();
        for path in [tree, out] {
            let read = super::super::report::read(&path, &options()).unwrap();
            assert_eq!(arrays(&path), [b"abc"]);
            let last = read.layout().blocks.len() - 1;
            let streamed = read_all(&*read.block(last).unwrap(), 100).unwrap();
            assert_eq!(streamed, b"so far");
        }
    }
}
