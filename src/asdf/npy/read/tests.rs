//! What numpy writes, what it does not, and nonsense.

use super::*;
use proptest::prelude::*;

/// A file with that dictionary.
fn file(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).unwrap().to_le_bytes();
    [MAGIC, &[1, 0], &len, text.as_bytes()].concat()
}

fn read(text: &str) -> Result<Header> {
    Header::read(&file(text)).map(Option::unwrap)
}

fn reason(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn what_numpy_writes_is_read() {
    let text = "{'descr': [('a', '<f4'), ('it\\'s', '>i2', (2, 3)), ('c', [('d', '|S3'), (\"e\\u03c9\", '<U2')])], \
        'fortran_order': True, 'shape': (4, 5), }   \n";
    let found = read(text).unwrap();
    let field = |name: &str, datatype, shape: &[u64]| Field {
        name: Some(name.into()),
        datatype,
        shape: shape.to_vec(),
    };
    let fields = vec![
        field(
            "a",
            Datatype::Scalar(Scalar::Float32, ByteOrder::Little),
            &[],
        ),
        field(
            "it's",
            Datatype::Scalar(Scalar::Int16, ByteOrder::Big),
            &[2, 3],
        ),
        field(
            "c",
            Datatype::Struct(vec![
                field("d", Datatype::Ascii(3), &[]),
                field("eω", Datatype::Ucs4(2, ByteOrder::Little), &[]),
            ]),
            &[],
        ),
    ];
    assert_eq!(found.datatype, Datatype::Struct(fields));
    assert!(found.fortran_order);
    assert_eq!((&*found.shape, found.len), (&[4, 5][..], file(text).len()));
    assert_eq!(found.data_len(), 20 * (4 + 12 + 3 + 8));
    let size = 27;
    assert_eq!(found.c_strides().unwrap(), [5 * size, size]);
    let zero = read("{'descr': '|b1', 'fortran_order': False, 'shape': ()}").unwrap();
    assert_eq!((zero.data_len(), zero.shape.len()), (1, 0));
}

#[test]
fn anything_else_is_refused_with_the_reason() {
    let with = |descr: &str, shape: &str| {
        reason(&format!(
            "{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"
        ))
    };
    for (descr, shape, why) in [
        ("'|O'", "(1,)", "ASDF has no datatype for NumPy's \"|O\""),
        ("'<M8[ns]'", "(1,)", "ASDF has no datatype"),
        ("'<f16'", "(1,)", "ASDF has no datatype"),
        ("'|i4'", "(1,)", "ASDF has no datatype"),
        ("'<f+4'", "(1,)", "ASDF has no datatype"),
        ("'f4'", "(1,)", "ASDF has no datatype"),
        ("''", "(1,)", "ASDF has no datatype"),
        ("[]", "(1,)", "neither a string nor a list of fields"),
        ("[('a', '<f4'), ('', '|V4')]", "(1,)", "padding"),
        ("[(('t', 'a'), '<f4')]", "(1,)", "title"),
        ("[('a', '<f4', 3)]", "(1,)", "a field that is not a tuple"),
        ("[('a', '<f4'), ('a', '<f4')]", "(1,)", "one name"),
        ("'<f4'", "(1)", "a value in parentheses"),
        ("'<f4'", "[1]", "not a tuple of numbers"),
        ("'<f4'", "(-1,)", "no literal of Python"),
        ("'<f4'", "(99999999999999999999,)", "beyond 2^64"),
        ("'<f4'", "(9223372036854775807, 2)", "2^63 bytes or more"),
        ("'<f4'", "(0, 9223372036854775807)", "2^63 bytes or more"),
        ("__import__('os')", "(1,)", "no literal of Python"),
        ("'<f4", "(1,)", "missing"),
    ] {
        let found = with(descr, shape);
        assert!(found.contains(why), "{descr} {shape}: {found}");
    }
    assert!(reason("{'descr': '<f4', 'shape': (1,)}").contains("no fortran_order"));
    assert!(reason("{'descr': '<f4', 'descr': '<f4'}").contains("descr twice"));
    assert!(reason("{'x': 1}").contains("a key \"x\""));
    assert!(reason("{} {}").contains("more behind"));
    let ones = "1, ".repeat(MAX_NDIM + 1);
    assert!(with("'<f4'", &format!("({ones})")).contains("of 32 allowed"));
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(with(&deep, "(1,)").contains("nested too deep"));
    for (bytes, why) in [
        (&b"hello"[..], "does not begin with"),
        (b"\x93NUMPY\x04\0", "NPY version 4.0"),
        (b"\x93NUMPY\x02\0\xff\xff\xff\xff", "of 1048576 allowed"),
        (b"\x93NUMPY\x03\0\x01\0\0\0\xff", "not UTF-8"),
    ] {
        let found = Header::read(bytes).unwrap_err().to_string();
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn a_header_may_come_in_pieces() {
    let whole = header(&Datatype::Ascii(3), &[7], false).unwrap();
    for len in 0..whole.len() {
        assert_eq!(Header::read(&whole[..len]).unwrap(), None, "{len}");
    }
    assert!(Header::read(&whole).unwrap().is_some());
}

const NAMES: [&str; 14] = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "bool8",
];

fn any_datatype() -> impl Strategy<Value = Datatype> {
    let order = prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)];
    let scalar = (prop::sample::select(&NAMES[..]), order.clone()).prop_map(|(name, order)| {
        let scalar = Scalar::from_name(name).unwrap();
        let order = if scalar.size() == 1 {
            ByteOrder::Little
        } else {
            order
        };
        Datatype::Scalar(scalar, order)
    });
    let leaf = prop_oneof![
        scalar,
        (0..9_u64).prop_map(Datatype::Ascii),
        (0..9_u64, order).prop_map(|(len, order)| Datatype::Ucs4(len, order)),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let shape = prop::collection::vec(0..4_u64, 0..3);
        let fields =
            prop::collection::btree_map("\\PC{1,4}|[\\x00-\\x7f]{1,3}", (inner, shape), 1..4);
        fields.prop_map(|fields| {
            let field = |(name, (datatype, shape))| Field {
                name: Some(name),
                datatype,
                shape,
            };
            Datatype::Struct(fields.into_iter().map(field).collect())
        })
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(datatype in any_datatype(), shape in prop::collection::vec(0..100_u64, 0..4), fortran: bool) {
        let bytes = header(&datatype, &shape, fortran).unwrap();
        let found = Header::read(&bytes).unwrap().unwrap();
        prop_assert!(found.is_of(&datatype, &shape));
        prop_assert_eq!(found, Header { datatype, fortran_order: fortran, shape, len: bytes.len() });
    }

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\](){}',:<>|a-z0-9\\\\ TrueFals]{0,80}", bytes: Vec<u8>) {
        let _ = Header::read(&file(&text));
        let _ = Header::read(&[MAGIC, &bytes].concat());
    }
}
