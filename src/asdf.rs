//! The format layer: an ASDF file as it is parsed, usable without FUSE.

pub mod datatype;
pub mod decl;
pub mod inline;
mod lines;
pub mod names;
pub mod outline;
pub mod scalar;
pub mod tree;
mod yaml;
