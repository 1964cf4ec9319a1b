//! A file, an array and a range of its elements, each by one call: for programs that read ASDF files.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::{Array, OpenOptions, Snapshot};
use crate::codec::Cache;
use crate::error::{Error, Place, Result};
use crate::source::{Source, Window, each_piece};

/// Bytes of decoded data that a snapshot opened by its path may keep.
const CACHE: u64 = 64 << 20;
/// Bytes that are read at a time. The length of an array comes from its file: no buffer is sized by it before the bytes are there.
const CHUNK: usize = 1 << 20;

impl Snapshot {
    /// Opens the file of that name, with the default options and a cache of 64 MiB.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no such file; as [`Snapshot::open`].
    pub fn open_path(path: impl AsRef<Path>) -> Result<Self> {
        let file = File::open(path).map_err(|cause| Error::io("opening the file", cause))?;
        Self::open(Arc::new(file), Cache::new(CACHE), OpenOptions::default())
    }

    /// The index of the array with that [path](Array::path) in the tree, `a/b/0`.
    #[must_use]
    pub fn array_at(&self, path: &str) -> Option<usize> {
        self.arrays()
            .iter()
            .position(|array: &Array| array.path() == path)
    }

    /// These bytes of the elements of the array with that path, in C order, whatever its strides. Decodes only the parts of
    /// the block that hold them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such array, or the range is not in it; as [`Snapshot::array_bin`].
    pub fn read_array(&self, path: &str, bytes: Range<u64>) -> Result<Vec<u8>> {
        let none = || Error::corrupt(Place::Array(path.to_owned()), "no such array");
        let elements = self.array_bin(self.array_at(path).ok_or_else(none)?)?;
        // a range that ends in front of its start is an empty one
        let wanted = Window::new(elements, bytes.start, bytes.end.saturating_sub(bytes.start))?;
        let mut read = Vec::new();
        each_piece(&wanted, 0..wanted.len(), CHUNK, |bytes| {
            read.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use std::io::Write;

    #[test]
    fn a_range_of_an_array_is_one_call() {
        let array = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0>";
        let text = format!(
            "#ASDF 1.0.0\n%YAML 1.1\n---\na: {{b: {array} {{source: 0, datatype: uint8, byteorder: big, shape: [3], strides: [2]}}}}\n\
            big: {array} {{source: 1, datatype: uint8, byteorder: big, shape: ['*']}}\n...\n"
        );
        let big: Vec<u8> = (0..3_000_000_u32).map(|i| i as u8).collect();
        let sample = Sample::new()
            .text(text.as_bytes())
            .block(b"axbxc")
            .block(&big);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&sample.bytes()).unwrap();
        let snapshot = Snapshot::open_path(file.path()).unwrap();
        assert_eq!(snapshot.read_array("a/b", 1..3).unwrap(), b"bc");
        assert_eq!(snapshot.read_array("a/b", 3..3).unwrap(), b"");
        let range = 7..2_500_007;
        assert_eq!(
            snapshot.read_array("big", range.clone()).unwrap(),
            big[7..2_500_007]
        );
        for (path, range) in [("a/b", 1..4), ("a/b", 4..9), ("a", 0..1), ("", 0..0)] {
            let error = snapshot.read_array(path, range).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
        assert!(matches!(
            Snapshot::open_path("/nowhere.asdf"),
            Err(Error::Io { .. })
        ));
    }
}
