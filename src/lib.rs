//! Reading ASDF files, and mounting them as a directory.
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
pub mod save;
pub mod source;
#[doc(hidden)]
pub mod vfs;
