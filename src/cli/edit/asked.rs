//! Signals that come while another program has the terminal.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::low_level::pipe;

use crate::cli::exit::{Exit, Failure};
use crate::cli::interrupt::heeded;

/// Signals that come while another program has the terminal: that is what the keys of the terminal are for, and this process ends when
/// it is asked in another way.
pub(super) struct Asked {
    /// Has a byte once the process was asked to end.
    ends: UnixStream,
    /// Has a byte for each key that interrupts.
    keys: UnixStream,
}

impl Asked {
    /// Handles these signals from now on. A program that this one starts has their defaults.
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen = || -> std::io::Result<Self> {
            // a signal writes a byte, so that one poll(2) waits for the editor and for signals
            let (ends, end) = UnixStream::pair()?;
            let (keys, key) = UnixStream::pair()?;
            keys.set_nonblocking(true)?;
            for signal in heeded(true) {
                // Ctrl-C is a key of the editor while it runs, and ends nothing
                let told = if signal == SIGINT { &key } else { &end };
                pipe::register(signal, told.try_clone()?)?;
            }
            pipe::register(SIGQUIT, key)?;
            Ok(Self { ends, keys })
        };
        listen().map_err(|error| Failure::new(Exit::Other, format!("signals: {error}")))
    }

    /// Waits until `what` can be read or has ended; `false` if this process is asked to end before, with `keys` also by a key.
    pub(super) fn wait_for(&self, what: &impl AsFd, keys: bool) -> bool {
        let interrupts = if keys {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        loop {
            let mut waits = [
                PollFd::new(what, PollFlags::IN),
                PollFd::new(&self.ends, PollFlags::IN),
                PollFd::from_borrowed_fd(self.keys.as_fd(), interrupts),
            ];
            if poll(&mut waits, None).is_err() {
                continue;
            }
            let [what, ends, keys] = waits.map(|wait| !wait.revents().is_empty());
            return what && !ends && !keys;
        }
    }

    /// Forgets the keys of before.
    pub(super) fn forget_keys(&self) {
        let mut bytes = [0; 64];
        while (&self.keys).read(&mut bytes).is_ok_and(|len| len > 0) {}
    }
}
