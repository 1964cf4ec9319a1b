//! What FILE was when it was read, to notice that somebody else has changed it.

use std::ffi::OsStr;
use std::sync::Arc;

use super::digest::{Digest, Hasher};
use super::store::{Stat, Store};
use super::view::View;
use crate::asdf::layout::Layout;
use crate::asdf::scan::Scan;
use crate::error::{Error, Result};
use crate::source::Source;

/// Identity, length and times of FILE, and the SHA-256 of all that its layout hangs on.
///
/// Block data are not looked at: they may be larger than can be read at each save, and no save depends on what they are.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    pub(super) stat: Stat,
    head: Digest,
    headers: Digest,
}

/// How FILE differs from its baseline.
#[derive(Debug)]
pub(super) enum Drift {
    /// Not at all, or only in its times, which the new baseline takes in.
    Same(Baseline),
    /// It is another file, or has other bytes: how.
    Changed(String),
}

/// What [`Writer::reload`](super::Writer::reload) finds of FILE.
#[derive(Debug)]
pub enum Reload {
    /// Nobody has touched it.
    Same,
    /// Somebody has, but its text and block headers are what they were. The data of blocks may have changed.
    Touched,
    /// It has other bytes, or another file has its name.
    Changed(Scan),
}

impl Baseline {
    /// FILE as it is now.
    pub(super) fn take<S: Store>(store: &Arc<S>, file: &S::File, layout: &Layout) -> Result<Self> {
        let stat = store
            .stat(file)
            .map_err(|cause| Error::io("reading the file's state", cause))?;
        let view = View::open(store, file)?;
        Ok(Self {
            stat,
            head: head(&view, layout)?,
            headers: headers(&view, layout)?,
        })
    }

    /// Compares with FILE as it is now, by its name and by its content.
    ///
    /// The content is read in any case, because the clocks of some filesystems are too coarse to tell two writes apart.
    pub(super) fn drift<S: Store>(
        &self,
        store: &Arc<S>,
        name: &OsStr,
        file: &S::File,
        layout: &Layout,
    ) -> Result<Drift> {
        let changed = |why: &str| Ok(Drift::Changed(format!("{} {why}", name.display())));
        match store.stat_name(name) {
            Ok(named) if named.id == self.stat.id => {}
            Ok(_) => return changed("has been replaced by another file since it was read"),
            Err(_) => return changed("is no longer there under its name"),
        }
        let stat = store
            .stat(file)
            .map_err(|cause| Error::io("reading the file's state", cause))?;
        if stat.size != self.stat.size {
            let (was, is) = (self.stat.size, stat.size);
            return changed(&format!("has {is} bytes, it had {was} when it was read"));
        }
        let view = View::open(store, file)?;
        let now = Self {
            stat,
            head: head(&view, layout)?,
            headers: headers(&view, layout)?,
        };
        if now.head != self.head || now.headers != self.headers {
            return changed("has been changed by another program since it was read");
        }
        Ok(Drift::Same(now))
    }

    /// Whether nobody has touched the file since.
    pub(super) fn same_moment(&self, stat: &Stat) -> bool {
        let moment = |stat: &Stat| (stat.id, stat.size, stat.mtime, stat.ctime);
        moment(&self.stat) == moment(stat)
    }
}

/// The SHA-256 of everything in front of the first block.
fn head(file: &dyn Source, layout: &Layout) -> Result<Digest> {
    const STEP: u64 = 1 << 20;
    let end = layout.head().end.min(file.len());
    let mut hasher = Hasher::default();
    let mut at = 0;
    while at < end {
        let len = end.saturating_sub(at).min(STEP);
        let mut buf = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(&mut buf, at)?;
        hasher.update(&buf);
        at = at.saturating_add(len);
    }
    Ok(hasher.finish())
}

/// The SHA-256 of all block headers.
fn headers(file: &dyn Source, layout: &Layout) -> Result<Digest> {
    let mut hasher = Hasher::default();
    for block in &layout.blocks {
        let mut header = [0; 54];
        file.read_exact_at(&mut header, block.offset)?;
        hasher.update(&header);
    }
    Ok(hasher.finish())
}
