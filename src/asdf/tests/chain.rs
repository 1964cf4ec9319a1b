use super::*;
use crate::codec::Cache;
use crate::source::{Memory, read_all};
use proptest::prelude::*;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

/// `zlib.compress(bytes(range(20)) * 3)` of Python.
const ZLIB: &[u8] = b"\x78\x9c\x63\x60\x64\x62\x66\x61\x65\x63\xe7\xe0\xe4\xe2\xe6\xe1\xe5\xe3\x17\x10\x14\x12\x66\x20\x52\x0c\x00\x3c\x5a\x02\x3b";

fn buffers() -> Arc<Buffers> {
    Buffers::new(&Cache::new(64 << 20)).beneath()
}

fn memory(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(Memory::new(bytes.to_vec()))
}

/// The decoded bytes of a block that begins with `chain`.
fn decoded(chain: &str, data: &[u8], len: u64) -> Result<Vec<u8>> {
    let (chain, data) = Chain::read(memory(&[chain.as_bytes(), data].concat()))?;
    read_all(&chain.decoded(data, len, buffers())?, 1 << 20)
}

fn twenty_thrice() -> Vec<u8> {
    (0..60).map(|i| i % 20).collect()
}

#[test]
fn a_chain_may_be_spelled_in_many_ways() {
    for chain in [
        "[zlib]\n...\n",
        "--- [zlib]\r\n...\r\n",
        "[[zlib]]\n...\n",
        "- [zlib, {}]\n...\n",
        "%YAML 1.1\n---\n- zlib\n...\n",
    ] {
        assert_eq!(
            decoded(chain, ZLIB, 60).unwrap(),
            twenty_thrice(),
            "{chain:?}"
        );
    }
    assert_eq!(decoded("[]\n...\n", b"abc", 3).unwrap(), b"abc");
}

#[test]
fn an_unknown_encoding_is_named() {
    let error = decoded("[zlib, rot13]\n...\n", b"", 3).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("rot13"), "{error}");
    let error = Chain::named(*b"lzma\0\0\0\0\0\0\0\0\0\0\0\0").unwrap_err();
    assert!(error.to_string().contains("lzma"), "{error}");
    assert_eq!(Chain::named([0; 16]).unwrap(), None);
}

#[test]
fn a_chain_of_too_many_decoders_is_not_followed() {
    let chain = |steps| format!("[{}]\n...\n", vec!["zlib"; steps].join(", "));
    let read = |steps| Chain::read(memory(chain(steps).as_bytes())).map(drop);
    read(DECODER_LIMIT).unwrap();
    let error = read(DECODER_LIMIT + 1).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn a_chain_that_makes_no_sense_is_an_error() {
    let image = "original_shape: [4, 6], item_size: 1";
    for (chain, data, len) in [
        ("[zlib]\n".to_owned(), ZLIB, 60),
        ("zlib\n...\n".to_owned(), ZLIB, 60),
        ("[zlib]\n...\n".to_owned(), ZLIB, 61),
        ("[zlib]\n...\n".to_owned(), ZLIB, 1 << 60),
        ("[[1, 2, 3]]\n...\n".to_owned(), ZLIB, 60),
        ("[]\n...\n".to_owned(), b"abcd", 3),
        ("[[tile, {shape: [2, 3]}]]\n...\n".to_owned(), &[7; 24], 24),
        (
            format!("[[tile, {{shape: [2], {image}}}]]\n...\n"),
            &[7; 24],
            24,
        ),
        (
            format!("[[tile, {{shape: [0, 3], {image}}}]]\n...\n"),
            &[7; 24],
            24,
        ),
        (
            format!("[[tile, {{shape: [2, 3], {image}}}]]\n...\n"),
            &[7; 24],
            48,
        ),
        (
            format!("[[tile, {{shape: [2, 3], {image}}}]]\n...\n"),
            &[7; 23],
            24,
        ),
        (
            format!("[[tile, {{shape: [{0}, {0}], {image}}}]]\n...\n", u64::MAX),
            &[7; 24],
            24,
        ),
        (
            "[[quantize, {dtype: 16, original_shape: [1]}]]\n...\n".to_owned(),
            &[0; 26],
            4,
        ),
        (
            "[[quantize, {dtype: 32, original_shape: [1]}]]\n...\n".to_owned(),
            &[0; 20],
            4,
        ),
    ] {
        assert!(decoded(&chain, data, len).is_err(), "{chain}");
    }
}

#[test]
fn the_length_of_named_zlib_is_found() {
    let chain = Chain::named(*b"zlib\0\0\0\0\0\0\0\0\0\0\0\0")
        .unwrap()
        .unwrap();
    assert_eq!(chain.decoded_len(&memory(ZLIB), &buffers()).unwrap(), 60);
    let cut = memory(&ZLIB[..20]);
    assert!(chain.decoded_len(&cut, &buffers()).is_err());
}

/// A chunk of the draft's quantized data, the bits put together one by one.
fn chunk(values: &[i64], bits: u32, offset: f64, scale: f64) -> Vec<u8> {
    let mut out = vec![u8::try_from(bits).unwrap()];
    out.extend(offset.to_be_bytes());
    out.extend(scale.to_be_bytes());
    out.extend((values.len() as u64).to_be_bytes());
    let all: Vec<bool> = values
        .iter()
        .flat_map(|value| (0..bits).rev().map(move |bit| value >> bit & 1 == 1))
        .collect();
    out.extend(all.chunks(8).map(|eight| {
        let byte = eight.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        byte << (8 - eight.len())
    }));
    out
}

#[test]
fn one_bit_integers_are_zero_and_minus_one() {
    let data = chunk(&[0, -1, -1], 1, 1.0, 2.0);
    let chain = "[[quantize, {dtype: 32, original_shape: [3]}]]\n...\n";
    let want: Vec<u8> = [1.0_f32, -1.0, -1.0]
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect();
    assert_eq!(decoded(chain, &data, 12).unwrap(), want);
}

#[test]
fn a_count_that_lies_costs_nothing() {
    let mut data = chunk(&[1, 2], 8, 0.0, 1.0);
    data[17..25].copy_from_slice(&(1_u64 << 60).to_be_bytes());
    let chain = "[[quantize, {dtype: 32, original_shape: [2]}]]\n...\n";
    assert!(decoded(chain, &data, 8).is_err());
    assert!(decoded(chain, &data, 1 << 62).is_err());
}

/// The tiles of an array of one-byte elements, element by element as the draft describes them.
fn tiles(array: &[u8], shape: &[u64], tile: &[u64]) -> Vec<u8> {
    let each = |shape: &[u64]| {
        shape
            .iter()
            .fold(vec![Vec::new()], |all: Vec<Vec<u64>>, &n| {
                let longer = all.iter().flat_map(|index| {
                    (0..n).map(move |i| index.iter().copied().chain([i]).collect())
                });
                longer.collect()
            })
    };
    let grid: Vec<u64> = shape
        .iter()
        .zip(tile)
        .map(|(n, t)| n.div_ceil(*t))
        .collect();
    let mut out = Vec::new();
    for place in each(&grid) {
        for inside in each(tile) {
            let index: Vec<u64> = (0..tile.len())
                .map(|k| place[k] * tile[k] + inside[k])
                .collect();
            let within = index.iter().zip(shape).all(|(i, n)| i < n);
            let flat = index.iter().zip(shape).fold(0, |flat, (i, n)| flat * n + i);
            out.push(if within { array[flat as usize] } else { 0xaa });
        }
    }
    out
}

proptest! {
    #[test]
    fn tiles_of_any_rank_are_put_together(
        dimensions in prop::collection::vec((0_u64..7, 1_u64..5), 0..5), start in 0_u64..500, len in 0_usize..200,
    ) {
        let (shape, tile): (Vec<_>, Vec<_>) = dimensions.into_iter().unzip();
        let count: u64 = shape.iter().product();
        let array: Vec<u8> = (0..count).map(|i| (i % 251) as u8).collect();
        let data = tiles(&array, &shape, &tile);
        let chain = format!("[[tile, {{shape: {tile:?}, original_shape: {shape:?}, item_size: 1}}]]\n...\n");
        prop_assert_eq!(&decoded(&chain, &data, count).unwrap(), &array);

        let (chain, data) = Chain::read(memory(&[chain.as_bytes(), &data].concat())).unwrap();
        let source = chain.decoded(data, count, buffers()).unwrap();
        let mut part = vec![0; len];
        let got = source.read_exact_at(&mut part, start);
        match array.get(start as usize..start as usize + len) {
            Some(want) => prop_assert_eq!(&part[..], want),
            None => prop_assert!(got.is_err()),
        }
    }

    #[test]
    fn numbers_are_had_from_anywhere(
        chunks in prop::collection::vec((1_u32..=64, prop::collection::vec(any::<i64>(), 0..40)), 1..5),
        start in 0_u64..400, len in 0_usize..300,
    ) {
        let (mut data, mut want) = (Vec::new(), Vec::new());
        for (bits, values) in chunks {
            let values: Vec<i64> = values.iter().map(|value| value >> (64 - bits)).collect();
            data.extend(chunk(&values, bits, -3.25, 0.5));
            want.extend(values.iter().flat_map(|&value| (value as f64 * 0.5 - 3.25).to_be_bytes()));
        }
        let chain = format!("[[quantize, {{dtype: 64, original_shape: [{}]}}]]\n...\n", want.len() / 8);
        prop_assert_eq!(&decoded(&chain, &data, want.len() as u64).unwrap(), &want);
        let (chain, data) = Chain::read(memory(&[chain.as_bytes(), &data].concat())).unwrap();
        let source = chain.decoded(data, want.len() as u64, buffers()).unwrap();
        let mut part = vec![0; len];
        let got = source.read_exact_at(&mut part, start);
        match want.get(start as usize..start as usize + len) {
            Some(want) => prop_assert_eq!(&part[..], want),
            None => prop_assert!(got.is_err()),
        }
    }
}

/// How long readers that wait for each other are waited for.
const WATCHDOG: Duration = Duration::from_mins(5);

/// Bytes that no codec makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    bytes.take(len).collect()
}

fn zlib(decoded: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    let codec = codec::codec(*b"zlib").unwrap();
    codec.encode(None, &Memory::new(decoded), &mut out).unwrap();
    out
}

/// Has the block read by so many readers at once, each from another place on, and in a cache of `budget` bytes.
fn read_at_once(chain: &str, data: &[u8], want: &Arc<Vec<u8>>, readers: usize, budget: u64) {
    const READ: usize = 128 << 10;
    let cache = Cache::new(budget);
    let buffers = Buffers::new(&cache).beneath();
    let (steps, data) = Chain::read(memory(&[chain.as_bytes(), data].concat())).unwrap();
    let source = Arc::new(steps.decoded(data, len_u64(want.len()), buffers).unwrap());
    let start = Arc::new(Barrier::new(readers));
    let (sender, done) = mpsc::channel();
    for reader in 0..readers {
        let (source, want, start) = (Arc::clone(&source), Arc::clone(want), Arc::clone(&start));
        let sender = sender.clone();
        // No scope: that would wait for a reader that hangs.
        thread::spawn(move || {
            start.wait();
            let first = reader * want.len() / readers / READ;
            let count = want.len().div_ceil(READ);
            for index in (first..count).chain(0..first) {
                let part = &want[index * READ..want.len().min((index + 1) * READ)];
                let mut found = vec![0; part.len()];
                source
                    .read_exact_at(&mut found, len_u64(index * READ))
                    .unwrap();
                assert!(found == part, "wrong bytes at {}", index * READ);
            }
            sender.send(reader).unwrap();
        });
    }
    drop(sender);
    for _ in 0..readers {
        let outcome = done.recv_timeout(WATCHDOG);
        let why = format!("{readers} readers of {chain:?} in {budget} bytes do not end");
        outcome.expect(&why);
    }
}

/// Each `zlib` but the first decodes what the one below it decodes: a thread that had leave to decode waited for leave to decode,
/// which was given out already, and so for ever.
#[test]
fn decoders_behind_each_other_do_not_wait_in_a_circle() {
    let want = Arc::new(noise(3 << 20));
    let mut data = want.to_vec();
    for steps in 1..=DECODER_LIMIT {
        data = zlib(data);
        if ![1, 2, 6, DECODER_LIMIT].contains(&steps) {
            continue;
        }
        let chain = format!("[{}]\n...\n", vec!["zlib"; steps].join(", "));
        for readers in [1, 3, 8] {
            for budget in [16 << 20, 64 << 20] {
                read_at_once(&chain, &data, &want, readers, budget);
            }
        }
    }
}

/// Bands of one `tile` were gathered from bands of the other, out of the same memory.
#[test]
fn tiles_of_tiles_do_not_wait_for_their_own_memory() {
    let (shape, tile) = ([2048, 1024], [2048, 1]);
    let want = Arc::new(noise(2 << 20));
    let mut data = want.to_vec();
    for _ in 0..3 {
        data = tiles(&data, &shape, &tile);
    }
    data = zlib(data);
    let tiling = format!("[tile, {{shape: {tile:?}, original_shape: {shape:?}, item_size: 1}}]");
    let chain = format!("[{tiling}, {tiling}, {tiling}, zlib]\n...\n");
    for (readers, budget) in [(1, 1 << 20), (8, 3 << 20)] {
        read_at_once(&chain, &data, &want, readers, budget);
    }
}

/// Arrays above decoders and arrays beneath them were gathered in the same memory: threads that held it waited for a decode to
/// end, and the threads that decoded waited for that memory.
#[test]
fn a_decoder_waits_for_no_memory_of_arrays_above_decoders() {
    const COLUMNS: usize = 1024;
    let want = noise(2 << 20);
    let mut packed = zlib(want.clone());
    let rows = packed.len().div_ceil(COLUMNS);
    packed.resize(rows * COLUMNS, 0);
    let (shape, tile) = ([rows as u64, COLUMNS as u64], [rows as u64, 1]);
    let data = tiles(&packed, &shape, &tile);
    let tiling = format!("[tile, {{shape: {tile:?}, original_shape: {shape:?}, item_size: 1}}]");
    let chain = format!("[zlib, {tiling}]\n...\n");

    let buffers = buffers();
    let above = [Arc::clone(&buffers), buffers.beneath()];
    let _held: Vec<_> = above.iter().map(|level| level.room(level.budget)).collect();
    let (chain, data) = Chain::read(memory(&[chain.as_bytes(), &data].concat())).unwrap();
    let source = chain.decoded(data, len_u64(want.len()), buffers).unwrap();
    let (sender, done) = mpsc::channel();
    thread::spawn(move || {
        sender
            .send(read_all(&source, u64::MAX).unwrap() == want)
            .unwrap();
    });
    let right = done.recv_timeout(WATCHDOG);
    assert!(right.expect("the decoder waits for their memory"));
}
