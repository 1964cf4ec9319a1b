//! Headers that lie alone: little more than they is fetched.

use super::*;
use crate::source::Peek;

/// A walk along headers that lie a megabyte from each other cost 64 KiB for each.
#[test]
fn what_lies_between_headers_is_not_fetched() {
    let bytes = bytes(24 * MIB);
    let stub = server(&bytes, |_, answer| answer);
    let object = open(&remote(), &stub).unwrap();
    let mut peek = Peek::default();
    let offsets = (2..20).map(|n| n * MIB + 300);
    peek.read(&*object, MIB as u64, 16).unwrap();
    let opened = stub.sent();
    for offset in offsets.clone() {
        let header = peek.read(&*object, offset as u64, 16).unwrap();
        assert_eq!(header, &bytes[offset..offset + 16]);
    }
    let fetched = stub.sent() - opened;
    assert!(fetched <= 18 * 1024, "{fetched} bytes");
    // they stay, and one that has come with other bytes is not fetched once more
    let mut buf = vec![0; MIB];
    object.read_exact_at(&mut buf, 21 << 20).unwrap();
    let (sent, requests) = (stub.sent(), stub.requests().len());
    let mut peek = Peek::default();
    for offset in offsets.chain([21 * MIB + 9]).skip(1) {
        let mut buf = [0; 16];
        object.read_header_at(&mut buf, offset as u64).unwrap();
        assert_eq!(buf, bytes[offset..offset + 16]);
    }
    assert_eq!((stub.sent(), stub.requests().len()), (sent, requests));
    // headers that lie close together come with what lies between them
    let near = (0..40).map(|n| 8 * MIB + n * 3000);
    let before = stub.requests().len();
    for offset in near {
        peek.read(&*object, offset as u64, 16).unwrap();
    }
    let asked = stub.requests().len() - before;
    assert!(asked <= 6, "{asked} requests for headers in 120 KB");
}

/// A change that a header shows is one of the whole object.
#[test]
fn nothing_is_read_once_a_header_has_shown_a_change() {
    let bytes = bytes(8 * MIB);
    let changed = Arc::<AtomicBool>::default();
    let then = Arc::clone(&changed);
    let content = bytes.clone();
    let stub = Stub::new(move |request| {
        let tag = if then.load(Ordering::Relaxed) {
            "\"two\""
        } else {
            ETAG
        };
        Answer::good(request, &content, tag)
    });
    let object = open(&remote(), &stub).unwrap();
    let mut buf = [0; 16];
    object.read_exact_at(&mut buf, 0).unwrap();
    assert!(object.changed().get().is_none());
    changed.store(true, Ordering::Relaxed);
    let found = object.read_header_at(&mut buf, 3 << 20);
    assert!(matches!(found, Err(Library::Stale { .. })), "{found:?}");
    assert!(object.changed().get().is_some());
    let found = object.read_exact_at(&mut buf, 0);
    assert!(matches!(found, Err(Library::Stale { .. })), "{found:?}");
}
