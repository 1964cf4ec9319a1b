//! The format layer: an ASDF file as it is parsed, usable without FUSE.

pub mod datatype;
pub mod scalar;
