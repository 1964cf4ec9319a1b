//! Stub, to be written.

/// A decoded block.
#[derive(Debug)]
pub struct Decoded;
