//! Texts that we can read and other readers can't: told of where they are there already, refused where an edit would add them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Mount, Place, asdf_mount, can_mount};
use crate::corpus::agrees_with_python;
use crate::sample::{Block, Sample, array_with, noise};

const EIO: i32 = 5;

/// Saves a text, and says how that went.
fn save(mount: &Mount, text: &str) -> io::Result<()> {
    let mut file = File::create(mount.path("tree.yaml"))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[track_caller]
fn assert_save_refused(mount: &Mount, text: &str, words: &str) {
    let error = save(mount, text).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EIO), "{words}");
    let status = mount.text("info/status");
    assert!(status.contains(words), "{words}: {status}");
}

/// What to replace by what in a tree, and what is said of it.
const CHANGES: [[&str; 3]; 9] = [
    [
        "...\n",
        "...  \n",
        "line 7, column 4: there are blanks behind the `...` that ends the tree; remove them",
    ],
    [
        "%YAML 1.1\n",
        "",
        "line 3, column 1: there is no %YAML 1.1 line directly behind the # lines; put the line %YAML 1.1 there",
    ],
    [
        "%YAML 1.1\n",
        "\n%YAML 1.1\n",
        "line 3, column 1: the %YAML 1.1 line does not stand directly behind the # lines; put the line %YAML 1.1 there",
    ],
    [
        "STANDARD 1.5.0",
        "STANDARD 2.0.0",
        "line 2, column 16: version 2.0.0 of the ASDF Standard is not known; asdf-mount knows 1.0.0 to 1.6.0",
    ],
    [
        "a: 1",
        "a: 2001-13-45",
        "line 6, column 4: '2001-13-45' is not a valid date or time; correct it, or put it in quotes if it is text",
    ],
    [
        "a: 1",
        "a: 2001-01-01 24:00:00",
        "line 6, column 4: '2001-01-01 24:00:00' is not a valid date or time; correct it",
    ],
    [
        "a: 1",
        "a: 0x_",
        "line 6, column 4: '0x_' is no int; correct it, or put it in quotes if it is text",
    ],
    [
        "a: 1",
        "a: {<<: 3}",
        "line 6, column 9: << merges '3', where a mapping or a list of mappings is needed; name a mapping",
    ],
    [
        "a: 1",
        "a: !!set [a]",
        "line 6, column 4: a sequence with the tag !!set, which is for a mapping; correct it, or its tag",
    ],
];

#[test]
fn an_edit_adds_nothing_that_other_readers_do_not_open() {
    // Each of these was saved, and the file could be opened by this program only.
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new("a: 1\n");
    let mount = Mount::new(&sample.write(dir.path()), &[]);
    let good = mount.text("tree.yaml");
    for [from, to, words] in CHANGES {
        assert_save_refused(&mount, &good.replacen(from, to, 1), words);
    }
    save(&mount, &good.replace("a: 1", "a: '2001-13-45'")).unwrap();
    save(&mount, &good.replace("a: 1", "a: 2001-12-31")).unwrap();
    mount.unmount();
    let mount = Mount::new(&Sample::of_text(b"#ASDF 1.0.0\n").write(dir.path()), &[]);
    let tree = "#ASDF 1.0.0\n--- {a: 1}\n...\n";
    assert_save_refused(&mount, tree, "line 2, column 1: there is no %YAML 1.1 line");
    save(&mount, &tree.replace("---", "%YAML 1.1\n---")).unwrap();
    mount.unmount();

    // but what is there already does not stand in the way of an edit
    for [from, to, words] in CHANGES {
        let text = Sample::new("a: 1\n").tree().to_vec();
        let odd = String::from_utf8(text).unwrap().replacen(from, to, 1);
        let dir = TempDir::new().unwrap();
        let file = Sample::of_text(odd.as_bytes()).write(dir.path());
        let said = asdf_mount([Path::new("--check"), &file]);
        assert_eq!(said.code, 1, "{}", said.stdout);
        let place_and_why = words.split(';').next().unwrap();
        let line = format!("suspicious: tree: {place_and_why}");
        assert!(said.stdout.contains(&line), "{}", said.stdout);
        let mount = Mount::new(&file, &[]);
        save(&mount, &odd.replacen("a: ", "b: 1\na: ", 1)).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("\nb: 1\n"));
    }
}

/// asdf-python reads arrays of 1.5.0 as mappings where the line says 1.6.0, and arrays of 1.6.0 where there is no such line.
#[test]
fn an_edit_of_the_standard_alone_loses_no_array() {
    if !can_mount() {
        return;
    }
    let fields = "source: 0, datatype: uint8, byteorder: big, shape: [4]";
    let sample = Sample::new(&array_with("x", fields)).block(Block::raw(&noise(4)));
    let place = Place::of(&sample);
    let mount = Mount::new(&place.file, &[]);
    let old = mount.text("tree.yaml");
    let new = old.replace("STANDARD 1.5.0", "STANDARD 1.6.0");
    let words = "line 2, column 16: with this version of the standard, Python does not read array x with its tag core/ndarray-1.0.0; \
                 undo the change of the #ASDF_STANDARD line, or change the tags, too";
    assert_save_refused(&mount, &new, words);
    assert_save_refused(
        &mount,
        &old.replace("1.5.0", "1.7.0"),
        "array x with its tag core/ndarray-1.0.0",
    );
    let new = new.replace("ndarray-1.0.0", "ndarray-1.1.0");
    save(&mount, &new).unwrap();
    let without = new.replace("#ASDF_STANDARD 1.6.0\n", "");
    assert_save_refused(&mount, &without, "array x with its tag core/ndarray-1.1.0");
    save(&mount, &new.replace("1.6.0", "1.7.0")).unwrap();
    save(&mount, &old.replace("1.5.0", "1.3.0")).unwrap();
}

/// Python read such an array as a mapping. A save took it, because the line with the version had not changed.
#[test]
fn an_edit_adds_no_array_with_a_tag_that_the_standard_of_the_file_does_not_have() {
    if !can_mount() {
        return;
    }
    let fields = "source: 0, datatype: uint8, byteorder: big, shape: [4]";
    let [old, new] = ["0", "1"].map(|minor| format!("!core/ndarray-1.{minor}.0 {{{fields}}}"));
    let of = |body: &str| Sample::new(body).block(Block::raw(&noise(4)));
    let place = Place::of(&of(&format!("l: [{old}]\n")));
    let mount = Mount::new(&place.file, &[]);
    let text = mount.text("tree.yaml");
    let words = "line 6, column 5: with this version of the standard, Python does not read array l/0 with its tag core/ndarray-1.1.0; \
                 give it the tag !core/ndarray-1.0.0";
    assert_save_refused(
        &mount,
        &text.replace("l: [", &format!("l: [{new}, ")),
        words,
    );
    // tags of no version
    for tag in ["-1.0.1", "-1.2.0", "-9.9.9", ""] {
        let other = old.replace("-1.0.0", tag);
        let words = format!("array l/0 with its tag core/ndarray{tag};");
        assert_save_refused(
            &mount,
            &text.replace("l: [", &format!("l: [{other}, ")),
            &words,
        );
    }
    save(&mount, &text.replace("l: [", &format!("l: [{old}, "))).unwrap();

    // what is there already does not stand in the way of an edit that adds no other one, wherever it moves in its list
    let place = Place::of(&of(&format!("l: [{new}]\n")));
    let mount = Mount::new(&place.file, &[]);
    let text = mount.text("tree.yaml");
    save(&mount, &text.replace("l: [", "l: [1, ")).unwrap();
    save(&mount, &text.replace("l: [", &format!("l: [{old}, "))).unwrap();
    let two = text.replace("l: [", &format!("l: [{new}, "));
    assert_save_refused(&mount, &two, "array l/0 with its tag core/ndarray-1.1.0");
    save(&mount, &text).unwrap();
    mount.unmount();
    let strict = Mount::new(&place.file, &["-o", "validate=strict"]);
    let moved = text.replace("l: [", "l: [1, ");
    assert_save_refused(&strict, &moved, "array l/1 with its tag core/ndarray-1.1.0");
}

#[test]
fn yaml_that_python_does_not_open_is_told_of_and_no_other() {
    agrees_with_python("yaml_oracle.py", 700);
}

#[test]
fn an_edit_names_no_file_that_is_not_there() {
    if !can_mount() {
        return;
    }
    let far = |name: &str, source: &str, len: usize| {
        let fields = format!("source: '{source}', datatype: uint8, byteorder: big, shape: [{len}]");
        array_with(name, &fields)
    };
    let place = Place::of(&Sample::new(&far("old", "gone.asdf", 4)));
    let other = Sample::new("a: 1\n").block(Block::raw(&noise(8)));
    fs::write(place.file.with_file_name("x.asdf"), other.bytes()).unwrap();
    let mount = Mount::new(&place.file, &[]);
    let text = mount.text("tree.yaml");
    let with = |line: String| text.replace("...\n", &line) + "...\n";

    let missing = with(far("new", "nowhere.asdf", 4));
    let why = "line 7, column 6: array new: external source nowhere.asdf: there is no such file; put the file there first";
    assert_save_refused(&mount, &missing, why);
    assert_save_refused(
        &mount,
        &with(far("new", "x.asdf", 9)),
        "array new: x.asdf: ",
    );
    save(&mount, &with(far("new", "x.asdf", 8))).unwrap();
    assert_eq!(mount.read("arrays/new.bin").unwrap(), noise(8));
    save(&mount, &with(far("moved", "gone.asdf", 4))).unwrap();
    mount.unmount();

    let mount = Mount::new(&place.file, &["-o", "validate=off"]);
    save(&mount, &missing).unwrap();
}

#[test]
fn what_is_compacted_has_the_arrays_that_python_reads_of_the_file() {
    agrees_with_python("compact_oracle.py", 50);
}
