//! What arrays have to be: the schemas of `core/ndarray` and `core/externalarray`.

use super::table::COMPLEX;
use super::text::has_letter;
use super::{MapRule, Rule, Sort, Want};
use crate::asdf::tree::{Node, NodeKind};

/// Any array of the standard, where a schema asks for the tag alone.
pub(super) static TAGGED_ARRAY: Want = Want::Tagged("tag:stsci.edu:asdf/core/ndarray-1.");

pub(super) static NAME: Want = Want::Like(has_letter, "a string with a letter or underscore");

pub(super) static EXTERNAL_ARRAY: Rule = Rule {
    name: "core/externalarray-1.0.0",
    want: Want::Map(MapRule {
        keys: &[
            ("fileuri", &Want::Text),
            ("target", &INTEGER_OR_TEXT),
            ("datatype", &Want::Text),
            ("shape", &Want::List(&Want::Size)),
        ],
        required: &["fileuri", "target", "datatype", "shape"],
        ..MapRule::EMPTY
    }),
};
static INTEGER_OR_TEXT: Want = Want::Either(
    &[
        (Sort::Integer, &Want::Anything),
        (Sort::Text, &Want::Anything),
    ],
    "an integer or a string",
);

/// The rule of an array: its datatypes, its mask, and a set of keys: exactly one must be there.
macro_rules! ndarray {
    ($name:literal, $datatype:expr, $mask:expr, $one_of:expr) => {
        Rule {
            name: $name,
            want: Want::Either(
                &[
                    (Sort::List, &INLINE),
                    (
                        Sort::Map,
                        &Want::Map(MapRule {
                            keys: &[
                                ("source", &INTEGER_OR_TEXT),
                                ("data", &Want::All(&[&ANY_LIST, &INLINE])),
                                ("shape", &SHAPE),
                                ("datatype", &$datatype),
                                ("byteorder", &BYTEORDER),
                                ("offset", &Want::Size),
                                ("strides", &Want::List(&Want::Step)),
                                ("mask", &$mask),
                            ],
                            needs: ARRAY_NEEDS,
                            one_of: $one_of,
                            ..MapRule::EMPTY
                        }),
                    ),
                ],
                "a list or a mapping",
            ),
        }
    };
}

pub(super) static NDARRAY_1_0: Rule = ndarray!("core/ndarray-1.0.0", DATATYPE_1_0, MASK_1_0, &[]);
/// Since this version either source or data must be there, and there is float16.
pub(super) static NDARRAY_1_1: Rule = ndarray!(
    "core/ndarray-1.1.0",
    DATATYPE_1_1,
    MASK_1_1,
    &["source", "data"]
);
/// Not stable yet: says the same, but its datatypes have a schema of their own, and its mask is of this version.
pub(super) static NDARRAY_1_2: Rule = ndarray!(
    "core/ndarray-1.2.0",
    DATATYPE_1_1,
    MASK_1_2,
    &["source", "data"]
);

const ARRAY_NEEDS: &[(&str, &str)] = &[
    ("source", "shape"),
    ("source", "datatype"),
    ("source", "byteorder"),
];
static ANY_LIST: Want = Want::List(&Want::Anything);
/// Lists in lists, of everything but mappings.
static INLINE: Want = Want::Nested(&Want::Either(
    &[
        (Sort::Number, &Want::Anything),
        (Sort::Text, &Want::Anything),
        (Sort::Null, &Want::Anything),
        (Sort::Bool, &Want::Anything),
    ],
    "a number, string, truth value or null",
));
static SHAPE: Want = Want::List(&Want::Either(
    &[
        (Sort::Integer, &Want::Size),
        (Sort::Text, &Want::OneOf(&["*"])),
    ],
    "an integer or '*'",
));
static BYTEORDER: Want = Want::OneOf(&["big", "little"]);

/// The want for an array that masks another one.
macro_rules! mask {
    ($array:expr) => {
        Want::Either(
            &[
                (Sort::Number, &Want::Anything),
                (Sort::Text, &Want::As(&COMPLEX)),
                (Sort::List, &Want::All(&[&Want::As(&$array), &OF_BOOLS])),
                (Sort::Map, &Want::All(&[&Want::As(&$array), &OF_BOOLS])),
            ],
            "a number or an array of truth values",
        )
    };
}

static MASK_1_0: Want = mask!(NDARRAY_1_0);
static MASK_1_1: Want = mask!(NDARRAY_1_1);
static MASK_1_2: Want = mask!(NDARRAY_1_2);
/// What `datatype: bool8` asks of an array. It is not asked of lists without the tag of one.
static OF_BOOLS: Want = Want::By(|node| {
    static DECLARED: Want = Want::Map(MapRule {
        keys: &[("datatype", &Want::OneOf(&["bool8"]))],
        ..MapRule::EMPTY
    });
    static LISTED: Want = Want::Map(MapRule {
        keys: &[("data", &BOOLS)],
        ..MapRule::EMPTY
    });
    static BOOLS: Want = Want::Nested(&Want::Bool);
    if !node
        .tag()
        .is_some_and(|tag| tag.starts_with("tag:stsci.edu:asdf/core/ndarray-"))
    {
        &Want::Anything
    } else if node.follow().kind() == NodeKind::Sequence {
        &BOOLS
    } else if node.get("datatype").is_some() {
        &DECLARED
    } else {
        &LISTED
    }
});

/// The datatypes of one element that is neither a string nor a record.
macro_rules! datatypes {
    ($($more:literal)?) => {
        Want::OneOf(&[
            "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", $($more,)? "float32", "float64",
            "complex64", "complex128", "bool8",
        ])
    };
}

static PLAIN_1_0: Want = datatypes!();
static PLAIN_1_1: Want = datatypes!("float16");
static STRING: Want = Want::Parts(&[&STRING_KIND, &Want::Size], usize::MAX);
static STRING_KIND: Want = Want::OneOf(&["ascii", "ucs4"]);
const DATATYPE_WORDS: &str = "the name of a datatype or a list";

/// The datatype of an array: `$plain` for single elements, `$fields` for records.
macro_rules! datatype {
    ($plain:expr, $fields:expr) => {
        Want::Either(
            &[
                (Sort::Text, &$plain),
                (
                    Sort::List,
                    &Want::By(|node| if is_string(node) { &STRING } else { &$fields }),
                ),
            ],
            DATATYPE_WORDS,
        )
    };
}

/// The fields of a record.
macro_rules! fields {
    ($plain:expr, $datatype:expr) => {
        Want::List(&Want::Either(
            &[
                (Sort::Text, &$plain),
                (Sort::List, &STRING),
                (
                    Sort::Map,
                    &Want::Map(MapRule {
                        keys: &[
                            ("name", &NAME),
                            ("datatype", &$datatype),
                            ("byteorder", &BYTEORDER),
                            ("shape", &Want::List(&Want::Size)),
                        ],
                        required: &["datatype"],
                        ..MapRule::EMPTY
                    }),
                ),
            ],
            "the name of a datatype, a list or a mapping",
        ))
    };
}

static DATATYPE_1_0: Want = datatype!(PLAIN_1_0, FIELDS_1_0);
static DATATYPE_1_1: Want = datatype!(PLAIN_1_1, FIELDS_1_1);
static FIELDS_1_0: Want = fields!(PLAIN_1_0, DATATYPE_1_0);
static FIELDS_1_1: Want = fields!(PLAIN_1_1, DATATYPE_1_1);

/// The datatype of a single element.
pub(super) static SCALAR_DATATYPE: Want = Want::Either(
    &[(Sort::Text, &PLAIN_1_1), (Sort::List, &STRING)],
    DATATYPE_WORDS,
);

/// Whether a list says the datatype of strings, as in `[ascii, 5]`.
fn is_string(list: Node<'_>) -> bool {
    let kind = list.items().next().and_then(Node::text);
    matches!(kind, Some("ascii" | "ucs4"))
}
