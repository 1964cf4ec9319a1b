//! Saving.

pub mod edit;
pub mod plan;
pub mod rope;

#[cfg(test)]
mod model;
