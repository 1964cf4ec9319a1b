//! `--compact`: what no array uses is left out, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::{Outcome, asdf_mount, assert_refused};
use crate::sample::{Block, Sample, array, noise};

fn compact(out: &Path, file: &Path) -> Outcome {
    asdf_mount(["--compact".as_ref(), out.as_os_str(), file.as_os_str()])
}

/// A folder, a file in it and the name of another.
fn written(sample: &Sample) -> (TempDir, PathBuf, PathBuf) {
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let out = dir.path().join("out.asdf");
    (dir, file, out)
}

fn says(options: &[&str], file: &Path) -> String {
    let words = options.iter().map(AsRef::as_ref);
    let said = asdf_mount(words.chain([file.as_os_str()]));
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.stdout);
    said.stdout
}

const UNUSED: &str = "unused, no array names";

#[test]
fn a_file_is_written_without_the_blocks_that_no_array_uses() {
    let body = |a: i64, b: i64, c: i64| {
        let [a, b, c] = [("a", a, 90), ("b", b, 500), ("c", c, 40)]
            .map(|(name, n, len)| array(name, n, "uint8", &format!("[{len}]")));
        format!(
            "# mine\n{a}n:   5 # not a block\n{b}again:\n- &x {}- *x\n{c}",
            &array("", 2, "uint8", "[7]")[2..]
        )
    };
    let zlib = Block::zlib(&[7; 500]);
    let sample = Sample::new(&body(1, 2, -1))
        .padding(&[0; 5000])
        .block(Block::raw(&noise(3000)))
        .block(Block::raw(&noise(90)).allocated(4000))
        .block(zlib)
        .block(Block::raw(&noise(60)))
        .block(Block::raw(&noise(40)));
    let (_dir, file, out) = written(&sample);
    let checked = says(&["--check"], &file);
    assert!(
        checked.contains(
            "sample.asdf: ok: 5 blocks, 4 arrays; blocks 0, 3: unused, no array names them"
        ),
        "{checked}"
    );
    let said = compact(&out, &file);
    assert_eq!((said.code, &*said.stderr, &*said.stdout), (0, "", ""));
    // `again` has the number of `b`
    let text = String::from_utf8(sample.tree().to_vec()).unwrap();
    let text = text
        .replace("source: 1", "source: 0")
        .replace("source: 2", "source: 1");
    let found = fs::read(&out).unwrap();
    assert!(
        found.starts_with(text.as_bytes()),
        "{}",
        String::from_utf8_lossy(&found)
    );
    for name in ["a", "b", "c"] {
        let list = |file| says(&["--list", "--stats"], file);
        let line = |text: String| {
            let mut lines = text.lines().map(str::to_owned);
            lines
                .find(|line| line.contains(&format!("arrays/{name}.bin")))
                .unwrap()
        };
        assert_eq!(line(list(&out)), line(list(&file)));
    }
    let checked = says(&["--check"], &out);
    assert!(
        checked.contains("ok: 3 blocks, 4 arrays") && !checked.contains(UNUSED),
        "{checked}"
    );
    assert!(
        found.windows(4).any(|part| part == b"zlib"),
        "it is compressed as it was"
    );
    assert!(found.len() < 9000, "{} bytes", found.len());
    assert_refused(
        &compact(&out, &file),
        1,
        "it is there already, and nothing is replaced",
    );
}

#[test]
fn a_streamed_block_stays_the_last_and_numbers_from_the_end_are_kept() {
    let body = |n: i64| array("a", n, "uint8", "['*']") + &array("b", -2, "uint8", "[90]");
    for last in [3, -1] {
        let sample = Sample::new(&body(last))
            .block(Block::raw(&noise(300)))
            .block(Block::raw(&noise(200)))
            .block(Block::raw(&noise(90)))
            .block(Block::streamed(&noise(50)));
        let (_dir, file, out) = written(&sample);
        assert_eq!(compact(&out, &file).code, 0);
        let text = String::from_utf8(sample.tree().to_vec()).unwrap();
        let found = fs::read(&out).unwrap();
        let want = text.replace("source: 3", "source: 1");
        assert!(
            found.starts_with(want.as_bytes()),
            "{}",
            String::from_utf8_lossy(&found)
        );
        assert!(found.ends_with(&noise(50)));
        assert!((found.len() as u64) < fs::metadata(&file).unwrap().len() - 300);
        assert!(says(&["--check"], &out).contains("2 blocks, 2 arrays"));
    }
}

#[test]
fn what_may_name_a_block_otherwise_is_refused() {
    let used = array("a", 1, "uint8", "[90]");
    let rest = "the number of a block, under a tag that is not known";
    for (body, why) in [
        (
            format!("{used}z: !<asdf://example.org/zarr-1.0.0> {{chunk_block_map: 0}}\n"),
            rest,
        ),
        (
            format!("{used}z: {{source: 0, datatype: uint8, shape: [90]}}\n"),
            rest,
        ),
        (
            format!("{used}z: !core/ndarray-1.0.0 {{source: 0}}\n"),
            "shape",
        ),
        (
            format!(
                "{used}? [!core/ndarray-1.0.0 {{source: 0, datatype: uint8, byteorder: big, shape: [1]}}]\n: 1\n"
            ),
            "not known which blocks some of its arrays use",
        ),
        ("z: 1\n".to_owned(), "no array uses any of its blocks"),
    ] {
        let sample = Sample::new(&body)
            .block(Block::raw(&noise(90)))
            .block(Block::raw(&noise(90)));
        let (_dir, file, out) = written(&sample);
        let said = compact(&out, &file);
        assert!(
            said.code != 0 && said.stderr.contains(why),
            "{body}: {said:?}"
        );
        assert!(!out.exists());
    }
    // where no block goes, no number changes
    let body = format!(
        "{}{used}z: !<asdf://example.org/zarr-1.0.0> {{chunk_block_map: 0}}\n",
        array("b", 0, "uint8", "[9]")
    );
    let sample = Sample::new(&body)
        .block(Block::raw(&noise(90)).allocated(900))
        .block(Block::raw(&noise(90)));
    let (_dir, file, out) = written(&sample);
    assert_eq!(compact(&out, &file).code, 0);
    assert!(fs::metadata(&out).unwrap().len() > 0);
}

/// It said that the line was to be put back, in a file that never had another.
#[test]
fn a_newer_standard_is_no_reason_to_change_its_line() {
    let body = "a: !core/ndarray-1.2.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n\
        big: !core/integer-1.2.0 {sign: +, string: '5', words: !core/ndarray-1.2.0 {source: 1, datatype: uint32, byteorder: little, shape: [1]}}\n";
    let sample = Sample::new(body)
        .block(Block::raw(b"abc"))
        .block(Block::raw(&[5, 0, 0, 0]));
    let text = String::from_utf8(sample.bytes()[..sample.tree().len()].to_vec()).unwrap();
    let newer = text.replace("#ASDF_STANDARD 1.5.0", "#ASDF_STANDARD 1.7.0");
    assert_ne!(newer, text);
    let sample = Sample::of_text(newer.as_bytes())
        .block(Block::raw(b"abc"))
        .block(Block::raw(&[5, 0, 0, 0]));
    let (_dir, file, _) = written(&sample);
    let said = asdf_mount(["--check".as_ref(), file.as_os_str()]);
    let want = "version 1.7.0 of the ASDF Standard is newer than 1.6.0; read as 1.6.0";
    assert_eq!(said.stdout.lines().count(), 1, "{}", said.stdout);
    assert!(
        said.stdout.contains(want) && !said.stdout.contains("put back"),
        "{}",
        said.stdout
    );
}

/// The new file named files that are not beside it, and nothing said so.
#[test]
fn names_that_lead_nowhere_from_the_new_file_are_told() {
    let body = array("a", 0, "uint8", "[3]")
        + "b: !core/ndarray-1.0.0 {source: b.asdf, datatype: uint8, byteorder: big, shape: [3]}\nc: {$ref: 'c.asdf#/x'}\nno: {$ref: 'none.asdf#/x'}\n";
    let sample = Sample::new(&body).block(Block::raw(b"abc"));
    let (dir, file, _) = written(&sample);
    let other = Sample::new("").block(Block::raw(b"def")).bytes();
    for name in ["b.asdf", "c.asdf"] {
        fs::write(dir.path().join(name), &other).unwrap();
    }
    fs::create_dir(dir.path().join("new")).unwrap();
    for (action, all) in [("--compact", &["b", "c"][..]), ("--implode", &["c"])] {
        let name = format!("{}.asdf", &action[2..]);
        for (out, told) in [
            (dir.path().join(&name), &[][..]),
            (dir.path().join("new").join(&name), all),
        ] {
            let said = asdf_mount([action.as_ref(), out.as_os_str(), file.as_os_str()]);
            let line = |name: &&str| {
                format!(
                    "asdf-mount: {}: it names {name}.asdf, which is in the directory of {}: copy that, too\n",
                    out.display(),
                    file.canonicalize().unwrap().display()
                )
            };
            let want: String = told.iter().map(line).collect();
            assert_eq!((said.code, said.stderr), (0, want));
        }
    }
    let out = Path::new("-");
    assert_refused(&compact(out, &file), 2, "not written to standard output");
    assert!(!out.exists());
}
