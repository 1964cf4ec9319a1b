//! `--list`: what a mount would show. (`--check` is in `check`.)

use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::exit::{Exit, Failure};
use super::options::Options;
use super::say_bytes;
use crate::asdf::external::Sandbox;
use crate::asdf::fits::Fits;
use crate::asdf::names::encode;
use crate::asdf::{OpenOptions, Snapshot};
use crate::codec::{Cache, code_text};

/// Reads a file without changing or locking it.
pub(super) fn read(path: &Path, options: &Options) -> Result<Snapshot, Failure> {
    let fail =
        |error: std::io::Error| Failure::new(Exit::File, format!("{}: {error}", path.display()));
    let full = path.canonicalize().map_err(fail)?;
    if !full.is_file() {
        return Err(Failure::new(
            Exit::File,
            format!("{}: not a regular file", path.display()),
        ));
    }
    let sandbox = Sandbox::new(&full, options.allow_external.as_deref())
        .ok()
        .map(Arc::new);
    let open = OpenOptions {
        force: options.force,
        sandbox,
    };
    Snapshot::open(
        Arc::new(File::open(&full).map_err(fail)?),
        Cache::new(options.cache),
        open,
    )
    .map_err(|error| Failure::reading(path, &error))
}

/// Prints the files of a mount with their sizes, one a line.
pub(super) fn list(path: &Path, options: &Options) -> Result<Exit, Failure> {
    let snapshot = read(path, options)?;
    let mut out = String::new();
    let mut line = |size: u64, name: &str, note: &str| {
        // writing to a string can't fail
        let _ = writeln!(
            out,
            "{size:>14}  {name}{}{note}",
            if note.is_empty() { "" } else { "  " }
        );
    };
    line(snapshot.layout().text_end, "tree.yaml", "");
    for (n, header) in snapshot.layout().blocks.iter().enumerate() {
        let size = snapshot.block_len(n).unwrap_or(0);
        line(
            size,
            &format!("blocks/{n}.bin"),
            &code_text(header.compression),
        );
    }
    for (n, hdu) in (0..).zip(snapshot.fits().map_or(&[][..], Fits::hdus)) {
        let stem = encode(&hdu.file_stem(n));
        line(hdu.header.len(), &format!("hdus/{stem}.hdr"), "");
        line(hdu.data.len(), &format!("hdus/{stem}.bin"), "");
    }
    for array in snapshot.arrays() {
        let name = format!("arrays/{}", array.file_names().join("/"));
        if let Some(error) = array.problem() {
            line(0, &name, &format!("(no file: {error})"));
            continue;
        }
        let note = [array.datatype_text(), array.shape_text()]
            .map(Option::unwrap_or_default)
            .join(" ");
        line(array.bin_len(), &format!("{name}.bin"), &note);
        line(array.npy_len(), &format!("{name}.npy"), "");
    }
    say_bytes(out.as_bytes())?;
    Ok(Exit::Ok)
}
