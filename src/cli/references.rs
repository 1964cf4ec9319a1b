//! `--references`: the arrays of files as references into them, for readers of Zarr that do without this program.

use std::path::Path;

use super::exit::{Exit, Failure};
use super::far::expanded;
use super::options::Options;
use super::{complain, report, say_bytes};
use crate::view::zarr::{References, node_name};

/// Prints the references to the arrays of a file, or of all below a directory or a prefix: each file is a group with its path below that.
/// Says what is left out. The status is that of the last file that can't be read.
pub(super) fn print(given: &Path, options: &Options) -> Result<Exit, Failure> {
    let (files, options) = expanded(&[given.to_owned()], options)?;
    let mut status = Exit::Ok;
    let mut references = References::default();
    for (path, found) in &files {
        let added = found
            .clone()
            .and_then(|()| add(&mut references, path, given, &options));
        if let Err(failure) = added {
            complain(&failure.message);
            status = failure.exit;
        }
    }
    // references to nothing would pass for those of a file without arrays
    let is_one_file = matches!(&*files, [(path, _)] if path == given);
    if is_one_file && !matches!(status, Exit::Ok) {
        return Ok(status);
    }
    say_bytes(references.into_json().as_bytes())?;
    Ok(status)
}

/// Adds the arrays of a file.
fn add(all: &mut References, path: &Path, given: &Path, options: &Options) -> Result<(), Failure> {
    let snapshot = report::read(path, options)?;
    let url = options.urls.address(path)?;
    let below = path.strip_prefix(given).unwrap_or(path);
    let parts = below
        .iter()
        .map(|part| node_name(&part.to_string_lossy(), false));
    let group: String = parts.map(|name| name + "/").collect();
    for (array, why) in all.add(&snapshot, &url, &group) {
        complain(&format!("{}: left out: {array}: {why}", path.display()));
    }
    Ok(())
}
