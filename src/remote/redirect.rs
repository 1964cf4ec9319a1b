//! Follows where servers redirect.
//!
//! The client does not: it knows of some headers only that they are secret, and a bucket has others, such as the token of a session or the
//! key of an encrypted object.

use object_store::HeaderValue;
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse};
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, HeaderName, IF_MATCH, IF_NONE_MATCH, LOCATION,
    RANGE,
};
use reqwest::{Method, Url};

use super::checked::senseless;

/// How often one request is redirected.
const REDIRECTS: usize = 10;

/// The headers that another server gets to which a server redirects.
const TOLD_ELSEWHERE: [HeaderName; 5] = [
    RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    ACCEPT_ENCODING,
    CACHE_CONTROL,
];

/// Makes a request, and again where the server redirects it. What is for this server alone, such as a `login`, a signature, or the token of a
/// session, no other one gets.
pub(super) async fn follow(
    client: &HttpClient,
    login: Option<&HeaderValue>,
    request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let (mut head, body) = request.into_parts();
    let at = Url::parse(&head.uri.to_string());
    let mut at = at.map_err(|_| senseless("not a URL".to_owned()))?;
    let is_secure = at.scheme() == "https";
    if let Some(login) = login {
        head.headers.insert(AUTHORIZATION, login.clone());
    }
    for _ in 0..=REDIRECTS {
        let request = HttpRequest::from_parts(head.clone(), body.clone());
        let response = client.execute(request).await?;
        // other methods ask for credentials, and these requests go to no other server
        let only_reads = matches!(head.method, Method::GET | Method::HEAD);
        let Some(to) = target(&at, &response).filter(|_| only_reads) else {
            return Ok(response);
        };
        if is_secure && to.scheme() != "https" {
            let why = "the server redirects to http, where others can read and change what is sent";
            return Err(senseless(why.to_owned()));
        }
        // a list of what may be told, not of what may not: a header that a library adds later stays here
        if to.origin() != at.origin() {
            let told = TOLD_ELSEWHERE.into_iter();
            let told = told.filter_map(|name| Some((name.clone(), head.headers.remove(name)?)));
            head.headers = told.collect();
        }
        let uri = to.as_str().parse();
        head.uri = uri.map_err(|_| senseless("it redirects to no URL".to_owned()))?;
        at = to;
    }
    let why = format!("the server redirects more than {REDIRECTS} times");
    Err(senseless(why))
}

/// Where an answer redirects, if it does.
fn target(at: &Url, response: &HttpResponse) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301..=303 | 307 | 308) {
        return None;
    }
    let to = str::from_utf8(response.headers().get(LOCATION)?.as_bytes());
    let mut to = at.join(to.ok()?).ok()?;
    to.set_fragment(None);
    // both fail only for URLs without a host, which http has
    let _ = to.set_username("");
    let _ = to.set_password(None);
    matches!(to.scheme(), "http" | "https").then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpService;
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll, Waker};

    /// Servers that redirect from each URL to the next one.
    #[derive(Debug, Clone)]
    struct Redirecting {
        urls: &'static [&'static str],
        /// Each request: its URL, and its headers.
        asked: Arc<Mutex<Vec<(String, String)>>>,
    }

    impl HttpService for Redirecting {
        fn call<'life, 'call>(
            &'life self,
            request: HttpRequest,
        ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
        where
            'life: 'call,
            Self: 'call,
        {
            let url = request.uri().to_string();
            let headers = format!("{:?}", request.headers());
            let mut asked = self.asked.lock().unwrap();
            asked.push((url, headers));
            let mut response = HttpResponse::new(Vec::new().into());
            if let Some(to) = self.urls.get(asked.len()) {
                *response.status_mut() = 302.try_into().unwrap();
                let to = HeaderValue::from_str(to).unwrap();
                response.headers_mut().insert(LOCATION, to);
            }
            Box::pin(async { Ok(response) })
        }
    }

    /// The status of the last answer, and the requests.
    fn followed(
        method: Method,
        urls: &'static [&'static str],
    ) -> (Result<u16, String>, Vec<(String, String)>) {
        let asked = Arc::default();
        let service = Redirecting { urls, asked };
        let mut request = HttpRequest::new(Vec::new().into());
        *request.uri_mut() = urls[0].parse().unwrap();
        *request.method_mut() = method;
        for (name, value) in [("range", "bytes=0-9"), ("x-amz-security-token", "hush")] {
            let value = HeaderValue::from_str(value).unwrap();
            request.headers_mut().insert(name, value);
        }
        let login = HeaderValue::from_static("Basic login");
        let client = HttpClient::new(service.clone());
        let mut answer = Box::pin(follow(&client, Some(&login), request));
        let Poll::Ready(answer) = answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("nothing is waited for");
        };
        let status = answer.map(|answer| answer.status().as_u16());
        let asked = service.asked.lock().unwrap().clone();
        (status.map_err(|error| format!("{error:?}")), asked)
    }

    #[test]
    fn another_server_gets_the_range_and_nothing_that_is_secret() {
        let urls = &[
            "http://h/a",
            "/b?c=d#e",
            "http://me:x@h:80/c",
            "http://h:81/d",
            "//h/e",
        ];
        let (status, asked) = followed(Method::GET, urls);
        assert_eq!(status, Ok(200));
        let urls: Vec<_> = asked.iter().map(|(url, _)| url.as_str()).collect();
        let want = [
            "http://h/a",
            "http://h/b?c=d",
            "http://h/c",
            "http://h:81/d",
            "http://h/e",
        ];
        assert_eq!(urls, want);
        for (n, (_, headers)) in asked.iter().enumerate() {
            assert!(headers.contains("bytes=0-9"), "{headers}");
            let at_home = headers.contains("login") && headers.contains("hush");
            assert_eq!(at_home, n < 3, "{n}: {headers}");
        }
    }

    /// It was said that the scheme of the URL was not allowed, after four seconds and five more attempts.
    #[test]
    fn a_redirect_from_https_to_http_is_refused() {
        let (error, asked) = followed(Method::GET, &["https://h/a", "https://i/b", "http://h/c"]);
        assert!(error.unwrap_err().contains("redirects to http"));
        assert_eq!(asked.len(), 2);
        let (status, _) = followed(Method::GET, &["http://h/a", "https://h/a", "http://h/c"]);
        assert_eq!(status, Ok(200));
    }

    #[test]
    fn what_is_sent_to_a_server_is_sent_to_no_other_one() {
        let (status, asked) = followed(Method::POST, &["https://h/a", "https://i/b"]);
        assert_eq!((status, asked.len()), (Ok(302), 1));
    }
}
