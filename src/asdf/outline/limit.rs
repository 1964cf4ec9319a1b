//! Limits on how much of a tree is shown. Only a hostile tree reaches them; what lies beyond is left out, and
//! a message names the limit.

use super::{MAX_PLACES, Outline, pointer};
use crate::asdf::tree::{Node, NodeId, Tree};
use crate::error::{Error, Place};

/// A limit on how much of a tree is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// On the places: [`MAX_PLACES`].
    Places,
    /// On the parts that `<<` merges.
    Merges,
    /// On the bytes and keys that references are looked up in.
    References,
    /// On the references that lead from one to the next.
    Hops,
    /// On the aliases of references into other files.
    Repeated,
    /// On the names of columns in lists that are aliases.
    Columns,
}

impl Limit {
    /// The message at the node where the limit was reached first.
    fn text(self) -> String {
        match self {
            Self::Places => format!(
                "more than {MAX_PLACES} places lead to arrays; those from here on are not shown"
            ),
            Self::Merges => "merges (<<) lead to too many arrays; those merged from here on are not shown".to_owned(),
            Self::References => {
                "references ($ref) take too long to look up; some from here on are not shown".to_owned()
            }
            Self::Hops => format!(
                "a reference ($ref) leads in a circle or through more than {} others; it is not shown",
                pointer::MAX_HOPS
            ),
            Self::Repeated => {
                "aliases repeat references into other files too often; those from here on are not shown".to_owned()
            }
            Self::Columns => {
                "aliases repeat the columns of tables too often; names of columns from here on are not shown".to_owned()
            }
        }
    }
}

impl Outline {
    /// Notes that the walk has reached a limit at this node. Only the first node is kept.
    pub(super) fn note_limit(&mut self, limit: Limit, at: NodeId) {
        if !self.reaches(limit) {
            self.limits.push((limit, at));
        }
    }

    /// Whether the tree reaches this limit, so that something is left out.
    pub(in crate::asdf) fn reaches(&self, limit: Limit) -> bool {
        self.limits.iter().any(|(known, _)| *known == limit)
    }

    /// The limits that the tree reaches, each as an error at the node where it was reached first.
    pub(in crate::asdf) fn limit_errors(&self, tree: &Tree) -> Vec<Error> {
        let error = |&(limit, at): &(Limit, NodeId)| {
            let place = tree.node(at).map_or(Place::File, Node::place);
            Error::unsupported(place, limit.text())
        };
        self.limits.iter().map(error).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// What is said of a tree in which `A` stands for an array.
    fn said(body: &str) -> Vec<String> {
        let array = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0> [1]";
        let text = format!("---\n{}\n...\n", body.replace('A', array));
        let tree = Tree::parse(text).unwrap();
        let errors = Outline::new(&tree).limit_errors(&tree);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tree_within_the_limits_is_told_nothing_of() {
        let body = "a: &a {x: A}\nb: {<<: *a}\nc: {$ref: '#/a'}\nd: &d {$ref: 'o.asdf#/x'}\ne: *d\nf: {$ref: '#/none'}";
        assert_eq!(said(body), [""; 0]);
    }

    #[test]
    fn places_that_are_left_out_are_told_of() {
        let body = format!("x: &x A\na:\n{}last: A", "- *x\n".repeat(MAX_PLACES - 3));
        let want = format!(
            "line {}, column 7: more than 1048576 places lead to arrays; those from here on are not shown",
            MAX_PLACES + 1
        );
        assert_eq!(said(&body), [want]);
    }

    #[test]
    fn merges_that_are_left_out_are_told_of() {
        let mut base = String::new();
        for i in 0..1000 {
            let _ = write!(base, "k{i}: A, ");
        }
        let body = format!("b: &b {{{base}}}\nl:\n{}", "- <<: *b\n".repeat(300));
        let said = said(&body);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("merges (<<) lead to too many"), "{said:?}");
    }

    #[test]
    fn names_of_columns_that_are_left_out_are_told_of() {
        let tag = |name: &str| format!("!<tag:stsci.edu:asdf/core/{name}-1.0.0>");
        let (table, column) = (tag("table"), tag("column"));
        let list = format!("{column} {{data: A}}, ").repeat(1000);
        let tables = format!("- {table} {{columns: *c}}\n").repeat(300);
        let said = said(&format!("c: &c [{list}]\nl:\n{tables}"));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("repeat the columns of tables"), "{said:?}");
    }

    #[test]
    fn references_that_are_left_out_are_told_of() {
        let mut body = "r0: [A]\n".to_owned();
        for i in 1..10 {
            let _ = writeln!(body, "r{i}: {{$ref: '#/r{}'}}", i - 1);
        }
        let long = "x".repeat(1 << 20);
        for i in 0..8 {
            let _ = writeln!(body, "z{i}: {{$ref: '#/r9/{long}{i}'}}");
        }
        let said = said(&body);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("take too long to look up"), "{said:?}");
    }

    #[test]
    fn references_that_aliases_repeat_are_told_of() {
        let uri = format!("o.asdf#/{}", "x".repeat(1 << 18));
        let body = format!("a: &a '{uri}'\nl:\n{}", "- {$ref: *a}\n".repeat(100));
        let said = said(&body);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("aliases repeat references"), "{said:?}");
    }

    #[test]
    fn references_in_a_circle_are_told_of() {
        let want = "line 2, column 4: a reference ($ref) leads in a circle or through more than 16 others; it is not shown";
        assert_eq!(said("c: {$ref: '#/d'}\nd: {$ref: '#/c'}"), [want]);
    }
}
