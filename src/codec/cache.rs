//! Stub, to be written.

/// The cache of decoded segments.
#[derive(Debug)]
pub struct Cache;
