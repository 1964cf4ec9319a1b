//! The arrays of a mount: their elements, their NumPy headers, their names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Mount, can_mount, mounted};
use crate::sample::{Block, Sample, array, array_with, flux, noise};

/// The elements of `data`, `size` bytes each, in this order.
fn gathered(data: &[u8], size: usize, order: impl Iterator<Item = usize>) -> Vec<u8> {
    order
        .flat_map(|i| data[i * size..(i + 1) * size].to_vec())
        .collect()
}

/// An `.npy` file in its parts: the header's text and the data.
fn npy(file: &[u8]) -> (String, &[u8]) {
    assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
    let len = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    assert_eq!(len % 64, 0, "the data does not begin on a multiple of 64");
    (
        String::from_utf8(file[10..len].to_vec()).unwrap(),
        &file[len..],
    )
}

#[test]
fn arrays_are_shown_in_c_order() {
    if !can_mount() {
        return;
    }
    let data = flux();
    let fields = "source: 0, datatype: float32, byteorder: little";
    let body = [
        "meta:\n  ".to_owned() + &array("whole", 0, "float32", "[4, 6]"),
        array_with(
            "fortran",
            &format!("{fields}, shape: [4, 6], strides: [4, 16]"),
        ),
        array_with(
            "backwards",
            &format!("{fields}, shape: [24], strides: [-4], offset: 92"),
        ),
        array_with(
            "window",
            &format!("{fields}, shape: [2, 3], strides: [24, 8], offset: 24"),
        ),
        "list:\n- ".to_owned() + &array("x", 0, "float32", "['*', 6]"),
    ];
    let (_dir, mount) = mounted(&Sample::new(&body.concat()).block(Block::raw(&data)));
    let column_major = (0..4).flat_map(|row| (0..6).map(move |column| column * 4 + row));
    let window = (0..2).flat_map(|row| (0..3).map(move |column| 6 + row * 6 + column * 2));
    for (name, wanted) in [
        ("meta/whole", data.clone()),
        ("fortran", gathered(&data, 4, column_major)),
        ("backwards", gathered(&data, 4, (0..24).rev())),
        ("window", gathered(&data, 4, window)),
        ("list/0/x", data.clone()),
    ] {
        assert_eq!(
            mount.read(&format!("arrays/{name}.bin")).unwrap(),
            wanted,
            "{name}"
        );
    }
    assert_eq!(
        mount.names("arrays"),
        [
            "backwards.bin",
            "backwards.npy",
            "fortran.bin",
            "fortran.npy",
            "list",
            "meta",
            "window.bin",
            "window.npy"
        ]
    );
}

#[test]
fn an_npy_file_is_a_header_of_numpy_and_the_data() {
    if !can_mount() {
        return;
    }
    let data = flux();
    let fields = "source: 0, datatype: float32, byteorder: little, shape: [4, 6]";
    let body = array_with("rows", fields)
        + &array_with("columns", &format!("{fields}, strides: [4, 16]"))
        + &array_with(
            "table",
            "source: 0, byteorder: big, shape: [12], datatype: [{name: x, datatype: int32, byteorder: little}, {name: y, datatype: uint32}]",
        );
    let (_dir, mount) = mounted(&Sample::new(&body).block(Block::raw(&data)));
    for (name, words) in [
        (
            "rows",
            [
                "'descr': '<f4'",
                "'fortran_order': False",
                "'shape': (4, 6)",
            ],
        ),
        (
            "columns",
            ["'descr': '<f4'", "'fortran_order': True", "'shape': (4, 6)"],
        ),
        (
            "table",
            [
                "'descr': [('x', '<i4'), ('y', '>u4')]",
                "'fortran_order': False",
                "'shape': (12,)",
            ],
        ),
    ] {
        let file = mount.read(&format!("arrays/{name}.npy")).unwrap();
        let (header, found) = npy(&file);
        for word in words {
            assert!(header.contains(word), "{name}: {word} is not in {header}");
        }
        assert_eq!(found, data, "{name}");
    }
}

#[test]
fn inline_data_has_the_type_that_the_standard_infers() {
    if !can_mount() {
        return;
    }
    let body = "whole: !core/ndarray-1.0.0 [[1, 2], [3, 4]]\nreal: !core/ndarray-1.0.0 [1, 2.5]\n";
    let (_dir, mount) = mounted(&Sample::new(body));
    let whole: Vec<u8> = [1_i64, 2, 3, 4]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let real: Vec<u8> = [1.0_f64, 2.5]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    assert_eq!(mount.read("arrays/whole.bin").unwrap(), whole);
    assert_eq!(mount.read("arrays/real.bin").unwrap(), real);
}

#[test]
fn aliases_and_references_are_symlinks_to_the_first_place() {
    if !can_mount() {
        return;
    }
    let body = "meta:\n  flux: &flux !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [5]}\n\
                again: *flux\nlist: [{alias: *flux}]\nref: {$ref: '#/meta/flux'}\n";
    let (_dir, mount) = mounted(&Sample::new(body).block(Block::raw(b"hello")));
    for (link, target) in [
        ("again", "meta/flux"),
        ("list/0/alias", "../../meta/flux"),
        ("ref", "meta/flux"),
    ] {
        for kind in ["bin", "npy"] {
            let path = mount.path(&format!("arrays/{link}.{kind}"));
            assert_eq!(
                fs::read_link(&path).unwrap(),
                Path::new(&format!("{target}.{kind}"))
            );
            assert!(fs::read(&path).unwrap().ends_with(b"hello"));
        }
    }
}

#[test]
fn a_link_follows_a_save() {
    if !can_mount() {
        return;
    }
    // the kernel kept the targets of links for as long as it knew their names
    let value = "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [5]}";
    let sample = Sample::new(&format!("a: &a {value}\nb: &b {value}\nc: *a\n"));
    let dir = TempDir::new().unwrap();
    let file = sample.block(Block::raw(b"hello")).write(dir.path());
    let mount = Mount::new(&file, &[]);
    let target = || fs::read_link(mount.path("arrays/c.bin")).unwrap();
    assert_eq!(target(), Path::new("a.bin"));
    let text = mount.text("tree.yaml").replace("*a", "*b");
    fs::write(mount.path("tree.yaml"), text).unwrap();
    assert_eq!(target(), Path::new("b.bin"));
}

#[test]
fn a_column_of_a_table_is_found_by_its_name() {
    if !can_mount() {
        return;
    }
    let column = |name: &str| {
        format!(
            "!core/column-1.0.0 {{name: {name}, data: !core/ndarray-1.0.0 {{source: 0, datatype: uint8, byteorder: little, shape: [5]}}}}"
        )
    };
    let columns = [column("ra"), column("de/c")].join(", ");
    let body = format!("stars: !core/table-1.0.0 {{columns: [{columns}]}}\n");
    let (_dir, mount) = mounted(&Sample::new(&body).block(Block::raw(b"hello")));
    for (name, number) in [("ra", 0), ("de%2Fc", 1)] {
        for kind in ["bin", "npy"] {
            let path = mount.path(&format!("arrays/stars/{name}.{kind}"));
            let target = format!("columns/{number}/data.{kind}");
            assert_eq!(fs::read_link(&path).unwrap(), Path::new(&target));
            assert!(fs::read(&path).unwrap().ends_with(b"hello"));
        }
    }
}

#[test]
fn odd_keys_become_safe_names() {
    if !can_mount() {
        return;
    }
    let value = "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [5]}";
    let body = format!(
        "a/b: {value}\n..: {value}\n'50%': {value}\n\"tab\\t\": {value}\n{}: {value}\n",
        "long".repeat(100)
    );
    let (_dir, mount) = mounted(&Sample::new(&body).block(Block::raw(b"hello")));
    let names: BTreeSet<_> = mount
        .names("arrays")
        .into_iter()
        .filter(|name| name.contains(".bin"))
        .collect();
    for name in ["a%2Fb.bin", "%2E%2E.bin", "50%25.bin", "tab%09.bin"] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    assert_eq!(names.len(), 5);
    assert!(names.iter().all(
        |name| name.len() <= 255 && mount.read(&format!("arrays/{name}")).unwrap() == b"hello"
    ));
}

#[test]
fn the_tables_of_info_list_every_block_and_array() {
    if !can_mount() {
        return;
    }
    let body = array("flux", 0, "float32", "[4, 6]") + &array("outside", 1, "int16", "[1000]");
    let sample = Sample::new(&body)
        .block(Block::raw(&flux()))
        .block(Block::zlib(b"hello").checksum([9; 16]));
    let (_dir, mount) = mounted(&sample);
    let blocks = mount.table("info/blocks.tsv");
    assert_eq!(blocks.len(), 3);
    assert!(
        blocks.iter().all(|line| line.len() == blocks[0].len()),
        "{blocks:?}"
    );
    assert!(
        blocks[1].contains(&"96".to_owned()) && blocks[1].contains(&"flux".to_owned()),
        "{blocks:?}"
    );
    assert!(
        blocks[2].contains(&"zlib".to_owned()) && blocks[2].contains(&"5".to_owned()),
        "{blocks:?}"
    );
    let arrays = mount.table("info/arrays.tsv");
    assert_eq!(arrays.len(), 3);
    assert!(
        arrays[1].contains(&"flux".to_owned()) && arrays[1].contains(&"float32".to_owned()),
        "{arrays:?}"
    );
    assert!(
        mount.text("info/arrays.tsv").contains("outside"),
        "an array that has no file is listed with its reason"
    );
    assert!(!mount.path("arrays/outside.bin").exists());
    assert!(mount.text("info/status").contains("sample.asdf"));
}

#[test]
fn the_byte_order_of_a_structure_is_that_of_its_fields() {
    // The writer of Python says `byteorder: big` of every structure, whatever its fields are.
    if !can_mount() {
        return;
    }
    let field = |name: &str, datatype: &str, order: &str| {
        format!("{{name: {name}, datatype: {datatype}, byteorder: {order}}}")
    };
    let stored = |fields: &[String]| {
        let fields = fields.join(", ");
        format!("source: 0, datatype: [{fields}], byteorder: big, shape: [1]")
    };
    let inline = |field: String| format!("datatype: [{field}], data: [[258]]");
    let (little, big) = (field("a", "int16", "little"), field("b", "float64", "big"));
    let byte = field("c", "uint8", "big");
    let tree = [
        array_with("little", &stored(&[little.clone(), byte.clone()])),
        array_with("mixed", &stored(&[little.clone(), big.clone()])),
        array_with("bytes", &stored(&[byte])),
        array_with("inline", &inline(field("d", "int16", "big"))),
        "plain: !core/ndarray-1.0.0 [1, 2]\n".to_owned(),
    ];
    let sample = Sample::new(&tree.concat()).block(Block::raw(&noise(16)));
    let (_dir, mount) = mounted(&sample);
    let table = mount.table("info/arrays.tsv");
    let found: Vec<_> = table[1..]
        .iter()
        .map(|row| [&*row[0], &*row[1], &*row[3]])
        .collect();
    assert_eq!(
        found,
        [
            ["little", "[a:int16,c:uint8]", "little"],
            ["mixed", "[a:<int16,b:>float64]", "mixed"],
            ["bytes", "[c:uint8]", "big"],
            ["inline", "[d:int16]", "big"],
            ["plain", "int64", "little"],
        ]
    );
    let order = mount.attribute("arrays/mixed.bin", "user.asdf.byteorder");
    assert_eq!(order.as_deref(), Some("mixed"));
    assert_eq!(mount.read("arrays/inline.bin").unwrap(), [1, 2]);
}

/// No line told of them.
#[test]
fn arrays_below_a_key_that_no_file_can_be_named_after_are_listed() {
    if !can_mount() {
        return;
    }
    let array = |path: &str| array(path, 0, "uint8", "[4]");
    let body = format!(
        "? [6, 5]\n: {}? {{a: b}}\n: {{{}}}\n{}",
        &array("")[2..],
        array("x").trim_end(),
        array("plain")
    );
    let (_dir, mount) = mounted(&Sample::new(&body).block(Block::raw(b"abcd")));
    let table = mount.table("info/arrays.tsv");
    let column = |name: &str| table[0].iter().position(|it| it == name).unwrap();
    let rows: Vec<_> = table[1..]
        .iter()
        .map(|row| (&*row[0], &*row[column("file")], &*row[column("problem")]))
        .collect();
    let why = |path, line| {
        format!(
            "line {line}, column 3: array {path}: it stands below a key that is a sequence or a mapping, of which no name of a file can be made"
        )
    };
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(rows[0], ("[6, 5]", "-", &*why("[6, 5]", 7)));
    assert_eq!((rows[1].0, rows[1].1), ("{a: b}/x", "-"));
    assert_eq!(rows[2], ("plain", "arrays/plain.npy", ""));
    assert_eq!(mount.names("arrays"), ["plain.bin", "plain.npy"]);
    let blocks = mount.table("info/blocks.tsv");
    let users = blocks[0].iter().position(|it| it == "arrays").unwrap();
    assert_eq!(blocks[1][users], "[6%2C 5],{a: b}/x,plain");
    assert!(
        mount
            .text("info/status")
            .contains("problem   line 7, column 3: array [6, 5]")
    );
}

#[test]
fn a_block_that_no_array_uses_is_told_of() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 1, "uint8", "[4]"));
    let sample = [b"free", b"abcd", b"also"]
        .iter()
        .fold(sample, |sample, data| sample.block(Block::raw(*data)));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &[]);
    let line = "\nunused    blocks 0, 2: unused, no array names them; --compact OUT FILE writes a file without them\n";
    assert!(mount.text("info/status").contains(line));
    let table = mount.table("info/blocks.tsv");
    let problems: Vec<_> = table[1..].iter().map(|row| &*row[row.len() - 1]).collect();
    let unused = "unused: no array names it";
    assert_eq!(problems, [unused, "", unused]);
    let text = mount.text("tree.yaml");
    fs::write(
        mount.path("tree.yaml"),
        text.replace("source: 1", "source: -3"),
    )
    .unwrap();
    assert!(
        mount
            .text("info/status")
            .contains("\nunused    blocks 1 to 2: ")
    );
}
