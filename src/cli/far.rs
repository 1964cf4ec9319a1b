//! FILEs that are named by URL: what they are called in messages, and how they are opened.
//!
//! A URL may hold a password or a signature. So the rest of the program knows the file by a text that leaves these out, and only this
//! module knows the URL itself. All users can read the arguments of a process, so the daemon gets URLs through its environment.

#[cfg(feature = "remote")]
mod servers;
#[cfg(not(feature = "remote"))]
#[path = "far/without.rs"]
mod servers;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
#[cfg(feature = "fuse")]
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::files::{self, Files};
use super::options::Options;
use crate::codec::Cache;
use crate::collection::{Contents, Listing};
use crate::error::{Error, percent_decoded};
use crate::save::FilePath;
use servers::{Location, Remote};

/// The environment variable with the URLs for the daemon: for each the text that is shown of it, and the URL, a line each.
pub(super) const URLS: &str = "ASDF_MOUNT_URLS";

/// The URLs that the command line names, by the text that is shown of them.
#[derive(Debug, Clone, Default)]
#[cfg_attr(
    not(feature = "remote"),
    expect(
        clippy::zero_sized_map_values,
        reason = "without the feature there is no URL"
    )
)]
pub(crate) struct Urls(BTreeMap<PathBuf, Location>);

impl Urls {
    /// The URLs in the environment, where the parent has put them for the daemon.
    pub(super) fn from_environment() -> Self {
        Self::told(&std::env::var(URLS).unwrap_or_default())
    }

    /// The URLs in the variable of the daemon.
    fn told(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks_exact(2).filter_map(|pair| match pair {
            [shown, url] => Some((PathBuf::from(shown), Location::parse(url)?.ok()?)),
            _ => None,
        });
        Self(pairs.collect())
    }

    /// What `path` is called from now on. A URL is remembered, and called by what is shown of it; any other path stays as it is.
    pub(super) fn take(&mut self, path: &Path) -> Result<PathBuf, Failure> {
        if let Some(path) = path.to_str().and_then(local) {
            return path;
        }
        let text = path.to_str();
        let Some((text, location)) = text.and_then(|text| Some((text, Location::parse(text)?)))
        else {
            return Ok(path.to_owned());
        };
        let location = location.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        if text.contains(char::is_control) {
            let why = format!("{location}: control characters in a URL; write a line feed as %0A");
            return Err(Failure::new(Exit::Usage, why));
        }
        Ok(self.named(location))
    }

    /// What a URL is called from now on: by what is shown of it, which may be what is shown of another one, or its text.
    fn named(&mut self, location: Location) -> PathBuf {
        let shown = location.to_string();
        // URLs that differ only in parts that are not shown get a number
        let numbered = (2_usize..).map(|n| PathBuf::from(format!("{shown}#{n}")));
        let mut names = std::iter::once(PathBuf::from(&shown)).chain(numbered);
        let free = |name: &PathBuf| self.0.get(name).is_none_or(|other| *other == location);
        let name = names.find(free).unwrap_or_default();
        self.0.insert(name.clone(), location);
        name
    }

    /// What is shown of the URL that is called `path`, in the table of mounts too.
    pub(super) fn shown(&self, path: &Path) -> Option<PathBuf> {
        let at = self.0.get(path)?;
        Some(at.to_string().into())
    }

    /// Whether what is shown of the URL that is called `path` may be what is shown of another one.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let is_all = |at: &Location| {
            let shown = Location::parse(&at.to_string());
            shown.and_then(Result::ok).as_ref() == Some(at)
        };
        self.0.get(path).is_some_and(|at| !is_all(at))
    }

    /// Whether the URL that is called `path` is one of those in the environment of a daemon, as proc_pid_environ(5) has it.
    pub(super) fn are_in(&self, path: &Path, environment: &[u8]) -> bool {
        let mut variables = environment.split(|&byte| byte == 0);
        let told = variables.find_map(|it| it.strip_prefix(URLS.as_bytes())?.strip_prefix(b"="));
        let told = Self::told(&String::from_utf8_lossy(told.unwrap_or_default()));
        let at = self.0.get(path);
        told.0.values().any(|other| Some(other) == at)
    }

    /// Whether `path` is what a prefix of a bucket is called.
    fn is_prefix(&self, path: &Path) -> bool {
        let at = self.0.get(path);
        at.is_some_and(|at| at.is_prefix() && at.can_list())
    }

    /// How other programs address the file at `path`: by its URL, or by one of this machine.
    ///
    /// # Errors
    /// If that would be the password or signature of a URL, or is not UTF-8.
    pub(super) fn address(&self, path: &Path) -> Result<String, Failure> {
        let refused = |why| Failure::of(Exit::Usage, path, why);
        let Some(at) = self.0.get(path) else {
            let whole = super::resolve(path)?;
            let text = whole
                .to_str()
                .ok_or_else(|| refused("its path is not UTF-8"));
            return text.map(|text| format!("file://{text}"));
        };
        at.public()
            .ok_or_else(|| refused("references would hold the password or signature of the URL"))
    }

    /// Whether `path` is what a URL is called.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }
}

/// The path that a `file:` URL of this machine names (RFC 8089); `None` if it is no such URL.
fn local(url: &str) -> Option<Result<PathBuf, Failure>> {
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("file") {
        return None;
    }
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = Some(path).filter(|path| path.starts_with('/'));
    let path = path.and_then(|path| percent_decoded(path).ok());
    Some(
        path.map(|path| PathBuf::from(OsString::from_vec(path)))
            .ok_or_else(|| {
                let why =
                    format!("{url}: a file: URL names a file of this machine as file:///path");
                Failure::new(Exit::Usage, why)
            }),
    )
}

/// The arguments of the daemon, with each URL replaced by what is shown of it, and the environment variable that holds the URLs.
#[cfg(feature = "fuse")]
pub(super) fn hidden(arguments: &[OsString]) -> (Vec<OsString>, Option<(&'static str, String)>) {
    let mut urls = Urls::default();
    let mut kept = String::new();
    let arguments = arguments.iter().map(|argument| {
        // an argument that makes no sense as a URL has been refused before
        let shown = urls.take(Path::new(argument));
        let shown = shown.map_or_else(|_| argument.clone(), PathBuf::into_os_string);
        // the path of a `file:` URL is no URL to the daemon, and may hold line feeds
        let url = argument.to_str().filter(|_| shown != *argument);
        if let Some(url) = url.filter(|_| urls.has(Path::new(&shown))) {
            // writing to a string can't fail
            let _ = writeln!(kept, "{}\n{url}", shown.display());
        }
        shown
    });
    let arguments = arguments.collect();
    (arguments, (!kept.is_empty()).then_some((URLS, kept)))
}

/// Opens files that are named by URL. The thread of [`Remote`] is started with the first.
pub(super) struct UrlOpener<'a> {
    options: &'a Options,
    cache: &'a Arc<Cache>,
    remote: OnceCell<Remote>,
}

/// What arguments name: in a mount it is what is mounted.
#[cfg_attr(
    not(feature = "fuse"),
    expect(dead_code, reason = "names and lists are those of mounts only")
)]
pub(super) enum Sources {
    /// A file, and its name if it has one.
    One(FilePath, Option<OsString>),
    /// Many, and what they are called together.
    Many(Contents, PathBuf),
}

impl<'a> UrlOpener<'a> {
    /// An opener that keeps the bytes that servers send in `cache`.
    pub(super) fn new(options: &'a Options, cache: &'a Arc<Cache>) -> Self {
        Self {
            options,
            cache,
            remote: OnceCell::new(),
        }
    }

    /// What `path` names in `urls`; `None` if it is not what a URL is called.
    pub(super) fn find(&self, path: &Path, urls: &Urls) -> Result<Option<Sources>, Failure> {
        let Some(at) = urls.0.get(path) else {
            return Ok(None);
        };
        let remote = self.remote(path)?;
        if !at.is_prefix() {
            let name = at.name().map(OsString::from);
            return Ok(Some(Sources::One(servers::file(remote, at, path), name)));
        }
        if !at.can_list() {
            let why = "http cannot list directories: give the files in --files-from";
            return Err(Failure::of(Exit::Usage, path, why));
        }
        let listing = Listing::new(servers::bucket(remote, at), self.options.matching.clone());
        let listing = listing.map_err(|error| failed(path, &error))?;
        let contents = Contents::Listing(listing);
        Ok(Some(Sources::Many(contents, path.to_owned())))
    }

    /// What `path` names, if it is a prefix.
    fn prefix(&self, path: &Path) -> Result<Option<Sources>, Failure> {
        if self.options.urls.is_prefix(path) {
            return self.find(path, &self.options.urls);
        }
        Ok(None)
    }

    /// The file that `path` names, by its URL or as a path of this machine.
    pub(super) fn file(&self, path: &Path) -> Result<Option<FilePath>, Failure> {
        match self.find(path, &self.options.urls)? {
            Some(Sources::One(file, _)) => Ok(Some(file)),
            Some(Sources::Many(..)) => {
                let why = "not a file; mount it, or name a file below it";
                Err(Failure::of(Exit::Usage, path, why))
            }
            None => Ok(None),
        }
    }

    /// What talks to servers, started for the first URL. A failure names `path`.
    fn remote(&self, path: &Path) -> Result<&Remote, Failure> {
        if let Some(remote) = self.remote.get() {
            return Ok(remote);
        }
        let remote = servers::start(self.options, self.cache);
        let remote = remote.map_err(|error| failed(path, &error))?;
        Ok(self.remote.get_or_init(|| remote))
    }
}

/// The files that `paths` name, as [`files::all`] has them, with those below each prefix of a bucket too, and the options with the URLs of
/// these. With each is a failure if it, or what is in it, can't be read by its name.
pub(super) fn expanded(paths: &[PathBuf], options: &Options) -> Result<(Files, Options), Failure> {
    let mut options = options.clone();
    if !paths.iter().any(|path| options.urls.is_prefix(path)) {
        return Ok((files::all(paths, &options.matching), options));
    }
    // no bytes of files are kept in it
    let cache = Cache::new(0);
    let given = options.clone();
    let opener = UrlOpener::new(&given, &cache);
    let mut out = Vec::new();
    for path in paths {
        let Some(Sources::Many(Contents::Listing(listing), _)) = opener.prefix(path)? else {
            out.extend(files::all(std::slice::from_ref(path), &given.matching));
            continue;
        };
        let prefix = given.urls.0.get(path);
        let files = listing.all().map_err(|error| failed(path, &error))?;
        if files.is_empty() {
            let names = &given.matching;
            let why = format!("no file below it is named {names}; -o match=GLOB finds others");
            return Err(Failure::of(Exit::File, path, &why));
        }
        for (name, file) in files {
            // what is shown of a file is not always its key
            let at = file.and_then(|_| {
                prefix
                    .map(|prefix| servers::below(prefix, &name))
                    .transpose()
            });
            match at {
                Ok(at) => out.extend(at.map(|at| (options.urls.named(at), Ok(())))),
                Err(error) => {
                    let path = PathBuf::from(format!("{}{name}", path.display()));
                    let failure = failed(&path, &error);
                    out.push((path, Err(failure)));
                }
            }
        }
    }
    Ok((out, options))
}

/// The failure to open what a URL names.
fn failed(path: &Path, error: &Error) -> Failure {
    let failure = Failure::reading(path, error);
    Failure::new(Exit::File, failure.message)
}

#[cfg(all(test, feature = "fuse", feature = "remote"))]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_called_by_what_can_be_shown_of_it() {
        let mut urls = Urls::default();
        let mut take = |text: &str| urls.take(Path::new(text)).map(PathBuf::into_os_string);
        assert_eq!(take("a.asdf").unwrap(), "a.asdf");
        assert_eq!(take("s3://b/k.asdf").unwrap(), "s3://b/k.asdf");
        let shown = take("https://me:secret@h/a.asdf?token=secret").unwrap();
        assert_eq!(shown, "https://h/a.asdf?token=…");
        assert_eq!(
            take("https://h/a.asdf?token=other").unwrap(),
            "https://h/a.asdf?token=…#2"
        );
        assert_eq!(
            take("https://h/a.asdf?token=other").unwrap(),
            "https://h/a.asdf?token=…#2"
        );
        for wrong in ["https://", "s3://b/a\nb"] {
            assert!(take(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_url_that_is_not_shown_as_a_whole_is_found_with_the_daemon_that_was_given_it() {
        let mut urls = Urls::default();
        let mut take = |text: &str| urls.take(Path::new(text)).unwrap();
        let whole = ["s3://b/k.asdf", "https://h/a#b", "https://h/a?x=…"].map(&mut take);
        let hidden = ["https://h/a?x=1", "https://h/a?x=2", "https://u:p@h/a"].map(&mut take);
        assert!(whole[..2].iter().all(|path| !urls.hides(path)));
        assert!(hidden.iter().all(|path| urls.hides(path)));
        assert_eq!(urls.shown(&hidden[1]).unwrap(), whole[2]);
        let environment =
            b"A=https://h/a?x=2\0ASDF_MOUNT_URLS=https://h/a?x=\xe2\x80\xa6\nhttps://h/a?x=1\n\0B=";
        let are_in = hidden.map(|path| urls.are_in(&path, environment));
        assert_eq!(are_in, [true, false, false]);
    }

    #[test]
    fn other_programs_are_told_no_secret() {
        let mut urls = Urls::default();
        for (url, want) in [
            ("s3://b/k.asdf", Some("s3://b/k.asdf")),
            ("s3://b/\u{200e}.asdf", Some("s3://b/\u{200e}.asdf")),
            ("s3://b/%E2%80%8E.asdf", Some("s3://b/%E2%80%8E.asdf")),
            ("https://h/a.asdf", Some("https://h/a.asdf")),
            ("https://me:secret@h/b.asdf", None),
            ("https://h/a.asdf?token=secret", None),
        ] {
            let path = urls.take(Path::new(url)).unwrap();
            assert_eq!(urls.address(&path).ok().as_deref(), want, "{url}");
        }
        let file = std::env::current_exe().unwrap();
        let want = format!("file://{}", file.canonicalize().unwrap().display());
        assert_eq!(urls.address(&file).unwrap(), want);
    }

    #[test]
    fn arguments_of_the_daemon_hold_no_secret() {
        let line = [
            "asdf-mount",
            "-o",
            "ro",
            "https://h/a?t=secret",
            "s3://b/k",
            "mnt",
        ];
        let (arguments, kept) = hidden(&line.map(OsString::from));
        let want = [
            "asdf-mount",
            "-o",
            "ro",
            "https://h/a?t=…",
            "s3://b/k",
            "mnt",
        ];
        assert_eq!(arguments, want.map(OsString::from));
        let (name, kept) = kept.unwrap();
        assert_eq!(
            (name, &*kept),
            (URLS, "https://h/a?t=…\nhttps://h/a?t=secret\n")
        );
        let (_, nothing) = hidden(&["asdf-mount", "a.asdf"].map(OsString::from));
        assert!(nothing.is_none());
    }

    /// It took two of the lines, so that the daemon knew none of the URLs behind it.
    #[test]
    fn a_line_feed_in_the_path_of_a_file_url_hides_no_url() {
        let line = ["asdf-mount", "file:///a%0Ab.asdf", "https://h/a?t=secret"];
        let (arguments, kept) = hidden(&line.map(OsString::from));
        let want = ["asdf-mount", "/a\nb.asdf", "https://h/a?t=…"];
        assert_eq!(arguments, want.map(OsString::from));
        let (_, kept) = kept.unwrap();
        assert_eq!(kept, "https://h/a?t=…\nhttps://h/a?t=secret\n");
    }
}
