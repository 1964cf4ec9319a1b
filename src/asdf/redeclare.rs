//! Rewrites the declaration of one array in the text: its datatype, byte order and shape, and nothing else.
//!
//! The values are replaced where they stand. What is between them stays: comments, quotes, the order of the keys. The change is
//! refused if a part of the declaration comes from an alias or a merge, or if other arrays use the block. The error says why.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::Snapshot;
use super::array::{Array, Origin};
use super::datatype::{Datatype, Orders};
use super::decl::Properties;
use super::gather::Strided;
use super::npy::Header;
use super::paths::Paths;
use super::scalar::Type;
use super::strided::View;
use super::tree::{Node, NodeKind};
use crate::error::{Error, Place, Result, corrupt};
use crate::source::Source;

impl Snapshot {
    /// Why array `i`, together with all bytes of its block, can't get another datatype or shape; `None` if it can.
    #[must_use]
    pub fn bound(&self, i: usize) -> Option<&'static str> {
        let array = self.arrays().get(i)?;
        let Origin::Block(n) = *array.origin() else {
            return Some("its elements are not in a block of this file");
        };
        if self
            .block_users()
            .get(n)
            .is_none_or(|users| users.len() != 1)
            || self
                .chunk_blocks()
                .map_or(true, |blocks| blocks.contains(&n))
        {
            return Some("other arrays lie in its block");
        }
        let len = self.block_len(n).unwrap_or(0);
        // each byte of the block exactly once: a view with gaps has the same extent but fewer bytes
        let covers = |view: View| view.extent() == (0..len) && view.len() == len;
        let is_empty = len == 0 && array.bin_len() == 0;
        if array.offset() != 0 || !is_empty && !array.view(len).is_ok_and(covers) {
            return Some("it is a view of a part of its block");
        }
        let is_mask = |paths: &Paths| {
            let above = paths.parent(array.home());
            above != array.home() && paths.outline().array(above).is_some()
        };
        if self.paths().is_some_and(is_mask) {
            return Some("it is the mask of an array, which it would no longer fit");
        }
        layout_of(array, self.text()).err()
    }

    /// The elements of an NPY file in C order.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are not all there.
    pub fn in_c_order(
        &self,
        header: &Header,
        elements: Arc<dyn Source>,
    ) -> Result<Arc<dyn Source>> {
        Strided::open(elements, header.view()?, &self.buffers)
    }

    /// The text in which array `i` has the datatype, byte order and shape of an NPY file, in C order.
    ///
    /// # Errors
    /// [`Error::Rejected`] with the reason from [`Snapshot::bound`].
    pub fn redeclared(&self, i: usize, new: &Header) -> Result<Vec<u8>> {
        let array = self.arrays().get(i);
        let array = array.ok_or_else(|| corrupt("no such array"))?;
        let refused = |why: &str| Error::Rejected {
            at: Place::Array(array.path()),
            why: why.to_owned(),
            advice: "change it in tree.yaml first".to_owned(),
        };
        if let Some(why) = self.bound(i) {
            return Err(refused(why));
        }
        let mut text = self.text().to_vec();
        let layout = layout_of(array, &text).map_err(refused)?;
        let changes = changes(&layout, array, new)?;
        // from the end on, so that the earlier places stay valid
        for (at, value) in changes.into_iter().rev() {
            let old = text.get(at.clone()).unwrap_or_default();
            // a list in block style stands at the column of its dashes, where one in brackets must not
            let space = if old.is_empty() || old.starts_with(b"-") {
                " "
            } else {
                ""
            };
            text.splice(at, format!("{space}{value}").into_bytes());
        }
        Ok(text)
    }
}

/// The properties that decide how the elements of an array lie in its block, each written in the declaration itself.
fn layout_of<'t>(array: &'t Array, text: &[u8]) -> Result<Properties<'t>, &'static str> {
    let node = array.node().filter(|node| node.kind() == NodeKind::Mapping);
    let node = node.ok_or("its declaration is an alias")?;
    let mut found = Properties::default();
    for (key, value) in node.entries() {
        let slot = match key.text() {
            Some("datatype") => &mut found.datatype,
            Some("byteorder") => &mut found.byteorder,
            Some("shape") => &mut found.shape,
            Some("strides") => &mut found.strides,
            Some("mask") if value.follow().kind() != NodeKind::Scalar => {
                return Err("it has a mask, which would no longer fit");
            }
            _ if key.is_merge() => return Err("its declaration merges another mapping"),
            _ => continue,
        };
        if slot.replace(value).is_some() {
            return Err("its declaration has a key twice");
        }
    }
    // other parts of the tree may refer to an anchor, and a tag or alias would go with the value
    let all = [found.datatype, found.byteorder, found.shape, found.strides];
    let marked = |value: Node<'_>| matches!(text.get(value.span().start), Some(b'&' | b'!' | b'*'));
    if all.into_iter().flatten().any(marked) {
        return Err("a value of its declaration has a tag or an anchor, or is an alias");
    }
    match found {
        Properties {
            datatype: Some(_),
            byteorder: Some(_),
            shape: Some(_),
            ..
        } => Ok(found),
        _ => Err("its declaration lacks datatype, byteorder or shape"),
    }
}

/// The replacements, in the order of the text: which bytes, and what is to stand there.
fn changes(
    layout: &Properties<'_>,
    array: &Array,
    new: &Header,
) -> Result<Vec<(Range<usize>, String)>> {
    let mut out = Vec::new();
    // of these properties only the strides may be missing, and then they follow from the shape
    let mut change = |node: Option<Node<'_>>, value: String| {
        out.extend(node.map(|node| (node.span(), value)));
    };
    let same_type = array
        .datatype()
        .is_some_and(|old| new.is_of(old, &new.shape));
    if !same_type {
        // a plain type has its byte order beside it, a structure at each of its fields
        let order = match (&new.datatype, new.datatype.orders()) {
            (Datatype::Struct(_), _) | (_, Orders::None | Orders::Mixed) => None,
            (_, Orders::All(order)) => Some(order),
        };
        let declared = array.byteorder();
        if let Some(order) = order.filter(|order| declared != Some(*order)) {
            change(layout.byteorder, order.to_string());
        }
        let old = array
            .datatype()
            .filter(|old| !matches!(old, Datatype::Struct(_)));
        let datatype = declared_type(&new.datatype);
        if old.map(declared_type).as_ref() != Some(&datatype) {
            change(layout.datatype, datatype);
        }
    }
    let shape = array.shape().unwrap_or_default();
    // a shape that begins with `*` follows the block by itself
    let rows_only = array.goes_to_the_end()
        && same_type
        && !shape.is_empty()
        && shape.get(1..) == new.shape.get(1..);
    if shape != new.shape && !rows_only {
        change(layout.shape, format!("{:?}", new.shape));
    }
    // strides that are declared become the strides of C order
    let strides = new.c_strides()?;
    if array.strides() != Some(&*strides) {
        change(layout.strides, format!("{strides:?}"));
    }
    out.sort_by_key(|(at, _)| at.start);
    Ok(out)
}

/// A datatype as the tree has it, with the byte order at each field.
fn declared_type(datatype: &Datatype) -> String {
    let mut out = String::new();
    write_type(&mut out, datatype);
    out
}

/// Appends a datatype in flow style. Each field has its byte order; a plain type has none here, because an array
/// declares it beside its datatype.
fn write_type(out: &mut String, datatype: &Datatype) {
    let fields = match datatype {
        Datatype::Struct(fields) => fields,
        Datatype::Scalar(scalar, _) => return out.push_str(scalar.name()),
        Datatype::Ascii(len) => return put(out, format_args!("[ascii, {len}]")),
        Datatype::Ucs4(len, _) => return put(out, format_args!("[ucs4, {len}]")),
    };
    for (i, field) in fields.iter().enumerate() {
        out.push_str(if i == 0 { "[{" } else { "}, {" });
        if let Some(name) = &field.name {
            out.push_str("name: ");
            put_string(out, name);
            out.push_str(", ");
        }
        out.push_str("datatype: ");
        write_type(out, &field.datatype);
        // a structure has its byte orders inside, and single bytes have none
        if let (false, Orders::All(order)) = (
            matches!(field.datatype, Datatype::Struct(_)),
            field.datatype.orders(),
        ) {
            put(out, format_args!(", byteorder: {order}"));
        }
        if !field.shape.is_empty() {
            put(out, format_args!(", shape: {:?}", field.shape));
        }
    }
    out.push_str("}]");
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // writing to a string can't fail
    let _ = out.write_fmt(text);
}

/// A string in YAML: plain if it is a word, else between double quotes.
fn put_string(out: &mut String, text: &str) {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(word)
        // a word such as `yes` or `null` would be read as another type
        && Type::implicit(text) == Type::Str;
    if plain {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => match u32::from(c) {
                code @ ..=0xFFFF => put(out, format_args!("\\u{code:04x}")),
                code => put(out, format_args!("\\U{code:08x}")),
            },
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::OpenOptions;
    use crate::asdf::datatype::{ByteOrder, Field, Scalar};
    use crate::asdf::npy;
    use crate::asdf::sample::Sample;
    use crate::codec::Cache;

    const HEAD: &str = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";

    /// A file with that tree and blocks of 24 and 4 bytes.
    fn snapshot(body: &str) -> Snapshot {
        let text = format!("{HEAD}{body}\n...\n");
        let sample = Sample::new()
            .text(text.as_bytes())
            .block(&[7; 24])
            .block(b"abcd");
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &sample.bytes(), 0).unwrap();
        Snapshot::open(Arc::new(file), Cache::new(1 << 20), OpenOptions::default()).unwrap()
    }

    fn header(datatype: &Datatype, shape: &[u64]) -> Header {
        let bytes = npy::header(datatype, shape, false).unwrap();
        Header::read(&bytes).unwrap().unwrap()
    }

    /// What the first array of a tree is declared as instead.
    fn redeclared(body: &str, datatype: &Datatype, shape: &[u64]) -> String {
        let text = snapshot(body)
            .redeclared(0, &header(datatype, shape))
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let text = text
            .strip_prefix(HEAD)
            .unwrap()
            .strip_suffix("\n...\n")
            .unwrap();
        text.to_owned()
    }

    const BIG_SHORT: Datatype = Datatype::Scalar(Scalar::Int16, ByteOrder::Big);
    const FLOAT: Datatype = Datatype::Scalar(Scalar::Float32, ByteOrder::Little);

    fn structure() -> Datatype {
        let field = |name: &str, datatype, shape: &[u64]| Field {
            name: Some(name.into()),
            datatype,
            shape: shape.to_vec(),
        };
        let inner = vec![
            field("no", Datatype::Ascii(3), &[]),
            field("e f", FLOAT, &[]),
        ];
        Datatype::Struct(vec![
            field("a", BIG_SHORT, &[2, 3]),
            field("it's \"é\n", Datatype::Struct(inner), &[]),
            field("u", Datatype::Ucs4(2, ByteOrder::Big), &[]),
        ])
    }

    #[test]
    fn only_the_values_that_change_are_replaced_where_they_stand() {
        let flow = "# mine\nx: !core/ndarray-1.0.0 {shape:   [ 2,3 ] , source: 0, # in front\n  byteorder: little, \
            datatype: 'float32'}   # behind\ny: 1";
        assert_eq!(
            redeclared(flow, &BIG_SHORT, &[5]),
            flow.replace("[ 2,3 ]", "[5]")
                .replace("little", "big")
                .replace("'float32'", "int16")
        );
        assert_eq!(
            redeclared(flow, &FLOAT, &[6]),
            flow.replace("[ 2,3 ]", "[6]")
        );
        let byte = Datatype::Scalar(Scalar::Uint8, ByteOrder::Little);
        assert_eq!(
            redeclared(flow, &byte, &[2, 3]),
            flow.replace("'float32'", "uint8")
        );
        let block = "x: !core/ndarray-1.0.0\n  source: 0\n  datatype: float32\n  byteorder: little\n  shape:\n  - 2\n  - 3 # wide\n  \
            strides:\n  - 4\n  - 8\n  # the end\ny: 1";
        let wanted = block
            .replace("- 2\n  - 3", " [2, 2, 1]")
            .replace("- 4\n  - 8", " [8, 4, 4]");
        assert_eq!(redeclared(block, &FLOAT, &[2, 2, 1]), wanted);
        assert_eq!(
            redeclared(block, &FLOAT, &[]),
            block
                .replace("- 2\n  - 3", " []")
                .replace("- 4\n  - 8", " []")
        );
        let rows = "x: !core/ndarray-1.0.0 {shape: ['*', 3], source: 0, byteorder: little, datatype: float32}";
        assert_eq!(redeclared(rows, &FLOAT, &[9, 3]), rows);
        assert_eq!(
            redeclared(rows, &FLOAT, &[9, 2]),
            rows.replace("['*', 3]", "[9, 2]")
        );
    }

    #[test]
    fn every_datatype_is_declared_so_that_it_is_read_back() {
        let plain =
            "x: !core/ndarray-1.0.0 {shape: [6], source: 0, byteorder: little, datatype: float32}";
        let fields = "x: !core/ndarray-1.0.0\n  shape: [3]\n  source: 0\n  byteorder: big\n  datatype:\n  - int16\n  - {name: b, datatype: \
            [ascii, 6]}";
        for datatype in [
            BIG_SHORT,
            FLOAT,
            Datatype::Scalar(Scalar::Bool8, ByteOrder::Little),
            Datatype::Ascii(5),
            Datatype::Ucs4(3, ByteOrder::Big),
            Datatype::Ucs4(3, ByteOrder::Little),
            structure(),
        ] {
            for body in [plain, fields] {
                let text = redeclared(body, &datatype, &[0]);
                let found = snapshot(&text);
                let array = &found.arrays()[0];
                assert!(array.problem().is_none(), "{text}");
                assert!(
                    header(&datatype, &[0]).is_of(array.datatype().unwrap(), &[0]),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_declared_by_itself_over_its_own_block_is_left_alone() {
        let own =
            "x: !core/ndarray-1.0.0 {source: 0, datatype: float32, byteorder: little, shape: [6]}";
        for (body, why) in [
            (own.replace('6', "5"), "a view of a part"),
            (own.replace("[6]", "[5], offset: 4"), "a view of a part"),
            (own.replace("[6]", "[3], strides: [8]"), "a view of a part"),
            (format!("{own}\ny: {}", &own[3..]), "other arrays lie"),
            (
                own.replace("[6]", "[6], mask: !core/ndarray-1.0.0 [1]"),
                "a mask",
            ),
            (own.replace("shape:", "shape: &s"), "an anchor"),
            (own.replace("float32", "!!str float32"), "a tag"),
            (
                format!("l: &l float32\n{}", own.replace("float32", "*l")),
                "an alias",
            ),
            (
                format!(
                    "m: &m {{shape: [6]}}\n{}",
                    own.replace("shape: [6]", "<<: *m")
                ),
                "merges",
            ),
            ("x: !core/ndarray-1.0.0 [1, 2]".to_owned(), "not in a block"),
        ] {
            let found = snapshot(&body);
            let said = found
                .redeclared(0, &header(&FLOAT, &[2]))
                .unwrap_err()
                .to_string();
            assert!(said.contains(why), "{body}: {said}");
            assert!(found.bound(0).unwrap().contains(why));
        }
        let mask = own.replace("x: ", "x: !core/ndarray-1.0.0 {data: [1], mask: ") + "}";
        let bound = snapshot(&mask).bound(1);
        assert_eq!(
            bound,
            Some("it is the mask of an array, which it would no longer fit")
        );
        let fortran = own.replace("[6]", "[2, 3], strides: [4, 8]");
        assert_eq!(snapshot(&fortran).bound(0), None);
        assert_eq!(snapshot(own).bound(0), None);
    }
}
