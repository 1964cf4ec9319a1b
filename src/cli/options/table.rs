//! The options behind `-o` as people are told of them: by `--help`, by completions, and where one is misspelt.

use std::fmt::Write;

/// Where the text about an option begins, in columns.
const TEXT_COLUMN: usize = 25;
/// How alike two names must be to be taken for each other, from 0 to 1.
const ALIKE: f64 = 0.75;
/// What an option is called in other programs, and here.
const ELSEWHERE: [(&str, &str); 3] = [
    ("readonly", "ro"),
    ("read-only", "ro"),
    ("external", "allow_external"),
];

/// What `mount -o remount` adds to the new options.
const REMOUNT: &str = "remount";

/// An option of `-o`.
#[derive(Debug)]
pub(crate) struct MountOption {
    pub(crate) name: &'static str,
    /// Its value as the help has it: a word in capitals, or the values that there are, in brackets if it may be left out; without it the
    /// option takes none.
    pub(crate) value: Option<&'static str>,
    /// A value that makes sense, for those who forget it.
    pub(crate) example: &'static str,
    /// Where it makes a difference.
    pub(crate) scope: Scope,
    text: &'static str,
}

/// Where an option makes a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Wherever a file is read.
    Reading,
    /// There, if it is named by a URL.
    Far,
    /// In a mount, and where a file is checked.
    Rules,
    /// Where a file is checked.
    Checking,
    /// Where the files of a directory are looked for.
    Directory,
    /// Where pictures are made.
    Pictures,
    /// In a mount.
    Mounting,
    /// In a mount that can be written.
    Writing,
    /// In a mount of many files.
    Many,
}

/// All that a mount or another action takes heed of, in the order of the manual.
pub(crate) const OPTIONS: &[MountOption] = &[
    flag(Scope::Mounting, "ro", "mount read-only"),
    flag(
        Scope::Mounting,
        "rw",
        "mount for reading and writing [default]",
    ),
    flag(
        Scope::Mounting,
        "allow_other",
        "let other users in, as FILE's permissions allow",
    ),
    flag(Scope::Mounting, "allow_root", "let root in"),
    option(
        Scope::Mounting,
        "uid",
        "N|NAME",
        "1000",
        "owner of everything in the mount [FILE's]",
    ),
    option(
        Scope::Mounting,
        "gid",
        "N|NAME",
        "1000",
        "group of everything in the mount [FILE's]",
    ),
    option(
        Scope::Mounting,
        "umask",
        "OCTAL",
        "027",
        "permission bits to clear [none]",
    ),
    option(
        Scope::Reading,
        "cache",
        "SIZE",
        "256M",
        "memory for decoded data [256M, at most 1/8 of RAM]",
    ),
    option(
        Scope::Writing,
        "scratch",
        "SIZE",
        "1G",
        "most space for temporary and unsaved data [no limit]",
    ),
    option(
        Scope::Mounting,
        "threads",
        "N",
        "4",
        "threads that serve requests [4]",
    ),
    flag(
        Scope::Mounting,
        "verify",
        "verify the checksum of a block before showing it",
    ),
    option(
        Scope::Writing,
        "save",
        "inplace|replace",
        "replace",
        "overwrite the tree, or write a new FILE [inplace]",
    ),
    option(
        Scope::Writing,
        "grow",
        "auto|never",
        "never",
        "whether a save may make FILE longer [auto]",
    ),
    option(
        Scope::Writing,
        "max-copy",
        "SIZE",
        "4G",
        "most bytes a save may copy to make room [no limit]",
    ),
    option(
        Scope::Writing,
        "pad",
        "nul|blank|none",
        "nul",
        "filler between tree and first block [unchanged]",
    ),
    option(
        Scope::Checking,
        "max-check",
        "SIZE",
        "10G",
        "with --check: largest block to decode [no limit]",
    ),
    option(
        Scope::Rules,
        "validate",
        "off|warn|strict",
        "strict",
        "how strictly to check saved trees [warn]",
    ),
    option(
        Scope::Reading,
        "allow_external",
        "DIR",
        "/data",
        "directory of external data files [FILE's directory]",
    ),
    option(
        Scope::Far,
        "timeout",
        "TIME|hard",
        "30s",
        "how long to wait for a server; hard: for ever [30s]",
    ),
    flag(
        Scope::Far,
        "no-sign-request",
        "read public buckets, without credentials",
    ),
    option(
        Scope::Far,
        "max-download",
        "SIZE",
        "1G",
        "largest remote FILE to download whole [1G]",
    ),
    option(
        Scope::Far,
        "remote-ttl",
        "TIME|never",
        "1h",
        "how long before a server is asked again [10s]",
    ),
    option(
        Scope::Far,
        "remote-cache",
        "DIR:SIZE",
        "/var/tmp/asdf:10G",
        "keep remote data in DIR, at most SIZE bytes",
    ),
    flag(
        Scope::Mounting,
        "fits",
        "also show arrays and tables as FITS files",
    ),
    option(
        Scope::Mounting,
        "show",
        "tree|arrays|blocks|info",
        "tree:info",
        "parts to show, joined by colons [all]",
    ),
    option(
        Scope::Directory,
        "match",
        "GLOB[:GLOB]...",
        "*.asdf",
        "which files of DIR to show [*.asdf]",
    ),
    option(
        Scope::Many,
        "open",
        "N",
        "64",
        "files to keep open in a mount of many files [64]",
    ),
    flag(
        Scope::Directory,
        "other-mounts",
        "also show other file systems inside DIR",
    ),
    option(
        Scope::Mounting,
        "previews",
        "[N]",
        "512",
        "also show pictures; longest side N pixels [1164]",
    ),
    option(
        Scope::Pictures,
        "stretch",
        "auto|zscale|minmax|percent:P",
        "percent:99",
        "which values are black and white [auto]",
    ),
    option(
        Scope::Pictures,
        "curve",
        "linear|asinh",
        "asinh",
        "brightness [asinh if stretch=auto, else linear]",
    ),
    option(
        Scope::Pictures,
        "colors",
        "grey|inferno|viridis|cubehelix",
        "inferno",
        "colours of pictures [grey]",
    ),
    flag(Scope::Mounting, "zarr", "also show arrays as a Zarr group"),
    flag(
        Scope::Reading,
        "force",
        "mount the readable parts of a damaged FILE",
    ),
    option(
        Scope::Mounting,
        "idle",
        "TIME",
        "10m",
        "unmount after this time without use [never]",
    ),
    flag(
        Scope::Mounting,
        "until-eof",
        "unmount when standard input ends",
    ),
    option(
        Scope::Writing,
        "on-refuse",
        "CMD",
        "wall",
        "shell command to run when a text is refused",
    ),
    flag(
        Scope::Mounting,
        "auto_unmount",
        "unmount when the daemon dies",
    ),
    option(
        Scope::Mounting,
        "fsname",
        "NAME",
        "x",
        "source in /proc/mounts [FILE]",
    ),
    option(
        Scope::Mounting,
        "subtype",
        "NAME",
        "x",
        "the type in /proc/mounts is fuse.NAME [asdf-mount]",
    ),
    flag(
        Scope::Mounting,
        "sync",
        "accepted without effect, as are async and dirsync",
    ),
];

/// An option without a value.
const fn flag(scope: Scope, name: &'static str, text: &'static str) -> MountOption {
    MountOption {
        name,
        value: None,
        example: "",
        scope,
        text,
    }
}

/// An option with a value; `value` and `example` are as in [`MountOption`].
const fn option(
    scope: Scope,
    name: &'static str,
    value: &'static str,
    example: &'static str,
    text: &'static str,
) -> MountOption {
    MountOption {
        name,
        value: Some(value),
        example,
        scope,
        text,
    }
}

impl MountOption {
    /// As the help has it: `cache=SIZE`.
    fn spelling(&self) -> String {
        match self.value {
            Some(value) => match value.strip_prefix('[') {
                Some(optional) => format!("{}[={optional}", self.name),
                None => format!("{}={value}", self.name),
            },
            None => self.name.to_owned(),
        }
    }

    /// The ways to write it down as far as they are fixed: `grow=auto`, `grow=never`, or `cache=`.
    pub(crate) fn beginnings(&self) -> Vec<String> {
        let fixed = |value: &&str| value.chars().all(|c| c.is_ascii_lowercase());
        match self.value {
            None => vec![self.name.to_owned()],
            Some(value) if value.split('|').any(|value| fixed(&value)) => value
                .split('|')
                .map(|value| format!("{}={}", self.name, if fixed(&value) { value } else { "" }))
                .collect(),
            Some(value) => {
                let alone = value.starts_with('[').then(|| self.name.to_owned());
                let with = format!("{}=", self.name);
                alone.into_iter().chain([with]).collect()
            }
        }
    }
}

/// The list for `--help` and `-o help`.
pub(crate) fn help() -> String {
    let mut out = "Mount options (-o):\n".to_owned();
    for known in OPTIONS {
        // writing to a string can't fail
        let _ = writeln!(out, "  {:<TEXT_COLUMN$} {}", known.spelling(), known.text);
    }
    out.push_str(
        "A default stands in brackets at the end of its line. SIZE is in bytes, or ends\n\
         in K, M, G or T. TIME is in seconds, or as in 30s, 10m or 2h.\n\
         mount(8) options are accepted, too.",
    );
    out
}

/// Why `name` with that value is no option, and what may have been meant.
pub(crate) fn unknown(name: &str, value: Option<&str>) -> String {
    if name == REMOUNT {
        return "a mount keeps its options; unmount it, and mount with others".to_owned();
    }
    if let Some(known) = OPTIONS.iter().find(|known| known.name == name) {
        return match (known.value, value) {
            (Some("SIZE"), None) => format!("needs a size, as in {name}={}", known.example),
            (Some(_), None | Some("")) => format!("needs a value, as in {name}={}", known.example),
            _ => "takes no value".to_owned(),
        };
    }
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == name);
    let alike = |known: &&MountOption| strsim::jaro_winkler(known.name, name);
    let nearest = OPTIONS.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let meant = match (elsewhere, nearest) {
        (Some((_, ours)), _) => Some(*ours),
        (None, Some(known)) if alike(&known) > ALIKE => Some(known.name),
        _ => None,
    };
    let hint = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
    format!("unknown option; {hint}-o help lists them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_guessed() {
        for (given, value, want) in [
            (
                "verfy",
                None,
                "unknown option; did you mean verify? -o help lists them",
            ),
            (
                "readonly",
                None,
                "unknown option; did you mean ro? -o help lists them",
            ),
            ("galaxy.asdf", None, "unknown option; -o help lists them"),
            ("cache", None, "needs a size, as in cache=256M"),
            ("umask", None, "needs a value, as in umask=027"),
            (
                "remount",
                None,
                "a mount keeps its options; unmount it, and mount with others",
            ),
            ("verify", Some("yes"), "takes no value"),
        ] {
            assert_eq!(unknown(given, value), want, "{given}");
        }
    }

    #[test]
    fn the_list_fits_a_terminal() {
        let long = help().lines().map(str::len).max();
        assert!(long.is_some_and(|columns| columns <= 80), "{}", help());
        assert!(help().contains("percent:P which"), "{}", help());
    }

    #[test]
    fn values_that_are_fixed_can_be_completed() {
        let of = |name| {
            let known = OPTIONS.iter().find(|known| known.name == name);
            known.map(MountOption::beginnings).unwrap_or_default()
        };
        assert_eq!(of("ro"), ["ro"]);
        assert_eq!(of("cache"), ["cache="]);
        assert_eq!(of("grow"), ["grow=auto", "grow=never"]);
        assert_eq!(of("previews"), ["previews", "previews="]);
        assert_eq!(of("show").first().map(String::as_str), Some("show=tree"));
    }
}
