//! The options behind `-o`.

pub(super) mod effect;
mod owner;
pub(super) mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::complain;
use super::completions::Shell;
use super::exit::{Exit, Failure};
use super::far::Urls;
use crate::asdf::check::Validate;
use crate::collection::Match;
use crate::save::{Pad, SaveOptions};
use crate::vfs::{Show, VfsOptions};
use crate::view::picture::{Colours, Curve, GreyLimits, SIZES};
use table::{MountOption, OPTIONS};

/// The most memory that decoded data take by default, in bytes.
const DEFAULT_CACHE: u64 = 256 << 20;
/// The part of the machine's memory that decoded data take at most by default.
const CACHE_PART_OF_MEMORY: u64 = 8;
/// The least cache that works: a few segments for each of a few readers.
const LEAST_CACHE: u64 = 16 << 20;
/// Files of a mount of many that are open at once by default, unless more are in use.
const DEFAULT_OPEN: usize = 64;
/// The options of how far files are read, see [`Options::set_far`].
const FAR: [&str; 5] = [
    "timeout",
    "no-sign-request",
    "max-download",
    "remote-cache",
    "remote-ttl",
];
/// How long a server is waited for by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long counts by default what a server has said.
const DEFAULT_TTL: Duration = Duration::from_secs(10);
/// The longest file, in bytes, that is downloaded by default if its server does not send parts.
const DEFAULT_MAX_DOWNLOAD: u64 = 1 << 30;
/// The most threads that make sense.
const MOST_THREADS: usize = 64;

/// What the command line asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action<'a> {
    Mount,
    Edit,
    Unmount,
    Revert,
    Check,
    List,
    Tree,
    References,
    /// To this file.
    Preview(&'a Path),
    /// To this file.
    Page(&'a Path),
    /// To this directory.
    Explode(&'a Path),
    /// To this file.
    Implode(&'a Path),
    /// To this file.
    Compact(&'a Path),
    Man,
    Semantics,
    Cookbook,
    /// For this shell.
    Completions(Shell),
}

impl Action<'_> {
    /// What it is for people: the flag that asks for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mount => "a mount",
            Self::Edit => "--edit",
            Self::Unmount => "--unmount",
            Self::Revert => "--revert",
            Self::Check => "--check",
            Self::List => "--list",
            Self::Tree => "--tree",
            Self::References => "--references",
            Self::Preview(_) => "--preview",
            Self::Page(_) => "--page",
            Self::Explode(_) => "--explode",
            Self::Implode(_) => "--implode",
            Self::Compact(_) => "--compact",
            Self::Man => "--man",
            Self::Semantics => "--semantics",
            Self::Cookbook => "--cookbook",
            Self::Completions(_) => "--completions",
        }
    }
}

/// What `-o` asks for.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
pub(crate) struct Options {
    /// `ro`
    pub(crate) read_only: bool,
    /// `allow_root`
    pub(crate) allow_root: bool,
    /// `auto_unmount`
    pub(crate) auto_unmount: bool,
    /// `force`
    pub(crate) force: bool,
    /// `verify`
    pub(crate) verify: bool,
    /// `allow_other`, `uid=`, `gid=`, `umask=`, `validate=`, `fits`, `show=`, `previews`, `zarr`, `stretch=`, `curve=`, `colors=`
    pub(crate) shown: VfsOptions,
    /// `cache=`, bytes
    pub(crate) cache: u64,
    /// `scratch=`, bytes
    pub(crate) scratch: u64,
    /// `threads=`: if it is given
    pub(crate) threads: Option<usize>,
    /// `save=`, `grow=`, `max-copy=`, `pad=`
    pub(crate) saving: SaveOptions,
    /// `max-check=`, bytes
    pub(crate) max_check: u64,
    /// `allow_external=`
    pub(crate) allow_external: Option<PathBuf>,
    /// `timeout=`: how long a server is waited for
    pub(crate) timeout: Duration,
    /// Not `no-sign-request`: whether requests to buckets are signed
    pub(crate) sign: bool,
    /// `max-download=`, bytes
    pub(crate) max_download: u64,
    /// `remote-ttl=`: how long counts what a server has said
    pub(crate) ttl: Duration,
    /// `remote-cache=`: the directory, and how many bytes it may hold
    pub(crate) remote_cache: Option<(PathBuf, u64)>,
    /// The URLs that are named, by what is shown of them.
    pub(crate) urls: Urls,
    /// `match=`: which files of a directory are ASDF files
    pub(crate) matching: Match,
    /// `open=`: how many files of many are open at once
    pub(crate) open: usize,
    /// `other-mounts`: whether what is mounted in a directory belongs to it
    pub(crate) other_mounts: bool,
    /// `idle=`
    pub(crate) idle: Option<Duration>,
    /// `until-eof`
    pub(crate) until_eof: bool,
    /// `on-refuse=`
    pub(crate) on_refuse: Option<String>,
    /// `fsname=`
    pub(crate) fsname: Option<String>,
    /// `subtype=`
    pub(crate) subtype: String,
    /// The options that were given.
    pub(crate) named: Vec<&'static MountOption>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_root: false,
            auto_unmount: false,
            force: false,
            verify: false,
            shown: VfsOptions::default(),
            cache: default_cache(),
            scratch: u64::MAX,
            threads: None,
            saving: SaveOptions::default(),
            max_check: u64::MAX,
            allow_external: None,
            timeout: DEFAULT_TIMEOUT,
            sign: true,
            max_download: DEFAULT_MAX_DOWNLOAD,
            ttl: DEFAULT_TTL,
            remote_cache: None,
            urls: Urls::default(),
            matching: Match::default(),
            open: DEFAULT_OPEN,
            other_mounts: false,
            idle: None,
            until_eof: false,
            on_refuse: None,
            fsname: None,
            subtype: "asdf-mount".to_owned(),
            named: Vec::new(),
        }
    }
}

impl Options {
    /// Parses the values of all `-o`. What `mount(8)` and fstab add for themselves is accepted and ignored.
    pub(super) fn parse(lists: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        if !lists.is_empty() {
            options.shown.given = format!(", -o {}", lists.join(","));
        }
        for option in lists.iter().flat_map(|list| split(list)) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option.as_str(), None),
            };
            options
                .set(name, value)
                .map_err(|why| Failure::new(Exit::Usage, format!("-o {option}: {why}")))?;
            if !is_ignored(name, value) {
                let known = OPTIONS.iter().find(|known| known.name == name);
                options.named.extend(known);
            }
        }
        if options.shown.allow_other && options.allow_root {
            let why = "-o allow_other and allow_root exclude each other";
            return Err(Failure::new(Exit::Usage, why));
        }
        if options.auto_unmount && !options.shown.allow_other && !options.allow_root {
            let why = "-o auto_unmount needs allow_other or allow_root: fusermount3 asks for it";
            return Err(Failure::new(Exit::Usage, why));
        }
        Ok(options)
    }

    /// Sets one option. The error does not name it, as the caller does.
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        match (name, value) {
            (name, value) if is_ignored(name, value) => {}
            (_, Some("")) => return Err(table::unknown(name, value)),
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("allow_other", None) => self.shown.allow_other = true,
            ("allow_root", None) => self.allow_root = true,
            ("auto_unmount", None) => self.auto_unmount = true,
            ("force", None) => self.force = true,
            ("verify", None) => self.verify = true,
            ("fits" | "zarr" | "previews" | "stretch" | "curve" | "colors", value) => {
                self.set_view(name, value)?;
            }
            ("uid", Some(text)) => self.shown.uid = Some(owner::USERS.number(text)?),
            ("gid", Some(text)) => self.shown.gid = Some(owner::GROUPS.number(text)?),
            ("idle", Some(text)) => self.idle = Some(time(text)?).filter(|time| !time.is_zero()),
            ("until-eof", None) => self.until_eof = true,
            (name, value) if FAR.contains(&name) => self.set_far(name, value)?,
            ("umask", Some(text)) => {
                let octal = u32::from_str_radix(text, 8).ok();
                let octal = octal.filter(|mask| *mask <= 0o777);
                self.shown.umask = octal.ok_or("an octal number up to 777 is needed")?;
            }
            ("cache", Some(text)) => self.cache = size(text)?.max(LEAST_CACHE),
            // nothing is kept between mounts since 0.1; to be refused from 0.2 on
            ("index-cache", Some(_)) => note("-o index-cache has no effect any more"),
            ("scratch", Some(text)) => self.scratch = size(text)?,
            ("max-copy", Some(text)) => self.saving.max_copy = size(text)?,
            ("max-check", Some(text)) => self.max_check = size(text)?,
            ("threads", Some(text)) => {
                let threads = usize::try_from(number(text)?).unwrap_or(0);
                if !(1..=MOST_THREADS).contains(&threads) {
                    return Err(format!("1 to {MOST_THREADS} threads make sense"));
                }
                self.threads = Some(threads);
            }
            ("save", Some("inplace")) => self.saving.replace = false,
            ("save", Some("replace")) => self.saving.replace = true,
            ("save", Some(_)) => return Err("inplace or replace?".to_owned()),
            ("grow", Some("auto")) => self.saving.grow = true,
            ("grow", Some("never")) => self.saving.grow = false,
            ("grow", Some(_)) => return Err("auto or never?".to_owned()),
            ("pad", Some("nul")) => self.saving.pad = Pad::Filled(0),
            ("pad", Some("blank")) => self.saving.pad = Pad::Filled(b' '),
            ("pad", Some("none")) => self.saving.pad = Pad::Absent,
            ("pad", Some(_)) => return Err("nul, blank or none?".to_owned()),
            ("validate", Some("off")) => self.shown.validate = Validate::Off,
            ("validate", Some("warn")) => self.shown.validate = Validate::Warn,
            ("validate", Some("strict")) => self.shown.validate = Validate::Strict,
            ("validate", Some(_)) => return Err("off, warn or strict?".to_owned()),
            ("allow_external", Some(text)) => self.allow_external = Some(directory(text)?),
            ("match", Some(text)) => self.matching = Match::new(text)?,
            ("open", Some(text)) => {
                let open = usize::try_from(number(text)?).unwrap_or(0);
                if open == 0 {
                    return Err("at least one file must be open".to_owned());
                }
                self.open = open;
            }
            ("other-mounts", None) => self.other_mounts = true,
            ("show", Some(text)) => self.shown.show = Show::new(text)?,
            ("on-refuse", Some(text)) if !text.is_empty() => self.on_refuse = Some(text.to_owned()),
            ("fsname", Some(text)) => self.fsname = Some(text.to_owned()),
            ("subtype", Some(text)) => text.clone_into(&mut self.subtype),
            _ => return Err(table::unknown(name, value)),
        }
        Ok(())
    }

    /// Sets an option of how far files are read.
    fn set_far(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        match (name, value) {
            ("timeout", Some("hard")) => self.timeout = Duration::MAX,
            ("timeout", Some(text)) => {
                self.timeout = time(text)?;
                if self.timeout.is_zero() {
                    return Err("a server needs some time; 30s is usual".to_owned());
                }
            }
            ("no-sign-request", None) => self.sign = false,
            ("max-download", Some(text)) => self.max_download = size(text)?,
            ("remote-ttl", Some("never")) => self.ttl = Duration::MAX,
            ("remote-ttl", Some(text)) => self.ttl = time(text)?,
            ("remote-cache", Some(text)) => {
                let split = text.rsplit_once(':').filter(|(dir, _)| !dir.is_empty());
                let (dir, most) =
                    split.ok_or("a directory and a size are needed, as in /var/tmp/asdf:10G")?;
                self.remote_cache = Some((whole_path(dir)?, size(most)?));
            }
            _ => return Err(table::unknown(name, value)),
        }
        Ok(())
    }

    /// Sets an option of further views of arrays.
    fn set_view(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        match (name, value) {
            ("fits", None) => self.shown.fits = true,
            ("zarr", None) => self.shown.zarr = true,
            ("previews", None) => self.shown.previews = true,
            ("previews", Some(text)) => {
                self.shown.style.size = picture_size(text)?;
                self.shown.previews = true;
            }
            ("stretch", Some(text)) => self.shown.style.limits = picture_limits(text)?,
            ("curve", Some("linear")) => self.shown.style.curve = Some(Curve::Linear),
            ("curve", Some("asinh")) => self.shown.style.curve = Some(Curve::Asinh),
            ("curve", Some(_)) => return Err("linear or asinh?".to_owned()),
            ("colors", Some(text)) => self.shown.style.colours = picture_colours(text)?,
            _ => return Err(table::unknown(name, value)),
        }
        Ok(())
    }
}

/// Prints a note on the command line, unless this is the daemon: the command has read the same line before.
fn note(text: &str) {
    #[cfg(feature = "fuse")]
    if super::daemon::is_daemon() {
        return;
    }
    complain(text);
}

/// Options that fstab, `mount(8)` and libfuse's helper give to everybody, or that are always on.
fn is_ignored(name: &str, value: Option<&str>) -> bool {
    const FLAGS: [&str; 41] = [
        // a save is on disk when it returns; the kernel would sync, and so save, each write of a file by itself
        "sync",
        "async",
        "dirsync",
        "_netdev",
        "nofail",
        "noauto",
        "auto",
        "user",
        "users",
        "nouser",
        "owner",
        "group",
        "defaults",
        "default_permissions",
        "nosuid",
        "nodev",
        "noexec",
        "suid",
        "dev",
        "exec",
        "atime",
        "noatime",
        "relatime",
        "norelatime",
        "strictatime",
        "nostrictatime",
        "lazytime",
        "nolazytime",
        "diratime",
        "nodiratime",
        "iversion",
        "noiversion",
        "mand",
        "nomand",
        "symfollow",
        "nosymfollow",
        "silent",
        "loud",
        "noowner",
        "nogroup",
        "nousers",
    ];
    const SETTINGS: [&str; 5] = [
        "comment",
        "context",
        "fscontext",
        "defcontext",
        "rootcontext",
    ];
    name.starts_with("x-")
        || name.starts_with("X-")
        || SETTINGS.contains(&name)
        || (value.is_none() && FLAGS.contains(&name))
}

/// Splits at commas; `\,` and `\\` stand for themselves, as in mount(8).
fn split(list: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut chars = list.chars();
    while let Some(c) = chars.next() {
        match c {
            ',' => out.push(String::new()),
            c => {
                let c = if c == '\\' {
                    chars.next().unwrap_or('\\')
                } else {
                    c
                };
                if let Some(last) = out.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    out.retain(|option| !option.is_empty());
    out
}

/// A time such as 10m, or seconds.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs);
    let time = seconds.or_else(|_| humantime::parse_duration(text));
    time.map_err(|_| "a time such as 10m or 2h is needed".to_owned())
}

fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "a whole number is needed".to_owned())
}

/// A number of bytes, with K, M, G or T for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let fail = || "a size such as 256M is needed".to_owned();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text
        .get(digits.len()..)
        .unwrap_or_default()
        .to_ascii_uppercase()
        .as_str()
    {
        "" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(fail()),
    };
    let number: u64 = digits.parse().map_err(|_| fail())?;
    number.checked_mul(1 << shift).ok_or_else(fail)
}

/// A path that stays right when the working directory changes.
fn whole_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .map_err(|error| error.to_string())
}

/// The whole path of a directory that is there: the daemon leaves the working directory.
fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.metadata() {
        Ok(meta) if meta.is_dir() => whole_path(text),
        Ok(_) => Err("not a directory".to_owned()),
        Err(error) => Err(format!("a directory is needed: {error}")),
    }
}

/// [`DEFAULT_CACHE`], or less on a machine or in a control group with little memory.
fn default_cache() -> u64 {
    let limits = [
        rustix::process::getrlimit(rustix::process::Resource::As).current,
        std::fs::read_to_string("/sys/fs/cgroup/memory.max")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| total_memory(&text)),
    ];
    let memory: u64 = limits.into_iter().flatten().min().unwrap_or(u64::MAX);
    DEFAULT_CACHE
        .min(memory.checked_div(CACHE_PART_OF_MEMORY).unwrap_or(0))
        .max(LEAST_CACHE)
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Pixels of the longer side of a picture.
pub(super) fn picture_size(text: &str) -> Result<u16, String> {
    let size = text.parse().ok().filter(|size| SIZES.contains(size));
    let (least, most) = (SIZES.start(), SIZES.end());
    size.ok_or_else(|| format!("{least} to {most} pixels make sense"))
}

/// How black and white are chosen.
fn picture_limits(text: &str) -> Result<GreyLimits, String> {
    let percent = |text: &str| {
        let percent = text.parse().ok();
        percent.filter(|percent| (1.0..=100.0).contains(percent))
    };
    match text.split_once(':') {
        None if text == "auto" => Ok(GreyLimits::Auto),
        None if text == "zscale" => Ok(GreyLimits::Zscale),
        None if text == "minmax" => Ok(GreyLimits::MinMax),
        Some(("percent", text)) => percent(text)
            .map(GreyLimits::Percent)
            .ok_or_else(|| "percent:1 to percent:100 make sense".to_owned()),
        _ => Err("auto, zscale, minmax or percent:P?".to_owned()),
    }
}

/// What colours brightness has.
fn picture_colours(text: &str) -> Result<Colours, String> {
    match text {
        "grey" | "gray" => Ok(Colours::Grey),
        "inferno" => Ok(Colours::Inferno),
        "viridis" => Ok(Colours::Viridis),
        "cubehelix" => Ok(Colours::Cubehelix),
        _ => Err("grey, inferno, viridis or cubehelix?".to_owned()),
    }
}

#[cfg(test)]
mod tests;
