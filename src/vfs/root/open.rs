//! An open file of the root, with its own version of the text while that is edited.

use std::sync::Arc;

use super::{Number, Root, TREE_NAME};
use crate::vfs::{Access, Error};

/// A handle's own version of the text.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) bytes: Arc<Vec<u8>>,
    /// Whether it was changed since it was last saved.
    pub(super) touched: bool,
}

impl Draft {
    /// Whether a YAML document has begun: whether a line begins with `---`.
    fn has_document(&self) -> bool {
        self.bytes
            .split(|&byte| byte == b'\n')
            .any(|line| line.starts_with(b"---"))
    }

    /// Whether it may be the beginning of a text, that is not to be saved: nothing, or lines of comment without a document.
    pub(super) fn is_beginning(&self) -> bool {
        self.is_blank() || (self.bytes.starts_with(b"#") && !self.has_document())
    }

    /// Whether nothing was written but blanks and the zeros of a hole.
    pub(super) fn is_blank(&self) -> bool {
        let blank = |&byte: &u8| byte == 0 || byte.is_ascii_whitespace();
        self.bytes.iter().all(blank)
    }
}

/// An open file of the root. It lives in the handle table; its draft changes under the lock of the root.
#[derive(Debug)]
pub(in crate::vfs) struct TextHandle {
    pub(super) number: Number,
    /// Only of `tree.yaml`.
    pub(super) draft: Option<Draft>,
    opener: u32,
    /// Whether each write goes behind what is there then.
    pub(super) appends: bool,
    /// The root's when it was opened.
    epoch: u64,
    /// What was refused last when it was to be saved through this.
    pub(super) refused: Option<Refusal>,
}

impl Root {
    /// The text that `tree.yaml` shows to a handle that opens it: that which was refused last and waits to be mended, else FILE's.
    pub(super) fn current(&self) -> &Arc<Vec<u8>> {
        let pending = self.pending.as_ref().map(|pending| &pending.text);
        pending.unwrap_or(&self.committed)
    }

    /// Has `tree.yaml` show the text that a handle that opens it is to see: in another file, if that of before is open. Its number.
    pub(in crate::vfs) fn show_current(&mut self) -> Option<Number> {
        let number = self.lookup(TREE_NAME.as_ref())?;
        if self.file(number).ok()?.handles > 0 {
            return self.supersede(number);
        }
        self.show(number, Arc::clone(self.current())).ok()?;
        Some(number)
    }
}

/// A text that was refused.
#[derive(Debug)]
pub(super) struct Refusal {
    text: Arc<Vec<u8>>,
    why: Error,
    /// FILE's text then.
    committed: Arc<Vec<u8>>,
}

impl TextHandle {
    pub(super) fn new(number: Number, access: Access, epoch: u64) -> Self {
        Self {
            number,
            draft: None,
            opener: access.pid,
            appends: access.append,
            epoch,
            refused: None,
        }
    }

    /// The file that is open.
    #[must_use]
    pub(in crate::vfs) fn number(&self) -> Number {
        self.number
    }

    /// Process that opened it; 0 if unknown.
    #[must_use]
    pub(in crate::vfs) fn opener(&self) -> u32 {
        self.opener
    }

    /// The file that it is of, and its [epoch](Self::epoch).
    #[must_use]
    pub(in crate::vfs) fn origin(&self) -> (Number, u64) {
        (self.number, self.epoch)
    }

    /// The root's epoch when it was opened, or when the text was that it showed then.
    #[must_use]
    pub(in crate::vfs) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Notes that a text is refused, while FILE's is `committed`.
    pub(in crate::vfs) fn note_refused(
        &mut self,
        text: Arc<Vec<u8>>,
        why: Error,
        committed: Arc<Vec<u8>>,
    ) {
        self.refused = Some(Refusal {
            text,
            why,
            committed,
        });
    }

    /// Whether a text was refused already.
    #[must_use]
    pub(in crate::vfs) fn has_refused(&self, text: &Arc<Vec<u8>>) -> bool {
        let refused = self.refused.as_ref();
        refused.is_some_and(|refusal| refusal.text == *text)
    }

    /// Why a text was refused, if FILE has got another one since.
    #[must_use]
    pub(in crate::vfs) fn outdated_refusal(
        &self,
        text: &Arc<Vec<u8>>,
        committed: &Arc<Vec<u8>>,
    ) -> Option<&Error> {
        let refusal = self.refused.as_ref()?;
        let outdated = refusal.text == *text
            && *committed != *text
            && !Arc::ptr_eq(&refusal.committed, committed);
        outdated.then_some(&refusal.why)
    }
}
