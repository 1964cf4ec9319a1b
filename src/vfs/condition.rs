//! What keeps FILE from being written, or from being read by the places that are known: kept and asked in one place.

use std::borrow::Cow;
use std::sync::{Mutex, OnceLock};

use super::{Error, Result, Vfs, locked};
use crate::error::Error as Library;
use crate::save::Writer;

/// What is wrong with FILE at the moment, for this mount.
#[derive(Default)]
pub(super) struct Condition {
    /// What a save has failed of so badly that no other can follow.
    broken: OnceLock<Library>,
    /// Why FILE is not shown as another program has left it. Its places mean nothing then.
    out_of_date: Mutex<Option<String>>,
}

impl Condition {
    /// Notes whether FILE is shown as it is, and why not. What to say of it, if that is news.
    pub(super) fn note_out_of_date(&self, why: Option<String>) -> Option<String> {
        let news = why.as_deref().map(out_of_date);
        let before = std::mem::replace(&mut *locked(&self.out_of_date), why);
        news.filter(|_| before.is_none())
    }
}

impl Vfs {
    /// That something may be changed: what is written now may be saved later.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly("this mount"));
        }
        match self.condition.broken.get() {
            Some(_) => Err(Error::ReadOnly(
                "a save has failed, and FILE may be written again only after the next mount",
            )),
            None => Ok(()),
        }
    }

    /// That the places of the state that is shown are those of FILE, so that it can be read and saved by them.
    ///
    /// # Errors
    /// [`Library::Stale`].
    pub(super) fn check_up_to_date(&self) -> Result<(), Library> {
        match &*locked(&self.condition.out_of_date) {
            Some(why) => Err(Library::Stale {
                why: out_of_date(why),
            }),
            None => Ok(()),
        }
    }

    /// Why nothing can be written, if that is so.
    pub(super) fn why_read_only(&self) -> Option<Cow<'_, str>> {
        let asked = self.options.read_only.as_deref().map(Cow::from);
        asked.or_else(|| {
            let why = self.condition.broken.get()?;
            Some(format!("a save has failed; unmount, and mount again: {why}").into())
        })
    }

    /// Notes what a save has left of the writer.
    pub(super) fn note_condition(&self, writer: &Writer) {
        if let Some(error) = writer.broken() {
            // the first cause is the one that counts
            let _ = self.condition.broken.set(error.clone());
        }
    }
}

/// Why nothing of FILE can be read.
fn out_of_date(why: &str) -> String {
    format!("the file has been changed by another program, and can't be shown as it is now: {why}")
}
