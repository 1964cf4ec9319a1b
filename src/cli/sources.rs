//! What is to be mounted: one file, the files of a directory, or a list of files.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::warn;

use super::exit::{Exit, Failure};
use super::far::{Sources, UrlOpener, Urls};
use super::options::Options;
use super::options::effect::Reads;
use super::{Args, counted, resolve};
use crate::codec::Cache;
use crate::collection::Contents;
use crate::error::Error;
use crate::save::{Beneath, FilePath};

impl Sources {
    /// What it is called: the path of the file or of the directory.
    pub(super) fn name(&self) -> &Path {
        match self {
            Self::One(file, _) => file.whole(),
            Self::Many(_, path) => path,
        }
    }

    /// What it is, as far as that decides which options make a difference.
    pub(super) fn reads(&self) -> Reads {
        match self {
            Self::One(file, _) => Reads {
                far: file.is_far(),
                only_read: file.is_far(),
                ..Reads::default()
            },
            Self::Many(contents, _) => Reads {
                far: contents.has_far(),
                directory: !matches!(contents, Contents::List(_)),
                many: true,
                only_read: contents.is_far(),
            },
        }
    }

    /// The directory that is mounted on if none is given: the file's name without its extension, in the working directory.
    pub(super) fn directory_name(&self) -> Result<PathBuf, Failure> {
        let why = match self {
            Self::One(_, name) => {
                let name = name.as_deref().map(Path::new);
                let stem = name.filter(|name| name.extension().is_some());
                if let Some(stem) = stem.and_then(Path::file_stem) {
                    return Ok(PathBuf::from(stem));
                }
                "its name has no extension, so no directory can be named after it; name a MOUNTPOINT behind FILE"
            }
            Self::Many(..) => "on which MOUNTPOINT? Name one at the end",
        };
        Err(Failure::of(Exit::Mountpoint, self.name(), why))
    }

    /// What a mount at `mountpoint` would hide from the daemon, or how the daemon would meet its own mount, if it would.
    pub(super) fn hidden_by(&self, mountpoint: &Path, options: &Options) -> Option<String> {
        let under = |path: &Path| {
            let hidden = path.starts_with(mountpoint);
            hidden.then(|| format!("{} lies under", path.display()))
        };
        match self {
            Self::One(file, _) => under(file.whole()),
            Self::Many(Contents::List(files), _) => {
                files.values().find_map(|file| under(file.whole()))
            }
            Self::Many(Contents::Listing(_), _) => None,
            Self::Many(Contents::Mirror(..), path) => {
                let meets = options.other_mounts && mountpoint.starts_with(path);
                let why = || format!("{}: with -o other-mounts it would hold", path.display());
                under(path).or_else(|| meets.then(why))
            }
        }
    }
}

/// Finds what is to be mounted: one directory, or `paths` and the files in the list of `--files-from`. Bytes that servers send are kept
/// in `cache`. Only a directory and the list are opened.
pub(super) fn find(
    paths: &[PathBuf],
    args: &Args,
    options: &Options,
    cache: &Arc<Cache>,
) -> Result<Sources, Failure> {
    let far = UrlOpener::new(options, cache);
    let mut urls = options.urls.clone();
    match (paths, &args.files_from) {
        ([path], None) => match far.find(path, &urls)? {
            Some(sources) => Ok(sources),
            None if path.is_dir() => mirror(path, options),
            None => {
                let whole = resolve(path)?;
                // as it is named, which may be a link
                let name = path.file_name().map(OsStr::to_owned);
                Ok(Sources::One(FilePath::from(&whole).holding(), name))
            }
        },
        (paths, None) => list(paths, &far, &urls),
        (paths, Some(file)) => {
            let mut all = paths.to_vec();
            for path in listed(file, args)? {
                all.push(urls.take(&path)?);
            }
            list(&all, &far, &urls)
        }
    }
}

/// The paths in the file of a list.
fn listed(file: &Path, args: &Args) -> Result<Vec<PathBuf>, Failure> {
    let mut text = Vec::new();
    let read = if args.reads_input() {
        std::io::stdin().lock().read_to_end(&mut text).map(drop)
    } else {
        std::fs::read(file).map(|bytes| text = bytes)
    };
    read.map_err(|cause| {
        let error = Error::io(file.display().to_string(), cause);
        Failure::reading(file, &error)
    })?;
    if !args.nul && text.contains(&0) {
        let why = "its paths end in NUL; add -0";
        return Err(Failure::of(Exit::Usage, file, why));
    }
    Ok(paths(&text, if args.nul { 0 } else { b'\n' }))
}

/// Whether that is a name of standard input.
pub(super) fn is_input(list: &Path) -> bool {
    let names = ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    names.iter().any(|name| list == Path::new(name))
}

/// Why a directory is refused where files are named.
const AMONG_FILES: &str =
    "a directory among FILEs; name only the MOUNTPOINT, last, or mount a DIR alone";

/// The paths of a list. Empty ones are passed over, and the last needs no end.
fn paths(text: &[u8], end: u8) -> Vec<PathBuf> {
    let paths = text.split(|&byte| byte == end);
    let paths = paths.filter(|path| !path.is_empty());
    paths
        .map(|path| OsString::from_vec(path.to_vec()).into())
        .collect()
}

/// The files below a directory, of the names that `match=` says.
fn mirror(directory: &Path, options: &Options) -> Result<Sources, Failure> {
    let failed = |cause| {
        let error = Error::io(directory.display().to_string(), cause);
        Failure::reading(directory, &error)
    };
    let path = directory.canonicalize().map_err(failed)?;
    let root = Beneath::new(&path, options.other_mounts).map_err(failed)?;
    let mut there = std::fs::read_dir(&path).map_err(failed)?.flatten();
    let may_lead = |entry: &DirEntry| {
        let kind = entry.file_type();
        kind.is_ok_and(|kind| !kind.is_file()) || options.matching.has(&entry.file_name())
    };
    if !there.any(|entry| may_lead(&entry)) {
        let names = &options.matching;
        warn!(
            "{}: no file in it is named {names}; -o match=GLOB shows others",
            directory.display()
        );
    }
    let contents = Contents::Mirror(Arc::new(root), options.matching.clone());
    Ok(Sources::Many(contents, path))
}

/// These files, each under its name, which no two may have. None of them is opened.
fn list(paths: &[PathBuf], far: &UrlOpener<'_>, urls: &Urls) -> Result<Sources, Failure> {
    let root = Path::new("/");
    let beneath = Beneath::new(root, true).map_err(|cause| {
        let error = Error::io(root.display().to_string(), cause);
        Failure::reading(root, &error)
    })?;
    let beneath = Arc::new(beneath);
    let mut directories: HashMap<PathBuf, FilePath> = HashMap::new();
    let mut files: BTreeMap<OsString, (&Path, FilePath)> = BTreeMap::new();
    for path in paths {
        let refuse = |exit, why: &str| Err(Failure::of(exit, path, why));
        let (name, file) = match far.find(path, urls)? {
            Some(Sources::One(file, name)) => (name, file),
            Some(Sources::Many(..)) => {
                return refuse(Exit::Usage, AMONG_FILES);
            }
            None if path.is_dir() => {
                return refuse(Exit::Usage, AMONG_FILES);
            }
            None => {
                let whole = resolve(path)?;
                let name = path.file_name().or_else(|| whole.file_name());
                let from_root = whole.strip_prefix(root).unwrap_or(&whole);
                let file = FilePath::beneath(&beneath, from_root.to_owned());
                let directory = whole.parent().unwrap_or(root).to_owned();
                let file = held(file, directory, &mut directories);
                (name.map(OsStr::to_owned), file)
            }
        };
        let Some(name) = name else {
            let why = "not a file; name the ASDF file itself";
            return refuse(Exit::File, why);
        };
        if name.as_bytes().starts_with(b".asdf-mount") {
            return refuse(Exit::Usage, "a name that the mount needs itself");
        }
        if let Some((other, _)) = files.get(&name) {
            let other = other.display();
            let why = format!("the same name as {other}; mount their directory, or each alone");
            return refuse(Exit::Usage, &why);
        }
        files.insert(name, (path, file));
    }
    if files.is_empty() {
        return Err(Failure::new(Exit::Usage, "which FILE? The list is empty"));
    }
    let name = counted(files.len(), "file");
    let files = files.into_iter().map(|(name, (_, file))| (name, file));
    Ok(Sources::Many(Contents::List(files.collect()), name.into()))
}

/// A file whose directory stays open, as one of `directories`, unless there are too many of them.
fn held(
    file: FilePath,
    directory: PathBuf,
    directories: &mut HashMap<PathBuf, FilePath>,
) -> FilePath {
    /// Of more directories each would take a descriptor.
    const MAX_HELD: usize = 64;
    let has_room = directories.len() < MAX_HELD;
    match directories.entry(directory) {
        Entry::Occupied(other) => file.holding_with(other.get()),
        Entry::Vacant(place) if has_room => place.insert(file.holding_now()).clone(),
        Entry::Vacant(_) => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_at_its_ends() {
        let want = ["a.asdf", "b c.asdf"].map(PathBuf::from);
        assert_eq!(paths(b"a.asdf\n\nb c.asdf", b'\n'), want);
        assert_eq!(paths(b"a.asdf\0b c.asdf\0", 0), want);
        assert_eq!(paths(b"a\nb\0", 0), [PathBuf::from("a\nb")]);
        assert!(paths(b"", b'\n').is_empty());
    }

    #[test]
    fn a_directory_named_after_a_file_needs_an_extension_to_take_away() {
        let named = |path: &str| {
            let name = Path::new(path).file_name().map(OsStr::to_owned);
            Sources::One(FilePath::from(path), name).directory_name()
        };
        assert_eq!(
            named("/data/galaxy.v2.asdf").unwrap(),
            Path::new("galaxy.v2")
        );
        let refused = named("/data/galaxy").unwrap_err();
        assert!(refused.message.ends_with("name a MOUNTPOINT behind FILE"));
    }

    /// The directory had the name of the file that the link leads to.
    #[test]
    fn a_file_that_is_named_by_a_link_is_called_by_the_link() {
        let place = tempfile::TempDir::new().unwrap();
        let link = place.path().join("latest.asdf");
        std::fs::write(place.path().join("run_2026.asdf"), "").unwrap();
        std::os::unix::fs::symlink("run_2026.asdf", &link).unwrap();
        let args: Args = clap::Parser::try_parse_from(["asdf-mount"]).unwrap();
        let (options, cache) = (Options::default(), Cache::new(1 << 20));
        let Ok(sources) = find(&[link], &args, &options, &cache) else {
            panic!("it is there");
        };
        assert_eq!(sources.directory_name().unwrap(), Path::new("latest"));
    }

    #[test]
    fn two_files_of_one_name_are_refused_by_the_paths_of_both() {
        let place = tempfile::TempDir::new().unwrap();
        let root = place.path();
        let file = |name: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let (a, b, c) = (file("x/n.asdf"), file("y/n.asdf"), file("y/m.asdf"));
        let (options, cache) = (Options::default(), Cache::new(1 << 20));
        let list =
            |paths: &[PathBuf]| list(paths, &UrlOpener::new(&options, &cache), &options.urls);
        assert!(list(&[a.clone(), c]).is_ok());
        let why = list(&[a.clone(), b.clone()]).err().unwrap().message;
        assert!(
            why.contains(a.to_str().unwrap()) && why.contains(b.to_str().unwrap()),
            "{why}"
        );
        assert!(list(&[a, root.to_owned()]).is_err());
        assert!(list(&[]).is_err());
    }
}
