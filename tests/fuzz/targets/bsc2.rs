//! Reads payloads of the code `bsc2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::decode(*b"bsc2", input));
