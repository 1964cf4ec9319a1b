//! `fits/` and `previews/`: further files of arrays, in directories like those of `arrays/`, read-only; and what they share with `zarr/`.
//!
//! A view has a file for each array, table or directory that it can show, with the name of the array and an ending of its own. Files and directories
//! have the numbers that their names have under `arrays/`. They are made when a request first looks into the view, so that a view which
//! was not asked for costs nothing. The length of a file is known without the elements of its arrays.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use super::catalogue::{Catalogue, EntryKind};
use super::format::Format;
use super::node::Node;
pub(super) use super::node::View;
use super::state::State;
use super::zarr::ZarrView;
use super::{Error, NAME_MAX, Result, VfsOptions, locked};
use crate::asdf::{Origin, Snapshot};
use crate::error::{Error as Library, Place};
use crate::source::Source;
use crate::view::fits::Subject;
use crate::view::picture::Style;

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

    /// Whether the mount is to show it.
    pub(super) fn is_shown(self, options: &VfsOptions) -> bool {
        match self {
            Self::Fits => options.fits,
            Self::Previews => options.previews,
            Self::Zarr => options.zarr,
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

/// The files of the views of a state by their numbers, made when they are first asked for.
#[derive(Debug, Default)]
pub(super) struct Views {
    fits: OnceLock<Arc<HashMap<u32, ViewFile>>>,
    previews: OnceLock<Arc<HashMap<u32, ViewFile>>>,
    /// What `zarr/` shows.
    pub(super) zarr: OnceLock<Arc<ZarrView>>,
    /// Why FITS files could not be read, by number, where only their elements told that.
    unreadable: Mutex<HashMap<u32, String>>,
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

    /// None made yet, for the state that follows.
    pub(super) fn next(&self) -> Self {
        Self::new(self.style)
    }

    /// Where the files of a view are kept, once they have been made.
    fn slot(&self, view: View) -> Option<&OnceLock<Arc<HashMap<u32, ViewFile>>>> {
        match view {
            View::Fits => Some(&self.fits),
            View::Previews => Some(&self.previews),
            View::Zarr => None,
        }
    }

    /// Whether what a view shows has been made.
    pub(super) fn has_made(&self, view: View) -> bool {
        let made = self.slot(view).map(|files| files.get().is_some());
        made.unwrap_or_else(|| self.zarr.get().is_some())
    }

    /// Notes that a file can't be read because of its elements.
    pub(super) fn learn(&self, file: Node, why: &Library) {
        if let (Node::View(View::Fits, number), Library::Unsupported { .. }) = (file, why) {
            locked(&self.unreadable).insert(number, why.to_string());
        }
    }

    /// Takes over those of a state with the same arrays.
    pub(super) fn keep(&self, before: &Self) {
        for view in View::ALL {
            if let Some((slot, before)) = self.slot(view).zip(before.slot(view))
                && let Some(files) = before.get()
            {
                let _ = slot.set(Arc::clone(files));
            }
        }
        if let Some(zarr) = before.zarr.get() {
            let _ = self.zarr.set(Arc::clone(zarr));
        }
    }
}

/// The files that FITS can hold.
fn fits_files(snapshot: &Snapshot, catalogue: &Catalogue) -> HashMap<u32, ViewFile> {
    let arrays: HashMap<usize, u32> = catalogue.numbers_of_arrays().collect();
    let plan = snapshot.fits_plan();
    let shown = |subject: Subject| {
        let number = match subject {
            Subject::Array(i) => *arrays.get(&i)?,
            Subject::Table(place) | Subject::Directory(place) => {
                catalogue.number_of(snapshot.paths()?, place)?
            }
        };
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

/// Whether a file can have that name: one that is not too long under `arrays/` may be with another ending.
pub(super) fn is_possible(name: &str) -> bool {
    u32::try_from(name.len()).is_ok_and(|len| len <= NAME_MAX)
}

impl State {
    /// The files of a view that has them by the names of arrays.
    pub(super) fn view(&self, view: View) -> Option<&Arc<HashMap<u32, ViewFile>>> {
        let made = || match view {
            View::Fits => fits_files(&self.snapshot, self.catalogue()),
            _ => previews(&self.snapshot, self.catalogue(), self.views.style),
        };
        let slot = self.views.slot(view)?;
        Some(slot.get_or_init(|| Arc::new(made())))
    }

    /// Makes what a view shows.
    pub(super) fn make(&self, view: View) {
        if self.view(view).is_none() {
            self.zarr();
        }
    }

    /// The number of array `i` under `arrays/`.
    pub(super) fn array_number(&self, i: usize) -> Option<u32> {
        let place = self.snapshot.arrays().get(i)?.home();
        let paths = self.snapshot.paths()?;
        let directory = self.catalogue().number_of(paths, paths.parent(place))?;
        self.catalogue().number(directory, &paths.stem(place))
    }

    /// The number of the FITS file of an array, a table or a directory.
    fn fits_number(&self, subject: Subject) -> Option<u32> {
        match subject {
            Subject::Array(i) => self.array_number(i),
            Subject::Table(place) | Subject::Directory(place) => {
                self.catalogue().number_of(self.snapshot.paths()?, place)
            }
        }
    }

    /// Why the FITS file of an array, a table or a directory could not be read when that was tried last.
    pub(super) fn why_unreadable(&self, subject: Subject) -> Option<String> {
        let number = self.fits_number(subject)?;
        locked(&self.views.unreadable).get(&number).cloned()
    }

    /// The path of the FITS file of an array, a table or a directory below the mountpoint.
    pub(super) fn fits_path(&self, subject: Subject) -> Option<String> {
        let number = self.fits_number(subject)?;
        let path = self.view_path(Node::View(View::Fits, number))?;
        path.rsplit('/').all(is_possible).then_some(path)
    }

    fn view_file(&self, view: View, number: u32) -> Result<&ViewFile> {
        let found = match view {
            View::Previews => self.plane(number).map(|(file, _)| file),
            _ => self.view(view).and_then(|files| files.get(&number)),
        };
        found.ok_or(Error::NotFound)
    }

    /// Bytes of a file of a view.
    pub(super) fn view_len(&self, view: View, number: u32) -> Result<u64> {
        match view {
            View::Zarr => self.zarr_len(number),
            _ => Ok(self.view_file(view, number)?.len),
        }
    }

    /// The node of that name in a directory of a view.
    pub(super) fn find_in_view(&self, view: View, directory: u32, name: &OsStr) -> Option<Node> {
        if view == View::Zarr {
            return self.find_in_zarr(directory, name);
        }
        let name = name.to_str()?;
        let catalogue = self.catalogue();
        if let Some(plane) = self.find_plane(view, directory, name) {
            return Some(plane);
        }
        if let Some(stem) = name.strip_suffix(view.suffix()) {
            let number = catalogue.number(directory, stem)?;
            // the name alone does not tell whether FITS or PNG can hold the array
            let known = self.view(view)?.contains_key(&number);
            return known.then_some(Node::View(view, number));
        }
        let name = view.directory_in_arrays(name)?;
        let number = catalogue.number(directory, &name)?;
        let has_planes = self.planes_in(view, number).is_some();
        let is_directory = has_planes || catalogue.entries(number).is_some();
        is_directory.then_some(Node::ViewDir(view, number))
    }

    /// The next name of a directory of a view from `position` on, which is moved behind it. `entries` are those of the directory under
    /// `arrays/`; each has two positions, as a directory may have a file beside it.
    pub(super) fn next_in_view(
        &self,
        view: View,
        entries: &Range<usize>,
        position: &mut usize,
    ) -> Option<(OsString, Node)> {
        let files = self.view(view)?;
        loop {
            // even positions are directories, odd ones files of the same name
            let (entry, at_file) = (*position / 2, *position % 2 == 1);
            *position = position.saturating_add(1);
            let (number, name, entry) = self.catalogue().entry(entries, entry)?;
            let is_shown = match entry {
                EntryKind::Directory(_) => {
                    let is_array = |file: &ViewFile| matches!(file.subject, Subject::Array(_));
                    !at_file || files.get(&number).is_some_and(|file| !is_array(file))
                }
                EntryKind::Array(..) if at_file => files.contains_key(&number),
                EntryKind::Array(..) => {
                    let is_listed = self.catalogue().entries(number).is_some();
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
            if is_possible(&name) {
                return Some((name.into(), node));
            }
        }
    }

    /// The path of a file or directory of a view below the mountpoint.
    pub(super) fn view_path(&self, node: Node) -> Option<String> {
        let (view, mut number, suffix) = match node {
            Node::ViewDir(View::Zarr, _) | Node::View(View::Zarr, _) => {
                return self.zarr_path(node);
            }
            Node::ViewDir(view, number) => (view, number, ""),
            Node::View(view, number) => (view, number, view.suffix()),
            _ => return None,
        };
        let mut parts = Vec::new();
        // from the file up to the root of the view, whose number is 0
        while number != 0 {
            let (directory, name) = self.catalogue().name_of(number)?;
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
        &self,
        view: View,
        number: u32,
        holds: impl Fn(&Origin) -> bool,
    ) -> bool {
        if view == View::Zarr {
            return self.zarr_shows(number, holds);
        }
        let arrays = self.view_file(view, number).map(|file| &file.arrays);
        let mut arrays = arrays.into_iter().flatten();
        arrays.any(|i| {
            let array = self.snapshot.arrays().get(*i);
            array.is_some_and(|array| holds(array.origin()))
        })
    }
}

impl State {
    /// The bytes of a file of a view.
    pub(super) fn view_source(&self, view: View, number: u32) -> Result<Arc<dyn Source>, Library> {
        if view == View::Zarr {
            return self.zarr_source(number);
        }
        let missing = |_| Library::corrupt(Place::File, "the tree no longer has this array");
        let file = self.view_file(view, number).map_err(missing)?;
        let snapshot = &self.snapshot;
        let elements = |i| Format::Bin.saved(snapshot, i);
        match (view, file.subject) {
            (View::Previews, Subject::Array(i)) => {
                let (_, plane) = self.plane(number).unwrap_or((file, Vec::new()));
                (snapshot.picture(i, &plane, self.views.style)?).open(&elements)
            }
            (View::Fits, subject) => {
                let file = snapshot.fits_plan().file(subject)?;
                file.open(snapshot, &elements)
            }
            _ => Err(missing(Error::NotFound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_never_has_the_name_of_a_file() {
        let view = View::Fits;
        for (name, here) in [
            ("a", "a"),
            ("a.fits", "a%2Efits"),
            ("a%2Ebin", "a%2Ebin"),
            (".fits", "%2Efits"),
        ] {
            assert_eq!(view.directory_name(name), here);
            assert_eq!(view.directory_in_arrays(here).as_deref(), Some(name));
        }
        assert_eq!(view.directory_in_arrays("a.fits"), None);
    }
}
