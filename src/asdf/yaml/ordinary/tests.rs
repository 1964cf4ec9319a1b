//! The events of the reader beside those of libyaml.

use proptest::prelude::*;

use super::super::{Parser, YamlFault};
use super::*;

/// What the composer takes of an event.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    kind: EventKind,
    anchor: Option<String>,
    tag: Option<String>,
    value: String,
    plain: bool,
    flow: bool,
    start: usize,
    end: usize,
}

/// Adds an event to those that were taken. Block collections end where their last child does; only its end is taken from the end of
/// one in flow style.
fn take(events: &mut Vec<Taken>, open: &mut Vec<bool>, event: &Event<'_>) {
    let (mut start, mut end, mut flow) = (event.start, event.end, event.flow);
    match event.kind {
        EventKind::SequenceStart | EventKind::MappingStart => {
            open.push(flow);
            end = 0;
        }
        EventKind::SequenceEnd | EventKind::MappingEnd => {
            flow = open.pop().unwrap();
            (start, end) = (0, if flow { end } else { 0 });
        }
        EventKind::DocumentEnd => (start, flow) = (0, false),
        EventKind::Alias | EventKind::Scalar => flow = false,
        EventKind::StreamStart | EventKind::DocumentStart | EventKind::StreamEnd => return,
    }
    events.push(Taken {
        kind: event.kind,
        anchor: event.anchor.map(str::to_owned),
        tag: event.tag.map(str::to_owned),
        value: event.value.to_owned(),
        plain: event.plain && event.kind == EventKind::Scalar,
        flow,
        start,
        end,
    });
}

fn of_libyaml(text: &str) -> Result<Vec<Taken>, YamlFault> {
    let mut parser = Parser::new(text);
    let (mut events, mut open) = (Vec::new(), Vec::new());
    loop {
        let event = parser.next()?;
        take(&mut events, &mut open, &event);
        if matches!(event.kind, EventKind::DocumentEnd | EventKind::StreamEnd) {
            return Ok(events);
        }
    }
}

/// Whether the reader knows a text. If so, its events are those of libyaml.
fn is_read(text: &str) -> bool {
    let (mut events, mut open) = (Vec::new(), Vec::new());
    let read = read(text, |event| {
        take(&mut events, &mut open, event);
        Some(())
    });
    if read.is_some() {
        assert_eq!(Ok(events), of_libyaml(text), "{text}");
    }
    read.is_some()
}

const HEAD: &str = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n";

/// Bodies of trees as Python's asdf writes them, and what else has that form.
const BODIES: [&str; 13] = [
    "---\n- !core/history_entry-1.0.0 {description: some, time: ! '2025-07-23\n    11:56:15+00:00'}\n- !!timestamp '2019-07-18\n    20:01:09'\n- !!int 1\n- ! [a]\n- ! b\n- !\n  c: !\n  - d\n",
    "--- !core/asdf-1.1.0\nasdf_library: !core/software-1.0.0 {author: The ASDF Developers, homepage: 'http://github.com/asdf-format/asdf',\n  name: asdf, version: 4.1.0}\nhistory:\n  extensions:\n  - !core/extension_metadata-1.0.0\n    extension_class: asdf.extension._manifest.ManifestExtension\n    extension_uri: asdf://asdf-format.org/core/extensions/core-1.6.0\n    software: !core/software-1.0.0 {name: asdf, version: 4.1.0}\n",
    "--- !core/asdf-1.1.0\nroman: !<asdf://stsci.edu/datamodels/roman/tags/wfi_image-1.0.0>\n  data: &id001 !core/ndarray-1.1.0\n    source: 0\n    datatype: float32\n    byteorder: little\n    shape: [4096, 4096]\n  again: *id001\n  meta:\n    date: !time/time-1.1.0 2020-01-01T00:00:00.000\n    empty:\n    tagged: !x\n    list: []\n    map: {}\n",
    "---\na:\n- 1\n- - 2\n  - - 3\n    -  4\n- b: 5\n  c:\n  - d: &x [*y, {k: v, l: [w, '']}]\n    e: !t {a: !u b}\n-   f: g\n    h: i\nz: ~\n",
    "---\nlong: some words that go on\n  in the next line\n\n\n  and behind two empty ones\nquoted: 'it''s\n\n  folded '\nboth: \"a  \n   b\"\nlast: x\n",
    "---\n- 'a': 1\n- \"b\": 'c'\n-  d:   e   \n- -1\n- -.5e+3\n- a#b:c\n- http://x/?y=z\n- 12:30:45\n",
    "---\n  a:\n    b:\n      c: 1\n    d: [1,2 , 3,\n  4]\n  e: é°\u{b5}m\n",
    "--- [a, b c, [d e\n   f, g], {h: i, 'j': k}]\n",
    "--- {}\n",
    "--- &top !t\n- &a\n  b: c\n- !t\n- !t &b\n  - x\n- &c y\n- *c\n",
    "---\na: 'x'\nb: [ ]\n<<: *a\n$ref: '#/x'\n1: 2\n? : 3\n",
    "---\nt: !core/table-1.0.0\n  columns:\n  - !core/column-1.0.0\n    data: !core/ndarray-1.0.0 {source: 3, datatype: float64, byteorder: little, shape: [3]}\n    name: x\n  - !core/column-1.0.0 {name: y, data: [1.0, -2.5e-07, .nan]}\n",
    "---\nl:\n  - a\n  -\n    b: c\n  - ? d\n",
];

fn text(body: &str) -> String {
    format!("{HEAD}{body}...\n")
}

#[test]
fn what_programs_write_is_read() {
    let read: Vec<bool> = BODIES.iter().map(|body| is_read(&text(body))).collect();
    let (known, unknown): (Vec<_>, Vec<_>) = (0..BODIES.len()).partition(|&i| read[i]);
    assert_eq!(unknown, [10, 12], "{known:?}");
}

#[test]
fn what_programs_do_not_write_is_left_to_libyaml() {
    for body in [
        "--- a\n",
        "--- a: 1\n",
        "---\na: b: c\n",
        "---\na: - b\n",
        "---\na: |\n  b\n",
        "---\na: >-\n  b\n",
        "---\na: b # c\n",
        "---\n# c\na: b\n",
        "---\na\t: b\n",
        "---\na: \"\\n\"\n",
        "---\na: b\r\n",
        "---\na: b\u{2028}\n",
        "---\na: \u{feff}b\n",
        "---\na:\n b\n",
        "---\na: [b, ]\n",
        "---\na: [b: c]\n",
        "---\na: {b}\n",
        "---\na: {b: }\n",
        "---\na: {b: c, }\n",
        "---\na: [b\n]\n",
        "---\na: 'b\nc'\n",
        "---\na: !!\n",
        "---\na: !a!b c\n",
        "---\na: !%41 b\n",
        "---\na: !\n",
        "---\n!t a: b\n",
        "---\n&a a: b\n",
        "---\n*a : b\n",
        "---\n- !t a: b\n",
        "---\na : b\n",
        "---\n? a\n: b\n",
        "---\na: b\n c: d\n",
        "---\n a: b\nc: d\n",
        "---\n- a\nb: c\n",
        "---\na: [b]c\n",
        "---\na: [b]\n  c\n",
        "---\na: 'b' c\n",
        "---\na: &b *c\n",
        "---\na: &b &c d\n",
        "---\na: @b\n",
        "---\na: %b\n",
        "---\na: `b\n",
        "---\n--- b\n",
        "---\na: b\n--- c\n",
        "---\n",
        "---\na: [1, 2\n",
        "---\na: 'b\n",
        "%YAML 1.2\n---\na: b\n",
        "%YAML 1.1\n---\na: b\n",
        "%TAG ! x\n---\na: b\n",
        "%FINF 1\n---\na: b\n",
        "a: b\n",
        "",
    ] {
        assert!(!is_read(&text(body)), "{body:?}");
    }
    let long = "k".repeat(MAX_SHORT + 1);
    assert!(!is_read(&text(&format!("---\n{long}: a\n"))));
    assert!(!is_read(&text(&format!("---\na: !{long} b\n"))));
    assert!(
        !is_read("---\na: b\n"),
        "the end of the document is not marked"
    );
}

/// Pieces of which many texts are such that the reader knows them, or nearly.
const PIECES: [&str; 48] = [
    "a: ", "b:\n", "- ", "-\n", "  ", " ", "\n", "\n\n", "\n  ", "\n- ", "\n    ", "x", "y z",
    "'q'", "''", "'", "\"d\"", "\"", "[", "]", ", ", ",", "{", "}", ": ", ":", "k: v\n",
    "k: v\n  ", "[1, 2]", "{k: v}", "!t ", "!t\n", "!<u> ", "&a ", "*a", "*a\n", "#", " # ", "?",
    "? ", "-1", "...", "---", "é", "|", ">", "\\", "'l\n  m'",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn events_of_any_pieces_are_those_of_libyaml(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)) {
        is_read(&format!("---{}{}\n...\n", if pieces.len() % 2 == 0 { "\n" } else { " " }, pieces.concat()));
    }

    #[test]
    fn events_of_damaged_texts_are_those_of_libyaml(
        body in prop::sample::select(&BODIES[..]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..4, prop::sample::select(&PIECES[..])), 1..4),
    ) {
        let mut text = text(body);
        for (place, dropped, piece) in damage {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = place.index(places.len());
            let end = places.get(at + dropped).copied().unwrap_or(text.len());
            text.replace_range(places[at]..end, piece);
        }
        is_read(&text);
    }

    #[test]
    fn an_odd_character_is_found_at_any_place(
        len in 0_usize..3 * AT_ONCE,
        place: prop::sample::Index,
        odd in prop::sample::select(&['\0', '\t', '\r', '\u{7f}', '\u{85}', '\u{2028}', '\u{feff}'][..]),
    ) {
        let mut text = "k: é\n".repeat(len / 5 + 1);
        prop_assert!(is_ordinary(&text));
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        text.insert(*place.get(&places), odd);
        prop_assert!(!is_ordinary(&text));
    }
}
