//! Servers that take long, and readers that do not wait for them.

use super::*;
use crate::codec::caller::while_wanted;

/// Each few bytes of a download gave the server as long again.
#[test]
fn a_download_that_trickles_is_given_up() {
    let stub =
        Stub::new(|_| Answer::new(200, &bytes(MIB)).how(How::Slow(10, Duration::from_millis(20))));
    // else it would take half an hour
    let error = open(&hasty(), &stub).map(drop).unwrap_err();
    assert_eq!(errno(&error.into()), Some(110));
}

/// A server that sent a little now and then kept a lookup for hours.
#[test]
fn a_download_takes_no_longer_than_a_multiple_of_the_timeout() {
    let body = bytes(32 * MIB);
    let little = How::Slow(128 << 10, Duration::from_millis(40));
    let stub = Stub::new(move |_| Answer::new(200, &body).how(little.clone()));
    let timeout = Duration::from_millis(100);
    let options = RemoteOptions {
        timeout,
        ..options()
    };
    // after 10 s it would be there
    let error = open(&remote_with(1 << 20, options), &stub).map(drop);
    let error = error.unwrap_err();
    assert!(error.to_string().contains("-o timeout="), "{error}");
    assert_eq!(errno(&error.into()), Some(110));
}

#[test]
fn a_server_that_hangs_is_given_up_and_then_asked_again() {
    let bytes = bytes(MIB);
    let stub = server(&bytes, |_, answer| answer.how(How::Hang));
    let error = open(&hasty(), &stub).map(drop).unwrap_err();
    assert_eq!(errno(&error.into()), Some(110));
    // the first connection of each piece hangs somewhere
    let stub = server(&bytes, |request, answer| match request.number % 3 {
        0 => answer.how(How::Hang),
        1 => answer.how(How::HangAfter(140_000)),
        _ => answer,
    });
    let remote = remote_with(
        64 << 20,
        RemoteOptions {
            timeout: Duration::from_millis(1200),
            ..options()
        },
    );
    let object = open(&remote, &stub).unwrap();
    assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
}

#[test]
fn a_slow_server_is_waited_for_as_long_as_something_comes() {
    let bytes = bytes(200_000);
    let stub = server(&bytes, |_, answer| {
        answer.how(How::Slow(20_000, Duration::from_millis(30)))
    });
    let timeout = Duration::from_millis(500);
    let remote = remote_with(
        64 << 20,
        RemoteOptions {
            timeout,
            ..options()
        },
    );
    let object = open(&remote, &stub).unwrap();
    assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
}

/// The next reader had the error of before, without a request.
#[test]
fn a_reader_that_is_killed_when_its_error_comes_leaves_it_to_nobody() {
    let bytes = bytes(MIB);
    let waits = Arc::new(AtomicBool::new(false));
    let looks = Arc::clone(&waits);
    let stub = server(&bytes, move |request, answer| {
        if request.number != 1 {
            return answer;
        }
        while !looks.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(1));
        }
        Answer::new(403, b"")
    });
    let object = open(&remote(), &stub).unwrap();
    let read = || object.read_exact_at(&mut [0; 9], 500_000);
    // it looks by itself now and then: once more within a shorter time, it was woken
    let last = std::sync::Mutex::new(None);
    let wanted = move || {
        let before = last.lock().unwrap().replace(Instant::now());
        waits.store(true, Ordering::Relaxed);
        before.is_none_or(|at: Instant| at.elapsed() > LOOK_EVERY / 2)
    };
    while_wanted(Some(Arc::new(wanted)), read).unwrap_err();
    read().unwrap();
}
