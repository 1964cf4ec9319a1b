//! Arrays in chunks: those of asdf-zarr's internal store, and `core/chunked-ndarray`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use md5::{Digest, Md5};
use tempfile::TempDir;

use crate::common::{Mount, Outcome, asdf_mount, assert_refused, can_mount, mounted, run};
use crate::sample::{Block, Sample, array};
use crate::views::bytes_read;
use crate::zarr::oracle;

/// The file of asdf-zarr that `tests/data/chunked.py` wrote, copied into a folder.
fn of_asdf_zarr(folder: &Path) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chunked.asdf");
    let file = folder.join("chunked.asdf");
    fs::copy(data, &file).unwrap();
    file
}

/// An array of asdf-zarr of six bytes, in two chunks, whose numbers are in block `map`.
fn zarr(map: usize, compressor: &str) -> String {
    format!(
        "z: !<asdf://asdf-format.org/zarr/tags/zarr-1.0.0> {{.zarray: {{zarr_format: 2, shape: [6], chunks: [3], dtype: '|u1', \
         order: C, fill_value: 46, filters: null, compressor: {compressor}}}, chunk_block_map: {map}}}\n"
    )
}

fn numbers(numbers: [i32; 2]) -> Block {
    Block::raw(&numbers.map(i32::to_le_bytes).concat())
}

fn asdf<S: AsRef<OsStr>>(option: &str, words: &[S]) -> Outcome {
    asdf_mount(
        [OsStr::new(option)]
            .into_iter()
            .chain(words.iter().map(AsRef::as_ref)),
    )
}

#[test]
fn arrays_of_asdf_zarr_are_what_asdf_zarr_reads() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&of_asdf_zarr(dir.path()), &["-r", "-o", "fits,zarr"]);
    let listed = include_str!("../data/chunked.tsv");
    let wrong = listed.lines().filter(|line| {
        let (path, want) = line.split_once('\t').unwrap();
        let npy = mount.read(&format!("arrays/{path}.npy")).unwrap();
        let found: String = Md5::digest(npy)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        found != want
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [] as [&str; 0]);
    let arrays = mount.table("info/arrays.tsv");
    assert_eq!(arrays.len(), 1 + listed.lines().count() + 3);
    let plain = arrays.iter().find(|array| array[0] == "plain").unwrap();
    assert_eq!(plain[6..], ["chunks", "308", "", "arrays/plain.npy", "-"]);
    let left_out = arrays[1..].iter().filter(|array| !array[8].is_empty());
    let left_out: Vec<_> = left_out
        .map(|array| array[8].rsplit_once(": ").unwrap().1)
        .collect();
    assert_eq!(
        left_out,
        [
            "chunks compressed with \"gzip\" of numcodecs",
            "ASDF has no datatype for NumPy's \"<M8[D]\"",
            "chunks behind filters of numcodecs",
        ]
    );
    // each array is named beside the block with its numbers, and no block is said to be unused
    let blocks = mount.table("info/blocks.tsv");
    let named = blocks[1..].iter().filter(|block| !block[10].is_empty());
    assert_eq!(named.count(), arrays.len() - 1);
    assert!(blocks[1..].iter().all(|block| block[12].is_empty()));
    // a view is made of it as of any other array
    let fits = mount.read("fits/plain.fits").unwrap();
    let ramp: Vec<u8> = (0..77_i32).flat_map(i32::to_be_bytes).collect();
    assert!(fits.len().is_multiple_of(2880) && fits[fits.len() - 2880..].starts_with(&ramp));
    if let Some(said) = oracle(&["compare".as_ref(), &*mount.dir]) {
        assert_eq!(said.code, 0, "{said:?}");
    }
}

/// Each look at `info/` read the numbers of the blocks of all chunks.
#[test]
fn nothing_in_info_takes_reading_which_blocks_have_chunks() {
    const COUNT: usize = 1 << 20;
    if !can_mount() {
        return;
    }
    let body = zarr(0, "null").replacen("[6]", &format!("[{COUNT}]"), 1);
    let sample = Sample::new(&body.replacen("[3]", "[1]", 1));
    let sample = sample.block(Block::raw(&vec![0xFF; 4 * COUNT]));
    let dir = TempDir::new().unwrap();
    let file = sample.block(Block::raw(b"end")).write(dir.path());
    let mount = Mount::new(&file, &["-o", "fits,previews,zarr"]);
    let before = bytes_read(&mount);
    let listed = run(Command::new("ls").arg("-lR").arg(&*mount.dir));
    assert_eq!(listed.code, 0, "{listed:?}");
    let mut texts = 0;
    for text in fs::read_dir(mount.path("info")).unwrap() {
        let text = text.unwrap();
        // this one is of the elements
        if text.file_name() != "stats.tsv" {
            assert!(!fs::read(text.path()).unwrap().is_empty());
            texts += 1;
        }
    }
    assert!(texts >= 6, "{texts}");
    let read = bytes_read(&mount) - before;
    assert!(read < 1_000_000, "{read} bytes were read");
    let blocks = mount.table("info/blocks.tsv");
    let said: Vec<_> = blocks
        .iter()
        .map(|block| (&*block[10], &*block[12]))
        .collect();
    assert_eq!(said, [("arrays", "problem"), ("z", ""), ("", "")]);
    assert!(!mount.text("info/status").contains("unused "));
    // what removes a block looks
    fs::remove_file(mount.path("blocks/1.bin")).unwrap();
    assert!(bytes_read(&mount) - before > 4_000_000);
    assert_eq!(mount.table("info/blocks.tsv").len(), 2);
}

#[test]
fn parts_of_an_array_are_one_array_and_arrays_of_their_own() {
    if !can_mount() {
        return;
    }
    let part = |n: usize, start: usize, len: usize| {
        format!(
            "  - !core/ndarray-chunk-1.0.0\n    start: [{start}]\n    ndarray: !core/ndarray-1.0.0 {{source: {n}, datatype: uint8, \
             byteorder: little, shape: [{len}]}}\n"
        )
    };
    let body =
        "z: !core/chunked-ndarray-1.0.0\n  shape: [8]\n  datatype: uint8\n  chunks:\n".to_owned();
    let sample = Sample::new(&(body + &part(1, 6, 2) + &part(0, 0, 3)));
    let (_dir, mount) = mounted(&sample.block(Block::zlib(b"abc")).block(Block::raw(b"gh")));
    assert_eq!(mount.read("arrays/z.bin").unwrap(), b"abc\0\0\0gh");
    assert_eq!(mount.read("arrays/z/chunks/1/ndarray.bin").unwrap(), b"abc");
}

#[test]
fn only_the_blocks_of_chunks_are_written() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let body = zarr(1, "{id: lz4}") + "inline: !core/ndarray-1.0.0 [1, 2]\n";
    // what numcodecs makes of it: its length, and a stream of LZ4 that is a literal
    let packed = |text: &[u8; 3]| [b"\x03\0\0\0\x30", &text[..]].concat();
    let sample = Sample::new(&body)
        .block(Block::raw(&packed(b"abc")))
        .block(numbers([-1, 0]));
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    let read = || mount.read("arrays/z.bin").unwrap();
    assert_eq!(read(), b"...abc");
    let refusal = |name: &str| {
        let opened = File::options().write(true).open(mount.path(name));
        opened.unwrap_err().raw_os_error()
    };
    assert_eq!(refusal("arrays/z.npy"), refusal("arrays/inline.npy"));
    let tree = mount.text("tree.yaml");
    fs::write(mount.path("tree.yaml"), tree.replace("z: !", "y: !")).unwrap();
    assert_eq!(mount.read("arrays/y.bin").unwrap(), b"...abc");
    fs::write(mount.path("tree.yaml"), &tree).unwrap();
    // who opens the array sees what has been written until then
    let block = File::options()
        .write(true)
        .open(mount.path("blocks/0.bin"))
        .unwrap();
    for text in [b"xyz", b"uvw"] {
        block.write_all_at(&packed(text), 0).unwrap();
        assert_eq!(read(), [b"...", &text[..]].concat());
    }
    drop(block);
    assert_eq!(read(), b"...uvw");
    fs::write(mount.path("blocks/1.bin"), [0; 12]).unwrap();
    let why = mount.text("info/status");
    assert!(
        why.contains("NOT SAVED: blocks/1.bin: block 1: it is for a chunk of an array"),
        "{why}"
    );
    // its name is gone for a moment, as that of any block that an array uses
    fs::remove_file(mount.path("blocks/1.bin")).unwrap();
    assert_eq!(read(), b"...uvw");
    drop(mount);
    assert_eq!(fs::read(&file).unwrap().len(), sample.bytes().len());
    let mount = Mount::new(&file, &[]);
    assert_eq!(mount.read("arrays/z.bin").unwrap(), b"...uvw");
}

#[test]
fn copies_keep_the_numbers_of_the_blocks_of_chunks() {
    let dir = TempDir::new().unwrap();
    let [out, parts] = ["out.asdf", "parts"].map(|name| dir.path().join(name));
    let other = array("other", 0, "uint8", "[3]");
    let sample = |numbers_of: [i32; 2], map: usize| {
        let sample = Sample::new(&(other.clone() + &zarr(map, "null")));
        let sample = sample.block(Block::raw(b"one")).block(Block::raw(b"two"));
        sample.block(numbers(numbers_of)).block(Block::raw(b"end"))
    };
    let file = sample([1, -1], 2).write(dir.path());
    let checked = asdf("--check", &[&file]).stdout;
    assert!(
        checked.contains("block 3: unused, no array names it"),
        "{checked}"
    );
    assert_eq!(asdf("--compact", &[&out, &file]).code, 0);
    let checked = asdf("--check", &[&out]).stdout;
    assert!(checked.contains("ok: 3 blocks, 2 arrays\n"), "{checked}");
    assert_eq!(asdf("--explode", &[&parts, &file]).code, 0);
    if can_mount() {
        for file in [&out, &parts.join("sample.asdf")] {
            assert_eq!(
                Mount::new(file, &["-r"]).read("arrays/z.bin").unwrap(),
                b"two..."
            );
        }
    }
    fs::remove_file(&out).unwrap();
    // block 1 is not used, and those behind it would get other numbers
    let file = sample([-1, 3], 2).write(dir.path());
    let why = "block 2: it is for chunks of an array: another block lists its number, which therefore can't change";
    assert_refused(&asdf("--compact", &[&out, &file]), 1, why);
    // numbers that make no sense
    let file = sample([1, 9], 2).write(dir.path());
    assert_refused(
        &asdf("--compact", &[&out, &file]),
        1,
        "array z: block 9 wanted, but there are 4 blocks",
    );
    assert!(!asdf("--check", &[&file]).stdout.contains("unused"));
    // an array that is also a chunk would go into a file of its own
    let file = sample([0, 1], 2).write(dir.path());
    let parts = dir.path().join("others");
    assert_refused(
        &asdf("--explode", &[&parts, &file]),
        1,
        "block 0: it is an array and a chunk of another one",
    );
    assert!(!out.exists() && !parts.exists());
}
