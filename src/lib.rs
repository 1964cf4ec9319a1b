//! Reads ASDF files, and mounts them as directories.
//!
//! ASDF (Advanced Scientific Data Format) keeps a human-readable YAML tree, binary blocks and a block index in one file. The
//! command `asdf-mount` shows such a file as a directory through FUSE; this library is what it is made of. Its format part
//! works without FUSE (`cargo build --no-default-features`), and that part (`asdf`, `codec`, `source`, `error`) is the promise;
//! the rest serves the command.
//!
//! # Example
//!
//! Lists the arrays of a file and reads one:
//!
//! ```
//! use std::sync::Arc;
//! use asdf_mount::asdf::Snapshot;
//! use asdf_mount::codec::Cache;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = std::env::temp_dir().join(format!("asdf-mount-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let path = directory.join("example.asdf");
//! # std::fs::write(&path, concat!("#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n",
//! #     "flux: !core/ndarray-1.0.0 [[1, 2], [3, 4]]\n...\n"))?;
//! let file = Arc::new(std::fs::File::open(&path)?);
//! let snapshot = Snapshot::open(file, Cache::new(64 << 20), Default::default())?;
//! for (i, array) in snapshot.arrays().iter().enumerate() {
//!     let elements = snapshot.array_bin(i)?; // in C order, whatever the strides
//!     let mut first = [0; 8];
//!     elements.read_exact_at(&mut first, 0)?;
//!     println!("{} {:?}: {} bytes, {first:?}", array.path(), array.shape(), elements.len());
//! #   assert_eq!((array.path().as_str(), elements.len(), first[0]), ("flux", 32, 1));
//! }
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(()) }
//! ```
//!
//! # Architecture
//!
//! A module uses only what stands to its right; a test holds it to that, and each external crate to its place:
//!
//! ```text
//! main → cli → fuse → vfs → save → asdf → codec → source → error
//! ```
//!
//! - **Every file of the mount is a [`Source`](source::Source)**: a length and positional reads, shared between threads; all but
//!   streamed blocks and edits never change. A file, a window on it, a decoded block, a strided array, inline elements, an NPY
//!   header in front of another source, edits on top of one: they stack, and nobody above knows which it is. A source that is
//!   plain bytes of the file lends the kernel its mapped pages; our own code never touches these, so that a file that shrinks
//!   is an I/O error and no signal.
//! - **A [`Snapshot`](asdf::Snapshot) never changes.** Opening one reads headers and tree, never block data. A save publishes a
//!   new one. It says where in the file the bytes are; so a save that changes stored bytes in place waits until nobody reads
//!   any, and open handles then look for theirs in the new one.
//! - **A save is data**: a plan of kept extents and new bytes, computed by pure code. One module executes plans, and is the only
//!   one that writes the file; its documentation is the save protocol, and why it is right.
//! - **A codec is a [`Stream`](codec::Stream)**: decoded bytes that can be entered at certain offsets and then run forward.
//!   Segments, the memory budget, one decode for many readers and reading ahead are the same for all of them.
//!
//! # YAML
//!
//! The parser is `libyaml-rs`, at the level of events, with our own composer and YAML 1.1 resolver. `serde_yaml`, which was
//! first thought of, is built on the same parser but drops every tag that an ASDF tree depends on (`!core/ndarray-1.0.0` under
//! a `%TAG` line), has no positions, and resolves scalars in its own way. A tree is never written anew: what is saved is
//! the user's bytes.
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
#[doc(hidden)]
pub mod cli;
pub mod codec;
pub mod error;
#[cfg(feature = "fuse")]
#[doc(hidden)]
pub mod fuse;
#[doc(hidden)]
pub mod save;
pub mod source;
#[doc(hidden)]
pub mod vfs;
