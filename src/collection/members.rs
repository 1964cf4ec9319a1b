//! The members that are open, and what is remembered of those that were.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use super::closed::ClosedTree;
use super::item::{Inode, Item};
use crate::error::Error as Library;
use crate::source::{Look, Stat, len_u64};
use crate::vfs::{
    ClosedFile, Losses, Node, REPLACED_WITHIN, Remains, Result, TreeMark, Versions, Vfs, locked,
};

/// The most that the trees of open members may take, in bytes as estimated, if members can be closed.
const MAX_TREES: u64 = 48 << 20;
/// A tree that has been read takes so many times the memory of its text.
const TREE_PER_TEXT: u64 = 8;

/// The most that names and lengths of closed members may take, in bytes as estimated. Of further members only the root is known. A closed member's
/// names that an open `tree.yaml` or listing still needs are not counted.
const MAX_NAMES: usize = 24 << 20;

/// The most members of which it is remembered what is wrong with them.
const MAX_PROBLEMS: usize = 1 << 16;

/// After so many uses, members beyond the limit are closed if they are idle: they may have been in use when others were opened.
const USES_PER_LOOK: u64 = 64;

/// What an item is.
#[derive(Clone)]
pub(super) enum Resolved {
    /// A member.
    Member(Arc<Vfs>),
    /// A member whose file can't be read.
    Unreadable {
        /// Why.
        why: Arc<str>,
        /// What there is to say of its server, but for the error.
        told: Arc<[(&'static str, String)]>,
        /// The attributes of the file from before the attempt to open it.
        stat: Stat,
        /// The error, if the disk or the server has failed: then it is not known what is in the file.
        cause: Option<Library>,
        /// Until when it is not tried again, as long as these stay the same.
        until: Instant,
    },
    /// A directory of the collection.
    Directory,
    /// The directory with what there is to say of the collection.
    Report,
}

/// The place of a member in the table. Threads that want the same member wait for the one that opens it.
pub(super) type MemberSlot = OnceLock<Result<Resolved>>;

/// What is remembered of a member that was open: so that inode numbers mean the same when it is opened again, and names can be listed
/// until then.
struct Past {
    /// The look at FILE when it was opened, or by which it was shown when it was closed.
    look: Look,
    /// The versions of its files, if FILE is as it was.
    versions: Versions,
    /// What its `tree.yaml` begins with when it is opened next.
    tree: TreeMark,
    /// What it showed when it was closed last, if a file with these attributes shows just that.
    closed: Option<Arc<ClosedFile>>,
    /// The directories that the kernel has listed since then, and whose listings it keeps.
    listed: HashSet<Node>,
    /// Each `tree.yaml` that was opened since then and is open still.
    trees: Vec<Arc<ClosedTree>>,
    /// When FILE was first found to be gone, if it has not been found there since, and the member has left files.
    gone: Option<Instant>,
}

impl Past {
    /// That of a member that is opened for the first time.
    fn of(look: Look) -> Self {
        Self {
            look,
            versions: Versions::default(),
            tree: TreeMark::default(),
            closed: None,
            listed: HashSet::new(),
            trees: Vec::new(),
            gone: None,
        }
    }

    /// Whether this is what the member showed when it was closed last.
    fn has(&self, closed: &Arc<ClosedFile>) -> bool {
        let last = self.closed.as_ref();
        last.is_some_and(|last| Arc::ptr_eq(last, closed))
    }

    /// Takes in that FILE has been changed since, has a text with this hash, and is shown by this look now.
    fn change(&mut self, look: Look, text_hash: Option<u64>) {
        let before = self.closed.take().map(|closed| closed.text_hash);
        // with the same text, the kernel's pages of tree.yaml are still right
        if before.is_none() || before != text_hash {
            self.tree = self.tree.changed();
        }
        self.look = look;
        self.versions = self.versions.renewed();
        self.listed.clear();
    }
}

/// What is wrong with a member, and the look at its file by which that is known.
pub(super) type Problem = (Look, Arc<str>);

/// The open members.
pub(super) struct Members {
    /// So many are open at once, unless more are in use.
    pub(super) limit: usize,
    table: Mutex<MemberTable>,
}

#[derive(Default)]
struct MemberTable {
    open: HashMap<Item, TableEntry>,
    past: HashMap<Item, Past>,
    /// What the names and lengths that closed members show take, in bytes, as estimated: the sum of each `ClosedFile::weight` in `past`.
    names_weight: usize,
    /// What is wrong with members that are closed, or could not be opened.
    problems: HashMap<Item, Problem>,
    /// What members that are closed have left.
    remains: HashMap<Item, Remains>,
    /// Counts the uses.
    clock: u64,
}

struct TableEntry {
    slot: Arc<MemberSlot>,
    /// When it was used last.
    used: u64,
    /// While it is being opened: what would be lost of it if the mount ended now. Its `Vfs` has taken that up, but is not in the slot yet.
    left: Option<Losses>,
}

impl TableEntry {
    /// Whether none of its files is open, no request uses it, and nothing is lost if it is closed. True only while the table is locked: a
    /// thread gets a member from the table.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.slot) == 1
            && match self.slot.get() {
                Some(Ok(Resolved::Member(vfs))) => Arc::strong_count(vfs) == 1 && vfs.is_at_rest(),
                _ => true,
            }
    }

    /// The member, if it is open and can be read.
    fn vfs(&self) -> Option<&Arc<Vfs>> {
        match self.slot.get()?.as_ref().ok()? {
            Resolved::Member(vfs) => Some(vfs),
            _ => None,
        }
    }

    /// What its text and tree take, in bytes, as estimated.
    fn weight(&self) -> u64 {
        let Some(vfs) = self.vfs() else {
            return 0;
        };
        let snapshot = vfs.snapshot();
        let text = len_u64(snapshot.text().len());
        let times = if snapshot.is_unread() {
            1
        } else {
            TREE_PER_TEXT
        };
        text.saturating_mul(times)
    }
}

impl MemberTable {
    /// Takes idle members out of the table until there are so many, or fewer if their trees take too much.
    fn take_more_than(&mut self, count: usize, idle: &mut Vec<TableEntry>) {
        while self.open.len() > count || self.weight() > MAX_TREES {
            match self.take_idle() {
                Some(entry) => idle.push(entry),
                None => break,
            }
        }
    }

    /// Takes the member that was not used for the longest time out of the table, if one is idle.
    fn take_idle(&mut self) -> Option<TableEntry> {
        let mut by_use: Vec<(u64, Item)> = self
            .open
            .iter()
            .map(|(item, entry)| (entry.used, *item))
            .collect();
        by_use.sort_unstable();
        by_use.into_iter().find_map(|(_, item)| self.take(item))
    }

    /// Takes a member out of the table if it is idle.
    fn take(&mut self, item: Item) -> Option<TableEntry> {
        let entry = self.open.get(&item).filter(|entry| entry.is_idle())?;
        if let (Some(vfs), Some(past)) = (entry.vfs(), self.past.get_mut(&item)) {
            let before = weight(past.closed.as_deref());
            let others = self.names_weight.saturating_sub(before);
            let problem = problem_of(vfs);
            let left = vfs.leave(MAX_NAMES.saturating_sub(others));
            self.names_weight = others.saturating_add(weight(left.closed.as_ref()));
            past.look = left.look.unwrap_or(past.look);
            (past.versions, past.tree) = (left.versions, left.tree);
            past.closed = left.closed.map(Arc::new);
            past.listed.clear();
            match problem.zip(left.look) {
                Some((why, look)) => note(&mut self.problems, item, (look, why.into())),
                None => drop(self.problems.remove(&item)),
            }
            self.remains
                .extend(left.remains.map(|remains| (item, remains)));
        }
        self.open.remove(&item)
    }

    fn weight(&self) -> u64 {
        let weights = self.open.values().map(TableEntry::weight);
        weights.fold(0, u64::saturating_add)
    }
}

impl Members {
    /// None yet; `limit` of them are open at once, at least one.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            table: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemberTable> {
        locked(&self.table)
    }

    /// Whether a member can stay open, with its tree, beside another one like it.
    pub(super) fn has_room_beside(&self, vfs: &Vfs) -> bool {
        let text = len_u64(vfs.snapshot().text().len());
        self.limit > 1 && text.saturating_mul(TREE_PER_TEXT) <= MAX_TREES / 2
    }

    /// The place of a member; if it is not open, another one that is idle is closed for it.
    pub(super) fn slot(&self, item: Item) -> Arc<MemberSlot> {
        // closed when the lock is released
        let mut idle = Vec::new();
        let mut table = self.lock();
        table.clock = table.clock.saturating_add(1);
        let used = table.clock;
        if let Some(entry) = table.open.get_mut(&item) {
            entry.used = used;
            let slot = Arc::clone(&entry.slot);
            if used.is_multiple_of(USES_PER_LOOK) {
                table.take_more_than(self.limit, &mut idle);
            }
            return slot;
        }
        table.take_more_than(self.limit.saturating_sub(1), &mut idle);
        let slot = Arc::<MemberSlot>::default();
        let entry = TableEntry {
            slot: Arc::clone(&slot),
            used,
            left: None,
        };
        table.open.insert(item, entry);
        if let Some(past) = table.past.get_mut(&item) {
            // if its file can't be read now, the kernel may keep other names
            past.listed.clear();
        }
        drop(table);
        slot
    }

    /// Takes a place out of the table, if it is still that of the member.
    pub(super) fn forget(&self, item: Item, slot: &Arc<MemberSlot>) {
        let mut table = self.lock();
        let same = |entry: &TableEntry| Arc::ptr_eq(&entry.slot, slot);
        if table.open.get(&item).is_some_and(same) {
            table.open.remove(&item);
        }
    }

    /// Closes all that are idle, for their descriptors.
    pub(super) fn close_idle(&self) {
        let mut idle = Vec::new();
        self.lock().take_more_than(0, &mut idle);
        // their files are closed with the lock released
        drop(idle);
    }

    /// Closes a member if it is idle.
    pub(super) fn close(&self, item: Item) {
        let entry = self.lock().take(item);
        drop(entry);
    }

    /// Closes a member whose file is gone, if it is idle. If the file is still gone at a later call, after some seconds, drops the files
    /// that are in the mount only. Gives a line for each of these that a user has made.
    pub(super) fn note_gone(&self, item: Item) -> Vec<String> {
        let mut guard = self.lock();
        let entry = guard.take(item);
        let table = &mut *guard;
        let mut lost = Vec::new();
        // what has left something was open before
        if let Some(remains) = table.remains.get_mut(&item).filter(|it| it.has_files())
            && let Some(past) = table.past.get_mut(&item)
            && past.gone.get_or_insert_with(Instant::now).elapsed() > REPLACED_WITHIN
        {
            past.gone = None;
            lost = remains.drop_files();
        }
        drop(guard);
        // its file is closed with the lock released
        drop(entry);
        lost
    }

    /// Notes that the file of a member is there.
    pub(super) fn note_there(&self, item: Item) {
        if let Some(past) = self.lock().past.get_mut(&item) {
            past.gone = None;
        }
    }

    /// Closes idle members that have the same file open by another name: one of them may hold its lock.
    pub(super) fn close_others_of(&self, item: Item, stat: &Stat) {
        let mut table = self.lock();
        let others = table.open.iter().filter(|(other, entry)| {
            let is_same = |vfs: &Arc<Vfs>| vfs.stat().id == stat.id;
            **other != item && entry.vfs().is_some_and(is_same)
        });
        let others: Vec<Item> = others.map(|(other, _)| *other).collect();
        let idle: Vec<TableEntry> = others
            .into_iter()
            .filter_map(|other| table.take(other))
            .collect();
        drop(table);
        // their files are closed with the lock released
        drop(idle);
    }

    /// The member, if it is open.
    pub(super) fn open(&self, item: Item) -> Option<Resolved> {
        let table = self.lock();
        match table.open.get(&item)?.slot.get() {
            Some(Ok(opened)) => Some(opened.clone()),
            _ => None,
        }
    }

    /// How many are open, those whose files can't be read among them.
    pub(super) fn count(&self) -> usize {
        let table = self.lock();
        let slots = table.open.values().map(|entry| entry.slot.get());
        slots.filter(|opened| matches!(opened, Some(Ok(_)))).count()
    }

    /// Those that are open, are being opened, or have left something.
    pub(super) fn items(&self) -> Vec<Item> {
        let table = self.lock();
        table
            .open
            .keys()
            .chain(table.remains.keys())
            .copied()
            .collect()
    }

    /// What a member showed when it was closed, and the attributes that its file had, if it has not been opened since.
    pub(super) fn closed(&self, item: Item) -> Option<(Arc<ClosedFile>, Stat)> {
        let table = self.lock();
        let past = table.past.get(&item)?;
        let closed = past.closed.as_ref()?;
        (!table.open.contains_key(&item)).then(|| (Arc::clone(closed), past.look.stat))
    }

    /// Notes that the kernel is going to list a directory of a member with the names that it had when it was `closed`. Whether the
    /// kernel has listed it since then, so that it may keep that listing.
    pub(super) fn keep_listing(&self, directory: Inode, closed: &Arc<ClosedFile>) -> bool {
        let mut table = self.lock();
        let past = table.past.get_mut(&directory.item);
        past.is_some_and(|past| past.has(closed) && !past.listed.insert(directory.node))
    }

    /// Notes that `tree.yaml` of a member is open, if the member is closed still, and has not been opened meanwhile. Whether it is so.
    pub(super) fn open_closed(&self, tree: &Arc<ClosedTree>) -> bool {
        let mut table = self.lock();
        let is_open = table.open.contains_key(&tree.item);
        let past = table.past.get_mut(&tree.item);
        let past = past.filter(|past| !is_open && past.has(&tree.closed));
        past.map(|past| past.trees.push(Arc::clone(tree))).is_some()
    }

    /// Forgets that it is open.
    pub(super) fn release_closed(&self, tree: &Arc<ClosedTree>) {
        if let Some(past) = self.lock().past.get_mut(&tree.item) {
            past.trees.retain(|other| !Arc::ptr_eq(other, tree));
            // there may be a hundred thousand members
            past.trees.shrink_to_fit();
        }
    }

    /// Begins the `Vfs` of a member that has just been opened: it goes on from what is remembered of the member, and takes up what that
    /// has left. Gives each `tree.yaml` that was opened while the member was closed.
    pub(super) fn begin(&self, item: Item, vfs: &mut Vfs) -> Vec<Arc<ClosedTree>> {
        let is_changed = |past: &Past| !past.look.holds(&vfs.stat());
        let has_text = |past: &Past| past.closed.is_some() && is_changed(past);
        let hashes = self.lock().past.get(&item).is_some_and(has_text);
        // a text may be long, and others wait for the table
        let text_hash = hashes.then(|| vfs.text_hash()).flatten();
        let mut table = self.lock();
        let table = &mut *table;
        let look = || {
            let look = vfs.timed_look();
            look.unwrap_or_else(|| Look::now(vfs.stat(), None))
        };
        let past = match table.past.entry(item) {
            Entry::Vacant(entry) => entry.insert(Past::of(look())),
            Entry::Occupied(entry) => {
                let past = entry.into_mut();
                if is_changed(past) {
                    let weight = weight(past.closed.as_deref());
                    table.names_weight = table.names_weight.saturating_sub(weight);
                    past.change(look(), text_hash);
                }
                past
            }
        };
        let (tree, versions) = (past.tree, past.versions.clone());
        vfs.begin_as(item.number(), tree, versions, past.closed.as_deref());
        past.gone = None;
        let trees = std::mem::take(&mut past.trees);
        if let Some(remains) = table.remains.remove(&item) {
            if let Some(entry) = table.open.get_mut(&item) {
                entry.left = Some(remains.losses());
            }
            vfs.take_up(remains);
        }
        trees
    }

    /// All members that may have something to lose, at one moment, so that none is missed that is opened or closed meanwhile: the `Vfs` of
    /// one that is open, and the losses of one that is closed or being opened.
    pub(super) fn known(&self) -> Vec<(Item, std::result::Result<Arc<Vfs>, Losses>)> {
        let table = self.lock();
        let open = table.open.iter().filter_map(|(item, entry)| {
            // once: a thread fills the slot without the lock
            let known = match entry.slot.get() {
                Some(Ok(Resolved::Member(vfs))) => Ok(Arc::clone(vfs)),
                Some(_) => return None,
                None => Err(entry.left.clone()?),
            };
            Some((*item, known))
        });
        let closed = table.remains.iter();
        let closed = closed.map(|(item, remains)| (*item, Err(remains.losses())));
        open.chain(closed).collect()
    }

    /// Remembers why a member could not be opened.
    pub(super) fn note_problem(&self, item: Item, look: Look, problem: Arc<str>) {
        note(&mut self.lock().problems, item, (look, problem));
    }

    /// What was wrong with a member when it was last open, or why it could not be opened, and the look at its file by which that is known.
    pub(super) fn problem(&self, item: Item) -> Option<Problem> {
        self.lock().problems.get(&item).cloned()
    }

    /// The members that may have a problem: those that are open, and those with which something was wrong.
    pub(super) fn with_problems(&self) -> HashSet<Item> {
        let table = self.lock();
        let open = table.open.keys();
        open.chain(table.problems.keys()).copied().collect()
    }

    /// What a member that is closed has written and not saved.
    pub(super) fn unsaved(&self, item: Item) -> Vec<String> {
        let remains = self.lock().remains.get(&item).map(Remains::losses);
        remains.map_or_else(Vec::new, |losses| losses.unsaved)
    }
}

/// Remembers what is wrong with a member, as far as there is room.
fn note(problems: &mut HashMap<Item, Problem>, item: Item, (look, problem): Problem) {
    if problems.len() < MAX_PROBLEMS || problems.contains_key(&item) {
        let look = look.after(problems.get(&item).map(|(before, _)| before));
        problems.insert(item, (look, problem));
    }
}

/// What is wrong with the file of an open member, as far as it has been read: its worst damage, or why its text is no tree.
pub(super) fn problem_of(vfs: &Vfs) -> Option<String> {
    let snapshot = vfs.snapshot();
    if let Some(finding) = snapshot.layout().worst() {
        return Some(finding.error.to_string());
    }
    if snapshot.is_unread() {
        return None;
    }
    Some(snapshot.tree()?.err()?.to_string())
}

/// What the names and lengths that a closed member shows take, in bytes, as estimated.
fn weight(closed: Option<&ClosedFile>) -> usize {
    closed.map_or(0, ClosedFile::weight)
}
