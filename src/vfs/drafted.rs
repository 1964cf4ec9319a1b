//! An array in a block that is being edited. A block that was emptied, to be written anew, can't hold its arrays for a while; they
//! go on showing what is saved until it can.

use std::sync::{Arc, OnceLock};

use super::format::Format;
use crate::asdf::Snapshot;
use crate::error::Result;
use crate::source::{Borrower, Loan, Overlay, Source};

/// An array over a draft, or over the saved block while the draft is too short for it. Its length is the same in both.
struct Drafted {
    snapshot: Arc<Snapshot>,
    array: usize,
    format: Format,
    draft: Arc<Overlay>,
    /// The array in the draft, made once that can hold it.
    edited: OnceLock<Arc<dyn Source>>,
    saved: Arc<dyn Source>,
}

/// A file of array `i` with the edits of its block.
pub(super) fn drafted(
    snapshot: &Arc<Snapshot>,
    i: usize,
    format: Format,
    draft: Arc<Overlay>,
) -> Result<Arc<dyn Source>> {
    let to_end = |array: &crate::asdf::Array| array.goes_to_the_end();
    match format.saved(snapshot, i) {
        // one that follows the end of its block is as long as the draft makes it
        Ok(saved) if !snapshot.arrays().get(i).is_some_and(to_end) => Ok(Arc::new(Drafted {
            snapshot: Arc::clone(snapshot),
            array: i,
            format,
            draft,
            edited: OnceLock::new(),
            saved,
        })),
        _ => format.over(snapshot, i, draft),
    }
}

impl Drafted {
    /// The array in the draft, if that can hold it now.
    fn edited(&self) -> Option<&Arc<dyn Source>> {
        self.snapshot
            .array_view(self.array, self.draft.len())
            .ok()?;
        if let Some(edited) = self.edited.get() {
            return Some(edited);
        }
        // emptied meanwhile, it can't be made
        let draft = Arc::clone(&self.draft);
        let made = self.format.over(&self.snapshot, self.array, draft).ok()?;
        Some(self.edited.get_or_init(|| made))
    }
}

impl Source for Drafted {
    fn len(&self) -> u64 {
        self.saved.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let Some(edited) = self.edited() else {
            return self.saved.read_exact_at(buf, offset);
        };
        let read = edited.read_exact_at(buf, offset);
        // it may have been emptied while it was read
        if read.is_err() && self.edited().is_none() {
            return self.saved.read_exact_at(buf, offset);
        }
        read
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Option<Loan> {
        self.edited().unwrap_or(&self.saved).lend(offset, len, to)
    }
}

#[cfg(test)]
mod tests {
    use crate::asdf::sample::Sample;
    use crate::vfs::node::Node;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, Bytes, Format, Vfs};

    const TEXT: &[u8] =
        b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";

    fn read(vfs: &Vfs, fh: u64) -> Vec<u8> {
        match vfs.read(fh, 0, 1 << 20).unwrap() {
            Bytes::Owned(bytes) => bytes.to_vec(),
            Bytes::Lent(..) => panic!("so few bytes are not lent"),
        }
    }

    /// A read of an array whose block was emptied and was being written failed until the save.
    #[test]
    fn an_array_of_an_emptied_block_is_what_was_saved_until_it_is_written() {
        let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
        let (number, _) = vfs.state().catalogue().arrays().next().unwrap();
        let open = |node: Node, write| {
            let access = Access {
                write,
                truncate: write,
                ..Access::default()
            };
            vfs.open(node.ino(), access).unwrap().fh
        };
        let (bin, npy) = (
            open(Node::Array(number, Format::Bin), false),
            open(Node::Array(number, Format::Npy), false),
        );
        let block = open(Node::Block(0), true);
        let shows = |want: &[u8]| {
            assert_eq!(read(&vfs, bin), want);
            assert!(read(&vfs, npy).ends_with(want));
        };
        shows(b"abc");
        vfs.write(block, 0, b"AB", false).unwrap();
        shows(b"abc");
        vfs.write(block, 2, b"CD", false).unwrap();
        shows(b"ABC");
        let again = open(Node::Block(0), true);
        shows(b"abc");
        vfs.write(again, 0, b"1234", false).unwrap();
        shows(b"123");
        vfs.flush(again, 0).unwrap();
        shows(b"123");
    }
}
