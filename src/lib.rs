//! Reads ASDF files, and mounts them as directories.
//!
//! ASDF (Advanced Scientific Data Format) keeps a human-readable YAML tree, binary blocks and a block index in one file. The
//! command `asdf-mount` shows such a file as a directory through FUSE; this library is what it is made of. The modules `asdf`,
//! `view`, `codec`, `source` and `error` are the promise, as far as these pages show them: they read files, and
//! `cargo add asdf-mount --no-default-features` compiles only them. The rest serves the command.
//!
//! # Example
//!
//! Lists the arrays of a file, and reads ten elements of one that is compressed:
//!
//! ```
//! use asdf_mount::asdf::Snapshot;
//! # use asdf_mount::{codec::{self, Codec as _}, source::Memory};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("asdf-mount-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let path = directory.join("example.asdf");
//! # let values: Vec<u8> = (0..30_000).flat_map(i16::to_le_bytes).collect();
//! # let mut stored = Vec::new();
//! # codec::codec(*b"zlib")?.encode(None, &Memory::new(values.clone()), &mut stored)?;
//! # let sizes = [stored.len(), stored.len(), values.len()].map(|size| (size as u64).to_be_bytes()).concat();
//! # let header = [&b"\xd3BLK\0\x30\0\0\0\0zlib"[..], &sizes, &[0; 16]].concat();
//! # let tree = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\nspectrum: {flux: !core/ndarray-1.0.0 \
//! #     {source: 0, datatype: int16, byteorder: little, shape: [30000]}}\n...\n";
//! # std::fs::write(&path, [&tree[..], &header, &stored].concat())?;
//! let snapshot = Snapshot::open_path(&path)?;
//! for array in snapshot.arrays() {
//!     println!("{} {:?} {:?}", array.path(), array.datatype_text(), array.shape());
//! }
//! // bytes of its elements, in C order whatever the strides; what else the block holds is not decoded further
//! let bytes = snapshot.read_array("spectrum/flux", 2000..2020)?;
//! let flux: Vec<i16> = bytes.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect();
//! assert_eq!(flux, (1000..1010).collect::<Vec<i16>>());
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(()) }
//! ```
//!
//! # Architecture
//!
//! A module uses only what stands to its right; a test holds it to that, and each external crate to its place:
//!
//! ```text
//! main → cli → fuse → collection → vfs → view → save → asdf → remote → codec → source → error
//! ```
//!
//! - **Every file of the mount is a [`Source`](source::Source)**: a length and positional reads, shared between threads; all but
//!   streamed blocks and edits never change. A file, a window on it, a decoded block, a strided array, inline elements, an NPY
//!   header in front of another source, edits on top of one: they stack, and the code above knows only a source. A source that is
//!   plain bytes of the file lends the kernel its mapped pages; our own code never touches these, so that a file that shrinks
//!   is an I/O error and no signal.
//! - **A [`Snapshot`](asdf::Snapshot) never changes.** Opening one reads headers and tree, never block data. A save publishes a
//!   new one. It says where in the file the bytes are; so a save that changes stored bytes in place waits until no request
//!   reads any, and open handles then look for theirs in the new one.
//! - **A save is data**: a plan of kept extents and new bytes, computed by pure code. One module executes plans, and is the only
//!   one that writes the file; its documentation is the save protocol, and why it is right.
//! - **A codec is a [`Stream`](codec::Stream)**: decoded bytes that can be entered at certain offsets and then run forward.
//!   Segments, the memory budget, one decode for many readers and reading ahead are the same for all of them.
//!
//! # YAML
//!
//! The parser is `libyaml-rs`, at the level of events, with our own composer and YAML 1.1 resolver. `serde_yaml`, which was
//! first thought of, is built on the same parser but drops every tag that an ASDF tree depends on (`!core/ndarray-1.0.0` under
//! a `%TAG` line), has no positions, and resolves scalars in its own way. A small reader of our own makes the same events of
//! texts in the form that programs write, and gives up at anything else: then the parser reads the text, so all errors are its.
//! A tree is never written anew: what is saved is the user's bytes.
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        reason = "a test may panic: that is how it fails"
    )
)]

pub mod asdf;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod codec;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod collection;
pub mod error;
#[cfg(feature = "fuse")]
#[doc(hidden)]
pub mod fuse;
#[cfg(feature = "remote")]
#[doc(hidden)]
pub mod remote;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod save;
pub mod source;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod vfs;
pub mod view;
