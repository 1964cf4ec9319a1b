//! The arrays of a snapshot: what the tree declares, proved against the blocks, as sources of bytes.

mod text;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};

use super::Snapshot;
use super::datatype::{ByteOrder, Datatype};
use super::decl::chunked::Chunked;
use super::gather::Strided;
use super::inline::Elements;
use super::npy;
use super::outline::PlaceId;
use super::paths::Paths;
use super::strided::View;
use super::tree::Node;
use crate::error::{Error, Place, Result, corrupt, lock};
use crate::source::{Joined, Memory, Source, Window, len_u64};

/// Where the elements of an array are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// In this block.
    Block(usize),
    /// In the tree.
    Inline,
    /// In the first block of another ASDF file.
    External(String),
    /// In another unit of the FITS file around this one.
    Fits {
        /// The reference in the tree.
        reference: String,
        /// Index of the unit.
        unit: usize,
        /// How the unit differs from the declaration in the tree, if it does.
        difference: Option<String>,
    },
    /// In the chunks of a grid, each in a block or array.
    Chunked,
    /// Not known, because the declaration is broken.
    #[default]
    Unknown,
}

/// An array that the tree declares.
#[derive(Debug)]
pub struct Array {
    paths: Arc<Paths>,
    home: PlaceId,
    data: ArrayData,
    /// None for an array in a block of this file.
    detail: Option<Box<Detail>>,
}

/// The part that only some arrays have.
#[derive(Debug)]
pub(super) enum Detail {
    /// Its elements are in the tree. Their bytes are kept only while a reader holds them.
    Inline(Elements, Mutex<Weak<Vec<u8>>>),
    /// Its elements are in chunks.
    Chunked(Arc<Chunked>),
    /// It lies in another file. The error of the last attempt to read that file, if it failed.
    Outside(Mutex<Option<Error>>),
    /// Why it has no files.
    Problem(Error),
}

/// The contents of an array's files: the form of the elements, and their place in the block.
#[derive(Debug, Clone, Default)]
pub struct ArrayData {
    form: Arc<Form>,
    offset: u64,
}

impl ArrayData {
    /// Where the elements are.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.form.origin
    }

    /// Bytes of the elements.
    #[must_use]
    pub fn bin_len(&self) -> u64 {
        self.form.len
    }

    /// Bytes of the elements with an NPY header in front.
    #[must_use]
    pub fn npy_len(&self) -> u64 {
        self.form
            .len
            .saturating_add(self.form.npy_header_len.into())
    }

    /// Bytes of each of its files, in the order of [`SUFFIXES`](super::names::SUFFIXES).
    #[must_use]
    pub fn file_lens(&self) -> [u64; 2] {
        [self.bin_len(), self.npy_len()]
    }

    /// A key that is equal for two arrays if their elements are read alike: type, shape, strides and order. It leaves out
    /// the number of rows where the length of the block decides it, except in Fortran order: there the number of rows
    /// decides the place of every element.
    #[must_use]
    pub fn form(&self) -> impl Hash + use<'_> {
        let form = &*self.form;
        let grows = form.to_end && !form.fortran;
        let shape = form.shape.as_deref();
        let shape = shape.map(|shape| shape.get(usize::from(grows)..).unwrap_or_default());
        (&form.datatype, shape, &form.strides, form.fortran)
    }

    /// Whether two arrays show the same bytes over the same blocks. `false` for elements inline or in chunks, which are not compared.
    #[must_use]
    pub fn shows_the_same(&self, other: &Self) -> bool {
        let (a, b) = (&*self.form, &*other.form);
        !matches!(a.origin, Origin::Inline | Origin::Chunked)
            && a.origin == b.origin
            && (&a.datatype, &a.shape, &a.strides) == (&b.datatype, &b.shape, &b.strides)
            && (self.offset, a.fortran, a.len) == (other.offset, b.fortran, b.len)
    }
}

/// The declaration of an array without its place in the tree and in its block. A tree of many arrays has few
/// forms; the arrays share them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Form {
    /// Where the elements are.
    pub(super) origin: Origin,
    /// Whether `source` is negative: it counts blocks from the last one.
    pub(super) counted_back: bool,
    /// Whether the first length of `shape` is `*`: as many rows as the block holds.
    pub(super) to_end: bool,
    /// Type of an element; `None` if the declaration makes no sense, or if the data that it names can't be read.
    pub(super) datatype: Option<Datatype>,
    /// The byte order that the array declares. Each scalar of `datatype` carries its own.
    pub(super) byteorder: Option<ByteOrder>,
    /// Lengths of the axes, the slowest first, with the first one known if it was `*`.
    pub(super) shape: Option<Vec<u64>>,
    /// Bytes from one element to the next along each axis, if they are declared; C order without them.
    pub(super) strides: Option<Vec<i64>>,
    /// Whether the elements lie in Fortran order without a gap, which an NPY header can say.
    pub(super) fortran: bool,
    /// Bytes of all elements in C order.
    pub(super) len: u64,
    /// Length of the NPY header in bytes. Kept because each `stat` of the `.npy` file needs it; 0 if no header can be made.
    npy_header_len: u32,
}

impl Form {
    /// Returns the shared copy of this form in `known`. Adds the form if it is new.
    pub(super) fn shared(self, known: &mut HashMap<Self, Arc<Self>>) -> Arc<Self> {
        if let Some(form) = known.get(&self) {
            return Arc::clone(form);
        }
        // below 4 GiB, or `npy::header` would have refused it
        let len = |header: Vec<u8>| u32::try_from(header.len()).unwrap_or(u32::MAX);
        let form = Arc::new(Self {
            npy_header_len: self.npy_header().ok().map_or(0, len),
            ..self.clone()
        });
        known.insert(self, Arc::clone(&form));
        form
    }

    /// The NPY header.
    fn npy_header(&self) -> Result<Vec<u8>> {
        let (Some(datatype), Some(shape)) = (&self.datatype, &self.shape) else {
            let why = "an array without datatype or shape";
            return Err(corrupt(why));
        };
        npy::header(datatype, shape, self.fortran)
    }
}

impl Array {
    /// The array at `home`. `located` holds what is special about it, `None` if its elements lie `offset` bytes into a block,
    /// and an error if the array has no files.
    pub(super) fn new(
        paths: &Arc<Paths>,
        home: PlaceId,
        form: Arc<Form>,
        offset: u64,
        located: Result<Option<Detail>>,
    ) -> Self {
        // made without its detail first, because an error is named by the path of the array
        let mut array = Self {
            paths: Arc::clone(paths),
            home,
            data: ArrayData { form, offset },
            detail: None,
        };
        let detail = match located {
            Err(error) => Some(Detail::Problem(array.named(error))),
            Ok(Some(detail)) => Some(detail),
            Ok(None) if matches!(array.origin(), Origin::External(_)) => {
                Some(Detail::Outside(Mutex::default()))
            }
            Ok(None) => None,
        };
        array.detail = detail.map(Box::new);
        array
    }

    /// Its path in the tree, components joined by `/`. If the paths of all arrays are too long together, a long one is cut.
    #[must_use]
    pub fn path(&self) -> String {
        self.paths.path(self.home)
    }

    /// Its path in the tree, cut if it is too long for a message.
    pub(crate) fn brief_path(&self) -> String {
        self.paths.brief(self.home)
    }

    /// The keys and indices that lead to it.
    pub(super) fn steps(&self) -> Vec<Cow<'_, str>> {
        self.paths.steps(self.home)
    }

    /// Its place in the tree.
    #[must_use]
    pub fn home(&self) -> PlaceId {
        self.home
    }

    /// The path of its files below `arrays/`, without `.bin` or `.npy`.
    #[must_use]
    pub fn file_path(&self) -> String {
        self.paths.file_path(self.home)
    }

    /// Its tag in the tree.
    #[must_use]
    pub fn tag(&self) -> &str {
        self.node().and_then(Node::tag).unwrap_or_default()
    }

    /// The unit, if the array is the value of a quantity.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.paths.unit(self.home)
    }

    /// Line and column of its declaration.
    #[must_use]
    pub fn place(&self) -> Place {
        self.node().map_or(Place::File, Node::place)
    }

    /// What its files show.
    #[must_use]
    pub fn data(&self) -> &ArrayData {
        &self.data
    }

    /// Where its elements are.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.data.form.origin
    }

    /// Type of its elements, if the declaration says.
    #[must_use]
    pub fn datatype(&self) -> Option<&Datatype> {
        self.data.form.datatype.as_ref()
    }

    /// Its shape, slowest axis first, with `*` resolved.
    #[must_use]
    pub fn shape(&self) -> Option<&[u64]> {
        self.data.form.shape.as_deref()
    }

    /// The byte order that the tree declares.
    pub(super) fn byteorder(&self) -> Option<ByteOrder> {
        self.data.form.byteorder
    }

    /// The strides in bytes that the tree declares.
    #[must_use]
    pub fn strides(&self) -> Option<&[i64]> {
        self.data.form.strides.as_deref()
    }

    /// Its declaration, as it stands in the text.
    pub(super) fn node(&self) -> Option<Node<'_>> {
        self.paths.node(self.home)
    }

    /// Why the array has no files. If it has files and lies in another file: the error of the last attempt to read that one.
    #[must_use]
    pub fn problem(&self) -> Option<Cow<'_, Error>> {
        match self.detail.as_deref()? {
            Detail::Problem(error) => Some(Cow::Borrowed(error)),
            Detail::Outside(why) => lock(why).clone().map(Cow::Owned),
            Detail::Inline(..) | Detail::Chunked(_) => None,
        }
    }

    /// Whether it has files.
    #[must_use]
    pub fn has_files(&self) -> bool {
        !matches!(self.detail.as_deref(), Some(Detail::Problem(_)))
    }

    /// Records the result of reading the other file that holds the elements; `error` says why it failed. An I/O error changes
    /// nothing, because it says nothing about the contents of that file.
    pub(super) fn learn(&self, error: Option<&Error>) {
        if let Some(Detail::Outside(why)) = self.detail.as_deref()
            && !matches!(error, Some(Error::Io { .. }))
        {
            *lock(why) = error.map(|error| self.named(error.clone()));
        }
    }

    /// The error, with the line and the path of this array.
    pub(super) fn named(&self, error: Error) -> Error {
        let which = Place::Array(self.brief_path());
        match error.at(self.place()) {
            Error::Corrupt { at, why } => Error::corrupt(at, format!("{which}: {why}")),
            Error::Unsupported { at, why } => Error::unsupported(at, format!("{which}: {why}")),
            other => other,
        }
    }

    /// Bytes of its elements.
    #[must_use]
    pub fn bin_len(&self) -> u64 {
        self.data.bin_len()
    }

    /// Bytes of its elements with an NPY header in front.
    #[must_use]
    pub fn npy_len(&self) -> u64 {
        self.data.npy_len()
    }

    /// Its NPY header.
    pub(crate) fn npy_header(&self) -> Result<Vec<u8>> {
        let header = self.data.form.npy_header();
        header.map_err(|error| error.at(self.place()))
    }

    /// Byte offset of its first element in the block.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.data.offset
    }

    /// Whether `source` is negative: then the number of blocks decides which block it means.
    #[must_use]
    pub fn counts_from_the_end(&self) -> bool {
        self.data.form.counted_back
    }

    /// Whether its shape begins with `*`: it has as many rows as its block holds.
    #[must_use]
    pub fn goes_to_the_end(&self) -> bool {
        self.data.form.to_end
    }

    /// Whether its `.npy` has the elements in Fortran order, as they lie in the block.
    #[must_use]
    pub fn is_fortran(&self) -> bool {
        self.data.form.fortran
    }

    /// Checks that the elements lie in a block of `block_len` bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] that says how far the array reaches.
    pub(super) fn lies_in(&self, block_len: u64) -> Result<()> {
        self.view(block_len).map(drop)
    }

    /// The layout of its elements in a block of `block_len` bytes.
    pub(super) fn view(&self, block_len: u64) -> Result<View> {
        // no view is asked of an array without a datatype, and one of elements of this length is refused
        let itemsize = self
            .data
            .form
            .datatype
            .as_ref()
            .and_then(Datatype::size)
            .unwrap_or(u64::MAX);
        let shape = self.data.form.shape.as_deref().unwrap_or_default();
        View::new(
            itemsize,
            shape,
            self.data.form.strides.as_deref(),
            self.data.offset,
            block_len,
        )
    }
}

impl Snapshot {
    /// Array `i`, if it has files.
    pub(crate) fn array(&self, i: usize) -> Result<&Array> {
        let array = self
            .arrays()
            .get(i)
            .ok_or_else(|| corrupt("no such array"))?;
        match array.detail.as_deref() {
            Some(Detail::Problem(error)) => Err(error.clone()),
            _ => Ok(array),
        }
    }

    /// The elements of array `i` in C order.
    ///
    /// # Errors
    /// [`Array::problem`]; the errors of opening the block or file that holds the elements.
    pub fn array_bin(&self, i: usize) -> Result<Arc<dyn Source>> {
        let array = self.array(i)?;
        match self.around(array)? {
            Some(block) => self.array_over(i, block),
            None => self.bytes_by_itself(i, array),
        }
    }

    /// The bytes that hold the elements of an array: a block, or the data of another file. `None` if they are in the tree or in chunks.
    fn around(&self, array: &Array) -> Result<Option<Arc<dyn Source>>> {
        Ok(Some(match array.origin() {
            Origin::Block(n) => self.block(*n)?,
            Origin::External(uri) => self.external(uri, array)?,
            Origin::Fits { unit, .. } => self.fits_elements(*unit)?,
            Origin::Inline | Origin::Chunked | Origin::Unknown => return Ok(None),
        }))
    }

    /// The elements of array `i` in C order, read from `block` in place of the block in the file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the array reaches outside it.
    pub fn array_over(&self, i: usize, block: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        let array = self.array(i)?;
        let view = self.array_view(i, block.len())?;
        Strided::open(block, view, &self.buffers)
            .map_err(|error| error.at(Place::Array(array.brief_path())))
    }

    /// Array `i` behind an NPY header.
    ///
    /// # Errors
    /// As [`Snapshot::array_bin`].
    pub fn array_npy(&self, i: usize) -> Result<Arc<dyn Source>> {
        let array = self.array(i)?;
        if let Some(block) = self.around(array)? {
            return self.npy_over(i, block);
        }
        let header = Arc::new(Memory::new(array.npy_header()?));
        Ok(Arc::new(Joined::new(
            header,
            self.bytes_by_itself(i, array)?,
        )?))
    }

    /// Array `i` behind an NPY header, read from `block` in place of the block in the file.
    ///
    /// # Errors
    /// As [`Snapshot::array_over`].
    pub fn npy_over(&self, i: usize, block: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        let array = self.array(i)?;
        let header = Memory::new(array.npy_header()?);
        let data = if array.data.form.fortran {
            // the bytes lie in the block as NPY's Fortran order has them
            let view = self.array_view(i, block.len())?;
            Arc::new(Window::new(block, view.extent().start, view.len())?)
        } else {
            self.array_over(i, block)?
        };
        Ok(Arc::new(Joined::new(Arc::new(header), data)?))
    }

    /// The layout of the elements of array `i` in a block of `block_len` bytes.
    ///
    /// # Errors
    /// [`Array::problem`]; [`Error::Corrupt`] if the array reaches outside the block.
    pub fn array_view(&self, i: usize, block_len: u64) -> Result<View> {
        let array = self.array(i)?;
        array
            .view(block_len)
            .map_err(|error| error.at(Place::Array(array.brief_path())))
    }

    /// Bytes of the NPY header of array `i`.
    ///
    /// # Errors
    /// [`Array::problem`].
    pub fn npy_header_len(&self, i: usize) -> Result<u64> {
        let array = self.array(i)?;
        match array.data.form.npy_header_len {
            // no header could be made when the form was read: making it again returns the reason
            0 => Ok(len_u64(array.npy_header()?.len())),
            len => Ok(len.into()),
        }
    }

    /// The elements that are written in the tree or in chunks, in C order. All that read those in the tree at the same time share the bytes.
    fn bytes_by_itself(&self, i: usize, array: &Array) -> Result<Arc<dyn Source>> {
        match (array.detail.as_deref(), self.tree()) {
            (Some(Detail::Chunked(chunked)), _) => self.chunked_bytes(i, chunked),
            (Some(Detail::Inline(elements, shared)), Some(Ok(tree))) => {
                // locked while they are encoded, so that two readers do not do it at once
                let mut shared = lock(shared);
                let bytes = match shared.upgrade() {
                    Some(bytes) => bytes,
                    None => Arc::new(elements.bytes(tree)?),
                };
                *shared = Arc::downgrade(&bytes);
                Ok(Arc::new(Memory::shared(bytes)))
            }
            _ => Err(Error::corrupt(
                array.place(),
                "an array without source or data",
            )),
        }
    }

    /// Opens the elements of a unit of the FITS file around this one.
    fn fits_elements(&self, unit: usize) -> Result<Arc<dyn Source>> {
        let outside = || corrupt("not in a FITS file");
        let fits = self.fits.as_ref().ok_or_else(outside)?;
        fits.open_elements(unit)
    }
}
