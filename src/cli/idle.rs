//! `-o idle`: the unmount of what is not used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use log::info;
use rustix::mount::UnmountFlags;

use super::exit::{Exit, Failure};
use super::unmount;
use crate::collection::Collection;
use crate::source::Mounted;

/// The longest that a mount with `-o idle` is not looked at.
const IDLE_STEP: Duration = Duration::from_secs(10);

/// Unmounts when no request has come for `limit`, if nothing of the mount is open and nothing would be lost.
pub(super) fn unmount_when_idle(
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
                let now = requests.load(Ordering::Relaxed);
                if now != last || !files.losses().is_empty() {
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
