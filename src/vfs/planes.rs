//! `previews/PATH/N.png`: a picture of each plane of an array of three axes or more, in a directory named after the array.
//!
//! The planes of an array of more axes are in directories within each other, one for each index. A name gets its number when it is first
//! looked up, as those of `arrays/` get theirs.

use std::ffi::OsString;

use super::locked;
use super::node::{NUMBERS, Node};
use super::state::State;
use super::views::{View, ViewFile};
use crate::view::fits::Subject;

/// Axes of more planes have no such names.
const MOST: u64 = 10_000;
const SUFFIX: &str = ".png";

impl State {
    /// The picture whose planes that number belongs to, and the indices that it stands for.
    pub(super) fn plane(&self, mut number: u32) -> Option<(&ViewFile, Vec<u64>)> {
        let mut plane = Vec::new();
        loop {
            if let Some(file) = self.view(View::Previews)?.get(&number) {
                plane.reverse();
                return Some((file, plane));
            }
            let (directory, name) = self.catalogue().name_of(number)?;
            plane.push(name.parse().ok()?);
            number = directory;
        }
    }

    /// How many planes, or directories of them, a directory of a view has, and whether they are planes; none if it is no such directory.
    pub(super) fn planes_in(&self, view: View, directory: u32) -> Option<(u64, bool)> {
        if view != View::Previews || directory == 0 {
            return None;
        }
        let (file, plane) = self.plane(directory)?;
        let Subject::Array(i) = file.subject else {
            return None;
        };
        let axes = self.snapshot.planes(i);
        let inside = axes.iter().zip(&plane).all(|(len, index)| index < len);
        let len = axes
            .get(plane.len())
            .filter(|len| **len <= MOST && inside)?;
        let is_last = plane.len().saturating_add(1) == axes.len();
        let single = axes.iter().all(|len| *len == 1);
        (!single).then_some((*len, is_last))
    }

    /// The names of these planes.
    pub(super) fn plane_names(&self, view: View, directory: u32) -> Vec<OsString> {
        let (len, are_files) = self.planes_in(view, directory).unwrap_or((0, false));
        let suffix = if are_files { SUFFIX } else { "" };
        (0..len).map(|n| format!("{n}{suffix}").into()).collect()
    }

    /// The node of a plane, or a directory of planes, of that name.
    pub(super) fn find_plane(&self, view: View, directory: u32, name: &str) -> Option<Node> {
        let index = name.strip_suffix(SUFFIX).unwrap_or(name);
        let n: u64 = index
            .parse()
            .ok()
            .filter(|n: &u64| n.to_string() == index)?;
        let (len, are_files) = self.planes_in(view, directory)?;
        if n >= len || are_files == (index == name) {
            return None;
        }
        let number = locked(self.catalogue().numbers()).of(directory, index);
        let number = number.filter(|number| *number < NUMBERS)?;
        Some(if are_files {
            Node::View(view, number)
        } else {
            Node::ViewDir(view, number)
        })
    }
}
