//! Reads payloads of the code `lz4`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::decode(*b"lz4\0", input));
