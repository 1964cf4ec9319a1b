//! What to do about arguments that are something else than they were taken for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Words that are commands of other programs, and what does that here.
const COMMANDS: [(&str, &str); 10] = [
    ("check", "--check"),
    ("compact", "--compact"),
    ("explode", "--explode"),
    ("help", "--help"),
    ("implode", "--implode"),
    ("list", "--list"),
    ("mount", "asdf-mount FILE MOUNTPOINT"),
    ("umount", "-u"),
    ("unmount", "-u"),
    ("version", "--version"),
];

/// What is said of a FILE that is not there and may have been meant as something else. Of a URL, which may hold a password, only the
/// scheme is named.
pub(super) fn instead_of_missing(file: &Path) -> Option<String> {
    let text = file.to_string_lossy();
    if let Some((scheme, _)) = text.split_once("://") {
        let why = "a URL of a kind that is not read: download it first";
        return Some(format!("{scheme}://…: {why}"));
    }
    let (word, way) = COMMANDS.iter().find(|(word, _)| *word == text)?;
    Some(format!(
        "{word}: no such file, and no command `{word}`; {way} does that"
    ))
}

/// Names of files among arguments that were taken for flags because they begin with a dash.
pub(super) fn for_arguments(arguments: &[OsString]) -> impl Iterator<Item = String> {
    let names = arguments.iter().skip(1);
    let names = names.filter(|name| name.as_bytes().starts_with(b"-") && Path::new(name).is_file());
    names.map(|name| {
        let name = name.display();
        format!("{name}: a file of that name is here; ./{name} names it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_commands_are_known() {
        let advice = |file| instead_of_missing(Path::new(file));
        let of_url = advice("ftp://me:secret@x.org/a.asdf?secret").unwrap();
        assert!(of_url.contains("ftp://…") && of_url.contains("download"));
        assert!(!of_url.contains("secret"), "{of_url}");
        assert!(advice("list").is_some_and(|why| why.ends_with("--list does that")));
        assert_eq!(advice("nope.asdf"), None);
    }
}
