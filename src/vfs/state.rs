//! What the mount shows at one moment: a snapshot, and the names it gives.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use super::catalogue::{Catalogue, EntryKind, Numbers};
use super::elsewhere::OtherFiles;
use super::format::Format;
use super::node::Node;
use super::views::{View, Views};
use super::{Error, Invalidation, Result, VfsOptions, block_name, hdus, index, locked};
use crate::asdf::{Array, ArrayData, Origin, Snapshot};
use crate::source::Stat;

/// A snapshot, the names it gives, and FILE's attributes from before it was taken.
pub(super) struct State {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) stat: Stat,
    /// Whether `stat` has FILE's times: not if the system did not tell them after a save of ours.
    pub(super) timed: bool,
    /// When FILE had been read.
    pub(super) made: SystemTime,
    /// How often another program had changed FILE by then.
    pub(super) file_epoch: u64,
    catalogue: OnceLock<Arc<Catalogue>>,
    pub(super) views: Views,
    pub(super) numbers: Arc<Mutex<Numbers>>,
    pub(super) elsewhere: Mutex<OtherFiles>,
    /// How long the texts under `info/` were when they were made last.
    pub(super) info_lens: Mutex<HashMap<Node, u64>>,
}

/// The names of a directory when it was opened. Positions in it stay valid while names change.
pub(super) enum Names {
    Few(Vec<OsString>),
    /// Those of so many blocks.
    Blocks(u32),
    /// Those of these entries of the state's catalogue, or what a view has of them.
    Arrays(Arc<State>, Option<View>, Range<usize>),
}

impl State {
    /// What `snapshot` shows. `stat`: FILE's attributes from before it was read, so that whatever another program changes meanwhile is
    /// noticed.
    pub(super) fn new(snapshot: Arc<Snapshot>, stat: Stat) -> Self {
        Self {
            snapshot,
            stat,
            timed: true,
            made: SystemTime::now(),
            file_epoch: 0,
            catalogue: OnceLock::new(),
            views: Views::default(),
            numbers: Arc::default(),
            elsewhere: Mutex::default(),
            info_lens: Mutex::default(),
        }
    }

    /// What `snapshot` shows after this state; without attributes of FILE, its times are not known.
    pub(super) fn next(&self, snapshot: Arc<Snapshot>, stat: Option<Stat>) -> Self {
        let timed = stat.is_some();
        Self {
            timed,
            file_epoch: self.file_epoch,
            numbers: Arc::clone(&self.numbers),
            views: self.views.next(),
            ..Self::new(snapshot, stat.unwrap_or(self.stat))
        }
    }

    /// Whether FILE is a FITS file that holds an ASDF file.
    pub(super) fn is_fits(&self) -> bool {
        self.snapshot.fits().is_some()
    }

    /// Whether a file shows the same as in a state before, as long as its block does.
    pub(super) fn has_file_of(&self, before: &Self, file: Node) -> bool {
        let Node::Array(number, _) = file else {
            return before.file_epoch == self.file_epoch;
        };
        let arrays = before.array_data(number).zip(self.array_data(number));
        before.file_epoch == self.file_epoch
            && arrays.is_some_and(|(before, now)| before.shows_the_same(now))
    }

    /// Takes over the names under `arrays/` of an earlier state of the same bytes.
    pub(super) fn take_names(&mut self, names: Arc<Catalogue>) {
        self.numbers = Arc::clone(names.numbers());
        self.catalogue = names.into();
    }

    /// The names under `arrays/`, if they have been made.
    pub(super) fn made_names(&self) -> Option<&Arc<Catalogue>> {
        self.catalogue.get()
    }

    /// Makes the names that the kernel may know from before numbers began here: if they changed unmade, it would not be told.
    pub(super) fn recall_names(&self, options: &VfsOptions) {
        if !locked(&self.numbers).are_recalled() {
            return;
        }
        self.catalogue();
        let views = View::ALL.into_iter();
        for view in views.filter(|view| view.is_shown(options)) {
            self.view(view);
        }
    }

    /// Whether the names would get the numbers that they have if FILE were opened again and numbers began behind the same one.
    pub(super) fn is_numbered_as_anew(&self) -> bool {
        let names = self.catalogue.get();
        names.is_none_or(|names| names.is_numbered_as_anew())
    }

    /// The same, but the tree is read again when something asks for it.
    pub(super) fn unread(&self) -> Self {
        let stat = self.timed.then_some(self.stat);
        self.next(Arc::new(self.snapshot.unread()), stat)
    }

    /// Whether names below `arrays/` have been made. If not, the kernel knows none of them: not of this state, nor of those before,
    /// from each of which the next has taken them over or made its own.
    pub(super) fn is_named(&self) -> bool {
        self.catalogue.get().is_some()
    }

    /// How many kinds of names have been made; more may be at any time.
    pub(super) fn count_made(&self) -> usize {
        self.views.count().saturating_add(self.is_named().into())
    }

    /// Takes over the names of the state before, if it has the same.
    pub(super) fn keep_names(&self, before: &Self) {
        if let Some(names) = before.catalogue.get()
            && self.snapshot.has_arrays_of(&before.snapshot)
        {
            let _ = self.catalogue.set(Arc::clone(names));
            self.views.keep(&before.views);
        }
    }

    /// The names under `arrays/`. Made when they are first asked for, from the tree.
    pub(super) fn catalogue(&self) -> &Catalogue {
        let made = || Catalogue::of(&self.snapshot, &self.numbers).into();
        self.catalogue.get_or_init(made)
    }

    /// Index of the array with that number.
    pub(super) fn array_index(&self, number: u32) -> Result<usize> {
        let array = self.catalogue().array(number);
        array.map(|(i, _)| i).ok_or(Error::NotFound)
    }

    /// What the files of the array with that number show.
    pub(super) fn array_data(&self, number: u32) -> Option<&ArrayData> {
        Some(self.catalogue().array(number)?.1)
    }

    /// Whether the bytes of an array lie in another file.
    pub(super) fn is_elsewhere(&self, node: Node) -> bool {
        let is_external = |origin: &Origin| matches!(origin, Origin::External(_));
        match node {
            Node::Array(number, _) => {
                let data = self.array_data(number);
                data.is_some_and(|data| is_external(data.origin()))
            }
            Node::View(view, number) => self.shows_any(view, number, is_external),
            _ => false,
        }
    }

    /// Whether the tree has to be read to tell the target of the link with that number. What it leads to is there.
    pub(super) fn needs_tree_for(&self, link: u32) -> bool {
        let is_here = |link: &EntryKind| matches!(link, EntryKind::Link { .. });
        self.snapshot.is_unread() && self.catalogue().link(link).is_some_and(is_here)
    }

    /// The target of the link with that number.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, or none at the moment.
    pub(super) fn link(&self, number: u32) -> Result<Vec<u8>> {
        match self.catalogue().link(number).ok_or(Error::NotFound)? {
            EntryKind::Link { from, to, format } => {
                let paths = self.snapshot.paths().ok_or(Error::NotFound)?;
                let way = paths.relative(*from, *to, format.is_none());
                Ok((way + format.map_or("", Format::suffix)).into_bytes())
            }
            EntryKind::LinkElsewhere(reference, format) => self
                .target_elsewhere(index(*reference), *format)
                .ok_or(Error::NotFound),
            EntryKind::Directory | EntryKind::Array(..) => Err(Error::NotFound),
        }
    }

    /// The names that lead to something here, and to nothing or to something else in the state that follows: the kernel must forget
    /// them. With those of blocks, that of a new one that was begun here but never written.
    pub(super) fn names_gone_in(&self, next: &Self) -> Vec<Invalidation> {
        let known = self.catalogue.get();
        let arrays = known.map(|names| names.missing_in(next.catalogue()));
        let arrays = arrays.into_iter().flatten();
        let arrays = arrays.map(|(directory, name)| (Node::ArrayDir(directory), name));
        let blocks = |state: &Self| state.snapshot.layout().blocks.len();
        let blocks = blocks(next)..blocks(self).saturating_add(1);
        let blocks = blocks.filter_map(|n| u32::try_from(n).ok());
        let blocks = blocks.map(|n| (Node::Blocks, block_name(n)));
        let now = hdus::entries(&next.snapshot);
        let units = hdus::entries(&self.snapshot).into_iter();
        let units = units.filter(|entry| !now.contains(entry));
        let units = units.map(|entry| (Node::Hdus, entry.0));
        let gone = arrays.chain(blocks).chain(units);
        let gone = gone.map(|(directory, name)| Invalidation::Entry(directory, name));
        gone.chain(self.views_changed_in(next)).collect()
    }

    /// The array with that number.
    pub(super) fn array(&self, number: u32) -> Result<&Array> {
        self.snapshot
            .arrays()
            .get(self.array_index(number)?)
            .ok_or(Error::NotFound)
    }
}

impl Names {
    /// The first name from a position on, which is behind it then; with what it leads to in the state `now` if that is known.
    pub(super) fn next(
        &self,
        position: &mut usize,
        now: &Arc<State>,
    ) -> Option<(Cow<'_, OsStr>, Option<Node>)> {
        if let Self::Arrays(state, view, entries) = self {
            let (name, node) = match view {
                None => state.catalogue().next(entries, position)?,
                Some(view) => state.next_in_view(*view, entries, position)?,
            };
            let node = Arc::ptr_eq(state, now).then_some(node);
            return Some((name.into(), node));
        }
        let at = *position;
        *position = at.saturating_add(1);
        let name = match self {
            Self::Few(names) => names.get(at)?.into(),
            Self::Blocks(count) => {
                let n = u32::try_from(at).ok().filter(|n| n < count)?;
                block_name(n).into()
            }
            Self::Arrays(..) => return None,
        };
        Some((name, None))
    }
}
