//! The clients: one for each scheme and login, one store for each bucket, and what is checked of each answer before the store
//! looks at it.
//!
//! An answer in parts gets the length that its `Content-Range` says, if it comes without one. An answer that is not one of
//! parts becomes an error here, with its status, before its body is read: it may be a whole file, or an error page of any
//! length.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, resolve_bucket_region};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ClientOptions, HeaderMap, HeaderValue, ObjectStore, RetryConfig,
};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use reqwest::redirect::Policy;

use super::RemoteOptions;
use super::credentials::Profile;
use super::error::RemoteError;
use super::listing::LeftOut;
use super::location::{Address, Cloud, Location, Login};
use super::redirect;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest answer that is no part of a file: a page of a listing, or credentials.
const BODY_LIMIT: usize = 16 << 20;

/// How much of an error page is looked at, and for how long it is waited for.
const PAGE_LIMIT: usize = 4 << 10;
const PAGE_WAIT: Duration = Duration::from_secs(1);

/// The longest code of an error that is shown, in bytes.
const CODE_LIMIT: usize = 64;

const AGENT: &str = concat!("asdf-mount/", env!("CARGO_PKG_VERSION"));

/// An object in its store.
#[derive(Clone)]
pub(super) struct StoredObject {
    pub(super) store: Arc<dyn ObjectStore>,
    /// Its key in the bucket; empty for an `http` URL, which the store has as a whole.
    pub(super) path: Path,
    /// What lists the bucket; nothing for an `http` URL.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// What tells the bucket from others of its name, if the URL does not: endpoint, region, account.
    pub(super) origin: String,
    /// Whether the only credentials may be those that a machine in the cloud gets from its provider.
    pub(super) guesses: bool,
}

/// The clients and stores that have been made.
pub(super) struct Clients {
    /// Whether requests to buckets are signed.
    sign: bool,
    /// The variables of the environment.
    variables: HashMap<String, String>,
    /// How long a connection may take to come about.
    connect: Duration,
    /// By scheme.
    web: Mutex<HashMap<String, reqwest::Client>>,
    /// By name, each with an empty path.
    buckets: Mutex<HashMap<(Cloud, String), StoredObject>>,
}

impl StoredObject {
    /// A bucket; `origin` are the settings that tell it from others of its name.
    fn bucket<T: ObjectStore + PaginatedListStore>(
        store: T,
        origin: &[Option<String>],
        guesses: bool,
    ) -> Self {
        let store = Arc::new(store);
        let pages: Arc<T> = Arc::clone(&store);
        Self {
            store,
            path: Path::default(),
            pages: Some(pages),
            origin: format!("{origin:?}"),
            guesses,
        }
    }
}

impl Clients {
    /// No clients yet. `variables` are those of the environment.
    pub(super) fn new(options: &RemoteOptions, variables: HashMap<String, String>) -> Self {
        Self {
            sign: options.sign,
            variables,
            connect: options.timeout.min(CONNECT),
            web: Mutex::default(),
            buckets: Mutex::default(),
        }
    }

    /// The store of a location. Asks for the region of a bucket that is new here, if nothing says it.
    pub(super) async fn find(&self, at: &Location) -> Result<StoredObject, RemoteError> {
        let failed = |error: object_store::Error| RemoteError::Failed {
            url: at.to_string(),
            why: innermost(&error),
        };
        match at.kind() {
            Address::Web { url, login } => {
                let unmade = |error: reqwest::Error| RemoteError::Failed {
                    url: at.to_string(),
                    why: unmade(error),
                };
                let client = self.web_client(url).map_err(unmade)?;
                let login = login.as_ref().map(|login| basic(&client, url, login));
                let login = login.transpose().map_err(unmade)?.flatten();
                let store = HttpBuilder::new()
                    .with_url(url.as_str())
                    .with_retry(no_retries())
                    .with_http_connector(Connector::Made(client, login))
                    .build()
                    .map_err(failed)?;
                Ok(StoredObject {
                    store: Arc::new(store),
                    path: Path::default(),
                    pages: None,
                    origin: String::new(),
                    guesses: false,
                })
            }
            Address::Bucket { cloud, bucket, key } => {
                let path = Path::parse(key).map_err(|error| failed(error.into()))?;
                let known = (*cloud, bucket.clone());
                let found = locked(&self.buckets).get(&known).cloned();
                let bucket = if let Some(found) = found {
                    found
                } else {
                    let made = self.bucket(*cloud, bucket).await.map_err(failed)?;
                    locked(&self.buckets).entry(known).or_insert(made).clone()
                };
                Ok(StoredObject { path, ..bucket })
            }
        }
    }

    /// The client for URLs with the scheme of this one, which the first of them makes.
    fn web_client(&self, url: &Url) -> reqwest::Result<reqwest::Client> {
        let scheme = url.scheme().to_owned();
        if let Some(found) = locked(&self.web).get(&scheme) {
            return Ok(found.clone());
        }
        // a redirect must not lead to where the bytes can be changed on the way
        let client = new_client(self.connect, scheme == "https")?;
        Ok(locked(&self.web).entry(scheme).or_insert(client).clone())
    }

    /// The store of a bucket, by what the environment says of its cloud; of a bucket of S3, its region may be asked for.
    async fn bucket(&self, cloud: Cloud, name: &str) -> object_store::Result<StoredObject> {
        let connector = Connector::New(self.connect);
        let retries = no_retries();
        match cloud {
            Cloud::Amazon => {
                let (builder, guesses) = self.amazon(name).await?;
                check_endpoint(&builder)?;
                let keys = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::Region];
                let origin = keys.map(|key| builder.get_config_value(&key));
                let builder = builder.with_http_connector(connector).with_retry(retries);
                Ok(StoredObject::bucket(builder.build()?, &origin, guesses))
            }
            Cloud::Google => {
                let builder = GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(name)
                    .with_http_connector(connector)
                    .with_retry(retries);
                let keys = [
                    GoogleConfigKey::BaseUrl,
                    // it may name another endpoint
                    GoogleConfigKey::ServiceAccount,
                    GoogleConfigKey::ApplicationCredentials,
                ];
                let origin = keys.map(|key| builder.get_config_value(&key));
                let builder = if self.sign {
                    builder
                } else {
                    builder.with_skip_signature(true)
                };
                Ok(StoredObject::bucket(builder.build()?, &origin, self.sign))
            }
            Cloud::Azure => {
                let builder = MicrosoftAzureBuilder::from_env()
                    .with_container_name(name)
                    .with_http_connector(connector)
                    .with_retry(retries);
                let keys = [
                    AzureConfigKey::AccountName,
                    AzureConfigKey::Endpoint,
                    AzureConfigKey::UseEmulator,
                ];
                let origin = keys.map(|key| builder.get_config_value(&key));
                let [account, _, emulated] = &origin;
                if account.is_none() && !is_set(emulated.as_deref()) {
                    let why = "the URL names no storage account; set AZURE_STORAGE_ACCOUNT_NAME";
                    return Err(not_made("Azure", why.to_owned()));
                }
                let builder = if self.sign {
                    builder
                } else {
                    builder.with_skip_signature(true)
                };
                Ok(StoredObject::bucket(builder.build()?, &origin, self.sign))
            }
        }
    }

    /// A bucket of S3 with what environment and profile say, and whether credentials have to be guessed.
    async fn amazon(&self, name: &str) -> object_store::Result<(AmazonS3Builder, bool)> {
        let mut builder = AmazonS3Builder::new().with_bucket_name(name);
        for (variable, value) in &self.variables {
            if variable.starts_with("AWS_")
                && let Ok(key) = variable.to_ascii_lowercase().parse()
            {
                builder = builder.with_config(key, value);
            }
        }
        let says = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
        let profile = Profile::find(&self.variables);
        if !self.sign {
            builder = builder.with_skip_signature(true);
        }
        let anonymous = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature);
        let anonymous = is_set(anonymous.as_deref());
        let known = [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::WebIdentityTokenFile,
            AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
            AmazonS3ConfigKey::ContainerCredentialsFullUri,
        ];
        let mut guesses = !anonymous && !known.iter().any(|&key| says(&builder, key));
        if guesses && let Some((id, secret)) = profile.keys() {
            builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
            if let Some(token) = profile.token() {
                builder = builder.with_token(token);
            }
            guesses = false;
        }
        let mut has_endpoint = says(&builder, AmazonS3ConfigKey::Endpoint);
        if let Some(endpoint) = profile.endpoint().filter(|_| !has_endpoint) {
            builder = builder.with_endpoint(endpoint);
            has_endpoint = true;
        }
        if !says(&builder, AmazonS3ConfigKey::Region)
            && !says(&builder, AmazonS3ConfigKey::DefaultRegion)
        {
            if let Some(region) = profile.region() {
                builder = builder.with_region(region);
            } else if !has_endpoint {
                let options = ClientOptions::new().with_timeout(self.connect);
                let region = resolve_bucket_region(name, &options).await;
                builder = builder.with_region(region.map_err(|error| {
                    let why = innermost(&error);
                    not_made(
                        "S3",
                        format!("asking for its region: {why}; set AWS_REGION"),
                    )
                })?);
            }
        }
        Ok((builder, guesses))
    }
}

/// The error that there can't be a store of a bucket, which says why and what to do.
fn not_made(store: &'static str, why: String) -> object_store::Error {
    object_store::Error::Generic {
        store,
        source: why.into(),
    }
}

/// Whether the value of a variable says yes, in one of the words that the store takes.
fn is_set(value: Option<&str>) -> bool {
    let yes = ["1", "true", "on", "yes", "y"];
    value.is_some_and(|value| yes.iter().any(|yes| value.eq_ignore_ascii_case(yes)))
}

/// Checks that requests may be made to the endpoint of a bucket, which the client would refuse without a reason.
fn check_endpoint(builder: &AmazonS3Builder) -> object_store::Result<()> {
    let value = |key| builder.get_config_value(&key);
    let endpoint = value(AmazonS3ConfigKey::Endpoint);
    let allowed = value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    if endpoint.is_some_and(|it| it.starts_with("http://")) && !is_set(allowed.as_deref()) {
        let why = "the endpoint is one of http, where others can read and change what is sent; AWS_ALLOW_HTTP=true allows it";
        return Err(not_made("S3", why.to_owned()));
    }
    Ok(())
}

/// The store makes no request again: [`Patience`](super::failure::Patience) does, which knows the deadline.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// A client that follows no redirects. One that is `secure` makes requests over https only.
fn new_client(connect: Duration, secure: bool) -> reqwest::Result<reqwest::Client> {
    let builder = || {
        reqwest::Client::builder()
            .user_agent(AGENT)
            .connect_timeout(connect)
            .http1_only()
            .redirect(Policy::none())
            .https_only(secure)
    };
    let client = builder().build();
    if secure {
        return client;
    }
    // it fails on a machine without CA certificates, and http needs none
    client.or_else(|_| builder().tls_certs_only([]).build())
}

/// Why there is no client.
fn unmade(error: reqwest::Error) -> String {
    let why = innermost(&error.without_url());
    format!("{why}; https needs the CA certificates of the system, or SSL_CERT_FILE=")
}

/// The header that tells a login to the server of `url`.
fn basic(
    client: &reqwest::Client,
    url: &Url,
    Login { user, password }: &Login,
) -> reqwest::Result<Option<HeaderValue>> {
    let request = client.get(url.clone()).basic_auth(user, Some(password));
    let request = request.build()?;
    Ok(request.headers().get(AUTHORIZATION).cloned())
}

/// Gives a store its client.
#[derive(Debug)]
enum Connector {
    /// This one, with the header of the login.
    Made(reqwest::Client, Option<HeaderValue>),
    /// A new one, in which connecting takes no longer than this. How long the bytes take is for the reader to judge.
    New(Duration),
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let (client, login) = match self {
            Self::Made(client, login) => (client.clone(), login.clone()),
            Self::New(connect) => {
                let plain = options.get_config_value(&ClientConfigKey::AllowHttp);
                let client = new_client(*connect, !is_set(plain.as_deref()));
                let client = client.map_err(|error| object_store::Error::Generic {
                    store: "http",
                    source: unmade(error).into(),
                })?;
                (client, None)
            }
        };
        let may_be_whole = matches!(self, Self::Made(..));
        Ok(HttpClient::new(Checked {
            client: HttpClient::new(client),
            login,
            may_be_whole,
        }))
    }
}

/// A client whose answers are checked.
#[derive(Debug)]
struct Checked {
    client: HttpClient,
    /// The header of the login, for the server of the URL.
    login: Option<HeaderValue>,
    /// Whether an answer may be a whole file.
    may_be_whole: bool,
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
    async fn execute(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let wants_part = request.headers().contains_key(RANGE);
        let left_out = request.extensions().get::<LeftOut>().cloned();
        let mut response = redirect::follow(&self.client, self.login.as_ref(), request).await?;
        let status = response.status().as_u16();
        if status == 206 {
            check_part(response.headers_mut())?;
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        if status == 200 && !wants_part && self.may_be_whole {
            // no length is no error to the reader, who counts
            let len = parts.headers.entry(CONTENT_LENGTH);
            len.or_insert(HeaderValue::from(0));
            return Ok(HttpResponse::from_parts(parts, body));
        }
        if (200..300).contains(&status) && !wants_part {
            let mut body = gather(body, BODY_LIMIT).await?;
            if let Some(left_out) = left_out {
                body = left_out.filter(body);
                parts.headers.remove(CONTENT_LENGTH);
            }
            return Ok(HttpResponse::from_parts(parts, body.into()));
        }
        let len = parts.headers.get(CONTENT_LENGTH);
        let len = len.and_then(|len| len.to_str().ok()?.parse().ok());
        let code = if (200..300).contains(&status) {
            String::new()
        } else {
            // a page that does not come, or is too long, has no code
            let page = tokio::time::timeout(PAGE_WAIT, gather(body, PAGE_LIMIT)).await;
            error_code(&page.unwrap_or(Ok(Vec::new())).unwrap_or_default())
        };
        Err(HttpError::new(
            HttpErrorKind::Unknown,
            UnwantedAnswer { status, len, code },
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
}

/// Checks the header of a part of a file, and completes it: a length is wanted even where the range says it.
fn check_part(headers: &mut HeaderMap) -> Result<(), HttpError> {
    let range = headers
        .get(CONTENT_RANGE)
        .and_then(|range| range.to_str().ok());
    let Some(len) = range.and_then(part_len) else {
        let said = crate::error::printable(range.unwrap_or("none"));
        let why = "the server sends a part of the file, but says of which bytes";
        return Err(senseless(format!("{why}: {said}")));
    };
    if !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    Ok(())
}

/// The length of the part that `bytes FIRST-LAST/SIZE` says, if it makes sense.
fn part_len(range: &str) -> Option<u64> {
    let (part, size) = range.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = part.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let size: u64 = size.parse().ok()?;
    (last < size).then(|| last.checked_sub(first)?.checked_add(1))?
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
        if bytes.len() > limit.saturating_sub(out.len()) {
            let why = format!("the server's answer is longer than {limit} bytes");
            return Err(senseless(why));
        }
        out.extend_from_slice(&bytes);
    }
    Ok(out)
}

/// What stands between `<Code>` and `</Code>` in an error of S3 and the like.
fn error_code(page: &[u8]) -> String {
    let page = String::from_utf8_lossy(page);
    let code = page
        .split_once("<Code>")
        .and_then(|(_, rest)| Some(rest.split_once("</Code>")?.0));
    let code = code.filter(|code| code.len() <= CODE_LIMIT);
    code.map(crate::error::printable).unwrap_or_default()
}

/// The text of the error that all others stand on: those above it name the URL, with what is secret in it.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    crate::error::printable(&error.to_string())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_makes_no_sense_has_no_length() {
        for (range, len) in [
            ("bytes 0-65535/100000", Some(65536)),
            ("bytes 5-5/6", Some(1)),
            ("bytes 0-18446744073709551615/18446744073709551615", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes 6-5/9", None),
            ("bytes 0-9/9", None),
            ("bytes */9", None),
            ("items 0-1/9", None),
            ("", None),
        ] {
            assert_eq!(part_len(range), len, "{range}");
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
