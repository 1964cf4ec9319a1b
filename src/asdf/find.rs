//! From the declarations of a tree to arrays: each proved against its block, with the names of its files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::Snapshot;
use super::array::{Array, Detail, Form, Origin};
use super::datatype::{ByteOrder, Datatype};
use super::decl::chunked::{self, Chunked, Chunks};
use super::decl::{Declared, Inline, Storage, StoredArray};
use super::inline;
use super::outline::{Outline, Place, PlaceId, What};
use super::paths::Paths;
use super::scalar::Value;
use super::strided::View;
use super::tree::{Node, Tree};
use crate::error::{Error, Result, corrupt, unsupported};

/// The blocks of a snapshot, in which arrays may lie.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    of: &'a Snapshot,
    /// A block that a save is going to resize, and its new length.
    resized: Option<(usize, u64)>,
}

impl Blocks<'_> {
    /// The block that a source names.
    fn index(&self, source: i64) -> Result<usize> {
        // counted from the end, a block has no number as long as blocks may be missing
        let doubt = self.of.layout.doubt.as_ref();
        match doubt.filter(|_| source < 0 && !self.of.options.force) {
            Some(doubt) => Err(doubt.error.clone()),
            None => block_index(source, self.of.layout.blocks.len()),
        }
    }

    /// Length of the decoded data of block `n` in bytes; an error if the block is withheld.
    fn data_size(&self, n: usize) -> Result<u64> {
        if let Some(why) = self.of.layout.withheld(n, self.of.options.force) {
            return Err(why.clone());
        }
        let resized = self.resized.filter(|(resized, _)| *resized == n);
        let len = resized.map(|(_, len)| len);
        let len = len.or_else(|| self.of.block_len(n));
        len.ok_or_else(|| corrupt("no such block"))
    }
}

/// Why an array has no files if a key above it can't be a file name.
pub(super) const NAMELESS: &str =
    "it stands below a key that is a sequence or a mapping, of which no name of a file can be made";

/// The arrays of a tree, and the directories that lead to them.
#[derive(Default)]
pub(crate) struct ArrayTable {
    /// The places of all these in the tree; `None` without a tree.
    pub(super) paths: Option<Arc<Paths>>,
    /// In the order of the tree.
    pub(super) arrays: Vec<Array>,
    /// For each block, the indices of the arrays that use it.
    pub(super) users: Vec<Vec<usize>>,
    /// For each place, whether its directory holds something.
    filled: Vec<bool>,
    /// The limits beyond which something of the tree is not shown.
    pub(super) limits: Vec<Error>,
}

impl ArrayTable {
    /// Records which directories hold something. The target directory of a link stands in front of the link, so it is known by then
    /// whether it holds something; but a link inside of its own target is shown only if something stands in front of it there.
    fn fill_all(&mut self, paths: &Paths) {
        self.filled = vec![false; paths.outline().places().len()];
        for (id, _) in paths.outline().ids() {
            if self.shows(paths, id) != (false, false) {
                self.fill(paths, id);
            }
        }
    }

    /// Whether a place shows the files of an array, and whether it shows a directory with something in it. An array with a mask shows
    /// both. A link shows what its target shows.
    pub(crate) fn shows(&self, paths: &Paths, id: PlaceId) -> (bool, bool) {
        let (target, whole) = match paths.outline().place(id) {
            Some(place) if place.nameless => return (false, false),
            Some(&Place {
                what: What::Link { to, whole },
                ..
            }) => (to, whole),
            _ => (id, true),
        };
        let array = paths.outline().array(target);
        let array = array.and_then(|n| self.arrays.get(n));
        let is_filled = self.filled.get(target.index()) == Some(&true);
        (array.is_some_and(Array::has_files), whole && is_filled)
    }

    /// Marks all directories above a place as holding something.
    fn fill(&mut self, paths: &Paths, mut id: PlaceId) {
        while id != PlaceId::ROOT {
            id = paths.parent(id);
            match self.filled.get_mut(id.index()) {
                Some(filled) if !*filled => *filled = true,
                // a marked directory has only marked ones above
                // it: all arrays together mark each one once
                _ => return,
            }
        }
    }
}

/// Finds all arrays of a tree.
fn find(tree: &Arc<Tree>, blocks: Blocks<'_>) -> ArrayTable {
    let paths = Arc::new(Paths::new(tree, Outline::new(tree)));
    let declared = paths.outline().declared(tree);
    // for all arrays together: shared forms save memory, and the room bounds it
    let (mut forms, mut room) = (HashMap::new(), inline::Room::of(tree));
    let arrays = declared
        .map(|(home, declared)| array(&paths, home, declared, blocks, &mut forms, &mut room))
        .collect();
    let mut found = ArrayTable {
        arrays,
        limits: paths.outline().limit_errors(tree),
        ..ArrayTable::default()
    };
    found.fill_all(&paths);
    found.paths = Some(paths);
    found
}

/// Builds the array of a declaration, proved against its block.
fn array(
    paths: &Arc<Paths>,
    home: PlaceId,
    declared: Result<Declared>,
    blocks: Blocks<'_>,
    forms: &mut HashMap<Form, Arc<Form>>,
    room: &mut inline::Room,
) -> Array {
    let mut form = Form::default();
    let (offset, located) = match declared {
        Err(error) => {
            // Its block is in use, however little sense the rest makes.
            let node = paths
                .node(home)
                .filter(|node| !node.tag().is_some_and(chunked::is_tag));
            let source = node.and_then(|node| node.get("source"));
            if let Some(Value::Int(source)) = source.and_then(Node::value)
                && let Ok(source) = i64::try_from(source)
            {
                // the declaration is refused already, with its own reason
                let _ = fill_block(&mut form, source, blocks);
            }
            (0, Err(error))
        }
        Ok(Declared::Stored(stored)) => {
            let located = fill_stored(&mut form, &stored, blocks);
            (stored.offset, located.map(|()| None))
        }
        Ok(Declared::Inline(inline)) => {
            let located = fill_inline(&mut form, paths.tree(), &inline, room);
            let detail = |elements| Some(Detail::Inline(elements, Mutex::default()));
            (0, located.map(detail))
        }
        Ok(Declared::Chunked(chunked)) => {
            let located = fill_chunked(&mut form, &chunked, blocks);
            (
                0,
                located.map(|()| Some(Detail::Chunked((*chunked).into()))),
            )
        }
    };
    // an error of the declaration goes first, because the user can correct that one
    let located = located.and_then(|detail| {
        if (paths.outline().place(home)).is_some_and(|place| place.nameless) {
            return Err(unsupported(NAMELESS));
        }
        Ok(detail)
    });
    Array::new(paths, home, form.shared(forms), offset, located)
}

/// Fills in the declaration of elements in a block, as far as it makes sense, and checks that the elements lie in the block.
fn fill_stored(form: &mut Form, stored: &StoredArray, blocks: Blocks<'_>) -> Result<()> {
    // in front of the first check, so that `info/` shows what a faulty declaration says
    form.byteorder = Some(stored.byteorder);
    form.strides.clone_from(&stored.strides);
    form.datatype = Some(stored.datatype.clone());
    form.to_end = stored.shape.first() == Some(&None);
    let block_len = match &stored.storage {
        Storage::Block(source) => {
            let n = fill_block(form, *source, blocks)?;
            Some(blocks.data_size(n)?)
        }
        Storage::External(uri) => {
            form.origin = Origin::External(uri.clone());
            None
        }
        Storage::Fits(reference) => return fill_from_unit(form, stored, reference, blocks),
    };
    let size = stored
        .datatype
        .size()
        .ok_or_else(|| corrupt("the elements are too large".to_owned()))?;
    let shape = resolved_shape(stored, size, block_len, blocks)?;
    form.shape = Some(shape.clone());
    // the block of another file is only looked at when the array is read; its length is then checked
    let view = View::new(
        size,
        &shape,
        stored.strides.as_deref(),
        stored.offset,
        block_len.unwrap_or(u64::MAX),
    )?;
    // an array that is dense in both orders, such as one of a single axis, counts as C order
    form.fortran = view.is_fortran_dense() && !view.is_dense();
    form.len = view.len();
    Ok(())
}

/// Fills in which block an array lies in, and returns its index.
fn fill_block(form: &mut Form, source: i64, blocks: Blocks<'_>) -> Result<usize> {
    form.counted_back = source < 0;
    let n = blocks.index(source)?;
    form.origin = Origin::Block(n);
    Ok(n)
}

/// Fills in an array from another unit of the FITS file around this one. A unit is taken whole, with the types of its own header,
/// as astropy and stdatamodels do.
fn fill_from_unit(
    form: &mut Form,
    stored: &StoredArray,
    reference: &str,
    blocks: Blocks<'_>,
) -> Result<()> {
    // shown if the unit is not found below: the reference as the tree spells it
    form.origin = Origin::External(format!("fits:{reference}"));
    let told = |why: &str| unsupported(format!("fits:{reference}: {why}"));
    let fits = blocks.of.fits();
    let fits = fits.ok_or_else(|| told("wanted, but this is no FITS file"))?;
    let (unit, held) = fits.referred(reference)?;
    let as_declared = (stored.shape.iter())
        .zip(&held.shape)
        .all(|(declared, own)| declared.is_none_or(|len| len == *own));
    if !as_declared || stored.shape.len() != held.shape.len() {
        let own = &held.shape;
        return Err(told(&format!(
            "the unit has the shape {own:?}, the tree declares another"
        )));
    }
    let is_table = |datatype: &Datatype| matches!(datatype, Datatype::Struct(_));
    if is_table(&held.datatype) != is_table(&stored.datatype) {
        return Err(told("either the unit or what the tree declares is a table"));
    }
    // only for the strides and the offset: a unit has no block to reach out of
    let declared = View::new(
        stored.datatype.size().unwrap_or(u64::MAX),
        &held.shape,
        stored.strides.as_deref(),
        stored.offset,
        u64::MAX,
    )?;
    if stored.offset > 0 || !declared.is_dense() {
        return Err(told(
            "a part of a unit, by offset or strides; units are shown whole",
        ));
    }
    let size = held.datatype.size().unwrap_or(u64::MAX);
    form.len = View::new(size, &held.shape, None, 0, u64::MAX)?.len();
    form.origin = Origin::Fits {
        reference: reference.to_owned(),
        unit,
        difference: held.difference(&stored.datatype),
    };
    // a unit has no gaps, and all its numbers are big-endian
    form.strides = None;
    form.byteorder = Some(ByteOrder::Big);
    form.datatype = Some(held.datatype.clone());
    form.shape = Some(held.shape.clone());
    Ok(())
}

/// A block index from the tree; negative ones count from the end.
///
/// # Errors
/// [`Error::Corrupt`] if there is no such block.
pub fn block_index(source: i64, count: usize) -> Result<usize> {
    let n = match usize::try_from(source) {
        Ok(n) => Some(n),
        // `unsigned_abs`, because the least `i64` has no positive counterpart
        Err(_) => usize::try_from(source.unsigned_abs())
            .ok()
            .and_then(|back| count.checked_sub(back)),
    };
    n.filter(|&n| n < count).ok_or_else(|| {
        let there = match count {
            1 => "is 1 block".to_owned(),
            count => format!("are {count} blocks"),
        };
        let why = format!("block {source} wanted, but there {there}");
        corrupt(why)
    })
}

/// The shape, with `*` replaced by the number of rows that the block holds.
fn resolved_shape(
    stored: &StoredArray,
    size: u64,
    block_len: Option<u64>,
    blocks: Blocks<'_>,
) -> Result<Vec<u64>> {
    let fixed =
        |dims: &[Option<u64>]| -> Vec<u64> { dims.iter().map(|dim| dim.unwrap_or(0)).collect() };
    let Some((None, row)) = stored.shape.split_first() else {
        return Ok(fixed(&stored.shape));
    };
    let block_len = match (&stored.storage, block_len) {
        (_, Some(len)) => len,
        // another file is only opened early if a shape depends on it
        (Storage::External(uri), None) => blocks.of.external_len(uri)?,
        _ => 0,
    };
    let row = fixed(row);
    let stride = stored
        .strides
        .as_ref()
        .and_then(|strides| strides.first().copied());
    let rows = View::rows_to_end(size, &row, stride, stored.offset, block_len)?;
    Ok([&[rows][..], &row].concat())
}

/// Fills in the declaration of elements in the tree. What it leaves out follows from the elements.
fn fill_inline(
    form: &mut Form,
    tree: &Tree,
    declared: &Inline,
    room: &mut inline::Room,
) -> Result<inline::Elements> {
    form.origin = Origin::Inline;
    // shown even if the elements below are at fault
    form.datatype.clone_from(&declared.datatype);
    let elements = inline::Elements::new(tree, declared)?;
    form.len = elements.len();
    form.datatype = Some(elements.datatype().clone());
    form.shape = Some(elements.shape().to_vec());
    // last, so that an array beyond the limit still shows its type and shape
    room.take(&elements)?;
    Ok(elements)
}

/// Fills in what is declared of elements in chunks. Of these only the block that has their numbers is looked at, and only at its length.
fn fill_chunked(form: &mut Form, chunked: &Chunked, blocks: Blocks<'_>) -> Result<()> {
    let (shape, size) = (chunked.grid.shape(), chunked.grid.itemsize());
    form.datatype = Some(chunked.datatype.clone());
    form.shape = Some(shape.to_vec());
    if let Chunks::Blocks { map, .. } = chunked.chunks {
        let map = blocks.index(i64::try_from(map).unwrap_or(i64::MAX))?;
        chunked.check_map(blocks.data_size(map)?)?;
    }
    form.origin = Origin::Chunked;
    form.len = View::new(size, shape, None, 0, u64::MAX)?.len();
    Ok(())
}

impl Snapshot {
    /// What the tree declares, found on first use.
    pub(crate) fn found(&self) -> &Arc<ArrayTable> {
        self.found.get_or_init(|| match self.shared_tree() {
            Some(Ok(tree)) => self.find_in(tree, None),
            Some(Err(_)) | None => Arc::new(ArrayTable {
                users: vec![Vec::new(); self.layout.blocks.len()],
                ..ArrayTable::default()
            }),
        })
    }

    /// The arrays that a tree declares over the blocks of this snapshot. `resized` is a block that a save is going to resize,
    /// and its new length in bytes.
    pub(super) fn find_in(
        &self,
        tree: &Arc<Tree>,
        resized: Option<(usize, u64)>,
    ) -> Arc<ArrayTable> {
        let mut found = find(tree, Blocks { of: self, resized });
        found.users = vec![Vec::new(); self.layout.blocks.len()];
        for (i, array) in found.arrays.iter().enumerate() {
            if let Origin::Block(n) = array.origin()
                && let Some(users) = found.users.get_mut(*n)
            {
                users.push(i);
            }
        }
        Arc::new(found)
    }

    /// Whether a tree declares the same arrays over the blocks of `self` and of `other`. `false` with a streamed block: it may have
    /// grown since its arrays were found, so that its present length proves nothing.
    pub(super) fn has_blocks_like(&self, other: &Self) -> bool {
        let count = self.layout.blocks.len();
        let size = |of, n| Blocks { of, resized: None }.data_size(n).ok();
        count == other.layout.blocks.len()
            && !self.layout.streamed()
            && !other.layout.streamed()
            && self.layout.doubt.is_some() == other.layout.doubt.is_some()
            && self.layout.blocks.unshared(&other.layout.blocks).all(|n| {
                // the data of the block in front may be cut off where this block begins
                let same = |n| size(self, n) == size(other, n);
                same(n) && n.checked_sub(1).is_none_or(same)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::OpenOptions;
    use crate::asdf::sample::Sample;
    use crate::codec::Cache;
    use crate::source::{Borrower, Loan, Memory, Source};

    #[test]
    fn nothing_leads_to_what_is_not_shown() {
        let column = "!<tag:stsci.edu:asdf/core/column-1.0.0>";
        let body = format!(
            "bad: &b BAD\nal: *b\nref: {{$ref: '#/bad'}}\nlate: {{$ref: '#/end'}}\nend: BAD\n\
            d: &d {{x: {{y: BAD}}, z: *b}}\nd2: &e {{d: *d}}\nd3: *e\nm: &m {{data: [1], mask: BAD}}\n\
            t: !<tag:stsci.edu:asdf/core/table-1.0.0> {{columns: [{column} {{data: *b, name: c}}]}}\n\
            good: &g {{x: ARRAY, y: BAD}}\ngood2: *g\nmasked: &k MASKED\nmasked2: *k"
        );
        let tag = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0>";
        let masked = format!("{tag} {{data: [1], datatype: nonsense, mask: ARRAY}}");
        let body = body.replace("MASKED", &masked);
        let body = body.replace("ARRAY", &format!("{tag} [1]"));
        let body = body.replace("BAD", &format!("{tag} {{}}"));
        let text = format!("#ASDF 1.0.0\n---\n{body}\n...\n");
        let file = Arc::new(Memory::new(Sample::new().text(text.as_bytes()).bytes()));
        let options = OpenOptions::default();
        let snapshot = Snapshot::read(None, file, Cache::new(0), options).unwrap();
        let found = snapshot.found();
        let paths = found.paths.as_ref().unwrap();
        let link = |(id, place): (PlaceId, &Place)| {
            let What::Link { to, .. } = place.what else {
                return None;
            };
            let shown = found.shows(paths, id);
            let is_shown = shown != (false, false);
            is_shown.then(|| (paths.path(id), paths.path(to), shown))
        };
        let links: Vec<_> = paths.outline().ids().filter_map(link).collect();
        let whole = |from: &str, to: &str| (from.to_owned(), to.to_owned(), (false, true));
        let want = [whole("good2", "good"), whole("masked2", "masked")];
        assert_eq!(links, want);
    }

    /// They were not known at all: no line told of them, and their block counted as unused.
    #[test]
    fn arrays_below_a_key_that_is_a_collection_are_told_of() {
        let tag = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0>";
        let body = "? [6, 5]\n: ARRAY\n? {a: b}\n: {x: [ARRAY], ? [] : ARRAY}\n'[6, 5]': LIST\n? - 1\n  - 2\n: ARRAY\n\
            k: &k [1]\nl: {*k : ARRAY, y: LIST}\n? [7]\n: {al: *a, ref: {$ref: '#/l/y'}, far: {$ref: 'o.asdf#/x'}}\nz: &a LIST";
        let array = format!("{tag} {{source: 0, datatype: uint8, shape: [3], byteorder: little}}");
        let body = body
            .replace("ARRAY", &array)
            .replace("LIST", &format!("{tag} [1]"));
        let body = body.replace("*a", "*k");
        let text = format!("#ASDF 1.0.0\n---\n{body}\n...\n");
        let sample = Sample::new().text(text.as_bytes()).block(b"abc");
        let file = Arc::new(Memory::new(sample.bytes()));
        let snapshot = Snapshot::read(None, file, Cache::new(0), OpenOptions::default()).unwrap();
        let arrays: Vec<_> = snapshot
            .arrays()
            .iter()
            .map(|it| (it.path(), it.has_files()))
            .collect();
        let want = [
            ("[6, 5]", false),
            ("{a: b}/x/0", false),
            ("{a: b}/[]", false),
            ("[6, 5]", true),
            ("- 1%0A  - 2", false),
            ("l/*k", false),
            ("l/y", true),
            ("z", true),
        ];
        assert_eq!(arrays, want.map(|(path, files)| (path.to_owned(), files)));
        let why = snapshot.arrays()[0].problem().unwrap().to_string();
        assert!(why.ends_with("array [6, 5]: it stands below a key that is a sequence or a mapping, of which no name of a file can be made"), "{why}");
        assert_eq!(snapshot.block_users(), [[0, 1, 2, 4, 5]]);
        let references: Vec<_> = snapshot.references().collect();
        assert_eq!(references, [("[7]/far".to_owned(), "o.asdf#/x")]);
        assert_eq!(snapshot.arrays()[3].file_path(), "[6, 5]");
    }

    /// A text of some hundred bytes took gigabytes of memory while several programs read its arrays.
    #[test]
    fn inline_arrays_take_bounded_memory_together() {
        let array = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0>";
        let wide = format!("{array} {{datatype: [ascii, 134217728], data: [a]}}");
        let text =
            format!("#ASDF 1.0.0\n---\na: {wide}\nb: {wide}\nc: {wide}\nd: {array} [1, 2]\n...\n");
        let file = Arc::new(Memory::new(Sample::new().text(text.as_bytes()).bytes()));
        let options = OpenOptions::default();
        let snapshot = Snapshot::read(None, file, Cache::new(0), options).unwrap();
        let problems: Vec<_> = snapshot.arrays().iter().map(Array::remark).collect();
        let all = (256 << 20) + 8 * text.len();
        let why = format!(
            "line 5, column 4: array c: with this array, inline data of more than {all} bytes in all"
        );
        assert_eq!(problems, [None, None, Some(why), None]);
        let lent = |source: &dyn Source| match source.lend(0, 16, Borrower::Program).unwrap() {
            Some(Loan::Shared(bytes, _)) => (*bytes).as_ref().as_ptr(),
            _ => panic!("not lent"),
        };
        let (one, two) = (
            snapshot.array_bin(3).unwrap(),
            snapshot.array_bin(3).unwrap(),
        );
        assert_eq!(lent(&*one), lent(&*two), "two copies of the same elements");
    }

    #[test]
    fn negative_sources_count_from_the_end() {
        let cases = [
            (0, 2, Some(0)),
            (1, 2, Some(1)),
            (2, 2, None),
            (-1, 2, Some(1)),
            (-2, 2, Some(0)),
            (-3, 2, None),
            (0, 0, None),
            (i64::MIN, 2, None),
        ];
        for (source, count, want) in cases {
            assert_eq!(block_index(source, count).ok(), want, "{source} of {count}");
        }
    }
}
