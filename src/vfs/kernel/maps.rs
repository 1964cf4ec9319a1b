//! What programs have changed in maps of a file: the kernel has it in its pages, and hands it over when it forgets them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::{Kernel, Node};
use crate::vfs::{Error, Result};

/// Has the kernel forget the pages of a file, in a thread of its own. The sender is dropped when the kernel has handed over what maps have
/// changed.
pub(super) type HandOver = dyn Fn(Node) -> io::Result<Receiver<()>> + Send + Sync;

/// Why a file is not renamed.
const NOT_HANDED_OVER: &str =
    "the kernel has not handed over all that a program has changed through a map of it: try again";

/// So many bytes of a file let the wait for a piece last a millisecond longer.
const LEN_PER_MILLISECOND: u64 = 64 << 10;

/// The pieces of maps that the kernel hands over.
#[derive(Default)]
pub(super) struct Pieces {
    /// How many have been taken in.
    taken_in: AtomicU64,
    /// How many are being taken in.
    under_way: AtomicU64,
}

/// A piece of a map that is being taken in.
pub(in crate::vfs) struct Piece<'a>(&'a Pieces);

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.0.taken_in.fetch_add(1, Ordering::AcqRel);
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pieces {
    /// How many have been taken in so far, if none is under way.
    fn at_rest(&self) -> Option<u64> {
        let idle = self.under_way.load(Ordering::Acquire) == 0;
        idle.then(|| self.taken_in.load(Ordering::Acquire))
    }
}

impl Kernel {
    /// How the kernel is asked for what maps have changed; the first call counts.
    pub fn ask_for_maps(
        &self,
        ask: impl Fn(Node) -> io::Result<Receiver<()>> + Send + Sync + 'static,
    ) {
        let _ = self.hand_over.set(Box::new(ask));
    }

    /// Notes that the kernel hands over a piece of a map, until the guard is dropped.
    pub(in crate::vfs) fn take_in_piece(&self) -> Piece<'_> {
        self.pieces.under_way.fetch_add(1, Ordering::AcqRel);
        Piece(&self.pieces)
    }

    /// Returns when all that maps of a file of `len` bytes have changed was handed over, however much that is. A page comes with each
    /// request, so a large map takes seconds.
    ///
    /// # Errors
    /// [`Error::Busy`] if none comes for as long as patience lasts: requests that wait may have taken up all threads that serve them.
    pub(in crate::vfs) fn take_in_maps(&self, file: Node, len: u64) -> Result<()> {
        // without a mount there are no maps
        let Some(ask) = self.hand_over.get() else {
            return Ok(());
        };
        let done = ask(file).map_err(|_| Error::Busy(NOT_HANDED_OVER))?;
        // the kernel also forgets the pages that no map has changed: 200 ms for a gibibyte were measured, of which nothing is seen here
        let to_forget = Duration::from_millis(len / LEN_PER_MILLISECOND);
        let patience = self.patience.saturating_add(to_forget);
        self.wait_for_pieces(|| done.recv_timeout(patience))
    }

    /// Calls `wait`, which waits for as long as patience lasts, as long as pieces come meanwhile.
    fn wait_for_pieces(
        &self,
        mut wait: impl FnMut() -> Result<(), RecvTimeoutError>,
    ) -> Result<()> {
        loop {
            let before = self.pieces.at_rest();
            if wait() != Err(RecvTimeoutError::Timeout) {
                return Ok(());
            }
            if before.is_some() && self.pieces.at_rest() == before {
                return Err(Error::Busy(NOT_HANDED_OVER));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::locked;
    use std::sync::{Mutex, mpsc};

    /// What came later than patience lasts was not in the file that was renamed.
    #[test]
    fn a_map_is_waited_for_as_long_as_pieces_come() {
        let kernel = Kernel::default();
        let late = || Err(RecvTimeoutError::Timeout);
        let mut slow = None;
        let mut times = 0;
        let waited = kernel.wait_for_pieces(|| {
            times += 1;
            match times {
                1..5 => drop(kernel.take_in_piece()),
                5 => slow = Some(kernel.take_in_piece()),
                6..10 => {}
                10 => drop(slow.take()),
                _ => return Err(RecvTimeoutError::Disconnected),
            }
            late()
        });
        waited.unwrap();
        assert_eq!(times, 11);
        let waited = kernel.wait_for_pieces(late);
        assert!(matches!(waited, Err(Error::Busy(_))));
    }

    /// A file of a gibibyte that no program had mapped was busy.
    #[test]
    fn a_long_file_is_waited_for_though_no_pieces_come() {
        let kernel = Kernel {
            patience: Duration::ZERO,
            ..Kernel::default()
        };
        let (sender, receiver) = mpsc::channel::<()>();
        let (sender, receiver) = (Mutex::new(Some(sender)), Mutex::new(Some(receiver)));
        kernel.ask_for_maps(move |_| {
            let sender = locked(&sender).take();
            std::thread::spawn(|| drop(sender));
            Ok(locked(&receiver).take().unwrap())
        });
        kernel.take_in_maps(Node::Text(1), 1 << 40).unwrap();
    }
}
