//! A page of HTML that shows files to people: their trees folded, and each array with its picture, its numbers and how these are spread.
//!
//! The page is one file that asks no network for anything. What is in a file of somebody else is text on it and nothing more: it is
//! escaped, and the page forbids all scripts but its own (Content Security Policy, level 3).

use std::collections::HashSet;
use std::fmt::Write;

use base64::prelude::{BASE64_STANDARD, Engine};
use sha2::{Digest, Sha256};

use super::array_at;
use super::picture::{Style, best, short};
use super::stats::{Histogram, Spread};
use crate::asdf::Snapshot;
use crate::asdf::tree::{Node, NodeKind, Tree};
use crate::error::{Result, printable};
use crate::source::len_u64;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// Bytes of all pictures of a page, as they are written there.
const PICTURES: u64 = 2_400_000;
/// The most and the fewest points of the longer side of a picture.
const SIDES: (u16, u16) = (480, 96);
/// The most bytes of an array that are read for its picture.
const MOST_READ: u64 = 256 << 20;
/// Entries of trees on a page, bytes of a value in one, levels of them, and arrays.
const MOST_ENTRIES: usize = 5000;
const MOST_VALUE: usize = 500;
const MOST_DEPTH: usize = 64;
const MOST_ARRAYS: usize = 1000;
/// Digits of the ends of a histogram, and of a mean.
const DIGITS: usize = 4;
const MEAN_DIGITS: usize = 9;
/// Width and height of a histogram, in units of its own.
const PLOT: (u16, u16) = (240, 40);
/// Entries that a collection may have to be unfolded at first.
const UNFOLDED: usize = 12;

/// What a page begins with.
pub(crate) const BEGINS: &[u8] = b"<!DOCTYPE html>\n<html lang=en>";

/// A page that is being written.
#[derive(Default)]
pub(crate) struct Page {
    style: Style,
    body: String,
    /// Arrays of all files.
    total: usize,
    /// Files so far.
    files: usize,
    /// Arrays of this file that have cards.
    cards: HashSet<usize>,
    /// Bytes for pictures: of each file, and of this one, which has what those before it have left.
    share: u64,
    room: u64,
    /// Entries of trees that may still be written.
    entries: usize,
}

impl Page {
    /// An empty page for so many files, whose pictures are drawn like this.
    pub(crate) fn new(files: usize, style: Style) -> Self {
        Self {
            style: Style {
                most: style.most.min(MOST_READ),
                ..style
            },
            share: PICTURES.checked_div(len_u64(files)).unwrap_or(0),
            entries: MOST_ENTRIES,
            ..Self::default()
        }
    }

    /// Adds a file. What can't be read of it is said in its place.
    pub(crate) fn add(&mut self, name: &str, snapshot: &Snapshot) {
        self.begin(name);
        let blocks = snapshot.layout().blocks.len();
        let arrays = snapshot.arrays();
        let count = arrays.len();
        self.total = self.total.saturating_add(count);
        let shown = in_order(snapshot, self.style);
        let spreads = snapshot.spreads(&shown);
        self.style.size = self.side(snapshot, &shown);
        let kind = snapshot.container();
        let by = snapshot.written_by();
        let by = by.map_or_else(String::new, |by| format!(", written by {by}"));
        let line = format!("{kind}, {blocks} blocks, {count} arrays{by}");
        self.write(format_args!("<p class=faint>{}</p>\n", escaped(&line)));
        if count > 0 {
            self.body.push_str("<h2>Arrays</h2>\n<div class=cards>\n");
            for (i, spread) in shown.iter().zip(&spreads) {
                self.card(snapshot, *i, spread);
            }
            self.body.push_str("</div>\n");
        }
        if count > MOST_ARRAYS {
            let more = count.saturating_sub(MOST_ARRAYS);
            self.write(format_args!(
                "<p class=faint>{more} more arrays are not shown.</p>\n"
            ));
        }
        self.cards = shown.into_iter().collect();
        self.body.push_str("<h2>Tree</h2>\n");
        match snapshot.tree().map(|tree| tree.map(Tree::root)) {
            None | Some(Ok(None)) => self.body.push_str("<p class=faint>There is none.</p>\n"),
            Some(Err(why)) => self.write(format_args!("<p>{}</p>\n", escaped(&why.to_string()))),
            Some(Ok(Some(root))) => {
                self.body.push_str("<ul class=tree>\n");
                self.entry(snapshot, "tree", root, 0);
                self.body.push_str("</ul>\n");
            }
        }
        self.body.push_str("</details>\n");
    }

    /// Adds a file that can't be read, and why.
    pub(crate) fn add_unread(&mut self, name: &str, why: &str) {
        self.begin(name);
        self.write(format_args!("<p>{}</p></details>\n", escaped(why)));
    }

    fn begin(&mut self, name: &str) {
        // of many files only the first are unfolded
        let open = if self.files < 3 { " open" } else { "" };
        self.files = self.files.saturating_add(1);
        self.room = self.room.saturating_add(self.share);
        let name = escaped(name);
        self.write(format_args!(
            "<details class=file{open}><summary>{name}</summary>\n"
        ));
    }

    /// The whole page.
    pub(crate) fn finish(self, title: &str) -> String {
        let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
        let (style, script) = (hash(STYLE), hash(SCRIPT));
        let policy = format!(
            "default-src 'none'; img-src data:; style-src 'sha256-{style}'; script-src 'sha256-{script}'; \
             base-uri 'none'; form-action 'none'"
        );
        let title = escaped(title);
        let (body, total) = (self.body, self.total);
        format!(
            "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
             <meta http-equiv=Content-Security-Policy content=\"{policy}\">\n\
             <meta name=viewport content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
             <div class=bar><input id=filter type=search aria-label=\"filter arrays and tree\" \
             placeholder=\"filter arrays and tree ( / )\"><button id=open>unfold all</button>\
             <button id=close>fold all</button><output id=found data-arrays={total}></output></div>\n\
             {body}<script>{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }

    fn write(&mut self, what: std::fmt::Arguments<'_>) {
        // writing to a string can't fail
        let _ = self.body.write_fmt(what);
    }

    /// Writes what is known of an array.
    fn card(&mut self, snapshot: &Snapshot, i: usize, spread: &Result<Option<Spread>>) {
        let Some(array) = snapshot.arrays().get(i) else {
            return;
        };
        let path = array.path();
        let datatype = array.datatype_text().unwrap_or_default();
        // what the filter of the page looks at
        let words = format!("{path} {datatype}");
        let (file, named, words) = (self.files, escaped(&path), escaped(&words));
        self.write(format_args!(
            "<article class=card id=a{file}-{i} data-words=\"{words}\">\n<h3>{named}</h3>\n"
        ));
        let picture = snapshot.picture(i, &[], self.style).ok();
        let picture = picture.filter(|_| self.room > 0);
        // the card says why an array can't be read
        let drawn = picture.and_then(|it| it.draw(&|i| snapshot.array_bin(i)).ok());
        if let Some((png, _)) = &drawn {
            let data = BASE64_STANDARD.encode(png);
            self.room = self.room.saturating_sub(len_u64(data.len()));
            self.write(format_args!(
                "<img alt=\"picture of {named}\" loading=lazy src=\"data:image/png;base64,{data}\">\n"
            ));
        }
        let are_flags = drawn.is_some_and(|(_, are_flags)| are_flags);
        if let (false, Ok(Some((_, Some(histogram))))) = (are_flags, spread) {
            self.histogram(histogram);
        }
        self.body.push_str("<dl>");
        self.row("datatype", &datatype);
        self.row("shape", &array.shape_text().unwrap_or_default());
        self.row("unit", array.unit().unwrap_or_default());
        self.row("bytes", &array.bin_len().to_string());
        match (array.problem(), spread) {
            (Some(why), _) => self.row("no files", &why.to_string()),
            (None, Err(why)) => self.row("not read", &why.to_string()),
            (None, Ok(Some((stats, _)))) => {
                let range = stats.range.map(|(low, high)| format!("{low} .. {high}"));
                self.row("range", &range.unwrap_or_default());
                // flags have no mean
                let mean = stats.mean.filter(|_| !are_flags);
                let mean = mean.map(|mean| short(mean, MEAN_DIGITS));
                self.row("mean", &mean.unwrap_or_default());
                self.row("NaN", &stats.nan.to_string());
            }
            (None, Ok(None)) => {}
        }
        self.body.push_str("</dl>\n</article>\n");
    }

    /// A term and what is said of it, if anything.
    fn row(&mut self, term: &str, text: &str) {
        if !text.is_empty() {
            self.write(format_args!("<dt>{term}<dd>{}", escaped(text)));
        }
    }

    /// The longer side of the pictures of these arrays: the largest in which there is room for all of them.
    fn side(&self, snapshot: &Snapshot, shown: &[usize]) -> u16 {
        let fits = |size: &u16| {
            let mut style = self.style;
            style.size = *size;
            let all = shown.iter();
            let pictures = all.filter_map(|i| snapshot.picture(*i, &[], style).ok());
            let lens = pictures.map(|it| it.likely_len());
            // four bytes are written for three
            lens.fold(0, u64::saturating_add) <= (self.room / 4).saturating_mul(3)
        };
        let mut sides = (SIDES.1..=SIDES.0).rev().step_by(32);
        sides.find(fits).unwrap_or(SIDES.1)
    }

    /// Draws how numbers are spread: how many there are, on a logarithmic scale.
    fn histogram(&mut self, histogram: &Histogram) {
        let (width, height) = PLOT;
        let (low, high) = histogram.limits;
        let [low, high] = [low, high].map(|end| short(end, DIGITS));
        let bars = &histogram.heights;
        let step = f64::from(width) / crate::asdf::numbers::unsigned(len_u64(bars.len()).max(1));
        self.write(format_args!(
            "<svg viewBox=\"0 0 {width} {height}\" preserveAspectRatio=none role=img \
             aria-label=\"histogram from {low} to {high}\"><path d=\"M0 {height}"
        ));
        for bar in bars {
            let top = f64::from(height) * (1.0 - bar);
            self.write(format_args!("V{top:.1}h{step:.2}"));
        }
        self.write(format_args!(
            "V{height}z\"/></svg>\n<div class=ends><span>{low}</span><span>how many, by logarithm</span><span>{high}</span></div>\n"
        ));
    }

    /// Writes an entry of the tree, and what is in it.
    fn entry(&mut self, snapshot: &Snapshot, key: &str, node: Node<'_>, depth: usize) {
        if self.entries == 0 {
            return;
        }
        self.entries = self.entries.saturating_sub(1);
        let key = shortened(key);
        let tag = node.tag().unwrap_or_default();
        let tag = tag.rsplit_once('/').map_or(tag, |(_, name)| name);
        let (key, tag) = (escaped(&key), escaped(tag));
        self.write(format_args!("<li>"));
        if let Some((i, shown)) = shown_at(snapshot, &self.cards, node) {
            let file = self.files;
            let shown = escaped(&shown);
            self.write(format_args!(
                "<b>{key}</b> <a href=\"#a{file}-{i}\">{shown}</a></li>\n"
            ));
            return;
        }
        match node.kind() {
            NodeKind::Alias => self.write(format_args!("<b>{key}</b> <i>{tag} alias</i>")),
            NodeKind::Scalar => {
                let text = shortened(node.text().unwrap_or_default());
                self.write(format_args!("<b>{key}</b> {} <i>{tag}</i>", escaped(&text)));
            }
            NodeKind::Mapping | NodeKind::Sequence => {
                let len = node.len();
                let is_open = depth == 0 || len <= UNFOLDED && depth < 2;
                let open = if is_open { " open" } else { "" };
                self.write(format_args!(
                    "<details{open}><summary><b>{key}</b> <i>{tag} {len}</i></summary><ul>\n"
                ));
                if depth < MOST_DEPTH {
                    self.entries_of(snapshot, node, depth.saturating_add(1));
                }
                self.body.push_str("</ul></details>");
            }
        }
        self.body.push_str("</li>\n");
    }

    fn entries_of(&mut self, snapshot: &Snapshot, node: Node<'_>, depth: usize) {
        let items = node.items().enumerate();
        let items = items.map(|(n, item)| (n.to_string(), item));
        let entries = node.entries();
        let entries = entries.map(|(key, value)| (key.text().unwrap_or("?").to_owned(), value));
        for (n, (key, value)) in items.chain(entries).enumerate() {
            if self.entries == 0 {
                let more = node.len().saturating_sub(n);
                self.write(format_args!(
                    "<li class=faint>{more} more are not shown</li>\n"
                ));
                return;
            }
            self.entry(snapshot, &key, value, depth);
        }
    }
}

/// The arrays that have cards: those worth a picture, then the others that have one, then all others.
fn in_order(snapshot: &Snapshot, style: Style) -> Vec<usize> {
    let worthy: HashSet<usize> = best(snapshot, style).into_iter().collect();
    let mut all: Vec<usize> = (0..snapshot.arrays().len()).collect();
    all.sort_by_cached_key(|i| {
        let has_none = || snapshot.picture(*i, &[], style).is_err();
        (!worthy.contains(i)).then(has_none)
    });
    all.truncate(MOST_ARRAYS);
    all
}

/// The array that a node declares or stands for, if it has a card, and its type and shape.
fn shown_at(
    snapshot: &Snapshot,
    cards: &HashSet<usize>,
    node: Node<'_>,
) -> Option<(usize, String)> {
    let i = array_at(snapshot.paths()?, node.follow())?;
    let array = snapshot.arrays().get(*cards.get(&i)?)?;
    let parts = [array.datatype_text(), array.shape_text()];
    Some((i, parts.map(Option::unwrap_or_default).join(" ")))
}

/// A text, cut if it is long.
fn shortened(text: &str) -> String {
    if text.len() <= MOST_VALUE {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MOST_VALUE);
    format!("{}\u{2026}", text.get(..end).unwrap_or_default())
}

/// A text in HTML, between tags or between double quotes: nothing in it is markup, and what can't be seen is escaped.
fn escaped(text: &str) -> String {
    let text = printable(text).replace('&', "&amp;").replace('<', "&lt;");
    let text = text.replace('>', "&gt;").replace('"', "&quot;");
    text.replace('\'', "&#39;")
}
