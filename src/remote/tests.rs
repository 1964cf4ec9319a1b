//! Objects of the stub, each with what real servers do wrong.

mod answers;
mod buckets;
mod changed;
mod disk;
mod headers;
mod kept;
mod slow;
mod stub;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::stub::{Answer, How, Request, Stub};
use super::*;
use crate::error::Error as Library;
use crate::source::{Source, read_all};

const ETAG: &str = "\"one\"";
const MIB: usize = 1 << 20;

/// Bytes that tell where they are.
fn bytes(len: usize) -> Vec<u8> {
    let words =
        (0..len.div_ceil(4)).flat_map(|word| (word as u32).wrapping_mul(0x9E37_79B1).to_le_bytes());
    words.take(len).collect()
}

fn remote_with(budget: u64, options: RemoteOptions) -> Remote {
    Remote::new(options, &Cache::new(budget)).unwrap()
}

fn options() -> RemoteOptions {
    RemoteOptions {
        timeout: Duration::from_secs(10),
        ..RemoteOptions::default()
    }
}

fn remote() -> Remote {
    remote_with(64 << 20, options())
}

/// A remote that gives up soon.
fn hasty() -> Remote {
    let timeout = Duration::from_millis(300);
    remote_with(
        64 << 20,
        RemoteOptions {
            timeout,
            ..options()
        },
    )
}

fn at(text: &str) -> Location {
    Location::parse(text).unwrap().unwrap()
}

fn open(remote: &Remote, stub: &Stub) -> Result<Arc<Object>, RemoteError> {
    remote.open(&at(&stub.url("/a.asdf")))
}

fn errno(error: &Library) -> Option<i32> {
    match error {
        Library::Io { cause, .. } => cause.raw_os_error(),
        _ => None,
    }
}

/// A server of `bytes` that does `wrong` to the good answer to a request.
fn server(
    bytes: &[u8],
    wrong: impl Fn(&Request, Answer) -> Answer + Send + Sync + 'static,
) -> Stub {
    let bytes = bytes.to_vec();
    Stub::new(move |request| wrong(request, Answer::good(request, &bytes, ETAG)))
}

#[test]
fn an_object_reads_as_what_the_server_has() {
    for len in [1, 100, 65_535, 65_536, 65_537, 200_000, 3 * MIB + 5] {
        let bytes = bytes(len);
        let stub = server(&bytes, |_, answer| answer);
        let object = open(&remote(), &stub).unwrap();
        assert_eq!(object.len(), len as u64);
        assert_eq!(read_all(&*object, u64::MAX).unwrap(), bytes);
        assert!(object.read_exact_at(&mut [0; 2], len as u64 - 1).is_err());
        assert!(object.read_exact_at(&mut [], len as u64).is_ok());
    }
}

#[test]
fn readers_at_once_have_each_byte_fetched_once() {
    let bytes = bytes(8 * MIB);
    let stub = server(&bytes, |_, answer| answer);
    let object = open(&remote(), &stub).unwrap();
    thread::scope(|scope| {
        for reader in 0..8_usize {
            let (object, bytes) = (&object, &bytes);
            scope.spawn(move || {
                let mut seed = reader + 1;
                for _ in 0..60 {
                    seed = seed
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let start = (seed >> 20) % (bytes.len() - 1);
                    let len = ((seed >> 8) % 300_000).min(bytes.len() - start);
                    let mut buf = vec![0; len];
                    object.read_exact_at(&mut buf, start as u64).unwrap();
                    assert_eq!(buf, bytes[start..start + len]);
                }
            });
        }
    });
    assert!(
        stub.sent() <= bytes.len() + 4096,
        "{} bytes for {}",
        stub.sent(),
        bytes.len()
    );
}

#[test]
fn reading_on_takes_few_large_requests() {
    let bytes = bytes(64 * MIB);
    let stub = server(&bytes, |_, answer| answer);
    let object = open(&remote_with(256 << 20, options()), &stub).unwrap();
    let mut buf = vec![0; 128 << 10];
    for (n, want) in bytes.chunks(buf.len()).enumerate() {
        object
            .read_exact_at(&mut buf, (n * want.len()) as u64)
            .unwrap();
        assert!(buf == want);
    }
    let requests = stub.requests().len();
    assert!((6..30).contains(&requests), "{requests}");
    assert!(stub.sent() <= bytes.len() + 128 * 1024);
}

#[test]
fn at_most_four_requests_for_an_object_are_under_way() {
    let bytes = bytes(48 * MIB);
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let stub = server(&bytes, move |_, answer| {
        let count = now.fetch_add(1, Ordering::Relaxed) + 1;
        seen.fetch_max(count, Ordering::Relaxed);
        // so long that all that are sent at once are seen to be
        thread::sleep(Duration::from_millis(30));
        now.fetch_sub(1, Ordering::Relaxed);
        answer
    });
    let object = open(&remote_with(256 << 20, options()), &stub).unwrap();
    thread::scope(|scope| {
        for reader in 0..6_usize {
            let (object, bytes) = (&object, &bytes);
            scope.spawn(move || {
                let mut buf = vec![0; 256 << 10];
                for n in 0..30 {
                    let start = reader * 8 * MIB + n * buf.len();
                    object.read_exact_at(&mut buf, start as u64).unwrap();
                    assert!(buf == bytes[start..start + buf.len()]);
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::Relaxed), 4);
}

/// Each cost a round trip, one after the other.
#[test]
fn headers_that_are_expected_are_asked_for_at_once() {
    let bytes = bytes(8 * MIB);
    let released = Arc::new(AtomicBool::new(false));
    let (release, waits) = (Arc::clone(&released), AtomicUsize::new(0));
    let stub = server(&bytes, move |request, answer| {
        // the fifth comes when one of the four has been answered
        if request.number >= 1 && waits.fetch_add(1, Ordering::Relaxed) < 4 {
            while !release.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(1));
            }
        }
        answer
    });
    let object = open(&remote(), &stub).unwrap();
    let headers: Vec<u64> = (1..7).map(|n| n * MIB as u64).collect();
    assert!(object.expect(&[]) && object.expect(&headers));
    stub.wait_for(5);
    assert_eq!(stub.requests().len(), 5);
    released.store(true, Ordering::Relaxed);
    for header in headers {
        let mut buf = [0; 4096];
        object.read_exact_at(&mut buf, header).unwrap();
        assert!(buf == bytes[header as usize..][..4096]);
    }
    assert_eq!(stub.requests().len(), 7);
    let small = open(&remote_with(1 << 20, options()), &stub).unwrap();
    assert!(!small.expect(&[]));
}

#[test]
fn an_object_of_no_bytes_is_empty() {
    // a server may say so by the status, or by the length of an answer with all bytes
    for status in [416, 200] {
        let stub = Stub::new(move |request| match request.header("range") {
            Some(_) => Answer::new(status, b"").with("ETag", ETAG),
            None => Answer::new(200, b"").with("ETag", ETAG),
        });
        let remote = remote();
        let object = open(&remote, &stub).unwrap();
        assert!(object.is_empty() && object.identity().says_size());
        assert!(object.read_exact_at(&mut [0], 0).is_err());
        let (now, _) = remote
            .probe(object.location(), None, &Arc::default())
            .unwrap();
        assert!(now.is_same(object.identity()), "{now}");
    }
}

#[test]
fn a_small_budget_is_kept_and_all_bytes_come() {
    let bytes = bytes(24 * MIB);
    let stub = server(&bytes, |_, answer| answer);
    let remote = remote_with(4 << 20, options());
    let object = open(&remote, &stub).unwrap();
    let mut buf = vec![0; 100_000];
    for (n, want) in bytes.chunks(buf.len()).enumerate() {
        let buf = &mut buf[..want.len()];
        object.read_exact_at(buf, (n * 100_000) as u64).unwrap();
        assert!(buf == want);
        assert!(remote.0.cache.used() <= (4 << 20) + (1 << 20));
    }
    // one read that is longer than the budget
    let mut buf = vec![0; 20 * MIB];
    object.read_exact_at(&mut buf, 77).unwrap();
    assert!(buf == bytes[77..77 + buf.len()]);
    let sent = stub.sent() as f64 / (44 * MIB) as f64;
    assert!(sent < 1.25, "{sent} times what was read");
    drop(object);
    assert_eq!(remote.0.ahead.load(Ordering::Relaxed), 0);
}

#[test]
fn what_may_pass_is_tried_again() {
    let bytes = bytes(MIB);
    thread::scope(|scope| {
        for fault in [
            "503",
            "429",
            "408",
            "cut",
            "cut at once",
            "short",
            "chunked",
        ] {
            let bytes = &bytes;
            for tagged in [true, false] {
                scope.spawn(move || {
                    let stub = server(bytes, move |request, answer| {
                        let answer = if tagged {
                            answer
                        } else {
                            answer.without("ETag")
                        };
                        // each second request goes well
                        let good = request.number % 2 == 1;
                        if good { answer } else { faulty(fault, answer) }
                    });
                    let object = open(&remote(), &stub).unwrap();
                    let read = read_all(&*object, u64::MAX).unwrap();
                    assert!(read == *bytes, "{fault}");
                });
            }
        }
    });
}

fn faulty(fault: &str, answer: Answer) -> Answer {
    match fault {
        "cut" => answer.how(How::Cut(70_000)),
        "cut at once" => answer.how(How::Cut(0)),
        "short" => {
            let body = answer.body[..answer.body.len() / 2].to_vec();
            Answer { body, ..answer }.how(How::Chunked)
        }
        "chunked" => answer.how(How::Chunked),
        status => Answer::new(status.parse().unwrap(), b"<Code>SlowDown</Code>"),
    }
}

#[test]
fn what_does_not_pass_is_told_with_status_and_advice() {
    let cases: [(u16, Option<i32>, &str); 7] = [
        (404, Some(2), "check the URL"),
        (410, Some(2), "410"),
        (401, Some(13), "user name and password"),
        (403, Some(13), "AccessDenied"),
        (416, Some(5), "no bytes"),
        // the time for further attempts is over
        (503, Some(110), "try again later"),
        (418, Some(5), "418"),
    ];
    for (status, code, text) in cases {
        let page = b"<Error><Code>AccessDenied</Code><Message>of secret</Message></Error>\xff";
        let stub = Stub::new(move |_| Answer::new(status, page));
        let url = stub.url("/a.asdf?token=secret&sig=secret");
        let remote = remote_with(
            1 << 20,
            RemoteOptions {
                timeout: Duration::from_secs(1),
                ..options()
            },
        );
        let error = remote.open(&at(&url)).map(drop).unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(
            told.contains(text) && told.contains("/a.asdf?token=…"),
            "{told}"
        );
        assert!(!told.contains("secret"), "{told}");
        assert_eq!(errno(&error.into()), code, "{told}");
    }
}

#[test]
fn a_server_that_lies_of_ranges_is_not_believed() {
    let bytes = bytes(MIB);
    let end = MIB as u64 - 1;
    for said in [
        "bytes 1-65536/1048576".to_owned(),
        "bytes 0-65534/1048576".to_owned(),
        "bytes 0-65535/*".to_owned(),
        "bytes 0-18446744073709551615/18446744073709551615".to_owned(),
        "nonsense".to_owned(),
        format!("bytes 0-{end}/1048576"),
    ] {
        let lie = said.clone();
        let stub = server(&bytes, move |_, answer| answer.with("Content-Range", &lie));
        let error = open(&remote(), &stub).map(drop).unwrap_err();
        assert_eq!(errno(&error.clone().into()), Some(5), "{said}: {error}");
        assert_eq!(stub.requests().len(), 1);
    }
    // later on, and with a size that no machine has
    let stub = server(&bytes, |request, answer| match request.number {
        0 => answer.with("Content-Range", "bytes 0-65535/9000000000000000000"),
        _ => answer,
    });
    let object = open(&remote(), &stub).unwrap();
    let read = object.read_exact_at(&mut [0; 9], 8_999_999_999_999_999_000);
    assert!(
        matches!(read, Err(Library::Stale { .. } | Library::Io { .. })),
        "{read:?}"
    );
}

#[test]
fn a_redirect_is_followed_and_password_and_url_stay_at_home() {
    let bytes = bytes(300_000);
    let target = server(&bytes, |request, answer| {
        assert!(request.header("authorization").is_none());
        assert!(request.header("referer").is_none());
        answer
    });
    let to = target.url("/b.asdf?signature=x");
    let stub = Stub::new(move |request| {
        // "me:se@cret"
        let known = request.header("authorization") == Some("Basic bWU6c2VAY3JldA==");
        Answer::new(if known { 302 } else { 401 }, b"").with("Location", &to)
    });
    let url = stub.url("/a.asdf").replace("://", "://me:se%40cret@");
    let object = remote().open(&at(&url)).unwrap();
    assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
    assert!(remote().open(&at(&stub.url("/a.asdf"))).is_err());
    let endless = Stub::new(|request| {
        Answer::new(302, b"").with("Location", &format!("{}x?secret", request.target))
    });
    let error = open(&remote(), &endless).map(drop).unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn without_ranges_a_file_is_downloaded_once_or_refused() {
    let bytes = bytes(2 * MIB);
    for (how, cut_first) in [
        (How::Plain, false),
        (How::Chunked, false),
        (How::Plain, true),
    ] {
        let (body, sends) = (bytes.clone(), how.clone());
        let stub = Stub::new(move |request| match request.number {
            1 if cut_first => Answer::new(200, &body).how(How::Cut(MIB)),
            _ => Answer::new(200, &body)
                .with("ETag", ETAG)
                .how(sends.clone()),
        });
        let options = RemoteOptions {
            max_download: 2 << 20,
            ..options()
        };
        let object = open(&remote_with(1 << 20, options), &stub).unwrap();
        let requests = stub.requests().len();
        assert!(read_all(&*object, u64::MAX).unwrap() == bytes, "{how:?}");
        assert_eq!(object.len(), bytes.len() as u64);
        assert_eq!(
            stub.requests().len(),
            requests,
            "nothing is asked for again"
        );

        let options = RemoteOptions {
            max_download: (2 << 20) - 1,
            ..self::options()
        };
        let error = open(&remote_with(1 << 20, options), &stub)
            .map(drop)
            .unwrap_err();
        assert!(matches!(error, RemoteError::NoRanges { .. }), "{error}");
        assert!(error.to_string().contains("-o max-download="), "{error}");
    }
}

#[test]
fn who_waits_for_one_server_does_not_keep_another_waiting() {
    let bytes = bytes(MIB);
    let dead = server(&bytes, |request, answer| match request.number {
        0 => answer,
        _ => answer.how(How::Hang),
    });
    let good = server(&bytes, |_, answer| answer);
    let remote = remote();
    let stuck = open(&remote, &dead).unwrap();
    let object = open(&remote, &good).unwrap();
    let cache = Arc::clone(&remote.0.cache);
    let wanted = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&wanted);
    cache.decode_while(move || asked.load(Ordering::Relaxed));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..8_u64)
            .map(|n| {
                let stuck = &stuck;
                scope.spawn(move || stuck.read_exact_at(&mut [0; 9], 200_000 + n * 100_000))
            })
            .collect();
        dead.wait_for(3);
        assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
        // the mount ends: nobody waits for the timeout
        wanted.store(false, Ordering::Relaxed);
        for reader in readers {
            let ended = reader.join().unwrap().unwrap_err();
            assert!(
                matches!(&ended, Library::Io { cause, .. } if cause.kind() == std::io::ErrorKind::Interrupted),
                "{ended}"
            );
        }
    });
}

/// A file of 2 GiB, of which the server makes what is asked for.
#[test]
fn the_text_of_a_huge_file_takes_few_requests() {
    let tree = format!(
        "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n--- \n{}...\n",
        "key: value of some length\n".repeat(10_000)
    );
    let start = tree.len().next_multiple_of(4096);
    let len: u64 = 2 << 30;
    let mut head = tree.clone().into_bytes();
    head.resize(start, 0);
    let used = len - start as u64 - 54 - 100;
    head.extend(b"\xd3BLK\0\x30\0\0\0\0\0\0\0\0");
    for _ in 0..3 {
        head.extend(used.to_be_bytes());
    }
    head.extend([0; 16]);
    let mut tail = format!("#ASDF BLOCK INDEX\n%YAML 1.1\n---\n- {start}\n...\n").into_bytes();
    tail.resize(100, b' ');
    let stub = Stub::new(move |request| {
        let range = request.range(len as usize).unwrap();
        let byte = |at: usize| match (len as usize - at).cmp(&101) {
            std::cmp::Ordering::Less => tail[at + 100 - len as usize],
            _ => head.get(at).copied().unwrap_or_default(),
        };
        let said = format!("bytes {}-{}/{len}", range.start, range.end - 1);
        let body: Vec<u8> = range.map(byte).collect();
        Answer::new(206, &body)
            .with("Content-Range", &said)
            .with("ETag", ETAG)
    });
    let object = open(&remote(), &stub).unwrap();
    let text = object_text(&*object, tree.len());
    assert!(text == tree.as_bytes());
    assert!(stub.requests().len() <= 4, "{:?}", stub.requests());
    assert!(stub.sent() <= 2 << 20, "{}", stub.sent());
}

/// Reads as the scan of a file does: the text in growing steps, the header behind it, the end.
fn object_text(object: &dyn Source, len: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for goal in [1000, 64 << 10, 256 << 10, MIB] {
        let have = text.len();
        text.resize(goal, 0);
        object
            .read_exact_at(&mut text[have..], have as u64)
            .unwrap();
        if goal >= len {
            break;
        }
    }
    let mut header = [0; 4096];
    object.read_exact_at(&mut header, len as u64).unwrap();
    object
        .read_exact_at(&mut header, object.len() - 4096)
        .unwrap();
    text.truncate(len);
    text
}
