//! The rules, one for each version of each core tag. The rules for the tree itself, for its writers and for numbers stand here.
//!
//! Written from the schemas of ASDF Standard 1.0.0 to 1.6.0, and of 1.7.0 as far as it is there (asdf-standard 1.5.0), "Core", "Table", "Unit", "Time" and "FITS".
//! A version that says the same as the one before it shares what it wants with it.

use super::array::{EXTERNAL_ARRAY, NDARRAY_1_0, NDARRAY_1_1, NDARRAY_1_2};
use super::column::{
    COLUMN_1_0, COLUMN_1_1, COLUMN_1_2, QUANTITY_1_1, QUANTITY_1_2, QUANTITY_1_3, TABLE_1_0,
    TABLE_1_1, TABLE_1_2, UNIT,
};
use super::fits::{FITS_1_0, FITS_1_1, FITS_1_2};
use super::text::{is_complex, is_sign, is_version};
use super::time::{TIME_1_0, TIME_1_1, TIME_1_2, TIME_1_3, TIME_1_4};
use super::{MapRule, Rule, Sort, Want, sort};
use crate::asdf::tree::Node;

/// What the tags of the standard begin with.
const PREFIX: &str = "tag:stsci.edu:asdf/";

/// The rule of a tag.
pub(super) fn find(tag: &str) -> Option<&'static Rule> {
    let name = tag.strip_prefix(PREFIX)?;
    RULES.iter().copied().find(|rule| rule.name == name)
}

/// All rules.
static RULES: [&Rule; 33] = [
    &ASDF_1_0,
    &ASDF_1_1,
    &SOFTWARE,
    &HISTORY_ENTRY,
    &EXTENSION,
    &SUBCLASS,
    &COMPLEX,
    &CONSTANT,
    &INTEGER_1_0,
    &INTEGER_1_1,
    &INTEGER_1_2,
    &EXTERNAL_ARRAY,
    &NDARRAY_1_0,
    &NDARRAY_1_1,
    &NDARRAY_1_2,
    &TABLE_1_0,
    &TABLE_1_1,
    &TABLE_1_2,
    &COLUMN_1_0,
    &COLUMN_1_1,
    &COLUMN_1_2,
    &UNIT,
    &QUANTITY_1_1,
    &QUANTITY_1_2,
    &QUANTITY_1_3,
    &TIME_1_0,
    &TIME_1_1,
    &TIME_1_2,
    &TIME_1_3,
    &TIME_1_4,
    &FITS_1_0,
    &FITS_1_1,
    &FITS_1_2,
];

// The tree and who wrote it.

static ASDF_1_0: Rule = Rule {
    name: "core/asdf-1.0.0",
    want: Want::Map(MapRule {
        keys: &[
            ("asdf_library", &Want::As(&SOFTWARE)),
            ("history", &Want::List(&Want::As(&HISTORY_ENTRY))),
            ("data", &Want::As(&NDARRAY_1_0)),
            ("fits", &Want::As(&FITS_1_0)),
        ],
        ..MapRule::EMPTY
    }),
};

/// The schema asks something of the first entry and the first extension only.
static ASDF_1_1: Rule = Rule {
    name: "core/asdf-1.1.0",
    want: Want::Map(MapRule {
        keys: &[
            ("asdf_library", &Want::As(&SOFTWARE)),
            (
                "history",
                &Want::Either(
                    &[(Sort::List, &FIRST_ENTRY), (Sort::Map, &HISTORY)],
                    "a list or a mapping",
                ),
            ),
        ],
        ..MapRule::EMPTY
    }),
};
static FIRST_ENTRY: Want = Want::Parts(&[&Want::As(&HISTORY_ENTRY)], usize::MAX);
static HISTORY: Want = Want::Map(MapRule {
    keys: &[
        (
            "extensions",
            &Want::All(&[
                &Want::Parts(&[&Want::As(&EXTENSION)], usize::MAX),
                &Want::List(&OPENED),
            ]),
        ),
        ("entries", &FIRST_ENTRY),
    ],
    ..MapRule::EMPTY
});

/// Without it, `asdf.open` of Python's asdf (6.0, `_check_extensions`) raises an error, although the schema passes: it looks up each
/// extension among those that are installed. It parses the version of a package only if the package is installed.
static OPENED: Want = Want::By(|node| {
    static BY_URI: Want = Want::Map(MapRule {
        keys: &[("software", &PACKAGE), ("manifest_software", &NAMED)],
        ..MapRule::EMPTY
    });
    static BY_CLASS: Want = Want::Map(MapRule {
        keys: &[
            ("extension_class", &SCALAR),
            ("software", &PACKAGE),
            ("manifest_software", &NAMED),
        ],
        required: &["extension_class"],
        ..MapRule::EMPTY
    });
    match node.get("extension_uri").and_then(sort) {
        None | Some(Sort::Null) => &BY_CLASS,
        Some(_) => &BY_URI,
    }
});
static PACKAGE: Want = Want::Either(
    &[(Sort::Null, &Want::Anything), (Sort::Map, &INSTALLED)],
    "a mapping",
);
/// The package asdf is installed wherever Python's asdf opens a file; of another one nobody may ever parse the version.
static INSTALLED: Want = Want::By(|node| {
    static WITH_VERSION: Want = Want::Map(MapRule {
        keys: &[("name", &Want::Anything), ("version", &Want::Anything)],
        required: &["name", "version"],
        ..MapRule::EMPTY
    });
    match node.get("name").and_then(Node::text) {
        Some("asdf") => &NAMED,
        _ => &WITH_VERSION,
    }
});
static NAMED: Want = Want::Map(MapRule {
    keys: &[
        ("name", &Want::Anything),
        (
            "version",
            &Want::Like(is_version, "a version by PEP 440, as in '1.2.0',"),
        ),
    ],
    required: &["name", "version"],
    ..MapRule::EMPTY
});
/// Python looks up the value in a set, and a list or a mapping has no hash.
static SCALAR: Want = Want::Either(
    &[
        (Sort::Text, &Want::Anything),
        (Sort::Number, &Want::Anything),
        (Sort::Bool, &Want::Anything),
        (Sort::Null, &Want::Anything),
    ],
    "a string",
);

static SOFTWARE: Rule = Rule {
    name: "core/software-1.0.0",
    want: Want::Map(MapRule {
        keys: &[
            ("name", &Want::Text),
            ("author", &Want::Text),
            ("homepage", &Want::Text),
            ("version", &Want::Text),
        ],
        required: &["name", "version"],
        ..MapRule::EMPTY
    }),
};

static HISTORY_ENTRY: Rule = Rule {
    name: "core/history_entry-1.0.0",
    want: Want::Map(MapRule {
        keys: &[
            ("description", &Want::Text),
            ("time", &Want::Text),
            (
                "software",
                &Want::Either(
                    &[
                        (Sort::Map, &Want::As(&SOFTWARE)),
                        (Sort::List, &Want::List(&Want::As(&SOFTWARE))),
                    ],
                    "a software entry or a list of them",
                ),
            ),
        ],
        required: &["description"],
        ..MapRule::EMPTY
    }),
};

static EXTENSION: Rule = Rule {
    name: "core/extension_metadata-1.0.0",
    want: Want::Map(MapRule {
        keys: &[
            ("extension_class", &Want::Text),
            ("package", &Want::As(&SOFTWARE)),
        ],
        required: &["extension_class"],
        ..MapRule::EMPTY
    }),
};

static SUBCLASS: Rule = Rule {
    name: "core/subclass_metadata-1.0.0",
    want: Want::Map(MapRule {
        keys: &[("name", &Want::Text)],
        required: &["name"],
        ..MapRule::EMPTY
    }),
};

// Numbers.

pub(super) static COMPLEX: Rule = Rule {
    name: "core/complex-1.0.0",
    want: Want::Like(is_complex, "a complex number, as in 1.5-2j,"),
};

static CONSTANT: Rule = Rule {
    name: "core/constant-1.0.0",
    want: Want::Anything,
};

/// An integer whose words are an array of that rule.
macro_rules! integer {
    ($name:literal, $array:expr) => {
        Rule {
            name: $name,
            want: Want::Map(MapRule {
                keys: &[
                    ("words", &Want::As(&$array)),
                    ("sign", &SIGN),
                    ("string", &Want::Text),
                ],
                required: &["words", "sign"],
                ..MapRule::EMPTY
            }),
        }
    };
}

static INTEGER_1_0: Rule = integer!("core/integer-1.0.0", NDARRAY_1_0);
static INTEGER_1_1: Rule = integer!("core/integer-1.1.0", NDARRAY_1_1);
/// Not stable yet.
static INTEGER_1_2: Rule = integer!("core/integer-1.2.0", NDARRAY_1_2);

static SIGN: Want = Want::Like(is_sign, "'+' or '-'");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tag_has_one_rule() {
        for (i, rule) in RULES.iter().enumerate() {
            let tag = format!("{PREFIX}{}", rule.name);
            assert!(
                find(&tag).is_some_and(|found| std::ptr::eq(found, *rule)),
                "{tag}"
            );
            assert!(RULES.iter().take(i).all(|other| other.name != rule.name));
        }
        assert!(find("tag:stsci.edu:asdf/core/ndarray-9.0.0").is_none());
        assert!(find("tag:example.org:core/ndarray-1.0.0").is_none());
    }
}
