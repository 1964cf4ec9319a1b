//! Lists the objects and folders below a prefix, one level deep.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::ListResult;
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path;
use tokio::task::JoinSet;

use super::client::StoredObject;
use super::error::RemoteError;
use super::failure::{AttemptFailure, Trouble};
use super::identity::{Identity, is_azure_time, is_time};
use super::location::{Address, Cloud, Location};
use super::patience::Patience;
use crate::error::lock;

/// The most objects that are listed.
const LISTED: usize = 1 << 20;

/// A page counts for at least so many objects: else a server that sends small pages could go on for ever.
const PAGE: usize = 500;

/// So many pages are under way at most, once so many have come one after the other: most listings have no more.
const IN_FLIGHT: usize = 4;
const PAGES_ALONE: usize = 2;

/// The elements that an object or a folder has in a page, and those with its name in them: of S3 and Google Cloud Storage, and of Azure.
const ELEMENTS: [(&str, &str); 4] = [
    ("Contents", "Key"),
    ("CommonPrefixes", "Prefix"),
    ("Blob", "Name"),
    ("BlobPrefix", "Name"),
];

/// The root elements of pages: of S3 and Google Cloud Storage, and of Azure.
const ROOTS: [&[u8]; 2] = [b"<ListBucketResult", b"<EnumerationResults"];

/// What ends the name of a folder.
const SLASH: &str = "/";

/// What a page has that is not the last one.
const MORE: &str = "<IsTruncated>true</IsTruncated>";

/// The objects below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ObjectListing {
    /// The objects.
    pub entries: Vec<ObjectEntry>,
    /// The names of the folders in which there are more, without a slash.
    pub folders: Vec<String>,
    /// The names of those that can't be read. No URL leads to a name with a part that is empty, `.` or `..`, or with a control
    /// character. The server gives the others an impossible time.
    pub unreadable: Vec<String>,
}

/// An object below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectEntry {
    /// Its name below the prefix.
    pub name: String,
    /// What the listing says of its state.
    pub identity: Identity,
}

/// The objects whose keys are `prefix` and a name without a slash, and the folders there. A page that can't be had is asked for again.
pub(super) async fn list(
    at: &Location,
    stored: &StoredObject,
    prefix: &str,
    timeout: Duration,
) -> Result<ObjectListing, RemoteError> {
    let asked = Asked {
        at: at.clone(),
        stored: stored.clone(),
        prefix: prefix.to_owned(),
        timeout,
    };
    // of Azure, versions differ in where they begin
    let in_flight = match at.kind() {
        Address::Bucket { cloud, .. } if *cloud != Cloud::Azure => IN_FLIGHT,
        _ => 1,
    };
    if let Some(listing) = in_spans(&asked, in_flight).await? {
        return Ok(listing);
    }
    let listing = in_spans(&asked, 1).await?;
    listing.ok_or_else(|| asked.failed("its listing can't be understood"))
}

/// What is listed.
#[derive(Clone)]
struct Asked {
    at: Location,
    stored: StoredObject,
    prefix: String,
    timeout: Duration,
}

/// A part of the keys, in their order, of which one page is asked for after the other.
#[derive(Default)]
struct Span {
    /// The key behind which it begins.
    after: Option<String>,
    /// The last key that may be in it.
    until: Option<String>,
    /// What asks for the next page, and what has asked for the ones before.
    token: Option<String>,
    tokens: HashSet<String>,
    /// The last key that has come.
    last: Option<String>,
    pages: usize,
}

/// Lists with so many pages under way at most: what is left of a span is cut in two while there may be more. None if the server does not keep
/// to the order that this relies on.
async fn in_spans(asked: &Asked, in_flight: usize) -> Result<Option<ObjectListing>, RemoteError> {
    let mut listing = ObjectListing::default();
    let mut seen = 0_usize;
    let mut is_cut = false;
    let mut ready = vec![Span::default()];
    let mut under_way = JoinSet::new();
    loop {
        while let Some(span) = ready.pop() {
            under_way.spawn(next_page(asked.clone(), span));
        }
        let Some(done) = under_way.join_next().await else {
            listing.entries.sort_by(|a, b| a.name.cmp(&b.name));
            listing.folders.sort();
            listing.folders.dedup();
            return Ok(Some(listing));
        };
        let done = done.map_err(|_| asked.failed("a request ended without an outcome"))?;
        let (mut span, outcome) = done;
        let (mut page, mut left_out) = match outcome {
            // not each server begins where it is told to
            Err(RemoteError::Failed { .. } | RemoteError::TimedOut { .. })
                if span.after.is_some() =>
            {
                return Ok(None);
            }
            outcome => outcome?,
        };
        let found = &mut page.result;
        let count = found.objects.len();
        let count = count.saturating_add(found.common_prefixes.len());
        // an empty page counts as a full one: a server could send them without end
        seen = seen.saturating_add(count.max(PAGE));
        let is_in_order = span.advance(found);
        // two spans of such a server may overlap or leave a gap, so it is listed again as one
        if is_cut && !is_in_order {
            return Ok(None);
        }
        span.keep_own(found, &mut left_out.keys);
        listing.take(page.result, &left_out.keys, &asked.prefix);
        match page.page_token {
            // what is missing would seem not to be there
            None if left_out.more => {
                return Err(asked
                    .failed("the server has more objects, but does not say how to ask for them"));
            }
            None => continue,
            Some(_) if span.is_over() => continue,
            // a server that gives the same token again would be asked for ever
            Some(token) if !span.tokens.insert(token.clone()) => {
                return Err(asked.failed("the server sends the same page of its objects again"));
            }
            Some(_) if seen >= LISTED => {
                let why = format!("more than {LISTED} objects; name a longer prefix");
                return Err(asked.failed(&why));
            }
            Some(token) => span.token = Some(token),
        }
        let may_cut = is_in_order && span.pages >= PAGES_ALONE;
        let is_idle = under_way.len().saturating_add(1) < in_flight;
        if may_cut
            && is_idle
            && let Some(rest) = span.cut(&asked.prefix)
        {
            is_cut = true;
            ready.push(rest);
        }
        ready.push(span);
    }
}

/// A page, and what was left out of it; or why it can't be had.
type PageOutcome = Result<(PaginatedListResult, LeftOutOfPage), RemoteError>;

/// Asks for the next page of a span.
async fn next_page(asked: Asked, span: Span) -> (Span, PageOutcome) {
    let mut patience = Patience::new(asked.timeout);
    loop {
        let left_out = LeftOut::default();
        let page = page(&asked.stored, &asked.prefix, &span, &left_out, &patience);
        match page.await {
            Ok(page) => return (span, Ok((page, left_out.take()))),
            Err(failure) => {
                let again = patience.wait_after(&failure, &asked.at, &asked.stored);
                if let Err(error) = again.await {
                    return (span, Err(error));
                }
            }
        }
    }
}

/// The key of a folder in the order of keys.
fn key_of_folder(folder: &Path) -> String {
    format!("{folder}{SLASH}")
}

impl Asked {
    fn failed(&self, why: &str) -> RemoteError {
        RemoteError::Failed {
            url: self.at.to_string(),
            why: why.to_owned(),
        }
    }
}

impl Span {
    /// Takes note of a page. Whether its keys are in order, and lie behind those that have come and behind where the span begins.
    fn advance(&mut self, page: &ListResult) -> bool {
        let objects = page.objects.iter();
        let objects: Vec<&str> = objects.map(|meta| meta.location.as_ref()).collect();
        let folders: Vec<String> = page.common_prefixes.iter().map(key_of_folder).collect();
        let both = objects
            .iter()
            .copied()
            .chain(folders.iter().map(String::as_str));
        let before = self.last.take().or_else(|| self.after.clone());
        let is_behind = |key: &str| before.as_deref().is_none_or(|before| before < key);
        // cutting relies on this order; S3 and Google promise it, other servers may not
        let is_in_order = objects.is_sorted() && folders.is_sorted() && both.clone().all(is_behind);
        self.last = both.max().map(str::to_owned).or(before);
        self.pages = self.pages.saturating_add(1);
        is_in_order
    }

    /// Leaves in a page, and among the keys that were left out of it, what belongs to this span.
    fn keep_own(&self, page: &mut ListResult, left_out: &mut Vec<String>) {
        if let Some(until) = self.until.as_deref() {
            page.objects.retain(|meta| meta.location.as_ref() <= until);
            page.common_prefixes
                .retain(|folder| key_of_folder(folder).as_str() <= until);
            left_out.retain(|key| key.as_str() <= until);
        }
    }

    /// Whether its last key has come.
    fn is_over(&self) -> bool {
        self.until.is_some() && self.until <= self.last
    }

    /// Cuts off what lies behind a key that may be in the middle of what is left: the first one that differs from the last key at a place that
    /// is as near to its start as may be.
    fn cut(&mut self, prefix: &str) -> Option<Self> {
        let last = self.last.as_deref()?;
        let name = last.strip_prefix(prefix)?;
        let next_at = |(place, character): (usize, char)| {
            // a slash would lie within a folder
            let next = match u32::from(character)
                .checked_add(1)
                .and_then(char::from_u32)?
            {
                '/' => '0',
                next => next,
            };
            let kept = name.get(..place)?;
            let middle = format!("{prefix}{kept}{next}");
            let is_inside = self.until.as_ref().is_none_or(|until| middle < *until);
            is_inside.then_some(middle)
        };
        // the cut lies between names by their letters, not by their number, which nobody knows
        let middle = name.char_indices().find_map(next_at)?;
        Some(Self {
            after: Some(middle.clone()),
            until: self.until.replace(middle),
            ..Self::default()
        })
    }
}

/// Whether there is any object whose key begins so and is longer, as far as one page tells.
pub(super) async fn has_below(stored: &StoredObject, prefix: &str, patience: &Patience) -> bool {
    let all = Span::default();
    let page = page(stored, prefix, &all, &LeftOut::default(), patience).await;
    page.is_ok_and(|page| {
        let found = &page.result;
        let mut keys = found.objects.iter().map(|meta| meta.location.as_ref());
        keys.any(|key| key != prefix) || !found.common_prefixes.is_empty()
    })
}

/// The next page of a span.
async fn page(
    stored: &StoredObject,
    prefix: &str,
    span: &Span,
    left_out: &LeftOut,
    patience: &Patience,
) -> Result<PaginatedListResult, AttemptFailure> {
    let pages = stored.pages.as_ref();
    let pages = pages.ok_or_else(|| {
        AttemptFailure::Failed(Trouble::Senseless, "nothing can be listed there".to_owned())
    })?;
    let mut options = PaginatedListOptions {
        page_token: span.token.clone(),
        // a token says itself where the next page begins
        offset: span.after.clone().filter(|_| span.token.is_none()),
        delimiter: Some(SLASH.into()),
        ..PaginatedListOptions::default()
    };
    options.extensions.insert(left_out.clone());
    let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
    let ask = || pages.list_paginated(prefix, options.clone());
    let page = patience.answer(ask).await?;
    stored.note_answer();
    Ok(page)
}

impl ObjectListing {
    /// Adds what is in a page, and the keys that were left out of it.
    fn take(&mut self, page: ListResult, keys: &[String], prefix: &str) {
        // what does not begin with the prefix was not asked for
        for meta in page.objects {
            let (size, etag) = (meta.size, meta.e_tag.as_deref());
            let Some(name) = meta.location.as_ref().strip_prefix(prefix) else {
                continue;
            };
            if let Some((folder, _)) = name.split_once(SLASH) {
                // the server does not know of folders
                self.folders.push(folder.to_owned());
                continue;
            }
            self.entries.push(ObjectEntry {
                name: name.to_owned(),
                identity: Identity::listed(size, etag, meta.last_modified.into()),
            });
        }
        let folders = page.common_prefixes.iter().map(Path::as_ref);
        let folders = folders.filter_map(|folder| folder.strip_prefix(prefix));
        self.folders.extend(folders.map(str::to_owned));
        let names = keys.iter().filter_map(|key| key.strip_prefix(prefix));
        self.unreadable.extend(names.map(str::to_owned));
    }
}

/// What of a page does not get to the store, which fails at the first key or time that it does not like: one of them would hide all other
/// objects. A request for a page takes this along.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut(Arc<Mutex<LeftOutOfPage>>);

/// What of a page did not get to the store.
#[derive(Debug, Default)]
struct LeftOutOfPage {
    /// The keys of what it does not like.
    keys: Vec<String>,
    /// Whether S3 or Google Cloud Storage says that there are more objects.
    more: bool,
}

impl LeftOut {
    /// The page without the objects whose keys or times the store does not like. Those that end in a slash only mark folders.
    pub(super) fn filter(&self, page: Vec<u8>) -> Vec<u8> {
        // the library will refuse the page, with a message of its own
        let Ok(text) = str::from_utf8(&page) else {
            return page;
        };
        let mut kept = text.to_owned();
        let mut keys = Vec::new();
        for elements in ELEMENTS {
            let is_folder = elements.0.ends_with("Prefix") || elements.0.ends_with("Prefixes");
            let page = std::mem::take(&mut kept);
            let mut rest = page.as_str();
            while let Some((before, key, element, behind)) = next_object(rest, elements) {
                kept.push_str(before);
                let name = key.strip_suffix(SLASH).filter(|_| is_folder);
                match Path::parse(&key) {
                    // a folder without a name, which no URL leads to
                    Ok(path) if path.is_root() => keys.push(key),
                    // the store takes those beyond ASCII for others
                    _ if key.contains(char::is_control) => keys.push(key),
                    Ok(path) if path.as_ref() == name.unwrap_or(&key) && has_time(element) => {
                        kept.push_str(element);
                    }
                    Ok(_) if !is_folder && key.ends_with(SLASH) && !key.starts_with(SLASH) => {}
                    _ => keys.push(key),
                }
                rest = behind;
            }
            kept.push_str(rest);
        }
        *lock(&self.0) = LeftOutOfPage {
            keys,
            more: kept.contains(MORE),
        };
        kept.into_bytes()
    }

    fn take(&self) -> LeftOutOfPage {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// Whether that is a page of a listing. The store takes anything else for a page without objects, such as a form to sign in.
pub(super) fn is_page(body: &[u8]) -> bool {
    let has = |root: &[u8]| body.windows(root.len()).any(|part| part == root);
    ROOTS.into_iter().any(has)
}

/// The next object of a page: what stands in front of it, its key, its whole element, and what stands behind it.
fn next_object<'a>(
    text: &'a str,
    (object, name): (&str, &str),
) -> Option<(&'a str, String, &'a str, &'a str)> {
    let end = format!("</{object}>");
    let (before, rest) = text.split_at_checked(text.find(&format!("<{object}>"))?)?;
    let len = rest.find(&end)?.saturating_add(end.len());
    let (element, behind) = rest.split_at_checked(len)?;
    let key = content(element, name)?;
    Some((before, unescaped(key), element, behind))
}

/// What stands in the first element of that name.
fn content<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    // of Azure's, the name of an object may have an attribute
    let (_, inner) = text.split_once(&format!("<{name}"))?;
    let (_, inner) = inner.split_once('>')?;
    Some(inner.split_once(&format!("</{name}>"))?.0)
}

/// Whether the store can parse the time in the element of an object, if it has one: of S3 and Google Cloud Storage, or of Azure.
fn has_time(element: &str) -> bool {
    let given = |name| content(element, name).map(unescaped);
    given("LastModified").is_none_or(|time| is_time(&time))
        && given("Last-Modified").is_none_or(|time| is_azure_time(&time))
}

/// A text of XML with its references resolved; those that are not known stay.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        out.push_str(before);
        let found = behind
            .split_once(';')
            .and_then(|(name, behind)| Some((referred(name)?, behind)));
        if let Some((character, behind)) = found {
            out.push(character);
            rest = behind;
        } else {
            out.push('&');
            rest = behind;
        }
    }
    out.push_str(rest);
    out
}

/// The character that `&NAME;` means.
fn referred(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let number = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(number.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_keys_that_no_url_leads_to_are_taken_out_of_a_page() {
        let object = |key: &str| format!("<Contents><Key>{key}</Key><Size>7</Size></Contents>");
        let good = [
            "a.asdf",
            "b/c &amp; &#100;.asdf",
            "x &lt;..&gt;",
            "&unknown;",
        ]
        .map(object);
        let bad = [
            "a//b", "/a", "./a", "a/..", "b/&#1;c", "a\tb", "&#x0;", "&#x2e;/a", "c\u{85}",
        ]
        .map(object);
        let marks = ["b/", "b/c/"].map(object);
        let page = |objects: &[String]| format!("<R><More>no</More>{}</R>", objects.concat());
        let all = [&good[..2], &bad, &marks, &good[2..]].concat();
        let left_out = LeftOut::default();
        let kept = left_out.filter(page(&all).into_bytes());
        assert_eq!(String::from_utf8(kept).unwrap(), page(&good));
        let want = [
            "a//b", "/a", "./a", "a/..", "b/\u{1}c", "a\tb", "\0", "./a", "c\u{85}",
        ];
        assert_eq!(left_out.take().keys, want);
        assert!(left_out.take().keys.is_empty());
    }

    /// One of them made the whole listing fail.
    #[test]
    fn an_object_with_an_impossible_time_is_taken_out_of_a_page() {
        let object = |time: &str| {
            format!("<Contents><Key>{time}</Key><LastModified>{time}</LastModified></Contents>")
        };
        let blob = |time: &str| {
            format!("<Blob><Name>{time}</Name><P><Last-Modified>{time}</Last-Modified></P></Blob>")
        };
        let good = [
            object("2024-02-29T03:04:05.000Z"),
            object("2026-01-02T03:04:05+01:00"),
            blob("Thu, 01 Jan 2026 03:04:05 GMT"),
        ];
        let bad = [
            object("2026-02-29T03:04:05.000Z"),
            object("never"),
            object(""),
            blob("Fri, 01 Jan 2026 03:04:05 GMT"),
            blob("2026-01-02T03:04:05Z"),
        ];
        let left_out = LeftOut::default();
        let all = [&bad[..2], &good, &bad[2..]].concat().concat();
        let kept = left_out.filter(all.into_bytes());
        assert_eq!(String::from_utf8(kept).unwrap(), good.concat());
        assert_eq!(left_out.take().keys.len(), bad.len());
    }

    /// It was told without a name.
    #[test]
    fn a_folder_without_a_name_is_taken_out_of_a_page() {
        let left_out = LeftOut::default();
        let folder = |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        let kept = left_out.filter([folder("/"), folder("a/")].concat().into_bytes());
        assert_eq!(String::from_utf8(kept).unwrap(), folder("a/"));
        assert_eq!(left_out.take().keys, ["/"]);
    }

    #[test]
    fn a_page_of_azure_or_of_nonsense_is_understood_as_far_as_it_goes() {
        let left_out = LeftOut::default();
        let page = "<Blobs><Blob><Name>a//b</Name></Blob><Blob><Name Encoded=\"true\">c</Name></Blob></Blobs>";
        let kept = left_out.filter(page.as_bytes().to_vec());
        let want = "<Blobs><Blob><Name Encoded=\"true\">c</Name></Blob></Blobs>";
        assert_eq!(String::from_utf8(kept).unwrap(), want);
        assert_eq!(left_out.take().keys, ["a//b"]);
        for page in [
            "",
            "<Contents>",
            "<Contents></Contents><Contents><Key>a//b</Key></Contents>",
            "</Contents><Contents><Key></Contents>",
            "<Blob><Name></Blob></Name>",
        ] {
            assert_eq!(left_out.filter(page.as_bytes().to_vec()), page.as_bytes());
        }
        assert_eq!(
            left_out.filter(b"<Contents>\xff".to_vec()),
            b"<Contents>\xff"
        );
        assert!(left_out.take().keys.is_empty());
    }
}
