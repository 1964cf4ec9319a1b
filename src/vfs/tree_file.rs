//! `tree.yaml`: which scratch file has the name, what of it is FILE's text, and what was refused.
//!
//! All descriptors of a file share its bytes, so `tree.yaml` shows what was written last, saved or not. FILE's text, the *committed* one,
//! does not depend on the name: a program may rename `tree.yaml` away, remove it, make it again or rename another file over it. When the
//! name is taken from a file, it leads to a new one, which nobody finds while `MemberScratch` hides the name. That has FILE's text, or a
//! refused one that is nowhere on disk.
//!
//! A text that another program or this mount itself puts there gets a file of its own, with the next number: the bytes of a number change only
//! through that number. A text that was refused stays where it is, so `tree.yaml` goes on showing it until it is mended.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::attr::{FileFacts, FileKind};
use super::error::Error;
use super::node::{NUMBERS, Node, TREE_NAME};
use super::scratch::{MemberScratch, Named, Role, ScratchFile, Unsaved, is_blank};
use super::state::{KEPT, Shown};
use super::{VfsOptions, locked};
use crate::error::printable;
use crate::source::{ScratchRoom, Source};

/// How many files that have lost the name stay known, and how long they are at most.
const KNOWN: usize = 3;
const KNOWN_LEN: u64 = 1 << 20;

/// The longest wait for handles to be released: less than the time after which `-u` says that it waits. Another process may have inherited
/// the descriptor, so that no release comes.
const CLOSING: Duration = Duration::from_millis(500);

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
    /// The file that has the name.
    name: Named,
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
        locked(&self.inner).mark()
    }

    /// The file that has the name.
    pub(super) fn current(&self) -> Arc<ScratchFile> {
        Arc::clone(locked(&self.inner).name.file())
    }

    /// The file of a node, if this made it.
    pub(super) fn file(&self, node: Node) -> Option<Arc<ScratchFile>> {
        let inner = locked(&self.inner);
        inner.files.get(&node).and_then(Weak::upgrade)
    }

    /// The texts that are open and would be saved or refused when they are closed. The one that has the name comes last.
    pub(super) fn open_texts(&self) -> Vec<Arc<ScratchFile>> {
        let inner = locked(&self.inner);
        let name = inner.name.file();
        let others = inner.files.values().filter_map(Weak::upgrade);
        let others = others.filter(|file| !Arc::ptr_eq(file, name));
        let is_text = |file: &Arc<ScratchFile>| matches!(file.role(), Role::Tree | Role::Stale);
        let all = others.chain([Arc::clone(name)]);
        all.filter(|file| file.is_open() && is_text(file)).collect()
    }

    /// Which of FILE's texts is shown, of those that were not saved through `tree.yaml`.
    pub(super) fn epoch(&self) -> u64 {
        locked(&self.inner).epoch
    }

    /// Takes the name from its file, which is a scratch file then. For a while nobody finds the name, unless a program makes it again. After
    /// that it leads to the next file, which shows FILE's tree until it is emptied.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name is gone already.
    pub(super) fn remove(&self, scratch: &MemberScratch) -> Result<(), Error> {
        // the kernel's lock of the directory keeps other calls from making the name again between the two
        scratch.hide(Node::Root, TREE_NAME.as_ref())?;
        locked(&self.inner).show_current(Role::Plain);
        Ok(())
    }

    /// Gives the name to a file whose text is FILE's, or waits to be saved.
    pub(super) fn give(&self, file: &Arc<ScratchFile>) {
        let mut inner = locked(&self.inner);
        inner.put(file, Role::Plain);
        let committed = Arc::clone(&inner.committed);
        // a backup that is renamed back over tree.yaml has FILE's text: there is nothing to save
        if let Ok(unsaved) = file.becoming()
            && *unsaved.text == *committed
        {
            file.note_saved(unsaved.version, Some(&committed));
        }
        inner.settle(file);
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
        let copy = inner.refused.take().filter(|it| it.kept.is_err());
        let name = Arc::clone(inner.name.file());
        // the only copy of a refused text was in sight: no program has asked to save it now, and none shall save it over this
        let is_copy = |copy: &Refused| name.bytes().is_ok_and(|text| *text == *copy.text);
        if !Arc::ptr_eq(&name, &unsaved.file)
            && !name.is_open()
            && copy.as_ref().is_some_and(is_copy)
        {
            name.note_saved(name.touch(), None);
        }
        let is_whole = *unsaved.text == **text;
        let committed = is_whole.then_some(&inner.committed);
        unsaved.file.note_saved(unsaved.version, committed);
        if !gets_name {
            inner.settle(&unsaved.file);
        }
    }

    /// Takes in FILE's text after another program, or a save of an array, has changed FILE. What was written to `tree.yaml` before is
    /// refused from now on.
    pub(super) fn reloaded(&self, text: Arc<Vec<u8>>) {
        let mut inner = locked(&self.inner);
        let mtime = inner.shown.now().stat.modified();
        if *text == *inner.committed {
            let file = inner.name.file();
            if !file.is_dirty() {
                file.set_mtime(mtime);
            }
            return;
        }
        inner.committed = text;
        inner.since = mtime;
        inner.epoch = inner.epoch.saturating_add(1);
        if let Some(former) = inner.former.upgrade() {
            former.set_role(Role::Stale);
            inner.former = Weak::new();
        }
        inner.show_current(Role::Stale);
    }

    /// Shows FILE's text instead of a blank one that nobody writes to any more, or the refused one that it was before it was emptied.
    pub(super) fn forget(&self, file: &Arc<ScratchFile>) {
        let mut inner = locked(&self.inner);
        // the name may lead to another file by now, whose text is not this one's to drop
        if !Arc::ptr_eq(inner.name.file(), file) || !file.is_dirty() {
            return;
        }
        let (epoch, refused) = (inner.epoch, inner.refused.as_ref());
        let refused = refused.filter(|it| it.file == file.node && it.made_of == epoch);
        let Some((text, why)) = refused.map(|it| (Arc::clone(&it.text), it.why.clone())) else {
            inner.show_current(Role::Stale);
            return;
        };
        let shown = inner.show(text, epoch, Role::Stale);
        shown.note_refused(shown.touch(), &why);
        if let Some(refused) = &mut inner.refused {
            refused.file = shown.node;
        }
    }

    /// Whether nothing is open or waits to be mended, so that FILE can be closed.
    pub(super) fn is_at_rest(&self) -> bool {
        let inner = locked(&self.inner);
        let file = inner.name.file();
        !file.is_open() && !file.is_dirty() && inner.refused.is_none()
    }

    /// FILE's text, if `tree.yaml` shows it, and where the next one of FILE begins.
    pub(super) fn at_rest(&self) -> Option<(Arc<Vec<u8>>, TreeMark)> {
        let inner = locked(&self.inner);
        let is_text = inner.name.file().shares(&inner.committed);
        is_text.then(|| (Arc::clone(&inner.committed), inner.mark()))
    }

    /// Waits until texts whose descriptors were closed have been refused, if they are to be: the kernel lets close(2) return before it
    /// releases the handle, which refuses the text.
    pub(super) fn wait_for_closing(&self) {
        let inner = locked(&self.inner);
        let waits = |inner: &mut Inner| inner.name.file().awaits_refusal();
        let waited = self.closed.wait_timeout_while(inner, CLOSING, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// What `tell` makes of the text that was refused last, if none has been saved since.
    pub(super) fn refusal<T>(&self, tell: impl FnOnce(&Refused) -> T) -> Option<T> {
        locked(&self.inner).refused.as_ref().map(tell)
    }

    /// Whether a text was refused before for the same reason, as at fsync(2) before close(2): then the user knows. `None` if the text is
    /// passed over, so that the one that was refused last is kept instead: if it is blank, or was refused before that one.
    pub(super) fn is_known(&self, unsaved: &Unsaved, error: &Error) -> Option<bool> {
        let again = unsaved.file.refusal().is_some();
        let inner = locked(&self.inner);
        let Some(last) = &inner.refused else {
            return Some(false);
        };
        if (again || is_blank(&unsaved.text)) && *last.text != *unsaved.text {
            return None;
        }
        Some(again && last.why.to_string() == error.to_string())
    }

    /// Notes that a text was refused, and where it is `kept`. `tree.yaml` shows one that is in no file on disk, as it can be read nowhere
    /// else.
    pub(super) fn refuse(&self, unsaved: &Unsaved, error: &Error, kept: Result<PathBuf, String>) {
        unsaved.file.note_refused(unsaved.version, error);
        locked(&self.inner).note_refused(Refused {
            file: unsaved.file.node,
            text: Arc::clone(&unsaved.text),
            why: error.clone(),
            kept,
            made_of: unsaved.made_of,
        });
    }

    /// Notes where the refused text is kept now. Call it with the writer's lock, under which another text may be refused.
    pub(super) fn note_kept(&self, kept: Result<PathBuf, String>) {
        let mut inner = locked(&self.inner);
        if let Some(refused) = inner.refused.take() {
            inner.note_refused(Refused { kept, ..refused });
        }
    }

    /// Lets go of the text that was refused, if there is one: `tree.yaml` shows FILE's again. What is written on into the text is refused.
    pub(super) fn revert(&self) {
        let mut inner = locked(&self.inner);
        if inner.refused.take().is_some() && !inner.name.file().shares(&inner.committed) {
            inner.show_current(Role::Stale);
        }
    }
}

/// What is known of the text that was refused last, until one is saved.
#[derive(Debug)]
pub(super) struct Refused {
    /// The file that it was written to.
    file: Node,
    text: Arc<Vec<u8>>,
    why: Error,
    /// Where it is kept on disk, or why it is in memory only.
    kept: Result<PathBuf, String>,
    /// Which of FILE's texts it was made of.
    made_of: u64,
}

impl Refused {
    /// Why it is not saved, and where it is.
    pub(super) fn describe(&self) -> String {
        let why = format!("{TREE_NAME}: {}", self.why);
        match &self.kept {
            Ok(path) => format!("{why}; your text is in {}", path.display()),
            Err(error) => format!(
                "{why}; your text is in memory only, and gone at unmount: copy tree.yaml elsewhere. It can't be kept on disk: {error}"
            ),
        }
    }

    /// The same, as it is said at unmount.
    pub(super) fn at_unmount(&self) -> String {
        let place = match &self.kept {
            Ok(path) => format!("it is kept in {}", path.display()),
            Err(_) => "it could not be kept on disk, and is lost with the mount".to_owned(),
        };
        let why = &self.why;
        // one line of several, whatever is in the path
        printable(&format!(
            "the tree that was refused is not saved ({why}): {place}"
        ))
    }

    pub(super) fn text(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.text)
    }

    /// Where it is kept on disk.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.kept.as_deref().ok()
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
        let committed = Arc::clone(state.snapshot.text());
        let facts = FileFacts::of(&state.stat, options);
        let since = facts.mtime;
        let text = Arc::clone(&committed);
        let file = ScratchFile::new(mark.node, FileKind::File, room, text, facts, mark.epoch);
        file.set_role(Role::Tree);
        let file = Arc::new(file);
        Self {
            shown: Arc::clone(shown),
            options: Arc::clone(options),
            room: Arc::clone(room),
            committed,
            since,
            epoch: mark.epoch,
            files: HashMap::from([(mark.node, Arc::downgrade(&file))]),
            name: Named::free(file),
            former: Weak::new(),
            next: mark.next,
            recent: VecDeque::new(),
            refused: None,
        }
    }

    fn note_refused(&mut self, refused: Refused) {
        self.refused = Some(refused);
        // what waits there to be saved, or was refused, too, is shown instead
        if self.only_in_memory().is_some() && !self.name.file().is_dirty() {
            self.show_current(Role::Stale);
        }
    }

    /// The refused text, if it could not be kept on disk.
    fn only_in_memory(&self) -> Option<&Refused> {
        self.refused.as_ref().filter(|it| it.kept.is_err())
    }

    fn mark(&self) -> TreeMark {
        TreeMark {
            node: self.name.file().node,
            next: self.next,
            epoch: self.epoch,
        }
    }

    /// Has the name lead to a new file, with FILE's text, or with a refused one that is in no file on disk: it can be read nowhere else. The
    /// file that had the name is something else to FILE then.
    fn show_current(&mut self, before: Role) {
        let Some(refused) = self.only_in_memory() else {
            self.show(Arc::clone(&self.committed), self.epoch, before);
            return;
        };
        let (text, made_of) = (Arc::clone(&refused.text), refused.made_of);
        self.show(text, made_of, before).touch();
    }

    /// Has the name lead to a new file with this text.
    fn show(&mut self, text: Arc<Vec<u8>>, made_of: u64, before: Role) -> Arc<ScratchFile> {
        let node = Node::Tree(self.next);
        self.next = after(self.next);
        let facts = FileFacts {
            mtime: self.since,
            ..FileFacts::of(&self.shown.now().stat, &self.options)
        };
        let file = ScratchFile::new(node, FileKind::File, &self.room, text, facts, made_of);
        let file = Arc::new(file);
        // the table has weak references only, so that a file goes with its last descriptor; here the empty ones go
        self.files.retain(|_, file| file.strong_count() > 0);
        self.files.insert(node, Arc::downgrade(&file));
        self.put(&file, before);
        file
    }

    /// Has the name lead to a file. The one that had it is `before` to FILE then, and stays known for a moment. That is `Plain` if a program
    /// has taken its name away, as on any disk; else it is `Stale`, so that no text which a program writes on in it is dropped without an
    /// error.
    fn put(&mut self, file: &Arc<ScratchFile>, before: Role) {
        if let Some(former) = std::mem::take(&mut self.former).upgrade() {
            former.set_role(before);
        }
        file.set_role(Role::Tree);
        let named = Named::free(Arc::clone(file));
        let replaced = std::mem::replace(&mut self.name, named);
        if Arc::ptr_eq(file, replaced.file()) {
            return;
        }
        replaced.file().set_role(before);
        // a longer text is not kept in memory for the sake of a program that may have looked its name up
        if replaced.file().len() <= KNOWN_LEN {
            self.recent
                .push_back((Instant::now(), Arc::clone(replaced.file())));
        }
        self.recent.retain(|(when, _)| when.elapsed() <= KEPT);
        if self.recent.len() > KNOWN {
            self.recent.pop_front();
        }
    }

    /// If `tree.yaml` has no unsaved text, and another one than FILE's, or than the only copy of a refused text, has it show that. A program
    /// that has `saved` a text goes on writing by the offsets in that: so it keeps its file, and saves through it.
    fn settle(&mut self, saved: &Arc<ScratchFile>) {
        let shown = Arc::clone(self.name.file());
        let is_right = shown.shares(&self.committed) && self.only_in_memory().is_none();
        if is_right || shown.is_dirty() {
            return;
        }
        self.show_current(Role::Stale);
        saved.set_role(Role::Tree);
        self.former = Arc::downgrade(saved);
    }
}

#[cfg(test)]
mod tests;
