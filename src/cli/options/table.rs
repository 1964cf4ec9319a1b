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

/// An option of `-o`.
pub(crate) struct MountOption {
    pub(crate) name: &'static str,
    /// Its value as the help has it: a word in capitals, or the values that there are; without it the option takes none.
    pub(crate) value: Option<&'static str>,
    /// A value that makes sense, for those who forget it.
    pub(crate) example: &'static str,
    text: &'static str,
}

/// All that a mount or another action takes heed of, in the order of the manual.
pub(crate) const OPTIONS: &[MountOption] = &[
    flag("ro", "read-only"),
    flag("rw", "read and write [default]"),
    flag(
        "allow_other",
        "let other users in, as FILE's permissions allow",
    ),
    flag("allow_root", "let root in"),
    option("uid", "N|NAME", "1000", "owner of everything in the mount"),
    option("gid", "N|NAME", "1000", "group of everything in the mount"),
    option("umask", "OCTAL", "027", "permission bits to take away"),
    option("cache", "SIZE", "256M", "memory for decoded data [256M]"),
    option(
        "index-cache",
        "DIR|off",
        "off",
        "where seek indexes are kept",
    ),
    option("scratch", "SIZE", "64M", "memory for editors' files [64M]"),
    option(
        "threads",
        "N",
        "4",
        "threads that serve requests [4, far 32]",
    ),
    flag("verify", "compare checksums before data are shown"),
    option(
        "save",
        "inplace|replace",
        "replace",
        "how a tree that fits is saved",
    ),
    option("grow", "auto|never", "never", "whether FILE may grow"),
    option(
        "max-copy",
        "SIZE",
        "4G",
        "largest FILE that is copied to grow [4G]",
    ),
    option(
        "pad",
        "nul|blank|none",
        "nul",
        "what follows the tree [as it was]",
    ),
    option(
        "max-check",
        "SIZE",
        "10G",
        "with --check: decode no larger block",
    ),
    option(
        "validate",
        "off|warn|strict",
        "strict",
        "rules for saved trees [warn]",
    ),
    option(
        "allow_external",
        "DIR",
        "/data",
        "also open external blocks in DIR",
    ),
    option(
        "timeout",
        "TIME",
        "30s",
        "how long a server is waited for [30s]",
    ),
    flag("no-sign-request", "ask for buckets without credentials"),
    option(
        "max-download",
        "SIZE",
        "1G",
        "largest far FILE that is copied whole [1G]",
    ),
    option(
        "remote-cache",
        "DIR:SIZE",
        "/var/tmp/far:10G",
        "where read parts of far FILEs are kept",
    ),
    flag("fits", "also show arrays and tables as FITS files"),
    option(
        "show",
        "WHAT[:WHAT...]",
        "tree:info",
        "tree, arrays, blocks, info [all]",
    ),
    option(
        "match",
        "GLOB[:GLOB...]",
        "*.asdf",
        "which files of DIR are shown [*.asdf]",
    ),
    option(
        "open",
        "N",
        "64",
        "files of many that are open at once [64]",
    ),
    flag("other-mounts", "show also what is mounted in DIR"),
    option(
        "previews",
        "N",
        "512",
        "also show pictures, N points wide [1024]",
    ),
    option(
        "stretch",
        "zscale|minmax|percent:P",
        "percent:99",
        "black and white in pictures [zscale]",
    ),
    option(
        "curve",
        "linear|asinh",
        "asinh",
        "greys of pictures [linear]",
    ),
    flag("force", "mount what can be had of a damaged FILE"),
    option(
        "idle",
        "TIME",
        "10m",
        "unmount when unused for so long, as in 10m",
    ),
    option(
        "on-refuse",
        "CMD",
        "wall",
        "run by the shell when a text is refused",
    ),
    flag("auto_unmount", "unmount when the daemon dies"),
    option("fsname", "NAME", "x", "source in /proc/mounts [FILE]"),
    option("subtype", "NAME", "x", "type in /proc/mounts [asdf-mount]"),
    flag("sync", "changes nothing, as async and dirsync"),
];

const fn flag(name: &'static str, text: &'static str) -> MountOption {
    MountOption {
        name,
        value: None,
        example: "",
        text,
    }
}

const fn option(
    name: &'static str,
    value: &'static str,
    example: &'static str,
    text: &'static str,
) -> MountOption {
    MountOption {
        name,
        value: Some(value),
        example,
        text,
    }
}

impl MountOption {
    /// As the help has it: `cache=SIZE`.
    fn spelling(&self) -> String {
        match self.value {
            Some(value) => format!("{}={value}", self.name),
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
            Some(_) => vec![format!("{}=", self.name)],
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
    out.push_str("SIZE is in bytes, or ends in K, M, G or T. Options of mount(8) are accepted.");
    out
}

/// Why `name` with that value is no option, and what may have been meant.
pub(crate) fn unknown(name: &str, value: Option<&str>) -> String {
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
            ("verify", Some("yes"), "takes no value"),
        ] {
            assert_eq!(unknown(given, value), want, "{given}");
        }
    }

    #[test]
    fn the_list_fits_a_terminal() {
        let long = help().lines().map(str::len).max();
        assert!(long.is_some_and(|columns| columns <= 80), "{}", help());
        assert!(help().contains("percent:P black"), "{}", help());
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
        assert_eq!(of("index-cache"), ["index-cache=", "index-cache=off"]);
    }
}
