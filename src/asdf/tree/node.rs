//! A view of one node: its content, through aliases and merges.

use std::ops::Range;

use super::{NodeId, NodeKind, Raw, Tree};
use crate::asdf::scalar::{Type, Value};
use crate::error::Place;

/// Most entries that one look-up reads in mappings that are merged with `<<`.
const MAX_MERGED: usize = 100_000;

/// A node of a tree. Everything but [`Node::kind`] and the spans looks through an alias to its target.
#[derive(Debug, Clone, Copy)]
pub struct Node<'t> {
    tree: &'t Tree,
    id: u32,
    raw: &'t Raw,
}

impl<'t> Node<'t> {
    /// The node of that number, if there is one.
    pub(super) fn new(tree: &'t Tree, id: NodeId) -> Option<Self> {
        let raw = tree.nodes.get(usize::try_from(id.0).ok()?)?;
        Some(Self {
            tree,
            id: id.0,
            raw,
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(self) -> NodeId {
        NodeId(self.id)
    }

    /// What it is itself.
    #[must_use]
    pub fn kind(self) -> NodeKind {
        self.raw.kind
    }

    /// The target of an alias, or the node itself. An alias within its own target stays as it is, a leaf without content, so that
    /// following aliases always ends.
    #[must_use]
    pub fn follow(self) -> Self {
        if self.raw.kind != NodeKind::Alias || self.is_recursive() {
            return self;
        }
        self.tree.node(NodeId(self.raw.at)).unwrap_or(self)
    }

    /// Whether it is an alias of a node that it is part of.
    #[must_use]
    pub fn is_recursive(self) -> bool {
        self.raw.flags & Raw::RECURSIVE != 0
    }

    /// The explicit tag, resolved.
    #[must_use]
    pub fn tag(self) -> Option<&'t str> {
        let number = usize::from(self.follow().raw.tag);
        self.tree.tags.get(number.checked_sub(1)?).map(|tag| &**tag)
    }

    /// A scalar's text, without quotes and escapes.
    #[must_use]
    pub fn text(self) -> Option<&'t str> {
        let raw = self.follow().raw;
        if raw.kind != NodeKind::Scalar {
            return None;
        }
        let at = range(raw.at, raw.at.checked_add(raw.len)?);
        self.tree.part(at, raw.flags & Raw::POOLED != 0)
    }

    /// The bytes of [`Node::text`], without the check that they are UTF-8; empty for a collection.
    pub(super) fn text_bytes(self) -> &'t [u8] {
        let raw = self.follow().raw;
        if raw.kind != NodeKind::Scalar {
            return &[];
        }
        let at = range(raw.at, raw.at.saturating_add(raw.len));
        let from = match raw.flags & Raw::POOLED {
            0 => self.tree.bytes.as_slice(),
            _ => self.tree.pool.as_bytes(),
        };
        from.get(at).unwrap_or_default()
    }

    /// A scalar's type: by its tag, or by its looks if it is plain. A tag that is not YAML's own leaves it a string.
    #[must_use]
    pub fn scalar_type(self) -> Option<Type> {
        self.typed().map(|(kind, _)| kind)
    }

    /// A scalar's type with its text.
    pub(super) fn typed(self) -> Option<(Type, &'t str)> {
        let text = self.text()?;
        let kind = match self.tag() {
            Some(tag) => Type::from_tag(tag).unwrap_or(Type::Str),
            None if self.follow().raw.flags & Raw::PLAIN != 0 => Type::implicit(text),
            None => Type::Str,
        };
        Some((kind, text))
    }

    /// A scalar's value.
    #[must_use]
    pub fn value(self) -> Option<Value<'t>> {
        self.typed().map(|(kind, text)| kind.value(text))
    }

    /// Whether no array, alias or reference can be in it: nothing in it has a tag, is an alias or the text `$ref`.
    pub(in crate::asdf) fn leads_nowhere(self) -> bool {
        self.raw.kind != NodeKind::Alias && self.raw.flags & Raw::LEADING == 0
    }

    /// How many items or entries it has.
    #[must_use]
    pub fn len(self) -> usize {
        let raw = self.follow().raw;
        let children = usize::try_from(raw.len).unwrap_or(0);
        match raw.kind {
            NodeKind::Sequence => children,
            NodeKind::Mapping => children / 2,
            NodeKind::Scalar | NodeKind::Alias => 0,
        }
    }

    /// Whether it has no items or entries.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The parts of a collection: the items of a sequence, or the values of a mapping as they are written, the values of `<<` among
    /// them. Each comes with its key or index.
    pub(in crate::asdf) fn parts(self) -> Parts<'t> {
        let node = self.follow();
        Parts {
            tree: self.tree,
            next: node.id.saturating_add(1),
            left: match node.raw.kind {
                NodeKind::Sequence | NodeKind::Mapping => node.raw.len,
                NodeKind::Scalar | NodeKind::Alias => 0,
            },
            index: (node.raw.kind == NodeKind::Sequence).then_some(0),
            component: Component::Top,
        }
    }

    /// The items of a sequence; none for any other node.
    pub fn items(self) -> impl Iterator<Item = Self> + use<'t> {
        let mut parts = self.parts();
        parts.left = if parts.index.is_some() { parts.left } else { 0 };
        std::iter::from_fn(move || parts.child())
    }

    /// The keys and values of a mapping as they are written, `<<` among them; none for any other node.
    pub fn entries(self) -> impl Iterator<Item = (Self, Self)> + use<'t> {
        let mut parts = self.parts();
        parts.left = if parts.index.is_none() { parts.left } else { 0 };
        std::iter::from_fn(move || Some((parts.child()?, parts.child()?)))
    }

    /// The value of a string key, as PyYAML finds it: the mapping's own last one first, then those merged with `<<`.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Self> {
        let mut left = MAX_MERGED;
        self.merged()
            // there may be more merged mappings than anyone can wait for
            .take_while(|mapping| {
                let enough = left > 0;
                left = left.saturating_sub(mapping.len());
                enough
            })
            .find_map(|mapping| {
                let own = mapping.entries().filter(|(k, _)| k.is_key(key)).last();
                own.map(|(_, value)| value.follow())
            })
    }

    /// The mapping itself, then the mappings that `<<` merges into it, the most important first. Aliases can make them endlessly
    /// many: the caller must keep count.
    pub fn merged(self) -> impl Iterator<Item = Self> + use<'t> {
        // no memory is taken unless `<<` merges something: arrays ask for their keys a million times
        let (mut own, mut stack) = (Some(self.follow()), Vec::new());
        std::iter::from_fn(move || {
            let mapping = own.take().or_else(|| stack.pop())?;
            for (_, value) in mapping.entries().filter(|(key, _)| key.is_merge()) {
                let first = stack.len();
                match value.follow().kind() {
                    NodeKind::Mapping => stack.push(value.follow()),
                    _ => stack.extend(value.items().map(Self::follow)),
                }
                // this is a stack, and the first source of a list must come off first
                if let Some(sources) = stack.get_mut(first..) {
                    sources.reverse();
                }
            }
            Some(mapping)
        })
    }

    /// Whether a mapping has at most so many entries, with those that `<<` merges into it.
    #[must_use]
    pub fn is_within(self, most: usize) -> bool {
        let left = self.merged().try_fold(most, |left, mapping| {
            // an empty mapping counts, too: aliases can make them endlessly many
            left.checked_sub(mapping.len().max(1))
        });
        left.is_some()
    }

    /// Whether it is the string `key`.
    #[must_use]
    pub fn is_key(self, key: &str) -> bool {
        // the bytes first: almost every key fails there, at no cost
        self.text_bytes() == key.as_bytes() && self.value() == Some(Value::Str(key))
    }

    /// Whether it is the key `<<`, or a key with the tag of merges.
    #[must_use]
    pub fn is_merge(self) -> bool {
        (self.text_bytes() == b"<<" || self.tag().is_some())
            && self.scalar_type() == Some(Type::Merge)
    }

    /// Its bytes in the text, with tag and anchor.
    #[must_use]
    pub fn span(self) -> Range<usize> {
        range(self.raw.start, self.raw.end)
    }

    /// The text of [`Node::span`].
    #[must_use]
    pub fn spelling(self) -> &'t str {
        self.tree.part(self.span(), false).unwrap_or_default()
    }

    /// Its line and column.
    #[must_use]
    pub fn place(self) -> Place {
        self.tree.place(self.span().start)
    }

    /// The number of the first node behind it and behind everything in it.
    #[must_use]
    pub fn behind(self) -> NodeId {
        NodeId(match self.raw.kind {
            NodeKind::Sequence | NodeKind::Mapping => self.raw.at,
            NodeKind::Scalar | NodeKind::Alias => self.id.saturating_add(1),
        })
    }
}

/// The name of a part in its collection: one step of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// It is no part of anything: the tree's top node itself.
    Top,
    /// The key of a mapping.
    Key(NodeId),
    /// The index in a sequence.
    Index(u32),
}

/// The parts of a collection that are still to come, in order.
#[derive(Debug, Clone)]
pub(in crate::asdf) struct Parts<'t> {
    tree: &'t Tree,
    next: u32,
    left: u32,
    /// Index of the next item of a sequence; none of a mapping.
    index: Option<u32>,
    /// The name of the part that came last.
    component: Component,
}

impl<'t> Parts<'t> {
    /// The name of the part that came last; [`Component::Top`] before the first one.
    pub(in crate::asdf) fn component(&self) -> Component {
        self.component
    }

    /// The next item, or the next key or value, which take turns.
    fn child(&mut self) -> Option<Node<'t>> {
        self.left = self.left.checked_sub(1)?;
        let node = self.tree.node(NodeId(self.next))?;
        // one step for each child, however much is in it
        self.next = node.behind().0;
        Some(node)
    }
}

impl<'t> Iterator for Parts<'t> {
    type Item = (Component, Node<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.child()?;
        let part = if let Some(index) = &mut self.index {
            self.component = Component::Index(*index);
            *index = index.saturating_add(1);
            first
        } else {
            self.component = Component::Key(first.id());
            self.child()?
        };
        Some((self.component, part))
    }
}

fn range(start: u32, end: u32) -> Range<usize> {
    let wide = |n| usize::try_from(n).unwrap_or(usize::MAX);
    wide(start)..wide(end)
}
