//! Which FITS files a tree has: one of each array and table, and one of each directory that holds some, with all of them as extensions.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use super::header::{HeaderText, cut_name, printable_ascii};
use super::sky::Sky;
use super::{FitsFile, Subject, Unit, meta, no_longer};
use crate::asdf::outline::column::is_table;
use crate::asdf::outline::{PlaceId, What};
use crate::asdf::paths::Paths;
use crate::asdf::tree::{Node, NodeId, NodeKind};
use crate::asdf::{Array, Snapshot};
use crate::error::{Place, Result, unsupported};
use crate::view::shown_as;

/// Most extensions of the file of a directory.
const MAX_EXTENSIONS: usize = 1000;

/// What a directory of the tree has for its FITS file.
type Members = BTreeMap<PlaceId, Vec<(PlaceId, Subject)>>;

/// The FITS files of a tree. It keeps what several of them need.
pub struct FitsPlan<'s> {
    snapshot: &'s Snapshot,
    members: OnceCell<Members>,
    /// The nearest `meta` of each place that was asked for.
    metas: RefCell<HashMap<PlaceId, Option<NodeId>>>,
    /// The cards of the last `meta`: directories side by side, which come one after the other, have the same.
    cards: RefCell<Option<(NodeId, Rc<HeaderText>)>>,
    skies: RefCell<HashMap<PlaceId, Option<Arc<Sky>>>>,
}

impl Snapshot {
    /// What FITS files there are.
    #[must_use]
    pub fn fits_plan(&self) -> FitsPlan<'_> {
        FitsPlan {
            snapshot: self,
            members: OnceCell::new(),
            metas: RefCell::default(),
            cards: RefCell::default(),
            skies: RefCell::default(),
        }
    }
}

impl FitsPlan<'_> {
    /// All arrays, the tables that are shown as directories, and the directories that hold some. FITS may be unable to hold one.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject> {
        let arrays = (0..self.snapshot.arrays().len()).map(Subject::Array);
        let tables = self.snapshot.tables().into_iter().map(Subject::Table);
        let directories = self.members().keys().copied().map(Subject::Directory);
        arrays.chain(tables).chain(directories).collect()
    }

    /// The FITS file of an array, a table or a directory.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::error::Error::Unsupported) if FITS can't hold it; [`Array::problem`].
    pub fn file(&self, subject: Subject) -> Result<FitsFile> {
        let (paths, place) = self.snapshot.place_of(subject).ok_or_else(no_longer)?;
        let too_long = || unsupported("a FITS file of 2^63 bytes or more");
        let made = self.units(subject, None).and_then(|mut made| {
            made.len = made.counted().ok_or_else(too_long)?;
            Ok(made)
        });
        made.map_err(|error| error.at(Place::Array(paths.brief(place))))
    }

    /// The units of an array, a table or a directory. Extensions of the former two have a name and a version.
    fn units(&self, subject: Subject, name: Option<(&str, u64)>) -> Result<FitsFile> {
        match subject {
            Subject::Array(i) => {
                let sky = self.sky_of(self.snapshot.array(i)?);
                self.snapshot.fits_of_array(i, name, sky)
            }
            Subject::Table(table) => self.snapshot.fits_of_table(table, name),
            Subject::Directory(directory) => self.units_of_directory(directory),
        }
    }

    /// The units of a directory, behind a primary header with the scalars of the nearest `meta`.
    fn units_of_directory(&self, directory: PlaceId) -> Result<FitsFile> {
        let members = self.members().get(&directory).ok_or_else(no_longer)?;
        if members.len() > MAX_EXTENSIONS {
            let why = format!("the file of a directory has {MAX_EXTENSIONS} extensions at most");
            return Err(unsupported(why));
        }
        let paths = self.snapshot.paths().ok_or_else(no_longer)?;
        let (mut file, mut names) = (FitsFile::default(), HashMap::new());
        for (place, subject) in members {
            let path = paths.brief(*place);
            let name = ext_name(paths, *place).unwrap_or_else(|| printable_ascii(&path));
            let name = cut_name(&name);
            let version: &mut u64 = names.entry(name.to_ascii_uppercase()).or_default();
            // readers tell extensions of one name by EXTVER (FITS Standard 4.0, section 4.4.2.6)
            *version = version.saturating_add(1);
            match self.units(*subject, Some((name, *version))) {
                Ok(made) => {
                    file.units.extend(made.units);
                    file.sky = file.sky.or(made.sky);
                    let missing = made.omitted.into_iter();
                    let missing = missing.map(|(column, why)| (format!("{path}/{column}"), why));
                    file.omitted.extend(missing);
                }
                Err(error) => file.omitted.push((path, error.to_string())),
            }
        }
        if file.units.is_empty() {
            return Err(unsupported("nothing that FITS can hold"));
        }
        let mut primary = HeaderText::primary();
        for (name, why) in file.omitted.iter().take(MAX_EXTENSIONS) {
            primary.comment(&printable_ascii(&format!("left out: {name}: {why}")));
        }
        if let Some(meta) = self.meta(directory) {
            // without it fitsverify warns about texts that go on in further cards
            primary.text("LONGSTRN", "OGIP 1.0");
            primary.extend(&self.cards_of(meta));
        }
        file.units.insert(0, Unit::of_header(primary));
        Ok(file)
    }

    /// The directories with a file of their own, each with the arrays and tables in it.
    fn members(&self) -> &Members {
        self.members.get_or_init(|| {
            let mut members = Members::new();
            let Some(paths) = self.snapshot.paths() else {
                return members;
            };
            let arrays = self.snapshot.arrays().iter().enumerate();
            let arrays = arrays.filter(|(_, array)| array.has_files());
            let arrays = arrays.map(|(i, array)| (shown_as(paths, array), Subject::Array(i)));
            let tables = self.snapshot.tables().into_iter();
            let tables = tables.map(|table| (table, Subject::Table(table)));
            let mut all: Vec<_> = arrays.chain(tables).collect();
            // extensions stand in the order of the tree
            all.sort_unstable_by_key(|(place, _)| *place);
            for (place, subject) in all {
                let directory = paths.parent(place);
                if directory != PlaceId::ROOT && has_file(paths, directory) {
                    members.entry(directory).or_default().push((place, subject));
                }
            }
            members
        })
    }

    /// The `meta` in a directory, or in the nearest above it.
    fn meta(&self, directory: PlaceId) -> Option<NodeId> {
        // known: of n directories side by side, each would search all n keys of the mapping around them
        if let Some(known) = self.metas.borrow().get(&directory) {
            return *known;
        }
        let paths = self.snapshot.paths()?;
        let own = paths.node(directory).and_then(|node| node.get("meta"));
        let own = own.filter(|meta| meta.kind() == NodeKind::Mapping);
        let found = match own {
            None if directory != PlaceId::ROOT => self.meta(paths.parent(directory)),
            own => own.map(Node::id),
        };
        self.metas.borrow_mut().insert(directory, found);
        found
    }

    /// The cards of a `meta`.
    fn cards_of(&self, id: NodeId) -> Rc<HeaderText> {
        let mut last = self.cards.borrow_mut();
        if let Some((_, cards)) = last.as_ref().filter(|(of, _)| *of == id) {
            return Rc::clone(cards);
        }
        let meta = self
            .snapshot
            .paths()
            .and_then(|paths| paths.tree().node(id));
        let cards = Rc::new(meta.map(meta::cards).unwrap_or_default());
        *last = Some((id, Rc::clone(&cards)));
        cards
    }

    /// What tells the place of an image in the sky, if something beside it does.
    fn sky_of(&self, array: &Array) -> Option<Arc<Sky>> {
        let paths = self.snapshot.paths()?;
        let shape = array.shape().filter(|shape| shape.len() == 2)?;
        let directory = paths.parent(shown_as(paths, array));
        let mut known = self.skies.borrow_mut();
        let found = known.entry(directory).or_insert_with(|| {
            let sky = Sky::of(self.snapshot, paths, paths.node(directory)?);
            sky.map(Arc::new)
        });
        found.clone().filter(|sky| sky.is_of(shape))
    }
}

/// Whether a directory may have a file of its own: it is neither an array, with its mask in it, nor a part of a table or transform.
fn has_file(paths: &Paths, directory: PlaceId) -> bool {
    let is_directory = |place| {
        let what = paths.outline().place(place).map(|place| place.what);
        what == Some(What::Directory) && !paths.node(place).is_some_and(is_table)
    };
    let above = paths.parent(directory);
    let tag = paths.node(directory).and_then(Node::tag);
    is_directory(directory)
        && !tag.is_some_and(|tag| tag.contains("transform/"))
        && !paths.node(above).is_some_and(is_table)
        && !paths.node(paths.parent(above)).is_some_and(is_table)
}

/// The name that readers of FITS know a plane by, if its key is one for it.
fn ext_name(paths: &Paths, place: PlaceId) -> Option<String> {
    let steps = paths.steps(place);
    let key = steps.last()?.to_ascii_lowercase();
    match &*key {
        // the names that STScI's pipelines and DS9 have for science data, errors and data quality
        "data" | "sci" => Some("SCI".to_owned()),
        "err" | "error" => Some("ERR".to_owned()),
        "dq" => Some("DQ".to_owned()),
        _ if key.starts_with("var_") => Some(printable_ascii(&key).to_ascii_uppercase()),
        _ => None,
    }
}
