//! Buckets of S3: keys, signatures, listings.

use std::sync::{Condvar, Mutex};

use super::*;
use crate::error::percent_decoded;

/// An environment variable.
type Variable<'a> = (&'a str, &'a str);

/// A remote that finds its buckets at the stub.
pub(super) fn bucket_of(stub: &Stub, variables: &[(&str, &str)], options: RemoteOptions) -> Remote {
    let endpoint = stub.url("");
    let common = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        // of an application: it was read in place of the bucket in the URL
        ("AWS_BUCKET", "another"),
    ];
    let all = common.iter().chain(variables);
    let all = all
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Remote::with_variables(options, &Cache::new(16 << 20), all).unwrap()
}

const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "AKTEST"),
    ("AWS_SECRET_ACCESS_KEY", "verysecret"),
];

#[test]
fn an_object_of_a_bucket_is_read_with_a_signature_or_without() {
    let bytes = bytes(300_000);
    let home = tempfile::tempdir().unwrap();
    let credentials = home.path().join("credentials");
    std::fs::write(
        &credentials,
        "[survey]\naws_access_key_id = AKFILE\naws_secret_access_key = s\n",
    )
    .unwrap();
    let file = ("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().unwrap());
    let survey = ("AWS_PROFILE", "survey");
    // of an earlier key, which has been unset
    let token = ("AWS_SESSION_TOKEN", "verysecret");
    let cases: [(&[Variable<'_>], bool, Option<&str>); 5] = [
        (&KEYS, true, Some("AKTEST")),
        (&KEYS, false, None),
        (&[file, survey], true, Some("AKFILE")),
        (&[file, survey, token], true, Some("AKFILE")),
        (&[("AWS_SKIP_SIGNATURE", "true")], true, None),
    ];
    for (variables, sign, signer) in cases {
        let stub = server(&bytes, move |request, answer| {
            assert_eq!(request.target, "/pub/a/b%20c%2B%CE%B1.asdf");
            assert!(request.header("x-amz-security-token").is_none());
            let signature = request.header("authorization").unwrap_or_default();
            assert_eq!(
                signature.split("Credential=").nth(1).map(|id| &id[..6]),
                signer
            );
            answer
        });
        let remote = bucket_of(&stub, variables, RemoteOptions { sign, ..options() });
        let object = remote.open(&at("s3://pub/a/b c+α.asdf")).unwrap();
        assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
    }
}

/// A page of a listing as S3 writes it, and how the next one is asked for.
fn page(keys: &[&str], next: Option<&str>) -> Answer {
    page_with(keys, &[], next)
}

/// The same with folders.
fn page_with(keys: &[&str], folders: &[&str], next: Option<&str>) -> Answer {
    let more = next.is_some();
    let mut text =
        format!("<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>{more}</IsTruncated>");
    for key in keys {
        let key = format!("<Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>");
        text = format!("{text}<Contents>{key}<ETag>&quot;x&quot;</ETag><Size>7</Size></Contents>");
    }
    for folder in folders {
        text = format!("{text}<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    }
    if let Some(next) = next.filter(|next| !next.is_empty()) {
        text = format!("{text}<NextContinuationToken>{next}</NextContinuationToken>");
    }
    Answer::new(200, (text + "</ListBucketResult>").as_bytes())
}

#[test]
fn a_prefix_is_listed_page_by_page() {
    let stub = Stub::new(|request| {
        assert!(
            request.target.starts_with("/pub?") || request.target.starts_with("/pub/?"),
            "{}",
            request.target
        );
        assert!(
            request.target.contains("prefix=visit%2F") && request.target.contains("delimiter=%2F"),
            "{}",
            request.target
        );
        match request.number {
            0 => Answer::new(503, b"<Code>SlowDown</Code>"),
            1 => page_with(
                &["visit/a.asdf", "visit/b c.asdf"],
                &["visit/deep/"],
                Some("next"),
            ),
            2 => Answer::new(500, b""),
            3 => {
                assert!(
                    request.target.contains("continuation-token=next"),
                    "{}",
                    request.target
                );
                page(&["visit/x&amp;y.asdf"], Some("last"))
            }
            _ => page(&["visit/z.asdf"], None),
        }
    });
    let remote = bucket_of(&stub, &KEYS, options());
    let prefix = at("s3://pub/visit/");
    let found = remote.list(&prefix).unwrap();
    assert_eq!(found.folders, ["deep"]);
    let found = found.entries;
    let names: Vec<_> = found.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["a.asdf", "b c.asdf", "x&y.asdf", "z.asdf"]);
    assert!(
        found
            .iter()
            .all(|entry| entry.identity.to_string() == "7 bytes, ETag \"x\"")
    );
    assert_eq!(
        prefix.join(names[1]).unwrap(),
        at("s3://pub/visit/b c.asdf")
    );
    let web = remote.list(&at("https://h/a/")).unwrap_err();
    assert!(matches!(web, RemoteError::NoListing { .. }));
}

/// One of them made the whole listing fail.
#[test]
fn a_key_that_no_url_leads_to_is_left_out_of_a_listing_and_told() {
    let stub = Stub::new(|request| match &request.target {
        target if target.contains("token=next") => {
            page(&["visit/../d.asdf", "visit/e&#10;.asdf"], Some("last"))
        }
        target if target.contains("token=last") => {
            page(&["visit/f.asdf", "elsewhere/g.asdf"], None)
        }
        _ => page_with(
            &["visit/a.asdf", "visit//b.asdf", "visit/c/"],
            &["visit//", "visit/g/", "visit/../"],
            Some("next"),
        ),
    });
    let found = bucket_of(&stub, &KEYS, options());
    let found = found.list(&at("s3://pub/visit/")).unwrap();
    let names: Vec<_> = found.entries.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, ["a.asdf", "f.asdf"]);
    assert_eq!(found.folders, ["g"]);
    let want = ["/b.asdf", "/", "../", "../d.asdf", "e\n.asdf"];
    assert_eq!(found.unreadable, want);
}

/// The store could not read the page, and none of its objects was listed.
#[test]
fn an_object_with_an_impossible_time_hides_no_other_one() {
    let stub = Stub::new(|_| {
        let mut answer = page(&["visit/a.asdf", "visit/b.asdf", "visit/c.asdf"], None);
        let text = String::from_utf8(answer.body).unwrap();
        let (before, behind) = text.split_once("b.asdf</Key><LastModified>2026").unwrap();
        answer.body = format!("{before}b.asdf</Key><LastModified>0-13{behind}").into_bytes();
        answer
    });
    let found = bucket_of(&stub, &KEYS, options());
    let found = found.list(&at("s3://pub/visit/")).unwrap();
    let names: Vec<_> = found.entries.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, ["a.asdf", "c.asdf"]);
    assert_eq!(found.unreadable, ["b.asdf"]);
}

/// How many requests a server has under way now, and how many it has had at once.
#[derive(Default)]
struct UnderWay {
    now: usize,
    most: usize,
}

/// A server with these keys that sends them in pages of ten, and begins behind the key that is asked for, if it `can`. Until it has had `least`
/// requests at once, it holds each of them back for a while: more may come.
fn pages_of_ten(
    keys: Vec<String>,
    can: bool,
    least: usize,
    under_way: &Arc<(Mutex<UnderWay>, Condvar)>,
) -> Stub {
    let under_way = Arc::clone(under_way);
    Stub::new(move |request| {
        let (counts, came) = &*under_way;
        let mut counts = counts.lock().unwrap();
        counts.now += 1;
        counts.most = counts.most.max(counts.now);
        came.notify_all();
        let held = came.wait_timeout_while(counts, Duration::from_millis(100), |counts| {
            counts.most < least
        });
        drop(held.unwrap());
        // one request too many has the time to come
        thread::sleep(Duration::from_millis(10));
        under_way.0.lock().unwrap().now -= 1;
        let said = |name: &str| {
            let mut pairs = request.target.split(['?', '&']);
            let value = pairs.find_map(|pair| pair.strip_prefix(name));
            value.map(|value| String::from_utf8(percent_decoded(value).unwrap()).unwrap())
        };
        let after = said("start-after=").filter(|_| can);
        let after = said("continuation-token=").or(after).unwrap_or_default();
        let behind: Vec<&str> = match keys.iter().position(|key| *key == after) {
            Some(at) => keys[at + 1..].iter().map(String::as_str).collect(),
            None => keys
                .iter()
                .map(String::as_str)
                .filter(|key| **key > *after)
                .collect(),
        };
        let next = (behind.len() > 10).then(|| behind[9]);
        let shown = &behind[..behind.len().min(10)];
        let (folders, objects): (Vec<&str>, Vec<&str>) =
            shown.iter().partition(|key| key.ends_with('/'));
        page_with(&objects, &folders, next)
    })
}

/// A hundred thousand objects took a hundred requests, one after the other.
#[test]
fn a_long_listing_has_four_pages_under_way_and_is_whole() {
    let names = |count: u32| -> Vec<String> {
        let names = (0..count).flat_map(|n| [format!("v/o{n:05}.asdf"), format!("v/o{n:05}-/")]);
        let mut names: Vec<String> = names.chain((0..9).map(|n| format!("v/{n}.asdf"))).collect();
        names.sort();
        names
    };
    // one that does not begin where it is told to, or has its keys in no order, is asked for one page after the other
    let shuffled = || {
        let mut names = names(100);
        names.sort_by_key(|name| name.bytes().rev().collect::<Vec<u8>>());
        names
    };
    for (keys, can, want) in [
        (names(9), true, 1..=3),
        (names(500), true, 4..=4),
        (names(500), false, 2..=4),
        (shuffled(), true, 1..=1),
    ] {
        let under_way = Arc::default();
        let stub = pages_of_ten(keys.clone(), can, *want.start(), &under_way);
        let found = bucket_of(&stub, &KEYS, options()).list(&at("s3://pub/v/"));
        let found = found.unwrap();
        let objects = found
            .entries
            .iter()
            .map(|entry| format!("v/{}", entry.name));
        let folders = found.folders.iter().map(|folder| format!("v/{folder}/"));
        let mut found: Vec<String> = objects.chain(folders).collect();
        found.sort();
        let mut keys = keys;
        keys.sort();
        assert!(found == keys, "{} of {}", found.len(), keys.len());
        let most = under_way.0.lock().unwrap().most;
        assert!(want.contains(&most), "{most} at once of {want:?}");
        // each page ends a part of the keys or is full, and each full one begins one part at most
        let requests = stub.requests().len();
        assert!(requests <= keys.len() / 10 * 2 + 20, "{requests}");
    }
}

/// Directory buckets of S3 refuse to begin behind a key.
#[test]
fn a_server_that_refuses_to_begin_behind_a_key_is_asked_for_one_page_after_the_other() {
    let stub = Stub::new(|request| match &request.target {
        target if target.contains("start-after") => {
            Answer::new(501, b"<Code>NotImplemented</Code>")
        }
        target if target.contains("token=3") => page(&["v/4.asdf"], None),
        target if target.contains("token=2") => page(&["v/3.asdf"], Some("3")),
        target if target.contains("token=1") => page(&["v/2.asdf"], Some("2")),
        _ => page(&["v/1.asdf"], Some("1")),
    });
    let found = bucket_of(
        &stub,
        &KEYS,
        RemoteOptions {
            timeout: Duration::from_millis(300),
            ..options()
        },
    )
    .list(&at("s3://pub/v/"));
    assert_eq!(found.unwrap().entries.len(), 4);
}

/// A server may say again and again that there is more.
#[test]
fn a_listing_of_empty_pages_ends() {
    let stub = Stub::new(|request| page(&[], Some(&request.number.to_string())));
    let error = bucket_of(&stub, &KEYS, options()).list(&at("s3://pub/"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("name a longer prefix"), "{error}");
}

/// Two thousand pages were asked for, all the same, and then a longer prefix.
#[test]
fn a_page_that_comes_again_ends_a_listing() {
    let token = |request: &Request| ["a", "b"][request.number % 2];
    let stub = Stub::new(move |request| page(&["x.asdf"], Some(token(request))));
    let error = bucket_of(&stub, &KEYS, options()).list(&at("s3://pub/"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the same page"), "{error}");
    assert_eq!(stub.requests().len(), 3);
}

/// A server that has listings of an older kind only seemed to have a thousand objects.
#[test]
fn a_listing_that_can_not_be_completed_is_an_error() {
    let stub = Stub::new(|_| page(&["a.asdf", "b.asdf"], Some("")));
    let error = bucket_of(&stub, &KEYS, options()).list(&at("s3://pub/"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("has more objects"), "{error}");
}

/// A bucket seemed to be empty.
#[test]
fn what_is_no_listing_is_an_error() {
    for (body, told) in [
        ("<html><body>sign in</body></html>", "something else"),
        ("", "something else"),
        (
            "<Error><Code>InternalError</Code></Error>",
            "the error InternalError",
        ),
    ] {
        let stub = Stub::new(move |_| Answer::new(200, body.as_bytes()));
        let error = bucket_of(&stub, &KEYS, options()).list(&at("s3://pub/"));
        let error = error.unwrap_err().to_string();
        let told = format!("the server sends {told} in the place of a listing");
        assert!(error.contains(&told), "{error}");
    }
}

/// All that was said, after four seconds, was that the scheme of a URL was not allowed.
#[test]
fn an_endpoint_of_http_has_to_be_allowed() {
    let stub = Stub::new(|_| Answer::new(404, b""));
    let in_capitals = stub.url("").replace("http", "HTTP");
    for endpoint in [stub.url(""), in_capitals] {
        let variables = [
            ("AWS_ALLOW_HTTP", "false"),
            ("AWS_ENDPOINT_URL", &*endpoint),
        ];
        let remote = bucket_of(&stub, &variables, options());
        let error = remote.open(&at("s3://pub/a.asdf")).map(drop).unwrap_err();
        assert!(error.to_string().contains("AWS_ALLOW_HTTP"), "{error}");
    }
    assert!(stub.requests().is_empty());
    let allowed = [("AWS_ALLOW_HTTP", "Yes"), KEYS[0], KEYS[1]];
    let remote = bucket_of(&stub, &allowed, options());
    remote.open(&at("s3://pub/a.asdf")).map(drop).unwrap_err();
    assert!(!stub.requests().is_empty());
}

/// The token of a session and the key of an encrypted object were told.
#[test]
fn a_bucket_that_redirects_tells_nothing_secret() {
    let bytes = bytes(100_000);
    let target = server(&bytes, |request, answer| {
        let told = |name: &String| {
            name == "referer" || name == "authorization" || name.starts_with("x-amz")
        };
        assert!(!request.headers.keys().any(told), "{:?}", request.headers);
        answer
    });
    let to = target.url("/elsewhere.asdf");
    let stub = Stub::new(move |request| {
        assert!(request.header("x-amz-security-token").is_some());
        Answer::new(307, b"").with("Location", &to)
    });
    let token = ("AWS_SESSION_TOKEN", "verysecret");
    let object = bucket_of(&stub, &[KEYS[0], KEYS[1], token], options());
    let object = object.open(&at("s3://pub/a.asdf")).unwrap();
    assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
}

#[test]
fn a_listing_that_is_refused_or_endless_is_an_error() {
    let denied = Stub::new(|_| Answer::new(403, b"<Code>AccessDenied</Code>"));
    let error = bucket_of(&denied, &KEYS, options())
        .list(&at("s3://pub/"))
        .unwrap_err();
    assert!(
        matches!(&error, RemoteError::Denied { why, .. } if why.contains("AccessDenied")),
        "{error}"
    );
    assert!(!format!("{error:?}").contains("verysecret"));
    let long = Stub::new(|_| Answer::new(200, &vec![b' '; 20 << 20]).how(How::Chunked));
    let error = bucket_of(&long, &KEYS, options())
        .list(&at("s3://pub/"))
        .unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

/// It was said that the URL was to be checked.
#[test]
fn a_prefix_that_is_named_without_its_slash_is_told_of() {
    let stub = Stub::new(|request| match request.target.contains("prefix=o0%2F") {
        true => page(&["o0/a.asdf"], None),
        false if request.target.contains("prefix=d%2Fo2%2F") => page(&[], None),
        false if request.target.contains("prefix=d%2Fo2") => page(&["d/o2x.asdf"], None),
        false if request.target.contains("prefix=") => page(&[], None),
        false => Answer::new(404, b"<Code>NoSuchKey</Code>"),
    });
    let remote = bucket_of(&stub, &KEYS, options());
    let error = remote.open(&at("s3://pub/o0")).err().unwrap().to_string();
    assert!(error.contains("s3://pub/o0/ names them"), "{error}");
    let error = remote.open(&at("s3://pub/d/o2")).err().unwrap();
    let want = "the names of objects begin so: s3://pub/d/ with -o match='o2*'";
    assert!(error.to_string().contains(want), "{error}");
    let error = remote.open(&at("s3://pub/o1")).err().unwrap().to_string();
    assert!(error.contains("check the URL"), "{error}");
}

/// It could not be told from a server that fails, so that a mount went on showing an object that was deleted.
#[test]
fn an_object_that_is_missing_is_missing_whatever_else_there_is() {
    let stub = Stub::new(|request| {
        let mut asked = request.target.split(['?', '&']);
        match asked.find_map(|pair| pair.strip_prefix("prefix=")) {
            // a listing that is older than the answer still has it
            Some("old.asdf") => page(&["old.asdf"], None),
            Some("side.asdf") => page(&["side.asdf.md5"], None),
            Some(_) => page(&[], None),
            None => Answer::new(404, b"<Code>NoSuchKey</Code>"),
        }
    });
    let remote = bucket_of(&stub, &KEYS, options());
    for (name, hint) in [("old", false), ("side", true), ("none", false)] {
        let at = at(&format!("s3://pub/{name}.asdf"));
        let error = remote.open(&at).map(drop).unwrap_err();
        let said = error.to_string();
        assert_eq!(said.contains("begin so"), hint, "{said}");
        assert_eq!(errno(&error.into()), Some(2), "{said}");
        // which is made again and again, and lists nothing
        let asked = stub.requests().len();
        let gone = remote.probe(&at, None, &Arc::default()).map(drop);
        assert!(matches!(gone, Err(RemoteError::Missing { .. })), "{gone:?}");
        assert_eq!(stub.requests().len(), asked + 1);
    }
}

/// A home with profiles, of which only the default one has keys.
fn home_of_profiles() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws").join(name), text).unwrap();
    };
    write(
        "config",
        "[profile sso]\nsso_session = x\n[profile role]\nrole_arn = x\nsource_profile = default\n\
         [profile program]\ncredential_process = x\n[profile empty]\nregion = x\n",
    );
    write(
        "credentials",
        "[default]\naws_access_key_id = AKHOME\naws_secret_access_key = s\n\
         [half]\naws_access_key_id = AKHALF\n[sso]\nregion = y\n",
    );
    home
}

/// Settings that name a profile without keys, or none, and what is told.
const LACKS: &[(&[Variable<'_>], &str)] = &[
    (
        &[("AWS_PROFILE", "typo")],
        "AWS_PROFILE=typo: no such profile in ~/.aws/credentials or ~/.aws/config",
    ),
    (
        &[("AWS_PROFILE", "sso")],
        "AWS_PROFILE=sso: has no keys; SSO",
    ),
    (&[("AWS_PROFILE", "role")], "roles"),
    (&[("AWS_PROFILE", "program")], "credential_process"),
    (
        &[("AWS_PROFILE", "half")],
        "AWS_PROFILE=half: has no aws_secret_access_key",
    ),
    (
        &[("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")],
        "AWS_SHARED_CREDENTIALS_FILE=/nonexistent: No such file",
    ),
    (
        &[("AWS_PROFILE", "typo"), ("AWS_CONFIG_FILE", "/nonexistent")],
        "AWS_CONFIG_FILE=/nonexistent: No such file",
    ),
];

/// Settings by which no profile is looked for, or only the first; whether requests are signed, and the key.
const UNNAMED: &[(&[Variable<'_>], bool, Option<&str>)] = &[
    (&[("AWS_PROFILE", "")], true, Some("AKHOME")),
    (&[("AWS_CONFIG_FILE", "")], true, Some("AKHOME")),
    (
        &[("AWS_SHARED_CREDENTIALS_FILE", " ")],
        true,
        Some("AKHOME"),
    ),
    (
        &[("AWS_PROFILE", "typo"), KEYS[0], KEYS[1]],
        true,
        Some("AKTEST"),
    ),
    (&[("AWS_PROFILE", "typo")], false, None),
    (
        &[("AWS_PROFILE", "sso"), ("AWS_SKIP_SIGNATURE", "true")],
        true,
        None,
    ),
];

/// Without a word, the metadata server of the machine was asked for credentials in the place of those that the user had named.
#[test]
fn a_profile_that_is_named_and_has_no_keys_is_told_of() {
    let home = home_of_profiles();
    let home = ("HOME", home.path().to_str().unwrap());
    let signer = Arc::new(Mutex::default());
    let seen = Arc::clone(&signer);
    let stub = Stub::new(move |request| {
        let signature = request.header("authorization").unwrap_or_default();
        let id = signature
            .split("Credential=")
            .nth(1)
            .map(|id| id[..6].to_owned());
        *seen.lock().unwrap() = id;
        Answer::new(404, b"")
    });
    let machine = stub.url("");
    let machine = ("AWS_METADATA_ENDPOINT", machine.as_str());
    let open = |more: &[Variable<'_>], sign: bool| {
        *signer.lock().unwrap() = None;
        let timeout = Duration::from_secs(1);
        let variables = [&[home, machine], more].concat();
        let remote = bucket_of(
            &stub,
            &variables,
            RemoteOptions {
                timeout,
                sign,
                ..options()
            },
        );
        let before = stub.requests().len();
        let error = remote.open(&at("s3://pub/a.asdf")).map(drop).unwrap_err();
        (error.to_string(), stub.requests().len() - before)
    };
    for &(variables, want) in LACKS {
        let (error, asked) = open(variables, true);
        assert!(
            error.contains(want) && asked == 0,
            "{want}: {asked}, {error}"
        );
    }
    // what is empty counts as not there, and what goes before a profile still does
    for &(variables, sign, want) in UNNAMED {
        let (error, asked) = open(variables, sign);
        assert!(error.contains("404") && asked > 0, "{variables:?}: {error}");
        assert_eq!(signer.lock().unwrap().as_deref(), want, "{variables:?}");
    }
    // it says nothing of keys, so that the machine may have some
    let (error, asked) = open(&[("AWS_PROFILE", "empty")], true);
    assert!(asked > 0, "{error}");
}
