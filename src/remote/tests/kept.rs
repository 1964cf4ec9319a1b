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
    // as a listing says it, or the server when it was asked for it; or the same bytes were stored once more
    let told = |time| Identity::new(bytes.len() as u64, Some(ETAG.to_owned()), time);
    let later = std::time::UNIX_EPOCH + Duration::from_secs(9);
    let place = at(&stub.url("/a.asdf"));
    for known in [identity, told(None), told(Some(later))] {
        let again = remote
            .open_known(&place, Some(known.clone()), &Arc::default())
            .unwrap();
        assert_eq!(read_all(&*again, u64::MAX).unwrap(), bytes);
        // else it would seem to change with each look
        assert_eq!(*again.identity(), known);
    }
    assert_eq!((stub.requests().len(), stub.sent()), (requests, sent));
    // of another state nothing is taken
    let other = Identity::new(bytes.len() as u64, Some("\"two\"".to_owned()), None);
    let again = remote
        .open_known(&place, Some(other), &Arc::default())
        .unwrap();
    assert_eq!(read_all(&*again, u64::MAX).unwrap(), bytes);
    assert!(stub.requests().len() > requests);
}

/// The end was fetched with each file, also of those of which only the text was read.
#[test]
fn the_end_is_fetched_when_it_is_read() {
    let bytes = bytes(MIB);
    let stub = server(&bytes, |_, answer| answer);
    let object = open(&remote(), &stub).unwrap();
    let mut buf = vec![0; 200_000];
    object.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(buf, bytes[..200_000]);
    assert_eq!(stub.sent(), 256 << 10, "and nothing behind that");
    let lines = || -> std::collections::BTreeMap<_, _> {
        let traffic = Arc::default();
        let again = remote();
        let object = again.open_known(&at(&stub.url("/a.asdf")), None, &traffic);
        object.unwrap().read_exact_at(&mut [0; 9], 0).unwrap();
        traffic.lines().into_iter().collect()
    };
    let lines = lines();
    assert_eq!(lines["server"], stub.url(""));
    assert_eq!(lines["requests"], "1, 65536 bytes came");
    assert_eq!(lines["hits"], "1 pieces in memory, 0 on disk");
    assert_eq!(lines["error"], "none");
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
    let stub = server(&bytes, |_, answer| answer);
    let remote = remote();
    let place = at(&stub.url("/a.asdf"));
    let (known, in_parts) = remote.probe(&place, None, &Arc::default()).unwrap();
    assert!(in_parts && stub.sent() == 1);
    let (again, _) = remote
        .probe(&place, Some(known.clone()), &Arc::default())
        .unwrap();
    assert!(again.is_same(&known) && stub.sent() == 1);
}
