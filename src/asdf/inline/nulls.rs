//! Missing values for which a type has no number of its own.

use super::walk;
use crate::asdf::datatype::Datatype;
use crate::asdf::scalar::Value;
use crate::asdf::tree::Node;

/// How many nulls in lists of the given lengths read as zeros, or as empty texts: there is no NaN for them.
pub(super) fn count(data: Node<'_>, lists: &[u64], datatype: &Datatype) -> u64 {
    let mut all = 0_u64;
    // the lists and elements have been found to fit
    let _ = walk(data, lists, &mut |node| {
        let more = match datatype {
            Datatype::Struct(fields) => (fields.iter().zip(node.items()))
                .map(|(field, item)| count(item, &field.shape, &field.datatype))
                .fold(0, u64::saturating_add),
            Datatype::Scalar(scalar, _) if matches!(scalar.kind(), 'f' | 'c') => 0,
            _ => matches!(node.value(), Some(Value::Null)).into(),
        };
        all = all.saturating_add(more);
        Ok(())
    });
    all
}

#[cfg(test)]
mod tests {
    use crate::asdf::inline::Elements;
    use crate::asdf::inline::tests::declared;

    #[test]
    fn nulls_that_read_as_zeros_are_counted() {
        for (array, want) in [
            ("[[1, null], [~, 4]]", 2),
            ("{datatype: bool8, data: [null, true]}", 1),
            ("{datatype: [ascii, 2], data: [a, null]}", 1),
            ("[1.5, null]", 0),
            ("{datatype: complex64, data: [null]}", 0),
            ("{datatype: float32, data: [null, 1]}", 0),
            ("[1, 2]", 0),
            (
                "{datatype: [int8, float32, {datatype: int16, shape: [2]}], data: [[null, null, [null, 1]], [1, 2, [3, null]]]}",
                3,
            ),
        ] {
            let (tree, inline) = declared(array).unwrap();
            let elements = Elements::new(&tree, &inline).unwrap();
            assert_eq!(elements.nulls(), want, "{array}");
        }
    }
}
