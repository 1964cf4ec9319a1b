//! The format layer: an ASDF file as it is parsed, usable without FUSE.

pub mod buffers;
mod copy;
pub mod datatype;
pub mod gather;
pub mod npy;
pub mod scatter;
mod tile;
pub mod view;
