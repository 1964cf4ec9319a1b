//! `hdus/`: every unit of the FITS file around the ASDF file, its header and its data as they are stored.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use super::node::Node;
use super::{Error, Result, index};
use crate::asdf::Snapshot;
use crate::asdf::names::encode;
use crate::source::Source;

/// The directory's name in the root.
pub(super) const NAME: &str = "hdus";

/// The files of `hdus/`.
pub(super) fn entries(snapshot: &Snapshot) -> Vec<(OsString, Node)> {
    let Some(fits) = snapshot.fits() else {
        return Vec::new();
    };
    let numbered = (0..).zip(fits.hdus());
    numbered
        .flat_map(|(n, hdu)| {
            let stem = encode(&hdu.file_stem(n));
            [
                (format!("{stem}.bin").into(), Node::HduBin(n)),
                (format!("{stem}.hdr").into(), Node::HduHeader(n)),
            ]
        })
        .collect()
}

/// The file of that name in `hdus/`.
pub(super) fn lookup(snapshot: &Snapshot, name: &OsStr) -> Option<Node> {
    let found = entries(snapshot).into_iter().find(|entry| entry.0 == name);
    found.map(|entry| entry.1)
}

/// The bytes of a file of `hdus/`.
pub(super) fn source(snapshot: &Snapshot, node: Node) -> Result<Arc<dyn Source>> {
    let fits = snapshot.fits().ok_or(Error::NotFound)?;
    let found = match node {
        Node::HduHeader(n) if index(n) < fits.hdus().len() => fits.header(index(n)),
        Node::HduBin(n) if index(n) < fits.hdus().len() => fits.data(index(n)),
        _ => return Err(Error::NotFound),
    };
    Ok(found?)
}
