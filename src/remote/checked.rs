//! What is checked of each answer before the store looks at it.
//!
//! A part of a file is taken only as the file's own bytes: one range, begun where it was asked for, of the length that its headers agree
//! on, in no coding. A proxy that packs what passes through it changes all of that, and its bytes would be taken for those of the file.
//! A part may be shorter than what was asked for: the reader asks for the rest.
//!
//! An answer that is not the wanted one becomes an error here, with its status, before its body is read: it may be a whole file, or an error
//! page of any length.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, NaiveDateTime, Utc};
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{GetResult, HeaderMap, HeaderValue};
use reqwest::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    DATE, HeaderName, LAST_MODIFIED, RANGE, RETRY_AFTER, TRANSFER_ENCODING,
};

use super::failure::{AttemptFailure, Trouble};
use super::listing::{LeftOut, is_page};
use super::redirect;
use crate::error::printable;

/// The longest answer that is no part of a file: a page of a listing, or credentials.
const BODY_LIMIT: usize = 16 << 20;

/// How much of an error page is looked at, and for how long it is waited for.
const PAGE_LIMIT: usize = 4 << 10;
const PAGE_WAIT: Duration = Duration::from_secs(1);

/// The coding that changes nothing.
const IDENTITY: &str = "identity";

/// The longest code of an error that is shown, in bytes.
const CODE_LIMIT: usize = 64;

/// What the headers of a part say of its body, for the reader of the body.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartHead {
    /// The offset in the file behind its last byte.
    pub(super) end: u64,
    /// Whether the server has said how long the body is. Of one that it has not, only the end tells that it was not longer.
    pub(super) is_counted: bool,
}

impl PartHead {
    /// That of an answer.
    pub(super) fn of(answer: &GetResult) -> Result<Self, AttemptFailure> {
        let head = answer.extensions.get().copied();
        head.ok_or_else(|| {
            AttemptFailure::Failed(Trouble::Senseless, "an answer that is no part".to_owned())
        })
    }
}

/// A client whose answers are checked.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) client: HttpClient,
    /// The header of the login, for the server of the URL.
    pub(super) login: Option<HeaderValue>,
    /// Whether an answer may be a whole file.
    pub(super) may_be_whole: bool,
}

impl HttpService for Checked {
    fn call<'life, 'call>(
        &'life self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'life: 'call,
        Self: 'call,
    {
        Box::pin(self.execute(request))
    }
}

impl Checked {
    /// Makes a request, and checks the answer as the module says. A body that is no file, such as a page of a listing, is gathered
    /// here, up to [`BODY_LIMIT`].
    async fn execute(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let wanted = request.headers().get(RANGE).cloned();
        // taken before the request is given away: only requests for a page of a listing have it
        let left_out = request.extensions().get::<LeftOut>().cloned();
        let headers = request.headers_mut();
        // a coded answer to a range is a part of the coded body, not of the file
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(IDENTITY));
        // forbids proxies to compress on the way (RFC 9111 §5.2.1.6); some heed it
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-transform"));
        let response = redirect::follow(&self.client, self.login.as_ref(), request).await?;
        let (mut parts, body) = response.into_parts();
        check_date(&mut parts.headers);
        let status = parts.status.as_u16();
        let is_good = (200..300).contains(&status);
        if is_good {
            check_coding(&parts.headers)?;
        }
        if status == 206 {
            let head = check_part(&mut parts.headers, wanted.as_ref())?;
            parts.extensions.insert(head);
            return Ok(HttpResponse::from_parts(parts, body));
        }
        if status == 200 && wanted.is_none() && self.may_be_whole {
            // no length is no error to the reader, who counts
            let len = parts.headers.entry(CONTENT_LENGTH);
            len.or_insert(HeaderValue::from(0));
            return Ok(HttpResponse::from_parts(parts, body));
        }
        if is_good && wanted.is_none() {
            let mut body = gather(body, BODY_LIMIT).await?;
            if let Some(left_out) = left_out {
                if !is_page(&body) {
                    return Err(senseless(no_listing(&body)));
                }
                body = left_out.filter(body);
                // objects were left out, so that the length is another one
                parts.headers.remove(CONTENT_LENGTH);
            }
            return Ok(HttpResponse::from_parts(parts, body.into()));
        }
        let len = number_in(&parts.headers, &CONTENT_LENGTH);
        let pause = pause_of(&parts.headers, SystemTime::now());
        let code = if is_good {
            String::new()
        } else {
            // a page that does not come, or is too long, has no code
            let page = tokio::time::timeout(PAGE_WAIT, gather(body, PAGE_LIMIT)).await;
            error_code(&page.unwrap_or(Ok(Vec::new())).unwrap_or_default())
        };
        Err(HttpError::new(
            HttpErrorKind::Unknown,
            UnwantedAnswer {
                status,
                len,
                code,
                pause,
            },
        ))
    }
}

/// An answer that is not the wanted one.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the server answers {status} {code}")]
pub(super) struct UnwantedAnswer {
    pub(super) status: u16,
    /// The length that it says.
    pub(super) len: Option<u64>,
    /// The code of an error of S3, Azure or Google Cloud Storage, if there is one.
    pub(super) code: String,
    /// How long it wants to be left alone.
    pub(super) pause: Option<Duration>,
}

/// Makes `Last-Modified` one that the store can parse. An invalid one is ignored (RFC 9110 §8.8.2.1), as if it were not there.
fn check_date(headers: &mut HeaderMap) {
    let said = headers.remove(LAST_MODIFIED);
    let time = said.and_then(|said| time_of(said.to_str().ok()?));
    let text = time.map(|time| time.format("%a, %d %b %Y %T GMT").to_string());
    // a year of five digits has a form that the store can't parse
    let text = text.filter(|text| DateTime::parse_from_rfc2822(text).is_ok());
    if let Some(Ok(text)) = text.map(HeaderValue::try_from) {
        headers.insert(LAST_MODIFIED, text);
    }
}

/// The time in a header, in one of the three forms of RFC 9110 §5.6.7.
fn time_of(text: &str) -> Option<DateTime<Utc>> {
    const OLD: [&str; 2] = ["%A, %d-%b-%y %T GMT", "%a %b %e %T %Y"];
    let text = text.trim();
    let old = |form| NaiveDateTime::parse_from_str(text, form).ok();
    match DateTime::parse_from_rfc2822(text) {
        Ok(time) => Some(time.to_utc()),
        Err(_) => Some(OLD.into_iter().find_map(old)?.and_utc()),
    }
}

/// Checks that a body is not coded: its bytes are not those of the file then.
fn check_coding(headers: &HeaderMap) -> Result<(), HttpError> {
    // some stores keep the framing of an upload, which is gone, as the coding of the object
    for plain in [
        (&CONTENT_ENCODING, [IDENTITY, "aws-chunked"]),
        (&TRANSFER_ENCODING, ["chunked", IDENTITY]),
    ] {
        let (name, plain) = plain;
        let said = headers.get_all(name).iter();
        let said = said.map(|value| value.to_str().unwrap_or("?"));
        let mut codings = said.flat_map(|value| value.split(',').map(str::trim));
        let is_coding = |coding: &&str| {
            let is_plain = plain.iter().any(|plain| plain.eq_ignore_ascii_case(coding));
            !is_plain && !coding.is_empty()
        };
        if let Some(coding) = codings.find(is_coding) {
            return Err(senseless(format!(
                "the answer is coded as {}, which was not asked for; a proxy on the way may do that",
                printable(coding)
            )));
        }
    }
    Ok(())
}

/// Checks the headers of a part of a file for which `wanted` has asked, and completes them. Of a part that is shorter, they are made those of
/// the part that was asked for, because the store takes no other; what is there, the returned head says.
fn check_part(
    headers: &mut HeaderMap,
    wanted: Option<&HeaderValue>,
) -> Result<PartHead, HttpError> {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
    let mut ranges = headers.get_all(CONTENT_RANGE).iter();
    let (said, more) = (ranges.next().and_then(text), ranges.next());
    // two Content-Range headers contradict each other, or come from an attacker
    let said = said.filter(|_| more.is_none());
    let wrong = |what: &str| {
        let said = printable(said.as_deref().unwrap_or("none"));
        Err(senseless(format!("{what}: {said}")))
    };
    let Some((first, last, size)) = said.as_deref().and_then(part_of) else {
        return wrong("the server sends a part of the file, but says of which bytes");
    };
    // a body of several parts has headers between them, which would be read as bytes of the file
    let kind = headers.get(CONTENT_TYPE).and_then(text).unwrap_or_default();
    if kind.to_ascii_lowercase().starts_with("multipart/") {
        return wrong("the server sends several parts of the file at once");
    }
    let Some((start, until)) = wanted.and_then(text).as_deref().and_then(asked_of) else {
        return wrong("the server sends a part of the file where all of it was asked for");
    };
    // a range may reach beyond the end of the file; the server then sends what there is
    let until = until.min(size.saturating_sub(1));
    if first != start || last > until {
        return wrong("the server sends another part of the file than was asked for");
    }
    let end = last.saturating_add(1);
    let len = end.saturating_sub(first);
    let said = number_in(headers, &CONTENT_LENGTH);
    if let Some(said) = said.filter(|&said| said != len) {
        return wrong(&format!(
            "the server sends {said} bytes as a part of the file with {len}"
        ));
    }
    // the client library compares the length with the range that was asked for: a shorter part is continued by us, so it is told the full one
    let full = until.saturating_add(1).saturating_sub(start);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(full));
    let range = HeaderValue::try_from(format!("bytes {start}-{until}/{size}"));
    let range = range.map_err(|_| senseless("not a range".to_owned()))?;
    headers.insert(CONTENT_RANGE, range);
    Ok(PartHead {
        end,
        is_counted: said.is_some(),
    })
}

/// First and last byte and the size of the file, of `bytes FIRST-LAST/SIZE`, if that makes sense.
fn part_of(range: &str) -> Option<(u64, u64, u64)> {
    let (unit, range) = range.trim().split_once(' ')?;
    let range = Some(range).filter(|_| unit.eq_ignore_ascii_case("bytes"));
    let (part, size) = range?.split_once('/')?;
    let (first, last) = part.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let size: u64 = size.parse().ok()?;
    (first <= last && last < size).then_some((first, last, size))
}

/// First and last byte, of `bytes=FIRST-LAST`.
fn asked_of(range: &str) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The number in a header.
fn number_in(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// How long the server wants to be left alone: so many seconds, or until a time by its own clock, which it may not tell.
fn pause_of(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    if let Some(seconds) = number_in(headers, &RETRY_AFTER) {
        return Some(Duration::from_secs(seconds));
    }
    let time_in = |name| {
        let text = headers.get(name)?.to_str().ok()?;
        Some(SystemTime::from(time_of(text)?))
    };
    let until: SystemTime = time_in(&RETRY_AFTER)?;
    // Retry-After is by the server's clock, which may differ from ours by hours
    let now = time_in(&DATE).unwrap_or(now);
    Some(until.duration_since(now).unwrap_or_default())
}

/// The error that an answer makes no sense, which no further attempt helps against.
pub(super) fn senseless(why: String) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, std::io::Error::other(why))
}

/// The bytes of a body, at most so many.
async fn gather(body: HttpResponseBody, limit: usize) -> Result<Vec<u8>, HttpError> {
    let mut stream = body.bytes_stream();
    let mut out = Vec::new();
    while let Some(bytes) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        let bytes = bytes?;
        // counted as it comes: a length that the server says is not trusted
        if bytes.len() > limit.saturating_sub(out.len()) {
            let why = format!("the server's answer is longer than {limit} bytes");
            return Err(senseless(why));
        }
        out.extend_from_slice(&bytes);
    }
    Ok(out)
}

/// That a body is no page of a listing.
fn no_listing(body: &[u8]) -> String {
    let code = error_code(body);
    let sent = if code.is_empty() {
        "something else".to_owned()
    } else {
        format!("the error {code}")
    };
    format!("the server sends {sent} in the place of a listing; a proxy on the way may do that")
}

/// What stands between `<Code>` and `</Code>` in an error of S3 and the like.
fn error_code(page: &[u8]) -> String {
    let page = String::from_utf8_lossy(page);
    let code = page
        .split_once("<Code>")
        .and_then(|(_, rest)| Some(rest.split_once("</Code>")?.0));
    // the page is the server's: nothing long of it gets into messages and logs
    let code = code.filter(|code| code.len() <= CODE_LIMIT);
    code.map(printable).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_makes_no_sense_is_none() {
        for (range, found) in [
            ("bytes 0-65535/100000", Some((0, 65535, 100_000))),
            ("Bytes 5-5/6", Some((5, 5, 6))),
            ("bytes 0-18446744073709551615/18446744073709551615", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes 6-5/9", None),
            ("bytes 0-9/9", None),
            ("bytes */9", None),
            ("items 0-1/9", None),
            ("", None),
        ] {
            assert_eq!(part_of(range), found, "{range}");
        }
    }

    /// A file whose `Last-Modified` could not be parsed could not be mounted.
    #[test]
    fn a_date_that_is_invalid_is_not_there_and_old_forms_are_valid() {
        const TIME: Option<&str> = Some("Sun, 01 Nov 2026 10:00:00 GMT");
        for (said, want) in [
            ("Sun, 01 Nov 2026 10:00:00 GMT", TIME),
            ("Sun, 01 Nov 2026 11:00:00 +0100", TIME),
            ("Sunday, 01-Nov-26 10:00:00 GMT", TIME),
            ("Sun Nov  1 10:00:00 2026", TIME),
            ("Mon, 01 Nov 2026 10:00:00 GMT", None),
            ("2026-11-01T10:00:00Z", None),
            ("01 Nov 12026 10:00:00 GMT", None),
            ("Sun Nov  1 10:00:00 -2026", None),
            ("yesterday", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(LAST_MODIFIED, said.parse().unwrap());
            check_date(&mut headers);
            let found = headers.get(LAST_MODIFIED);
            let found = found.map(|found| found.to_str().unwrap());
            assert_eq!(found, want, "{said}");
        }
    }

    /// The headers of an answer, and what is found of them: the end of the part, and whether its body is counted.
    fn checked(pairs: &[(HeaderName, &str)], asked: &str) -> Option<(u64, bool)> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        let asked = HeaderValue::from_str(asked).unwrap();
        check_coding(&headers).ok()?;
        let head = check_part(&mut headers, Some(&asked)).ok()?;
        Some((head.end, head.is_counted))
    }

    /// What a proxy had packed was taken for the bytes of the file.
    #[test]
    fn a_part_is_one_range_of_the_length_that_it_says_in_no_coding() {
        let range = (CONTENT_RANGE, "bytes 5-9/90");
        let len = (CONTENT_LENGTH, "5");
        let good: [&[(HeaderName, &str)]; 4] = [
            &[range.clone(), len.clone()],
            &[range.clone(), len.clone(), (CONTENT_ENCODING, "Identity")],
            &[
                range.clone(),
                len.clone(),
                (CONTENT_ENCODING, "aws-chunked"),
            ],
            &[range.clone(), len.clone(), (CONTENT_ENCODING, "")],
        ];
        for pairs in good {
            assert_eq!(checked(pairs, "bytes=5-9"), Some((10, true)), "{pairs:?}");
        }
        let chunked = [range.clone(), (TRANSFER_ENCODING, "chunked")];
        assert_eq!(checked(&chunked, "bytes=5-9"), Some((10, false)));
        // shorter than what was asked for
        assert_eq!(checked(good[0], "bytes=5-20"), Some((10, true)));
        let bad: [&[(HeaderName, &str)]; 9] = [
            std::slice::from_ref(&len),
            &[range.clone(), (CONTENT_LENGTH, "4")],
            &[range.clone(), (CONTENT_LENGTH, "6")],
            &[range.clone(), range.clone(), len.clone()],
            &[range.clone(), (CONTENT_ENCODING, "gzip")],
            &[
                range.clone(),
                len.clone(),
                (CONTENT_ENCODING, "identity, br"),
            ],
            &[range.clone(), (TRANSFER_ENCODING, "gzip, chunked")],
            &[
                range.clone(),
                len.clone(),
                (CONTENT_TYPE, "Multipart/byteranges; boundary=x"),
            ],
            &[(CONTENT_RANGE, "bytes 5-9/*"), len.clone()],
        ];
        for pairs in bad {
            assert_eq!(checked(pairs, "bytes=5-9"), None, "{pairs:?}");
        }
        for asked in ["bytes=4-9", "bytes=6-9", "bytes=5-8", "bytes=-5"] {
            assert_eq!(checked(good[0], asked), None, "{asked}");
        }
    }

    #[test]
    fn a_server_wants_to_be_left_alone_for_seconds_or_until_a_time_of_its_clock() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let then = "Sun, 06 Nov 1994 08:49:47 GMT";
        for (pairs, want) in [
            (&[(RETRY_AFTER, "7")][..], Some(7)),
            (&[(RETRY_AFTER, then)], Some(10)),
            (
                &[(RETRY_AFTER, then), (DATE, "Sun, 06 Nov 1994 08:49:43 GMT")],
                Some(4),
            ),
            (
                &[(RETRY_AFTER, then), (DATE, "Sun, 06 Nov 1994 08:50:00 GMT")],
                Some(0),
            ),
            (&[(RETRY_AFTER, "soon")], None),
            (&[(RETRY_AFTER, "-1")], None),
            (&[(DATE, then)], None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value.parse().unwrap());
            }
            let want = want.map(Duration::from_secs);
            assert_eq!(pause_of(&headers, now), want, "{pairs:?}");
        }
    }

    #[test]
    fn the_code_of_an_error_is_found() {
        let page =
            b"<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>x</Message></Error>";
        assert_eq!(error_code(page), "SlowDown");
        assert_eq!(error_code(b"<html>\xff no"), "");
        assert_eq!(
            error_code(&[b"<Code>", &[b'x'; 100][..], b"</Code>"].concat()),
            ""
        );
    }
}
