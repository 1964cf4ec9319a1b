//! Names under `arrays/`, from trees.

use super::*;
use crate::asdf::sample::Sample;
use crate::asdf::{OpenOptions, Snapshot};
use crate::codec::Cache;
use crate::source::Memory;

/// A file with this tree, in which `A` stands for an array.
fn snapshot(body: &str) -> Snapshot {
    let array = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0> [1]";
    let text = format!("#ASDF 1.0.0\n---\n{}\n...\n", body.replace('A', array));
    let file = Memory::new(Sample::new().text(text.as_bytes()).bytes());
    Snapshot::read(None, Arc::new(file), Cache::new(0), OpenOptions::default()).unwrap()
}

fn catalogue(numbers: &Arc<Mutex<Numbers>>, body: &str) -> Catalogue {
    Catalogue::of(&snapshot(body), numbers)
}

fn names(catalogue: &Catalogue, directory: u32) -> Vec<String> {
    let (entries, mut position) = (catalogue.entries(directory).unwrap(), 0);
    let next = || catalogue.next(&entries, &mut position);
    let names = std::iter::from_fn(next);
    names.map(|(name, _)| name.into_string().unwrap()).collect()
}

#[test]
fn an_array_is_two_files_in_the_directory_of_its_path() {
    let found = catalogue(&Arc::default(), "{meta: {flux: A}, data: A}");
    assert_eq!(names(&found, 0), ["meta", "data.bin", "data.npy"]);
    let Some(Node::ArrayDir(meta)) = found.lookup(0, "meta".as_ref()) else {
        panic!("no directory")
    };
    assert_eq!(names(&found, meta), ["flux.bin", "flux.npy"]);
    let Some(Node::Array(flux, Format::Bin)) = found.lookup(meta, "flux.bin".as_ref()) else {
        panic!("no file")
    };
    assert_eq!(found.array(flux).unwrap().0, 0);
    assert_eq!(found.directory_of(meta), Some(0));
    assert_eq!(
        [0, meta, flux].map(|n| found.subdirectories(n)),
        [Some(1), Some(0), None]
    );
    let path = |node| found.path(node).unwrap();
    assert_eq!(path(Node::Array(flux, Format::Npy)), "arrays/meta/flux.npy");
    assert_eq!(path(Node::ArrayDir(meta)), "arrays/meta");
    assert_eq!(found.lookup(0, "flux.bin".as_ref()), None);
}

#[test]
fn a_save_changes_no_number() {
    let numbers = Arc::default();
    let before = catalogue(&numbers, "{a: A, b: A, c: A}");
    let after = catalogue(&numbers, "{c: A, x: A, a: A}");
    for name in ["a.bin", "c.npy"] {
        assert_eq!(
            before.lookup(0, name.as_ref()),
            after.lookup(0, name.as_ref())
        );
    }
    assert_eq!(after.lookup(0, "b.bin".as_ref()), None);
}

/// The way from the directory that holds a link to its target.
fn target(catalogue: &Catalogue, link: &str) -> String {
    let (directory, name) = link.rsplit_once('/').unwrap_or(("", link));
    let names = directory.split('/').filter(|name| !name.is_empty());
    let directory = names.fold(0, |within, name| {
        match catalogue.lookup(within, name.as_ref()) {
            Some(Node::ArrayDir(number)) => number,
            other => panic!("{name}: {other:?}"),
        }
    });
    match catalogue.lookup(directory, name.as_ref()) {
        Some(Node::ArrayLink(link)) => catalogue.target(link).unwrap(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn links_have_targets() {
    let found = catalogue(&Arc::default(), "{a: &a {x: &x A}, b: *a, y: *x}");
    assert_eq!(names(&found, 0), ["a", "b", "y.bin", "y.npy"]);
    assert_eq!(target(&found, "b"), "a");
    assert_eq!(target(&found, "y.npy"), "a/x.npy");
}

#[test]
fn the_way_between_places_is_relative() {
    let found = catalogue(
        &Arc::default(),
        "{a: &a {x: &x A, a.bin: A, x.npy: {z: &z A}}, b: *a, y: *x, d: {m: &m A, e: {f: *x, g: *a, l: *m}, h: *z, i: {$ref: '#/j/k'}}, j: {k: A}}",
    );
    for (link, want) in [
        ("y.bin", "a/x.bin"),
        ("b", "a"),
        ("d/e/f.npy", "../../a/x.npy"),
        ("d/e/g", "../../a"),
        ("d/e/l.npy", "../m.npy"),
        ("d/h.bin", "../a/x%2Enpy/z.bin"),
        // what it leads to comes behind it
        ("d/i.bin", "../j/k.bin"),
    ] {
        assert_eq!(target(&found, link), want, "{link}");
    }
}
