//! `-o idle` and `-o until-eof`: the unmount of what is not used any more.

use std::io::{ErrorKind, Read, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use log::info;
use rustix::mount::UnmountFlags;

use super::ending::Ending;
use super::exit::{Exit, Failure};
use super::options::Options;
use super::unmount;
use crate::collection::Collection;
use crate::fuse::Mount;
use crate::source::Mounted;

/// The longest that a mount with `-o idle` is not looked at.
const IDLE_STEP: Duration = Duration::from_secs(10);

/// Has a mount unmounted when the options say so.
pub(super) fn watch(
    files: &Arc<Collection>,
    mount: &Mount,
    options: &Options,
    ending: &Ending,
) -> Result<(), Failure> {
    if options.until_eof {
        end_with_input(ending.clone())?;
    }
    let (Some(limit), Some(mounted)) = (options.idle, mount.mounted()) else {
        return Ok(());
    };
    let requests = Arc::clone(mount.requests());
    unmount_when_idle(files, requests, mounted.clone(), limit)
}

/// Unmounts when no request has come for `limit`, if nothing of the mount is open and nothing would be lost.
fn unmount_when_idle(
    files: &Arc<Collection>,
    requests: Arc<AtomicU64>,
    mounted: Mounted,
    limit: Duration,
) -> Result<(), Failure> {
    let files = Arc::downgrade(files);
    let step = limit.checked_div(4).unwrap_or(limit).min(IDLE_STEP);
    std::thread::Builder::new()
        .name("idle".to_owned())
        .spawn(move || {
            let (mut last, mut since) = (requests.load(Ordering::Relaxed), Instant::now());
            loop {
                std::thread::sleep(step);
                let Some(files) = files.upgrade() else { return };
                // what exists only in the mount keeps it mounted
                let keeps = !files.losses().is_empty();
                // after that: a request that has come since may have left something
                let now = requests.load(Ordering::Relaxed);
                if now != last || keeps {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() >= limit {
                    // while something is open in it, it is busy and stays
                    match unmount::unmount(&mounted, UnmountFlags::empty()) {
                        Ok(()) => return info!("unused for {limit:?}: unmounted"),
                        Err(_) => since = Instant::now(),
                    }
                }
            }
        })
        .map(drop)
        .map_err(|error| Failure::new(Exit::Other, format!("-o idle: {error}")))
}

/// Ends a mount when standard input ends: with the process that holds the other end of the pipe, however that process ends.
fn end_with_input(ending: Ending) -> Result<(), Failure> {
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            let mut ignored = [0; 256];
            let mut input = stdin().lock();
            while match input.read(&mut ignored) {
                Ok(len) => len > 0,
                Err(error) => error.kind() == ErrorKind::Interrupted,
            } {}
            info!("standard input has ended: unmounting");
            ending.end();
        })
        .map(drop)
        .map_err(|error| Failure::new(Exit::Other, format!("-o until-eof: {error}")))
}
