//! Saves of `tree.yaml`: a text becomes FILE's, or is refused and kept.

use std::sync::Arc;

use log::{info, warn};

use super::saves::{Saves, is_saved};
use super::scratch::{ScratchFile, Unsaved, is_beginning, is_blank};
use super::tree_file::{Refused, TreeFile};
use super::{Error, MAX_PREPARED, Result, locked};
use crate::asdf::check::check_written;
use crate::asdf::heal::WrittenText;
use crate::error::{Error as Library, Place};
use crate::save::Writer;
use crate::save::edit::Edit;

impl TreeFile {
    /// Saves what was written to a file, if it is `tree.yaml`; `inherited`: for a process that did not open the descriptor.
    pub(super) fn save_file(
        &self,
        saves: &Saves,
        file: &Arc<ScratchFile>,
        inherited: bool,
    ) -> Result<()> {
        // each forked child that ends would log the same refusal again
        if let Some(why) = file.refusal().filter(|_| inherited) {
            return Err(why);
        }
        let save = |unsaved: Unsaved| self.save(saves, &unsaved, inherited, || Ok(()));
        file.to_save()?.map_or(Ok(()), save)
    }

    /// Ends a descriptor of a scratch file, or of `tree.yaml`. If nobody writes to the text any more and no document has begun in it, it is
    /// forgotten if it is blank; else it is refused and kept, as its program may have died before it wrote the rest.
    pub(super) fn close(&self, saves: &Saves, file: &Arc<ScratchFile>, writes: bool) {
        // whatever else is there to be saved has been tried before
        // only the last writer's close: before it, another descriptor may bring the rest of the text
        let unfinished = file.close(writes).then(|| file.unsaved());
        match unfinished {
            Some(Ok(Some(unsaved))) if is_blank(&unsaved.text) => self.forget(file),
            Some(Ok(Some(unsaved))) if is_beginning(&unsaved.text) && file.refusal().is_none() => {
                let error = unfinished_text();
                warn!("{}: {error}", saves.path.display());
                self.keep(saves, &unsaved, &error);
            }
            _ => {}
        }
        self.closed.notify_all();
    }

    /// Saves a text, and runs `named` before another save can begin. A text that can't be saved is kept, and the error says why; one that is
    /// no valid tree only if it is not `inherited`, as the process that opened the descriptor may write the rest.
    pub(super) fn save(
        &self,
        saves: &Saves,
        unsaved: &Unsaved,
        inherited: bool,
        named: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut name = Ok(());
        let done = self.commit(saves, unsaved, || name = named());
        let goes_on = inherited && is_rejected(&done);
        if let Err(error) = &done
            && !is_saved(&done)
            && !goes_on
        {
            self.keep(saves, unsaved, error);
        }
        done.and(name)
    }

    /// Checks a text and makes it FILE's, with what YAML tools drop of it put back.
    fn commit(&self, saves: &Saves, unsaved: &Unsaved, named: impl FnOnce()) -> Result<()> {
        if let Some(short) = &unsaved.short {
            return Err(short.clone().into());
        }
        let mut writer = saves.writer()?;
        saves.catch_up(Some(&mut writer));
        // asked with the writer's lock: a save that this thread has waited for may have changed the answer
        let replaced = self.to_replace(unsaved);
        let Some((committed, outdated)) = replaced else {
            return Ok(());
        };
        let written = WrittenText::new(&unsaved.text, &committed);
        let text = Arc::clone(&written.text);
        saves.check_up_to_date()?;
        let done = if text == committed {
            // nothing to write; but the save before may have left a name that a crash would take back
            writer.make_last()?;
            Ok(())
        } else if outdated {
            let why = "the tree has been changed since this was opened".to_owned();
            return Err(Library::Stale { why }.into());
        } else {
            write_text(saves, &mut writer, &written, !unsaved.becoming)
        };
        if !is_saved(&done) {
            return done;
        }
        self.saved(unsaved, &text, unsaved.becoming && done.is_ok());
        if done.is_ok() {
            named();
        }
        // a good save ends the refused text; the file beside FILE would only mislead
        if let Err(error) = writer.clear_rejected(&unsaved.text) {
            let file = saves.path.display();
            warn!(
                "{file}: the refused text that was kept is out of date, but can't be removed: {error}"
            );
        }
        done
    }

    /// Keeps a text that could not be saved, on disk if possible, with the reason.
    fn keep(&self, saves: &Saves, unsaved: &Unsaved, error: &Error) {
        // Held until `TreeFile` knows where the text is kept: meanwhile a save by another thread would remove that file, or another refused
        // text would replace it.
        let mut writer = saves.writer();
        let Some(is_known) = self.is_known(unsaved, error) else {
            return;
        };
        let kept = match &mut writer {
            Ok(writer) => saves.put_aside(writer, &unsaved.text),
            Err(error) => Err(error.clone()),
        };
        let kept = kept.map_err(|error| error.to_string());
        if matches!(error, Error::Library(Library::Stale { .. })) {
            saves.refresh_soon();
        }
        self.refuse(unsaved, error, kept);
        drop(writer);
        if is_known {
            return;
        }
        if let Some(what) = self.refusal(Refused::describe) {
            warn!("{}: refused: {what}", saves.path.display());
        }
        if let Some(tell) = self.on_refusal.get() {
            tell(error.clone());
        }
    }

    /// Keeps the texts that are still open when the mount has ended, for this reason: after `umount -f` nobody can close them, and their
    /// programs may not have written all of them.
    pub(super) fn cut_short(&self, saves: &Saves, why: &str) {
        for file in self.open_texts() {
            if file.refusal().is_none()
                && let Ok(Some(unsaved)) = file.unsaved()
                && !is_blank(&unsaved.text)
                && !self.is_committed(&unsaved.text)
            {
                let why = why.to_owned();
                self.keep(saves, &unsaved, &Library::Stale { why }.into());
            }
        }
    }

    /// Keeps the refused text, if there is one and no file on disk keeps it: there was no room for it, or the file has been removed since.
    ///
    /// # Errors
    /// Why it can't be kept.
    pub(super) fn rescue(&self, saves: &Saves) -> Result<()> {
        if self.refusal(|_| ()).is_none() {
            return Ok(());
        }
        self.keep_again(saves, &mut *saves.writer()?)
    }

    /// The same for who only tells of the text, and does not wait for a save.
    pub(super) fn rescue_if_idle(&self, saves: &Saves) {
        if let Ok(Some(mut writer)) = saves.idle_writer() {
            // noted: it is told with the text
            let _ = self.keep_again(saves, &mut writer);
        }
    }

    fn keep_again(&self, saves: &Saves, writer: &mut Writer) -> Result<()> {
        let refused = self.refusal(|it| (it.text(), it.kept().is_some()));
        let Some((text, is_kept)) = refused else {
            return Ok(());
        };
        let there = writer.kept_rejected().filter(|_| is_kept);
        let kept = match there {
            // its directory may have got another name
            Some(path) => Ok(saves.beside(&path)),
            None => saves.put_aside(writer, &text).inspect(|path| {
                let (file, path) = (saves.path.display(), path.display());
                info!("{file}: the text that was refused is kept in {path} now");
            }),
        };
        self.note_kept(kept.clone().map_err(|error| error.to_string()));
        kept.map(drop)
    }

    /// Has `tree.yaml` show FILE's tree again instead of a text that was refused. The file that keeps that on
    /// disk is the user's from then on.
    ///
    /// # Errors
    /// Why the text can't be kept, if it is in memory only, and unless it may be `lost`.
    pub(super) fn give_up_refused(&self, saves: &Saves, lost: bool) -> Result<()> {
        if self.refusal(|_| ()).is_none() {
            return Ok(());
        }
        // held meanwhile, so that no second text is refused before the first is let go of
        let mut writer = saves.writer()?;
        if !lost {
            self.keep_again(saves, &mut writer)?;
        }
        self.revert();
        writer.release_rejected();
        Ok(())
    }
}

/// Checks a text that FILE does not have yet, and writes it. `may_be_cut`: whether it was written through a handle, so that its program
/// may not be done.
fn write_text(
    saves: &Saves,
    writer: &mut Writer,
    written: &WrittenText,
    may_be_cut: bool,
) -> Result<()> {
    saves.let_go_of_tree();
    let state = saves.shown.now();
    let snapshot = &state.snapshot;
    let checked = check_written(snapshot, written, saves.options.validate, may_be_cut)?;
    let what = match written.put_back.as_str() {
        "" => "tree saved".to_owned(),
        put_back => format!("tree saved, {put_back} put back,"),
    };
    let text = Arc::clone(&written.text);
    // a large tree that no request has needed so far is not kept while FILE is written, nor after that
    let unasked = text.len() > MAX_PREPARED && snapshot.is_unread() && !state.is_named();
    let checked = Some(checked).filter(|_| !unasked);
    let done = saves.commit(writer, &Edit::text(text), &what, None, None, checked);
    if is_saved(&done) {
        locked(&saves.news).forget_refusals(None);
    }
    done
}

/// Whether what was to be saved is not valid.
pub(super) fn is_rejected(saved: &Result<()>) -> bool {
    matches!(saved, Err(Error::Library(Library::Rejected { .. })))
}

/// Why a text in which no document has begun is refused.
fn unfinished_text() -> Error {
    Error::Library(Library::Rejected {
        at: Place::File,
        why: "no tree begins in the text: it has no line that begins with ---".to_owned(),
        advice: "write all of it, from the #ASDF line on".to_owned(),
    })
}
