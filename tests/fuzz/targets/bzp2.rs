//! Reads payloads of the code `bzp2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::decode(*b"bzp2", input));
