//! The format layer: an ASDF file as it is parsed, usable without FUSE.

pub mod buffers;
mod copy;
pub mod datatype;
pub mod dialect;
pub mod gather;
pub mod header;
pub mod layout;
mod lines;
#[cfg(test)]
pub(crate) mod sample;
pub mod scalar;
pub mod scan;
pub mod scatter;
pub mod text;
mod tile;
pub mod tree;
pub mod view;
mod yaml;
