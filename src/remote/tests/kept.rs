//! Objects that are opened again.

use super::*;

/// A member that was closed for another one was fetched again as a whole.
#[test]
fn an_object_that_is_opened_again_costs_nothing_that_is_here() {
    let bytes = bytes(MIB + 900);
    let stub = server(&bytes, |_, answer| answer);
    let remote = remote();
    let first = open(&remote, &stub).unwrap();
    assert_eq!(read_all(&*first, u64::MAX).unwrap(), bytes);
    let identity = first.identity().clone();
    drop(first);
    let (requests, sent) = (stub.requests().len(), stub.sent());
    // as a listing says it, or the server when it was asked for it
    let listed = Identity::new(bytes.len() as u64, Some(ETAG.to_owned()), None);
    let place = at(&stub.url("/a.asdf"));
    for known in [identity, listed] {
        let again = remote.open_known(&place, Some(known)).unwrap();
        assert_eq!(read_all(&*again, u64::MAX).unwrap(), bytes);
    }
    assert_eq!((stub.requests().len(), stub.sent()), (requests, sent));
    // of another state nothing is taken
    let other = Identity::new(bytes.len() as u64, Some("\"two\"".to_owned()), None);
    let again = remote.open_known(&place, Some(other)).unwrap();
    assert_eq!(read_all(&*again, u64::MAX).unwrap(), bytes);
    assert!(stub.requests().len() > requests);
}

#[test]
fn the_start_is_a_piece_and_the_end_a_small_one() {
    let bytes = bytes(MIB);
    let stub = server(&bytes, |_, answer| answer);
    let object = open(&remote(), &stub).unwrap();
    let mut buf = [0; 4096];
    object.read_exact_at(&mut buf, (MIB - 4096) as u64).unwrap();
    assert_eq!(buf, bytes[MIB - 4096..]);
    let mut buf = vec![0; 60_000];
    object.read_exact_at(&mut buf, 0).unwrap();
    assert!(stub.sent() <= (64 << 10) + 4096, "{}", stub.sent());
}

/// A server that knows the tag sends no byte.
#[test]
fn a_state_that_is_known_is_asked_for_by_its_tag() {
    let bytes = bytes(MIB);
    let content = bytes.clone();
    let stub = Stub::new(move |request| match request.header("if-none-match") {
        Some(ETAG) => Answer::new(304, b"").with("ETag", ETAG),
        _ => Answer::good(request, &content, ETAG),
    });
    let remote = remote();
    let place = at(&stub.url("/a.asdf"));
    let (known, in_parts) = remote.probe(&place, None).unwrap();
    assert!(in_parts && stub.sent() == 1);
    let (again, _) = remote.probe(&place, Some(known.clone())).unwrap();
    assert!(again.is_same(&known) && stub.sent() == 1);
}
