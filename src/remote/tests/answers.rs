//! Parts whose bodies are not what was asked for.

use super::*;

/// What `wrong` makes of the answer to each request but the first: what is read then, and what the next one reads of the same disk.
fn read_with(
    wrong: impl Fn(Answer) -> Answer + Send + Sync + 'static,
) -> (crate::error::Result<Vec<u8>>, Stub, Vec<u8>) {
    let bytes = bytes(3 * MIB + 77);
    let is_wrong = Arc::<AtomicBool>::default();
    let now = Arc::clone(&is_wrong);
    let stub = server(&bytes, move |_, answer| {
        if now.load(Ordering::Relaxed) {
            wrong(answer)
        } else {
            answer
        }
    });
    let dir = tempfile::TempDir::new().unwrap();
    let with_disk = RemoteOptions {
        disk: Some((dir.path().join("far"), 1 << 30)),
        timeout: Duration::from_secs(2),
        ..options()
    };
    let remote = remote_with(64 << 20, with_disk.clone());
    let object = open(&remote, &stub).unwrap();
    // the end comes with opening
    object
        .read_exact_at(&mut [0], bytes.len() as u64 - 1)
        .unwrap();
    is_wrong.store(true, Ordering::Relaxed);
    let mut buf = vec![0; 2 * MIB];
    let read = object.read_exact_at(&mut buf, 300_001).map(|()| buf);
    if let Ok(read) = &read {
        assert_eq!(read, &bytes[300_001..300_001 + 2 * MIB]);
    }
    is_wrong.store(false, Ordering::Relaxed);
    for remote in [remote, remote_with(64 << 20, with_disk)] {
        let object = open(&remote, &stub).unwrap();
        assert_eq!(read_all(&*object, u64::MAX).unwrap(), bytes);
    }
    (read, stub, bytes)
}

fn longer(answer: Answer, by: usize) -> Answer {
    let body = [&answer.body[..], &vec![b'x'; by]].concat();
    Answer { body, ..answer }
}

/// The bytes that a proxy had packed were read as those of the file, and stayed on disk.
#[test]
fn a_body_that_is_not_the_part_is_an_error_and_is_kept_nowhere() {
    type Wrong = Box<dyn Fn(Answer) -> Answer + Send + Sync>;
    let packed = |answer: Answer| Answer {
        body: answer.body.iter().rev().copied().collect(),
        ..answer
    };
    let cases: [(&str, Wrong); 7] = [
        (
            "coded",
            Box::new(move |a| longer(packed(a), 9).with("Content-Encoding", "gzip")),
        ),
        ("label", Box::new(|a| a.with("Content-Encoding", "gzip"))),
        ("longer", Box::new(move |a| longer(packed(a), 9))),
        (
            "shorter",
            Box::new(move |a| Answer {
                body: packed(a.clone()).body[9..].to_vec(),
                ..a
            }),
        ),
        (
            "longer without length",
            Box::new(move |a| longer(packed(a), 9).how(How::Chunked)),
        ),
        (
            "shorter without length",
            Box::new(move |a| {
                Answer {
                    body: packed(a.clone()).body[9..].to_vec(),
                    ..a
                }
                .how(How::Chunked)
            }),
        ),
        (
            "several",
            Box::new(|a| a.with("Content-Type", "multipart/byteranges; boundary=x")),
        ),
    ];
    for (what, wrong) in cases {
        let (read, ..) = read_with(wrong);
        let error = read.expect_err(what);
        // that it ended too early may pass, and is tried again
        let code = errno(&error).unwrap();
        assert!(
            code == 5 || code == 110 && what.starts_with("shorter"),
            "{what}: {error}"
        );
    }
}

#[test]
fn identity_is_asked_for() {
    let (read, stub, _) = read_with(|answer| answer);
    assert!(read.is_ok());
    for request in stub.requests() {
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("cache-control"), Some("no-transform"));
    }
}

/// What HTTP allows was refused.
#[test]
fn a_part_that_is_shorter_than_asked_for_is_gone_on_from() {
    for most in [100_000, 65_536, 9000] {
        let bytes = bytes(MIB + 5);
        let content = bytes.clone();
        let stub = Stub::new(move |request| {
            let Some(range) = request.range(content.len()) else {
                return Answer::new(200, &content);
            };
            let range = range.start..range.end.min(range.start + most);
            let said = format!("bytes {}-{}/{}", range.start, range.end - 1, content.len());
            let answer = Answer::new(206, &content[range]).with("Content-Range", &said);
            let answer = answer.with("ETag", ETAG);
            if request.number % 3 == 0 {
                answer.how(How::Chunked)
            } else {
                answer
            }
        });
        let object = open(&remote(), &stub).unwrap();
        assert_eq!(read_all(&*object, u64::MAX).unwrap(), bytes);
        let least = bytes.len().div_ceil(most);
        let asked = stub.requests().len();
        assert!(asked < least + least / 2 + 8, "{asked} requests of {least}");
    }
}

/// All of it was taken for a part, or a part for all of it.
#[test]
fn a_part_where_all_was_asked_for_is_refused() {
    let stub = Stub::new(|request| match request.header("range") {
        Some(_) => Answer::new(200, b"0123456789"),
        None => Answer::new(206, b"01234").with("Content-Range", "bytes 0-4/10"),
    });
    let error = open(&remote(), &stub).err().unwrap();
    assert!(error.to_string().contains("where all of it"), "{error}");
}
