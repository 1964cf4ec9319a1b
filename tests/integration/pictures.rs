//! Pictures: what `-o previews` shows, and `--preview` and `--page` write.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine};
use tempfile::TempDir;

use crate::common::{Mount, Outcome, PROGRAM, asdf_mount, assert_refused, can_mount, run};
use crate::cookbook::{has, shell};
use crate::sample::{Block, Sample, array, flux, noise, ramp};

/// Bytes of a block that is read where it should not be.
const LEN: usize = 20_000_000;

/// Width and height of a PNG file.
fn sides(png: &[u8]) -> (u32, u32) {
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (side(16), side(20))
}

#[test]
fn pictures_have_the_size_that_was_listed() {
    if !can_mount() {
        return;
    }
    let body = array("image", 0, "float32", "[2000, 2500]") + &array("line", 0, "int16", "[40]");
    let sample = Sample::new(&body).block(Block::lz4(&ramp(LEN)));
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &["-r", "-o", "previews=300"]);
    assert_eq!(mount.names("previews"), ["image.png", "line.png"]);
    for (name, want) in [("image", (286, 167 + 28)), ("line", (300, 150 + 28))] {
        let name = format!("previews/{name}.png");
        let listed = mount.path(&name).metadata().unwrap().len();
        let png = mount.read(&name).unwrap();
        assert_eq!((png.len() as u64, sides(&png)), (listed, want), "{name}");
    }
    let out = dir.path().join("out.png");
    let arguments = ["--preview".as_ref(), out.as_os_str(), "--size=300".as_ref()];
    let named = arguments
        .into_iter()
        .chain([file.as_os_str(), "image".as_ref()]);
    assert_eq!(asdf_mount(named).code, 0);
    let (written, shown) = (
        fs::read(&out).unwrap(),
        mount.read("previews/image.png").unwrap(),
    );
    assert_eq!(sides(&written), sides(&shown));
    assert!(written.len() < shown.len(), "no room is filled");
}

#[test]
fn a_preview_replaces_nothing_but_pictures() {
    let dir = TempDir::new().unwrap();
    let nested = format!("q: {{{}}}\n", array("value", 0, "float32", "[4, 6]").trim());
    let file = Sample::new(&(array("x", 0, "float32", "[4, 6]") + &nested))
        .block(Block::raw(&flux()))
        .write(dir.path());
    let before = fs::read(&file).unwrap();
    let preview = |out: &Path, path: &str| {
        let arguments = ["--preview".as_ref(), out.as_os_str(), file.as_os_str()];
        asdf_mount(arguments.into_iter().chain([path.as_ref()]))
    };
    assert_refused(&preview(&file, "x"), 2, "exists and is not a PNG");
    assert!(fs::read(&file).unwrap() == before);
    let nowhere = dir.path().join("none");
    let why = format!("no such directory; mkdir -p {} makes it", nowhere.display());
    assert_refused(&preview(&nowhere.join("x.png"), "x"), 1, &why);
    let out = dir.path().join("x.png");
    assert_refused(&preview(&out, "y"), 1, "no array at y; --list");
    assert_refused(
        &preview(&out, "q"),
        1,
        "no array at q; did you mean q/value?",
    );
    for _ in 0..2 {
        assert_eq!(preview(&out, "x").code, 0);
    }
    assert_eq!(sides(&fs::read(&out).unwrap()), (578, 354));
}

/// Reading what was there waited for the end of the pipe, which the program itself held open.
#[test]
fn a_preview_goes_to_standard_output() {
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&array("x", 0, "float32", "[4, 6]"))
        .block(Block::raw(&flux()))
        .write(dir.path());
    let script = "\"$1\" --preview \"$3\" \"$2\" | cat > \"$4\"";
    for (n, out) in ["-", "/dev/stdout"].into_iter().enumerate() {
        let to = dir.path().join(n.to_string());
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", PROGRAM]).arg(&file);
        let said = run(command.arg(out).arg(&to).current_dir(dir.path()));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        assert_eq!(sides(&fs::read(&to).unwrap()), (578, 354), "{out}");
    }
    assert!(!dir.path().join("-").exists());
}

/// Half a picture was left where the disk was full.
#[test]
fn a_preview_that_cannot_be_written_whole_is_not_left_behind() {
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&array("x", 0, "float32", "[4, 6]"))
        .block(Block::raw(&flux()))
        .write(dir.path());
    let out = dir.path().join("x.png");
    let script = "ulimit -f 1; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", PROGRAM, "--preview"]);
    let said = run(command.args([&out, &file]));
    assert_refused(&said, 1, "x.png: File too large");
    assert!(!out.exists());
}

/// The status was that of a file in another format, or of another version of it.
#[test]
fn a_preview_that_cannot_be_made_says_of_what_and_why() {
    let dir = TempDir::new().unwrap();
    let tree = [
        array("cube", 0, "uint8", "[20, 30]"),
        array("words", 1, "[ascii, 2]", "[2]"),
        array("one", 1, "int32", "[]"),
        array("none", 1, "int32", "[0]"),
    ];
    let noise = noise(600);
    let mut broken = Block::zlib(&noise).stored().to_vec();
    broken[40..60].fill(0xff);
    let file = Sample::new(&tree.concat())
        .block(Block::coded(*b"zlib", broken, noise.len()))
        .block(Block::raw(b"abcd"))
        .write(dir.path());
    let out = dir.path().join("x.png");
    for (path, status, words) in [
        ("cube", 23, "sample.asdf: block 0: "),
        ("words", 1, "array words: pictures are of numbers"),
        ("one", 1, "array one: a single number has no picture"),
        (
            "none",
            1,
            "array none: an array without elements has no picture",
        ),
    ] {
        let arguments = ["--preview".as_ref(), out.as_os_str(), file.as_os_str()];
        let said = asdf_mount(arguments.into_iter().chain([path.as_ref()]));
        assert_refused(&said, status, words);
        let of_array = said.stderr.ends_with(" (array cube)\n");
        assert_eq!(of_array, path == "cube", "{}", said.stderr);
    }
}

/// The 512 MiB of the array are a hole in the file.
#[test]
fn the_picture_of_a_large_array_takes_little_memory() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("x", 0, "float64", "[8192, 8192]"));
    let file = sample.block(Block::streamed(b"")).write(dir.path());
    let file_len = file.metadata().unwrap().len();
    let grown = File::options().write(true).open(&file).unwrap();
    grown.set_len(file_len + (512 << 20)).unwrap();
    let mount = Mount::new(&file, &["-r", "-o", "previews"]);
    let before = mount.peak();
    let png = mount.read("previews/x.png").unwrap();
    assert_eq!(sides(&png), (1164, 1024 + 46));
    let grown = mount.peak() - before;
    assert!(grown < 60 << 10, "{grown} KiB");
}

/// Writes a picture of an array, or of all.
fn preview(out: &Path, file: &Path, path: Option<&str>) -> Outcome {
    let arguments = ["--preview".as_ref(), out.as_os_str(), file.as_os_str()];
    asdf_mount(arguments.into_iter().chain(path.map(AsRef::as_ref)))
}

#[test]
fn each_plane_has_a_picture() {
    if !can_mount() {
        return;
    }
    let body = array("cube", 0, "uint8", "[3, 20, 30]")
        + &array("deep", 0, "uint8", "[2, 2, 10, 30]")
        + &array("flat", 0, "uint8", "[20, 30]");
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&body)
        .block(Block::raw(&noise(1800)))
        .write(dir.path());
    let mount = Mount::new(&file, &["-r", "-o", "previews=200"]);
    let all = ["cube", "cube.png", "deep", "deep.png", "flat.png"];
    assert_eq!(mount.names("previews"), all);
    assert_eq!(mount.names("previews/cube"), ["0.png", "1.png", "2.png"]);
    assert_eq!(mount.names("previews/deep"), ["0", "1"]);
    assert_eq!(mount.names("previews/deep/1"), ["0.png", "1.png"]);
    let first = mount.read("previews/cube/0.png").unwrap();
    assert!(first == mount.read("previews/cube.png").unwrap());
    let last = mount.read("previews/cube/2.png").unwrap();
    assert!(last != first && last.len() == first.len());
    let listed = mount.path("previews/cube/2.png").metadata().unwrap();
    assert_eq!(listed.len(), last.len() as u64);
    for missing in ["3.png", "02.png", "0", "-1.png", "0.bin"] {
        assert!(
            !mount.path("previews/cube").join(missing).exists(),
            "{missing}"
        );
    }
    // `find` takes a link count of 2 to say that there are no directories inside
    for directory in ["previews", "previews/deep", "previews/deep/1"] {
        let links = mount.path(directory).metadata().unwrap().nlink();
        assert_eq!(links, 1, "{directory}");
    }
    let found = run(Command::new("find")
        .arg(mount.path("previews"))
        .args(["-name", "*.png"]));
    assert_eq!(found.stdout.lines().count(), 3 + 3 + 4, "{found:?}");
    let out = dir.path().join("x.png");
    for path in [
        "cube/2",
        "arrays/cube/2.bin",
        "previews/cube/2.png",
        "deep/1/0",
    ] {
        assert_eq!(preview(&out, &file, Some(path)).code, 0, "{path}");
    }
    for path in ["arrays/cube.npy", "arrays/flat.bin", "flat", "cube/1/"] {
        assert_eq!(preview(&out, &file, Some(path)).code, 0, "{path}");
    }
    let said = preview(&out, &file, Some("cube/3"));
    assert_refused(&said, 1, "array cube: its planes are 0 to 2");
    assert_refused(
        &preview(&out, &file, Some("cube/x")),
        1,
        "no array at cube/x",
    );
}

#[test]
fn without_a_path_there_is_a_sheet() {
    let dir = TempDir::new().unwrap();
    let body = array("a", 0, "uint8", "[40, 50]") + &array("b", 0, "uint16", "[20, 50]");
    let sample = Sample::new(&body).block(Block::raw(&noise(2000)));
    let file = sample.write(dir.path());
    let out = dir.path().join("x.png");
    assert_eq!(preview(&out, &file, None).code, 0);
    let (width, height) = sides(&fs::read(&out).unwrap());
    assert!(
        width == 1536 && (300..768).contains(&height),
        "{width}x{height}"
    );
    // a thumbnail is of the array that stands for the file
    let small = ["--preview".as_ref(), out.as_os_str(), "--size=128".as_ref()];
    let said = asdf_mount(small.into_iter().chain([file.as_os_str()]));
    assert_eq!((said.code, sides(&fs::read(&out).unwrap()).0), (0, 128));
    // of a directory, each file; what can't be read is told
    fs::copy(&file, dir.path().join("second.asdf")).unwrap();
    fs::write(dir.path().join("third.asdf"), "no such file").unwrap();
    let said = preview(&out, dir.path(), None);
    assert_refused(&said, 20, "third.asdf: ");
    let (width, height) = sides(&fs::read(&out).unwrap());
    assert!(
        width == 1536 && (300..768).contains(&height),
        "{width}x{height}"
    );
    let empty = TempDir::new().unwrap();
    assert_refused(&preview(&out, empty.path(), None), 11, "no file below it");
}

/// One damaged array denied the pictures of all others.
#[test]
fn a_sheet_has_what_can_be_read() {
    let noise = noise(2000);
    let mut broken = Block::zlib(&noise).stored().to_vec();
    broken[40..60].fill(0xff);
    let body = array("bad", 1, "uint8", "[40, 50]") + &array("good", 0, "uint8", "[40, 50]");
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&body)
        .block(Block::raw(&noise))
        .block(Block::coded(*b"zlib", broken, noise.len()))
        .write(dir.path());
    let out = dir.path().join("x.png");
    let said = preview(&out, &file, None);
    assert_eq!(said.code, 23, "{said:?}");
    assert!(said.stderr.contains("sample.asdf: block 1: "), "{said:?}");
    assert!(said.stderr.ends_with(" (array bad)\n"), "{said:?}");
    assert_eq!(sides(&fs::read(&out).unwrap()).0, 1536);
}

#[test]
fn no_picture_goes_to_a_terminal() {
    if !has("a picture for a terminal", ["script"].into_iter()) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&array("x", 0, "float32", "[4, 6]"))
        .block(Block::raw(&flux()))
        .write(dir.path());
    let script = format!(
        "script --quiet --return --command '{PROGRAM} --preview - {}' /dev/null",
        file.display()
    );
    let said = run(shell(&script).current_dir(dir.path()));
    assert_eq!(said.code, 2, "{said:?}");
    assert!(
        said.stdout.contains("is a terminal; name a file"),
        "{said:?}"
    );
}

/// It took longer than anybody waits.
#[test]
fn an_endless_array_has_a_picture() {
    let dir = TempDir::new().unwrap();
    let endless = "source: 0, datatype: float64, byteorder: little, strides: [0, 0], shape: [100000, 1000000]";
    let body = format!("x: !core/ndarray-1.0.0 {{{endless}}}\n");
    let file = Sample::new(&body)
        .block(Block::raw(&flux()))
        .write(dir.path());
    let out = dir.path().join("x.png");
    assert_eq!(preview(&out, &file, Some("x")).code, 0);
    assert_eq!(sides(&fs::read(&out).unwrap()).0, 1164);
}

/// A file with what a page must not take for its own.
fn hostile(dir: &Path) -> PathBuf {
    let body = array("\"<script>alert(1)</script>'\"", 0, "float32", "[30, 40]")
        + "title: '<img src=x onerror=alert(2)> & \"more\"'\n"
        + "meta: {telescope: ROMAN, nested: {filter: F158, list: [1, 2, 3]}}\n"
        + "again: &again {one: 1}\nalias: *again\n";
    let values: Vec<u8> = (0..1200_u16)
        .flat_map(|n| f32::from(n).to_le_bytes())
        .collect();
    Sample::new(&body).block(Block::raw(&values)).write(dir)
}

fn page(dir: &Path, of: &Path) -> (Outcome, PathBuf) {
    let out = dir.join("page.html");
    let said = asdf_mount(["--page".as_ref(), out.as_os_str(), of.as_os_str()]);
    (said, out)
}

#[test]
fn a_page_is_one_file_in_which_nothing_of_the_file_is_markup() {
    let dir = TempDir::new().unwrap();
    let file = hostile(dir.path());
    let (said, out) = page(dir.path(), &file);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let text = fs::read_to_string(&out).unwrap();
    assert_eq!(text.matches("<script").count(), 1, "only its own");
    assert_eq!(text.matches("<img").count(), 1, "only the picture");
    for part in [
        "&lt;img src=x onerror=alert(2)&gt; &amp; &quot;more&quot;",
        "data:image/png;base64,",
        "default-src 'none'",
        "<dd>float32",
        "<dd>[30, 40]",
        "<dd>0.0 .. 1199.0",
        "<dd>599.5",
        "aria-label=\"histogram from ",
    ] {
        assert!(text.contains(part), "{part}");
    }
    for address in ["http:", "https:", "src=\"//"] {
        assert!(!text.contains(address), "{address}");
    }
    // it is replaced, and nothing else is
    assert_eq!(page(dir.path(), &file).0.code, 0);
    fs::write(&out, "my own").unwrap();
    assert_refused(&page(dir.path(), &file).0, 2, "exists and is not a page");
    fs::remove_file(&out).unwrap();
    fs::write(dir.path().join("broken.asdf"), "no such file").unwrap();
    let (said, out) = page(dir.path(), dir.path());
    assert_refused(&said, 20, "broken.asdf: ");
    let text = fs::read_to_string(&out).unwrap();
    assert_eq!(text.matches("<details class=file").count(), 2);
}

/// The width of each picture of a page.
fn widths(page: &str) -> Vec<u32> {
    let pictures = page.split("base64,").skip(1).map(|rest| {
        let start = BASE64_STANDARD.decode(&rest[..32]).unwrap();
        sides(&start).0
    });
    pictures.collect()
}

/// Of twenty planes none was wider than 200 points, and half a megabyte of three was used.
#[test]
fn pictures_of_a_page_are_large_and_alike() {
    let dir = TempDir::new().unwrap();
    let planes = (0..20).map(|n| array(&format!("p{n}"), 0, "uint16", "[270, 270]"));
    let file = Sample::new(&planes.collect::<String>())
        .block(Block::raw(&noise(270 * 270 * 2)))
        .write(dir.path());
    let (said, out) = page(dir.path(), &file);
    assert_eq!(said.code, 0, "{said:?}");
    let text = fs::read_to_string(out).unwrap();
    let widths = widths(&text);
    assert_eq!(widths.len(), 20);
    assert!(
        widths[0] >= 340 && widths.iter().all(|it| *it == widths[0]),
        "{widths:?}"
    );
    assert!(text.len() < 3_000_000, "{}", text.len());
}

/// Of 1283 arrays with pictures none was on the first screen, and "1000 arrays" were counted.
#[test]
fn a_page_begins_with_pictures() {
    let body = array("words", 0, "[ascii, 4]", "[6]")
        + &array("tiny", 0, "float32", "[2, 3]")
        + &array("image", 1, "uint8", "[20, 50]");
    let small: String = (0..1000)
        .map(|n| array(&format!("w{n}"), 0, "[ascii, 4]", "[6]"))
        .collect();
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&(small + &body))
        .block(Block::raw(&flux()))
        .block(Block::raw(&noise(1000)))
        .write(dir.path());
    let (said, out) = page(dir.path(), &file);
    assert_eq!(said.code, 0, "{said:?}");
    let text = fs::read_to_string(out).unwrap();
    let at = |name: &str| text.find(&format!("<h3>{name}</h3>"));
    assert!(at("image") < at("tiny") && at("tiny") < at("w0"));
    assert!(at("image").is_some() && at("words").is_none());
    assert!(text.contains("data-arrays=1003") && text.contains("href=\"#a1-1002\""));
    assert!(!text.contains("href=\"#a1-1000\""), "it has no card");
}

/// The mean of float32 had seventeen digits, and flags had one.
#[test]
fn a_page_has_the_digits_that_tell_something() {
    let values: Vec<u8> = (1..=7_u8)
        .flat_map(|n| (f32::from(n) / 3.0).to_le_bytes())
        .collect();
    let body = array("x", 0, "float32", "[7]") + &array("dq", 1, "uint8", "[20, 20]");
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&body)
        .block(Block::raw(&values))
        .block(Block::raw(&noise(400)))
        .write(dir.path());
    let text = fs::read_to_string(page(dir.path(), &file).1).unwrap();
    assert!(text.contains("<dt>mean<dd>1.33333333<"), "{text}");
    assert_eq!(text.matches("<dt>mean").count(), 1);
    assert_eq!(text.matches("histogram from").count(), 1, "{text}");
}

/// What a page in a browser is asked to do, and what is found: an object in its title.
const VISIT: &str = r#"
const seen = {};
const shown = (all) => [...document.querySelectorAll(all)].filter((it) => it.checkVisibility()).length;
seen.cards = shown(".card");
seen.image = document.querySelector("img").naturalWidth > 100;
const box = document.getElementById("filter");
const type = (text) => { box.value = text; box.dispatchEvent(new Event("input")); };
document.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }));
seen.focus = document.activeElement === box;
type("f158");
seen.filtered = [shown(".card"), shown(".tree li")];
type("script float32");
seen.found = [shown(".card"), document.getElementById("found").textContent];
box.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
seen.cleared = [box.value, shown(".card")];
document.getElementById("close").click();
seen.folded = shown(".tree li");
document.getElementById("open").click();
seen.unfolded = shown(".tree li");
seen.summary = document.querySelector(".tree summary").tabIndex;
document.title = JSON.stringify(seen);
"#;

/// What a page of several files is asked to do.
const VISIT_MANY: &str = r##"
const shown = (all) => [...document.querySelectorAll(all)].filter((it) => it.checkVisibility()).length;
const seen = {};
const box = document.getElementById("filter");
const type = (text) => { box.value = text; box.dispatchEvent(new Event("input")); };
const state = () => [shown(".file"), shown("h2"), shown(".card"), document.getElementById("found").textContent];
seen.first = state();
type("f158");
seen.filtered = state();
type("4.asdf float32");
seen.named = state();
type("");
seen.cleared = state();
document.getElementById("open").click();
seen.open = shown(".card");
document.getElementById("close").click();
seen.closed = [shown(".file"), shown(".card")];
document.getElementById("open").click();
location.hash = "#a2-0";
const card = document.querySelector("#a2-0").getBoundingClientRect();
seen.below = card.top >= document.querySelector(".bar").getBoundingClientRect().bottom;
document.title = JSON.stringify(seen);
"##;

/// Files that held nothing of what was looked for stayed open, and the one that did stayed folded.
#[test]
fn a_browser_filters_a_page_of_many_files() {
    if !has("a page in a browser", ["chromium"].into_iter()) {
        return;
    }
    let (dir, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for n in 1..=4 {
        let filter = if n == 4 { "F158" } else { "F062" };
        let body = array("x", 0, "float32", "[4, 6]") + &format!("meta: {{filter: {filter}}}\n");
        let file = Sample::new(&body)
            .block(Block::raw(&flux()))
            .write(dir.path());
        fs::rename(file, files.path().join(format!("{n}.asdf"))).unwrap();
    }
    let (said, out) = page(dir.path(), files.path());
    assert_eq!(said.code, 0, "{said:?}");
    let title = visited(dir.path(), &out, VISIT_MANY);
    assert_eq!(
        title,
        "{\"first\":[4,6,3,\"4 arrays\"],\"filtered\":[1,1,0,\"0 of 4 arrays, 1 of 4 files\"],\
         \"named\":[1,1,1,\"1 of 4 arrays, 1 of 4 files\"],\"cleared\":[4,6,3,\"4 arrays\"],\
         \"open\":4,\"closed\":[4,0],\"below\":true}"
    );
}

/// What a browser finds in a page.
fn browse(dir: &Path, page: &Path) -> Outcome {
    let mut command = Command::new("timeout");
    command.args([
        "60",
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
    ]);
    command.args([
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        "--dump-dom",
    ]);
    let profile = format!("--user-data-dir={}", dir.join("profile").display());
    let page = format!("file://{}", page.display());
    run(command.args([profile, page]))
}

/// The title of a page that a script has visited, for which its policy is taken away.
fn visited(dir: &Path, page: &Path, script: &str) -> String {
    let script = format!("<script>addEventListener('load', () => {{{script}}})</script></body>");
    let text = fs::read_to_string(page)
        .unwrap()
        .replace("</body>", &script);
    let other = dir.join("visit.html");
    let open = text.replace("http-equiv=Content-Security-Policy", "name=none");
    fs::write(&other, &text).unwrap();
    let closed = browse(dir, &other).stdout;
    assert!(
        !closed.contains("<title>{"),
        "a script that is not its own runs"
    );
    fs::write(&other, open).unwrap();
    let dom = browse(dir, &other).stdout;
    let title = dom.split("<title>").nth(1).unwrap();
    title.split("</title>").next().unwrap().to_owned()
}

#[test]
fn a_browser_filters_and_folds_a_page() {
    if !has("a page in a browser", ["chromium"].into_iter()) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let (said, out) = page(dir.path(), &hostile(dir.path()));
    assert_eq!(said.code, 0, "{said:?}");
    // its own script runs under its own policy: it has counted the arrays
    let dom = browse(dir.path(), &out);
    assert!(dom.stdout.contains(">1 arrays</output>"), "{dom:?}");
    assert!(!dom.stderr.contains("CONSOLE"), "{}", dom.stderr);
    let title = visited(dir.path(), &out, VISIT);
    assert_eq!(
        title,
        "{\"cards\":1,\"image\":true,\"focus\":true,\"filtered\":[0,4],\"found\":[1,\"1 of 1 arrays\"],\"cleared\":[\"\",1],\"folded\":1,\"unfolded\":14,\"summary\":0}"
    );
}
