//! A server on this machine that answers as real ones do, and as they should not.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    /// By their names in small letters.
    pub(super) headers: HashMap<String, String>,
    /// How many came before it.
    pub(super) number: usize,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The range that is asked for of `len` bytes.
    pub(super) fn range(&self, len: usize) -> Option<Range<usize>> {
        let (first, last) = self
            .header("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let last: usize = last.parse().ok()?;
        Some(first.parse().ok()?..len.min(last + 1))
    }
}

/// An answer: status, headers, and what of the body is sent.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) how: How,
}

/// How a body is sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum How {
    Plain,
    /// So many bytes of it; then the connection is closed.
    Cut(usize),
    /// In chunks, without a length.
    Chunked,
    /// In pieces of so many bytes, with a pause before each.
    Slow(usize, Duration),
    /// Nothing is sent at all until the server ends.
    Hang,
    /// Headers and so many bytes are sent, and no more until the server ends, if there are more.
    HangAfter(usize),
}

impl Answer {
    pub(super) fn new(status: u16, body: &[u8]) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.to_vec(),
            how: How::Plain,
        }
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub(super) fn how(self, how: How) -> Self {
        Self { how, ..self }
    }

    /// As a good server answers: the part that is asked for, 304 if its tag is known, or 412 if it is another one.
    pub(super) fn good(request: &Request, bytes: &[u8], etag: &str) -> Self {
        if request.header("if-none-match") == Some(etag) {
            return Self::new(304, b"").with("ETag", etag);
        }
        if request
            .header("if-match")
            .is_some_and(|wanted| wanted != etag)
        {
            return Self::new(412, b"");
        }
        Self::part(request, bytes).with("ETag", etag)
    }

    /// The part that is asked for, with no tag and no date.
    pub(super) fn part(request: &Request, bytes: &[u8]) -> Self {
        let len = bytes.len();
        let Some(range) = request.range(len) else {
            return Self::new(200, bytes);
        };
        if range.start >= len {
            return Self::new(416, b"").with("Content-Range", &format!("bytes */{len}"));
        }
        let said = format!("bytes {}-{}/{len}", range.start, range.end - 1);
        Self::new(206, &bytes[range]).with("Content-Range", &said)
    }
}

/// A server that runs until it is dropped.
pub(super) struct Stub {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    respond: Box<dyn Fn(&Request) -> Answer + Send + Sync>,
    requests: Mutex<Vec<Request>>,
    came: Condvar,
    sent: AtomicUsize,
    ended: AtomicBool,
}

impl Stub {
    pub(super) fn new(respond: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            requests: Mutex::default(),
            came: Condvar::new(),
            sent: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.ended.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&serving);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { shared, port }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Bytes of bodies that were sent.
    pub(super) fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Waits until so many requests have come.
    pub(super) fn wait_for(&self, requests: usize) {
        let came = self.shared.requests.lock().unwrap();
        let less = |came: &mut Vec<Request>| came.len() < requests;
        drop(self.shared.came.wait_while(came, less).unwrap());
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.came.notify_all();
        // wakes the thread that accepts
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) {
        // head and body are written one after the other
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream);
        while let Some(mut request) = read_request(&mut reader) {
            let mut requests = self.requests.lock().unwrap();
            request.number = requests.len();
            requests.push(request.clone());
            drop(requests);
            self.came.notify_all();
            let answer = (self.respond)(&request);
            if answer.how == How::Hang {
                return self.hang();
            }
            if self
                .send(stream, &answer, request.method == "HEAD")
                .is_err()
            {
                return;
            }
        }
    }

    fn hang(&self) {
        let requests = self.requests.lock().unwrap();
        let goes_on = |_: &mut Vec<Request>| !self.ended.load(Ordering::Relaxed);
        drop(self.came.wait_while(requests, goes_on).unwrap());
    }

    fn send(&self, mut stream: &TcpStream, answer: &Answer, head: bool) -> std::io::Result<()> {
        let mut text = format!("HTTP/1.1 {} Stub\r\n", answer.status);
        for (name, value) in &answer.headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        let chunked = answer.how == How::Chunked;
        if chunked {
            text.push_str("Transfer-Encoding: chunked\r\n");
        } else if !answer
            .headers
            .iter()
            .any(|(name, _)| name == "Content-Length")
        {
            write!(text, "Content-Length: {}\r\n", answer.body.len()).unwrap();
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes())?;
        if head {
            return Ok(());
        }
        let count = |bytes: &[u8]| self.sent.fetch_add(bytes.len(), Ordering::Relaxed);
        let body = &answer.body;
        match &answer.how {
            How::Plain | How::Hang => {
                count(body);
                stream.write_all(body)?;
            }
            How::Chunked => {
                for chunk in body.chunks(50_000) {
                    count(chunk);
                    stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
                    stream.write_all(chunk)?;
                    stream.write_all(b"\r\n")?;
                }
                stream.write_all(b"0\r\n\r\n")?;
            }
            How::Slow(len, pause) => {
                for chunk in body.chunks(*len) {
                    thread::sleep(*pause);
                    count(chunk);
                    stream.write_all(chunk)?;
                }
            }
            How::Cut(len) => {
                stream.write_all(&body[..(*len).min(body.len())])?;
                stream.shutdown(std::net::Shutdown::Both)?;
            }
            How::HangAfter(len) => {
                stream.write_all(&body[..(*len).min(body.len())])?;
                if *len < body.len() {
                    self.hang();
                }
            }
        }
        Ok(())
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&len| len > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let len = headers
        .get("content-length")
        .and_then(|len| len.parse().ok());
    let mut body = vec![0; len.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        target,
        headers,
        number: 0,
    })
}
