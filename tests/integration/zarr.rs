//! `-o zarr`: the arrays as a group of Zarr.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{Mount, Outcome, asdf_mount, can_mount, run};
use crate::corpus::python;
use crate::sample::{Block, Index, Sample, array, array_with, flux, noise, ramp};

/// Most bytes of a chunk.
const MOST: usize = 4 << 20;

/// The metadata of a node.
fn metadata(mount: &Mount, node: &str) -> Value {
    serde_json::from_str(&mount.text(&format!("{node}/zarr.json"))).unwrap()
}

/// The oracle, with these arguments, if there is a Python for it.
pub(crate) fn oracle<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Option<Outcome> {
    let python = python()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zarr_oracle.py");
    Some(run(Command::new(python).arg(script).args(arguments)))
}

#[test]
fn zarr_python_and_xarray_read_what_numpy_reads() {
    let Some(python) = python().filter(|_| can_mount()) else {
        return;
    };
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("kinds.asdf");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fits_oracle.py");
    let made = run(Command::new(python).arg(script).arg("make").arg(&file));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mount = Mount::new(&file, &["-r", "-o", "zarr"]);
    let said = oracle(&["compare".as_ref(), &*mount.dir]).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    let left_out = [
        "left out: all/record: array all/record: Zarr has no records with arrays in them",
        "left out: ones: array ones: Zarr has no records with arrays in them",
    ];
    let lines: Vec<_> = said.stdout.lines().collect();
    assert_eq!(lines[..2], left_out, "{said:?}");
    assert!(
        lines[2].ends_with(" equal, 0 different, 2 left out"),
        "{said:?}"
    );
}

#[test]
fn xarray_opens_all_files_of_a_mount_as_one() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("files");
    fs::create_dir(&folder).unwrap();
    for n in 0..3_u8 {
        let inline = format!("datatype: int32, data: [{n}0, {n}1, {n}2, {n}3]");
        let flux_of = "source: 0, datatype: float32, byteorder: little, shape: [4, 6]";
        let body = format!(
            "run:\n  dimensions: [time, x]\n  unit: Jy\n  {}  {}",
            array_with("time", &inline),
            array_with("flux", flux_of)
        );
        let sample = Sample::new(&body).block(Block::lz4(&flux()));
        fs::write(folder.join(format!("{n}.asdf")), sample.bytes()).unwrap();
    }
    let mount = Mount::new(&folder, &["-r", "-o", "zarr"]);
    if let Some(said) = oracle(&["many".as_ref(), &*mount.dir]) {
        assert_eq!(
            (said.code, &*said.stdout),
            (0, "1 equal, 0 different, 0 left out\n"),
            "{said:?}"
        );
    }
}

#[test]
fn a_group_lists_its_nodes_and_a_node_its_chunks() {
    if !can_mount() {
        return;
    }
    let masked = "m: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [4], mask: \
        !core/ndarray-1.0.0 {source: 0, datatype: bool8, byteorder: little, shape: [4]}}\n";
    let body = array("one", 0, "uint8", "[]")
        + &array("__a", 0, "uint8", "[3, 2097153]")
        + &array("none", 0, "int16", "[0, 5]")
        + masked
        + "zarr.json: &z\n  "
        + &array("x", 0, "uint8", "[2]")
        + "again: *z\ntext: hello\n";
    let sample = Sample::new(&body).block(Block::lz4(&ramp(3 * 2_097_153)));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-o", "zarr"]);
    for (directory, want) in [
        (
            "zarr",
            &[
                "%5F_a",
                "m",
                "m%",
                "none",
                "one",
                "zarr%2Ejson",
                "zarr.json",
            ][..],
        ),
        ("zarr/one", &["c", "zarr.json"]),
        ("zarr/%5F_a/c", &["0", "1", "2"]),
        ("zarr/%5F_a/c/2", &["0"]),
        ("zarr/none/c", &[]),
        ("zarr/m/c", &["0"]),
        ("zarr/m%", &["mask", "zarr.json"]),
        ("zarr/zarr%2Ejson", &["x", "zarr.json"]),
    ] {
        assert_eq!(mount.names(directory), want, "{directory}");
    }
    assert_eq!(mount.read("zarr/one/c").unwrap(), [ramp(1)[0]]);
    let row = mount.read("zarr/%5F_a/c/1/0").unwrap();
    assert!(row == ramp(3 * 2_097_153)[2_097_153..2 * 2_097_153]);
    for absent in [
        "zarr/one/c/0",
        "zarr/%5F_a/c/3",
        "zarr/%5F_a/c/01",
        "zarr/__a",
        "zarr/again",
        "zarr/m/mask",
    ] {
        assert!(!mount.path(absent).exists(), "{absent}");
    }
    let root = metadata(&mount, "zarr");
    assert_eq!(root["attributes"], json!({"text": "hello"}));
    let below = root["consolidated_metadata"]["metadata"]
        .as_object()
        .unwrap();
    let nodes: Vec<_> = below.keys().collect();
    assert_eq!(
        nodes,
        [
            "%5F_a",
            "m",
            "m%",
            "m%/mask",
            "none",
            "one",
            "zarr%2Ejson",
            "zarr%2Ejson/x"
        ]
    );
    assert_eq!(below["%5F_a"], metadata(&mount, "zarr/%5F_a"));
    assert_eq!(below["%5F_a"]["attributes"], json!({"text": "hello"}));
    let listed = mount.table("info/zarr.tsv");
    assert_eq!(listed[2], ["__a", "zarr/%5F_a", "[1, 2097153]", "3", ""]);
}

#[test]
fn a_million_chunks_take_no_memory() {
    const CHUNKS: usize = 1_000_000;
    if !can_mount() {
        return;
    }
    let fields = format!(
        "source: 0, datatype: uint8, byteorder: little, shape: [{CHUNKS}, {MOST}], strides: [0, 1]"
    );
    let sample = Sample::new(&array_with("x", &fields)).block(Block::raw(&noise(MOST)));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-r", "-o", "zarr"]);
    let metadata = mount.path("zarr/x/c/999999/0").metadata().unwrap();
    assert_eq!(metadata.len(), MOST as u64);
    assert!(!mount.path("zarr/x/c/1000000").exists());
    let before = mount.peak();
    let mut list = Command::new("sh");
    let said = run(list
        .args(["-c", "ls -U zarr/x/c | head -20000 | tail -1"])
        .current_dir(&mount.dir));
    assert_eq!(said.stdout, "19999\n");
    let file = File::open(mount.path("zarr/x/c/500000/0")).unwrap();
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 100).unwrap();
    assert_eq!(bytes, noise(108)[100..]);
    let more = mount.peak() - before;
    assert!(more < 20 << 10, "{more} KiB");
}

#[test]
fn a_node_follows_edits_of_its_array_and_of_the_tree() {
    if !can_mount() {
        return;
    }
    let body = "meta: {flux: !unit/quantity-1.1.0 {unit: Jy, value: !core/ndarray-1.0.0 \
        {source: 0, datatype: float32, byteorder: little, shape: [4, 6]}}}\n";
    let sample = Sample::new(body).block(Block::lz4(&flux()));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-o", "zarr"]);
    let node = "zarr/meta/flux/value";
    assert_eq!(metadata(&mount, node)["attributes"], json!({"unit": "Jy"}));
    assert_eq!(
        metadata(&mount, node)["dimension_names"],
        json!(["d2_4", "d1_6"])
    );
    let chunk = format!("{node}/c/0/0");
    assert_eq!(mount.read(&chunk).unwrap(), flux());
    let written = File::options()
        .write(true)
        .open(mount.path("arrays/meta/flux/value.bin"))
        .unwrap();
    written.write_all_at(&1.5_f32.to_le_bytes(), 0).unwrap();
    drop(written);
    assert_eq!(mount.read(&chunk).unwrap()[..4], 1.5_f32.to_le_bytes());
    let listed = fs::read_dir(mount.path(node)).unwrap();
    let tree = mount.text("tree.yaml");
    fs::write(mount.path("tree.yaml"), tree.replace("[4, 6]", "[24]")).unwrap();
    assert_eq!(metadata(&mount, node)["shape"], json!([24]));
    assert_eq!(mount.names(&format!("{node}/c")), ["0"]);
    assert_eq!(mount.read(&format!("{node}/c/0")).unwrap().len(), 96);
    // what was listed before says so, or lists what is there: it mixes no two trees
    let _ = listed.map_while(Result::ok).count();
    fs::write(mount.path("tree.yaml"), tree.replace("flux:", "flow:")).unwrap();
    assert!(mount.read(&format!("{node}/zarr.json")).is_err());
    assert_eq!(mount.names("zarr/meta"), ["flow", "zarr.json"]);
}

#[test]
fn a_group_is_not_written_to() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "int16", "[48]")).block(Block::raw(&flux()));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-o", "zarr"]);
    for (refused, how) in [
        (fs::write(mount.path("zarr/x/c/0"), b"x"), "a chunk"),
        (fs::write(mount.path("zarr/x/zarr.json"), b"x"), "metadata"),
        (fs::write(mount.path("zarr/y"), b"x"), "a new file"),
        (fs::create_dir(mount.path("zarr/y")), "a new array"),
        (fs::remove_file(mount.path("zarr/x/c/0")), "no chunk"),
        (fs::remove_dir(mount.path("zarr/x/c")), "no directory"),
        (
            fs::rename(mount.path("zarr/x"), mount.path("zarr/y")),
            "another name",
        ),
    ] {
        assert!(refused.is_err(), "{how}");
    }
    assert_eq!(mount.read("zarr/x/c/0").unwrap(), flux());
}

/// What `--references` prints, as JSON, and what it says.
fn references(file: &Path) -> (Value, Outcome) {
    let said = asdf_mount(["--references".as_ref(), file.as_os_str()]);
    (serde_json::from_str(&said.stdout).unwrap(), said)
}

#[test]
fn xarray_reads_references_without_a_mount() {
    if python().is_none() || !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let numbers: Vec<u8> = (0..3_u32 << 20)
        .flat_map(|n| (n / 1000).to_le_bytes())
        .collect();
    let array = |name: &str, source, shape: &str| array(name, source, "int32", shape);
    let body = array("raw", 0, "[3, 1048576]")
        + &array_with(
            "fortran",
            "source: 0, datatype: int32, byteorder: little, shape: [1048576, 3], strides: [4, 4194304]",
        )
        + &array("lz4", 1, "[3072, 1024]")
        + &array("odd", 1, "[3145728]")
        + "deep:\n  "
        + &array("zlib", 2, "[1024, 3072]")
        + "  "
        + &array("bzp2", 3, "[3145728]")
        + &array("part", 2, "[7]")
        + "last:\n  "
        + &array("tail", 4, "[3, 393216]")
        + &array("gzip", 5, "[3145728]");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&numbers).unwrap();
    let gzip = gzip.finish().unwrap();
    let sample = Sample::new(&body)
        .block(Block::raw(&numbers))
        .block(Block::lz4(&numbers))
        .block(Block::zlib(&numbers))
        .block(Block::bzp2(&numbers))
        .block(Block::raw(&numbers[..9 << 19]))
        .block(Block::coded(*b"zlib", gzip, numbers.len()))
        .index(Index::Absent);
    let file = sample.write(dir.path());
    let (found, said) = references(&file);
    assert_eq!(said.code, 0);
    let want = format!(
        "asdf-mount: {}: left out: part: not all of a compressed block, in C order\n",
        file.display()
    );
    assert_eq!(said.stderr, want);
    // the file ends before the last chunk would
    assert!(found["refs"]["last/tail/0.0"].is_array());
    assert!(found["refs"]["last/tail/1.0"].is_string());
    let json = dir.path().join("references.json");
    fs::write(&json, said.stdout).unwrap();
    let mount = Mount::new(&file, &["-r", "-o", "zarr"]);
    let said = oracle(&["references".as_ref(), mount.dir.as_path(), &json]).unwrap();
    let want = "left out: part\n8 equal, 0 different, 1 left out\n";
    assert_eq!((said.code, &*said.stdout), (0, want), "{said:?}");
}

#[test]
fn references_to_a_directory_are_a_group_for_each_file() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    for name in ["a.asdf", "sub/b.asdf"] {
        let sample = Sample::new(&array("x", 0, "float32", "[4, 6]")).block(Block::raw(&flux()));
        fs::write(dir.path().join(name), sample.bytes()).unwrap();
    }
    let unread = dir.path().join("c.asdf");
    fs::write(&unread, "no ASDF").unwrap();
    // it printed references to nothing
    let said = asdf_mount([Path::new("--references"), &unread]);
    assert_eq!((said.code, &*said.stdout), (20, ""), "{said:?}");
    let (found, said) = references(dir.path());
    assert_eq!(said.code, 20, "{said:?}");
    assert!(said.stderr.contains("c.asdf: "), "{said:?}");
    assert_eq!(found["version"], 1);
    let keys: Vec<_> = found["refs"].as_object().unwrap().keys().collect();
    let of = |group: &str| ["", "x/", "x/0.0"].map(|key| format!("{group}/{key}"));
    for key in [of("a.asdf"), of("sub/b.asdf")].iter().flatten() {
        let key = if key.ends_with('/') {
            format!("{key}.zattrs")
        } else {
            key.clone()
        };
        assert!(keys.contains(&&key), "{key}: {keys:?}");
    }
    let url = format!(
        "file://{}",
        fs::canonicalize(dir.path())
            .unwrap()
            .join("sub/b.asdf")
            .display()
    );
    assert_eq!(found["refs"]["sub/b.asdf/x/0.0"][0], url);
}
