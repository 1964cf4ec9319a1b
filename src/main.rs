//! Mounts an ASDF file as a directory.

fn main() {}
