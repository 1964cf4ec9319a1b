//! Reads the text of trees, and checks them as edits.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::tree(input));
