use super::*;
use crate::asdf::OpenOptions;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::source::read_all;
use proptest::prelude::*;

/// A file of this tree and these blocks.
fn snapshot(body: &str, blocks: &[Vec<u8>]) -> Snapshot {
    let text = format!("#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\n{body}\n...\n");
    let sample = Sample::new().text(text.as_bytes());
    let sample = blocks.iter().fold(sample, |file, block| file.block(block));
    let file = Arc::new(Memory::new(sample.bytes()));
    Snapshot::read(None, file, Cache::new(1 << 20), OpenOptions::default()).unwrap()
}

/// An array of asdf-zarr under the key `z`, by its metadata and its block of numbers. A key that is there twice counts as it stands last.
fn zarr(meta: &str, map: i64) -> String {
    let all =
        "zarr_format: 2, order: C, filters: null, compressor: null, dtype: '|u1', fill_value: 7";
    format!(
        "z: !<asdf://asdf-format.org/zarr/tags/zarr-1.0.0> {{.zarray: {{{all}, {meta}}}, chunk_block_map: {map}}}"
    )
}

fn numbers(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// The elements of the last array, or the first of very many, or why they can't be had.
fn elements(snapshot: &Snapshot) -> Result<Vec<u8>, String> {
    let last = snapshot.arrays().len() - 1;
    let all = || {
        let source = snapshot.array_bin(last)?;
        let mut bytes = vec![0; at_most(source.len(), 1 << 10)];
        source.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    all().map_err(|error: Error| error.to_string())
}

fn wide(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

proptest! {
    #[test]
    fn every_byte_is_in_the_chunk_that_division_gives(
        axes in prop::collection::vec((0_u64..7, 1_u64..9), 0..4),
        itemsize in 1_u64..4,
        cut: bool,
    ) {
        let (shape, chunk): (Vec<u64>, Vec<u64>) = axes.into_iter().unzip();
        let grid = Grid::new(shape.clone(), chunk.clone(), itemsize, cut).unwrap();
        let len = shape.iter().product::<u64>() * itemsize;
        // the chunk, and the byte in it, for each byte
        let mut want = Vec::new();
        for byte in 0..len {
            let (mut element, mut indices) = (byte / itemsize, Vec::new());
            for axis in shape.iter().rev() {
                indices.insert(0, element % axis);
                element /= axis;
            }
            let (mut number, mut at) = (0, 0);
            for (i, index) in indices.iter().enumerate() {
                let (part, axis) = (chunk[i], shape[i]);
                let own = if cut { part.min(axis - index / part * part) } else { part };
                number = number * axis.div_ceil(part) + index / part;
                at = at * own + index % part;
            }
            want.push((number, at * itemsize + byte % itemsize));
        }
        for (byte, (chunk, at)) in (0..).zip(&want) {
            let piece = grid.piece(byte).unwrap();
            prop_assert_eq!((piece.chunk, piece.at), (*chunk, *at));
            prop_assert!(piece.len > 0);
            let together = (*at..).map(|at| (*chunk, at)).take(wide(piece.len));
            let there = &want[wide(byte)..wide(byte + piece.len)];
            prop_assert!(there.iter().copied().eq(together));
        }
        prop_assert_eq!(grid.piece(len), None);
        prop_assert!(want.iter().all(|(number, _)| *number < grid.count()));
    }

    #[test]
    fn chunks_make_the_array_again(
        (rows, columns) in (1_u8..6, 1_u8..6),
        (height, width) in (1_u8..4, 1_u8..4),
        missing in 0_u8..9,
        fortran: bool,
        from in 0_usize..26,
    ) {
        let along = columns.div_ceil(width);
        let count = rows.div_ceil(height) * along;
        let (mut blocks, mut map) = (Vec::new(), Vec::new());
        for n in 0..count {
            let mut block = vec![0; usize::from(height * width)];
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                let at = if fortran { x * height + y } else { y * width + x };
                block[usize::from(at)] = 10 * (n / along * height + y) + n % along * width + x;
            }
            map.push(if n == missing { -1 } else { i32::try_from(blocks.len()).unwrap() });
            if n != missing {
                blocks.push(block);
            }
        }
        blocks.push(numbers(&map));
        let order = if fortran { "F" } else { "C" };
        let meta = format!("shape: [{rows}, {columns}], chunks: [{height}, {width}], order: {order}");
        let file = snapshot(&zarr(&meta, i64::try_from(blocks.len() - 1).unwrap()), &blocks);
        let value = |(y, x): (u8, u8)| {
            if y / height * along + x / width == missing { 7 } else { 10 * y + x }
        };
        let want: Vec<u8> = (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))).map(value).collect();
        prop_assert_eq!(elements(&file).unwrap(), &want[..]);
        let from = from.min(want.len());
        let mut rest = vec![0; want.len() - from];
        file.array_bin(0).unwrap().read_exact_at(&mut rest, len_u64(from)).unwrap();
        prop_assert_eq!(&rest, &want[from..]);
        prop_assert_eq!(file.chunk_blocks().unwrap(), (0..blocks.len()).collect());
        prop_assert_eq!(file.unused_blocks(), [] as [usize; 0]);
    }
}

/// A block with the decoded bytes `abc` behind a length that numcodecs writes.
const LZ4: &[u8] = b"\x03\0\0\0\x30abc";

const TWO: &str = "shape: [6], chunks: [3]";

/// Metadata of an array, the numbers of its blocks, and what is read, or what the error says. Block 0 is `abc`, block 1 has the numbers.
type Case = (
    &'static str,
    &'static [i32],
    Result<&'static [u8], &'static str>,
);

const CASES: &[Case] = &[
    (TWO, &[0, 0], Ok(b"abcabc")),
    (TWO, &[-1, -1], Ok(&[7; 6])),
    // the numbers themselves as a chunk
    (
        "shape: [8], chunks: [8]",
        &[1],
        Err("chunk 0: block 1 has 4 bytes of 8"),
    ),
    ("shape: [4], chunks: [4]", &[1], Ok(&[1, 0, 0, 0])),
    ("shape: [], chunks: []", &[-1], Ok(&[7])),
    ("shape: [0, 2], chunks: [1, 1]", &[], Ok(&[])),
    ("shape: [2, 0], chunks: [1, 1]", &[], Ok(&[])),
    (
        TWO,
        &[0, 2],
        Err("chunk 1: block 2 wanted, but there are 2 blocks"),
    ),
    (TWO, &[0, -2], Err("chunk 1: block -2 wanted")),
    (TWO, &[i32::MAX, 0], Err("block 2147483647 wanted")),
    (TWO, &[0], Err("2 chunks, but their numbers have 4 bytes")),
    (
        TWO,
        &[0, 0, 0],
        Err("2 chunks, but their numbers have 12 bytes"),
    ),
    (
        "shape: [8], chunks: [4]",
        &[0, 0],
        Err("chunk 0: block 0 has 3 bytes of 4"),
    ),
    (
        "shape: [4], chunks: [2]",
        &[0, 0],
        Err("chunk 0: block 0 has 3 bytes of 2"),
    ),
    (
        "shape: [6], chunks: [0]",
        &[0],
        Err("chunks of no elements"),
    ),
    (
        "shape: [6], chunks: [3, 1]",
        &[0, 0],
        Err("chunks of [3, 1] elements"),
    ),
    (
        "shape: [1152921504606846976], chunks: [1]",
        &[0],
        Err("more than 16777216 chunks"),
    ),
    (
        "shape: [1152921504606846976, 1152921504606846976], chunks: [1, 1]",
        &[0],
        Err("more than 16777216 chunks"),
    ),
    (
        "shape: [6], chunks: [1152921504606846976], dtype: '<f8'",
        &[0],
        Err("chunks of 2^63 bytes or more"),
    ),
    (
        "shape: [1152921504606846976], chunks: [1152921504606846976]",
        &[0],
        Err("block 0 has 3 bytes of 1152921504606846976"),
    ),
    (
        "shape: [6], chunks: [3], dtype: '|S9999999'",
        &[0, 0],
        Err("more than 1048576 bytes"),
    ),
    (
        "shape: [6], chunks: [3], dtype: '<M8[D]'",
        &[0, 0],
        Err("\"<M8[D]\""),
    ),
    (
        "shape: [6], chunks: [3], dtype: []",
        &[0, 0],
        Err("neither a text nor a list"),
    ),
    (
        "shape: [6], chunks: [3], filters: [{id: delta}]",
        &[0, 0],
        Err("filters of numcodecs"),
    ),
    (
        "shape: [6], chunks: [3], compressor: {id: gzip}",
        &[0, 0],
        Err("compressed with \"gzip\" of numcodecs"),
    ),
    (
        "shape: [6], chunks: [3], compressor: {id: zlib}",
        &[0, 0],
        Err("chunk 0: "),
    ),
    (
        "shape: [6], chunks: [3], order: A",
        &[0, 0],
        Err("neither C nor F"),
    ),
    (
        "shape: [6], chunks: [3], zarr_format: 3",
        &[0, 0],
        Err("another version of Zarr"),
    ),
    (
        "shape: [6], chunks: [3], fill_value: x",
        &[0, 0],
        Err("'x', where uint8 belongs"),
    ),
    ("shape: [6], chunks: ['*']", &[0, 0], Err("a '*'")),
    ("shape: [6]", &[0, 0], Err("without chunks")),
];

#[test]
fn what_a_chunk_is_not_is_told_and_nothing_else_is_shown() {
    let abc = || b"abc".to_vec();
    for (meta, map, want) in CASES {
        let file = snapshot(&zarr(meta, 1), &[abc(), numbers(map)]);
        match (elements(&file), want) {
            (Ok(found), Ok(want)) => assert_eq!(found, *want, "{meta}"),
            (Err(found), Err(want)) => assert!(found.contains(want), "{meta}: {found}"),
            (found, want) => panic!("{meta}: {found:?}, not {want:?}"),
        }
        match file.chunk_blocks() {
            Ok(blocks) => assert!(blocks.contains(&1), "{meta}"),
            // what it uses is not known, and no block may go
            Err(_) => assert_eq!(file.unused_blocks(), [] as [usize; 0], "{meta}"),
        }
    }
    for map in [2, -1] {
        let file = snapshot(&zarr(TWO, map), &[abc(), numbers(&[0, 0])]);
        assert!(file.arrays()[0].problem().is_some() && file.chunk_blocks().is_err());
    }
}

/// A list read those numbers to tell which blocks are unused.
#[test]
fn a_list_calls_no_block_unused_if_an_array_may_have_its_chunks_there() {
    let blocks = [b"abc".to_vec(), numbers(&[0, -1]), b"free".to_vec()];
    let file = snapshot(&zarr(TWO, 1), &blocks);
    assert_eq!(file.unused_blocks(), [2]);
    assert_eq!(file.listed_unused(), [] as [usize; 0]);
    let damaged = zarr(TWO, 1).replace("chunk_block_map: 1", "chunk_block_map: x");
    for body in [zarr(TWO, 9), zarr("shape: [6]", 1), damaged] {
        let file = snapshot(&body, &blocks);
        assert_eq!(file.listed_unused(), [] as [usize; 0], "{body}");
    }
    let plain = snapshot("a: 1", &blocks);
    assert_eq!(plain.listed_unused(), plain.unused_blocks());
    assert_eq!(plain.listed_unused(), [0, 1, 2]);
}

#[test]
fn a_chunk_that_zarr_and_asdf_have_both_compressed_is_decoded_twice() {
    let meta = "shape: [6], chunks: [3], compressor: {id: lz4, acceleration: 1}";
    let file = snapshot(&zarr(meta, 1), &[LZ4.to_vec(), numbers(&[0, -1])]);
    assert_eq!(elements(&file).unwrap(), b"abc\x07\x07\x07");
    let mut packed = Vec::new();
    let codec = codec::codec(*b"zlib").unwrap();
    codec
        .encode(None, &Memory::new(LZ4.to_vec()), &mut packed)
        .unwrap();
    let text = format!("#ASDF 1.0.0\n%YAML 1.1\n---\n{}\n...\n", zarr(meta, 1));
    let (used, size) = (len_u64(packed.len()), len_u64(LZ4.len()));
    let block = crate::asdf::sample::block_with(*b"zlib", &packed, size, used);
    let sample = Sample::new().text(text.as_bytes()).stored(block);
    let bytes = Arc::new(Memory::new(sample.block(&numbers(&[0, -1])).bytes()));
    let file = Snapshot::read(None, bytes, Cache::new(1 << 20), OpenOptions::default()).unwrap();
    assert_eq!(elements(&file).unwrap(), b"abc\x07\x07\x07");
}

/// Its first bytes were shown as elements of a chunk with another shape.
#[test]
fn a_chunk_that_decodes_to_more_than_its_size_is_refused() {
    for code in [*b"zlib", *b"bzp2"] {
        let mut packed = Vec::new();
        let codec = codec::codec(code).unwrap();
        let plain = Memory::new(b"abc".to_vec());
        codec.encode(None, &plain, &mut packed).unwrap();
        let id = if code == *b"zlib" { "zlib" } else { "bz2" };
        let shown = |len: u8| {
            let meta =
                format!("shape: [{len}], chunks: [{len}], compressor: {{id: {id}, level: 1}}");
            let blocks = [packed.clone(), numbers(&[0])];
            elements(&snapshot(&zarr(&meta, 1), &blocks))
        };
        assert_eq!(shown(3).unwrap(), b"abc");
        let why = shown(2).unwrap_err();
        assert!(why.contains("block 0 has more than 2 bytes"), "{why}");
    }
}

#[test]
fn fill_values_are_those_of_zarr() {
    for (dtype, fill, want) in [
        ("'<f4'", "NaN", &[0, 0, 0xC0, 0x7F][..]),
        ("'>f4'", "-Infinity", &[0xFF, 0x80, 0, 0]),
        ("'<i2'", "-2", &[0xFE, 0xFF]),
        ("'|b1'", "true", &[1]),
        ("'<c8'", "[1.0, -2.0]", &[0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0]),
        ("'|S3'", "YWI=", b"ab\0"),
        ("'|S3'", "0", &[0; 3]),
        ("'<U1'", "é", &[0xE9, 0, 0, 0]),
        (
            "[[a, '<i2'], [b, '|S1', [2]]]",
            "AQBhYg==",
            &[1, 0, b'a', b'b'],
        ),
        ("[[a, '<i2'], [b, '|S1']]", "null", &[0; 3]),
    ] {
        let meta = format!("shape: [1], chunks: [1], dtype: {dtype}, fill_value: {fill}");
        let file = snapshot(&zarr(&meta, 0), &[numbers(&[-1])]);
        assert_eq!(elements(&file).as_deref(), Ok(want), "{dtype} {fill}");
    }
    for (dtype, fill) in [
        ("'|S1'", "YWI="),
        ("[[a, '<i2']]", "AQ=="),
        ("'<i2'", "[1]"),
    ] {
        let meta = format!("shape: [1], chunks: [1], dtype: {dtype}, fill_value: {fill}");
        let file = snapshot(&zarr(&meta, 0), &[numbers(&[-1])]);
        assert!(elements(&file).is_err(), "{dtype} {fill}");
    }
}

/// A text of a few bytes could have taken gigabytes.
#[test]
fn aliases_make_no_endless_declarations() {
    let many = |meta: &str| {
        let one = zarr(&format!("shape: [1], chunks: [1], {meta}"), 0);
        (0..600)
            .map(|n| one.replacen('z', &format!("z{n}"), 1) + "\n")
            .collect::<String>()
    };
    let fields: Vec<String> = (0..1000).map(|n| format!("[f{n}, '<i2']")).collect();
    for body in [
        format!(
            "t: &t [{}]\n{}",
            fields.join(", "),
            many("dtype: *t, fill_value: 0")
        ),
        many("dtype: '|S1000000', fill_value: YQ=="),
    ] {
        let file = snapshot(&body, &[numbers(&[-1])]);
        let arrays = file.arrays();
        assert!(arrays[0].problem().is_none() && arrays[599].problem().is_some());
    }
}

/// The parts of a `core/chunked-ndarray`, each by the index of its first element and its shape; part N is in block N.
fn arrays(shape: &str, parts: &[(&str, &str)]) -> String {
    let part = |(n, (start, shape)): (usize, &(&str, &str))| {
        format!(
            "{{start: {start}, ndarray: !core/ndarray-1.0.0 {{source: {n}, datatype: int16, byteorder: big, shape: {shape}}}}}"
        )
    };
    let parts: Vec<String> = parts.iter().enumerate().map(part).collect();
    let chunks = parts.join(", !core/ndarray-chunk-1.0.0 ");
    format!(
        "z: !core/chunked-ndarray-1.0.0 {{shape: {shape}, datatype: int16, chunks: [!core/ndarray-chunk-1.0.0 {chunks}]}}"
    )
}

#[test]
fn arrays_that_make_a_grid_are_one_array() {
    let body = arrays(
        "[3, 3]",
        &[
            ("[0, 0]", "[2, 2]"),
            ("[2, 2]", "[1, 1]"),
            ("[0, 2]", "[2, 1]"),
        ],
    );
    let blocks = [vec![0, 1, 0, 2, 0, 3, 0, 4], vec![0, 9], vec![0, 5, 0, 6]];
    let file = snapshot(&body, &blocks);
    let paths: Vec<_> = file.arrays().iter().map(Array::path).collect();
    assert_eq!(
        paths,
        [
            "z",
            "z/chunks/0/ndarray",
            "z/chunks/1/ndarray",
            "z/chunks/2/ndarray"
        ]
    );
    let found = read_all(&*file.array_bin(0).unwrap(), 100).unwrap();
    assert_eq!(
        found,
        [0, 1, 0, 2, 0, 5, 0, 3, 0, 4, 0, 6, 0, 0, 0, 0, 0, 9]
    );
    assert_eq!(file.unused_blocks(), [] as [usize; 0]);
    let start = "[0, 0]";
    for (body, want) in [
        (arrays("[3]", &[("[0]", "[2]"), ("[1]", "[2]")]), "no grid"),
        (arrays("[4]", &[("[0]", "[2]"), ("[0]", "[2]")]), "no grid"),
        (arrays("[3]", &[("[0]", "[2]"), ("[2]", "[2]")]), "no grid"),
        (arrays("[3]", &[("[3]", "[0]")]), "no grid"),
        (arrays("[3]", &[(start, "[1]")]), "another number of axes"),
        (arrays("[3]", &[("[0]", "['*']")]), "an open shape"),
        (
            arrays("[3]", &[("[0]", "[2]")]).replacen("int16", "int8", 1),
            "chunks of int16 in an array of int8",
        ),
        (
            arrays("[4]", &[("[0]", "[2]"), ("[2]", "[2]")]).replacen("big", "little", 1),
            "different datatypes",
        ),
        (
            arrays("[3]", &[("[0]", "[2]")]).replace("core/ndarray-1", "core/other-1"),
            "no ndarray",
        ),
    ] {
        let file = snapshot(&body, &blocks);
        let why = file.arrays()[0].problem().unwrap().to_string();
        assert!(why.contains(want), "{body}: {why}");
    }
}

#[test]
fn a_store_somewhere_else_is_no_array() {
    let tag = "!<asdf://asdf-format.org/zarr/tags/zarr-1.0.0>";
    let body = format!("z: {tag} {{store: {{type_string: DirectoryStore, path: a.zarr}}}}");
    let file = snapshot(&body, &[b"abc".to_vec()]);
    assert!(file.arrays().is_empty());
    assert_eq!(file.unused_blocks(), [0]);
}
