//! What times have to be: the schemas of `time/time`.

use super::array::{NDARRAY_1_0, NDARRAY_1_1, TAGGED_ARRAY};
use super::column::{QUANTITY_1_1, QUANTITY_1_2, UNIT};
use super::text::is_time;
use super::{MapRule, Rule, Sort, Want};

static TIME_TEXT: Want = Want::Like(is_time, "a time");
static TIME_TEXTS: Want = Want::Nested(&TIME_TEXT);
const SCALES: Want = Want::OneOf(&["utc", "tai", "tcb", "tcg", "tdb", "tt", "ut1"]);

/// The rule of a time: a text, a list of texts, or the mapping `$map`.
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
        Want::Map(MapRule {
            keys: &[
                ("value", &$value),
                ("format", &$format),
                ("scale", &SCALES),
                ("location", &$location),
                $($more)?
            ],
            required: &["value"],
            ..MapRule::EMPTY
        })
    };
}

/// The value of a time: a text, a number, or an array as `$list` or `$array` wants it.
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

/// A place on Earth, with coordinates as `$coordinate` wants them.
macro_rules! place {
    ($coordinate:expr) => {
        Want::Map(MapRule {
            keys: &[
                ("x", &$coordinate),
                ("y", &$coordinate),
                ("z", &$coordinate),
            ],
            required: &["x", "y", "z"],
            ..MapRule::EMPTY
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

pub(super) static TIME_1_0: Rule = old_time!("time/time-1.0.0", LOCATION_1_0);
pub(super) static TIME_1_1: Rule = old_time!("time/time-1.1.0", place!(Want::As(&QUANTITY_1_1)));

static LOCATION_1_0: Want = Want::By(|node| {
    static GEOCENTRIC: Want = Want::Map(MapRule {
        keys: &[
            ("x", &Want::Number),
            ("y", &Want::Number),
            ("z", &Want::Number),
            ("unit", &Want::As(&UNIT)),
        ],
        required: &["x", "y", "z"],
        ..MapRule::EMPTY
    });
    static GEODETIC: Want = Want::Map(MapRule {
        keys: &[
            ("long", &Want::Between(-180.0, 180.0)),
            ("lat", &Want::Between(-90.0, 90.0)),
            ("h", &Want::Number),
            ("unit", &Want::As(&UNIT)),
        ],
        required: &["long", "lat"],
        ..MapRule::EMPTY
    });
    if node.get("long").is_some() || node.get("lat").is_some() {
        &GEODETIC
    } else {
        &GEOCENTRIC
    }
});

/// Since 1.2.0 a mapping may also name the format that the value had before it was written.
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

/// The formats of 1.2.0, with the ones that a later version adds.
macro_rules! quantity_time {
    ($name:literal $(, $more:literal)*) => {
        new_time!(
            $name,
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
                $(, $more)*
            ]
        )
    };
}

pub(super) static TIME_1_2: Rule = quantity_time!("time/time-1.2.0");
pub(super) static TIME_1_3: Rule = quantity_time!("time/time-1.3.0", "utime", "tai_seconds");
pub(super) static TIME_1_4: Rule = new_time!(
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
    // without a tag the schema takes a list for times and not for an array
    None => &TIME_TEXTS,
});
