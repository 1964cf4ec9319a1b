//! Reads payloads of the code `lz4f`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::decode(*b"lz4f", input));
