use super::*;
use crate::asdf::OpenOptions;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::source::read_all;
use proptest::prelude::*;
use std::io::Write;

pub(super) fn snapshot(body: &str, bytes: &[u8]) -> Snapshot {
    let text = format!("#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\n{body}...\n");
    let sample = Sample::new().text(text.as_bytes()).block(bytes);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&sample.bytes()).unwrap();
    Snapshot::open(Arc::new(file), Cache::new(1 << 20), OpenOptions::default()).unwrap()
}

pub(super) fn array(datatype: &str, more: &str) -> String {
    format!("!core/ndarray-1.1.0 {{source: 0, datatype: {datatype}, byteorder: big, {more}}}")
}

fn metadata(snapshot: &Snapshot) -> Value {
    snapshot.zarr_metadata(0).unwrap()
}

#[test]
fn types_are_those_of_zarr_python() {
    let record = "[{name: a, datatype: int16, byteorder: little}, [ascii, 3], {name: a, datatype: complex64}]";
    let fields = json!([
        ["a", "int16"],
        ["f1", {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}],
        ["a_2", "complex64"],
    ]);
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    let plain = json!({"name": "bytes"});
    for (datatype, data_type, fill, codec) in [
        ("int8", json!("int8"), json!(0), &plain),
        ("uint64", json!("uint64"), json!(0), &big),
        ("float16", json!("float16"), json!(0.0), &big),
        ("bool8", json!("bool"), json!(false), &plain),
        ("complex128", json!("complex128"), json!([0.0, 0.0]), &big),
        (
            "[ucs4, 2]",
            json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}),
            json!(""),
            &big,
        ),
        (
            record,
            json!({"name": "structured", "configuration": {"fields": fields}}),
            json!("AAAAAAAAAAAAAAAAAA=="),
            &plain,
        ),
    ] {
        let body = format!("x: {}\n", array(datatype, "shape: [2]"));
        let found = metadata(&snapshot(&body, &[0; 32]));
        assert_eq!(found["data_type"], data_type, "{datatype}");
        assert_eq!(found["fill_value"], fill, "{datatype}");
        assert_eq!(found["codecs"], json!([codec]), "{datatype}");
    }
}

#[test]
fn what_zarr_has_no_type_for_is_refused() {
    for (datatype, shape, why) in [
        ("[ascii, 0]", "[2]", "no strings of no characters"),
        (
            "[{name: a, datatype: int8, shape: [2]}]",
            "[2]",
            "records with arrays",
        ),
        (
            "[ascii, 4194305]",
            "[0]",
            "elements of 4194305 bytes, chunks have 4194304 at most",
        ),
    ] {
        let body = format!("x: {}\n", array(datatype, &format!("shape: {shape}")));
        let refused = snapshot(&body, &[0; 8]).zarr_chunks(0).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.starts_with("array x: ") && refused.contains(why),
            "{refused}"
        );
    }
}

#[test]
fn scalars_beside_an_array_are_its_attributes_and_those_of_its_group() {
    let body = format!(
        "base: &b {{gain: 1.5, name: base}}\n\
        m: {{x: {}, <<: *b, name: own, bad: .nan, n: 18446744073709551616, no: ~, list: [1], deep: {{a: 1}}, 7: yes, \
        units: s, scale_factor: 2.0}}\n",
        array("int8", "shape: [2], mask: -1")
    );
    let snapshot = snapshot(&body, &[0; 8]);
    let mut scalars = json!({
        "units": "s", "scale_factor": 2.0,
        "gain": 1.5, "name": "own", "bad": ".nan", "n": "18446744073709551616", "no": null, "7": true,
    });
    let place = snapshot
        .paths()
        .unwrap()
        .parent(snapshot.arrays()[0].home());
    assert_eq!(Value::from(snapshot.zarr_attributes(place)), scalars);
    let mut attributes = metadata(&snapshot)["attributes"].take();
    assert_eq!(
        attributes.as_object_mut().unwrap().remove("mask"),
        Some(json!(-1))
    );
    // xarray would scale the elements by these, and take them for times
    for key in ["units", "scale_factor"] {
        scalars.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(attributes, scalars);
}

/// Each array searched the whole mapping around it, so that the metadata of n arrays took n^2 steps.
#[test]
fn a_mapping_of_many_keys_is_not_searched_for_each_of_its_arrays() {
    let x = array("int8", "shape: [2, 3]");
    for (keys, want) in [(998, ["y", "x"]), (999, ["d2_2", "d1_3"])] {
        let others: Vec<_> = (0..keys).map(|n| format!("k{n}: {n}\n")).collect();
        let body = format!("x: {x}\ndims: [y, x]\n{}", others.concat());
        let found = metadata(&snapshot(&body, &[0; 8]));
        assert_eq!(found["dimension_names"], json!(want), "{keys}");
        assert_eq!(found["attributes"], json!({}));
    }
}

#[test]
fn axes_are_called_as_the_tree_says() {
    for (beside, want) in [
        ("dimensions: [y, x]", ["y", "x"]),
        ("dims: [time, !a b]", ["time", "b"]),
        ("dimensions: [y]", ["d2_2", "d1_3"]),
        ("dimensions: [x, x]", ["d2_2", "d1_3"]),
        ("dimensions: [x, [y]]", ["d2_2", "d1_3"]),
        ("dimensions: [1, 2]", ["d2_2", "d1_3"]),
        ("dimensions: 5", ["d2_2", "d1_3"]),
    ] {
        let x = array("int8", "shape: [2, 3]");
        let found = metadata(&snapshot(&format!("x: {x}\n{beside}\n"), &[0; 8]));
        assert_eq!(found["dimension_names"], json!(want), "{beside}");
    }
    for (name, want) in [("time", "time"), ("other", "d1_3")] {
        let x = array("int8", "shape: [3]");
        let found = metadata(&snapshot(
            &format!("{name}: {x}\ndims: [time, y]\n"),
            &[0; 8],
        ));
        assert_eq!(found["dimension_names"], json!([want]), "{name}");
    }
}

/// xarray could not open a group with an axis of two lengths.
#[test]
fn an_axis_of_a_group_has_one_length() {
    let shapes = [
        ("a", "[2, 3]"),
        ("b", "[3, 2]"),
        ("c", "[2, 3]"),
        ("x", "[4]"),
        ("y", "[2]"),
    ];
    let arrays = shapes.map(|(name, shape)| {
        let array = array("int8", &format!("shape: {shape}"));
        format!("{name}: {array}\n")
    });
    let snapshot = snapshot(&format!("dims: [y, x]\n{}", arrays.concat()), &[0; 8]);
    let names = (0..5).map(|i| snapshot.zarr_metadata(i).unwrap()["dimension_names"].take());
    let want = json!([["y", "x"], ["d2_3", "d1_2"], ["y", "x"], ["d1_4"], ["y"]]);
    assert_eq!(names.collect::<Value>(), want);
}

#[test]
fn the_last_chunk_of_an_axis_is_padded() {
    let body = format!("x: {}\n", array("uint8", "shape: [3, 3145728]"));
    let bytes: Vec<u8> = (0..3 * 3_145_728_u32)
        .map(|n| (n % 251) as u8 + 1)
        .collect();
    let snapshot = snapshot(&body, &bytes);
    let chunks = snapshot.zarr_chunks(0).unwrap();
    assert_eq!(chunks.shape(), [1, 3_145_728]);
    let chunk = |n| snapshot.zarr_chunk(0, n, snapshot.array_bin(0).unwrap());
    let whole: Vec<u8> = (0..3)
        .flat_map(|n| read_all(&*chunk(n).unwrap(), 1 << 23).unwrap())
        .collect();
    assert!(whole == bytes);
    let body = format!("x: {}\n", array("uint8", "shape: [4194305]"));
    let snapshot = self::snapshot(&body, &bytes);
    let chunk = |n| snapshot.zarr_chunk(0, n, snapshot.array_bin(0).unwrap());
    let last = read_all(&*chunk(1).unwrap(), 1 << 23).unwrap();
    assert_eq!(last.len(), 2_097_153);
    assert!(last[..2_097_152] == bytes[2_097_153..4_194_305] && last[2_097_152] == 0);
    assert!(chunk(2).is_err());
}

#[test]
fn numbers_in_records_are_little_endian() {
    let record = "[{name: a, datatype: int16}, {name: b, datatype: int16, byteorder: little}, [ucs4, 1], {name: c, datatype: complex64}]";
    let body = format!("x: {}\n", array(record, "shape: [2]"));
    let bytes: Vec<u8> = (0..32).collect();
    let snapshot = snapshot(&body, &bytes);
    let elements = snapshot.array_bin(0).unwrap();
    let chunk = snapshot.zarr_chunk(0, 0, elements).unwrap();
    let chunk = read_all(&*chunk, 100).unwrap();
    let want = [1, 0, 2, 3, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];
    assert_eq!(chunk[..16], want);
    assert_eq!(chunk[16..20], [17, 16, 18, 19]);
}

#[test]
fn names_that_zarr_forbids_are_encoded() {
    for (name, is_beside, want) in [
        ("x", false, "x"),
        ("zarr.json", false, "zarr%2Ejson"),
        ("...", false, "%2E.."),
        ("__x__", false, "%5F_x__"),
        ("%2E", false, "%2E"),
        ("__a\\b\\", true, "%5F_a%5Cb%5C%"),
        ("x", true, "x%"),
        ("%", true, "%%"),
    ] {
        assert_eq!(node_name(name, is_beside), want);
        let mut found = names_in_arrays(want);
        assert!(
            found.any(|found| found == (name.to_owned(), is_beside)),
            "{want}"
        );
    }
    for forbidden in ["__x", "zarr.json", "...", "a\\b"] {
        assert_eq!(names_in_arrays(forbidden).next(), None);
    }
}

proptest! {
    #[test]
    fn a_node_has_a_name_of_its_own(key in r"[_.%/\\a]{0,5}|zarr.json|__.*|a%5Ca", other in r"[_.%/\\a]{0,5}|a%5Ca") {
        let name = crate::asdf::names::encode(&key);
        for is_beside in [false, true] {
            let shown = node_name(&name, is_beside);
            prop_assert!(!shown.starts_with("__") && shown.bytes().any(|byte| byte != b'.'));
            prop_assert!(shown != METADATA && !shown.contains(['/', '\\']));
            let mut found = names_in_arrays(&shown);
            prop_assert!(found.any(|found| found == (name.clone().into_owned(), is_beside)));
            if other != key {
                let other = crate::asdf::names::encode(&other);
                prop_assert_ne!(&node_name(&other, is_beside), &shown);
            }
        }
    }
}
