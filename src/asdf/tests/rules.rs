//! What the rules find. Expected verdicts are those of Python's asdf 6.0.0; `tests/rules_oracle.py` compares many more.

use std::fmt::Write;

use super::*;
use proptest::prelude::*;

fn faults(body: &str) -> Vec<String> {
    let head = "%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";
    let tree = Tree::parse(format!("#ASDF 1.0.0\n{head}{body}\n...\n")).unwrap();
    let found = check(&tree);
    assert!(!found.cut);
    found.list.iter().map(Fault::to_string).collect()
}

/// A path is as long as the tree is deep, and there may be ten thousand faults in the same place.
#[test]
fn the_path_of_a_fault_is_cut_if_it_is_long() {
    let key = "k".repeat(900);
    let body = format!("{{{key}: {{{key}: [!core/software-1.0.0 {{}}]}}}}");
    let text = format!("%TAG ! tag:stsci.edu:asdf/\n---\n{body}\n...\n");
    let faults = check(&Tree::parse(text).unwrap());
    assert_eq!(faults.list.len(), 2);
    for fault in &faults.list {
        let (start, end) = fault.path.split_once('…').unwrap();
        assert!(start.starts_with("kkk") && end.ends_with("k/0"), "{fault}");
        assert!(fault.to_string().len() < 400, "{fault}");
    }
}

#[test]
fn a_fault_is_told_with_its_place_path_and_rule() {
    assert_eq!(
        faults("asdf_library: !core/software-1.0.0 {name: asdf, version: 1.0}"),
        [
            "line 5, column 58: asdf_library/version: a string is needed, here is a number (rule core/software-1.0.0)"
        ]
    );
    assert_eq!(
        faults(
            "a:\n- {b: !core/ndarray-1.1.0 {source: 0, shape: [-1], datatype: float128, byteorder: big}}"
        ),
        [
            "line 6, column 47: a/0/b/shape/0: an integer not below zero is needed (rule core/ndarray-1.1.0)",
            "line 6, column 62: a/0/b/datatype: one of int8, uint8, int16, uint16, int32, uint32, int64, uint64, \
             float16, float32, float64, complex64, complex128, bool8 is needed (rule core/ndarray-1.1.0)"
        ]
    );
}

#[test]
fn a_value_that_two_rules_lead_to_is_blamed_once() {
    let entry = "!core/history_entry-1.0.0 {software: &s !core/software-1.0.0 {name: x}}";
    let found = faults(&format!("history: {{entries: [{entry}]}}\nagain: *s"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("description is missing"));
    assert!(found[1].contains("history/entries/0/software: version is missing"));
}

#[test]
fn what_is_not_known_is_left_alone() {
    for body in [
        "a: !core/ndarray-7.0.0 {shape: x}",
        "a: !<tag:example.org:core/ndarray-1.0.0> {shape: x}",
        "a: !core/ndarray-1.0.0 {$ref: 'other.asdf#/x'}",
        "asdf_library: {name: 1.0, version: 2, $ref: x}",
        "a: &a !core/software-1.0.0 {name: n, version: v, self: *a}",
    ] {
        assert_eq!(faults(body), [""; 0], "{body}");
    }
}

/// The schema describes the first extension only; `asdf.open` reads all of them. `tests/rules_oracle.py` has more cases.
#[test]
fn each_extension_of_the_history_is_one_that_python_looks_up() {
    let found = |item: &str| {
        let body = format!("history: {{extensions: [{{extension_class: c}}, {item}]}}");
        faults(&body)
    };
    for good in [
        "{extension_uri: u}",
        "{extension_class: 1}",
        "{extension_class: c, software: null}",
        "{extension_class: c, package: 5}",
        "{extension_class: c, software: {name: n, version: 0.1.0-5-gabc}}",
        "{extension_uri: u, software: {name: n, version: 1.0}}",
        "{extension_uri: u, extension_class: [], software: {name: [], version: '1.0'}}",
        "{extension_uri: u, manifest_software: {name: n, version: 1.0a1}}",
    ] {
        assert_eq!(found(good), [""; 0], "{good}");
    }
    for (bad, why) in [
        ("x", "1: a mapping is needed, here is a string"),
        ("[]", "1: a mapping is needed, here is a list"),
        ("{}", "1: extension_class is missing"),
        ("{extension_uri: null}", "1: extension_class is missing"),
        (
            "{extension_class: []}",
            "1/extension_class: a string is needed, here is a list",
        ),
        (
            "{extension_uri: u, software: {name: n}}",
            "1/software: version is missing",
        ),
        (
            "{extension_class: c, software: {name: asdf, version: 1.0}}",
            "1/software/version: a string is needed, here is a number",
        ),
        (
            "{extension_class: c, software: 1}",
            "1/software: a mapping is needed, here is an integer",
        ),
        (
            "{extension_uri: u, manifest_software: null}",
            "1/manifest_software: a mapping is needed, here is null",
        ),
        (
            "{extension_uri: u, manifest_software: {name: n, version: x}}",
            "1/manifest_software/version: a version by PEP 440, as in '1.2.0', is needed",
        ),
    ] {
        let found = found(bad);
        assert_eq!(found.len(), 1, "{bad}: {found:?}");
        assert!(
            found[0].contains(&format!("history/extensions/{why} (rule core/asdf-1.1.0)")),
            "{found:?}"
        );
    }
}

/// The schema asks of the first extension, and the rule of a tag of any, what Python needs of each.
#[test]
fn what_two_rules_say_of_an_extension_is_said_once() {
    for tag in ["", "!core/extension_metadata-1.0.0 "] {
        for (item, why) in [
            ("{}", "0: extension_class is missing"),
            (
                "{extension_class: []}",
                "0/extension_class: a string is needed, here is a list",
            ),
        ] {
            let found = faults(&format!("history: {{extensions: [{tag}{item}]}}"));
            assert_eq!(found.len(), 1, "{tag}{item}: {found:?}");
            assert!(found[0].contains(why), "{found:?}");
        }
    }
}

#[test]
fn merged_keys_count_after_own_ones() {
    let base = "base: &b {name: n, version: 3}\n";
    let own = faults(&format!(
        "{base}a: !core/software-1.0.0 {{<<: *b, version: '3'}}"
    ));
    assert_eq!(own, [""; 0]);
    let merged = faults(&format!("{base}a: !core/software-1.0.0 {{<<: *b}}"));
    assert_eq!(merged.len(), 1, "{merged:?}");
}

#[test]
fn aliases_of_aliases_cost_no_more_than_their_text() {
    let mut body = "l0: &l0 [x]\n".to_owned();
    for i in 1..20 {
        let j = i - 1;
        writeln!(body, "l{i}: &l{i} [*l{j}, *l{j}]").unwrap();
    }
    body += "a: !core/ndarray-1.0.0 {data: *l19}\nb: !time/time-1.4.0 {value: *l19}\n";
    let found = faults(&body);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a time is needed"), "{found:?}");
}

#[test]
fn many_ways_to_a_large_mapping_cost_no_more_than_their_text() {
    // Without a limit each of these makes 3,000 searches among 3,000 keys.
    let count = 3_000;
    let keys: Vec<String> = (0..count).map(|i| format!("k{i}: 1, ")).collect();
    let keys = keys.concat();
    let head = "%TAG ! tag:stsci.edu:asdf/\n---\n";
    let check =
        |body: String| check(&Tree::parse(format!("{head}big: &b {{{keys}}}\n{body}\n")).unwrap());
    let aliases = check(format!(
        "a: !table/table-1.1.0 {{columns: [{}]}}",
        "*b, ".repeat(count)
    ));
    assert!(!aliases.list.is_empty());
    let merges = check(format!(
        "a: [{}]",
        "!time/time-1.0.0 {<<: *b}, ".repeat(count)
    ));
    assert!(merges.cut);
}

#[test]
fn deep_masks_are_no_deep_recursion() {
    let depth = 100;
    let body = format!(
        "a: {}[1]{}",
        "!core/ndarray-1.0.0 {mask: ".repeat(depth),
        "}".repeat(depth)
    );
    assert_eq!(faults(&body).len(), 0);
}

proptest! {
    #[test]
    fn no_tree_makes_it_fail(text in "([!*&][ab] |core/|!core/ndarray-1.1.0 |!fits/fits-1.0.0 |data|shape|header|[a:\\[\\]{},\n -]){0,30}") {
        let text = format!("%TAG ! tag:stsci.edu:asdf/\n--- {text}");
        if let Ok(tree) = Tree::parse(text) {
            prop_assert!(check(&tree).list.len() <= tree.len() * 40);
        }
    }
}

/// The numbers of an inline array are passed over, and counted.
#[test]
fn a_fault_among_the_numbers_of_an_inline_array_is_told_by_its_index() {
    let found = faults("a: !core/ndarray-1.0.0 [1, 2.5, [null, yes, {x: 1}, 3], x]");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(": a/2/2: a number, string,"), "{found:?}");
}

/// What the walk has passed is forgotten in a tree without aliases.
#[test]
fn faults_among_many_collections_are_told_once_each() {
    let (good, bad) = ("{name: a, version: '1'}", "{}");
    let software = |value| format!("- !core/software-1.0.0 {value}\n");
    let list = [software(bad), software(good).repeat(MANY), software(bad)].concat();
    for aliases in ["", "a: &a 1\nb: *a\n"] {
        assert_eq!(
            faults(&format!("{aliases}l:\n{list}")).len(),
            4,
            "{aliases}"
        );
    }
}
