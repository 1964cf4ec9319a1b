//! Which options make a difference to what is done: one that makes none is refused, because its user expects one.

use super::table::{MountOption, Scope};
use super::{Action, Options};
use crate::cli::exit::{Exit, Failure};

/// The options that only the program heeds which makes a mount.
#[cfg(feature = "fuse")]
const OF_WHO_MOUNTS: [&str; 6] = [
    "allow_other",
    "allow_root",
    "auto_unmount",
    "fsname",
    "subtype",
    "idle",
];

/// What an action reads, as far as it decides which options make a difference.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own"
)]
pub(crate) struct Reads {
    /// Whether any of it is named by a URL.
    pub(crate) far: bool,
    /// Whether it is the files of a directory.
    pub(crate) directory: bool,
    /// Whether it may be several files.
    pub(crate) many: bool,
    /// Whether none of it can be written.
    pub(crate) only_read: bool,
}

/// The refusal of an option that makes no difference there.
pub(crate) fn idle(option: &str, there: &str) -> Failure {
    let why = format!("{option}: has no effect with {there}; leave it out");
    Failure::new(Exit::Usage, why)
}

impl Options {
    /// Refuses the first option that was given and makes no difference to an action on what it reads.
    pub(crate) fn check_effect(&self, action: Action<'_>, reads: Reads) -> Result<(), Failure> {
        let idle_one = |option: &&MountOption| {
            let there = self.hindrance(option.scope, action, reads)?;
            Some(idle(&format!("-o {}", option.name), there))
        };
        self.named.iter().find_map(idle_one).map_or(Ok(()), Err)
    }

    /// Refuses what is said of a mount that another program has made, as that is the one to say it.
    ///
    /// # Errors
    /// [`Exit::Usage`].
    #[cfg(feature = "fuse")]
    pub(crate) fn check_for_mounted(&self) -> Result<(), Failure> {
        let mut named = self.named.iter().map(|option| option.name);
        let theirs = named.find(|name| OF_WHO_MOUNTS.contains(name));
        let there = "a mount that another program has made";
        theirs.map_or(Ok(()), |name| Err(idle(&format!("-o {name}"), there)))
    }

    /// What keeps options of that scope from making a difference.
    fn hindrance(&self, scope: Scope, action: Action<'_>, reads: Reads) -> Option<&'static str> {
        use Action as A;
        let heeded = match action {
            A::Mount => scope != Scope::Checking,
            A::Edit => matches!(scope, Scope::Reading | Scope::Rules | Scope::Writing),
            A::Check => matches!(
                scope,
                Scope::Reading | Scope::Far | Scope::Rules | Scope::Checking | Scope::Directory
            ),
            A::List | A::References => {
                matches!(scope, Scope::Reading | Scope::Far | Scope::Directory)
            }
            A::Preview(_) | A::Page(_) => matches!(
                scope,
                Scope::Reading | Scope::Far | Scope::Directory | Scope::Pictures
            ),
            A::Tree | A::Explode(_) | A::Implode(_) | A::Compact(_) => {
                matches!(scope, Scope::Reading | Scope::Far)
            }
            A::Unmount | A::Revert | A::Man | A::Semantics | A::Cookbook | A::Completions(_) => {
                false
            }
        };
        let mounts = matches!(action, A::Mount);
        match scope {
            _ if !heeded => Some(action.name()),
            Scope::Far if !reads.far => Some("files of this machine"),
            Scope::Directory if !reads.directory => Some("files that are named"),
            Scope::Many if !reads.many => Some("a mount of one file"),
            Scope::Pictures if mounts && !self.shown.previews => {
                Some("a mount without -o previews")
            }
            Scope::Writing if self.read_only || reads.only_read => Some("a read-only mount"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const ONE: Reads = Reads {
        far: false,
        directory: false,
        many: false,
        only_read: false,
    };
    const FAR: Reads = Reads {
        far: true,
        only_read: true,
        ..ONE
    };
    const LIST: Reads = Reads { many: true, ..ONE };
    const DIRECTORY: Reads = Reads {
        directory: true,
        ..LIST
    };

    /// Options, what they are given for, and with what they have no effect then: of several, the one in front.
    #[track_caller]
    fn assert_effects(action: Action<'_>, rows: &[(&str, Reads, Option<&str>)]) {
        for (list, reads, there) in rows {
            let options = Options::parse(&[(*list).to_owned()]).unwrap();
            let refused = options.check_effect(action, *reads).err();
            let (name, _) = list.split_once(['=', ',']).unwrap_or((list, ""));
            let want =
                there.map(|there| format!("-o {name}: has no effect with {there}; leave it out"));
            assert_eq!(refused.map(|failure| failure.message), want, "{list}");
        }
    }

    #[test]
    fn what_looks_at_files_heeds_what_says_which_and_how() {
        let named = Some("files that are named");
        let near = Some("files of this machine");
        assert_effects(Action::Tree, &[("cache=32M", ONE, None)]);
        let rows = [
            ("timeout=4s", FAR, None),
            ("timeout=4s", ONE, near),
            ("match=*.x", DIRECTORY, None),
            ("match=*.x", ONE, named),
            ("validate=off", ONE, Some("--list")),
        ];
        assert_effects(Action::List, &rows);
        let rows = [
            ("max-check=1G", ONE, None),
            ("validate=off", ONE, None),
            ("match=*.x", DIRECTORY, None),
        ];
        assert_effects(Action::Check, &rows);
        let rows = [
            ("stretch=minmax", ONE, None),
            ("previews", ONE, Some("--preview")),
            ("colors=inferno,match=*.x", DIRECTORY, None),
            ("match=*.x", ONE, named),
        ];
        assert_effects(Action::Preview(Path::new("x.png")), &rows);
        let rows = [
            ("force", ONE, Some("--unmount")),
            ("noatime,sync,x-y", ONE, None),
        ];
        assert_effects(Action::Unmount, &rows);
    }

    #[test]
    fn an_edit_heeds_how_a_tree_is_read_checked_and_saved() {
        let edit = Some("--edit");
        let rows = [
            ("save=replace,validate=strict,cache=32M", ONE, None),
            ("ro", ONE, edit),
            ("allow_other", ONE, edit),
            ("show=tree", ONE, edit),
            ("timeout=4s", FAR, edit),
        ];
        assert_effects(Action::Edit, &rows);
    }

    #[test]
    fn a_mount_heeds_what_it_shows_and_saves() {
        let read_only = Some("a read-only mount");
        let rows = [
            ("max-check=1G", ONE, Some("a mount")),
            ("remote-cache=/x:1G", ONE, Some("files of this machine")),
            ("no-sign-request", FAR, None),
            ("match=*.x", DIRECTORY, None),
            ("match=*.x", LIST, Some("files that are named")),
            ("open=5", LIST, None),
            ("open=5", ONE, Some("a mount of one file")),
            ("other-mounts", DIRECTORY, None),
            ("stretch=minmax,previews", ONE, None),
            ("curve=asinh", ONE, Some("a mount without -o previews")),
            ("on-refuse=x", ONE, None),
            ("on-refuse=x,ro", ONE, read_only),
            ("save=replace,ro,rw", ONE, None),
            ("save=replace", FAR, read_only),
        ];
        assert_effects(Action::Mount, &rows);
    }
}
