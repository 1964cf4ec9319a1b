//! The names of table columns. Each is a further way from the table to the array of the column.

use super::pointer::reference;
use super::{Level, Limit, Outline, TreeWalk, What};
use crate::asdf::tree::{Component, Node, NodeKind};

/// Most entries of a quantity, table or column that is searched; they have five at most.
pub(crate) const MAX_QUANTITY: usize = 64;
/// Longest name of a column in a FITS file, and longest unit. Through aliases, one long text can be the name of many arrays.
pub(crate) const MAX_LABEL: usize = 1 << 10;

impl<'t> TreeWalk<'t> {
    /// Links a table to the arrays of its columns, by the names of the columns. To be called when `node`, a part of the collection
    /// at the top of the stack, has got a place. `node` may be the data of a column, or an alias or `$ref` that stands for a column
    /// or for the list of columns.
    pub(crate) fn name_columns(&mut self, component: Component, node: Node<'t>) {
        match (self.stack.as_slice(), component) {
            // the column is written in place, and `node` is its data
            ([.., table, columns, column], Component::Key(_)) if self.is_key(component, "data") => {
                let (table, column) = (table.node, column.node);
                if self.are_columns(columns) && is_table(table) {
                    self.name_column(3, column, node);
                }
            }
            // `node` stands for a column that is written elsewhere
            ([.., table, columns], Component::Index(_))
                if self.are_columns(columns) && is_table(table.node) =>
            {
                let column = self.referent(node);
                self.name_column(2, column, node);
            }
            // `node` stands for a list of columns that is written elsewhere
            ([.., table], Component::Key(_))
                if (node.kind() == NodeKind::Alias || reference(node).is_some())
                    && self.is_key(component, "columns")
                    && is_table(table.node) =>
            {
                for column in self.referent(node).items() {
                    // the same list may be the columns of a thousand tables
                    if !self.outline.allowance.take(1) {
                        return self.outline.note_limit(Limit::Columns, node.id());
                    }
                    let column = self.referent(column);
                    self.name_column(1, column, node);
                }
            }
            _ => {}
        }
    }

    /// The target of an alias, or of a `$ref` within the tree; else the node itself.
    fn referent(&mut self, node: Node<'t>) -> Node<'t> {
        let node = node.follow();
        // nothing is read of other files
        let uri = reference(node).filter(|uri| uri.starts_with('#'));
        let found = uri.and_then(|uri| self.pointers.resolve(uri).ok().flatten());
        found.map_or(node, Node::follow)
    }

    /// Whether a collection on the stack is the list under the key `columns`.
    fn are_columns(&self, level: &Level<'t>) -> bool {
        level.node.kind() == NodeKind::Sequence && self.is_key(level.component, "columns")
    }

    fn is_key(&self, component: Component, text: &str) -> bool {
        self.tree.key(component) == Some(text)
    }

    /// Links the table at `depth` of the stack, where 1 is the top, to the data of a column. The link stands at the node `at` of
    /// the table. Passes over a name that is a key of the table or the name of an earlier column.
    fn name_column(&mut self, depth: usize, column: Node<'t>, at: Node<'t>) {
        let table = self.stack.len().checked_sub(depth);
        let Some(table) = table.and_then(|table| self.stack.get(table)) else {
            return;
        };
        let (Some(place), Some((name, data))) = (table.place, named_data(column)) else {
            return;
        };
        let Some(text) = name.text().filter(|text| !text.is_empty()) else {
            return;
        };
        if table
            .node
            .entries()
            .any(|(key, _)| key.text() == Some(text))
        {
            return;
        }
        // data beyond a limit have no place to link to
        let Some(what) = self.outline.leads(data) else {
            return;
        };
        if self.columns.insert((place, text)) {
            self.push(place, Component::Key(name.id()), at.id(), what);
        }
    }
}

impl Outline {
    /// A link to the array at a node, or to the array that a link at this node leads to.
    fn leads(&self, node: Node<'_>) -> Option<What> {
        let id = self.at(node.id())?;
        match self.place(id)?.what {
            What::Array(_) => Some(What::Link {
                to: id,
                whole: true,
            }),
            link @ What::Link { .. } => Some(link),
            What::Directory | What::Nothing | What::Elsewhere => None,
        }
    }
}

/// Whether the last part of the node's tag begins with one of `starts`.
pub(crate) fn is_tagged(node: Node<'_>, starts: &[&str]) -> bool {
    let last = node.tag().and_then(|tag| tag.rsplit('/').next());
    last.is_some_and(|last| starts.iter().any(|start| last.starts_with(start)))
}

pub(crate) fn is_table(node: Node<'_>) -> bool {
    is_tagged(node, &["table-"]) && node.len() <= MAX_QUANTITY
}

/// The name and the data of a column.
fn named_data(column: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    if !is_tagged(column, &["column-", "maskedcolumn-"]) || column.len() > MAX_QUANTITY {
        return None;
    }
    Some((column.get("name")?, column.get("data")?))
}

#[cfg(test)]
mod tests {
    use crate::asdf::Paths;
    use crate::asdf::outline::What;
    use crate::asdf::tree::Tree;

    const ARRAY: &str = "!core/ndarray-1.0.0 {source: 0}";

    /// The paths of the links of a tree, with those of their targets.
    fn links(body: &str) -> Vec<String> {
        let text = format!("%TAG ! tag:stsci.edu:asdf/\n---\n{body}\n...\n");
        let tree = Tree::parse(text).unwrap();
        let paths = Paths::of(tree);
        let link = |(id, place): (_, &crate::asdf::outline::Place)| match place.what {
            What::Link { to, .. } => Some(format!(
                "{} -> {}",
                paths.file_path(id),
                paths.file_path(to)
            )),
            _ => None,
        };
        paths.outline().ids().filter_map(link).collect()
    }

    fn table(columns: &[&str]) -> String {
        format!(
            "t: !table/table-1.1.0\n  columns: [{}]\n  meta: {{}}",
            columns.join(", ")
        )
    }

    fn column(name: &str, data: &str) -> String {
        format!("!table/column-1.1.0 {{data: {data}, name: {name}}}")
    }

    #[test]
    fn the_array_of_a_column_is_linked_under_the_columns_name() {
        let body = table(&[&column("ra", ARRAY), &column("'de/c'", ARRAY)]);
        assert_eq!(
            links(&body),
            ["t/ra -> t/columns/0/data", "t/de%2Fc -> t/columns/1/data"]
        );
        let aliased = format!("a: &a {ARRAY}\n{}", table(&[&column("ra", "*a")]));
        assert_eq!(links(&aliased), ["t/columns/0/data -> a", "t/ra -> a"]);
        let twice = "!table/column-1.1.0 {name: old, data: ARRAY, data: ARRAY, name: new}";
        let body = table(&[&twice.replace("ARRAY", ARRAY)]);
        assert_eq!(links(&body), ["t/new -> t/columns/0/data"]);
        let alone = "!core/table-1.0.0 {columns: [!core/column-1.0.0 {name: x, data: !core/ndarray-1.0.0 [1]}]}";
        assert_eq!(links(alone), ["x -> columns/0/data"]);
    }

    #[test]
    fn columns_and_lists_of_columns_that_are_aliases_have_their_names_too() {
        let (one, two) = (column("one", ARRAY), column("two", ARRAY));
        let first = format!("t: !core/table-1.0.0\n  columns: &all [&one {one}, {two}]");
        let own = ["t/one -> t/columns/0/data", "t/two -> t/columns/1/data"];
        let of = |body: &str| {
            let found = links(&format!("{first}\n{body}"));
            assert_eq!(found.get(..2).unwrap(), own, "{body}");
            found.into_iter().skip(2).collect::<Vec<_>>()
        };
        assert_eq!(
            of("one: !core/table-1.0.0 {columns: [*one]}"),
            [
                "one/columns/0 -> t/columns/0",
                "one/one -> t/columns/0/data"
            ]
        );
        assert_eq!(
            of("both: !core/table-1.0.0 {columns: *all, one: 1}"),
            ["both/columns -> t/columns", "both/two -> t/columns/1/data"]
        );
        assert_eq!(
            of(
                "t2: !core/table-1.0.0 {columns: &l [*one, *one]}\nt3: !core/table-1.0.0 {columns: *l}"
            ),
            [
                "t2/columns/0 -> t/columns/0",
                "t2/one -> t/columns/0/data",
                "t2/columns/1 -> t/columns/0",
                "t3/columns -> t2/columns",
                "t3/one -> t/columns/0/data"
            ]
        );
        assert_eq!(
            of("list: {columns: [*one]}"),
            ["list/columns/0 -> t/columns/0"]
        );
        assert_eq!(of("whole: {rows: *all}"), ["whole/rows -> t/columns"]);
    }

    #[test]
    fn what_a_reference_leads_to_has_the_names_of_its_columns() {
        let first = format!(
            "a: {ARRAY}\nt: !core/table-1.0.0\n  columns: [{}]",
            column("one", ARRAY)
        );
        let of = |body: &str| {
            links(&format!("{first}\n{body}"))
                .into_iter()
                .skip(1)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(
                "r: !core/table-1.0.0 {columns: [!core/column-1.0.0 {name: x, data: {$ref: '#/a'}}]}"
            ),
            ["r/columns/0/data -> a", "r/x -> a"]
        );
        assert_eq!(
            of("r: !core/table-1.0.0 {columns: [{$ref: '#/t/columns/0'}]}"),
            ["r/columns/0 -> t/columns/0", "r/one -> t/columns/0/data"]
        );
        assert_eq!(
            of("r: !core/table-1.0.0 {columns: {$ref: '#/t/columns'}}"),
            ["r/columns -> t/columns", "r/one -> t/columns/0/data"]
        );
        assert_eq!(
            of("r: !core/table-1.0.0 {columns: {$ref: 'other.asdf#/t/columns'}}"),
            [""; 0]
        );
    }

    #[test]
    fn a_name_that_is_taken_or_missing_makes_no_link() {
        let columns = [
            column("x", ARRAY),
            column("x", ARRAY),
            column("meta", ARRAY),
            column("''", ARRAY),
            format!("!table/column-1.1.0 {{data: {ARRAY}}}"),
            format!("!other/thing-1.0.0 {{data: {ARRAY}, name: y}}"),
        ];
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        assert_eq!(links(&table(&columns)), ["t/x -> t/columns/0/data"]);
        let list = table(&[&column("x", ARRAY)]).replace("!table/table", "!other/list");
        assert_eq!(links(&list), [""; 0]);
    }
}
