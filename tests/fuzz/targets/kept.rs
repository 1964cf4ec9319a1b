//! Reads blocks of which an index was kept by somebody else.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::index(input));
