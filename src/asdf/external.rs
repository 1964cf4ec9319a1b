//! External sources: other ASDF files that arrays name by URI (the exploded form).
//!
//! ASDF Standard, "Exploded form". The names come from hostile files, so the kernel resolves them (`openat2`) beneath one
//! directory, without following symlinks or entering other mounts. Only regular files are opened, and a file that is not ASDF shows
//! no byte. On systems without that call external sources are not read.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Weak};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Array, OpenOptions, Origin, Snapshot};
use crate::codec::Cache;
use crate::error::{Error, Place, Result, corrupt, lock, percent_decoded, unsupported};
use crate::source::{Look, Source, Stat, open_beneath};

/// What messages call the files that arrays lie in.
const EXTERNAL: &str = "external sources";

/// The first block of another file, as it was when the file was last read.
pub(super) struct ExternalBlock {
    /// The look at the file before it was read.
    look: Look,
    /// The length of the decoded block in bytes, and the block while something reads it; or why it can't be read.
    found: Result<(u64, Weak<dyn Source>)>,
}

/// Opens a directory only to look up names in it, which needs no permission to read it.
#[cfg(target_os = "linux")]
const NAMES_ONLY: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const NAMES_ONLY: OFlags = OFlags::empty();

/// The directory beneath which external sources may be read.
pub struct Sandbox {
    directory: OwnedFd,
    path: PathBuf,
    /// The directory from which relative names start, as a path relative to `directory`.
    base: PathBuf,
}

impl Sandbox {
    /// Allows sources beneath `allowed`, or without it beneath the directory of `file`.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory can't be opened.
    pub fn new(file: &Path, allowed: Option<&Path>) -> Result<Self> {
        let own = file.parent().unwrap_or_else(|| Path::new("/"));
        let fail = |path: &Path, error| Error::io(path.display().to_string(), error);
        let path = allowed.unwrap_or(own);
        let path = path.canonicalize().map_err(|error| fail(path, error))?;
        // relative names start from the file's directory,
        // or from the allowed one if that lies elsewhere
        let base = own.strip_prefix(&path).unwrap_or(Path::new("")).to_owned();
        let flags = NAMES_ONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|errno| fail(&path, errno.into()))?;
        Ok(Self {
            directory,
            path,
            base,
        })
    }

    /// Allows sources beneath an open directory, whose path is `path`.
    #[must_use]
    pub fn beneath(directory: OwnedFd, path: &Path) -> Self {
        Self {
            directory,
            path: path.to_owned(),
            base: PathBuf::new(),
        }
    }

    /// The decoded first block of the file that `uri` names.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a URI that leads elsewhere and for a file that can't be opened, [`Error::Corrupt`] for one that is
    /// missing or not an ASDF file with a block.
    pub fn first_block(&self, uri: &str, cache: &Arc<Cache>) -> Result<Arc<dyn Source>> {
        first_block(uri, self.open(uri)?, cache)
    }

    /// The file that `uri` names, opened.
    ///
    /// # Errors
    /// As [`Sandbox::first_block`], without the faults of the block.
    pub fn snapshot(&self, uri: &str, cache: &Arc<Cache>) -> Result<Snapshot> {
        opened(uri, self.open(uri)?, cache)
    }

    /// The path of the file that `uri` names. Opens nothing; the file need not exist.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a URI that leads elsewhere.
    pub fn located(&self, uri: &str) -> Result<PathBuf> {
        Ok(self.path.join(self.relative_path(uri)?))
    }

    /// The error for a URI that leads out of the directory, or into another mount.
    fn outside(&self, uri: &str) -> Error {
        let why = format!(
            "external source {uri} lies outside {} or in another mount; -o allow_external=DIR allows another directory",
            self.path.display()
        );
        unsupported(why)
    }

    /// The error for a file that the kernel did not open. It carries no errno that speaks of the file: to a reader of the array,
    /// `ENOENT` would say that there is no array.
    fn unopened(&self, uri: &str, errno: Errno) -> Error {
        let why = match errno {
            // `openat2` returns it for a path out of the directory, and for one into another mount
            Errno::XDEV => return self.outside(uri),
            Errno::NOENT | Errno::NOTDIR => {
                let why = format!("external source {uri}: there is no such file");
                return corrupt(why);
            }
            Errno::LOOP => "a symbolic link leads there, and none is followed".to_owned(),
            // the system may open it the next time
            Errno::IO
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::AGAIN
            | Errno::INTR
            | Errno::STALE
            | Errno::TIMEDOUT => return Error::io(format!("external source {uri}"), errno.into()),
            errno => std::io::Error::from(errno).to_string(),
        };
        unsupported(format!("external source {uri}: {why}"))
    }

    /// Opens the file that `uri` names, if it is a regular one beneath the directory.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is missing, [`Error::Unsupported`] if it can't or must not be opened,
    /// [`Error::Io`] if the system fails.
    pub fn open(&self, uri: &str) -> Result<File> {
        let relative = self.relative_path(uri)?;
        // NONBLOCK: opening a FIFO must not wait for a writer
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
        // our own mount may lie there, and can't answer while it waits for itself
        let file = open_beneath(&self.directory, &relative, flags, false)
            .map_err(|errno| self.unopened(uri, errno))?;
        let file = File::from(file);
        // asked of the open file: a check by name could see
        // another file than the one that was opened
        let meta = file
            .metadata()
            .map_err(|error| Error::io(format!("external source {uri}"), error))?;
        if !meta.is_file() {
            let why = format!("external source {uri} is not a regular file");
            return Err(unsupported(why));
        }
        Ok(file)
    }

    /// The path of a relative or `file:` URI relative to the sandbox, without `.` and `..` (RFC 3986 §5.2.4): the directory in front of
    /// `..` need not exist.
    fn relative_path(&self, uri: &str) -> Result<PathBuf> {
        let outside = || self.outside(uri);
        // fragment and query are no part of the path (RFC 3986 §3)
        let name = uri.split(['#', '?']).next().unwrap_or_default();
        let (name, is_file_uri) = match name.split_once(':') {
            // schemes have no case (RFC 3986 §3.1)
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file") => {
                (rest.strip_prefix("//localhost").unwrap_or(rest), true)
            }
            Some((scheme, _)) if is_scheme(scheme) => {
                let why = "is a URL, and only files are read; name the path of a copy";
                return Err(unsupported(format!("external source {uri} {why}")));
            }
            _ => (name, false),
        };
        let name = if is_file_uri {
            name.strip_prefix("//").unwrap_or(name)
        } else {
            name
        };
        let name =
            file_name(name).ok_or_else(|| unsupported("an external source names no file"))?;
        let path = self.path.join(&self.base).join(name);
        let mut folded = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir if folded.pop() => {}
                Component::ParentDir => return Err(outside()),
                Component::CurDir => {}
                part => folded.push(part),
            }
        }
        // `openat2` refuses every absolute path, even one that stays inside
        let inside = folded.strip_prefix(&self.path).map_err(|_| outside())?;
        Ok(inside.to_owned())
    }
}

impl Snapshot {
    /// The directory beneath which other files may be read. `what` names these files in the error if there is none.
    pub(super) fn sandbox(&self, what: &str) -> Result<&Sandbox> {
        let sandbox = self.options.sandbox.as_deref();
        sandbox.ok_or_else(|| {
            unsupported(format!(
                "{what} are not read under allow_other; -o allow_external=DIR allows them"
            ))
        })
    }

    /// Length in bytes of the decoded first block of the file that `uri` names. Reads the file only if it may have changed since its
    /// length was last asked for.
    ///
    /// # Errors
    /// As [`Sandbox::first_block`].
    pub(super) fn external_len(&self, uri: &str) -> Result<u64> {
        let (path, file, stat) = self.external_file(uri)?;
        // a length is asked for on each parse of a tree: to read the file each time would be slow
        if let Some(known) = lock(&self.external_blocks).get(&path)
            && known.look.holds(&stat)
        {
            let found = known.found.as_ref();
            return found.map(|(len, _)| *len).map_err(Clone::clone);
        }
        let block = self.read_external(uri, (path, file, stat));
        block.map(|block| block.len())
    }

    /// The decoded first block of another file that holds an array. Afterwards [`Array::problem`] says whether it could be read.
    pub(super) fn external(&self, uri: &str, array: &Array) -> Result<Arc<dyn Source>> {
        let block = self.external_block(uri).and_then(|block| {
            // when the declaration was read, the length of this block was not known yet
            let fits = array.lies_in(block.len());
            fits.map(|()| block).map_err(|error| told(uri, error))
        });
        array.learn(block.as_ref().err());
        block.map_err(|error| error.at(Place::Array(array.brief_path())))
    }

    /// The decoded first block of the file that `uri` names. All readers of one state of the file share the block, and
    /// with it the decoded bytes.
    fn external_block(&self, uri: &str) -> Result<Arc<dyn Source>> {
        let (path, file, stat) = self.external_file(uri)?;
        match self.living_block(&path, &stat) {
            Some(block) => Ok(block),
            None => self.read_external(uri, (path, file, stat)),
        }
    }

    /// The block of the file at `path`, if something reads it and the file still has these attributes.
    fn living_block(&self, path: &Path, stat: &Stat) -> Option<Arc<dyn Source>> {
        let known = lock(&self.external_blocks);
        let known = known.get(path).filter(|known| known.look.holds(stat))?;
        known.found.as_ref().ok()?.1.upgrade()
    }

    /// Reads the file and records the result. The lock is not held while it reads, because readers of other files would wait; two
    /// threads may read one file at once.
    fn read_external(
        &self,
        uri: &str,
        (path, file, stat): (PathBuf, File, Stat),
    ) -> Result<Arc<dyn Source>> {
        let look = Look::now(stat, Some(&file));
        let block = first_block(uri, file, &self.cache);
        if let Some(other) = self.living_block(&path, &stat) {
            // another thread has read it meanwhile; one block for all is decoded once
            return Ok(other);
        }
        // an I/O error says nothing of the file: the next call reads it again
        if !matches!(block, Err(Error::Io { .. })) {
            let found = block.as_ref().map_err(Clone::clone);
            let found = found.map(|block| (block.len(), Arc::downgrade(block)));
            let mut known = lock(&self.external_blocks);
            let look = look.after(known.get(&path).map(|known| &known.look));
            known.insert(path, ExternalBlock { look, found });
        }
        block
    }

    /// Opens the file that `uri` names. Returns its path, the file, and its attributes.
    fn external_file(&self, uri: &str) -> Result<(PathBuf, File, Stat)> {
        let sandbox = self.sandbox(EXTERNAL)?;
        let path = sandbox.located(uri)?;
        let file = sandbox.open(uri)?;
        // before the first read: if the file changes from
        // now on, its attributes differ the next time
        let meta = file.metadata();
        let meta = meta.map_err(|error| Error::io(format!("external source {uri}"), error))?;
        Ok((path, file, Stat::from(&meta)))
    }

    /// Checks that the file which holds the elements of an array exists and is long enough. Otherwise the first read of the array
    /// finds out. [`Array::problem`] returns the result.
    pub fn look_for(&self, array: &Array) {
        if let Origin::External(uri) = array.origin()
            && array.has_files()
        {
            let looked = self
                .external_len(uri)
                .and_then(|len| array.lies_in(len).map_err(|error| told(uri, error)));
            array.learn(looked.as_ref().err());
        }
    }
}

/// Opens the file at a URI; errors name the URI.
fn opened(uri: &str, file: File, cache: &Arc<Cache>) -> Result<Snapshot> {
    // no sandbox, so a file that another one names leads to no third one
    let options = OpenOptions::default();
    Snapshot::open(Arc::new(file), Arc::clone(cache), options).map_err(|error| told(uri, error))
}

/// The decoded first block of the file at a URI; errors name the URI.
fn first_block(uri: &str, file: File, cache: &Arc<Cache>) -> Result<Arc<dyn Source>> {
    let other = opened(uri, file, cache)?;
    other.block(0).map_err(|error| told(uri, error))
}

/// Puts the URI of another file in front of the reason of an error in it.
fn told(uri: &str, error: Error) -> Error {
    match error {
        Error::Corrupt { why, .. } => corrupt(format!("{uri}: {why}")),
        Error::Unsupported { why, .. } => unsupported(format!("{uri}: {why}")),
        other => other,
    }
}

/// Whether text in front of a colon is the scheme of a URI (RFC 3986 §3.1) and not part of a file's name.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// The name of a file in a URI; `None` for a NUL or an empty name. As in Python, a `%` that begins no escape stands for itself.
fn file_name(text: &str) -> Option<OsString> {
    let name = percent_decoded(text).unwrap_or_else(|lenient| lenient);
    (!name.is_empty() && !name.contains(&0)).then(|| OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::source::{Memory, read_all};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// `root/secret.asdf`, `root/in/main.asdf`, `root/in/x.asdf`, `root/in/sub/y z.asdf`, links and a FIFO.
    fn place() -> tempfile::TempDir {
        let above = std::env::temp_dir().canonicalize().unwrap();
        let place = tempfile::tempdir_in(above).unwrap();
        let root = place.path();
        std::fs::create_dir_all(root.join("in/sub")).unwrap();
        for (name, data) in [
            ("secret.asdf", "secret"),
            ("in/main.asdf", "main"),
            ("in/x.asdf", "x"),
            ("in/sub/y z.asdf", "yz"),
        ] {
            std::fs::write(
                root.join(name),
                Sample::new().block(data.as_bytes()).bytes(),
            )
            .unwrap();
        }
        std::fs::write(root.join("in/passwd"), "root:x:0:0").unwrap();
        std::os::unix::fs::symlink("../secret.asdf", root.join("in/link.asdf")).unwrap();
        std::os::unix::fs::symlink("x.asdf", root.join("in/inner.asdf")).unwrap();
        place
    }

    #[test]
    fn a_file_is_located_without_being_opened() {
        let place = place();
        let sandbox = Sandbox::new(&place.path().join("in/main.asdf"), None).unwrap();
        for (uri, want) in [
            ("x.asdf#/a", Some("in/x.asdf")),
            ("./sub/.././x.asdf", Some("in/x.asdf")),
            ("sub/none%20such.asdf#", Some("in/sub/none such.asdf")),
            ("100%.asdf", Some("in/100%.asdf")),
            ("sub/../../in/x.asdf", Some("in/x.asdf")),
            ("../secret.asdf", None),
            ("../inside/x.asdf", None),
            ("/etc/passwd", None),
            ("http://example.org/x.asdf", None),
        ] {
            let found = sandbox.located(uri).ok();
            assert_eq!(found, want.map(|want| place.path().join(want)), "{uri}");
        }
    }

    /// A file with an array of so many bytes in the first block of the file that `source` names.
    fn with_array(place: &tempfile::TempDir, source: &str, len: u64) -> Snapshot {
        let main = place.path().join("in/main.asdf");
        let text = format!(
            "#ASDF 1.0.0\n%YAML 1.1\n--- !<tag:stsci.edu:asdf/core/asdf-1.1.0>\n\
            x: !<tag:stsci.edu:asdf/core/ndarray-1.0.0> {{source: {source}, datatype: uint8, byteorder: little, shape: [{len}]}}\n...\n"
        );
        std::fs::write(&main, text).unwrap();
        snapshot(&main)
    }

    /// Whenever a program opened an array in another file, all handles of such arrays decoded their blocks from the start.
    #[test]
    fn who_reads_the_same_state_of_another_file_shares_its_block() {
        let place = place();
        let snapshot = with_array(&place, "x.asdf", 1);
        let block = || snapshot.external("x.asdf", &snapshot.arrays()[0]).unwrap();
        let first = block();
        assert!(Arc::ptr_eq(&first, &block()));
        let other = place.path().join("in/x.asdf");
        std::fs::write(&other, Sample::new().block(b"new").bytes()).unwrap();
        let now = block();
        assert!(!Arc::ptr_eq(&first, &now));
        assert_eq!(read_all(&*now, 9).unwrap(), b"new");
    }

    /// What was found first was told for as long as the state was shown.
    #[test]
    fn the_problem_of_an_array_is_what_was_found_last() {
        let place = place();
        let snapshot = with_array(&place, "other.asdf", 3);
        let array = &snapshot.arrays()[0];
        let problem = || {
            snapshot.look_for(array);
            let found = array.problem().map(|error| error.to_string());
            found.unwrap_or_default()
        };
        assert!(problem().contains("no such file"), "{}", problem());
        let other = place.path().join("in/other.asdf");
        std::fs::write(&other, Sample::new().block(b"ab").bytes()).unwrap();
        assert!(!problem().contains("no such file"), "{}", problem());
        assert!(problem().contains("other.asdf"), "{}", problem());
        std::fs::write(&other, Sample::new().block(b"abc").bytes()).unwrap();
        assert_eq!(problem(), "");
    }

    fn read(sandbox: &Sandbox, uri: &str) -> Result<Vec<u8>> {
        read_all(&*sandbox.first_block(uri, &Cache::new(1 << 24))?, 100)
    }

    #[test]
    fn files_beside_the_file_are_read() {
        let place = place();
        let sandbox = Sandbox::new(&place.path().join("in/main.asdf"), None).unwrap();
        let absolute = format!("file://{}/in/x.asdf", place.path().display());
        for (uri, want) in [
            ("x.asdf", "x"),
            ("x.asdf#", "x"),
            ("./x.asdf", "x"),
            ("file:x.asdf", "x"),
            ("FILE:./x.asdf", "x"),
            (absolute.as_str(), "x"),
            ("sub/y%20z.asdf", "yz"),
            ("sub/../x.asdf", "x"),
            // RFC 3986 folds these, whatever is there, and so does Python's asdf
            ("none/../x.asdf", "x"),
            ("none/./../sub/../x.asdf", "x"),
        ] {
            assert_eq!(read(&sandbox, uri).unwrap(), want.as_bytes(), "{uri}");
        }
    }

    fn snapshot(main: &Path) -> Snapshot {
        let options = OpenOptions {
            sandbox: Some(Arc::new(Sandbox::new(main, None).unwrap())),
            ..OpenOptions::default()
        };
        let main = Arc::new(File::open(main).unwrap());
        Snapshot::open(main, Cache::new(1 << 20), options).unwrap()
    }

    #[test]
    fn the_length_of_another_file_is_read_once_for_each_state_of_it() {
        let place = place();
        let main = place.path().join("in/main.asdf");
        let snapshot = snapshot(&main);
        let len = |uri: &str| snapshot.external_len(uri);
        let path = place.path().join("in/x.asdf");
        assert_eq!(len("x.asdf").unwrap(), 1);
        // what is known is believed as long as the file is the same, whatever it is called
        let mark = |len: Result<u64>| {
            let mut known = lock(&snapshot.external_blocks);
            known.get_mut(&path).unwrap().found = len.map(|len| (len, Weak::<Memory>::new() as _));
        };
        mark(Ok(77));
        assert_eq!(len("./sub/../x.asdf#1").unwrap(), 77);
        mark(Err(Error::corrupt(Place::File, "marked")));
        assert!(len("x.asdf").unwrap_err().to_string().contains("marked"));
        std::fs::write(&path, Sample::new().block(b"longer").bytes()).unwrap();
        assert_eq!(len("x.asdf").unwrap(), 6);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(len("x.asdf"), Err(Error::Corrupt { .. })));
        assert!(len("../secret.asdf").is_err() && len("passwd").is_err());
    }

    /// What was known of another file was to be had only when a slow one had been read.
    #[test]
    fn other_files_are_looked_up_while_one_is_read() {
        let place = place();
        let slow = (0..200_000).fold(Sample::new(), |sample, _| sample.block(b""));
        std::fs::write(place.path().join("in/slow.asdf"), slow.bytes()).unwrap();
        let snapshot = snapshot(&place.path().join("in/main.asdf"));
        let begun = std::time::Instant::now();
        let (mut before, mut longest) = (begun, std::time::Duration::ZERO);
        std::thread::scope(|threads| {
            let slow = threads.spawn(|| snapshot.external_len("slow.asdf").unwrap());
            while !slow.is_finished() {
                assert_eq!(snapshot.external_len("x.asdf").unwrap(), 1);
                let now = std::time::Instant::now();
                longest = longest.max(now.duration_since(before));
                before = now;
            }
        });
        let all = begun.elapsed();
        assert!(longest < all / 2, "{longest:?} of {all:?}");
    }

    #[test]
    fn what_keeps_a_file_from_being_opened_for_a_moment_says_nothing_of_it() {
        let place = place();
        let sandbox = Sandbox::new(&place.path().join("in/main.asdf"), None).unwrap();
        for errno in [Errno::IO, Errno::MFILE, Errno::NFILE, Errno::AGAIN] {
            let error = sandbox.unopened("x.asdf", errno);
            assert!(matches!(error, Error::Io { .. }), "{error}");
        }
        let error = sandbox.unopened("x.asdf", Errno::ACCESS);
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }

    #[test]
    fn nothing_outside_is_opened() {
        let place = place();
        let sandbox = Sandbox::new(&place.path().join("in/main.asdf"), None).unwrap();
        let absolute = format!("{}/secret.asdf", place.path().display());
        for uri in [
            "../secret.asdf",
            "%2e%2e/secret.asdf",
            "sub/../../secret.asdf",
            absolute.as_str(),
            "file:///etc/passwd",
            "/etc/passwd",
            "http://example.org/x.asdf",
            "link.asdf",
            "inner.asdf",
            "/proc/self/exe",
            "passwd",
            "sub",
            "missing.asdf",
            "",
            "#",
            "x%00.asdf",
            "x%zz",
        ] {
            assert!(read(&sandbox, uri).is_err(), "{uri}");
        }
    }

    /// A rename of a directory anywhere makes the kernel give up on a path with `..`: the array was an I/O error then.
    #[test]
    fn a_file_is_opened_while_directories_are_renamed() {
        let place = place();
        let sandbox = Sandbox::new(&place.path().join("in/main.asdf"), None).unwrap();
        let (here, there) = (place.path().join("here"), place.path().join("there"));
        std::fs::create_dir(&here).unwrap();
        let done = AtomicBool::new(false);
        let failed = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::fs::rename(&here, &there).unwrap();
                    std::fs::rename(&there, &here).unwrap();
                }
            });
            let path = Path::new("sub/../x.asdf");
            let open = || open_beneath(&sandbox.directory, path, OFlags::RDONLY, false);
            let failed = (0..20_000).find_map(|_| open().err());
            done.store(true, Ordering::Relaxed);
            failed
        });
        assert!(failed.is_none(), "{failed:?}");
    }

    #[test]
    fn another_directory_may_be_allowed() {
        let place = place();
        let sandbox = Sandbox::new(&place.path().join("in/main.asdf"), Some(place.path())).unwrap();
        assert_eq!(read(&sandbox, "../secret.asdf").unwrap(), b"secret");
        assert_eq!(read(&sandbox, "x.asdf").unwrap(), b"x");
        assert!(read(&sandbox, "link.asdf").is_err());
    }
}
