//! The rules, one for each version of each core tag.
//!
//! Written from the schemas of ASDF Standard 1.0.0 to 1.6.0 (asdf-standard 1.5.0), "Core", "Table", "Unit", "Time" and "FITS".
//! A version that says the same as the one before it shares what it wants with it.

use super::text::{has_letter, is_complex, is_sign, is_time};
use super::{Form, Rule, Sort, Want};
use crate::asdf::tree::{Kind, Node};

/// What the tags of the standard begin with.
const PREFIX: &str = "tag:stsci.edu:asdf/";

/// The rule of a tag.
pub(super) fn find(tag: &str) -> Option<&'static Rule> {
    let name = tag.strip_prefix(PREFIX)?;
    RULES.iter().copied().find(|rule| rule.name == name)
}

/// All rules.
static RULES: [&Rule; 31] = [
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
    &EXTERNAL_ARRAY,
    &NDARRAY_1_0,
    &NDARRAY_1_1,
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

/// Any array of the standard, where a schema asks for the tag alone.
static TAGGED_ARRAY: Want = Want::Tagged("tag:stsci.edu:asdf/core/ndarray-1.");
static ANY_MAPPING: Want = Want::Form(Form::EMPTY);
static NAME: Want = Want::Like(has_letter, "a string with a letter or underscore");

// The tree and who wrote it.

static ASDF_1_0: Rule = Rule {
    name: "core/asdf-1.0.0",
    want: Want::Form(Form {
        keys: &[
            ("asdf_library", &Want::As(&SOFTWARE)),
            ("history", &Want::List(&Want::As(&HISTORY_ENTRY))),
            ("data", &Want::As(&NDARRAY_1_0)),
            ("fits", &Want::As(&FITS_1_0)),
        ],
        ..Form::EMPTY
    }),
};

/// The schema asks something of the first entry and the first extension only.
static ASDF_1_1: Rule = Rule {
    name: "core/asdf-1.1.0",
    want: Want::Form(Form {
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
        ..Form::EMPTY
    }),
};
static FIRST_ENTRY: Want = Want::Parts(&[&Want::As(&HISTORY_ENTRY)], usize::MAX);
static HISTORY: Want = Want::Form(Form {
    keys: &[
        (
            "extensions",
            &Want::Parts(&[&Want::As(&EXTENSION)], usize::MAX),
        ),
        ("entries", &FIRST_ENTRY),
    ],
    ..Form::EMPTY
});

static SOFTWARE: Rule = Rule {
    name: "core/software-1.0.0",
    want: Want::Form(Form {
        keys: &[
            ("name", &Want::Text),
            ("author", &Want::Text),
            ("homepage", &Want::Text),
            ("version", &Want::Text),
        ],
        required: &["name", "version"],
        ..Form::EMPTY
    }),
};

static HISTORY_ENTRY: Rule = Rule {
    name: "core/history_entry-1.0.0",
    want: Want::Form(Form {
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
        ..Form::EMPTY
    }),
};

static EXTENSION: Rule = Rule {
    name: "core/extension_metadata-1.0.0",
    want: Want::Form(Form {
        keys: &[
            ("extension_class", &Want::Text),
            ("package", &Want::As(&SOFTWARE)),
        ],
        required: &["extension_class"],
        ..Form::EMPTY
    }),
};

static SUBCLASS: Rule = Rule {
    name: "core/subclass_metadata-1.0.0",
    want: Want::Form(Form {
        keys: &[("name", &Want::Text)],
        required: &["name"],
        ..Form::EMPTY
    }),
};

// Numbers.

static COMPLEX: Rule = Rule {
    name: "core/complex-1.0.0",
    want: Want::Like(is_complex, "a complex number, as in 1.5-2j,"),
};

static CONSTANT: Rule = Rule {
    name: "core/constant-1.0.0",
    want: Want::Anything,
};

static INTEGER_1_0: Rule = Rule {
    name: "core/integer-1.0.0",
    want: Want::Form(Form {
        keys: &[
            ("words", &Want::As(&NDARRAY_1_0)),
            ("sign", &SIGN),
            ("string", &Want::Text),
        ],
        required: &["words", "sign"],
        ..Form::EMPTY
    }),
};

static INTEGER_1_1: Rule = Rule {
    name: "core/integer-1.1.0",
    want: Want::Form(Form {
        keys: &[
            ("words", &Want::As(&NDARRAY_1_1)),
            ("sign", &SIGN),
            ("string", &Want::Text),
        ],
        required: &["words", "sign"],
        ..Form::EMPTY
    }),
};

static SIGN: Want = Want::Like(is_sign, "'+' or '-'");

// Arrays.

static EXTERNAL_ARRAY: Rule = Rule {
    name: "core/externalarray-1.0.0",
    want: Want::Form(Form {
        keys: &[
            ("fileuri", &Want::Text),
            ("target", &INTEGER_OR_TEXT),
            ("datatype", &Want::Text),
            ("shape", &Want::List(&Want::Size)),
        ],
        required: &["fileuri", "target", "datatype", "shape"],
        ..Form::EMPTY
    }),
};
static INTEGER_OR_TEXT: Want = Want::Either(
    &[
        (Sort::Integer, &Want::Anything),
        (Sort::Text, &Want::Anything),
    ],
    "an integer or a string",
);

static NDARRAY_1_0: Rule = Rule {
    name: "core/ndarray-1.0.0",
    want: Want::Either(
        &[
            (Sort::List, &INLINE),
            (
                Sort::Map,
                &Want::Form(Form {
                    keys: &[
                        ("source", &INTEGER_OR_TEXT),
                        ("data", &Want::All(&[&ANY_LIST, &INLINE])),
                        ("shape", &SHAPE),
                        ("datatype", &DATATYPE_1_0),
                        ("byteorder", &BYTEORDER),
                        ("offset", &Want::Size),
                        ("strides", &Want::List(&Want::Step)),
                        ("mask", &MASK_1_0),
                    ],
                    needs: ARRAY_NEEDS,
                    ..Form::EMPTY
                }),
            ),
        ],
        "a list or a mapping",
    ),
};

/// Since this version either source or data must be there, and there is float16.
static NDARRAY_1_1: Rule = Rule {
    name: "core/ndarray-1.1.0",
    want: Want::Either(
        &[
            (Sort::List, &INLINE),
            (
                Sort::Map,
                &Want::Form(Form {
                    keys: &[
                        ("source", &INTEGER_OR_TEXT),
                        ("data", &Want::All(&[&ANY_LIST, &INLINE])),
                        ("shape", &SHAPE),
                        ("datatype", &DATATYPE_1_1),
                        ("byteorder", &BYTEORDER),
                        ("offset", &Want::Size),
                        ("strides", &Want::List(&Want::Step)),
                        ("mask", &MASK_1_1),
                    ],
                    needs: ARRAY_NEEDS,
                    one_of: &["source", "data"],
                    ..Form::EMPTY
                }),
            ),
        ],
        "a list or a mapping",
    ),
};

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

static MASK_1_0: Want = Want::Either(
    &[
        (Sort::Number, &Want::Anything),
        (Sort::Text, &Want::As(&COMPLEX)),
        (
            Sort::List,
            &Want::All(&[&Want::As(&NDARRAY_1_0), &OF_BOOLS]),
        ),
        (Sort::Map, &Want::All(&[&Want::As(&NDARRAY_1_0), &OF_BOOLS])),
    ],
    "a number or an array of truth values",
);
static MASK_1_1: Want = Want::Either(
    &[
        (Sort::Number, &Want::Anything),
        (Sort::Text, &Want::As(&COMPLEX)),
        (
            Sort::List,
            &Want::All(&[&Want::As(&NDARRAY_1_1), &OF_BOOLS]),
        ),
        (Sort::Map, &Want::All(&[&Want::As(&NDARRAY_1_1), &OF_BOOLS])),
    ],
    "a number or an array of truth values",
);
/// What `datatype: bool8` asks of an array. It is not asked of lists without the tag of one.
static OF_BOOLS: Want = Want::By(|node| {
    static DECLARED: Want = Want::Form(Form {
        keys: &[("datatype", &Want::OneOf(&["bool8"]))],
        ..Form::EMPTY
    });
    static LISTED: Want = Want::Form(Form {
        keys: &[("data", &BOOLS)],
        ..Form::EMPTY
    });
    static BOOLS: Want = Want::Nested(&Want::Bool);
    if !node
        .tag()
        .is_some_and(|tag| tag.starts_with("tag:stsci.edu:asdf/core/ndarray-"))
    {
        &Want::Anything
    } else if node.follow().kind() == Kind::Sequence {
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
const FIELD_WORDS: &str = "the name of a datatype, a list or a mapping";

static DATATYPE_1_0: Want = Want::Either(
    &[
        (Sort::Text, &PLAIN_1_0),
        (
            Sort::List,
            &Want::By(|node| {
                if is_string(node) {
                    &STRING
                } else {
                    &FIELDS_1_0
                }
            }),
        ),
    ],
    DATATYPE_WORDS,
);
static FIELDS_1_0: Want = Want::List(&Want::Either(
    &[
        (Sort::Text, &PLAIN_1_0),
        (Sort::List, &STRING),
        (
            Sort::Map,
            &Want::Form(Form {
                keys: &[
                    ("name", &NAME),
                    ("datatype", &DATATYPE_1_0),
                    ("byteorder", &BYTEORDER),
                    ("shape", &Want::List(&Want::Size)),
                ],
                required: &["datatype"],
                ..Form::EMPTY
            }),
        ),
    ],
    FIELD_WORDS,
));

static DATATYPE_1_1: Want = Want::Either(
    &[
        (Sort::Text, &PLAIN_1_1),
        (
            Sort::List,
            &Want::By(|node| {
                if is_string(node) {
                    &STRING
                } else {
                    &FIELDS_1_1
                }
            }),
        ),
    ],
    DATATYPE_WORDS,
);
static FIELDS_1_1: Want = Want::List(&Want::Either(
    &[
        (Sort::Text, &PLAIN_1_1),
        (Sort::List, &STRING),
        (
            Sort::Map,
            &Want::Form(Form {
                keys: &[
                    ("name", &NAME),
                    ("datatype", &DATATYPE_1_1),
                    ("byteorder", &BYTEORDER),
                    ("shape", &Want::List(&Want::Size)),
                ],
                required: &["datatype"],
                ..Form::EMPTY
            }),
        ),
    ],
    FIELD_WORDS,
));

/// Whether a list says the datatype of strings, as in `[ascii, 5]`.
fn is_string(list: Node<'_>) -> bool {
    let kind = list.items().next().and_then(Node::text);
    matches!(kind, Some("ascii" | "ucs4"))
}

// Tables.

/// A table with columns of one kind.
macro_rules! table {
    ($name:literal, $column:expr) => {
        Rule {
            name: $name,
            want: Want::Form(Form {
                keys: &[("columns", &Want::List(&$column)), ("meta", &ANY_MAPPING)],
                required: &["columns"],
                closed: true,
                ..Form::EMPTY
            }),
        }
    };
}

/// A column with data of one kind.
macro_rules! column {
    ($name:literal, $data:expr) => {
        Rule {
            name: $name,
            want: Want::Form(Form {
                keys: &[
                    ("name", &NAME),
                    ("data", &$data),
                    ("description", &Want::Text),
                    ("unit", &Want::As(&UNIT)),
                    ("meta", &ANY_MAPPING),
                ],
                required: &["name", "data"],
                closed: true,
                ..Form::EMPTY
            }),
        }
    };
}

static TABLE_1_0: Rule = table!("core/table-1.0.0", Want::As(&COLUMN_1_0));
static TABLE_1_1: Rule = table!("table/table-1.1.0", Want::As(&COLUMN_1_1));
static TABLE_1_2: Rule = table!(
    "table/table-1.2.0",
    Want::Tagged("tag:stsci.edu:asdf/table/column-1.")
);
static COLUMN_1_0: Rule = column!("core/column-1.0.0", Want::As(&NDARRAY_1_0));
static COLUMN_1_1: Rule = column!("table/column-1.1.0", Want::As(&NDARRAY_1_1));
static COLUMN_1_2: Rule = column!("table/column-1.2.0", TAGGED_ARRAY);

// Units and quantities.

static UNIT: Rule = Rule {
    name: "unit/unit-1.0.0",
    want: Want::Text,
};

/// A quantity with values of one kind, and further keys.
macro_rules! quantity {
    ($name:literal, $array:expr $(, $more:expr)?) => {
        Rule {
            name: $name,
            want: Want::Form(Form {
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
                ..Form::EMPTY
            }),
        }
    };
}

static QUANTITY_1_1: Rule = quantity!("unit/quantity-1.1.0", Want::As(&NDARRAY_1_0));
static QUANTITY_1_2: Rule = quantity!(
    "unit/quantity-1.2.0",
    Want::As(&NDARRAY_1_1),
    ("datatype", &SCALAR_DATATYPE)
);
static QUANTITY_1_3: Rule = quantity!(
    "unit/quantity-1.3.0",
    TAGGED_ARRAY,
    ("datatype", &SCALAR_DATATYPE)
);
static SCALAR_DATATYPE: Want = Want::Either(
    &[(Sort::Text, &PLAIN_1_1), (Sort::List, &STRING)],
    DATATYPE_WORDS,
);

// Times.

static TIME_TEXT: Want = Want::Like(is_time, "a time");
static TIME_TEXTS: Want = Want::Nested(&TIME_TEXT);
const SCALES: Want = Want::OneOf(&["utc", "tai", "tcb", "tcg", "tdb", "tt", "ut1"]);

/// A time: its own shape of a mapping, and what the value's array and the mapping's other keys are.
macro_rules! time {
    ($name:literal, $map:expr) => {
        Rule {
            name: $name,
            want: Want::Either(
                &[
                    (Sort::Text, &TIME_TEXT),
                    (Sort::List, &TIME_TEXTS),
                    (Sort::Map, &$map),
                ],
                "a time, a list of times or a mapping",
            ),
        }
    };
}

/// The mapping of a time.
macro_rules! time_form {
    ($value:expr, $format:expr, $location:expr $(, $more:expr)?) => {
        Want::Form(Form {
            keys: &[
                ("value", &$value),
                ("format", &$format),
                ("scale", &SCALES),
                ("location", &$location),
                $($more)?
            ],
            required: &["value"],
            ..Form::EMPTY
        })
    };
}

/// The value of a time, with what an array has to be.
macro_rules! time_value {
    ($list:expr, $array:expr) => {
        Want::Either(
            &[
                (Sort::Text, &TIME_TEXT),
                (Sort::Number, &Want::Anything),
                (Sort::List, &$list),
                (Sort::Map, &$array),
            ],
            "a time, a number or an array",
        )
    };
}

/// A place on Earth, with what its coordinates have to be.
macro_rules! place {
    ($coordinate:expr) => {
        Want::Form(Form {
            keys: &[
                ("x", &$coordinate),
                ("y", &$coordinate),
                ("z", &$coordinate),
            ],
            required: &["x", "y", "z"],
            ..Form::EMPTY
        })
    };
}

/// The first two versions take a mapping without a value for an array.
macro_rules! old_time {
    ($name:literal, $location:expr) => {
        time!(
            $name,
            Want::By(|node| {
                static FORM: Want = time_form!(
                    time_value!(Want::As(&NDARRAY_1_0), Want::As(&NDARRAY_1_0)),
                    FORMAT_1_0,
                    $location
                );
                static ARRAY: Want = Want::As(&NDARRAY_1_0);
                match node.get("value") {
                    Some(_) => &FORM,
                    None => &ARRAY,
                }
            })
        )
    };
}

static FORMAT_1_0: Want = Want::OneOf(&[
    "iso",
    "yday",
    "byear",
    "jyear",
    "decimalyear",
    "jd",
    "mjd",
    "gps",
    "unix",
    "cxcsec",
]);

static TIME_1_0: Rule = old_time!("time/time-1.0.0", LOCATION_1_0);
static TIME_1_1: Rule = old_time!("time/time-1.1.0", place!(Want::As(&QUANTITY_1_1)));

static LOCATION_1_0: Want = Want::By(|node| {
    static GEOCENTRIC: Want = Want::Form(Form {
        keys: &[
            ("x", &Want::Number),
            ("y", &Want::Number),
            ("z", &Want::Number),
            ("unit", &Want::As(&UNIT)),
        ],
        required: &["x", "y", "z"],
        ..Form::EMPTY
    });
    static GEODETIC: Want = Want::Form(Form {
        keys: &[
            ("long", &Want::Between(-180.0, 180.0)),
            ("lat", &Want::Between(-90.0, 90.0)),
            ("h", &Want::Number),
            ("unit", &Want::As(&UNIT)),
        ],
        required: &["long", "lat"],
        ..Form::EMPTY
    });
    if node.get("long").is_some() || node.get("lat").is_some() {
        &GEODETIC
    } else {
        &GEOCENTRIC
    }
});

/// Since 1.2.0 there is also a format that the value had before it was written.
macro_rules! new_time {
    ($name:literal, $array:expr, $list:expr, $coordinate:expr, [$($format:literal),*]) => {
        time!($name, time_form!(
            time_value!($list, $array),
            Want::OneOf(&[$($format),*]),
            place!($coordinate),
            ("base_format", &Want::OneOf(&[$($format,)* "byear_str", "datetime", "fits", "isot", "jyear_str", "plot_date",
                "ymdhms", "datetime64"]))
        ))
    };
}

static TIME_1_2: Rule = new_time!(
    "time/time-1.2.0",
    Want::As(&NDARRAY_1_1),
    Want::As(&NDARRAY_1_1),
    Want::As(&QUANTITY_1_2),
    [
        "byear",
        "cxcsec",
        "decimalyear",
        "gps",
        "iso",
        "jd",
        "jyear",
        "mjd",
        "unix",
        "unix_tai",
        "yday"
    ]
);
static TIME_1_3: Rule = new_time!(
    "time/time-1.3.0",
    Want::As(&NDARRAY_1_1),
    Want::As(&NDARRAY_1_1),
    Want::As(&QUANTITY_1_2),
    [
        "byear",
        "cxcsec",
        "decimalyear",
        "gps",
        "iso",
        "jd",
        "jyear",
        "mjd",
        "unix",
        "unix_tai",
        "yday",
        "utime",
        "tai_seconds"
    ]
);
static TIME_1_4: Rule = new_time!(
    "time/time-1.4.0",
    TAGGED_ARRAY,
    ARRAY_OR_TIMES,
    Want::Tagged("tag:stsci.edu:asdf/unit/quantity-1."),
    [
        "iso",
        "yday",
        "byear",
        "jyear",
        "decimalyear",
        "jd",
        "mjd",
        "gps",
        "unix",
        "utime",
        "tai_seconds",
        "cxcsec",
        "galexsec",
        "unix_tai"
    ]
);
static ARRAY_OR_TIMES: Want = Want::By(|node| match node.tag() {
    Some(_) => &TAGGED_ARRAY,
    None => &TIME_TEXTS,
});

// FITS.

/// The headers and data units of a FITS file, with what the data have to be.
macro_rules! fits {
    ($name:literal, $data:expr) => {
        Rule {
            name: $name,
            want: Want::List(&Want::Form(Form {
                keys: &[("header", &Want::List(&CARD)), ("data", &$data)],
                required: &["header"],
                closed: true,
                ..Form::EMPTY
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

/// What data are that may also be null.
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

static FITS_1_0: Rule = fits!(
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
static FITS_1_1: Rule = fits!(
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
static FITS_1_2: Rule = fits!(
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
