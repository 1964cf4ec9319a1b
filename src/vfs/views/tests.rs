use super::*;
use crate::asdf::OpenOptions;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::source::{Loan, read_all};
use crate::vfs::testing::scratch;
use crate::vfs::{Access, Bytes, Detail, Handle, Open, Vfs, VfsOptions};

/// A header of these cards and its data, each filled up to whole FITS blocks.
fn unit(cards: &[&str], data: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = cards
        .iter()
        .flat_map(|card| format!("{card:<80}").into_bytes())
        .collect();
    out.resize(2880, b' ');
    out.extend(data);
    out.resize(out.len().next_multiple_of(2880), 0);
    out
}

fn mounted(bytes: &[u8]) -> Vfs {
    mounted_in(&tempfile::NamedTempFile::new().unwrap(), bytes)
}

fn mounted_in(file: &tempfile::NamedTempFile, bytes: &[u8]) -> Vfs {
    std::fs::write(file.path(), bytes).unwrap();
    let open = Arc::new(file.reopen().unwrap());
    let cache = Cache::new(1 << 20);
    let stat = crate::source::Stat::from(&open.metadata().unwrap());
    let snapshot = Snapshot::open(open, cache, OpenOptions::default()).unwrap();
    Vfs::new(
        file.path(),
        snapshot,
        stat,
        Err("a test".to_owned()),
        VfsOptions::default(),
        scratch(),
    )
}

#[test]
fn who_has_a_unit_open_is_shown_what_another_program_makes_of_it() {
    let asdf = Sample::new().block(b"abc").bytes();
    let cards = [
        "SIMPLE  = T",
        "BITPIX  = 8",
        "NAXIS   = 1",
        "NAXIS1  = 4",
        "END",
    ];
    let axis = format!("NAXIS1  = {}", asdf.len());
    let second = [
        "XTENSION= 'IMAGE'",
        "BITPIX  = 8",
        "NAXIS   = 1",
        &axis,
        "EXTNAME = 'ASDF'",
        "END",
    ];
    let bytes = |data| [unit(&cards, data), unit(&second, &asdf)].concat();
    let file = tempfile::NamedTempFile::new().unwrap();
    let vfs = mounted_in(&file, &bytes(b"1111"));
    let unit = Node::HduBin(0);
    let open = || vfs.open_now(unit, Access::default()).unwrap().handle;
    let shown = |handle: &Handle| {
        let Open::Data(open) = &handle.open else {
            panic!("a unit is no data")
        };
        let (source, _reading) = open.current_source(&vfs.saves)?;
        Ok::<_, Error>(read_all(&*source, 4).unwrap())
    };
    let old = open();
    assert_eq!(shown(&old).unwrap(), b"1111");
    let version = vfs.shown.now().version(unit);
    std::fs::write(file.path(), bytes(b"2222")).unwrap();
    vfs.saves.refresh_soon();
    vfs.refresh();
    assert!(vfs.shown.now().version(unit) > version);
    assert_eq!(shown(&open()).unwrap(), b"2222");
    shown(&old).unwrap_err();
}

fn names(vfs: &Vfs, directory: Node) -> Vec<String> {
    let opened = vfs.opendir(directory).unwrap();
    let mut names = Vec::new();
    vfs.readdir(&opened, 0, Detail::Full, &mut |_, name, _| {
        names.push(name.to_str().unwrap().to_owned());
        false
    })
    .unwrap();
    names
}

#[test]
fn every_unit_of_a_fits_file_is_two_files() {
    let asdf = Sample::new().block(b"abc").bytes();
    let first = unit(&["SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 0", "END"], b"");
    let axis = format!("NAXIS1  = {}", asdf.len());
    let second = unit(
        &[
            "XTENSION= 'IMAGE'",
            "BITPIX  = 8",
            "NAXIS   = 1",
            &axis,
            "EXTNAME = 'ASDF'",
            "END",
        ],
        &asdf,
    );
    let vfs = mounted(&[&first[..], &second].concat());
    assert!(names(&vfs, Node::Root).contains(&HDUS.to_owned()));
    let directory = vfs.lookup(Node::Root, HDUS.as_ref()).unwrap().node;
    let wanted = [
        "0-PRIMARY,1.bin",
        "0-PRIMARY,1.hdr",
        "1-ASDF,1.bin",
        "1-ASDF,1.hdr",
    ];
    assert_eq!(names(&vfs, directory), wanted);
    for (name, want) in wanted
        .iter()
        .zip([&b""[..], &first, &asdf, &second[..2880]])
    {
        let attr = vfs.lookup(directory, name.as_ref()).unwrap();
        assert_eq!(attr.size, want.len() as u64, "{name}");
        let opened = vfs.open_now(attr.node, Access::default()).unwrap();
        let read = match vfs.read(&opened.handle, 0, 1 << 16).unwrap() {
            Bytes::Owned(bytes) => bytes.len(),
            Bytes::Lent(Loan::Mapped(slice), _) => slice.len(),
            Bytes::Lent(Loan::Shared(_, range), _) => range.len(),
        };
        assert_eq!(read, want.len(), "{name}");
        let source = hdu_source(&vfs.shown.now().snapshot, attr.node);
        let bytes = read_all(&*source.unwrap(), 1 << 16).unwrap();
        assert_eq!(bytes, want, "{name}");
    }
    assert!(vfs.lookup(directory, "2.bin".as_ref()).is_err());
    let beyond = Node::HduBin(2);
    assert!(vfs.open_now(beyond, Access::default()).is_err());
}

#[test]
fn other_files_have_no_units() {
    let vfs = mounted(&Sample::new().bytes());
    assert!(!names(&vfs, Node::Root).contains(&HDUS.to_owned()));
    assert!(vfs.lookup(Node::Root, HDUS.as_ref()).is_err());
}

#[test]
fn a_directory_never_has_the_name_of_a_file() {
    let view = View::Fits;
    for (name, here) in [
        ("a", "a"),
        ("a.fits", "a%2Efits"),
        ("a%2Ebin", "a%2Ebin"),
        (".fits", "%2Efits"),
    ] {
        assert_eq!(view.directory_name(name), here);
        assert_eq!(view.directory_in_arrays(here).as_deref(), Some(name));
    }
    assert_eq!(view.directory_in_arrays("a.fits"), None);
}
