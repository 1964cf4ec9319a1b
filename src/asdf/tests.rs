//! How the format layer is tested beyond what stands beside the code: on [`sample`] files, on files that are [`damage`]d or that
//! asdf-python has [`updated`], and on [`view_cases`].

mod damage;
pub(crate) mod sample;
mod snapshot;
mod updated;
pub(super) mod view_cases;
