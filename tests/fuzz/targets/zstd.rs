//! Reads payloads of the code `zstd`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::decode(*b"zstd", input));
