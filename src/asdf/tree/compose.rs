//! From events to nodes, within limits.

use std::collections::HashMap;
use std::ptr;

use super::subset::{Warnings, quoted};
use super::{
    MAX_DEPTH, MAX_DEPTH_OF_PYTHON, MAX_FLOW_DEPTH, MAX_NODES, MAX_TEXT, MAX_WEIGHT, NodeKind, Raw,
    Tree,
};
use crate::asdf::yaml::{self, Event, EventKind, Parser, YamlFault, ordinary};
use crate::source::PooledBuf;

/// Most anchors; each takes some hundred bytes while the tree is read.
const MAX_ANCHORS: usize = 1 << 20;
/// Most different tags.
const MAX_TAGS: usize = 8192;
/// Longest tag, in bytes; a short `!h!` may stand for a long prefix at every node.
const MAX_TAG: usize = 4096;

/// So many bytes of a text make one node, as a rule.
const BYTES_PER_NODE: usize = 8;
/// The most nodes that there is room for from the start: a long text may have few.
const MAX_ROOM: usize = 1 << 20;
/// Bytes of a scalar that weigh as much as a node, so that aliases cannot multiply long texts either.
const TEXT_PER_NODE: u64 = 16;

/// A collection whose end has not come yet.
struct OpenCollection {
    node: u32,
    anchor: Option<Box<str>>,
    /// Weight of the collection and its contents so far; an alias weighs as much as its target.
    weight: u64,
    /// The end of its last child.
    end: u32,
    flow: bool,
    /// [`Raw::LEADING`] from the first part on that leads somewhere, else 0.
    leading: u8,
}

/// Makes nodes of events, one after the other.
struct Composer<'a> {
    tree: &'a mut Tree,
    tag_numbers: HashMap<Box<str>, u16>,
    /// The node that each anchor is the name of, and its weight.
    anchors: HashMap<Box<str>, (u32, u64)>,
    open: Vec<OpenCollection>,
    flow_depth: usize,
    /// The first collection that lies deeper than Python reads.
    too_deep: Option<usize>,
}

/// Adds the nodes of the document in `text` to `tree`; none if no document begins. Returns the warnings that the nodes do not show:
/// directives that YAML does not know, and the first collection that lies deeper than Python reads.
pub(super) fn compose(tree: &mut Tree, text: &str) -> Result<Warnings, YamlFault> {
    if text.len() > MAX_TEXT {
        let why = format!("a tree of {} bytes, of {MAX_TEXT} allowed", text.len());
        return Err(YamlFault::new(MAX_TEXT, why));
    }
    // from the pool: with fresh memory, a quarter of a parse was page faults
    tree.nodes = PooledBuf::with_room(MAX_ROOM.min(text.len() / BYTES_PER_NODE));
    let mut composer = Composer::new(tree);
    let mut unknown_directives = Vec::new();
    // First the quick reader for ordinary YAML. If it meets anything unusual, or any fault, the
    // whole text is read again by the full parser, whose errors are the ones that users see.
    let read = ordinary::read(text, |event| composer.take(event, text).ok());
    if read.is_none() {
        let (known, unknown) = yaml::known_directives(text)?;
        unknown_directives = unknown;
        composer = Composer::new(tree);
        let mut parser = Parser::new(&known);
        loop {
            let event = parser.next()?;
            composer.take(&event, text)?;
            if matches!(event.kind, EventKind::StreamEnd | EventKind::DocumentEnd) {
                break;
            }
        }
    }
    // the vector has doubled as it grew, and the tree may live as long as the mount
    composer.tree.nodes.shrink_to_fit();
    let mut warnings = Warnings::default();
    for at in unknown_directives {
        let line = text.get(at..).unwrap_or_default();
        let name = line.split_whitespace().next().unwrap_or_default();
        warnings.add(at, || format!("unknown directive {}", quoted(name)));
    }
    if let Some(at) = composer.too_deep {
        let why = || format!("nested deeper than {MAX_DEPTH_OF_PYTHON} levels");
        warnings.advise(at, why, "Python's asdf can't read it: nest it less deep");
    }
    Ok(warnings)
}

/// Refuses a second document without parsing it, because its directives were not checked.
fn nothing_follows(text: &str, end: usize) -> Result<(), YamlFault> {
    let mut at = end;
    for line in text
        .get(end..)
        .unwrap_or_default()
        .split_inclusive(yaml::is_break)
    {
        let rest = line.strip_prefix("...").unwrap_or(line);
        if !yaml::is_blank_or_comment(rest) {
            return Err(YamlFault::new(
                at,
                "text behind the end of the tree's document",
            ));
        }
        at = at.saturating_add(line.len());
    }
    Ok(())
}

/// An offset within a text of at most `MAX_TEXT` bytes.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl<'a> Composer<'a> {
    /// A composer at its start. Drops the nodes that `tree` has.
    fn new(tree: &'a mut Tree) -> Self {
        tree.nodes.clear();
        tree.tags.clear();
        tree.pool.clear();
        Self {
            tree,
            tag_numbers: HashMap::new(),
            anchors: HashMap::new(),
            open: Vec::new(),
            flow_depth: 0,
            too_deep: None,
        }
    }

    /// Adds what an event is about. After the document, nothing may follow in the text.
    fn take(&mut self, event: &Event<'_>, text: &str) -> Result<(), YamlFault> {
        match event.kind {
            EventKind::StreamStart | EventKind::DocumentStart | EventKind::StreamEnd => Ok(()),
            EventKind::DocumentEnd => nothing_follows(text, event.end),
            EventKind::SequenceEnd | EventKind::MappingEnd => self.close(event),
            EventKind::Alias => self.alias(event),
            EventKind::Scalar => self.scalar(event, text),
            EventKind::SequenceStart => self.collection(event, NodeKind::Sequence),
            EventKind::MappingStart => self.collection(event, NodeKind::Mapping),
        }
    }

    /// Adds a node and returns its number.
    fn push(&mut self, event: &Event<'_>, raw: Raw, weight: u64) -> Result<u32, YamlFault> {
        let number = u32::try_from(self.tree.nodes.len())
            .ok()
            .filter(|&n| n < MAX_NODES)
            .ok_or_else(|| YamlFault::new(event.start, format!("more than {MAX_NODES} nodes")))?;
        if let Some(parent) = self.open.last_mut() {
            if let Some(raw) = index(&mut self.tree.nodes, parent.node) {
                raw.len = raw.len.saturating_add(1);
            }
            parent.end = raw.end;
            // no array, alias or reference is without one of
            // these: other collections need not be searched
            if raw.tag > 0 || raw.kind == NodeKind::Alias || event.value == "$ref" {
                parent.leading = Raw::LEADING;
            }
            parent.grow(weight, event)?;
        }
        self.tree.nodes.push(raw);
        if let Some(name) = event.anchor.filter(|_| raw.kind != NodeKind::Alias) {
            if self.anchors.len() >= MAX_ANCHORS {
                let why = format!("more than {MAX_ANCHORS} anchors");
                return Err(YamlFault::new(event.start, why));
            }
            // PyYAML refuses a second anchor of the same name, though YAML 1.1 allows it
            if self.anchors.insert(name.into(), (number, weight)).is_some() {
                return Err(YamlFault::new(
                    event.start,
                    format!("anchor &{name} occurs twice"),
                ));
            }
        }
        Ok(number)
    }

    /// The number of an event's tag in the tree, from 1, which a new tag gets now; 0 if it has none.
    fn tag(&mut self, event: &Event<'_>) -> Result<u16, YamlFault> {
        let Some(tag) = event.tag else { return Ok(0) };
        if let Some(&number) = self.tag_numbers.get(tag) {
            return Ok(number);
        }
        if tag.len() > MAX_TAG {
            let why = format!("a tag of {} bytes, of {MAX_TAG} allowed", tag.len());
            return Err(YamlFault::new(event.start, why));
        }
        self.tree.tags.push(tag.into());
        let number = u16::try_from(self.tree.tags.len())
            .ok()
            .filter(|&n| usize::from(n) <= MAX_TAGS)
            .ok_or_else(|| {
                YamlFault::new(event.start, format!("more than {MAX_TAGS} different tags"))
            })?;
        self.tag_numbers.insert(tag.into(), number);
        Ok(number)
    }

    /// Adds a scalar. Its value is a place in the text if it stands there as it is; one that is folded or escaped goes into the pool.
    fn scalar(&mut self, event: &Event<'_>, text: &str) -> Result<(), YamlFault> {
        let mut raw = Raw::of(event, NodeKind::Scalar, self.tag(event)?);
        if event.plain {
            raw.flags |= Raw::PLAIN;
        }
        raw.len = offset(event.value.len());
        // Plain scalars end with their value, quoted ones with it and a quote, unless they are folded or escaped.
        let spelled = |behind: usize| {
            let end = event.end.checked_sub(behind)?;
            let start = end.checked_sub(event.value.len())?;
            let there = text.get(start..end)?;
            // almost every value is that very part of the text: then no bytes are compared
            let is_it = ptr::eq(there, event.value) || there == event.value;
            (start >= event.start && is_it).then_some(start)
        };
        raw.at = if let Some(start) = spelled(0).or_else(|| spelled(1)) {
            offset(start)
        } else {
            raw.flags |= Raw::POOLED;
            let start = self.tree.pool.len();
            self.tree.pool.push_str(event.value);
            offset(start)
        };
        let text_weight = u64::from(raw.len) / TEXT_PER_NODE;
        self.push(event, raw, text_weight.saturating_add(1))
            .map(drop)
    }

    /// Adds a collection, which is open until [`Composer::close`]: an alias of it until then stands within its own target.
    fn collection(&mut self, event: &Event<'_>, kind: NodeKind) -> Result<(), YamlFault> {
        self.flow_depth = self.flow_depth.saturating_add(usize::from(event.flow));
        if self.open.len() >= MAX_DEPTH || self.flow_depth > MAX_FLOW_DEPTH {
            let why =
                format!("nested deeper than {MAX_DEPTH} levels, or {MAX_FLOW_DEPTH} in flow style");
            return Err(YamlFault::new(event.start, why));
        }
        if self.open.len() >= MAX_DEPTH_OF_PYTHON {
            self.too_deep.get_or_insert(event.start);
        }
        let mut raw = Raw::of(event, kind, self.tag(event)?);
        raw.flags |= Raw::OPEN;
        let node = self.push(event, raw, 1)?;
        self.open.push(OpenCollection {
            node,
            anchor: event.anchor.map(Box::from),
            weight: 1,
            end: raw.end,
            flow: event.flow,
            leading: 0,
        });
        Ok(())
    }

    /// Adds an alias of the node that its anchor names, with the weight of that node.
    fn alias(&mut self, event: &Event<'_>) -> Result<(), YamlFault> {
        let name = event.anchor.unwrap_or_default();
        let Some(&(target, weight)) = self.anchors.get(name) else {
            let why = format!("alias *{name} without its anchor before it");
            return Err(YamlFault::new(event.start, why));
        };
        let mut raw = Raw::of(event, NodeKind::Alias, self.tag(event)?);
        raw.at = target;
        // the target is still open, so the alias stands within it: to follow it would never end
        let around =
            index(&mut self.tree.nodes, target).is_some_and(|raw| raw.flags & Raw::OPEN != 0);
        if around {
            raw.flags |= Raw::RECURSIVE;
        }
        self.push(event, raw, if around { 1 } else { weight })
            .map(drop)
    }

    /// Ends the collection that was begun last.
    fn close(&mut self, event: &Event<'_>) -> Result<(), YamlFault> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        self.flow_depth = self.flow_depth.saturating_sub(usize::from(open.flow));
        // A block collection's end event lies at the next token: it ends where its last child does.
        let end = if open.flow {
            offset(event.end)
        } else {
            open.end
        };
        // from here on an alias weighs all that the collection holds
        if let Some(name) = open.anchor
            && let Some((_, weight)) = self.anchors.get_mut(&name)
        {
            *weight = open.weight;
        }
        let behind = offset(self.tree.nodes.len());
        if let Some(raw) = index(&mut self.tree.nodes, open.node) {
            raw.flags &= !Raw::OPEN;
            raw.flags |= open.leading;
            raw.at = behind;
            raw.end = end;
        }
        let Some(parent) = self.open.last_mut() else {
            return Ok(());
        };
        parent.end = end;
        parent.leading |= open.leading;
        // 1 less, because its own node was counted when it was pushed
        parent.grow(open.weight.saturating_sub(1), event)
    }
}

impl Raw {
    /// A node for an event; the caller fills in what depends on the kind.
    fn of(event: &Event<'_>, kind: NodeKind, tag: u16) -> Self {
        Self {
            start: offset(event.start),
            end: offset(event.end),
            at: 0,
            len: 0,
            tag,
            kind,
            flags: 0,
        }
    }
}

impl OpenCollection {
    /// Adds to the weight; refuses what weighs too much.
    fn grow(&mut self, weight: u64, event: &Event<'_>) -> Result<(), YamlFault> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > MAX_WEIGHT {
            let why = "aliases that stand for far too much";
            return Err(YamlFault::new(event.start, why));
        }
        Ok(())
    }
}

fn index(nodes: &mut [Raw], node: u32) -> Option<&mut Raw> {
    nodes.get_mut(usize::try_from(node).ok()?)
}
