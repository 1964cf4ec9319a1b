//! The clients: one for each scheme and login, and one store for each bucket.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, resolve_bucket_region};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ClientOptions, GetOptions, GetResult, HeaderValue, ObjectStore, RetryConfig,
};
use reqwest::Url;
use reqwest::header::AUTHORIZATION;
use reqwest::redirect::Policy;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::checked::Checked;
use super::credentials::Profile;
use super::environment;
use super::error::RemoteError;
use super::location::{Address, Cloud, Location, Login};
use super::proxy;
use super::{RemoteOptions, Traffic};
use crate::error::{lock, printable};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);

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
    /// Who is asked, for people.
    server: String,
    /// Whether the only credentials may be those that a machine in the cloud gets from its provider.
    guesses: bool,
    /// Whether there ever was an answer.
    answered: Arc<AtomicBool>,
    /// What is shown of the proxy by which it is asked.
    pub(super) proxy: Option<String>,
    /// What is asked of its server.
    pub(super) traffic: Arc<Traffic>,
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
    /// A bucket; `origin` are the settings that tell it from others of its name, the first of them its endpoint.
    fn bucket<T: ObjectStore + PaginatedListStore>(
        store: T,
        cloud: Cloud,
        origin: &[Option<String>],
        guesses: bool,
    ) -> Self {
        let endpoint = origin.first().and_then(Option::as_deref);
        let endpoint = endpoint.and_then(|endpoint| Url::parse(endpoint).ok());
        let server = match endpoint {
            Some(endpoint) => origin_of(&endpoint),
            None => cloud.name().to_owned(),
        };
        let store = Arc::new(store);
        let pages: Arc<T> = Arc::clone(&store);
        Self {
            store,
            path: Path::default(),
            pages: Some(pages),
            origin: format!("{origin:?}"),
            server,
            guesses,
            answered: Arc::default(),
            proxy: None,
            traffic: Arc::default(),
        }
    }

    /// Makes a request for it.
    pub(super) async fn get(&self, options: GetOptions) -> object_store::Result<GetResult> {
        self.traffic.note_request();
        self.store.get_opts(&self.path, options).await
    }

    /// Whether the credentials may be missing: those that a machine gets from its provider are guessed at until there is an answer.
    pub(super) fn guesses(&self) -> bool {
        self.guesses && !self.answered.load(Ordering::Relaxed)
    }

    /// Notes that there is an answer.
    pub(super) fn note_answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
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
    pub(super) async fn find(
        &self,
        at: &Location,
        traffic: Arc<Traffic>,
    ) -> Result<StoredObject, RemoteError> {
        let failed = |error: object_store::Error| RemoteError::Failed {
            url: at.to_string(),
            why: innermost(&error),
        };
        match at.kind() {
            Address::Web { url, login } => self.web_store(at, url, login.as_ref(), traffic),
            Address::Bucket { cloud, bucket, key } => {
                let path = Path::parse(key).map_err(|error| failed(error.into()))?;
                // one client for each bucket: a new one would ask for credentials and the region again
                let known = (*cloud, bucket.clone());
                let found = lock(&self.buckets).get(&known).cloned();
                let bucket = if let Some(found) = found {
                    found
                } else {
                    let made = self.bucket(*cloud, bucket).await;
                    let is_plain = |made: &StoredObject| made.server.starts_with("http:");
                    // before any other failure, which may come of it
                    if !made.as_ref().is_ok_and(is_plain) {
                        self.check_certificates(at)?;
                    }
                    let made = made.map_err(|error| {
                        let settings = environment::settings(&self.variables, cloud.settings());
                        let url = at.to_string();
                        let why = innermost(&error);
                        let why = environment::named(&settings.unwrap_or_default(), why);
                        RemoteError::Failed { url, why }
                    })?;
                    lock(&self.buckets).entry(known).or_insert(made).clone()
                };
                // the names of the hosts of clouds, which no_proxy hardly has
                let https = Url::parse("https://storage.invalid").ok();
                let proxy = https.and_then(|url| proxy::named_for(&self.variables, &url));
                traffic.note_server(&bucket.server);
                Ok(StoredObject {
                    path,
                    proxy,
                    traffic,
                    ..bucket
                })
            }
        }
    }

    /// The store of a URL on a web server.
    fn web_store(
        &self,
        at: &Location,
        url: &Url,
        login: Option<&Login>,
        traffic: Arc<Traffic>,
    ) -> Result<StoredObject, RemoteError> {
        let failed = |why| RemoteError::Failed {
            url: at.to_string(),
            why,
        };
        if url.scheme() == "https" {
            self.check_certificates(at)?;
        }
        let client = self.web_client(url);
        let client = client.map_err(|error| failed(unmade(error)))?;
        let login = login.map(|login| basic(&client, url, login));
        let login = login.transpose().map_err(|error| failed(unmade(error)))?;
        traffic.note_server(&origin_of(url));
        let store = HttpBuilder::new()
            .with_url(url.as_str())
            .with_retry(no_retries())
            .with_http_connector(Connector::Made(client, login.flatten()))
            .build()
            .map_err(|error| failed(innermost(&error)))?;
        Ok(StoredObject {
            store: Arc::new(store),
            path: Path::default(),
            pages: None,
            origin: String::new(),
            server: String::new(),
            guesses: false,
            answered: Arc::default(),
            proxy: proxy::named_for(&self.variables, url),
            traffic,
        })
    }

    /// Checks the file that the user has named for CA certificates: the library tells of none in it as of none in the system.
    fn check_certificates(&self, at: &Location) -> Result<(), RemoteError> {
        // the library takes an empty one for the name of a file, too
        let Some(named) = self.variables.get("SSL_CERT_FILE") else {
            return Ok(());
        };
        let why = match std::fs::read(named) {
            Ok(text) => {
                let found = CertificateDer::pem_slice_iter(&text).flatten();
                let (usable, _) = RootCertStore::empty().add_parsable_certificates(found);
                if usable > 0 {
                    return Ok(());
                }
                "no certificate in it; it has to be a file in the PEM format".to_owned()
            }
            Err(_) if named.is_empty() => "unset it, or name a file".to_owned(),
            Err(cause) => cause.to_string(),
        };
        Err(RemoteError::Failed {
            url: at.to_string(),
            why: format!("SSL_CERT_FILE={named}: {why}"),
        })
    }

    /// The client for URLs with the scheme of this one, which the first of them makes.
    fn web_client(&self, url: &Url) -> reqwest::Result<reqwest::Client> {
        let scheme = url.scheme().to_owned();
        if let Some(found) = lock(&self.web).get(&scheme) {
            return Ok(found.clone());
        }
        // a redirect must not lead to where the bytes can be changed on the way
        let client = new_client(self.connect, scheme == "https")?;
        Ok(lock(&self.web).entry(scheme).or_insert(client).clone())
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
                let store = builder.build()?;
                Ok(StoredObject::bucket(store, cloud, &origin, guesses))
            }
            Cloud::Google => {
                let builder = self.google(name)?.with_http_connector(connector);
                let keys = [
                    GoogleConfigKey::BaseUrl,
                    // it may name another endpoint
                    GoogleConfigKey::ServiceAccount,
                    GoogleConfigKey::ApplicationCredentials,
                ];
                let origin = keys.map(|key| builder.get_config_value(&key));
                let store = builder.with_retry(retries).build()?;
                Ok(StoredObject::bucket(store, cloud, &origin, self.sign))
            }
            Cloud::Azure => {
                let builder = self.azure(name)?.with_http_connector(connector);
                let keys = [
                    AzureConfigKey::Endpoint,
                    AzureConfigKey::AccountName,
                    AzureConfigKey::UseEmulator,
                ];
                let origin = keys.map(|key| builder.get_config_value(&key));
                let [_, account, emulated] = &origin;
                if account.is_none() && !is_set(emulated.as_deref()) {
                    let why = "the URL names no storage account; set AZURE_STORAGE_ACCOUNT_NAME";
                    return Err(not_made("Azure", why.to_owned()));
                }
                let store = builder.with_retry(retries).build()?;
                Ok(StoredObject::bucket(store, cloud, &origin, self.sign))
            }
        }
    }

    /// A bucket of Google with what the environment says.
    fn google(&self, name: &str) -> object_store::Result<GoogleCloudStorageBuilder> {
        let mut builder = GoogleCloudStorageBuilder::new();
        if let Some(account) = self.variable("SERVICE_ACCOUNT") {
            builder = builder.with_service_account_path(account);
        }
        for (key, value) in self.settings("GOOGLE_", "Google")? {
            builder = builder.with_config(key, value);
        }
        // last: a variable may name another one
        builder = builder.with_bucket_name(name);
        if !self.sign {
            builder = builder.with_skip_signature(true);
        }
        Ok(builder)
    }

    /// A container of Azure with what the environment says.
    fn azure(&self, name: &str) -> object_store::Result<MicrosoftAzureBuilder> {
        let mut builder = MicrosoftAzureBuilder::new();
        if let Some(endpoint) = self.variable("MSI_ENDPOINT") {
            builder = builder.with_msi_endpoint(endpoint);
        }
        for (key, value) in self.settings("AZURE_", "Azure")? {
            builder = builder.with_config(key, value);
        }
        // last: a variable may name another one
        builder = builder.with_container_name(name);
        if !self.sign {
            builder = builder.with_skip_signature(true);
        }
        Ok(builder)
    }

    /// A variable of the environment that is not empty.
    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// The settings in the environment whose names begin so, those that the store knows.
    fn settings<K: FromStr>(
        &self,
        prefix: &str,
        store: &'static str,
    ) -> object_store::Result<Vec<(K, &str)>> {
        let settings = environment::settings(&self.variables, prefix);
        let settings = settings.map_err(|why| not_made(store, why))?.into_iter();
        let known = |name: &str| name.to_ascii_lowercase().parse().ok();
        Ok(settings
            .filter_map(|(name, value)| Some((known(name)?, value)))
            .collect())
    }

    /// A bucket of S3 with what environment and profile say, and whether credentials have to be guessed.
    async fn amazon(&self, name: &str) -> object_store::Result<(AmazonS3Builder, bool)> {
        let mut builder = AmazonS3Builder::new();
        for (key, value) in without_lone_token(self.settings("AWS_", "S3")?) {
            builder = builder.with_config(key, value);
        }
        // last: a variable may name another one
        builder = builder.with_bucket_name(name);
        let says = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
        let profile = Profile::find(&self.variables);
        let token = profile.token().map(|token| ("the token", token));
        let region = profile.region().map(|region| ("the region", region));
        let endpoint = profile.endpoint().map(|it| ("the endpoint_url", it));
        let id = profile.keys().map(|(id, _)| ("the aws_access_key_id", id));
        for (name, value) in [token, region, endpoint, id].into_iter().flatten() {
            let name = format!("{name} of the profile in ~/.aws");
            environment::check(&name, value).map_err(|why| not_made("S3", why))?;
        }
        if !self.sign {
            builder = builder.with_skip_signature(true);
        }
        // the environment may say so, too
        let anonymous = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature);
        let anonymous = is_set(anonymous.as_deref());
        let known = [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::WebIdentityTokenFile,
            AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
            AmazonS3ConfigKey::ContainerCredentialsFullUri,
        ];
        // without any keys the library asks the metadata server of the machine, which hangs outside of the cloud
        let mut guesses = !anonymous && !known.iter().any(|&key| says(&builder, key));
        if let Some(why) = profile.lack().filter(|_| guesses) {
            return Err(not_made("S3", why.to_owned()));
        }
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
        // variables of the environment go before the profile, as in the tools of AWS
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
                // the signature has the region in it, so that a wrong one is refused; the bucket itself says it without a login
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
    let scheme = endpoint.as_deref().and_then(|it| it.split_once("://"));
    let is_http = scheme.is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("http"));
    if is_http && !is_set(allowed.as_deref()) {
        let why = "the endpoint begins with http:, where others can read and change what is sent; AWS_ALLOW_HTTP=true allows it";
        return Err(not_made("S3", why.to_owned()));
    }
    Ok(())
}

/// The store makes no request again: [`Patience`](super::patience::Patience) does, which knows the deadline.
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
            // parts come over several connections at once: in one of HTTP/2 a lost packet would hold up all of them
            .http1_only()
            // redirects are followed in `redirect`, which keeps secrets from other servers
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

/// Scheme, host and port of a URL.
fn origin_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The text of the error that all others stand on: those above it name the URL, with what is secret in it.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    printable(&error.to_string())
}
/// Settings of the environment without a session token that belongs to no key beside it: the keys of a profile have their own, or none.
fn without_lone_token(
    mut settings: Vec<(AmazonS3ConfigKey, &str)>,
) -> Vec<(AmazonS3ConfigKey, &str)> {
    let mut keys = settings.iter().map(|(key, _)| *key);
    let has_id = keys.any(|key| key == AmazonS3ConfigKey::AccessKeyId);
    settings.retain(|(key, _)| has_id || *key != AmazonS3ConfigKey::Token);
    settings
}
