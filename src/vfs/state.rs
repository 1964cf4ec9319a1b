//! What the mount shows at one moment: a snapshot, and the names it gives.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::catalogue::{Catalogue, Numbers};
use super::node::{Node, View};
use super::version::{BlockChange, Shows, Through, Versions, shown};
use super::views::{InViews, Views};
use super::{Error, MAX_PREPARED, Result, VERSIONS, index, locked};
use crate::asdf::{Array, ArrayData, Origin, Snapshot};
use crate::error::Error as Library;
use crate::save::limited_by_acl;
use crate::source::{Look, Stat};

/// A snapshot, the names it gives, and FILE's attributes from before it was taken.
pub(super) struct State {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) stat: Stat,
    /// The same, as the last write into a raw block has left them; `None` if they could not be had after a save of ours.
    left: Mutex<Option<Stat>>,
    /// When FILE has to be compared with it by content once more, as a change may have left it the same times until then.
    pub(super) settles: Option<Instant>,
    /// What has made other files of those that are shown.
    pub(super) versions: Versions,
    /// Set when bytes of FILE have moved or changed, so that they are no longer read by the places of this state.
    sealed: AtomicBool,
    /// The names under `arrays/`, which all states with the same arrays share, as they share the files of the views.
    catalogue: Arc<OnceLock<Arc<Catalogue>>>,
    pub(super) views: Arc<Views>,
    pub(super) numbers: Arc<Mutex<Numbers>>,
    /// How long the texts under `info/` were when they were made last, with a text that is kept from then to when it is opened.
    pub(super) infos: Mutex<HashMap<Node, (u64, Option<String>)>>,
}

impl State {
    /// What `snapshot` shows. `stat`: FILE's attributes from before it was read, so that a change by another program meanwhile is noticed.
    pub(super) fn new(snapshot: Arc<Snapshot>, stat: Stat) -> Self {
        // the mode that is shown must not promise what an access list takes away
        let stat = match snapshot.file() {
            Some(file) => limited_by_acl(stat, |name, list| {
                rustix::fs::fgetxattr(file.file(), name, list)
            }),
            None => stat,
        };
        let file = snapshot.file().map(|file| file.file());
        // a change within the same tick of the file system's clock would leave the same times
        let look = file.map(|file| Look::now(stat, Some(file)));
        let mut versions = Versions::default();
        versions.begin(stat.modified());
        Self {
            settles: look.and_then(|look| look.settles),
            snapshot,
            stat,
            left: Mutex::new(Some(stat)),
            versions,
            sealed: AtomicBool::new(false),
            catalogue: Arc::default(),
            views: Arc::default(),
            numbers: Arc::default(),
            infos: Mutex::default(),
        }
    }

    /// The state that follows this one with `snapshot`. Without `stat`, FILE's times are not known, but it is the file of `snapshot`.
    pub(super) fn next(&self, snapshot: Arc<Snapshot>, stat: Option<Stat>) -> Self {
        let untimed = || Stat {
            // FILE may have been replaced by the save: the number of its inode is the one thing that is known
            id: snapshot.stat().map_or(self.stat.id, |stat| stat.id),
            ..self.stat
        };
        let (catalogue, views) = if snapshot.has_arrays_of(&self.snapshot) {
            (Arc::clone(&self.catalogue), Arc::clone(&self.views))
        } else {
            (Arc::default(), self.views.next().into())
        };
        let shown = stat.unwrap_or_else(untimed);
        let new = Self::new(snapshot, shown);
        Self {
            left: Mutex::new(new.left().filter(|_| stat.is_some())),
            versions: self.versions.clone(),
            catalogue,
            numbers: Arc::clone(&self.numbers),
            views,
            ..new
        }
    }

    /// FILE's attributes as this mount has left them, if they are known.
    pub(super) fn left(&self) -> Option<Stat> {
        *locked(&self.left)
    }

    /// Takes in FILE's attributes after a write of ours into a raw block.
    pub(super) fn note_left(&self, stat: Stat) {
        let mut left = locked(&self.left);
        *left = left.map(|_| stat);
    }

    /// Whether FILE, which has these attributes, is the file of this state with the same bytes.
    pub(super) fn is_of(&self, stat: &Stat) -> bool {
        self.left().is_some_and(|left| stat.has_bytes_of(&left))
    }

    /// Whether FILE, which has these attributes, is as this mount has left it.
    pub(super) fn is_untouched(&self, stat: &Stat) -> bool {
        let left = self.left();
        left.is_some_and(|left| stat.is_untouched_since(&left))
    }

    /// Whether FILE is a FITS file that holds an ASDF file.
    pub(super) fn is_fits(&self) -> bool {
        self.snapshot.fits().is_some()
    }

    /// Has no thread read FILE by the places of this state any more. No thread does at this moment. Whether any could until now.
    pub(super) fn seal(&self) -> bool {
        !self.sealed.swap(true, Ordering::AcqRel)
    }

    /// Whether FILE's bytes may be elsewhere by now, or others.
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// The numbers of the arrays that a program may have found and that do not show the same in the state that follows; `None` if that may be
    /// all. As long as no state has made names, nobody has found any.
    pub(super) fn arrays_changed_in(&self, next: &Self) -> Option<Vec<u32>> {
        if next.snapshot.has_arrays_of(&self.snapshot) || locked(&self.numbers).is_empty() {
            return Some(Vec::new());
        }
        // names that nobody has asked for since the last change are made now, but of a long tree that takes too much memory
        if !self.is_named() && self.snapshot.text().len() > MAX_PREPARED {
            return None;
        }
        let shows_another = |(_, number, data): (usize, u32, &ArrayData)| {
            let then = next.array_data(number);
            let is_same = then.is_some_and(|then| data.shows_the_same(then));
            (!is_same).then_some(number)
        };
        let changed = self.catalogue().arrays().filter_map(shows_another);
        Some(changed.collect())
    }

    /// Takes over the names under `arrays/` of an earlier state of the same bytes.
    pub(super) fn take_names(&mut self, names: Arc<Catalogue>) {
        self.numbers = Arc::clone(names.numbers());
        self.catalogue = Arc::new(names.into());
    }

    /// The names under `arrays/`, if they have been made.
    pub(super) fn made_names(&self) -> Option<&Arc<Catalogue>> {
        self.catalogue.get()
    }

    /// The same state without the tree, which is read again when a request needs it.
    pub(super) fn unread(&self) -> Self {
        Self {
            settles: self.settles,
            ..self.next(Arc::new(self.snapshot.unread()), self.left())
        }
    }

    /// Whether names below `arrays/` have been made.
    pub(super) fn is_named(&self) -> bool {
        self.catalogue.get().is_some()
    }

    /// The names under `arrays/`, which are made from the tree when they are first needed.
    pub(super) fn catalogue(&self) -> &Catalogue {
        let made = || Catalogue::of(&self.snapshot, &self.numbers).into();
        self.catalogue.get_or_init(made)
    }

    /// The files and directories of the views.
    pub(super) fn in_views(&self) -> InViews<'_> {
        InViews {
            snapshot: &self.snapshot,
            catalogue: self.catalogue(),
            made: &self.views,
        }
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

    /// Whether bytes of an array may lie in another file, as those of a chunk may.
    pub(super) fn is_elsewhere(&self, node: Node) -> bool {
        self.shows(node, |origin| {
            matches!(origin, Origin::External(_) | Origin::Chunked)
        })
    }

    /// Whether a file shows an array whose origin `holds`.
    fn shows(&self, node: Node, holds: impl Fn(&Origin) -> bool) -> bool {
        match node {
            Node::Array(number, _) => {
                let data = self.array_data(number);
                data.is_some_and(|data| holds(data.origin()))
            }
            Node::View(view, number) => self.in_views().shows_any(view, number, holds),
            _ => false,
        }
    }

    /// Whether to read a file may take long: stored bytes are there at once, others have to be decoded, or are made of all of an array.
    pub(super) fn takes_long(&self, node: Node) -> bool {
        match node {
            Node::View(View::Fits | View::Previews, _) | Node::StatsTsv => true,
            Node::Block(n) => !self.is_raw(index(n)),
            node => self.shows(node, |origin| match origin {
                Origin::External(_) | Origin::Chunked => true,
                Origin::Block(n) => !self.is_raw(*n),
                _ => false,
            }),
        }
    }

    /// Whether a block is stored as it is, so that what is written into it goes where FILE has it.
    pub(super) fn is_raw(&self, block: usize) -> bool {
        let header = self.snapshot.layout().blocks.get(block);
        header.is_some_and(|header| header.compression == [0; 4])
    }

    /// The target of the link with that number.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such link, or if it leads nowhere at the moment.
    pub(super) fn link(&self, number: u32) -> Result<Vec<u8>> {
        let target = self.catalogue().target(number).ok_or(Error::NotFound)?;
        Ok(target.into_bytes())
    }

    /// Checks that a directory or a link has this version, by the remainder of it: in another version its number may mean another one.
    ///
    /// # Errors
    /// [`Library::Stale`]: the kernel looks the name up again.
    pub(super) fn check_version(&self, node: Node, version: u64) -> Result<()> {
        // an inode number holds the remainder of a version only
        if self.version(node) % VERSIONS == version % VERSIONS {
            return Ok(());
        }
        let why = "the tree has changed: look it up again".to_owned();
        Err(Library::Stale { why }.into())
    }

    /// The blocks that hold the bytes of a block or array.
    pub(super) fn shown_by(&self, file: Node) -> Shows {
        shown(file, |number| Some(self.array_data(number)?.origin()))
    }

    /// The block that holds the bytes of a block or array, if one does.
    pub(super) fn block_of(&self, file: Node) -> Option<usize> {
        match self.shown_by(file) {
            Shows::Block(n) => Some(n),
            Shows::Nothing | Shows::Several => None,
        }
    }

    /// The version of a file.
    pub(super) fn version(&self, file: Node) -> u64 {
        if self.is_growing(file) {
            return self.versions.of_growing(file);
        }
        self.versions.of(file, self.shown_by(file))
    }

    /// When the bytes of a block or array came to be; `None` of any other file, which has the time of FILE.
    pub(super) fn time(&self, file: Node) -> Option<SystemTime> {
        self.versions.time(file, self.shown_by(file))
    }

    /// The same for a handle, which goes on with a file that was only touched.
    pub(super) fn form(&self, file: Node) -> u64 {
        if self.is_growing(file) {
            return self.versions.of_growing(file);
        }
        self.versions.form(file, self.shown_by(file))
    }

    /// Whether there is another streamed block than in the state before, not only a longer one.
    pub(super) fn has_other_stream(&self, before: &Self) -> bool {
        let is_replaced = self.versions.elsewhere() != before.versions.elsewhere()
            && self.stat.id != before.stat.id;
        is_replaced || self.stream() != before.stream()
    }

    /// The number of blocks up to the streamed one, if there is one: it is the last.
    fn stream(&self) -> Option<usize> {
        let layout = self.snapshot.layout();
        layout.streamed().then_some(layout.blocks.len())
    }

    /// Whether a file may grow at any time: then it is one file at all lengths, and the kernel keeps no pages of it.
    pub(super) fn is_growing(&self, file: Node) -> bool {
        let after = |block: usize| block.checked_add(1);
        self.stream()
            .is_some_and(|count| self.block_of(file).and_then(after) == Some(count))
    }

    /// Notes that a block has other bytes than in the state before.
    pub(super) fn note_changed(&mut self, change: BlockChange) {
        let BlockChange { block, through, at } = change;
        let at = at.unwrap_or_else(|| self.stat.modified());
        // one that has got another form since has other bytes now than any that is shown
        let is_same = |it: &Through| it.is_saved && self.form(it.file) == it.form;
        let own = through.filter(is_same);
        // the file has had another number since: that one has other bytes now
        let is_shown = |through: Through| self.version(through.file) == through.version;
        if own.is_some_and(|through| !is_shown(through)) {
            self.versions.touch();
        }
        self.versions.changed_block(block, at);
        if own.is_none() && self.stream() == block.checked_add(1) {
            self.versions.changed_stream();
        }
        if let Some(Through { file, form, .. }) = through {
            self.versions
                .changed_through(file, form, block, own.is_some());
        }
    }

    /// The array with that number.
    pub(super) fn array(&self, number: u32) -> Result<&Array> {
        self.snapshot
            .arrays()
            .get(self.array_index(number)?)
            .ok_or(Error::NotFound)
    }
}

/// The state that is shown, and those that were: the kernel may still ask about their files, and handles read from them.
pub(super) struct Shown {
    now: RwLock<Arc<State>>,
    earlier: Mutex<Vec<EarlierState>>,
}

/// A state that was shown until `replaced`.
struct EarlierState {
    replaced: Instant,
    state: Weak<State>,
    /// Keeps it for a while, also if no handle does.
    kept: Option<Arc<State>>,
}

/// How long a state is kept after another one was shown, or a file after it has lost the name `tree.yaml`: a program looks a name up and
/// opens the file that it has found then.
pub(super) const KEPT: Duration = Duration::from_secs(1);

impl Shown {
    /// Shows the first state.
    pub(super) fn new(first: State) -> Self {
        Self {
            now: RwLock::new(Arc::new(first)),
            earlier: Mutex::default(),
        }
    }

    /// The state that is shown.
    pub(super) fn now(&self) -> Arc<State> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state in which a file has a version of which `version` is the remainder: the one that is shown, or one from before. `None` if
    /// there is none any more.
    pub(super) fn with(&self, file: Node, version: u64) -> Option<Arc<State>> {
        let has = |state: &State| state.version(file) % VERSIONS == version;
        let now = self.now();
        if has(&now) {
            return Some(now);
        }
        let mut earlier = locked(&self.earlier);
        earlier.retain_mut(EarlierState::is_kept);
        // the newest first: of two states with the same file the later one has its bytes
        let states = earlier.iter().rev().filter_map(|it| it.state.upgrade());
        let states: Vec<_> = states.collect();
        // to tell a version, a state may have to make its names, which takes other locks
        drop(earlier);
        states.into_iter().find(|state| has(state))
    }

    /// Changes the first state, while nobody has seen it.
    pub(super) fn begin(&self, change: impl FnOnce(&mut State)) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = Arc::get_mut(&mut now) {
            change(first);
        }
    }

    /// Puts a state in the place of the one that is shown. By itself only for a state that shows the same; any other is shown by
    /// [`Saves::show`](super::saves::Saves::show).
    pub(super) fn put(&self, new: State) {
        let before = self.now();
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        let mut states = locked(&self.earlier);
        states.retain_mut(EarlierState::is_kept);
        states.push(EarlierState {
            replaced: Instant::now(),
            state: Arc::downgrade(&before),
            kept: Some(before),
        });
    }

    /// Seals earlier states, by which bytes must not be read any more. Whether there was one to seal.
    pub(super) fn seal(&self, is_over: impl Fn(&State) -> bool) -> bool {
        let earlier = locked(&self.earlier);
        let states = earlier.iter().filter_map(|it| it.state.upgrade());
        let sealed = states.filter(|it| is_over(it) && it.seal());
        sealed.count() > 0
    }
}

impl EarlierState {
    /// Lets go of it when its time is over. Whether anything has it still.
    fn is_kept(&mut self) -> bool {
        if self.replaced.elapsed() > KEPT {
            self.kept = None;
        }
        self.state.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;

    /// It was the file that a save had replaced: under another name, the new one stayed locked for as long as the mount.
    #[test]
    fn a_state_whose_times_are_not_known_is_of_the_file_that_it_shows() {
        let (_dir, vfs) = writable(&Sample::new().text(b"#ASDF 1.0.0\n").block(b"abc"));
        let other = Stat {
            id: (0, 0),
            ..vfs.stat()
        };
        let snapshot = vfs.snapshot();
        let old = State::new(Arc::clone(&snapshot), other);
        let new = old.next(snapshot, None);
        assert_eq!((new.left(), new.stat.id), (None, vfs.stat().id));
    }
}
