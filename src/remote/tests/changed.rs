//! Objects that change while they are read.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::*;

#[test]
fn an_object_that_has_changed_can_never_be_read_again() {
    let bytes = bytes(MIB);
    for honours in [true, false] {
        let state = Arc::new(Mutex::new(ETAG));
        let (now, old) = (Arc::clone(&state), bytes.clone());
        let stub = Stub::new(move |request| {
            let etag = *now.lock().unwrap();
            let mut request = request.clone();
            if !honours {
                request.headers.remove("if-match");
            }
            Answer::good(&request, &old, etag)
        });
        let remote = remote();
        let object = open(&remote, &stub).unwrap();
        let pinned = object.identity().clone();
        assert!(
            remote
                .probe(object.location(), None, &Arc::default())
                .unwrap()
                .0
                .is_same(&pinned)
                && object.changed().get().is_none()
        );
        *state.lock().unwrap() = "\"two\"";
        let read = |offset| object.read_exact_at(&mut [0; 9], offset);
        assert!(matches!(read(500_000), Err(Library::Stale { .. })));
        *state.lock().unwrap() = ETAG;
        for offset in [0, 500_000, MIB as u64 - 9] {
            let error = read(offset).unwrap_err();
            assert!(
                matches!(&error, Library::Stale { why } if why.contains("open it again")),
                "{error}"
            );
        }
        assert!(object.changed().get().is_some());
        assert!(read_all(&*open(&remote, &stub).unwrap(), u64::MAX).unwrap() == bytes);
    }
}

#[test]
fn a_weak_tag_is_compared_and_not_asked_for() {
    let bytes = bytes(300_000);
    let body = bytes.clone();
    // as Apache: weak while the file is young
    let stub = Stub::new(move |request| {
        assert!(
            !request
                .header("if-match")
                .is_some_and(|tag| tag.contains("W/"))
        );
        let etag = if request.number < 2 {
            "W/\"one\""
        } else {
            ETAG
        };
        Answer::part(request, &body).with("ETag", etag)
    });
    let object = open(&remote(), &stub).unwrap();
    assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
}

/// The error was one of the server, and what was here of the old state could be read on.
#[test]
fn an_object_that_has_become_shorter_has_changed() {
    let bytes = bytes(MIB);
    let len = Arc::new(AtomicUsize::new(MIB));
    let now = Arc::clone(&len);
    let stub = Stub::new(move |request| {
        let len = now.load(Ordering::Relaxed);
        Answer::part(request, &bytes[..len]).with("ETag", &format!("W/\"{len}\""))
    });
    let object = open(&remote(), &stub).unwrap();
    len.store(300_000, Ordering::Relaxed);
    for offset in [600_000, 0] {
        let error = object.read_exact_at(&mut [0; 9], offset).unwrap_err();
        assert!(matches!(error, Library::Stale { .. }), "{error}");
    }
    assert!(object.changed().get().is_some());
}

/// Each state is filled with its own number, so that a read with two of them is seen.
#[test]
fn ten_thousand_reads_while_the_object_is_replaced_have_no_wrong_byte() {
    thread::scope(|scope| {
        for honours in [true, false] {
            scope.spawn(move || five_thousand_reads(honours));
        }
    });
}

fn five_thousand_reads(honours: bool) {
    const LEN: usize = 400_000;
    let version = Arc::new(AtomicUsize::new(1));
    let now = Arc::clone(&version);
    let stub = Stub::new(move |request| {
        let number = now.load(Ordering::Relaxed);
        let etag = format!("\"{number}\"");
        if honours
            && request
                .header("if-match")
                .is_some_and(|wanted| wanted != etag)
        {
            return Answer::new(412, b"");
        }
        let fill = u8::try_from(number % 251).unwrap();
        Answer::part(request, &vec![fill; LEN]).with("ETag", &etag)
    });
    // too little for the object, so that the server is asked all the time
    let remote = remote_with(256 << 10, options());
    let (mut reads, mut stale, mut opened) = (0, 0, 0);
    let mut seed = 7_usize;
    while reads < 5_000 {
        let object = match open(&remote, &stub) {
            Ok(object) => object,
            Err(error) => panic!("{error}"),
        };
        opened += 1;
        let etag = object.identity().to_string();
        let number: usize = etag.split('"').nth(1).unwrap().parse().unwrap();
        for _ in 0..40 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if (seed >> 33).is_multiple_of(30) {
                version.fetch_add(1, Ordering::Relaxed);
            }
            let start = (seed >> 16) % (LEN - 1);
            let len = ((seed >> 40) % 100_000).min(LEN - start);
            let mut buf = vec![0xFF; len];
            match object.read_exact_at(&mut buf, start as u64) {
                Ok(()) => assert!(buf.iter().all(|&byte| usize::from(byte) == number % 251)),
                Err(Library::Stale { .. }) => stale += 1,
                Err(other) => panic!("{other}"),
            }
            reads += 1;
        }
    }
    assert!(stale > 100 && opened > 100, "{stale} {opened}");
}

/// It was only said that it answered 200, which is no fault to most people.
#[test]
fn a_server_that_no_longer_sends_parts_is_told_of() {
    let bytes = bytes(MIB);
    let all = bytes.clone();
    let stub = server(&bytes, move |request, answer| match request.number {
        0 => answer,
        _ => Answer::new(200, &all).with("ETag", ETAG),
    });
    let object = open(&remote(), &stub).unwrap();
    let error = object.read_exact_at(&mut [0; 9], 500_000).unwrap_err();
    assert!(error.to_string().contains("all of the file"), "{error}");
    assert_eq!(errno(&error), Some(5));
}

/// One server of several made a read fail.
#[test]
fn all_of_a_file_that_comes_once_instead_of_a_part_is_asked_for_again() {
    let bytes = bytes(MIB);
    let all = bytes.clone();
    let stub = server(&bytes, move |request, answer| match request.number {
        1 | 2 => Answer::new(200, &all).with("ETag", ETAG),
        _ => answer,
    });
    let object = open(&remote(), &stub).unwrap();
    let mut buf = [0; 9];
    object.read_exact_at(&mut buf, 500_000).unwrap();
    assert_eq!(buf, bytes[500_000..500_009]);
}
