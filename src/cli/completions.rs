//! Completion scripts: flags and mount options, files named `*.asdf`, and what is mounted.

use clap::{Arg, Command, ValueHint};

use super::options::table::{MountOption, OPTIONS};

/// Prints where ASDF files are mounted, without the escapes that the table has for blanks and backslashes: for awk(1), in single quotes.
const MOUNT_POINTS: &str = r#"$3 == "fuse.asdf-mount" { gsub(/\\040/, " ", $2); gsub(/\\011/, "\t", $2); gsub(/\\134/, "\\", $2); print $2 }"#;

/// A shell that there is a script for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The script for a shell, of a command whose flags are `command`'s.
pub(super) fn script(shell: Shell, command: &Command) -> String {
    let (script, mount_options, flags): (_, Vec<String>, _) = match shell {
        Shell::Bash => (include_str!("completions/bash.sh"), beginnings(), " "),
        Shell::Zsh => (include_str!("completions/zsh.sh"), zsh_options(), "\n"),
        Shell::Fish => (include_str!("completions/fish.sh"), beginnings(), "\n"),
    };
    let named = command.get_arguments().filter(|arg| {
        let mount_options = arg.get_short() == Some('o');
        !arg.is_positional() && !mount_options
    });
    let words: Vec<String> = match shell {
        Shell::Bash => named.flat_map(spellings).collect(),
        Shell::Zsh => named.map(zsh_flag).collect(),
        Shell::Fish => named.map(fish_flag).collect(),
    };
    let mount_points = match shell {
        Shell::Bash | Shell::Zsh => MOUNT_POINTS.to_owned(),
        // which has escapes in single quotes too
        Shell::Fish => MOUNT_POINTS.replace('\\', r"\\"),
    };
    script
        .replace("@MOUNT_OPTIONS@", &mount_options.join(" "))
        .replace("@FLAGS@", &words.join(flags))
        .replace("@MOUNT_POINTS@", &mount_points)
}

fn beginnings() -> Vec<String> {
    OPTIONS.iter().flat_map(MountOption::beginnings).collect()
}

/// `-u` and `--unmount`.
fn spellings(arg: &Arg) -> Vec<String> {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    short.into_iter().chain(long).collect()
}

fn text(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

/// Whether a value follows the flag.
fn has_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// The mount options as `_values` of zsh takes them.
fn zsh_options() -> Vec<String> {
    let option = |known: &MountOption| match known.value {
        None => known.name.to_owned(),
        // the value may be left out
        Some(value) if value.starts_with('[') => {
            format!("{}::{}: ", known.name, value.trim_matches(['[', ']']))
        }
        Some(value) if value.contains('|') => {
            format!("{}:value:({})", known.name, value.replace('|', " "))
        }
        Some(value) => format!("{}:{value}: ", known.name),
    };
    OPTIONS
        .iter()
        .map(|known| format!("\"{}\"", option(known)))
        .collect()
}

/// A flag as `_arguments` of zsh takes it: with a short and a long form, each excludes the other.
fn zsh_flag(arg: &Arg) -> String {
    let names = spellings(arg);
    let names = match names.as_slice() {
        [short, long] => format!("'({short} {long})'{{{short},{long}}}"),
        [one] => one.clone(),
        _ => String::new(),
    };
    let files = match arg.get_value_hint() {
        ValueHint::DirPath => "_files -/",
        ValueHint::AnyPath | ValueHint::FilePath => "_files",
        _ => "",
    };
    let value = if has_value(arg) {
        format!(":value:{files}")
    } else {
        String::new()
    };
    format!(
        "        {names}'[{}]{value}' \\",
        text(arg)
            .replace('\'', "'\\''")
            .replace([':', '[', ']'], " ")
    )
}

/// A flag as a call of fish's `complete`.
fn fish_flag(arg: &Arg) -> String {
    let short = arg
        .get_short()
        .map_or_else(String::new, |short| format!(" -s {short}"));
    let long = arg
        .get_long()
        .map_or_else(String::new, |long| format!(" -l {long}"));
    let value = if has_value(arg) { " -r -F" } else { "" };
    format!(
        "complete -c asdf-mount{short}{long}{value} -d '{}'",
        text(arg).replace('\'', "\\'")
    )
}
