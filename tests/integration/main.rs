//! Tests from outside: the shape of the sources, the command, and real mounts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::format_collect,
    reason = "a test may panic: that is how it fails"
)]
#![cfg_attr(
    not(feature = "fuse"),
    allow(dead_code, reason = "without the kernel interface nothing is mounted")
)]

#[cfg(feature = "fuse")]
mod acceptance;
mod architecture;
#[cfg(feature = "fuse")]
mod arrays;
#[cfg(feature = "fuse")]
mod behind;
#[cfg(feature = "fuse")]
mod chunked;
#[cfg(feature = "fuse")]
mod cli;
mod command;
mod common;
mod compact;
#[cfg(feature = "fuse")]
mod cookbook;
#[cfg(feature = "fuse")]
mod corpus;
#[cfg(feature = "fuse")]
mod deep;
#[cfg(feature = "fuse")]
mod disks;
#[cfg(feature = "fuse")]
mod edit;
#[cfg(feature = "fuse")]
mod editor;
#[cfg(feature = "fuse")]
mod elsewhere;
#[cfg(feature = "fuse")]
mod endless;
#[cfg(all(feature = "fuse", feature = "remote"))]
mod far;
#[cfg(all(feature = "fuse", feature = "remote"))]
mod far_again;
#[cfg(all(feature = "fuse", feature = "remote"))]
mod far_server;
#[cfg(feature = "fuse")]
mod first_hour;
#[cfg(feature = "fuse")]
mod follow;
#[cfg(feature = "fuse")]
mod given;
#[cfg(feature = "fuse")]
mod interop;
#[cfg(feature = "fuse")]
mod limits;
#[cfg(feature = "fuse")]
mod listing;
mod manual;
#[cfg(feature = "fuse")]
mod many;
#[cfg(feature = "fuse")]
mod many_closed;
#[cfg(feature = "fuse")]
mod many_left;
#[cfg(feature = "fuse")]
mod many_life;
#[cfg(feature = "fuse")]
mod many_walk;
#[cfg(feature = "fuse")]
mod mistakes;
#[cfg(feature = "fuse")]
mod mount;
#[cfg(feature = "fuse")]
mod names;
#[cfg(feature = "fuse")]
mod pictures;
#[cfg(feature = "fuse")]
mod races;
#[cfg(feature = "fuse")]
mod readers;
#[cfg(feature = "fuse")]
mod refused;
#[cfg(feature = "fuse")]
mod rewrite;
#[cfg(feature = "fuse")]
mod rules;
mod sample;
#[cfg(feature = "fuse")]
mod scratch;
#[cfg(feature = "fuse")]
mod shown;
#[cfg(feature = "fuse")]
mod unmount;
#[cfg(feature = "fuse")]
mod unsaved;
#[cfg(feature = "fuse")]
mod users;
#[cfg(feature = "fuse")]
mod views;
#[cfg(feature = "fuse")]
mod zarr;
