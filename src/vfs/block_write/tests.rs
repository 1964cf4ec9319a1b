//! What is written into blocks and arrays, and what readers see of it meanwhile.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::asdf::OpenOptions;
use crate::asdf::sample::Sample;
use crate::error::Error as Library;
use crate::source::{FileSource, Loan, Source, len_u64};
use crate::vfs::node::Node;
use crate::vfs::testing::{writable, writable_with};
use crate::vfs::{Access, Attributes, Bytes, Call, Error, Format, Handle, Open, Vfs};

const TEXT: &[u8] = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
    x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";

fn read(vfs: &Vfs, fh: &Handle) -> Vec<u8> {
    match vfs.read(fh, 0, 1 << 20).unwrap() {
        Bytes::Owned(bytes) => bytes.to_vec(),
        Bytes::Lent(Loan::Shared(bytes, range), _) => (*bytes).as_ref()[range].to_vec(),
        Bytes::Lent(Loan::Mapped(_), _) => panic!("so few bytes are not mapped"),
    }
}

/// A read of an array whose block was emptied and was being written failed until the save.
#[test]
fn an_array_of_an_emptied_block_is_what_was_saved_until_the_block_is() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let open = |node: Node, write| {
        let access = Access {
            write,
            truncate: write,
            ..Access::default()
        };
        vfs.open_now(node, access).unwrap().handle
    };
    let bin = Node::Array(number, Format::Bin);
    let before = open(bin, false);
    let block = open(Node::Block(0), true);
    assert_eq!(read(&vfs, &before), b"abc");
    vfs.write(&block, 0, b"ABCD", false).unwrap();
    assert_eq!(read(&vfs, &before), b"abc");
    assert_eq!(read(&vfs, &block), b"ABCD");
    vfs.flush(&block, 0).unwrap();
    assert_eq!(read(&vfs, &open(bin, false)), b"ABC");
    let stale = vfs.read(&before, 0, 3).map(drop).unwrap_err();
    assert_eq!(
        stale.errno(Call::Read),
        rustix::io::Errno::STALE.raw_os_error()
    );
}

/// An NPY file of bytes.
fn npy(fortran_order: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let text =
        format!("{{'descr': '|u1', 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n");
    let len = u16::try_from(text.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\0", &len[..], text.as_bytes(), elements].concat()
}

fn stored(vfs: &Vfs) -> Vec<u8> {
    let block = vfs.shown.now().snapshot.block(0).unwrap();
    crate::source::read_all(&*block, 100).unwrap()
}

/// The kernel has one set of pages for all descriptors of a file. What it sent through one that had emptied it, of a map that another process
/// had synced, was taken for a part of that one's file, and lost with it.
#[test]
fn all_handles_of_a_file_write_it_anew() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let array = Node::Array(number, Format::Bin);
    let open = |truncate| opened_for_writing(&vfs, array, truncate);
    let (first, second, other, idle) = (open(true), open(true), open(false), open(false));
    vfs.write(&first, 0, b"A", false).unwrap();
    vfs.write(&other, 2, b"C", true).unwrap();
    assert_eq!(read(&vfs, &second), b"A\0C");
    assert_eq!(stored(&vfs), b"abcd");
    // any of them saves it when it is whole
    vfs.flush(&idle, 0).unwrap();
    assert_eq!(stored(&vfs), b"A\0Cd");
    vfs.flush(&second, 0).unwrap();
    vfs.release(&second);
    // each is told that it is not whole
    let again = open(true);
    vfs.write(&again, 0, b"xy", false).unwrap();
    vfs.write(&other, 1, b"z", true).unwrap();
    vfs.flush(&again, 0).unwrap_err();
    for handle in [again, first] {
        vfs.release(&handle);
    }
    for _ in 0..2 {
        let refused = vfs.flush(&other, 0).unwrap_err().to_string();
        assert!(refused.contains("2 bytes written of 3"), "{refused}");
    }
    // the last one gives it up; the kernel has pages of it, so the file is another one then
    let version = || vfs.shown.now().version(array);
    let before = version();
    for handle in [other, idle] {
        vfs.release(&handle);
    }
    assert_ne!(version(), before);
    assert_eq!(
        (stored(&vfs), vfs.losses().unsaved.len()),
        (b"A\0Cd".to_vec(), 1)
    );
    let anew = open(false);
    vfs.write(&anew, 1, b"B", false).unwrap();
    vfs.flush(&anew, 0).unwrap();
    assert_eq!(
        (stored(&vfs), vfs.losses().unsaved.len()),
        (b"ABCd".to_vec(), 0)
    );
    vfs.release(&anew);
}

/// A descriptor that has emptied an array and written all of it may go on, as `numpy.memmap` does with mode `w+`.
#[test]
fn a_file_that_is_whole_is_written_as_any_other() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let handle = opened_for_writing(&vfs, Node::Array(number, Format::Bin), true);
    vfs.write(&handle, 2, b"C", false).unwrap();
    assert_eq!(read(&vfs, &handle), b"\0\0C");
    vfs.flush(&handle, 0).unwrap();
    assert_eq!(stored(&vfs), b"\0\0Cd");
    vfs.write(&handle, 0, b"A", true).unwrap();
    vfs.release(&handle);
    assert_eq!(stored(&vfs), b"A\0Cd");
}

/// `numpy.save` made an array another file: a descriptor that was open beside could write no more, and an open was busy until the close.
#[test]
fn an_array_that_is_written_anew_with_its_header_stays_the_file_that_it_was() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let array = Node::Array(number, Format::Npy);
    let version = || vfs.shown.now().version(array);
    let reader = vfs.open_now(array, Access::default()).unwrap().handle;
    let (before, header) = (version(), read(&vfs, &reader));
    let header = header.strip_suffix(b"abc").unwrap();
    let anew = |file: &[u8]| {
        let handle = opened_for_writing(&vfs, array, true);
        vfs.write(&handle, 0, file, false).unwrap();
        vfs.flush(&handle, 0).unwrap();
        handle
    };
    let saved = anew(&[header, b"ABC"].concat());
    let beside = opened_for_writing(&vfs, array, false);
    vfs.write(&beside, len_u64(header.len()), b"x", false)
        .unwrap();
    for handle in [&saved, &beside] {
        vfs.flush(handle, 0).unwrap();
        vfs.release(handle);
    }
    assert_eq!(read(&vfs, &reader), [header, b"xBC"].concat());
    assert_eq!(version(), before);
    // of a header that is spelled otherwise the kernel has other bytes
    vfs.release(&anew(&npy("False", "(3,)", b"123")));
    assert_eq!(stored(&vfs), b"123d");
    assert_ne!(version(), before);
}

/// A descriptor of an array that another one was to take the place of read the bytes of the old one, and a map wrote them back.
#[test]
fn what_is_written_of_another_array_is_read() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abc"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let array = Node::Array(number, Format::Npy);
    let handle = opened_for_writing(&vfs, array, true);
    let reader = vfs.open_now(array, Access::default()).unwrap().handle;
    let whole = npy("False", "(5,)", b"12345");
    vfs.write(&handle, 0, &whole[..20], false).unwrap();
    assert_eq!(read(&vfs, &handle), &whole[..20]);
    vfs.write(&handle, 20, &whole[20..whole.len() - 2], false)
        .unwrap();
    for handle in [&handle, &reader] {
        let shown = read(&vfs, handle);
        assert_eq!(shown, &whole[..whole.len() - 2]);
    }
    for handle in [handle, reader] {
        vfs.release(&handle);
    }
}

/// What stood behind the bytes that were written over was lost, and the rest of the header was refused.
#[test]
fn a_part_of_a_header_can_be_written_over() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abc"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let array = Node::Array(number, Format::Npy);
    let handle = opened_for_writing(&vfs, array, true);
    let whole = npy("False", "(5,)", b"12345");
    let mut begun = whole[..30].to_vec();
    begun[8] = 0xFF;
    vfs.write(&handle, 0, &begun, false).unwrap();
    vfs.write(&handle, 8, &whole[8..10], false).unwrap();
    assert_eq!(read(&vfs, &handle), &whole[..30]);
    vfs.write(&handle, 30, &whole[30..], false).unwrap();
    vfs.flush(&handle, 0).unwrap();
    vfs.release(&handle);
    assert_eq!(stored(&vfs), b"12345");
}

/// `>` and a writer that appends: the kernel appends at the size that the array has.
#[test]
fn an_array_that_was_emptied_can_be_appended_to() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let access = Access {
        write: true,
        truncate: true,
        ..Access::default()
    };
    let handle = vfs
        .open_now(Node::Array(number, Format::Bin), access)
        .unwrap()
        .handle;
    for bytes in [b"1", b"2", b"3"] {
        vfs.write(&handle, None, bytes, false).unwrap();
    }
    vfs.write(&handle, None, b"4", false).unwrap();
    let refused = vfs.flush(&handle, 0).unwrap_err().to_string();
    assert!(refused.contains("4 bytes written of 3"), "{refused}");
    vfs.setattr(
        Node::Array(number, Format::Bin),
        Some(&handle),
        &Attributes {
            size: Some(0),
            ..Attributes::default()
        },
    )
    .unwrap();
    vfs.write(&handle, 0, b"xyz", false).unwrap();
    vfs.flush(&handle, 0).unwrap();
    vfs.write(&handle, 3, b"4", false).unwrap_err();
    vfs.release(&handle);
    assert_eq!(stored(&vfs), b"xyzd");
}

/// A close after a write that had failed said that the array was not whole, or nothing at all.
#[test]
fn a_close_says_why_a_write_of_an_array_has_failed() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let access = Access {
        write: true,
        truncate: true,
        ..Access::default()
    };
    let array = Node::Array(number, Format::Bin);
    let handle = vfs.open_now(array, access).unwrap().handle;
    let Open::Data(open) = &handle.open else {
        panic!("no data")
    };
    vfs.write(&handle, 0, b"A", false).unwrap();
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let failed = Library::io("the spool", full).into();
    open.writes().unwrap().note_write(&Err(failed), false);
    vfs.write(&handle, 1, b"BC", false).unwrap();
    let failed = vfs.flush(&handle, 0);
    assert!(matches!(failed, Err(Error::Library(Library::Io { .. }))));
    let truncated = Attributes {
        size: Some(0),
        ..Attributes::default()
    };
    vfs.setattr(array, Some(&handle), &truncated).unwrap();
    vfs.write(&handle, 0, b"123", false).unwrap();
    vfs.flush(&handle, 0).unwrap();
    vfs.release(&handle);
}

fn opened_for_writing(vfs: &Vfs, node: Node, truncate: bool) -> Handle {
    let access = Access {
        write: true,
        truncate,
        ..Access::default()
    };
    vfs.open_now(node, access).unwrap().handle
}

/// Another program changes FILE while a block is being edited: the first flush of two writers was told, and the other one that all was
/// well; and so was the second flush of a single writer, as of numpy, which passes over the first.
#[test]
fn each_writer_is_told_at_each_flush_that_an_edit_can_not_be_saved() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc").block(b"def"));
    let write = Access {
        write: true,
        ..Access::default()
    };
    let open = |n| vfs.open_now(Node::Block(n), write).unwrap().handle;
    let (first, second) = (open(0), open(0));
    vfs.write(&first, 0, b"A", false).unwrap();
    vfs.write(&second, 3, b"B", false).unwrap();
    let path = dir.path().join("a.asdf");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
    for _ in 0..2 {
        for handle in [&first, &second] {
            let told = vfs.flush(handle, 0);
            let stale = matches!(told, Err(Error::Library(Library::Stale { .. })));
            assert!(stale, "{told:?}");
        }
    }
    for handle in [first, second] {
        vfs.release(&handle);
    }
    // as long as the same file is not written again
    std::fs::write(&path, &bytes).unwrap();
    vfs.saves.refresh_soon();
    vfs.refresh();
    let unsaved = || vfs.losses().unsaved.len();
    assert_eq!(unsaved(), 1);
    for (n, left) in [(1, 1), (0, 0)] {
        let handle = open(n);
        vfs.write(&handle, 0, b"x", false).unwrap();
        vfs.flush(&handle, 0).unwrap();
        assert_eq!(unsaved(), left);
    }
}

/// `close` returned 0, and the block had its bytes.
#[test]
fn a_block_that_is_emptied_once_more_is_to_be_empty() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let empty = Attributes {
        size: Some(0),
        ..Attributes::default()
    };
    let handle = opened_for_writing(&vfs, Node::Block(0), true);
    vfs.flush(&handle, 0).unwrap();
    assert_eq!(stored(&vfs), b"abc", "as it was emptied for what follows");
    vfs.setattr(Node::Block(0), Some(&handle), &empty).unwrap();
    vfs.flush(&handle, 0).unwrap();
    assert_eq!(stored(&vfs), b"");
}

/// It kept what another program had done to FILE from being shown, and all arrays from being read, until it was closed.
#[test]
fn a_descriptor_that_has_changed_nothing_keeps_nothing_from_being_shown() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let write = Access {
        write: true,
        ..Access::default()
    };
    let handle = vfs.open_now(Node::Block(0), write).unwrap().handle;
    let size = Attributes {
        size: Some(3),
        ..Attributes::default()
    };
    vfs.setattr(Node::Block(0), Some(&handle), &size).unwrap();
    let path = dir.path().join("a.asdf");
    std::fs::write(&path, Sample::new().block(b"abcdef").bytes()).unwrap();
    vfs.saves.refresh_soon();
    vfs.refresh();
    let reader = vfs
        .open_now(Node::Block(0), Access::default())
        .unwrap()
        .handle;
    assert_eq!(read(&vfs, &reader), b"abcdef");
    vfs.write(&handle, 0, b"x", false).unwrap_err();
    for handle in [handle, reader] {
        vfs.release(&handle);
    }
}

/// Several files of one block could be written at once, and each rule for two of them lost a byte somewhere.
#[test]
fn a_block_is_written_through_one_file_at_a_time() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abcd"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    let [bin, npy] = Format::ALL.map(|format| Node::Array(number, format));
    let try_open = |node| {
        let access = Access {
            write: true,
            ..Access::default()
        };
        vfs.open_now(node, access).map(|opened| opened.handle)
    };
    let first = try_open(bin).unwrap();
    let again = try_open(bin).unwrap();
    for other in [npy, Node::Block(0)] {
        let refused = try_open(other).map(drop).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "busy: its block is open for writing as arrays/x.bin; close that first"
        );
        assert_eq!(
            refused.errno(Call::Open),
            rustix::io::Errno::BUSY.raw_os_error()
        );
    }
    let elsewhere = vfs
        .open_now(Node::Block(0), Access::default())
        .unwrap()
        .handle;
    vfs.write(&first, 0, b"A", false).unwrap();
    assert_eq!(
        read(&vfs, &again),
        b"Abc",
        "other descriptors share its bytes"
    );
    vfs.read(&elsewhere, 0, 4).map(drop).unwrap_err();
    let elsewhere = || vfs.open_now(Node::Block(0), Access::default());
    vfs.lookup(Node::Blocks, "0.bin".as_ref()).unwrap();
    assert_eq!(read(&vfs, &elsewhere().unwrap().handle), b"Abcd");
    vfs.flush(&first, 0).unwrap();
    try_open(npy).map(drop).unwrap_err();
    vfs.flush(&again, 0).unwrap();
    // a descriptor that was copied, or a map, may still write
    try_open(Node::Block(0)).map(drop).unwrap_err();
    vfs.release(&first);
    // the kernel releases a handle some time after its descriptor was closed
    let block = thread::scope(|scope| {
        let opening = scope.spawn(|| try_open(Node::Block(0)));
        vfs.release(&again);
        match opening.join().unwrap() {
            // the kernel looks the name up again
            Err(Error::Library(Library::Stale { .. })) => try_open(Node::Block(0)).unwrap(),
            opened => opened.unwrap(),
        }
    });
    vfs.write(&block, 3, b"D", false).unwrap();
    vfs.flush(&block, 0).unwrap();
    vfs.release(&block);
    assert_eq!(stored(&vfs), b"AbcD");
}

/// A file whose bytes, once it is `closed`, come only when the test says so, or not at all.
struct Held {
    file: Arc<FileSource>,
    closed: AtomicBool,
    asked: Mutex<Sender<()>>,
    /// Whether the bytes can be read.
    given: Mutex<Receiver<bool>>,
}

impl Source for Held {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Library> {
        if self.closed.swap(false, Ordering::Relaxed) {
            self.asked.lock().unwrap().send(()).unwrap();
            if !self.given.lock().unwrap().recv().unwrap() {
                let cause = io::ErrorKind::TimedOut.into();
                return Err(Library::io("reading", cause));
            }
        }
        self.file.read_exact_at(buf, offset)
    }
}

/// A sample with the block `abc`, that block open for writing, and its file, which tells when it is read and waits then.
struct Fixture {
    _dir: TempDir,
    vfs: Arc<Vfs>,
    source: Arc<Held>,
    open: Handle,
    is_asked: Receiver<()>,
    give: Sender<bool>,
}

fn fixture(options: OpenOptions) -> Fixture {
    let (asked, is_asked) = channel();
    let (give, given) = channel();
    let mut source = None;
    let (dir, vfs) = writable_with(&Sample::new().block(b"abc"), options, |file| {
        let held = Arc::new(Held {
            file,
            closed: AtomicBool::new(false),
            asked: Mutex::new(asked),
            given: Mutex::new(given),
        });
        source = Some(Arc::clone(&held));
        held
    });
    let access = Access {
        write: true,
        ..Access::default()
    };
    let open = vfs.open_now(Node::Block(0), access).unwrap().handle;
    Fixture {
        _dir: dir,
        vfs: Arc::new(vfs),
        source: source.unwrap(),
        open,
        is_asked,
        give,
    }
}

/// With `-o verify` all lookups and reads waited while the block of a first write was summed.
#[test]
fn a_block_is_opened_for_an_edit_while_others_are_looked_up() {
    let Fixture {
        _dir,
        vfs,
        source,
        open,
        is_asked,
        give,
    } = fixture(OpenOptions {
        verify: true,
        ..OpenOptions::default()
    });
    source.closed.store(true, Ordering::Relaxed);
    let writing = Arc::clone(&vfs);
    let writer = thread::spawn(move || writing.write(&open, 0, b"x", false).map(drop));
    is_asked.recv().unwrap();
    let (found, size) = channel();
    // Not joined: without the mend it waits for the writer.
    thread::spawn(move || {
        let attr = vfs.lookup(Node::Blocks, "0.bin".as_ref()).unwrap();
        let _ = found.send(attr.size);
    });
    let size = size.recv_timeout(Duration::from_mins(1));
    give.send(true).unwrap();
    assert_eq!(size, Ok(3));
    writer.join().unwrap().unwrap();
}

/// It had the number of the file whose loss was about to be shown, and its first write failed.
#[test]
fn no_writer_joins_a_file_whose_last_one_has_ended() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abcd"));
    let (state, file) = (vfs.shown.now(), Node::Block(0));
    let add = || vfs.blocks.add_writer(&state, 0, file, false);
    let written = add().ok().unwrap();
    assert!(vfs.blocks.leave(&written, true) && add().err() == Some(file));
    vfs.blocks.free(&written);
    assert!(add().is_ok());
}
