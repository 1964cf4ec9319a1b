//! Where the bytes of elements go.

use crate::asdf::datatype::{ByteOrder, Datatype};
use crate::asdf::tree::Node;
use crate::error::Result;
use crate::source::at_most;

/// The bytes of elements; `None` if the elements are only checked. A check must not cost the memory of their padding, which a
/// hostile datatype makes as long as it likes.
pub(super) struct Output<'a>(pub(super) Option<&'a mut Vec<u8>>);

impl Output<'_> {
    /// Appends the bytes of a little-endian number in the given order.
    pub(super) fn push(&mut self, bytes: &[u8], order: ByteOrder) {
        let Some(out) = &mut self.0 else { return };
        match order {
            ByteOrder::Little => out.extend_from_slice(bytes),
            ByteOrder::Big => out.extend(bytes.iter().rev()),
        }
    }

    /// Appends zeros.
    pub(super) fn pad(&mut self, len: u64) {
        let Some(out) = &mut self.0 else { return };
        let len = at_most(len, usize::MAX);
        out.resize(out.len().saturating_add(len), 0);
    }
}

/// The bytes of one element that is written at a node; `Corrupt` with the line if it does not fit.
pub(in crate::asdf) fn element(node: Node<'_>, datatype: &Datatype) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    super::encode(node, datatype, &mut Output(Some(&mut bytes))).map(|_| bytes)
}
