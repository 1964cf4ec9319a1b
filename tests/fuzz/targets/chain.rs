//! Reads blocks of the ASDF 0.1.0 draft that begin with an encoding chain.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| asdf_mount_fuzz::chain(input));
