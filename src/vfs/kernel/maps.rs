//! What programs have changed in maps of a file: the kernel has it in its pages, and hands it over when it forgets them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use super::{Kernel, Node};
use crate::vfs::{Error, Result};

/// Has the kernel forget the pages of a file, in a thread of its own. The sender is dropped when the kernel has handed over what maps have
/// changed.
pub(super) type HandOver = dyn Fn(Node) -> io::Result<Receiver<()>> + Send + Sync;

/// Why a file is not renamed.
const NOT_HANDED_OVER: &str =
    "the kernel has not handed over all that a program has changed through a map of it: try again";

/// Counts the pieces of maps that the kernel has handed over.
#[derive(Default)]
pub(super) struct Pieces(AtomicU64);

impl Kernel {
    /// How the kernel is asked for what maps have changed; the first call counts.
    pub fn ask_for_maps(
        &self,
        ask: impl Fn(Node) -> io::Result<Receiver<()>> + Send + Sync + 'static,
    ) {
        let _ = self.hand_over.set(Box::new(ask));
    }

    /// Notes that the kernel has handed over a piece of a map.
    pub(in crate::vfs) fn note_piece(&self) {
        self.pieces.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when all that maps of a file have changed was handed over, however much that is. A page comes with each request, so a
    /// large map takes seconds.
    ///
    /// # Errors
    /// [`Error::Busy`] if none comes for as long as patience lasts: then other threads that wait may take up all that serve requests.
    pub(in crate::vfs) fn take_in_maps(&self, file: Node) -> Result<()> {
        // without a mount there are no maps
        let Some(ask) = self.hand_over.get() else {
            return Ok(());
        };
        let done = ask(file).map_err(|_| Error::Busy(NOT_HANDED_OVER))?;
        self.wait_for_pieces(|| done.recv_timeout(self.patience))
    }

    /// Calls `wait`, which waits for as long as patience lasts, as long as pieces come meanwhile.
    fn wait_for_pieces(
        &self,
        mut wait: impl FnMut() -> Result<(), RecvTimeoutError>,
    ) -> Result<()> {
        loop {
            let before = self.pieces.0.load(Ordering::Relaxed);
            if wait() != Err(RecvTimeoutError::Timeout) {
                return Ok(());
            }
            if self.pieces.0.load(Ordering::Relaxed) == before {
                return Err(Error::Busy(NOT_HANDED_OVER));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came later than patience lasts was not in the file that was renamed.
    #[test]
    fn a_map_is_waited_for_as_long_as_pieces_come() {
        let kernel = Kernel::default();
        let mut times = 0;
        let waited = kernel.wait_for_pieces(|| {
            times += 1;
            kernel.note_piece();
            if times < 10 {
                Err(RecvTimeoutError::Timeout)
            } else {
                Err(RecvTimeoutError::Disconnected)
            }
        });
        waited.unwrap();
        assert_eq!(times, 10);
        let waited = kernel.wait_for_pieces(|| Err(RecvTimeoutError::Timeout));
        assert!(matches!(waited, Err(Error::Busy(_))));
    }
}
