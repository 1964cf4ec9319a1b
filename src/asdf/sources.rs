//! Rewrites the `source` of each array in the text of a tree, and nothing else.
//!
//! The exploded form needs this: block numbers become URIs, and URIs block numbers. The new text counts only if it parses, and
//! every array in it has the wanted source.

pub use super::find::block_index;

use super::Snapshot;
use super::decl::{Declared, Storage};
use super::outline::{Limit, Outline};
use super::tree::{Node, Tree};
use crate::error::{Error, Result, unsupported};

/// The `source` of every array of a snapshot, in the tree's order. Arrays whose elements are in the tree have none.
///
/// # Errors
/// The error of the tree, or of an array whose declaration makes no sense.
pub fn storages(snapshot: &Snapshot) -> Result<Vec<Storage>> {
    match snapshot.tree() {
        None => Ok(Vec::new()),
        Some(tree) => {
            let arrays = declared(tree.map_err(Clone::clone)?)?;
            Ok(arrays.into_iter().filter_map(|(_, own)| own).collect())
        }
    }
}

/// The text of a snapshot with every `source` replaced as `change` says.
///
/// # Errors
/// As [`storages`]; [`Error::Unsupported`] if a source is shared with something else in a way that can't be kept.
pub fn with_sources(
    snapshot: &Snapshot,
    change: &dyn Fn(&Storage) -> Result<Storage>,
) -> Result<Vec<u8>> {
    let Some(tree) = snapshot.tree() else {
        return Ok(snapshot.text().to_vec());
    };
    let tree = tree.map_err(Clone::clone)?;
    let mut edits = Vec::new();
    for (array, storage) in declared(tree)? {
        let Some(storage) = storage else {
            continue;
        };
        let wanted = change(&storage)?;
        let source = array.get("source");
        let source = source.ok_or_else(|| shared("an array without a source of its own"))?;
        if wanted != storage {
            edits.push((source.span(), written(&wanted)));
        }
    }
    edits.sort_by_key(|edit| edit.0.start);
    // arrays that share a source through an alias make the same edit twice
    edits.dedup();
    let mut out = String::new();
    let mut at = 0;
    for (span, new) in edits {
        // two edits of one place that differ: the source can't be both
        let kept = tree.text().get(at..span.start);
        out.push_str(kept.ok_or_else(|| shared("a source that two arrays share"))?);
        out.push_str(&new);
        at = span.end;
    }
    let rest = tree.text().get(at..);
    out.push_str(rest.ok_or_else(|| shared("a source within a character"))?);
    verify(tree, &out, change)?;
    Ok(out.into_bytes())
}

/// Parses the new text and compares each array with what was wanted.
fn verify(old: &Tree, text: &str, change: &dyn Fn(&Storage) -> Result<Storage>) -> Result<()> {
    let new = Tree::parse(text)?;
    let (old, new) = (declared(old)?, declared(&new)?);
    if old.len() != new.len() {
        return Err(shared("sources that aliases share"));
    }
    for ((_, old), (_, new)) in old.iter().zip(new) {
        let wanted = old.as_ref().map(change).transpose()?;
        if new != wanted {
            return Err(shared("sources that aliases share"));
        }
    }
    Ok(())
}

/// The arrays of a tree, and where the elements of each are, if not in the tree.
fn declared(tree: &Tree) -> Result<Vec<(Node<'_>, Option<Storage>)>> {
    let outline = Outline::new(tree);
    if outline.reaches(Limit::Places) {
        return Err(shared("too many arrays"));
    }
    let node = |home| tree.node(outline.place(home)?.node);
    let arrays = outline.declared(tree);
    let arrays = arrays.filter_map(|(home, declared)| Some((node(home)?, declared)));
    arrays
        .map(|(node, declared)| match declared? {
            Declared::Stored(stored) => Ok((node, Some(stored.storage))),
            Declared::Inline(_) | Declared::Chunked(_) => Ok((node, None)),
        })
        .collect()
}

/// A source as it is written in the tree.
fn written(storage: &Storage) -> String {
    match storage {
        Storage::Block(n) => n.to_string(),
        Storage::External(uri) => format!("'{}'", uri.replace('\'', "''")),
        Storage::Fits(reference) => format!("'fits:{}'", reference.replace('\'', "''")),
    }
}

fn shared(what: &str) -> Error {
    unsupported(format!("the tree has {what}; it can't be rewritten"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::OpenOptions;
    use crate::asdf::sample::Sample;
    use crate::codec::Cache;
    use std::io::Write;
    use std::sync::Arc;

    fn snapshot(tree: &str) -> Snapshot {
        let text = format!("#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\n{tree}...\n");
        let sample = Sample::new()
            .text(text.as_bytes())
            .block(b"abc")
            .block(b"de");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&sample.bytes()).unwrap();
        Snapshot::open(Arc::new(file), Cache::new(1 << 20), OpenOptions::default()).unwrap()
    }

    /// Block N becomes `xN.asdf`.
    #[expect(clippy::unnecessary_wraps, reason = "others may fail")]
    fn named(storage: &Storage) -> Result<Storage> {
        Ok(match storage {
            Storage::Block(n) => Storage::External(format!("x{n}.asdf")),
            other => other.clone(),
        })
    }

    const ARRAY: &str = "datatype: uint8, byteorder: big, shape: [2]}";

    #[test]
    fn only_sources_change() {
        let tree = |a: &str, b: &str| {
            format!(
                "# comment\na: !core/ndarray-1.0.0 {{source: {a}, {ARRAY}\nn: 0   # not a source\nb:\n- &b !core/ndarray-1.0.0 {{source: {b}, {ARRAY}\n- *b\nc: !core/ndarray-1.0.0 [1, 2]\n"
            )
        };
        let found = with_sources(&snapshot(&tree("0", "-1")), &named).unwrap();
        let text = String::from_utf8(found).unwrap();
        assert!(
            text.ends_with(&format!("---\n{}...\n", tree("'x0.asdf'", "'x-1.asdf'"))),
            "{text}"
        );
    }

    #[test]
    fn a_source_that_others_share_is_refused() {
        let anchored = format!("n: &n 0\na: !core/ndarray-1.0.0 {{source: *n, {ARRAY}\nm: *n\n");
        assert!(with_sources(&snapshot(&anchored), &named).is_err());
        let merged = format!("n: &n {{source: 0}}\na: !core/ndarray-1.0.0 {{<<: *n, {ARRAY}\n");
        assert!(with_sources(&snapshot(&merged), &named).is_ok());
    }

    #[test]
    fn nothing_changes_where_nothing_has_to() {
        let snapshot = snapshot(&format!("a: !core/ndarray-1.0.0 {{source: 0, {ARRAY}\n"));
        let same = with_sources(&snapshot, &|storage| Ok(storage.clone())).unwrap();
        assert_eq!(&same, &**snapshot.text());
        assert_eq!(storages(&snapshot).unwrap(), [Storage::Block(0)]);
    }
}
