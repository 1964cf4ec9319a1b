//! Tables of the tree: `core/table`, and those of astropy, which have the names of all columns in a list of their own.

use log::warn;

use super::column::Columns;
use super::{FitsFile, no_longer, unsupported};
use crate::asdf::outline::column::{MAX_LABEL, MAX_QUANTITY, is_table, is_tagged};
use crate::asdf::outline::pointer::reference;
use crate::asdf::outline::{PlaceId, What};
use crate::asdf::paths::Paths;
use crate::asdf::tree::{Node, NodeKind};
use crate::asdf::{Array, Snapshot};
use crate::error::Result;
use crate::view::array_at;

/// Most columns of a table that are looked at: of those that FITS can't hold, each is listed.
const MAX_LISTED: usize = 10_000;
/// Most columns of all tables together: by aliases, a short tree can have many.
const MAX_ALL: usize = 1 << 18;

/// A column as the tree has it.
struct TableColumn<'t> {
    name: String,
    /// What its data are, if it is a column and not another object.
    data: Option<Node<'t>>,
    unit: Option<&'t str>,
}

impl Snapshot {
    /// The tables that are shown as directories.
    pub(super) fn tables(&self) -> Vec<PlaceId> {
        let Some(paths) = self.paths() else {
            return Vec::new();
        };
        let places = paths.outline().ids();
        let tables = places.filter_map(|(id, place)| {
            let node = paths.node(id).map(Node::follow)?;
            let is_shown = place.what == What::Directory && self.found().shows(paths, id).1;
            let table = Some(node).filter(|node| is_shown && is_table(*node))?;
            Some((id, paths.referent(table.get("columns")?).len()))
        });
        let mut left = MAX_ALL;
        let affordable = tables.take_while(|(id, columns)| {
            // counted before any is made: aliases may repeat one long list of columns
            let rest = left.checked_sub(*columns);
            if rest.is_none() {
                let table = paths.brief(*id);
                warn!("{table}: this and further tables have no FITS files: too many columns");
            }
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        affordable.map(|(id, _)| id).collect()
    }

    /// The units of the table at a place: of its columns that are arrays with as many rows as the first.
    pub(super) fn fits_of_table(
        &self,
        table: PlaceId,
        name: Option<(&str, u64)>,
    ) -> Result<FitsFile> {
        if table == PlaceId::ROOT {
            return Err(unsupported("a table without a name: it is the whole tree"));
        }
        let paths = self.paths().ok_or_else(no_longer)?;
        let node = paths.node(table).ok_or_else(no_longer)?;
        let (mut columns, mut parts) = (Columns::default(), Vec::new());
        let mut omitted = Vec::new();
        let mut count = None;
        for column in declared(paths, node) {
            let added = self.array_of(paths, &column, count);
            let added = added.and_then(|(i, array, rows, cell)| {
                count = Some(rows);
                let said = (column.unit, self.masked(i));
                let part = columns.add_array((i, array), &column.name, cell, said);
                part.ok_or_else(|| "rows of 2^64 bytes or more".to_owned())
            });
            match added {
                Ok(part) => parts.push(part),
                Err(_) if columns.are_too_many() => break,
                Err(why) => omitted.push((column.name, why)),
            }
        }
        // what has no array, then what FITS has no columns for
        omitted.append(&mut columns.omitted);
        columns.omitted = omitted;
        columns.table(parts, count.unwrap_or(0), (name, &*paths.brief(table)))
    }

    /// The array of a column, the number of its rows, and the shape of a cell; or why the column can't be shown. If `rows` is known, the
    /// array must have as many.
    fn array_of(
        &self,
        paths: &Paths,
        column: &TableColumn<'_>,
        rows: Option<u64>,
    ) -> Result<(usize, &Array, u64, &[u64]), String> {
        let data = column.data.map(|data| paths.referent(data));
        let array = data.and_then(|data| array_at(paths, data));
        let array = array.ok_or_else(|| match data.and_then(reference) {
            Some(_) => "its $ref leads to no array of this file, nor to a column before this one",
            None => "its data are no array of this file",
        })?;
        let known = self.array(array).map_err(|error| error.to_string())?;
        // the first axis is that of the rows, the others are those of a cell
        let axes = known.shape().and_then(<[u64]>::split_first);
        let (own, cell) = axes.ok_or("a single value")?;
        match rows {
            Some(rows) if *own != rows => Err(format!("{own} rows, but the table has {rows}")),
            _ => Ok((array, known, *own, cell)),
        }
    }
}

/// The columns of a table.
fn declared<'t>(paths: &'t Paths, table: Node<'t>) -> Vec<TableColumn<'t>> {
    let mut names = table.get("colnames").map(Node::items);
    let columns = table.get("columns").into_iter();
    let columns = columns.flat_map(|columns| paths.referent(columns).items());
    let columns = columns.take(MAX_LISTED).enumerate().map(|(n, column)| {
        let listed = names.as_mut().and_then(Iterator::next);
        let column = paths.referent(column);
        let small = column.kind() == NodeKind::Mapping && column.len() <= MAX_QUANTITY;
        let get = |key| column.get(key).filter(|_| small);
        let own = get("name").and_then(Node::text);
        let name = own.or_else(|| listed.and_then(Node::text));
        let name = name.and_then(|name| name.get(..name.floor_char_boundary(MAX_LABEL)));
        let name = name.filter(|name| !name.is_empty());
        let data = if is_tagged(column, &["column-", "maskedcolumn-"]) {
            get("data")
        } else if is_tagged(column, &["quantity-"]) {
            get("value")
        } else {
            let is_data = is_tagged(column, &["ndarray-"]) || reference(column).is_some();
            is_data.then_some(column)
        };
        let unit = get("unit").and_then(Node::text);
        TableColumn {
            name: name.map_or_else(|| format!("col{n}"), str::to_owned),
            data,
            unit: unit.filter(|unit| unit.len() <= MAX_LABEL),
        }
    });
    columns.collect()
}
