//! What the headers and data of FITS files have to be: the schemas of `fits/fits`.

use super::array::{NDARRAY_1_0, NDARRAY_1_1, TAGGED_ARRAY};
use super::column::{TABLE_1_0, TABLE_1_1};
use super::{MapRule, Rule, Sort, Want};

/// The headers and data units of a FITS file, with what the data have to be.
macro_rules! fits {
    ($name:literal, $data:expr) => {
        Rule {
            name: $name,
            want: Want::List(&Want::Map(MapRule {
                keys: &[("header", &Want::List(&CARD)), ("data", &$data)],
                required: &["header"],
                closed: true,
                ..MapRule::EMPTY
            })),
        }
    };
}

/// Keyword, value and comment.
static CARD: Want = Want::Parts(
    &[
        &Want::Short(8),
        &Want::Either(
            &[
                (Sort::Text, &Want::Short(60)),
                (Sort::Number, &Want::Anything),
                (Sort::Bool, &Want::Anything),
            ],
            "a string, a number or a truth value",
        ),
        &Want::Short(60),
    ],
    3,
);

/// Data that may also be null.
macro_rules! data {
    ($want:expr) => {
        Want::Either(
            &[
                (Sort::Null, &Want::Anything),
                (Sort::List, &$want),
                (Sort::Map, &$want),
            ],
            "null, an array or a table",
        )
    };
}

pub(super) static FITS_1_0: Rule = fits!(
    "fits/fits-1.0.0",
    Want::By(|node| {
        static TABLE: Want = data!(Want::As(&TABLE_1_0));
        static ARRAY: Want = data!(Want::As(&NDARRAY_1_0));
        if node.get("columns").is_some() {
            &TABLE
        } else {
            &ARRAY
        }
    })
);
pub(super) static FITS_1_1: Rule = fits!(
    "fits/fits-1.1.0",
    Want::By(|node| {
        static TABLE: Want = data!(Want::As(&TABLE_1_1));
        static ARRAY: Want = data!(Want::As(&NDARRAY_1_1));
        if node.get("columns").is_some() {
            &TABLE
        } else {
            &ARRAY
        }
    })
);
pub(super) static FITS_1_2: Rule = fits!(
    "fits/fits-1.2.0",
    Want::By(|node| {
        static TABLE: Want = Want::Tagged("tag:stsci.edu:asdf/table/table-1.");
        match (node.value(), node.get("columns")) {
            (Some(_), _) => &Want::Null,
            (None, Some(_)) => &TABLE,
            (None, None) => &TAGGED_ARRAY,
        }
    })
);
