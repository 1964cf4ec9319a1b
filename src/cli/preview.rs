//! `--preview`: a picture of one array, without a mount.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::exit::{Exit, Failure};
use super::options::Options;
use super::{report, say_bytes};
use crate::asdf::{Array, Origin, Snapshot};
use crate::error::{Error, Place};
use crate::view::picture::Style;

/// What a PNG file begins with.
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// What stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// Writes the picture of the array at `path` in the tree of `file` to `out`: without a path, of the first of its largest images, or of
/// its longest line.
pub(super) fn write(
    out: &Path,
    file: &Path,
    path: Option<&PathBuf>,
    options: &Options,
    size: Option<u16>,
) -> Result<Exit, Failure> {
    check_replaceable(out)?;
    let snapshot = report::read(file, options)?;
    let style = Style {
        size: size.unwrap_or(options.shown.style.size),
        ..options.shown.style
    };
    let fail = |why: &str| Failure::of(Exit::Other, file, why);
    let array = match path {
        None => largest(&snapshot, style).ok_or_else(|| fail("no array to make a picture of"))?,
        Some(path) => {
            let named = snapshot.arrays().iter();
            let named = named.map(Array::path);
            let wanted = path.to_string_lossy();
            let found = named.enumerate().find(|(_, path)| *path == wanted);
            let missing = || fail(&format!("no array at {wanted}; --list shows their paths"));
            found.ok_or_else(missing)?.0
        }
    };
    let unreadable = |error: Error| Failure::within(file, &error);
    let picture = snapshot.picture(array, style).map_err(unreadable)?;
    let elements = snapshot.array_bin(array);
    let drawn = elements.and_then(|elements| picture.draw(&*elements));
    let drawn = drawn.map_err(|error| {
        let [path, _] = picture.caption();
        let failure = unreadable(placed(&snapshot, array, error));
        Failure {
            message: format!("{} (array {path})", failure.message),
            ..failure
        }
    })?;
    save(out, &drawn)?;
    Ok(Exit::Ok)
}

/// An error of the elements of an array, said of its block if it has one.
fn placed(snapshot: &Snapshot, array: usize, error: Error) -> Error {
    match snapshot.arrays().get(array).map(Array::origin) {
        Some(Origin::Block(n)) => error.at(Place::Block(*n)),
        _ => error,
    }
}

/// Writes the picture; `-` is standard output. What could not be written whole is not left behind.
fn save(out: &Path, picture: &[u8]) -> Result<(), Failure> {
    if out == Path::new(STANDARD_OUTPUT) {
        return say_bytes(picture);
    }
    fs::write(out, picture).map_err(|error| {
        if let Ok(begun) = out.canonicalize()
            && begun.is_file()
        {
            // what can't be removed is no whole PNG file, as every reader of such files notices
            let _ = fs::remove_file(begun);
        }
        cannot_write(out, &error)
    })
}

/// Refuses to replace a file that is neither empty nor a PNG picture.
fn check_replaceable(out: &Path) -> Result<(), Failure> {
    if out == Path::new(STANDARD_OUTPUT)
        || fs::metadata(out).is_ok_and(|it| !it.is_file() && !it.is_dir())
    {
        // nothing in a pipe or device is replaced; reading a pipe would wait for its end
        return Ok(());
    }
    let mut start = Vec::new();
    match fs::File::open(out) {
        Err(_) if !out.exists() => return Ok(()),
        Err(error) => return Err(cannot_write(out, &error)),
        Ok(file) => file
            .take(8)
            .read_to_end(&mut start)
            .map_err(|error| cannot_write(out, &error))?,
    };
    if start.is_empty() || start == SIGNATURE {
        return Ok(());
    }
    let why = "exists and is not a PNG: choose another OUT";
    Err(Failure::of(Exit::Usage, out, why))
}

fn cannot_write(out: &Path, error: &std::io::Error) -> Failure {
    Failure::of(Exit::Other, out, error)
}

/// The first of the largest arrays of two axes or more, or else of one.
fn largest(snapshot: &Snapshot, style: Style) -> Option<usize> {
    let arrays = snapshot.arrays().iter().enumerate();
    let size = |(i, array): (usize, &Array)| {
        let shape = array.shape()?;
        snapshot.picture(i, style).ok()?;
        let count = shape.iter().fold(1_u64, |n, len| n.saturating_mul(*len));
        Some((i, (shape.len() > 1, count)))
    };
    // of equal ones the last is the largest
    let found = arrays.rev().filter_map(size).max_by_key(|(_, size)| *size);
    found.map(|(i, _)| i)
}
