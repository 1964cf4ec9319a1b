//! The scalars of a `meta` as cards, under the keywords of ESO's HIERARCH convention: `meta.exposure.start_time` is
//! `HIERARCH META EXPOSURE START_TIME`.

use super::header::{HeaderText, printable_ascii, real};
use crate::asdf::outline::column::is_tagged;
use crate::asdf::scalar::Value;
use crate::asdf::tree::{Node, NodeKind};
use crate::view::entries;

/// Most cards; what is beyond is left out.
const MAX_CARDS: usize = 1000;
/// Most keys that are looked at: by aliases and merges, a short tree can have many.
const MAX_KEYS: usize = 4000;
/// Most levels below `meta`.
const MAX_LEVELS: usize = 16;
/// Longest keyword that anything fits behind.
const MAX_KEYWORD: usize = 66;
/// Longest text.
const MAX_TEXT: usize = 4000;

/// The cards of a `meta`.
pub(super) fn cards(meta: Node<'_>) -> HeaderText {
    let mut header = HeaderText::default();
    let mut left = MAX_KEYS;
    if add(&mut header, "HIERARCH META", meta, (MAX_LEVELS, &mut left)).is_none() {
        header.comment("further keys of meta are left out: they are too many");
    }
    header
}

/// Adds the scalars of a mapping under a keyword. `None` if there are too many.
fn add(
    header: &mut HeaderText,
    above: &str,
    mapping: Node<'_>,
    (levels, left): (usize, &mut usize),
) -> Option<()> {
    // mappings that merge each other have no end
    if !mapping.is_within(*left) {
        return None;
    }
    for (key, value) in entries(mapping.merged(), Node::text) {
        *left = left.checked_sub(1)?;
        let value = value.follow();
        let keyword = format!("{above} {}", spelled(key));
        let has_room = keyword.len() <= MAX_KEYWORD;
        let is_gwcs = value.tag().is_some_and(|tag| tag.contains("gwcs/"));
        let added = match value.kind() {
            // these tell where numbers are, and describe nothing
            NodeKind::Mapping if is_gwcs || is_tagged(value, &["ndarray-"]) => continue,
            NodeKind::Mapping if has_room && levels > 0 => {
                let below = (levels.saturating_sub(1), &mut *left);
                add(header, &keyword, value, below)?;
                continue;
            }
            NodeKind::Scalar if has_room => scalar(header, &keyword, value),
            NodeKind::Scalar | NodeKind::Mapping => None,
            NodeKind::Sequence | NodeKind::Alias => continue,
        };
        if added.is_none() {
            header.comment(&format!("left out, too long: {keyword}"));
        }
        if header.len() >= MAX_CARDS {
            return None;
        }
    }
    Some(())
}

/// A key with the letters of keywords.
fn spelled(key: &str) -> String {
    let letter = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => c.to_ascii_uppercase(),
        _ => '_',
    };
    key.chars().map(letter).collect()
}

/// Adds a card with a scalar; without a value if it is null, or no number. `None` if there is no room for it.
fn scalar(header: &mut HeaderText, keyword: &str, node: Node<'_>) -> Option<()> {
    let value = match node.value() {
        Some(Value::Bool(truth)) => Some(if truth { "T" } else { "F" }.to_owned()),
        Some(Value::Int(number)) => Some(number.to_string()),
        Some(Value::Float(number)) => real(number),
        // FITS has neither NaN nor null: a keyword without a value says that there is none (4.1.2.3)
        Some(Value::Null) | None => None,
        Some(Value::Str(text) | Value::Huge(text) | Value::Malformed(text)) => {
            let text = Some(printable_ascii(text)).filter(|text| text.len() <= MAX_TEXT)?;
            return header.long_text(keyword, &text);
        }
    };
    header.long_value(keyword, &value.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::tree::Tree;

    fn made(meta: &str) -> Vec<String> {
        let text = format!("#ASDF 1.0.0\n%YAML 1.1\n---\n{meta}\n...\n");
        let tree = Tree::parse(text.as_bytes()).unwrap();
        let header = cards(tree.root().unwrap());
        let cards = header.as_bytes().chunks(80).map(String::from_utf8_lossy);
        cards.map(|card| card.trim_end().to_owned()).collect()
    }

    #[test]
    fn each_scalar_is_a_card_under_its_keys() {
        let long = "it's ".repeat(20);
        let meta = format!(
            "{{a: {{b_c: 1, d: .nan, e: true}}, f é: 1.5e-7, g: null, h: [1, 2], i: {long:?}, \
            j: !core/ndarray-1.0.0 {{source: 0}}, k: !time/time-1.1.0 2020-01-01, <<: {{g: 7, l: 8}}}}"
        );
        let want = [
            "HIERARCH META A B_C = 1",
            "HIERARCH META A D =",
            "HIERARCH META A E = T",
            "HIERARCH META F__ = 1.5E-7",
            "HIERARCH META G =",
            "HIERARCH META I = 'it''s it''s it''s it''s it''s it''s it''s it''s it''s it''s&'",
            "CONTINUE  ' it''s it''s it''s it''s it''s it''s it''s it''s it''s it''s '",
            "HIERARCH META K = '2020-01-01'",
            "HIERARCH META L = 8",
        ];
        assert_eq!(made(&meta), want);
    }

    /// The first of them was shown, while a mount and Python have the last.
    #[test]
    fn of_equal_keys_the_last_one_counts() {
        let cards = made("{a: 1, b: 2, a: 3}");
        assert_eq!(cards, ["HIERARCH META B = 2", "HIERARCH META A = 3"]);
    }

    #[test]
    fn what_is_too_much_is_left_out_and_said() {
        let deep = format!("{{{}: 1}}", "k".repeat(60));
        assert!(made(&deep)[0].starts_with("COMMENT left out, too long: HIERARCH META KKK"));
        let many: Vec<_> = (0..2000).map(|n| format!("k{n}: {n}")).collect();
        let cards = made(&format!("{{{}}}", many.join(", ")));
        assert_eq!(cards.len(), MAX_CARDS + 1);
        assert!(cards[MAX_CARDS].starts_with("COMMENT further keys of meta"));
        let text = format!("{{k: {}}}", "t".repeat(MAX_TEXT + 1));
        assert!(made(&text)[0].starts_with("COMMENT left out"));
    }
}
