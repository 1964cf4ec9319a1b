//! `--preview`: a picture of one array, or of many side by side, without a mount.

use std::fs;
use std::io::{IsTerminal, Read, Write, stdout};
use std::path::{Path, PathBuf};

use super::exit::{Exit, Failure};
use super::options::Options;
use super::{complain, counted, files, report, say_bytes};
use crate::asdf::names::SUFFIXES;
use crate::asdf::{Array, Origin, Snapshot};
use crate::error::{Error, Place};
use crate::view::picture::{Picture, Sheet, Style, best};

/// What a PNG file begins with.
const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// What stands for standard output.
const STANDARD_OUTPUT: &str = "-";
/// Points of the longer side of a sheet.
const SHEET: u16 = 1536;
/// The smallest sheet of a file.
const LEAST_SHEET: u16 = 400;

/// Writes the picture of the array at `path` in the tree of `file` to `out`; without a path, all that are worth it side by side, and of a
/// directory those of each file in it. The status is that of the last array that can't be read.
pub(super) fn write(
    out: &Path,
    file: &Path,
    path: Option<&PathBuf>,
    options: &Options,
    size: Option<u16>,
) -> Result<Exit, Failure> {
    check_replaceable(out, SIGNATURE, "PNG")?;
    let style = Style {
        size: size.unwrap_or(options.shown.style.size),
        ..options.shown.style
    };
    let of_sheet = Style {
        size: size.unwrap_or(SHEET),
        ..style
    };
    if file.is_dir() {
        return directory(out, file, path, options, of_sheet);
    }
    let snapshot = report::read(file, options)?;
    let (arrays, plane) = match path {
        Some(path) => {
            let wanted = path.to_string_lossy();
            let found = find(&snapshot, &wanted);
            let missing = || Failure::of(Exit::Other, file, missing(&snapshot, &wanted));
            let (array, plane) = found.ok_or_else(missing)?;
            (vec![array], plane)
        }
        // so small, a sheet shows nothing
        None if size.is_some_and(|size| size < LEAST_SHEET) => {
            (largest(&snapshot, style).into_iter().collect(), Vec::new())
        }
        None => (best(&snapshot, style), Vec::new()),
    };
    let mut status = Exit::Ok;
    let drawn = match *arrays {
        [] => {
            let why = "no array to make a picture of";
            return Err(Failure::of(Exit::Other, file, why));
        }
        [array] => one(&snapshot, file, (array, &plane), style)?,
        _ => {
            let mut sheet = Sheet::new(arrays.len(), of_sheet);
            for array in arrays {
                if let Err(failure) = add(&mut sheet, &snapshot, file, array, None) {
                    complain(&failure.message);
                    status = failure.exit;
                }
            }
            finished(sheet, file)?
        }
    };
    save(out, &drawn)?;
    Ok(status)
}

/// Writes a sheet with the picture of each file of a directory. The status is that of the last file that can't be read.
fn directory(
    out: &Path,
    directory: &Path,
    path: Option<&PathBuf>,
    options: &Options,
    style: Style,
) -> Result<Exit, Failure> {
    let files = files::all(&[directory.to_owned()], &options.matching);
    let mut sheet = Sheet::new(files.len(), style);
    let mut status = Exit::Ok;
    for (file, found) in &files {
        let drawn = found.clone().and_then(|()| {
            let snapshot = report::read(file, options)?;
            let array = match path {
                Some(path) => find(&snapshot, &path.to_string_lossy()).map(|(array, _)| array),
                None => largest(&snapshot, style),
            };
            let name = file.strip_prefix(directory).unwrap_or(file);
            let name = name.to_string_lossy();
            array.map_or(Ok(()), |array| {
                add(&mut sheet, &snapshot, file, array, Some(&name))
            })
        });
        if let Err(failure) = drawn {
            complain(&failure.message);
            status = failure.exit;
        }
    }
    if sheet.is_empty() {
        if status != Exit::Ok {
            return Ok(status);
        }
        let why = match path {
            Some(path) => format!(
                "no file has an array at {}; --list shows their paths",
                path.display()
            ),
            None => "no file with an array to make a picture of".to_owned(),
        };
        return Err(Failure::of(Exit::Other, directory, why));
    }
    save(out, &finished(sheet, directory)?)?;
    Ok(status)
}

/// The file of a sheet. Says how many pictures are not on it.
fn finished(sheet: Sheet, of: &Path) -> Result<Vec<u8>, Failure> {
    let (drawn, left_out) = sheet.file().map_err(|error| Failure::within(of, &error))?;
    if left_out > 0 {
        let left_out = counted(left_out, "picture");
        complain(&format!(
            "{}: the sheet is full; it lacks {left_out}",
            of.display()
        ));
    }
    Ok(drawn)
}

/// The PNG file of the picture of an array: of the plane at these indices of its first axes.
fn one(
    snapshot: &Snapshot,
    file: &Path,
    (array, plane): (usize, &[u64]),
    style: Style,
) -> Result<Vec<u8>, Failure> {
    let picture = snapshot.picture(array, plane, style);
    let picture = picture.map_err(|error| Failure::within(file, &error))?;
    let drawn = picture
        .draw(&|i| snapshot.array_bin(i))
        .map(|(file, _)| file);
    drawn.map_err(|error| unreadable(snapshot, file, &picture, array, error))
}

/// Draws the picture of an array of a file on a sheet, with the name of the file if there are several.
fn add(
    sheet: &mut Sheet,
    snapshot: &Snapshot,
    file: &Path,
    array: usize,
    name: Option<&str>,
) -> Result<(), Failure> {
    let picture = snapshot.picture(array, &[], sheet.style());
    let picture = picture.map_err(|error| Failure::within(file, &error))?;
    let picture = match name {
        Some(name) => picture.of_file(name),
        None => picture,
    };
    let added = sheet.add(&picture, &|i| snapshot.array_bin(i));
    added.map_err(|error| unreadable(snapshot, file, &picture, array, error))
}

/// Why the elements of an array can't be had, said of its block if it has one.
fn unreadable(
    snapshot: &Snapshot,
    file: &Path,
    picture: &Picture,
    array: usize,
    error: Error,
) -> Failure {
    let error = match snapshot.arrays().get(array).map(Array::origin) {
        Some(Origin::Block(n)) => error.at(Place::Block(*n)),
        _ => error,
    };
    let failure = Failure::within(file, &error);
    let [path, _] = &picture.caption;
    Failure {
        message: format!("{} (array {path})", failure.message),
        ..failure
    }
}

/// What is said where there is no array.
fn missing(snapshot: &Snapshot, wanted: &str) -> String {
    let below = format!("{}/", wanted.trim_end_matches('/'));
    let mut paths = snapshot.arrays().iter().map(Array::path);
    match paths.find(|path| path.starts_with(&below)) {
        Some(path) => format!("no array at {wanted}; did you mean {path}?"),
        None => format!("no array at {wanted}; --list shows their paths"),
    }
}

/// The array at a path of the tree, or of the files in a mount, and the indices behind that which choose a plane.
fn find(snapshot: &Snapshot, wanted: &str) -> Option<(usize, Vec<u64>)> {
    let wanted = wanted.trim_end_matches('/');
    let mut file = ["arrays/", "previews/"].iter();
    let file = file.find_map(|directory| wanted.strip_prefix(directory));
    let endings = SUFFIXES.iter().chain(&[".png"]);
    let file = file.unwrap_or(wanted);
    let file = endings
        .into_iter()
        .find_map(|ending| file.strip_suffix(ending))
        .unwrap_or(file);
    let mut plane = Vec::new();
    let (mut tree_path, mut file_path) = (wanted, file);
    loop {
        let mut arrays = snapshot.arrays().iter();
        let is_it = |array: &Array| array.path() == tree_path || array.file_path() == file_path;
        if let Some(i) = arrays.position(is_it) {
            return Some((i, plane));
        }
        let (rest, index) = file_path.rsplit_once('/')?;
        plane.insert(0, index.parse().ok()?);
        (tree_path, file_path) = (rest, rest);
    }
}

/// The array of a file that stands for it: the largest of those that are worth a picture, and of equal ones the first.
fn largest(snapshot: &Snapshot, style: Style) -> Option<usize> {
    let arrays = best(snapshot, style).into_iter();
    arrays.rev().max_by_key(|i| {
        let shape = snapshot.arrays().get(*i).and_then(Array::shape);
        let shape = shape.unwrap_or_default();
        let count = shape.iter().fold(1_u64, |n, len| n.saturating_mul(*len));
        (shape.len() > 1, count)
    })
}

/// Writes a file that was made; `-` is standard output. What could not be written whole is not left behind.
pub(super) fn save(out: &Path, made: &[u8]) -> Result<(), Failure> {
    if out == Path::new(STANDARD_OUTPUT) {
        return say_bytes(made);
    }
    let file = fs::File::create(out);
    // a file that can't be opened stays as it is
    let mut file = file.map_err(|error| cannot_write(out, &error))?;
    file.write_all(made).map_err(|error| {
        if let Ok(begun) = out.canonicalize()
            && begun.is_file()
        {
            // what can't be removed is no whole file, as every reader of such files notices
            let _ = fs::remove_file(begun);
        }
        cannot_write(out, &error)
    })
}

/// Refuses to replace a file that is neither empty nor begins like those that are made, and to write such bytes to a terminal.
pub(super) fn check_replaceable(out: &Path, begins: &[u8], kind: &str) -> Result<(), Failure> {
    if out == Path::new(STANDARD_OUTPUT) {
        let why = "standard output is a terminal; name a file, or send it to another program";
        let refused = stdout()
            .is_terminal()
            .then(|| Failure::of(Exit::Usage, out, why));
        return refused.map_or(Ok(()), Err);
    }
    if fs::metadata(out).is_ok_and(|it| !it.is_file() && !it.is_dir()) {
        // nothing in a pipe or device is replaced; reading a pipe would wait for its end
        return Ok(());
    }
    let mut start = Vec::new();
    match fs::File::open(out) {
        Err(_) if !out.exists() => {
            let directory = out.parent().filter(|it| !it.as_os_str().is_empty());
            let missing = directory.filter(|it| it.try_exists().is_ok_and(|there| !there));
            // now, before anything is made for it
            return missing.map_or(Ok(()), |directory| {
                let directory = directory.display();
                let why = format!("no such directory; mkdir -p {directory} makes it");
                Err(Failure::of(Exit::Other, out, why))
            });
        }
        Err(error) => return Err(cannot_write(out, &error)),
        Ok(file) => file
            .take(begins.len().try_into().unwrap_or(u64::MAX))
            .read_to_end(&mut start)
            .map_err(|error| cannot_write(out, &error))?,
    };
    if start.is_empty() || start == begins {
        return Ok(());
    }
    let why = format!("exists and is not a {kind}: choose another OUT");
    Err(Failure::of(Exit::Usage, out, why))
}

fn cannot_write(out: &Path, error: &std::io::Error) -> Failure {
    Failure::of(Exit::Other, out, error)
}
