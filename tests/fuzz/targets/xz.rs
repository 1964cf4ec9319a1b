//! Reads payloads of the code `xz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::decode(*b"xz\0\0", input));
