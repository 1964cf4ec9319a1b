//! The proxy by which requests go, as the environment says it: to name it where it fails.

use std::collections::HashMap;

use reqwest::Url;

/// What is shown of the proxy for `url`, and the variable that names it; without its login.
pub(super) fn named_for(variables: &HashMap<String, String>, url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let value = |name: &str| {
        let small = variables.get(name).map(|value| (name.to_owned(), value));
        let large = name.to_ascii_uppercase();
        let large = || variables.get(&large).map(|value| (large.clone(), value));
        small.or_else(large).filter(|(_, value)| !value.is_empty())
    };
    let excepted = value("no_proxy").map_or("", |(_, hosts)| hosts.as_str());
    let is_excepted = |entry: &str| {
        let entry = entry.trim().trim_start_matches('.');
        let behind = host.strip_suffix(entry);
        entry == "*"
            || !entry.is_empty() && behind.is_some_and(|it| it.is_empty() || it.ends_with('.'))
    };
    if excepted.split(',').any(is_excepted) {
        return None;
    }
    let of_scheme = value(&format!("{}_proxy", url.scheme()));
    let (name, proxy) = of_scheme.or_else(|| value("all_proxy"))?;
    // `proxy:3128` parses as a URL of the scheme "proxy"
    let parsed = Url::parse(proxy).ok().filter(Url::has_host);
    let parsed = parsed.or_else(|| Url::parse(&format!("http://{proxy}")).ok())?;
    let port = parsed
        .port()
        .map_or(String::new(), |port| format!(":{port}"));
    let host = parsed.host_str()?;
    Some(format!("{}://{host}{port} of {name}", parsed.scheme()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_of_a_url_is_named_without_its_login() {
        let variables = [
            ("HTTPS_PROXY", "http://me:secret@p.example:3128"),
            ("https_proxy", ""),
            ("http_proxy", "q.example:80"),
            ("no_proxy", "localhost, .inner.example,[::1]"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut variables = HashMap::from(variables);
        variables.remove("https_proxy");
        let named =
            |variables: &HashMap<_, _>, url: &str| named_for(variables, &Url::parse(url).unwrap());
        for (url, want) in [
            (
                "https://x.example/a",
                Some("http://p.example:3128 of HTTPS_PROXY"),
            ),
            ("http://x.example/a", Some("http://q.example of http_proxy")),
            ("https://localhost:8/a", None),
            ("https://a.inner.example/a", None),
            (
                "https://winner.example/a",
                Some("http://p.example:3128 of HTTPS_PROXY"),
            ),
        ] {
            assert_eq!(named(&variables, url).as_deref(), want, "{url}");
        }
        let all = HashMap::from([("all_proxy".to_owned(), "socks5://h:1".to_owned())]);
        let want = Some("socks5://h:1 of all_proxy");
        assert_eq!(named(&all, "http://x/").as_deref(), want);
        assert_eq!(named(&HashMap::new(), "http://x/"), None);
    }
}
