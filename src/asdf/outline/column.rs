//! What columns of tables say of their arrays: the unit, and a name, which is a further way to the array from the table.

use super::{Component, PlaceId, Walk, What};
use crate::asdf::tree::{Kind, Node, NodeId};

/// Most entries of a quantity or column that is searched for its unit; they have five at most.
const MAX_QUANTITY: usize = 64;

impl<'t> Walk<'t> {
    /// The unit that the collection at the top of the stack gives to its child, if it is a quantity or a table's column.
    pub(super) fn unit(&self, component: Component) -> Option<NodeId> {
        let around = self.stack.last()?.node;
        let Component::Key(key) = component else {
            return None;
        };
        let key = self.tree.node(key)?.text()?;
        let name = around.tag()?.rsplit('/').next()?;
        let gives = (key == "value" && name.starts_with("quantity-"))
            || (key == "data" && name.starts_with("column-"));
        if !gives || around.len() > MAX_QUANTITY {
            return None;
        }
        let (_, unit) = around.entries().find(|(key, _)| key.is_key("unit"))?;
        unit.text().map(|_| unit.id())
    }

    /// Links to the data of a table's column, which has just been given a place, by the column's name. The collection at the
    /// top of the stack is the column. A name that the table has as a key, or that an earlier column has, is passed over.
    pub(super) fn name_column(&mut self, component: Component, node: Node<'t>, what: What) {
        let Some((table, name)) = self.column(component) else {
            return;
        };
        let text = self.tree.node(name).and_then(Node::text);
        if text.is_some_and(|text| self.columns.insert((table, text))) {
            self.push(table, Component::Key(name), node.id(), what);
        }
    }

    /// The place of the table, and the name of its column.
    fn column(&self, component: Component) -> Option<(PlaceId, NodeId)> {
        let [.., table, columns, column] = self.stack.as_slice() else {
            return None;
        };
        let Component::Key(key) = component else {
            return None;
        };
        let is = |node: Node<'_>, ends: &[&str]| {
            let last = node.tag().and_then(|tag| tag.rsplit('/').next());
            last.is_some_and(|last| ends.iter().any(|end| last.starts_with(end)))
        };
        let fits = self.tree.node(key)?.text()? == "data"
            && is(column.node, &["column-", "maskedcolumn-"])
            && columns.node.kind() == Kind::Sequence
            && !columns.merged
            && is(table.node, &["table-"])
            && column.node.len() <= MAX_QUANTITY
            && table.node.len() <= MAX_QUANTITY;
        if !fits {
            return None;
        }
        let (_, name) = column.node.entries().find(|(key, _)| key.is_key("name"))?;
        let text = name.text().filter(|text| !text.is_empty())?;
        let clash = table
            .node
            .entries()
            .any(|(key, _)| key.text() == Some(text));
        Some((table.place?, name.follow().id())).filter(|_| !clash)
    }
}

#[cfg(test)]
mod tests {
    use crate::asdf::names::Names;
    use crate::asdf::outline::{Outline, What};
    use crate::asdf::tree::Tree;

    const ARRAY: &str = "!core/ndarray-1.0.0 {source: 0}";

    /// The paths of the links of a tree, with those of their targets.
    fn links(body: &str) -> Vec<String> {
        let text = format!("%TAG ! tag:stsci.edu:asdf/\n---\n{body}\n...\n");
        let tree = Tree::parse(text).unwrap();
        let outline = Outline::new(&tree);
        let names = Names::new(&tree, &outline);
        let link = |(id, place): (_, &crate::asdf::outline::Place)| match place.what {
            What::Link { to, .. } => Some(format!(
                "{} -> {}",
                names.path(&outline, id),
                names.path(&outline, to)
            )),
            _ => None,
        };
        outline.ids().filter_map(link).collect()
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
        let alone = "!core/table-1.0.0 {columns: [!core/column-1.0.0 {name: x, data: !core/ndarray-1.0.0 [1]}]}";
        assert_eq!(links(alone), ["x -> columns/0/data"]);
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
