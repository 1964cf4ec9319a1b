//! A small HTTP server of files in memory: it sends parts, knows tags, lists a bucket as S3 does, and can be told not to answer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The server; it ends with the test's process.
pub(crate) struct Server {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

/// What it has, and what it has seen.
#[derive(Default)]
pub(crate) struct State {
    /// Each file by its path, with the number of its state.
    files: BTreeMap<String, (Arc<Vec<u8>>, u32)>,
    /// The file that is not answered for.
    hung: Option<String>,
    /// Behind so many requests no file is answered for.
    ends: Option<usize>,
    /// The requests for files: the first line and the headers.
    pub(crate) requests: Vec<String>,
    /// How often a bucket was listed.
    pub(crate) listings: usize,
    /// Bytes of files that were sent.
    pub(crate) sent: usize,
}

impl Server {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // a client that goes away ends its thread
                std::thread::spawn(move || serve(&connection, &shared));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Has the file at a path be these bytes from now on.
    pub(crate) fn put(&self, path: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let next = state.files.get(path).map_or(1, |file| file.1 + 1);
        state.files.insert(path.to_owned(), (Arc::new(bytes), next));
    }

    /// Does not answer for this file, until another call says another one, or none.
    pub(crate) fn hang(&self, path: Option<&str>) {
        self.state().hung = path.map(str::to_owned);
        self.shared.released.notify_all();
    }

    /// Answers so many more requests for files, and then no other.
    pub(crate) fn end_after(&self, more: usize) {
        let mut state = self.state();
        state.ends = Some(state.requests.len() + more);
    }

    /// The URL of the file at a path.
    pub(crate) fn url(&self, path: &str) -> PathBuf {
        format!("{}{path}", self.origin()).into()
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Answers what comes through a connection.
fn serve(connection: &TcpStream, shared: &Shared) -> Option<()> {
    let mut input = BufReader::new(connection);
    loop {
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if input.read_line(&mut request).ok()? == 0 {
                return None;
            }
        }
        let target = request.split(' ').nth(1)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if query.contains("list-type=2") {
            let mut state = shared.state.lock().ok()?;
            state.listings += 1;
            let listed = list(&state, path, query);
            drop(state);
            reply(
                connection,
                "200 OK",
                "Content-Type: application/xml\r\n",
                listed.as_bytes(),
            )?;
            continue;
        }
        let path = &decoded(path);
        let mut state = shared.state.lock().ok()?;
        state.requests.push(request.clone());
        if state.ends.is_some_and(|ends| state.requests.len() > ends) {
            return None;
        }
        while state.hung.as_ref() == Some(path) {
            let limit = Duration::from_mins(1);
            state = shared.released.wait_timeout(state, limit).ok()?.0;
        }
        let Some((bytes, version)) = state.files.get(path).cloned() else {
            drop(state);
            reply(connection, "404 Not Found", "", b"")?;
            continue;
        };
        if bytes.is_empty() && header(&request, "range").is_some() {
            drop(state);
            reply(connection, "416 Range Not Satisfiable", "", b"")?;
            continue;
        }
        let range = part(&request, bytes.len());
        let body = &bytes[range.clone()];
        let tag = format!("\"v{version}\"");
        if header(&request, "if-none-match").is_some_and(|known| known == tag) {
            drop(state);
            reply(
                connection,
                "304 Not Modified",
                &format!("ETag: {tag}\r\n"),
                b"",
            )?;
            continue;
        }
        state.sent += body.len();
        drop(state);
        if header(&request, "if-match").is_some_and(|wanted| wanted != tag) {
            reply(connection, "412 Precondition Failed", "", b"")?;
            continue;
        }
        let all = bytes.len();
        let last = range.end.saturating_sub(1);
        let (status, said) = if header(&request, "range").is_some() {
            let said = format!("Content-Range: bytes {}-{last}/{all}\r\n", range.start);
            ("206 Partial Content", said)
        } else {
            ("200 OK", String::new())
        };
        let headers =
            format!("ETag: {tag}\r\nLast-Modified: Sun, 22 Nov 2026 20:00:00 GMT\r\n{said}");
        reply(connection, status, &headers, body)?;
    }
}

/// The path that a request is for.
fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut out = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(&part[..2], 16).unwrap());
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(out).unwrap()
}

/// The value of a header.
fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request.lines().find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The bytes that are asked for: `bytes=1-2`, `bytes=1-` or `bytes=-2`.
fn part(request: &str, len: usize) -> std::ops::Range<usize> {
    let asked = header(request, "range").and_then(|range| range.strip_prefix("bytes="));
    let (first, last) = asked.unwrap_or("0-").split_once('-').unwrap();
    if first.is_empty() {
        return len.saturating_sub(last.parse().unwrap())..len;
    }
    let end = last.parse::<usize>().map_or(len, |last| last + 1).min(len);
    first.parse::<usize>().unwrap().min(end)..end
}

/// A bucket as S3 lists it, in one page.
fn list(state: &State, path: &str, query: &str) -> String {
    let bucket = format!("{}/", path.trim_end_matches('/'));
    let prefix = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("prefix="));
    let prefix = prefix.unwrap_or_default().replace("%2F", "/");
    let entries = state.files.iter().filter_map(|(path, (bytes, version))| {
        let key = path.strip_prefix(&bucket)?;
        key.starts_with(&prefix).then(|| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-22T20:00:00.000Z</LastModified><ETag>\"v{version}\"</ETag><Size>{}</Size></Contents>",
                bytes.len()
            )
        })
    });
    let entries: String = entries.collect();
    format!("<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>")
}

fn reply(mut to: &TcpStream, status: &str, headers: &str, body: &[u8]) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    to.write_all(head.as_bytes()).ok()?;
    to.write_all(body).ok()
}
