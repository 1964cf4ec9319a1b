//! `tree.yaml`: which scratch file has the name, what of it is FILE's text, and what was refused.
//!
//! All descriptors of a file share its bytes, so `tree.yaml` shows what was written last, saved or not. FILE's text, the *committed* one,
//! does not depend on the name: a program may rename `tree.yaml` away, remove it, make it again or rename another file over it. A removed
//! `tree.yaml` is gone for two seconds, for everyone; then it shows FILE's tree again.
//!
//! A text that another program or this mount itself puts there gets a file of its own, with the next number: the bytes of a number change only
//! through that number. A text that was refused stays where it is, so `tree.yaml` goes on showing it until it is mended.

mod refused;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

pub(super) use self::refused::Refused;
use super::attr::{FileFacts, FileKind};
use super::error::Error;
use super::node::{NUMBERS, Node};
use super::scratch::{Absence, Named, Role, ScratchFile, Unsaved};
use super::state::Shown;
use super::{Result, VfsOptions, locked};
use crate::source::{ScratchRoom, Source};

/// How long a file stays known that has lost the name: a program may have looked the name up before, and open it only now.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// How many such files stay known, and how long they are at most.
const KNOWN: usize = 3;
const KNOWN_LEN: u64 = 1 << 20;

/// What a member's next `Vfs` needs to know of `tree.yaml`, so that no number gets other bytes.
#[derive(Debug, Clone, Copy)]
pub struct TreeMark {
    /// What the kernel knows `tree.yaml` by.
    pub node: Node,
    /// The number of the next file that gets one of this.
    next: u32,
    epoch: u64,
}

impl Default for TreeMark {
    fn default() -> Self {
        Self {
            node: Node::TREE,
            next: 1,
            epoch: 0,
        }
    }
}

impl TreeMark {
    /// The same, if FILE has got another text since.
    #[must_use]
    pub fn changed(self) -> Self {
        Self {
            node: Node::Tree(self.next),
            next: after(self.next),
            epoch: self.epoch.saturating_add(1),
        }
    }
}

/// `tree.yaml` of a member.
pub(super) struct TreeFile {
    inner: Mutex<Inner>,
    /// Signalled when a descriptor of a text has been closed.
    pub(super) closed: Condvar,
    /// See [`Vfs::on_refusal`](super::Vfs::on_refusal).
    pub(super) on_refusal: OnceLock<Box<dyn Fn(Error) + Send + Sync>>,
}

struct Inner {
    shown: Arc<Shown>,
    options: Arc<VfsOptions>,
    /// The room for the bytes of its files.
    room: Arc<ScratchRoom>,
    /// FILE's text.
    committed: Arc<Vec<u8>>,
    /// When it came to be.
    since: SystemTime,
    /// How often FILE has got another text that was not saved through `tree.yaml`.
    epoch: u64,
    name: Name,
    /// The file that had the name until something was put back in its text: programs that have it open write on in it.
    former: Weak<ScratchFile>,
    /// The number of the next file that this makes.
    next: u32,
    /// Those that this made.
    files: HashMap<Node, Weak<ScratchFile>>,
    /// Files that have just lost the name, with the time.
    recent: VecDeque<(Instant, Arc<ScratchFile>)>,
    /// The text that was refused last, if none has been saved since.
    refused: Option<Refused>,
}

/// What the name leads to.
#[derive(Debug)]
enum Name {
    File(Named),
    Gone(Absence),
}

impl TreeFile {
    /// The one that has FILE's text of now.
    pub(super) fn new(
        shown: &Arc<Shown>,
        options: &Arc<VfsOptions>,
        room: &Arc<ScratchRoom>,
    ) -> Self {
        Self {
            inner: Mutex::new(Inner::new(shown, options, room, TreeMark::default())),
            closed: Condvar::new(),
            on_refusal: OnceLock::new(),
        }
    }

    /// Begins where an earlier one of FILE has ended. Call it before anything else.
    pub(super) fn begin(&self, mark: TreeMark) {
        let mut inner = locked(&self.inner);
        *inner = Inner::new(&inner.shown, &inner.options, &inner.room, mark);
    }

    /// Where the next one of FILE begins, if FILE has the same text then.
    pub(super) fn mark(&self) -> TreeMark {
        let mut inner = locked(&self.inner);
        let node = inner.current().map(|file| file.node);
        inner.mark(node.unwrap_or(Node::Tree(inner.next)))
    }

    /// The file that has the name; none while the name is gone.
    pub(super) fn current(&self) -> Option<Arc<ScratchFile>> {
        locked(&self.inner).current()
    }

    /// The file of a node, if this made it.
    pub(super) fn file(&self, node: Node) -> Option<Arc<ScratchFile>> {
        let inner = locked(&self.inner);
        inner.files.get(&node).and_then(Weak::upgrade)
    }

    /// Which of FILE's texts is shown, of those that were not saved through `tree.yaml`.
    pub(super) fn epoch(&self) -> u64 {
        locked(&self.inner).epoch
    }

    /// Makes the name again while it is gone. It leads to a file that shows FILE's tree until it is emptied.
    ///
    /// # Errors
    /// [`Error::Exists`].
    pub(super) fn create(&self) -> Result<Arc<ScratchFile>> {
        let mut inner = locked(&self.inner);
        if inner.current().is_some() {
            return Err(Error::Exists);
        }
        Ok(inner.show_current(Role::Plain))
    }

    /// Takes the name away. The file is a scratch file then.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(super) fn remove(&self) -> Result<()> {
        let mut inner = locked(&self.inner);
        inner.current().ok_or(Error::NotFound)?;
        inner.put(Name::Gone(Absence::begin()), Role::Plain);
        Ok(())
    }

    /// Gives the name to a file whose text is FILE's, or waits to be saved.
    pub(super) fn give(&self, file: &Arc<ScratchFile>) {
        let mut inner = locked(&self.inner);
        inner.put(Name::File(Named::free(Arc::clone(file))), Role::Plain);
        let committed = Arc::clone(&inner.committed);
        // a backup that is renamed back over tree.yaml has FILE's text: there is nothing to save
        if let Ok(unsaved) = file.becoming()
            && *unsaved.text == *committed
        {
            file.note_saved(unsaved.version, Some(&committed));
        }
        inner.settle();
    }

    /// Whether FILE has that text.
    pub(super) fn is_committed(&self, text: &[u8]) -> bool {
        **locked(&self.inner).committed == *text
    }

    /// FILE's text, which `unsaved` is to replace, and whether FILE has got another one from another program since that was begun. `None` if
    /// it is not to be saved any more: its file has lost the name, or what was written to it since has been saved.
    pub(super) fn to_replace(&self, unsaved: &Unsaved) -> Option<(Arc<Vec<u8>>, bool)> {
        let inner = locked(&self.inner);
        let role = unsaved.file.role();
        let is_text = matches!(role, Role::Tree | Role::Stale);
        // another close may have saved the same version while this one waited for the writer
        let wanted = unsaved.becoming || (is_text && !unsaved.file.is_saved(unsaved.version));
        let is_outdated = role == Role::Stale || unsaved.made_of != inner.epoch;
        wanted.then(|| (Arc::clone(&inner.committed), is_outdated))
    }

    /// Notes that `text` is FILE's text now: what was written, perhaps with something put back. `gets_name`: whether the file is going to
    /// get the name next.
    pub(super) fn saved(&self, unsaved: &Unsaved, text: &Arc<Vec<u8>>, gets_name: bool) {
        let mut inner = locked(&self.inner);
        if *inner.committed != **text {
            inner.committed = Arc::clone(text);
            inner.since = unsaved.file.attr().mtime;
        }
        inner.refused = None;
        let is_whole = *unsaved.text == **text;
        let committed = is_whole.then_some(&inner.committed);
        unsaved.file.note_saved(unsaved.version, committed);
        if !gets_name {
            inner.settle();
        }
    }

    /// Takes in FILE's text after another program, or a save of an array, has changed FILE. What was written to `tree.yaml` before is
    /// refused from now on.
    pub(super) fn reloaded(&self, text: Arc<Vec<u8>>) {
        let mut inner = locked(&self.inner);
        let mtime = inner.shown.now().stat.modified();
        if *text == *inner.committed {
            let clean = inner.current().filter(|file| !file.is_dirty());
            return clean.map_or((), |file| file.set_mtime(mtime));
        }
        inner.committed = text;
        inner.since = mtime;
        inner.epoch = inner.epoch.saturating_add(1);
        if let Some(former) = inner.former.upgrade() {
            former.set_role(Role::Stale);
            inner.former = Weak::new();
        }
        if inner.current().is_some() {
            inner.show_current(Role::Stale);
        }
    }

    /// Shows FILE's text instead of a blank one that nobody writes to any more, or the refused one that it was before it was emptied.
    pub(super) fn forget(&self, file: &Arc<ScratchFile>) {
        let mut inner = locked(&self.inner);
        // the name may lead to another file by now, whose text is not this one's to drop
        let is_current = inner.current().is_some_and(|it| Arc::ptr_eq(&it, file));
        if !is_current || !file.is_dirty() {
            return;
        }
        let (epoch, refused) = (inner.epoch, inner.refused.as_ref());
        let refused = refused.filter(|it| it.file == file.node && it.made_of == epoch);
        let Some((text, why)) = refused.map(|it| (Arc::clone(&it.text), it.why.clone())) else {
            inner.show_current(Role::Plain);
            return;
        };
        let shown = inner.show(text, epoch, Role::Plain);
        shown.note_refused(shown.touch(), &why);
        if let Some(refused) = &mut inner.refused {
            refused.file = shown.node;
        }
    }

    /// Whether nothing is open or waits to be mended, so that FILE can be closed.
    pub(super) fn is_at_rest(&self) -> bool {
        let mut inner = locked(&self.inner);
        let current = inner.current();
        let is_clean = current.is_some_and(|file| !file.is_open() && !file.is_dirty());
        is_clean && inner.refused.is_none()
    }

    /// FILE's text, if `tree.yaml` shows it, and where the next one of FILE begins.
    pub(super) fn at_rest(&self) -> Option<(Arc<Vec<u8>>, TreeMark)> {
        let mut inner = locked(&self.inner);
        let file = inner.current()?;
        let is_text = file.shares(&inner.committed);
        is_text.then(|| (Arc::clone(&inner.committed), inner.mark(file.node)))
    }

    /// Waits, for that long at most, until texts whose descriptors were closed have been refused, if they are to be.
    pub(super) fn wait_for_closing(&self, longest: Duration) {
        let inner = locked(&self.inner);
        let waits = |inner: &mut Inner| {
            let current = inner.current();
            current.is_some_and(|file| file.awaits_refusal())
        };
        let waited = self.closed.wait_timeout_while(inner, longest, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The number of the file that is made after the one with this number. It takes months of saves to get to the last.
fn after(number: u32) -> u32 {
    number.saturating_add(1).min(NUMBERS - 1)
}

impl Inner {
    /// What shows FILE's text of now, and goes on at `mark`.
    fn new(
        shown: &Arc<Shown>,
        options: &Arc<VfsOptions>,
        room: &Arc<ScratchRoom>,
        mark: TreeMark,
    ) -> Self {
        let state = shown.now();
        let mut inner = Self {
            shown: Arc::clone(shown),
            options: Arc::clone(options),
            room: Arc::clone(room),
            committed: Arc::clone(state.snapshot.text()),
            since: state.stat.modified(),
            epoch: mark.epoch,
            name: Name::Gone(Absence::begin()),
            former: Weak::new(),
            next: mark.next,
            files: HashMap::new(),
            recent: VecDeque::new(),
            refused: None,
        };
        let text = Arc::clone(&inner.committed);
        inner.show_as(mark.node, text, mark.epoch, Role::Plain);
        inner
    }

    /// The refused text, if it could not be kept on disk.
    fn only_in_memory(&self) -> Option<&Refused> {
        self.refused.as_ref().filter(|it| it.kept.is_err())
    }

    fn mark(&self, node: Node) -> TreeMark {
        let (next, epoch) = (self.next, self.epoch);
        TreeMark { node, next, epoch }
    }

    /// The file that has the name. After the time that it is gone for, one is made that shows FILE's tree.
    fn current(&mut self) -> Option<Arc<ScratchFile>> {
        match &self.name {
            Name::File(named) => Some(Arc::clone(named.file())),
            Name::Gone(absence) if absence.lasts() => None,
            Name::Gone(_) => Some(self.show_current(Role::Plain)),
        }
    }

    /// Has the name lead to a new file, with FILE's text, or with a refused one that is in no file on disk: it can be read nowhere else. The
    /// file that had the name is something else to FILE then.
    fn show_current(&mut self, before: Role) -> Arc<ScratchFile> {
        let Some(refused) = self.only_in_memory() else {
            return self.show(Arc::clone(&self.committed), self.epoch, before);
        };
        let (text, made_of) = (Arc::clone(&refused.text), refused.made_of);
        let file = self.show(text, made_of, before);
        file.touch();
        file
    }

    /// Has the name lead to a new file with this text.
    fn show(&mut self, text: Arc<Vec<u8>>, made_of: u64, before: Role) -> Arc<ScratchFile> {
        let node = Node::Tree(self.next);
        self.next = after(self.next);
        self.show_as(node, text, made_of, before)
    }

    fn show_as(
        &mut self,
        node: Node,
        text: Arc<Vec<u8>>,
        made_of: u64,
        before: Role,
    ) -> Arc<ScratchFile> {
        let facts = FileFacts {
            mtime: self.since,
            ..FileFacts::of(&self.shown.now().stat, &self.options)
        };
        let file = ScratchFile::new(node, FileKind::File, &self.room, text, facts, made_of);
        let file = Arc::new(file);
        // the table has weak references only, so that a file goes with its last descriptor; here the empty ones go
        self.files.retain(|_, file| file.strong_count() > 0);
        self.files.insert(node, Arc::downgrade(&file));
        self.put(Name::File(Named::free(Arc::clone(&file))), before);
        file
    }

    /// Changes what the name leads to. The file that had it is `before` to FILE then, and stays known for a moment.
    fn put(&mut self, name: Name, before: Role) {
        if let Some(former) = self.former.upgrade() {
            former.set_role(Role::Plain);
            self.former = Weak::new();
        }
        if let Name::File(named) = &name {
            named.file().set_role(Role::Tree);
        }
        let replaced = std::mem::replace(&mut self.name, name);
        let Name::File(replaced) = replaced else {
            return;
        };
        let is_same =
            matches!(&self.name, Name::File(named) if Arc::ptr_eq(named.file(), replaced.file()));
        if is_same {
            return;
        }
        replaced.file().set_role(before);
        // a longer text is not kept in memory for the sake of a program that may have looked its name up
        if replaced.file().len() <= KNOWN_LEN {
            self.recent
                .push_back((Instant::now(), Arc::clone(replaced.file())));
        }
        self.recent.retain(|(when, _)| when.elapsed() <= KNOWN_FOR);
        if self.recent.len() > KNOWN {
            self.recent.pop_front();
        }
    }

    /// If `tree.yaml` has no unsaved text, and FILE another one than it shows, has it show FILE's. A program that has written the text goes
    /// on writing by the offsets in that: so it keeps its file, and saves through it.
    fn settle(&mut self) {
        let Name::File(named) = &self.name else {
            return;
        };
        let shown = Arc::clone(named.file());
        if shown.is_dirty() || shown.shares(&self.committed) {
            return;
        }
        let former = self.former.upgrade().unwrap_or_else(|| Arc::clone(&shown));
        self.show_current(Role::Plain);
        former.set_role(Role::Tree);
        self.former = Arc::downgrade(&former);
    }
}

#[cfg(test)]
mod tests;
