//! The format layer: an ASDF file as it is parsed, usable without FUSE.

pub mod datatype;
mod lines;
pub mod scalar;
pub mod tree;
mod yaml;
