//! The ways to call the program, and what is said of a call that makes no sense.

use rustix::termios::tcgetwinsize;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 100;
/// What clap puts in front of the first way.
const TITLE: &str = "Usage: ";
/// Columns in front of what a way goes on with on another line.
const INDENT: usize = 15;
/// The ways to call the program.
const WAYS: [&str; 17] = [
    "asdf-mount [OPTIONS] FILE|URL [MOUNTPOINT]",
    "asdf-mount [OPTIONS] DIR|FILE... MOUNTPOINT",
    "asdf-mount [OPTIONS] --files-from LIST [-0] [FILE...] MOUNTPOINT",
    "asdf-mount --edit [-o OPT,...] FILE",
    "asdf-mount -u [--discard] [--timeout SECONDS] MOUNTPOINT|FILE|URL...",
    "asdf-mount --revert [--discard] MOUNTPOINT|FILE",
    "asdf-mount --check [--repair] [-q] [--json] [-o OPT,...] FILE|DIR|URL...",
    "asdf-mount --list [--stats] [-q] [--json] [-o OPT,...] FILE|DIR|URL...",
    "asdf-mount --tree [--json] [-o OPT,...] FILE|URL",
    "asdf-mount --preview OUT.png [--size N] [-o OPT,...] FILE|DIR|URL [PATH]",
    "asdf-mount --page OUT.html [-o OPT,...] FILE|DIR|URL",
    "asdf-mount --references [-o OPT,...] FILE|DIR|URL",
    "asdf-mount --explode DIR [-o OPT,...] FILE",
    "asdf-mount --implode OUT [-o OPT,...] FILE",
    "asdf-mount --compact OUT [-o OPT,...] FILE",
    "asdf-mount --completions bash|zsh|fish",
    "asdf-mount --man | --semantics | --cookbook",
];

/// What `--help` says behind the options.
pub(super) const AFTER_HELP: &str = "\
Examples:
  asdf-mount --edit m51.asdf                      edit the tree in $EDITOR
  asdf-mount m51.asdf mnt                         mount; then edit mnt/tree.yaml
  cat mnt/info/status                             see why an edit was refused as invalid
  asdf-mount --revert mnt                         undo the refused edit
  asdf-mount -u mnt                               unmount, as `umount mnt` also does
  asdf-mount --check m51.asdf                     find corrupt data
  setfattr -n user.asdf.compression -v zlib mnt/blocks/0.bin     recompress a block
  asdf-mount -o no-sign-request s3://BUCKET/m51.asdf mnt         S3, a public bucket
  AWS_PROFILE=NAME asdf-mount s3://BUCKET/m51.asdf mnt           S3, with credentials

`asdf-mount -o help` lists the mount options, `asdf-mount --man` shows the manual,
`asdf-mount --cookbook` shows recipes.";

/// The ways to call the program, on lines as short as the terminal.
pub(super) fn usage() -> String {
    use std::io::{stderr, stdin, stdout};
    let sizes = [
        tcgetwinsize(stdout()),
        tcgetwinsize(stderr()),
        tcgetwinsize(stdin()),
    ];
    let columns = sizes.into_iter().flatten();
    let mut columns = columns.map(|size| usize::from(size.ws_col));
    let given = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = columns.find(|columns| *columns > 0).or_else(given);
    in_columns(columns.unwrap_or(COLUMNS))
}

/// The ways to call the program, with line breaks between words so that lines fit into so many columns.
fn in_columns(columns: usize) -> String {
    let ways = WAYS.map(|way| {
        let mut lines = String::new();
        let mut column = TITLE.len();
        for (n, word) in way.split(' ').enumerate() {
            let end = column.saturating_add(word.len());
            if n > 0 && end >= columns {
                lines.push('\n');
                lines.extend(std::iter::repeat_n(' ', INDENT));
                column = INDENT;
            } else if n > 0 {
                lines.push(' ');
                column = column.saturating_add(1);
            }
            lines.push_str(word);
            column = column.saturating_add(word.len());
        }
        lines
    });
    ways.join(&format!("\n{:1$}", "", TITLE.len()))
}

/// What is wrong with the arguments, in one line, of what clap says in several.
pub(super) fn complaint(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines.take_while(|line| !line.starts_with("For more information"));
    // a file whose name begins with a dash is advised on with its name
    let said = said.filter(|line| !line.starts_with("tip: to pass "));
    let said = said.map(|line| {
        let line = line.strip_prefix("error: ").unwrap_or(line);
        line.strip_prefix("tip: ").unwrap_or(line)
    });
    let said: Vec<&str> = said.collect();
    format!("{}; asdf-mount --help lists the options", said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        for columns in [40, 60, 80, 100] {
            let usage = in_columns(columns);
            let usage = format!("{TITLE}{usage}");
            assert!(usage.lines().all(|line| line.len() <= columns), "{usage}");
            let words: Vec<&str> = usage.split_whitespace().skip(1).collect();
            assert_eq!(words, WAYS.join(" ").split(' ').collect::<Vec<_>>());
        }
        assert_eq!(in_columns(100).lines().count(), WAYS.len());
    }
}
