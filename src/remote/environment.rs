//! The settings of buckets in the environment, checked before a client is made of them: it panics at some that make no sense.

use std::collections::HashMap;

use object_store::client::HttpRequest;
use reqwest::Url;

/// The settings whose names begin so, sorted. One that is empty counts as one that is not there.
///
/// # Errors
/// Which one makes no sense, and why. The value is not told, as it may be secret.
pub(super) fn settings<'a>(
    variables: &'a HashMap<String, String>,
    prefix: &str,
) -> Result<Vec<(&'a str, &'a str)>, String> {
    let ours = variables
        .iter()
        .filter(|(name, _)| name.starts_with(prefix));
    let ours = ours.map(|(name, value)| (name.as_str(), value.trim()));
    let mut ours: Vec<_> = ours.filter(|(_, value)| !value.is_empty()).collect();
    ours.sort_unstable();
    for (name, value) in &ours {
        check(name, value)?;
    }
    Ok(ours)
}

/// Checks a setting by its name.
///
/// # Errors
/// As [`settings`].
pub(super) fn check(name: &str, value: &str) -> Result<(), String> {
    let upper = name.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    // paths and texts in JSON, which get into no request
    if has(&[
        "_FILE",
        "SERVICE_ACCOUNT",
        "APPLICATION_CREDENTIALS",
        "PROFILE",
        "_PATH",
    ]) {
        return Ok(());
    }
    if value.chars().any(|c| !c.is_ascii_graphic() && c != ' ') {
        return Err(format!("{name} holds a character that no request can hold"));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if has(&["REGION"]) && !value.chars().all(is_name) {
        return Err(format!("{name} is no name of a region, such as us-east-1"));
    }
    // these say yes or no
    let is_flag = has(&["ALLOW_", "SKIP_", "USE_", "_MODE"]);
    if has(&["ENDPOINT", "FULL_URI", "BASE_URL"]) && !is_flag && !is_web(value) {
        return Err(format!(
            "{name} is no URL: one begins with https:// or http://, and the name of a host follows"
        ));
    }
    Ok(())
}

/// Whether a text is the URL of a server. [`Url::parse`] corrects what a request, which takes it as it stands, refuses.
fn is_web(text: &str) -> bool {
    let mut request = HttpRequest::new(Vec::new().into());
    let parsed = text.parse().map(|parsed| *request.uri_mut() = parsed);
    let is_asked = parsed.is_ok() && request.uri().scheme().is_some();
    let url = Url::parse(text).ok().filter(|_| is_asked);
    url.is_some_and(|url| url.has_host() && url.scheme().starts_with("http"))
}

/// An error of the client, which names no variable, with the name of the one whose value it quotes.
pub(super) fn named(settings: &[(&str, &str)], why: String) -> String {
    let is_quoted = |(_, value): &&(&str, &str)| why.contains(&format!("\"{value}\""));
    match settings.iter().find(is_quoted) {
        Some((name, _)) => format!("{name}: {why}"),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread of the requests panicked at an endpoint without a scheme, or an empty one.
    #[test]
    fn what_makes_no_sense_is_told_by_its_name_and_what_is_empty_is_not_there() {
        let found = |name: &str, value: &str| {
            let variables = HashMap::from([(name.to_owned(), value.to_owned())]);
            let found = settings(&variables, "AWS_");
            found.map(|settings| settings.len())
        };
        for (name, value, want) in [
            ("AWS_ENDPOINT_URL", "https://minio:9000", 1),
            ("AWS_ENDPOINT_URL", "", 0),
            ("AWS_ENDPOINT_URL", " ", 0),
            ("AWS_ENDPOINT_URL", "HTTP://user:x@[::1]:9000/s3?a=b", 1),
            ("AWS_REGION", "us-east-1", 1),
            ("AWS_SKIP_SIGNATURE", "", 0),
            ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "", 0),
            ("AWS_USE_DUALSTACK_ENDPOINT", "true", 1),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/ä", 1),
            ("GOOGLE_X", "y", 0),
        ] {
            assert_eq!(found(name, value), Ok(want), "{name}={value}");
        }
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "minio:9000"),
            ("AWS_ENDPOINT_URL", "localhost"),
            ("AWS_ENDPOINT_URL_S3", "//h"),
            ("AWS_ENDPOINT", "ftp://h"),
            ("AWS_ENDPOINT_URL", "http:127.0.0.1"),
            ("AWS_ENDPOINT_URL", "https:\\\\h"),
            ("AWS_ENDPOINT_URL", "http://%6d:9000"),
            ("AWS_ENDPOINT_URL", "http://h/a b"),
            ("AWS_REGION", "us east"),
            ("AWS_ACCESS_KEY_ID", "a\nb"),
            ("AWS_SESSION_TOKEN", "ä"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "x"),
        ] {
            let why = found(name, value).unwrap_err();
            assert!(why.starts_with(name) && !why.contains(value), "{why}");
        }
        let why = named(
            &[("AWS_X", "maybe")],
            "failed to parse \"maybe\"".to_owned(),
        );
        assert_eq!(why, "AWS_X: failed to parse \"maybe\"");
    }
}
