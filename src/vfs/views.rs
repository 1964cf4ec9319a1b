//! Further files, which are only read: `fits/` and `previews/`, of arrays, in directories like those of `arrays/`; what these share with
//! `zarr/`; and `hdus/`, with every unit of the FITS file around the ASDF file, its header and its data as they are stored.
//!
//! A view has a file for each array, table or directory that it can show, with the name of the array and an ending of its own. Files and directories
//! have the numbers that their names have under `arrays/`. They are made when a request first looks into the view, so that a view which
//! was not asked for costs nothing. The length of a file is known without the elements of its arrays.
//!
//! `previews/PATH/N.png` is a picture of each plane of an array of three axes or more, in a directory named after the array. The planes of
//! an array of more axes are in directories within each other, one for each index. A name gets its number when it is first looked up, as
//! those of `arrays/` get theirs.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::catalogue::{Catalogue, EntryKind};
use super::error::{are_names, check_name};
use super::node::{Format, NUMBERS, Node, View};
use super::zarr::{Zarr, ZarrView};
use super::{Error, Result, index, locked};
use crate::asdf::fits::{Fits, Hdu};
use crate::asdf::names::encode;
use crate::asdf::{Origin, Snapshot};
use crate::error::{Error as Library, Place};
use crate::source::Source;
use crate::view::fits::Subject;
use crate::view::picture::Style;

/// Axes of more planes have no names for them.
const MOST_PLANES: u64 = 10_000;

impl View {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Fits, Self::Previews, Self::Zarr];

    /// The name of its directory in the root.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Previews => "previews",
            Self::Zarr => "zarr",
        }
    }

    /// What is in it.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Fits => "arrays and tables as FITS files",
            Self::Previews => "pictures of arrays",
            Self::Zarr => "arrays as a group of Zarr",
        }
    }

    /// What the names of its files end with.
    fn suffix(self) -> &'static str {
        match self {
            Self::Fits => ".fits",
            Self::Previews => ".png",
            Self::Zarr => "",
        }
    }

    /// The name that a directory of `arrays/` has in the view. If it ends like the name of a file, its last dot is encoded.
    fn directory_name(self, name: &str) -> String {
        match name.strip_suffix(self.suffix()) {
            Some(stem) => format!("{stem}%2E{}", self.letters()),
            None => name.to_owned(),
        }
    }

    /// The name under `arrays/` of a directory that has this name in the view.
    fn directory_in_arrays(self, name: &str) -> Option<String> {
        let encoded = format!("%2E{}", self.letters());
        match name.strip_suffix(&encoded) {
            Some(stem) => Some(format!("{stem}{}", self.suffix())),
            None if name.ends_with(self.suffix()) => None,
            None => Some(name.to_owned()),
        }
    }

    /// Its suffix without the dot.
    fn letters(self) -> &'static str {
        self.suffix().strip_prefix('.').unwrap_or_default()
    }
}

/// A file of a view.
#[derive(Debug)]
pub(super) struct ViewFile {
    pub(super) subject: Subject,
    len: u64,
    /// The arrays that it shows, by index.
    arrays: Vec<usize>,
}

/// The files of the views of all states with the same arrays, by their numbers, made when they are first asked for.
#[derive(Debug, Default)]
pub(super) struct Views {
    fits: OnceLock<HashMap<u32, ViewFile>>,
    previews: OnceLock<HashMap<u32, ViewFile>>,
    /// What `zarr/` shows.
    zarr: OnceLock<ZarrView>,
    /// How pictures are made.
    style: Style,
}

impl Views {
    /// None made yet.
    pub(super) fn new(style: Style) -> Self {
        Self {
            style,
            ..Self::default()
        }
    }

    /// None made yet, for a state with other arrays.
    pub(super) fn next(&self) -> Self {
        Self::new(self.style)
    }

    /// Whether what a view shows has been made.
    pub(super) fn has_made(&self, view: View) -> bool {
        match view {
            View::Fits => self.fits.get().is_some(),
            View::Previews => self.previews.get().is_some(),
            View::Zarr => self.zarr.get().is_some(),
        }
    }
}

/// The number of the FITS file of an array, a table or a directory.
fn fits_number(snapshot: &Snapshot, catalogue: &Catalogue, subject: Subject) -> Option<u32> {
    match subject {
        Subject::Array(i) => catalogue.number_of_array(snapshot, i),
        Subject::Table(place) | Subject::Directory(place) => {
            catalogue.number_of(snapshot.paths()?, place)
        }
    }
}

/// The files that FITS can hold.
fn fits_files(snapshot: &Snapshot, catalogue: &Catalogue) -> HashMap<u32, ViewFile> {
    let plan = snapshot.fits_plan();
    let shown = |subject: Subject| {
        let number = fits_number(snapshot, catalogue, subject)?;
        let file = plan.file(subject).ok()?;
        let shown = ViewFile {
            subject,
            len: file.len,
            arrays: file.arrays().collect(),
        };
        Some((number, shown))
    };
    let mut files = HashMap::new();
    for (number, file) in plan.subjects().into_iter().filter_map(shown) {
        // an array comes before the directory of its mask, whose number is the same
        files.entry(number).or_insert(file);
    }
    files
}

/// The pictures of arrays.
fn previews(snapshot: &Snapshot, catalogue: &Catalogue, style: Style) -> HashMap<u32, ViewFile> {
    let arrays = catalogue.numbers_of_arrays();
    let shown = arrays.filter_map(|(i, number)| {
        let picture = snapshot.picture(i, &[], style).ok()?;
        let shown = ViewFile {
            subject: Subject::Array(i),
            len: picture.file_len(),
            arrays: picture.arrays().collect(),
        };
        Some((number, shown))
    });
    shown.collect()
}

/// The views of a state. They follow from its arrays and the names of these.
#[derive(Clone, Copy)]
pub(super) struct InViews<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) catalogue: &'a Catalogue,
    pub(super) made: &'a Views,
}

impl<'a> InViews<'a> {
    /// `zarr/`.
    pub(super) fn zarr(self) -> Zarr<'a> {
        Zarr {
            snapshot: self.snapshot,
            catalogue: self.catalogue,
            shown: &self.made.zarr,
        }
    }

    /// The files of a view that has them by the names of arrays.
    fn files(self, view: View) -> Option<&'a HashMap<u32, ViewFile>> {
        let (snapshot, catalogue) = (self.snapshot, self.catalogue);
        let made = self.made;
        match view {
            View::Fits => Some(made.fits.get_or_init(|| fits_files(snapshot, catalogue))),
            View::Previews => {
                let files = || previews(snapshot, catalogue, made.style);
                Some(made.previews.get_or_init(files))
            }
            View::Zarr => None,
        }
    }

    /// The path of the FITS file of an array, a table or a directory below the mountpoint.
    pub(super) fn fits_path(self, subject: Subject) -> Option<String> {
        let number = fits_number(self.snapshot, self.catalogue, subject)?;
        let path = self.path(Node::View(View::Fits, number))?;
        are_names(&path).then_some(path)
    }

    fn file(self, view: View, number: u32) -> Result<&'a ViewFile> {
        let found = match view {
            View::Previews => self.plane(number).map(|(file, _)| file),
            _ => self.files(view).and_then(|files| files.get(&number)),
        };
        found.ok_or(Error::NotFound)
    }

    /// Bytes of a file of a view.
    pub(super) fn len(self, view: View, number: u32) -> Result<u64> {
        match view {
            View::Zarr => self.zarr().len(number),
            _ => Ok(self.file(view, number)?.len),
        }
    }

    /// The node of that name in a directory of a view.
    pub(super) fn find(self, view: View, directory: u32, name: &OsStr) -> Option<Node> {
        if view == View::Zarr {
            return self.zarr().find(directory, name);
        }
        let name = name.to_str()?;
        if let Some(plane) = self.find_plane(view, directory, name) {
            return Some(plane);
        }
        if let Some(stem) = name.strip_suffix(view.suffix()) {
            let number = self.catalogue.number(directory, stem)?;
            // the name alone does not tell whether FITS or PNG can hold the array
            let known = self.files(view)?.contains_key(&number);
            return known.then_some(Node::View(view, number));
        }
        let name = view.directory_in_arrays(name)?;
        let number = self.catalogue.number(directory, &name)?;
        let has_planes = self.planes_in(view, number).is_some();
        let is_directory = has_planes || self.catalogue.entries(number).is_some();
        is_directory.then_some(Node::ViewDir(view, number))
    }

    /// The next name of a directory of a view from `position` on, which is moved behind it. `entries` are those of the directory under
    /// `arrays/`; each has two positions, as a directory may have a file beside it.
    pub(super) fn next(
        self,
        view: View,
        entries: &Range<usize>,
        position: &mut usize,
    ) -> Option<(OsString, Node)> {
        let files = self.files(view)?;
        loop {
            // even positions are directories, odd ones files of the same name
            let (entry, at_file) = (*position / 2, *position % 2 == 1);
            *position = position.saturating_add(1);
            let (number, name, entry) = self.catalogue.entry(entries, entry)?;
            let is_shown = match entry {
                EntryKind::Directory(_) => {
                    let is_array = |file: &ViewFile| matches!(file.subject, Subject::Array(_));
                    !at_file || files.get(&number).is_some_and(|file| !is_array(file))
                }
                EntryKind::Array(..) if at_file => files.contains_key(&number),
                EntryKind::Array(..) => {
                    let is_listed = self.catalogue.entries(number).is_some();
                    !is_listed && self.planes_in(view, number).is_some()
                }
                EntryKind::Link(_) => false,
            };
            if !is_shown {
                continue;
            }
            let (name, node) = if at_file {
                let name = format!("{name}{}", view.suffix());
                (name, Node::View(view, number))
            } else {
                (view.directory_name(&name), Node::ViewDir(view, number))
            };
            if check_name(name.as_ref()).is_ok() {
                return Some((name.into(), node));
            }
        }
    }

    /// The path of a file or directory of a view below the mountpoint.
    pub(super) fn path(self, node: Node) -> Option<String> {
        let (view, mut number, suffix) = match node {
            Node::ViewDir(View::Zarr, _) | Node::View(View::Zarr, _) => {
                return self.zarr().path(node);
            }
            Node::ViewDir(view, number) => (view, number, ""),
            Node::View(view, number) => (view, number, view.suffix()),
            _ => return None,
        };
        let mut parts = Vec::new();
        // from the file up to the root of the view, whose number is 0
        while number != 0 {
            let (directory, name) = self.catalogue.name_of(number)?;
            parts.push(if parts.is_empty() && !suffix.is_empty() {
                format!("{name}{suffix}")
            } else {
                view.directory_name(&name)
            });
            number = directory;
        }
        parts.push(view.name().to_owned());
        parts.reverse();
        Some(parts.join("/"))
    }

    /// Whether a file shows an array whose origin `holds`.
    pub(super) fn shows_any(
        self,
        view: View,
        number: u32,
        holds: impl Fn(&Origin) -> bool,
    ) -> bool {
        if view == View::Zarr {
            return self.zarr().origin(number).is_some_and(holds);
        }
        let arrays = self.file(view, number).map(|file| &file.arrays);
        let mut arrays = arrays.into_iter().flatten();
        arrays.any(|i| {
            let array = self.snapshot.arrays().get(*i);
            array.is_some_and(|array| holds(array.origin()))
        })
    }

    /// The bytes of a file of a view.
    pub(super) fn source(self, view: View, number: u32) -> Result<Arc<dyn Source>, Library> {
        if view == View::Zarr {
            return self.zarr().source(number);
        }
        let missing = |_| Library::corrupt(Place::File, "the tree no longer has this array");
        let file = self.file(view, number).map_err(missing)?;
        let snapshot = self.snapshot;
        let elements = |i| Format::Bin.saved(snapshot, i);
        match (view, file.subject) {
            (View::Previews, Subject::Array(i)) => {
                let (_, plane) = self.plane(number).unwrap_or((file, Vec::new()));
                (snapshot.picture(i, &plane, self.made.style)?).open(&elements)
            }
            (View::Fits, subject) => {
                let file = snapshot.fits_plan().file(subject)?;
                file.open(snapshot, &elements)
            }
            _ => Err(missing(Error::NotFound)),
        }
    }

    /// The picture whose planes that number belongs to, and the indices that it stands for.
    fn plane(self, mut number: u32) -> Option<(&'a ViewFile, Vec<u64>)> {
        let mut plane = Vec::new();
        loop {
            if let Some(file) = self.files(View::Previews)?.get(&number) {
                plane.reverse();
                return Some((file, plane));
            }
            let (directory, name) = self.catalogue.name_of(number)?;
            plane.push(name.parse().ok()?);
            number = directory;
        }
    }

    /// How many planes, or directories of them, a directory of a view has, and whether they are planes; none if it is no such directory.
    pub(super) fn planes_in(self, view: View, directory: u32) -> Option<(u64, bool)> {
        if view != View::Previews || directory == 0 {
            return None;
        }
        let (file, plane) = self.plane(directory)?;
        let Subject::Array(i) = file.subject else {
            return None;
        };
        let axes = self.snapshot.planes(i);
        let inside = axes.iter().zip(&plane).all(|(len, index)| index < len);
        let len = axes
            .get(plane.len())
            .filter(|len| **len <= MOST_PLANES && inside)?;
        let is_last = plane.len().saturating_add(1) == axes.len();
        let single = axes.iter().all(|len| *len == 1);
        (!single).then_some((*len, is_last))
    }

    /// The names of these planes.
    pub(super) fn plane_names(self, view: View, directory: u32) -> Vec<OsString> {
        let (len, are_files) = self.planes_in(view, directory).unwrap_or((0, false));
        let suffix = if are_files { view.suffix() } else { "" };
        (0..len).map(|n| format!("{n}{suffix}").into()).collect()
    }

    /// The node of a plane, or a directory of planes, of that name.
    fn find_plane(self, view: View, directory: u32, name: &str) -> Option<Node> {
        let index = name.strip_suffix(view.suffix()).unwrap_or(name);
        let n: u64 = index
            .parse()
            .ok()
            .filter(|n: &u64| n.to_string() == index)?;
        let (len, are_files) = self.planes_in(view, directory)?;
        if n >= len || are_files == (index == name) {
            return None;
        }
        let number = locked(self.catalogue.numbers()).of(directory, index);
        let number = number.filter(|number| *number < NUMBERS)?;
        Some(if are_files {
            Node::View(view, number)
        } else {
            Node::ViewDir(view, number)
        })
    }
}

/// The name of `hdus/` in the root.
pub(super) const HDUS: &str = "hdus";

/// The files of `hdus/`.
pub(super) fn hdu_entries(snapshot: &Snapshot) -> Vec<(OsString, Node)> {
    let units = snapshot.fits().map_or(&[][..], Fits::hdus);
    let numbered = (0..).zip(units);
    numbered.flat_map(|(n, hdu)| hdu_files(n, hdu)).collect()
}

/// The two files of unit `n`.
fn hdu_files(n: u32, hdu: &Hdu) -> [(OsString, Node); 2] {
    let stem = hdu.file_stem(n);
    let stem = encode(&stem);
    [
        (format!("{stem}.bin").into(), Node::HduBin(n)),
        (format!("{stem}.hdr").into(), Node::HduHeader(n)),
    ]
}

/// The file of that name in `hdus/`. Names begin with the unit's number.
pub(super) fn find_hdu(snapshot: &Snapshot, name: &OsStr) -> Option<Node> {
    let text = name.to_str()?;
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let n: u32 = text.get(..digits)?.parse().ok()?;
    let hdu = snapshot.fits()?.hdus().get(index(n))?;
    let found = hdu_files(n, hdu).into_iter().find(|entry| entry.0 == name);
    found.map(|entry| entry.1)
}

/// The bytes of a file of `hdus/`.
pub(super) fn hdu_source(snapshot: &Snapshot, node: Node) -> Result<Arc<dyn Source>> {
    let fits = snapshot.fits().ok_or(Error::NotFound)?;
    let found = match node {
        Node::HduHeader(n) if index(n) < fits.hdus().len() => fits.header(index(n)),
        Node::HduBin(n) if index(n) < fits.hdus().len() => fits.data(index(n)),
        _ => return Err(Error::NotFound),
    };
    Ok(found?)
}

#[cfg(test)]
mod tests;
