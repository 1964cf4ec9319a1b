//! What tables, their columns, units and quantities have to be.

use super::array::{NAME, NDARRAY_1_0, NDARRAY_1_1, SCALAR_DATATYPE, TAGGED_ARRAY};
use super::{MapRule, Rule, Sort, Want};

static ANY_MAPPING: Want = Want::Map(MapRule::EMPTY);

/// A table with columns of one kind.
macro_rules! table {
    ($name:literal, $column:expr) => {
        Rule {
            name: $name,
            want: Want::Map(MapRule {
                keys: &[("columns", &Want::List(&$column)), ("meta", &ANY_MAPPING)],
                required: &["columns"],
                closed: true,
                ..MapRule::EMPTY
            }),
        }
    };
}

/// A column with data of one kind.
macro_rules! column {
    ($name:literal, $data:expr) => {
        Rule {
            name: $name,
            want: Want::Map(MapRule {
                keys: &[
                    ("name", &NAME),
                    ("data", &$data),
                    ("description", &Want::Text),
                    ("unit", &Want::As(&UNIT)),
                    ("meta", &ANY_MAPPING),
                ],
                required: &["name", "data"],
                closed: true,
                ..MapRule::EMPTY
            }),
        }
    };
}

pub(super) static TABLE_1_0: Rule = table!("core/table-1.0.0", Want::As(&COLUMN_1_0));
pub(super) static TABLE_1_1: Rule = table!("table/table-1.1.0", Want::As(&COLUMN_1_1));
pub(super) static TABLE_1_2: Rule = table!(
    "table/table-1.2.0",
    Want::Tagged("tag:stsci.edu:asdf/table/column-1.")
);
pub(super) static COLUMN_1_0: Rule = column!("core/column-1.0.0", Want::As(&NDARRAY_1_0));
pub(super) static COLUMN_1_1: Rule = column!("table/column-1.1.0", Want::As(&NDARRAY_1_1));
pub(super) static COLUMN_1_2: Rule = column!("table/column-1.2.0", TAGGED_ARRAY);

// Units and quantities.

pub(super) static UNIT: Rule = Rule {
    name: "unit/unit-1.0.0",
    want: Want::Text,
};

/// A quantity with values of one kind, and further keys.
macro_rules! quantity {
    ($name:literal, $array:expr $(, $more:expr)?) => {
        Rule {
            name: $name,
            want: Want::Map(MapRule {
                keys: &[
                    ("value", &Want::Either(&[
                        (Sort::Number, &Want::Anything),
                        (Sort::List, &$array),
                        (Sort::Map, &$array),
                    ], "a number or an array")),
                    ("unit", &Want::As(&UNIT)),
                    $($more)?
                ],
                required: &["value", "unit"],
                ..MapRule::EMPTY
            }),
        }
    };
}

pub(super) static QUANTITY_1_1: Rule = quantity!("unit/quantity-1.1.0", Want::As(&NDARRAY_1_0));
pub(super) static QUANTITY_1_2: Rule = quantity!(
    "unit/quantity-1.2.0",
    Want::As(&NDARRAY_1_1),
    ("datatype", &SCALAR_DATATYPE)
);
pub(super) static QUANTITY_1_3: Rule = quantity!(
    "unit/quantity-1.3.0",
    TAGGED_ARRAY,
    ("datatype", &SCALAR_DATATYPE)
);
