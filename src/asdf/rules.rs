//! The rules of the core tags, and what in a tree breaks them.
//!
//! A rule is data: it describes the value that a tag wants. `table` has all rules, under the name and version of their tags;
//! the standard's schemas have the same names. This module checks a tree by them. Tags without a rule are left alone, and so
//! are the targets of `$ref`.
//!
//! A deeper tree makes no deeper calls: the work that is left lies on a stack. The target of an alias or a merge is checked once by
//! each rule, so that the work is in proportion to the text.

mod array;
mod column;
mod fault;
mod fits;
mod table;
mod text;
mod time;

use std::collections::HashSet;

pub use fault::{Fault, Faults};

use super::decl::Allowance;
use super::scalar::Value;
use super::tree::{Component, Node, NodeId, NodeKind, Parts, Tree, quoted};

/// Most faults that are kept.
const MAX_FAULTS: usize = 10_000;
/// Entries of [`Checker::seen`] from which on it drops the ones that the walk can't meet again.
const MANY: usize = 1 << 16;

/// What a value has to be.
enum Want {
    /// Anything at all.
    Anything,
    /// A string.
    Text,
    /// A string with that property, in words.
    Like(fn(&str) -> bool, &'static str),
    /// A string of so many characters at most.
    Short(usize),
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A number.
    Number,
    /// A number between these, or one of them.
    Between(f64, f64),
    /// An integer not below zero.
    Size,
    /// An integer other than zero.
    Step,
    /// True or false.
    Bool,
    /// Null.
    Null,
    /// A list of these.
    List(&'static Self),
    /// A list of so many items at most; the first ones have to be these.
    Parts(&'static [&'static Self], usize),
    /// A list of these, or of such lists.
    Nested(&'static Self),
    /// A mapping.
    Map(MapRule),
    /// One of these, by the kind of the value; and all that is allowed, in words.
    Either(&'static [(Sort, &'static Self)], &'static str),
    /// What this function chooses after a look at the node.
    By(fn(Node<'_>) -> &'static Self),
    /// Something under a tag that begins so.
    Tagged(&'static str),
    /// What another rule says.
    As(&'static Rule),
    /// All of these.
    All(&'static [&'static Self]),
}

impl Want {
    /// Whether a node is a scalar that the want takes without a look at its text.
    fn takes(&self, node: Node<'_>) -> bool {
        node.kind() == NodeKind::Scalar
            && match self {
                Self::Anything => true,
                Self::Nested(want) => want.takes(node),
                Self::Either(choices, _) => sort(node).is_none_or(|found| {
                    let choice = choices.iter().find(|(sort, _)| sort.fits(found));
                    choice.is_some_and(|(_, want)| want.takes(node))
                }),
                _ => false,
            }
    }
}

/// A number that differs for each want of the rules: the low half of its address. All wants are constants of the program,
/// which is smaller than 4 GiB.
fn number_of(want: &'static Want) -> u32 {
    let bytes = std::ptr::from_ref(want).addr().to_le_bytes();
    u32::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default())
}

/// A rule: the end of a tag, and what the value has to be.
struct Rule {
    name: &'static str,
    want: Want,
}

/// What a mapping has to be.
struct MapRule {
    /// The keys that have a meaning.
    keys: &'static [(&'static str, &'static Want)],
    /// The keys that must be there.
    required: &'static [&'static str],
    /// If the first is there, the second must be.
    needs: &'static [(&'static str, &'static str)],
    /// Exactly one of these must be there, if any are given.
    one_of: &'static [&'static str],
    /// Whether there may be no other keys.
    closed: bool,
}

impl MapRule {
    const EMPTY: Self = Self {
        keys: &[],
        required: &[],
        needs: &[],
        one_of: &[],
        closed: false,
    };
}

/// Kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Null,
    Bool,
    Integer,
    /// Also an integer.
    Number,
    Text,
    List,
    Map,
}

impl Sort {
    /// Whether a value of the kind `found` is one of this kind.
    fn fits(self, found: Self) -> bool {
        self == found || (self == Self::Number && found == Self::Integer)
    }

    /// What it is called in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a truth value",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::List => "a list",
            Self::Map => "a mapping",
        }
    }
}

/// What kind of value a node is; none for a text that its tag does not allow, and for an alias within its own target.
fn sort(node: Node<'_>) -> Option<Sort> {
    Some(match node.follow().kind() {
        NodeKind::Sequence => Sort::List,
        NodeKind::Mapping => Sort::Map,
        NodeKind::Alias => return None,
        NodeKind::Scalar => match node.value()? {
            Value::Null => Sort::Null,
            Value::Bool(_) => Sort::Bool,
            Value::Int(_) | Value::Huge(_) => Sort::Integer,
            Value::Float(_) => Sort::Number,
            Value::Str(_) => Sort::Text,
            Value::Malformed(_) => return None,
        },
    })
}

/// Holds all of a tree against the rules.
#[must_use]
pub fn check(tree: &Tree) -> Faults {
    let mut checker = Checker {
        tree,
        allowance: Allowance::new(tree),
        seen: HashSet::new(),
        most_seen: if tree.all().any(|node| node.kind() == NodeKind::Alias) {
            usize::MAX
        } else {
            MANY
        },
        above: Vec::new(),
        trail: Vec::new(),
        work: Vec::new(),
        found: Vec::new(),
        cut: false,
        in_merged: false,
    };
    if let Some(root) = tree.root() {
        checker.walk(root);
    }
    // the stack finds faults out of order, and two ways to a node, or two rules, may find the same one
    let mut found = checker.found;
    found.sort_by(|a, b| (a.0, &a.1.why, a.1.rule).cmp(&(b.0, &b.1.why, b.1.rule)));
    found.dedup_by(|a, b| (a.0, &a.1.why) == (b.0, &b.1.why));
    Faults {
        list: found.into_iter().map(|(_, fault)| fault).collect(),
        cut: checker.cut,
    }
}

/// Something that is still to be checked, as part of a tagged node.
#[derive(Clone)]
struct Task<'t> {
    rule: &'static Rule,
    want: &'static Want,
    /// How many steps of the trail lead to the collection that it is in.
    depth: usize,
    step: Option<Component>,
    what: Target<'t>,
}

/// The part of the tree that a task is about.
#[derive(Clone)]
enum Target<'t> {
    Node(Node<'t>),
    /// These items of a list.
    Rest(Parts<'t>),
}

/// Holds a tree against the rules, node by node.
struct Checker<'t> {
    tree: &'t Tree,
    allowance: Allowance,
    /// Collections that have been checked, each with the number of the want.
    seen: HashSet<(NodeId, u32)>,
    /// When `seen` has so many entries, entries in front of the walk's node are dropped; never in a tree with aliases, which may
    /// lead back to any of them.
    most_seen: usize,
    /// The parts still to come of each collection around the node that the walk has reached.
    above: Vec<Parts<'t>>,
    /// The steps from the tagged node to the collection that is being checked.
    trail: Vec<Component>,
    work: Vec<Task<'t>>,
    /// With the byte of the text.
    found: Vec<(usize, Fault)>,
    /// Whether something was left out: faults beyond [`MAX_FAULTS`], or what merges make too large.
    cut: bool,
    /// Whether a merge has been followed: what it leads to may be reached in many ways.
    in_merged: bool,
}

impl<'t> Checker<'t> {
    /// Looks at every node of the tree for a tag that has a rule.
    fn walk(&mut self, root: Node<'t>) {
        self.enter(root);
        while let Some(parts) = self.above.last_mut() {
            if let Some((_, part)) = parts.next() {
                self.enter(part);
            } else {
                self.above.pop();
            }
        }
    }

    /// Checks a node by the rule of its tag, if there is one, and visits its parts next. Passes over an alias, because its target
    /// is visited where it stands.
    fn enter(&mut self, node: Node<'t>) {
        if node.kind() == NodeKind::Alias {
            return;
        }
        if self.seen.len() >= self.most_seen {
            // numbers of nodes grow in the order of the text: without aliases, the walk never comes back to a smaller one
            self.seen.retain(|(id, _)| *id >= node.id());
            self.most_seen = self.seen.len().saturating_mul(2).max(MANY);
        }
        if let Some(rule) = node.tag().and_then(table::find) {
            self.apply(rule, node);
        }
        if node.kind() != NodeKind::Scalar {
            self.above.push(node.parts());
        }
    }

    /// Holds the node under a tag against the rule of that tag.
    fn apply(&mut self, rule: &'static Rule, node: Node<'t>) {
        self.trail.clear();
        self.work.push(Task {
            rule,
            want: &rule.want,
            depth: 0,
            step: None,
            what: Target::Node(node),
        });
        while let Some(task) = self.work.pop() {
            self.trail.truncate(task.depth);
            match task.what.clone() {
                Target::Node(node) => self.check(&task, node),
                Target::Rest(items) => self.next_item(task, items),
            }
        }
    }

    /// Whether a collection is checked against this want for the first time. Lists to which only one way leads are not recorded.
    fn is_new(&mut self, node: Node<'t>, want: &'static Want) -> bool {
        // an array may have a million lists in lists: to record each would take more than the tree
        let more_ways = node.kind() != NodeKind::Sequence || node.tag().is_some() || self.in_merged;
        !more_ways || self.seen.insert((node.follow().id(), number_of(want)))
    }

    /// Goes on to the next item of a list that has to be looked at: an inline array may have millions of numbers.
    fn next_item(&mut self, mut task: Task<'t>, mut items: Parts<'t>) {
        let Some((step, item)) = items.find(|(_, item)| !task.want.takes(*item)) else {
            return;
        };
        let one = Task {
            step: Some(step),
            what: Target::Node(item),
            ..task
        };
        task.what = Target::Rest(items);
        // on top of the rest, so that the item and all below it are checked first
        self.work.push(task);
        self.work.push(one);
    }

    /// Checks a node against the want of a task, and puts its parts on the stack.
    fn check(&mut self, task: &Task<'t>, node: Node<'t>) {
        let Some(found) = sort(node) else { return };
        if matches!(found, Sort::List | Sort::Map) && !self.is_new(node, task.want) {
            return;
        }
        // the target of a `$ref` may be in another file
        if found == Sort::Map && node.entries().any(|(key, _)| key.is_key("$ref")) {
            return;
        }
        let again = |want| Task {
            want,
            ..task.clone()
        };
        match task.want {
            Want::As(rule) => self.work.push(Task {
                rule,
                ..again(&rule.want)
            }),
            Want::By(choose) => {
                if self.can_look_at(node) {
                    self.work.push(again(choose(node)));
                }
            }
            Want::All(all) => self.work.extend(all.iter().map(|want| again(want))),
            Want::Either(choices, words) => {
                match choices.iter().find(|(sort, _)| sort.fits(found)) {
                    Some((_, want)) => self.work.push(again(want)),
                    None => self.blame(task, node, &needed(words, found)),
                }
            }
            Want::List(want) | Want::Nested(want) if found == Sort::List => {
                let nested = matches!(task.want, Want::Nested(_));
                let want = if nested { task.want } else { want };
                self.go_in(task, want, node.parts());
            }
            Want::Nested(want) => self.work.push(again(want)),
            Want::Parts(parts, most) if found == Sort::List => {
                self.parts(task, node, parts, *most);
            }
            Want::Map(rule) if found == Sort::Map => self.map(task, node, rule),
            want => {
                if let Some(why) = scalar_fault(want, node, found) {
                    self.blame(task, node, &why);
                }
            }
        }
    }

    /// Notes the way to a collection, and returns how deep its children are.
    fn descend(&mut self, task: &Task<'t>) -> usize {
        self.trail.extend(task.step);
        self.trail.len()
    }

    /// Puts the items of a list on the stack as one task. [`Checker::next_item`] takes one after the other.
    fn go_in(&mut self, task: &Task<'t>, want: &'static Want, items: Parts<'t>) {
        let depth = self.descend(task);
        self.work.push(Task {
            rule: task.rule,
            want,
            depth,
            step: None,
            what: Target::Rest(items),
        });
    }

    /// Holds the first items of a list against a want each, and the length of the list against `most`.
    fn parts(&mut self, task: &Task<'t>, node: Node<'t>, parts: &[&'static Want], most: usize) {
        if node.len() > most {
            let why = format!("a list of {most} items at most is needed");
            self.blame(task, node, &why);
        }
        let depth = self.descend(task);
        for ((step, item), want) in node.parts().zip(parts) {
            self.work.push(Task {
                rule: task.rule,
                want,
                depth,
                step: Some(step),
                what: Target::Node(item),
            });
        }
    }

    /// Holds a mapping against a rule: which keys it has and lacks, then the value of each key that the rule knows. If merges make
    /// it too large, it is left out.
    fn map(&mut self, task: &Task<'t>, node: Node<'t>, rule: &'static MapRule) {
        let Some(values) = self.values(task, node, rule) else {
            self.cut = true;
            return;
        };
        let has = |name: &str| values.iter().any(|(key, _, _)| *key == name);
        for key in rule.required.iter().filter(|key| !has(key)) {
            self.blame(task, node, &format!("{key} is missing"));
        }
        for (key, other) in rule.needs {
            if has(key) && !has(other) {
                let why = format!("{other} is missing, which {key} needs");
                self.blame(task, node, &why);
            }
        }
        // `oneOf` in the schema: one of the keys, and no second one
        let given = rule.one_of.iter().filter(|key| has(key)).count();
        if !rule.one_of.is_empty() && given != 1 {
            let how = if given == 0 {
                "one of"
            } else {
                "no more than one of"
            };
            let why = format!("{how} {} is needed", rule.one_of.join(", "));
            self.blame(task, node, &why);
        }
        let depth = self.descend(task);
        for (name, key, value) in values {
            let want = rule.keys.iter().find(|(key, _)| *key == name);
            self.work.extend(want.map(|(_, want)| Task {
                rule: task.rule,
                want,
                depth,
                step: Some(Component::Key(key)),
                what: Target::Node(value),
            }));
        }
    }

    /// The values of the keys that a rule knows, each once: the mapping's own values before merged ones.
    fn values(
        &mut self,
        task: &Task<'t>,
        node: Node<'t>,
        rule: &MapRule,
    ) -> Option<Vec<(&'static str, NodeId, Node<'t>)>> {
        let mut values: Vec<(&'static str, NodeId, Node<'t>)> = Vec::new();
        for (rank, mapping) in node.merged().enumerate() {
            // the same large mapping may be merged a thousand times
            if rank > 0 && !self.allowance.take(mapping.len().saturating_add(1)) {
                return None;
            }
            self.in_merged |= rank > 0;
            let mut own: Vec<(&'static str, NodeId, Node<'t>)> = Vec::new();
            for (key, value) in mapping.entries().filter(|(key, _)| !key.is_merge()) {
                let known = rule.keys.iter().find(|(name, _)| key.is_key(name));
                if let Some(&(name, _)) = known {
                    // within one mapping the last of equal keys counts
                    own.retain(|(other, _, _)| *other != name);
                    own.push((name, key.id(), value));
                } else if rule.closed {
                    let text = quoted(key.text().unwrap_or_default());
                    self.blame(task, key, &format!("key {text} is not allowed here"));
                }
            }
            for value in own {
                if values.iter().all(|other| other.0 != value.0) {
                    values.push(value);
                }
            }
        }
        Some(values)
    }

    /// Whether the keys of a mapping can be looked for in all that is merged into it.
    fn can_look_at(&mut self, node: Node<'t>) -> bool {
        let mut merged = node.merged().skip(1);
        let can = merged.all(|mapping| self.allowance.take(mapping.len().saturating_add(1)));
        self.cut |= !can;
        can
    }

    /// Notes a fault of a node.
    fn blame(&mut self, task: &Task<'t>, node: Node<'t>, why: &str) {
        // a tree of millions of nodes may break a rule at each; people read the first few
        if self.found.len() >= MAX_FAULTS {
            self.cut = true;
            return;
        }
        let above = self.above.iter().map(Parts::component);
        let steps = above.chain(self.trail.iter().copied()).chain(task.step);
        let fault = Fault::new(task.rule.name, self.tree, node, steps, why);
        self.found.push((node.span().start, fault));
    }
}

fn needed(what: &str, found: Sort) -> String {
    format!("{what} is needed, here is {}", found.name())
}

/// The fault of a value without parts, if it has one.
fn scalar_fault(want: &Want, node: Node<'_>, found: Sort) -> Option<String> {
    let kind = |sort: Sort| (!sort.fits(found)).then(|| needed(sort.name(), found));
    let text = node.text().unwrap_or_default();
    let unless = |fine: bool, why: String| (!fine).then_some(why);
    match want {
        Want::Like(is_so, words) => {
            kind(Sort::Text).or_else(|| unless(is_so(text), format!("{words} is needed")))
        }
        Want::Short(most) => kind(Sort::Text).or_else(|| {
            let fine = text.chars().nth(*most).is_none();
            unless(
                fine,
                format!("a string of {most} characters at most is needed"),
            )
        }),
        Want::OneOf(words) => unless(
            found == Sort::Text && words.contains(&text),
            match words {
                [one] => format!("'{one}' is needed"),
                _ => format!("one of {} is needed", words.join(", ")),
            },
        ),
        Want::Between(least, most) => kind(Sort::Number).or_else(|| {
            let fine = match node.value() {
                // NaN is in no order with the bounds
                Some(Value::Float(x)) => !(x < *least || x > *most),
                Some(Value::Int(n)) => text::between(n, *least, *most),
                _ => false,
            };
            unless(
                fine,
                format!("a number between {least} and {most} is needed"),
            )
        }),
        Want::Size => kind(Sort::Integer).or_else(|| {
            // an integer beyond 128 bits only has its text
            let negative =
                matches!(node.value(), Some(Value::Int(n)) if n < 0) || text.starts_with('-');
            unless(!negative, "an integer not below zero is needed".to_owned())
        }),
        Want::Step => kind(Sort::Integer).or_else(|| {
            let zero = node.value() == Some(Value::Int(0));
            unless(!zero, "an integer other than zero is needed".to_owned())
        }),
        Want::Tagged(start) => unless(
            node.tag().is_some_and(|tag| tag.starts_with(start)),
            format!("something tagged <{start}...> is needed"),
        ),
        Want::Text => kind(Sort::Text),
        Want::Number => kind(Sort::Number),
        Want::Bool => kind(Sort::Bool),
        Want::Null => kind(Sort::Null),
        Want::List(_) | Want::Parts(..) => kind(Sort::List),
        Want::Map(_) => kind(Sort::Map),
        Want::Anything
        | Want::Nested(_)
        | Want::Either(..)
        | Want::By(_)
        | Want::As(_)
        | Want::All(_) => None,
    }
}

#[cfg(test)]
#[path = "tests/rules.rs"]
mod tests;
