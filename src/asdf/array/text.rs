//! One-line texts about an array, for `info/`, for extended attributes and for `--list`.

use super::{Array, Detail, Origin};
use crate::asdf::datatype::{Datatype, Orders};

impl Array {
    /// The datatype in one line. If its fields differ in byte order, each has a mark (`<` or `>`).
    #[must_use]
    pub fn datatype_text(&self) -> Option<String> {
        self.data
            .form
            .datatype
            .as_ref()
            .map(|datatype| match datatype.orders() {
                Orders::Mixed => format!("{datatype:#}"),
                Orders::None | Orders::All(_) => datatype.to_string(),
            })
    }

    /// The shape as `[2, 3]`.
    #[must_use]
    pub fn shape_text(&self) -> Option<String> {
        self.data
            .form
            .shape
            .as_ref()
            .map(|shape| format!("{shape:?}"))
    }

    /// The byte order of the elements, `mixed` if fields differ. For elements of single bytes, the one that the tree declares.
    #[must_use]
    pub fn byteorder_text(&self) -> Option<String> {
        match self.data.form.datatype.as_ref().map(Datatype::orders) {
            Some(Orders::All(order)) => Some(order.to_string()),
            Some(Orders::Mixed) => Some("mixed".to_owned()),
            Some(Orders::None) | None => self.data.form.byteorder.map(|order| order.to_string()),
        }
    }

    /// The strides in bytes that the tree declares, as `[8, -16]`.
    #[must_use]
    pub fn strides_text(&self) -> Option<String> {
        self.data
            .form
            .strides
            .as_ref()
            .map(|strides| format!("{strides:?}"))
    }

    /// Where its elements are, as the tree says it: a block index, `inline`, `chunks`, or a URI.
    #[must_use]
    pub fn source_text(&self) -> String {
        match &self.data.form.origin {
            Origin::Block(n) => n.to_string(),
            Origin::Inline => "inline".to_owned(),
            Origin::Chunked => "chunks".to_owned(),
            Origin::External(uri) => uri.clone(),
            Origin::Fits { reference, .. } => format!("fits:{reference}"),
            Origin::Unknown => "-".to_owned(),
        }
    }

    /// A warning for readers of its files: nulls that read as zeros, or a FITS unit that differs from the declaration.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        if let Origin::Fits { difference, .. } = self.origin() {
            return difference.clone();
        }
        let Detail::Inline(elements, _) = self.detail.as_deref()? else {
            return None;
        };
        match elements.nulls() {
            0 => None,
            1 => Some("1 null in the tree reads as zero".to_owned()),
            nulls => Some(format!("{nulls} nulls in the tree read as zeros")),
        }
    }

    /// The problem of the array; without one, its note.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let problem = self.problem().map(|error| error.to_string());
        problem.or_else(|| self.note())
    }

    /// The path of its `.npy` file in a mount, if it has files. If the paths of all arrays are too long together, a long one is left
    /// out.
    #[must_use]
    pub fn listed_file(&self) -> Option<String> {
        let path = self.paths.listed(self.home).filter(|_| self.has_files())?;
        Some(path + ".npy")
    }
}
