//! The format layer: an ASDF file as it is parsed, usable without FUSE.
//!
//! A [`Snapshot`] is one state of a file: where everything lies ([`layout`]), what the tree says ([`tree`]), and which arrays it
//! declares. It never changes. The tree is parsed on first use, and blocks and arrays are opened as sources on first use.

mod array;
mod block;
#[doc(hidden)]
pub mod buffers;
mod chain;
#[doc(hidden)]
pub mod check;
pub mod checksum;
mod chunked;
mod copy;
pub mod datatype;
#[doc(hidden)]
pub mod decl;
#[doc(hidden)]
pub mod dialect;
pub mod external;
mod find;
pub mod fits;
#[doc(hidden)]
pub mod gather;
pub mod header;
#[doc(hidden)]
pub mod heal;
#[doc(hidden)]
pub mod inline;
pub mod layout;
mod lines;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod npy;
pub(crate) mod numbers;
mod other_formats;
#[doc(hidden)]
pub mod outline;
#[doc(hidden)]
pub mod parts;
pub(crate) mod paths;
mod reading;
mod redeclare;
pub(crate) mod rows;
pub mod rules;
pub mod scalar;
#[doc(hidden)]
pub mod scan;
#[doc(hidden)]
pub mod scatter;
#[doc(hidden)]
pub mod sources;
#[doc(hidden)]
pub mod strided;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod text_frame;
mod tile;
mod timestamp;
pub mod tree;
mod unused;
mod yaml;

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use crate::codec::Cache;
use crate::error::{Error, Lasting, Result};
use crate::source::{FileSource, Source, Stat};

pub use array::{Array, ArrayData, Origin};
#[doc(hidden)]
pub use paths::Paths;
#[cfg(test)]
pub(crate) use tests::sample;

use block::OpenBlock;
use buffers::Buffers;
use check::CheckedText;
use checksum::ChecksumState;
use chunked::OpenChunks;
use external::{ExternalBlock, Sandbox};
use find::ArrayTable;
use fits::Fits;
use layout::{Finding, Layout, Severity};
use parts::Parts;
use rules::Faults;
use scan::Scan;
use tree::Tree;

/// How a file is to be read.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Read files of a newer major version, and blocks whose number is in doubt.
    pub force: bool,
    /// Where external sources may be read from; `None` for nowhere.
    pub sandbox: Option<Arc<Sandbox>>,
    /// Verify the checksum of each block when it is first opened; a block whose checksum is wrong can't be read.
    pub verify: bool,
    /// Read only the text, to fetch as little as possible of a remote file. The snapshot then lists no blocks.
    pub text_only: bool,
}

/// Per block: how to read it, and the state of its checksum. A save hands both on to the next snapshot.
type Known = (Parts<Lasting<OpenBlock>>, Parts<OnceLock<ChecksumState>>);

/// One state of an ASDF file.
pub struct Snapshot {
    /// The open file; `None` for a remote file.
    file: Option<Arc<FileSource>>,
    bytes: Arc<dyn Source>,
    fits: Option<Arc<Fits>>,
    layout: Layout,
    text: Arc<Vec<u8>>,
    tree: OnceLock<Option<Result<Arc<Tree>>>>,
    faults: OnceLock<Faults>,
    found: OnceLock<Arc<ArrayTable>>,
    blocks: Parts<Lasting<OpenBlock>>,
    checksums: Parts<OnceLock<ChecksumState>>,
    cache: Arc<Cache>,
    buffers: Arc<Buffers>,
    options: OpenOptions,
    /// The first blocks of other files, by the path of the file.
    external_blocks: Mutex<HashMap<PathBuf, ExternalBlock>>,
    chunks: Arc<OpenChunks>,
}

impl Snapshot {
    /// Reads the headers and the text of a file. Block data are left alone.
    ///
    /// A tree that does not parse is not an error here: text and blocks can still be read. [`Snapshot::tree`] returns the error.
    ///
    /// # Errors
    /// As [`scan::scan`].
    pub fn open(file: Arc<File>, cache: Arc<Cache>, options: OpenOptions) -> Result<Self> {
        let file = Arc::new(FileSource::open(file)?);
        let bytes: Arc<dyn Source> = file.clone();
        Self::read(file, bytes, cache, options)
    }

    /// As [`Snapshot::open`], but reads from `bytes`: the file as an interrupted save will leave it, or a remote file. A
    /// remote file has no `file`.
    ///
    /// # Errors
    /// As [`scan::scan`].
    pub fn read(
        file: impl Into<Option<Arc<FileSource>>>,
        bytes: Arc<dyn Source>,
        cache: Arc<Cache>,
        options: OpenOptions,
    ) -> Result<Self> {
        // ASDF in FITS is a window of the FITS file: every offset
        // from here on counts from the start of that window.
        let fits = Fits::open(&bytes)?;
        let bytes = match &fits {
            Some(fits) => fits.embedded()?,
            None => bytes,
        };
        let mut scan = if options.text_only {
            scan::scan_text(&*bytes, options.force)?
        } else {
            scan::scan(&*bytes, options.force)?
        };
        // a FITS file with faults of its own is still read: they are findings, not errors
        let problems = fits.iter().flat_map(|fits| &fits.problems);
        scan.layout.findings.extend(problems.map(|error| Finding {
            severity: Severity::Odd,
            error: error.clone(),
        }));
        let mut snapshot = Self::new(file, bytes, scan, cache, options);
        snapshot.fits = fits.map(Arc::new);
        Ok(snapshot)
    }

    /// The snapshot of a file that has been scanned already, and is no FITS file.
    #[must_use]
    pub fn new(
        file: impl Into<Option<Arc<FileSource>>>,
        bytes: Arc<dyn Source>,
        scan: Scan,
        cache: Arc<Cache>,
        options: OpenOptions,
    ) -> Self {
        let blocks = scan.layout.blocks.iter().map(|_| Lasting::new()).collect();
        let checksums = scan.layout.blocks.iter().map(|_| OnceLock::new()).collect();
        Self::with_known(file, bytes, scan, cache, options, (blocks, checksums))
    }

    /// As [`Snapshot::new`], with the decoders and checksums of another snapshot.
    fn with_known(
        file: impl Into<Option<Arc<FileSource>>>,
        bytes: Arc<dyn Source>,
        scan: Scan,
        cache: Arc<Cache>,
        options: OpenOptions,
        (blocks, checksums): Known,
    ) -> Self {
        let Scan { layout, text } = scan;
        Self {
            blocks,
            checksums,
            buffers: Buffers::new(&cache),
            file: file.into(),
            bytes,
            fits: None,
            layout,
            text,
            tree: OnceLock::new(),
            faults: OnceLock::new(),
            found: OnceLock::new(),
            cache,
            options,
            external_blocks: Mutex::default(),
            chunks: Arc::default(),
        }
    }

    /// The snapshot after a save. A compressed block keeps its decoder and checksum unless its header has changed or it is in
    /// `replaced`. `bytes` stands for the file while the save has not written all of it yet. A text that is unchanged, or that is
    /// `checked`, is not parsed again.
    #[must_use]
    pub fn succeeded_by(
        &self,
        file: Arc<File>,
        bytes: Option<Arc<dyn Source>>,
        scan: Scan,
        replaced: &[usize],
        checked: Option<CheckedText>,
    ) -> Self {
        // A decoder reads through the file it was opened with. It can be handed on only if
        // the save wrote into that same open file, not if it renamed a new file into place.
        let known = self.file.as_ref();
        let known = known.filter(|known| Arc::ptr_eq(&file, known.file()));
        // a `FileSource` has a fixed length: a save that changed the length needs a new one
        let kept = known.filter(|known| known.len() == scan.layout.len);
        let same_file = known.is_some();
        let new = || Arc::new(FileSource::new(file, scan.layout.len));
        let file = kept.map_or_else(new, Arc::clone);
        let bytes = bytes.unwrap_or_else(|| file.clone());
        let (cache, options) = (Arc::clone(&self.cache), self.options.clone());
        let count = scan.layout.blocks.len();
        let mut next = if Arc::ptr_eq(&self.bytes, &bytes) && count == self.layout.blocks.len() {
            let known = self.known_in(&scan.layout, replaced);
            Self::with_known(file, bytes, scan, cache, options, known)
        } else {
            let mut next = Self::new(file, bytes, scan, cache, options);
            let is_kept = |n: &usize| !self.is_unlike(&next.layout, *n) && !replaced.contains(n);
            let kept: Vec<usize> = (0..count).filter(|n| same_file && is_kept(n)).collect();
            for n in kept {
                copy_slot(&self.blocks, &mut next.blocks, n);
                copy_slot(&self.checksums, &mut next.checksums, n);
            }
            next
        };
        next.buffers = Arc::clone(&self.buffers);
        self.hand_down(&mut next, checked);
        next
    }

    /// Decoders and checksums for `next`, which reads the same bytes and has as many blocks.
    fn known_in(&self, next: &Layout, replaced: &[usize]) -> Known {
        let mut known = (self.blocks.clone(), self.checksums.clone());
        // Entries that the two tables share can't differ, so a save of
        // one block compares few headers, however many blocks there are.
        let unshared = next.blocks.unshared(&self.layout.blocks);
        let unlike = unshared.filter(|&n| self.is_unlike(next, n));
        for n in unlike.chain(replaced.iter().copied()) {
            if let (Some(block), Some(checksum)) = (known.0.get_mut(n), known.1.get_mut(n)) {
                (*block, *checksum) = (Lasting::new(), OnceLock::new());
            }
        }
        known
    }

    /// Whether block `n` must be opened again under the layout `next`: its header differs, or it is stored raw.
    fn is_unlike(&self, next: &Layout, n: usize) -> bool {
        let new = next.blocks.get(n);
        // A raw block without a checksum can change under an
        // unchanged header, and to open it again costs nothing.
        new.is_none_or(|new| new.compression == [0; 4]) || new != self.layout.blocks.get(n)
    }

    /// Passes tree, faults and arrays to `next` if they belong to its text.
    fn hand_down(&self, next: &mut Self, checked: Option<CheckedText>) {
        let same_blocks = next.has_blocks_like(self);
        if next.text == self.text {
            // shares the memory of an equal text, so that two snapshots do not hold it twice
            next.text = Arc::clone(&self.text);
            next.tree = self.tree.clone();
            next.faults = self.faults.clone();
            if same_blocks {
                next.found = self.found.clone();
            }
        } else if let Some(checked) = checked.filter(|checked| checked.is(&next.text)) {
            next.text = Arc::clone(checked.tree.bytes());
            next.tree = Some(Ok(checked.tree)).into();
            if let Some(faults) = checked.faults {
                next.faults = faults.into();
            }
            if same_blocks {
                next.found = checked.found.into();
            }
        }
    }

    /// Whether the arrays are known to be the arrays of another snapshot, with the same names.
    #[must_use]
    pub fn has_arrays_of(&self, other: &Self) -> bool {
        // two copies of one state have the same arrays, even before these are looked for
        let is_copy = Arc::ptr_eq(&self.bytes, &other.bytes)
            && Arc::ptr_eq(&self.text, &other.text)
            && self.layout.blocks.is_copy_of(&other.layout.blocks);
        let found = self.found.get().zip(other.found.get());
        is_copy || found.is_some_and(|(mine, others)| Arc::ptr_eq(mine, others))
    }

    /// Whether text, blocks and index of another snapshot were found to be the same.
    #[must_use]
    pub fn has_scan_of(&self, other: &Self) -> bool {
        let found = |it: &Self| (it.layout.text_end, it.layout.len, it.layout.index.clone());
        self.text == other.text
            && self.layout.blocks == other.layout.blocks
            && found(self) == found(other)
    }

    /// The same snapshot without its parsed tree, which may take hundreds of megabytes: it is parsed again on next use.
    #[must_use]
    pub fn unread(&self) -> Self {
        Self {
            fits: self.fits.clone(),
            blocks: self.blocks.clone(),
            checksums: self.checksums.clone(),
            buffers: Arc::clone(&self.buffers),
            ..Self::new(
                self.file.clone(),
                Arc::clone(&self.bytes),
                self.scan(),
                Arc::clone(&self.cache),
                self.options.clone(),
            )
        }
    }

    /// The same snapshot, for a source that opens more of it later.
    fn copy(&self) -> Self {
        Self {
            tree: self.tree.clone(),
            found: self.found.clone(),
            chunks: Arc::clone(&self.chunks),
            ..self.unread()
        }
    }

    /// The layout and text of this snapshot, as a scan returns them.
    fn scan(&self) -> Scan {
        Scan {
            layout: self.layout.clone(),
            text: Arc::clone(&self.text),
        }
    }

    /// The cache and the options with which the snapshot was opened.
    #[must_use]
    pub fn opened_with(&self) -> (&Arc<Cache>, &OpenOptions) {
        (&self.cache, &self.options)
    }

    /// The same text and layout without decoders and checksums, because another program may have changed the data of blocks.
    /// `bytes` stands for the file while a save has not written all of it yet.
    ///
    /// # Errors
    /// [`Error::Io`] if the size of the file can't be read.
    pub fn with_data_anew(&self, file: Arc<File>, bytes: Option<Arc<dyn Source>>) -> Result<Self> {
        let mut next = self.replaced_by(file, self.scan())?;
        next.bytes = bytes.unwrap_or(next.bytes);
        next.tree = self.tree.clone();
        next.faults = self.faults.clone();
        Ok(next)
    }

    /// The snapshot from `scan`, after another program changed the file or put another one in its place.
    ///
    /// # Errors
    /// [`Error::Io`] if the size of the file can't be read.
    pub fn replaced_by(&self, file: Arc<File>, scan: Scan) -> Result<Self> {
        let file = Arc::new(FileSource::open(file)?);
        let bytes: Arc<dyn Source> = file.clone();
        Ok(Self::new(
            file,
            bytes,
            scan,
            Arc::clone(&self.cache),
            self.options.clone(),
        ))
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many blocks it has; `None` if they were not looked for.
    #[must_use]
    pub fn block_count(&self) -> Option<usize> {
        (!self.options.text_only).then_some(self.layout.blocks.len())
    }

    /// First line, comments and tree, byte for byte.
    #[must_use]
    pub fn text(&self) -> &Arc<Vec<u8>> {
        &self.text
    }

    /// The tree; `None` if the file has none, and an error if it can't be parsed.
    #[must_use]
    pub fn tree(&self) -> Option<Result<&Tree, &Error>> {
        self.shared_tree().map(|tree| tree.map(|tree| &**tree))
    }

    /// The open file, if the snapshot reads it directly from byte 0. `None` for a remote file, for ASDF in FITS, and after an
    /// interrupted save. Where it is `Some`, a streamed block grows with the file.
    #[must_use]
    pub fn plain_file(&self) -> Option<&Arc<FileSource>> {
        // `addr_eq`, because one of the two is a pointer to a trait object
        let is_read = |file: &&Arc<FileSource>| {
            std::ptr::addr_eq(Arc::as_ptr(file), Arc::as_ptr(&self.bytes))
        };
        self.file.as_ref().filter(is_read)
    }

    /// Whether the tree has not been parsed yet.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.tree.get().is_none()
    }

    /// As [`Snapshot::tree`], for callers that keep the tree.
    fn shared_tree(&self) -> Option<Result<&Arc<Tree>, &Error>> {
        let parse = || {
            self.layout
                .has_tree
                .then(|| Tree::of(Arc::clone(&self.text)).map(Arc::new))
        };
        self.tree.get_or_init(parse).as_ref().map(Result::as_ref)
    }

    /// The kind of file, for people.
    #[must_use]
    pub fn container(&self) -> String {
        let inside = if self.fits.is_some() { " in FITS" } else { "" };
        format!("{}{inside}", self.layout.dialect.name)
    }

    /// Length of the file in bytes. For ASDF in FITS, the length of the FITS file.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.fits().map_or(self.layout.len, Fits::file_len)
    }

    /// Name and version of the library that wrote the file, by the key `asdf_library` of its tree.
    #[must_use]
    pub fn written_by(&self) -> Option<String> {
        let tree: &Tree = self.tree()?.as_ref().ok()?;
        let library = tree.root()?.follow().get("asdf_library")?.follow();
        let field = |key: &str| library.get(key)?.follow().text();
        let name = field("name")?;
        Some(match field("version") {
            Some(version) => format!("{name} {version}"),
            None => name.to_owned(),
        })
    }

    /// The FITS file around the ASDF file, if it is in one.
    #[must_use]
    pub fn fits(&self) -> Option<&Fits> {
        self.fits.as_deref()
    }

    /// The places where the tree breaks rules of the core tags. The tree is checked on first use.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        self.faults.get_or_init(|| match self.tree() {
            Some(Ok(tree)) => rules::check(tree),
            Some(Err(_)) | None => Faults::default(),
        })
    }

    /// The arrays that the tree declares, in its order.
    #[must_use]
    pub fn arrays(&self) -> &[Array] {
        &self.found().arrays
    }

    /// Where arrays, links and references stand; none without a tree.
    #[must_use]
    pub fn paths(&self) -> Option<&Paths> {
        self.found().paths.as_deref()
    }

    /// The references into other files (ASDF Standard, "References"), in the tree's order: the path of each, and the file and the
    /// pointer within it as the tree says them. Nothing of the other file is read or shown.
    pub fn references(&self) -> impl Iterator<Item = (String, &str)> {
        self.paths().into_iter().flat_map(Paths::references)
    }

    /// The limits that the tree exceeds, each once. Parts of the tree beyond a limit are not shown.
    #[must_use]
    pub fn limits(&self) -> &[Error] {
        &self.found().limits
    }

    /// For each block, the indices of the arrays that use it.
    #[must_use]
    pub fn block_users(&self) -> &[Vec<usize>] {
        &self.found().users
    }

    /// The cache of decoded data.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Attributes of the open file now.
    ///
    /// # Errors
    /// [`Error::Io`]; always for a remote file, which has no open file.
    #[doc(hidden)]
    pub fn stat(&self) -> Result<Stat> {
        let failed = |cause| Error::io("reading the file's attributes", cause);
        let far = || failed(ErrorKind::Unsupported.into());
        let meta = self.file.as_ref().ok_or_else(far)?.file().metadata();
        Ok(Stat::from(&meta.map_err(failed)?))
    }

    /// The open file; `None` for a remote file.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<FileSource>> {
        self.file.as_ref()
    }
}

/// Copies entry `n` of one table into the other, if both have it.
fn copy_slot<T: Clone>(from: &Parts<T>, to: &mut Parts<T>, n: usize) {
    if let (Some(from), Some(to)) = (from.get(n), to.get_mut(n)) {
        *to = from.clone();
    }
}

#[cfg(test)]
mod tests;
