//! The events of a YAML text, lent out one at a time. The only code that knows libyaml; texts that a program wrote are
//! read faster by `ordinary`.
//!
//! libyaml (here its Rust translation) decides what is valid, so that a tree means here what it means to the Python and C
//! libraries. What it does not limit is limited here: a prologue of many directives costs quadratic time inside one call,
//! deeply nested flow collections cost their depth for each token. Knows nothing of nodes or ASDF.
#![allow(
    unsafe_code,
    reason = "libyaml's interface is C's; every call to it is in this file"
)]

pub(super) mod ordinary;

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

use libyaml_rs as sys;
use rustix::time::{ClockId, clock_gettime};

/// Most bytes of directives (`%…` lines) before the tree.
const MAX_DIRECTIVES: usize = 64 * 1024;
/// Events between two looks at the clock.
const EVENTS_PER_LOOK: u32 = 1024;
/// CPU time that any text may take: a thread that waits, because the machine is busy or the process is stopped, loses none.
const BASE_TIME: Duration = Duration::from_secs(10);
/// Time that is added for each mebibyte of text; twenty times what an idle machine needs.
const TIME_PER_MEBIBYTE: Duration = Duration::from_millis(500);

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    StreamStart,
    DocumentStart,
    DocumentEnd,
    StreamEnd,
    Alias,
    Scalar,
    SequenceStart,
    MappingStart,
    SequenceEnd,
    MappingEnd,
}

/// One event; borrowed from the parser until the next one is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event<'p> {
    pub(super) kind: EventKind,
    /// The anchor that it defines; for an alias, the anchor that it names.
    pub(super) anchor: Option<&'p str>,
    /// The resolved tag; none also for the non-specific `!`.
    pub(super) tag: Option<&'p str>,
    /// A scalar's value; else empty.
    pub(super) value: &'p str,
    /// Whether a scalar without a tag has the type that its text looks like.
    pub(super) plain: bool,
    /// Whether a collection is in flow style.
    pub(super) flow: bool,
    /// Its first byte; with a tag or anchor, the first byte of these.
    pub(super) start: usize,
    /// The byte behind it; for a block collection, the first byte of the next token.
    pub(super) end: usize,
}

/// Why a text is not YAML, or not within our limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct YamlFault {
    /// Where.
    pub(super) byte: usize,
    /// The reason.
    pub(super) why: String,
    /// What was being read, and the byte where that began.
    pub(super) context: Option<(String, usize)>,
}

impl YamlFault {
    /// A fault at a byte of the text, without context.
    pub(super) fn new(byte: usize, why: impl Into<String>) -> Self {
        Self {
            byte,
            why: why.into(),
            context: None,
        }
    }
}

/// The text as UTF-8.
pub(super) fn decode(text: &[u8]) -> Result<&str, YamlFault> {
    if text.starts_with(&[0xFE, 0xFF]) || text.starts_with(&[0xFF, 0xFE]) {
        let why = "UTF-16 text, where the standard wants UTF-8";
        return Err(YamlFault::new(0, why));
    }
    if text.starts_with("\u{FEFF}".as_bytes()) {
        return Err(YamlFault::new(0, "byte order mark before the tree"));
    }
    std::str::from_utf8(text)
        .map_err(|error| YamlFault::new(error.valid_up_to(), "bytes that are not UTF-8"))
}

/// The text with each unknown directive turned into a comment of the same length, and the offsets of these directives. Looks at the
/// lines up to the first that is neither a directive nor a comment.
///
/// YAML wants unknown directives ignored; libyaml refuses them, but FINF files begin with `%FINF`.
pub(super) fn known_directives(text: &str) -> Result<(Cow<'_, str>, Vec<usize>), YamlFault> {
    let mut unknown = Vec::new();
    let mut directives = 0usize;
    let mut at = 0usize;
    for line in text.split_inclusive(is_break) {
        if let Some(rest) = line.strip_prefix('%') {
            directives = directives.saturating_add(line.len());
            // libyaml compares each %TAG with all before it
            if directives > MAX_DIRECTIVES {
                let why = format!("more than {MAX_DIRECTIVES} bytes of directives");
                return Err(YamlFault::new(at, why));
            }
            let name = rest.split([' ', '\t']).next().unwrap_or_default();
            if !matches!(name.trim_end_matches(is_break), "YAML" | "TAG") {
                unknown.push(at);
            }
        } else if !is_blank_or_comment(line) {
            break;
        }
        at = at.saturating_add(line.len());
    }
    // a byte for a byte, so that the offsets of all events stay right
    let mut known = Cow::Borrowed(text);
    for &at in &unknown {
        known.to_mut().replace_range(at..at.saturating_add(1), "#");
    }
    Ok((known, unknown))
}

/// Whether a line holds nothing that belongs to a document.
pub(super) fn is_blank_or_comment(line: &str) -> bool {
    let text = line.trim_matches(|c| c == ' ' || c == '\t' || is_break(c));
    text.is_empty() || text.starts_with('#')
}

/// The characters that end a line in YAML 1.1.
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// How long the CPU has run this thread. A parser stays on the thread that made it: it is not `Send`.
fn cpu_time() -> Duration {
    // only a time before zero is no duration, and this one begins there
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// A parser over a text, which it borrows.
pub(super) struct Parser<'t> {
    /// Invariant: from `Box::into_raw`, initialized, and not moved: it holds pointers into itself.
    raw: *mut sys::yaml_parser_t,
    /// The event that was last handed out.
    event: Option<OwnedEvent>,
    events: u32,
    /// The time on the clock of the thread at which the parser gives up, see [`cpu_time`].
    deadline: Duration,
    text: PhantomData<&'t str>,
}

impl<'t> Parser<'t> {
    /// A parser at the start of the text. Its time, which depends on the length of the text, runs from now on.
    pub(super) fn new(text: &'t str) -> Self {
        let raw = Box::into_raw(Box::new(MaybeUninit::<sys::yaml_parser_t>::uninit())).cast();
        // SAFETY: `raw` points to memory of the right size; `initialize` fills it and fails only without memory, which
        // libyaml-rs turns into an abort. The text outlives the parser ('t) and does not change.
        unsafe {
            let _ = sys::yaml_parser_initialize(raw);
            sys::yaml_parser_set_encoding(raw, sys::YAML_UTF8_ENCODING);
            let len = u64::try_from(text.len()).unwrap_or(0);
            sys::yaml_parser_set_input_string(raw, text.as_ptr(), len);
        }
        let mebibytes = u32::try_from(text.len() >> 20).unwrap_or(u32::MAX);
        let time = BASE_TIME.saturating_add(TIME_PER_MEBIBYTE.saturating_mul(mebibytes));
        Self {
            raw,
            event: None,
            events: 0,
            deadline: cpu_time().saturating_add(time),
            text: PhantomData,
        }
    }

    /// The next event; after the last, `StreamEnd` again and again.
    pub(super) fn next(&mut self) -> Result<Event<'_>, YamlFault> {
        // frees the last event first, so that only one is in memory
        self.event = None;
        self.events = self.events.wrapping_add(1);
        let mut event = MaybeUninit::<sys::yaml_event_t>::uninit();
        // SAFETY: `raw` is an initialized parser, `event` is memory for an event.
        if !unsafe { sys::yaml_parser_parse(self.raw, event.as_mut_ptr()).ok } {
            return Err(self.fault());
        }
        // SAFETY: `parse` clears the event before anything else.
        let event = self
            .event
            .insert(OwnedEvent(unsafe { event.assume_init() }));
        // a look at this clock is a system call: too dear for every event
        if self.events.is_multiple_of(EVENTS_PER_LOOK) && cpu_time() > self.deadline {
            let why = "gave up: this takes far too long to parse for a text of its size";
            return Err(YamlFault::new(bytes(event.0.start_mark.index), why));
        }
        event.view()
    }

    /// Why libyaml has given up. For bad bytes its reader knows the offset, for bad tokens its parser knows the place.
    fn fault(&self) -> YamlFault {
        // SAFETY: `raw` is an initialized parser; `problem` and `context` are null or static C strings.
        unsafe {
            let parser = &**self.raw;
            let text = |at: *const c_char| {
                (!at.is_null()).then(|| CStr::from_ptr(at).to_string_lossy().into_owned())
            };
            let at = if parser.error == sys::YAML_READER_ERROR {
                parser.problem_offset
            } else {
                parser.problem_mark.index
            };
            YamlFault {
                byte: bytes(at),
                why: text(parser.problem.cast()).unwrap_or_else(|| "cannot be parsed".into()),
                context: text(parser.context.cast())
                    .map(|context| (context, bytes(parser.context_mark.index))),
            }
        }
    }
}

impl Drop for Parser<'_> {
    fn drop(&mut self) {
        // SAFETY: `raw` is an initialized parser from `Box::into_raw`, dropped only here. `MaybeUninit` has no drop glue.
        unsafe {
            sys::yaml_parser_delete(self.raw);
            drop(Box::from_raw(
                self.raw.cast::<MaybeUninit<sys::yaml_parser_t>>(),
            ));
        }
    }
}

/// An offset of libyaml's as ours; it lies within a text that is in memory.
fn bytes(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// An event that frees what libyaml allocated for it.
struct OwnedEvent(sys::yaml_event_t);

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: the event is initialized and owns its strings; nothing else frees them.
        unsafe { sys::yaml_event_delete(&raw mut self.0) }
    }
}

impl OwnedEvent {
    /// The event in words of this module. Fails if an escape makes a text that is not UTF-8.
    fn view(&self) -> Result<Event<'_>, YamlFault> {
        let event = &self.0;
        let start = bytes(event.start_mark.index);
        let mut view = Event {
            kind: EventKind::StreamEnd,
            anchor: None,
            tag: None,
            value: "",
            plain: false,
            flow: false,
            start,
            end: bytes(event.end_mark.index),
        };
        // SAFETY: called below only with strings of the event, which the view borrows.
        let text = |at: *const u8| unsafe { string(at, start) };
        // SAFETY: in each arm the type says which member of the union libyaml filled. Its strings are null or C strings,
        // a scalar's value is `length` bytes long; all belong to the event, which the view borrows.
        unsafe {
            match event.type_ {
                sys::YAML_STREAM_START_EVENT => view.kind = EventKind::StreamStart,
                sys::YAML_DOCUMENT_START_EVENT => view.kind = EventKind::DocumentStart,
                sys::YAML_DOCUMENT_END_EVENT => view.kind = EventKind::DocumentEnd,
                sys::YAML_SEQUENCE_END_EVENT => view.kind = EventKind::SequenceEnd,
                sys::YAML_MAPPING_END_EVENT => view.kind = EventKind::MappingEnd,
                sys::YAML_ALIAS_EVENT => {
                    view.kind = EventKind::Alias;
                    view.anchor = text(event.data.alias.anchor)?;
                }
                sys::YAML_SCALAR_EVENT => {
                    let data = &event.data.scalar;
                    view.kind = EventKind::Scalar;
                    view.anchor = text(data.anchor)?;
                    view.tag = text(data.tag)?;
                    view.plain = data.plain_implicit;
                    let value = std::slice::from_raw_parts(data.value, bytes(data.length));
                    view.value = utf8(value, start)?;
                }
                sys::YAML_SEQUENCE_START_EVENT => {
                    let data = &event.data.sequence_start;
                    view.kind = EventKind::SequenceStart;
                    view.anchor = text(data.anchor)?;
                    view.tag = text(data.tag)?;
                    view.flow = data.style == sys::YAML_FLOW_SEQUENCE_STYLE;
                }
                sys::YAML_MAPPING_START_EVENT => {
                    let data = &event.data.mapping_start;
                    view.kind = EventKind::MappingStart;
                    view.anchor = text(data.anchor)?;
                    view.tag = text(data.tag)?;
                    view.flow = data.style == sys::YAML_FLOW_MAPPING_STYLE;
                }
                _ => {}
            }
        }
        view.tag = view.tag.filter(|&tag| tag != "!");
        Ok(view)
    }
}

/// The C string at `text`, if there is one, of an event that starts at `start`.
///
/// # Safety
/// `text` is null or points to a C string that lives as long as the result.
unsafe fn string<'e>(text: *const u8, start: usize) -> Result<Option<&'e str>, YamlFault> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text.cast()) };
    utf8(text.to_bytes(), start).map(Some)
}

/// Tags may hold any bytes as `%XX`, so not everything that comes from valid UTF-8 is valid UTF-8.
fn utf8(text: &[u8], start: usize) -> Result<&str, YamlFault> {
    std::str::from_utf8(text).map_err(|_| YamlFault::new(start, "escapes that are not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a busy machine, or where a signal had stopped the daemon meanwhile, a sound tree took too long, and its save was refused.
    #[test]
    fn a_text_loses_no_time_while_its_thread_waits() {
        let before = cpu_time();
        let busy = std::thread::spawn(|| {
            let begun = cpu_time();
            while cpu_time().saturating_sub(begun) < Duration::from_millis(50) {}
            cpu_time()
        });
        let other = busy.join().unwrap();
        assert!(cpu_time().saturating_sub(before) < other);
    }
}
