//! The shape of `src/`, as the documentation of the crate has it: the staircase of modules, one place for each crate, short files and functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// A module may use what stands to its right, and itself.
const STAIRCASE: [&str; 12] = [
    "main",
    "cli",
    "fuse",
    "collection",
    "vfs",
    "view",
    "save",
    "asdf",
    "remote",
    "codec",
    "source",
    "error",
];

/// Each crate, by the name that code calls it, and the files that may use it; a folder stands for all files in it.
const CRATES: &[(&str, &[&str])] = &[
    ("ab_glyph", &["view/picture/canvas.rs"]),
    (
        "base64",
        &[
            "asdf/decl/chunked.rs",
            "view/page.rs",
            "view/zarr.rs",
            "view/zarr/",
        ],
    ),
    ("bzip2", &["codec/bzp2.rs"]),
    ("chrono", &["remote/checked.rs", "remote/identity.rs"]),
    ("clap", &["cli.rs", "cli/completions.rs"]),
    ("colorous", &["view/picture/"]),
    // png stands on it; this chooses what it stands on
    ("flate2", &[]),
    ("fuser", &["fuse.rs", "fuse/"]),
    ("glob", &["collection/contents.rs"]),
    ("humantime", &["cli/log.rs", "cli/options.rs"]),
    (
        "libc",
        &["cli/", "fuse.rs", "save/store.rs", "source/file.rs"],
    ),
    ("libyaml_rs", &["asdf/yaml.rs"]),
    ("libz_rs_sys", &["codec/inflate.rs"]),
    ("log", &[""]),
    (
        "lru",
        &["asdf/buffers.rs", "codec/cache.rs", "remote/kept.rs"],
    ),
    ("lz4_flex", &["codec/lz4.rs", "codec/lz4/", "codec/lz4f.rs"]),
    ("lzma_rust2", &["codec/xz.rs"]),
    ("md5", &["asdf/checksum.rs"]),
    ("memmap2", &["source/file.rs"]),
    // closing a descriptor by its number, without unsafe code
    ("nix", &["cli/inherited.rs"]),
    ("object_store", &["remote/"]),
    (
        "plotters",
        &["view/picture/canvas.rs", "view/picture/line.rs"],
    ),
    ("png", &["view/picture/canvas.rs"]),
    ("reqwest", &["remote/"]),
    // system calls, by the modules that talk to the system
    (
        "rustix",
        &[
            "asdf/external.rs",
            // the clock of a thread
            "asdf/yaml.rs",
            "cli/",
            "collection.rs",
            "collection/",
            "fuse.rs",
            "fuse/",
            "remote/",
            "save.rs",
            "save/",
            "source/beneath.rs",
            "source/file.rs",
            "source/filesystem.rs",
            "source/scratch.rs",
            "vfs.rs",
            "vfs/",
        ],
    ),
    (
        "rustls",
        &["remote.rs", "remote/client.rs", "remote/failure.rs"],
    ),
    (
        "serde",
        &["view/json.rs", "cli.rs", "cli/check.rs", "cli/report/"],
    ),
    (
        "serde_json",
        &["view/json.rs", "view/zarr.rs", "view/zarr/", "cli.rs"],
    ),
    (
        "sha2",
        &["remote/disk.rs", "save/digest.rs", "view/page.rs"],
    ),
    (
        "signal_hook",
        &[
            "cli/daemon.rs",
            "cli/edit/asked.rs",
            "cli/interrupt.rs",
            "cli/limits.rs",
        ],
    ),
    ("strsim", &["cli/options/table.rs"]),
    ("tempfile", &["source/scratch.rs"]),
    ("thiserror", &["error.rs", "remote/", "vfs/error.rs"]),
    ("tokio", &["remote.rs", "remote/"]),
    ("twox_hash", &["codec/lz4f/"]),
    ("zlib_rs", &["codec/deflate.rs"]),
    ("zstd_safe", &["codec/zstd/native.rs"]),
];

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

/// One file of `src/`: its path below it, and its lines without comments.
struct Code {
    path: String,
    lines: Vec<String>,
    /// Whether only tests use it.
    tests_only: bool,
}

/// Each line behind a `#[cfg(test)]`, with the number of lines above the two.
fn after_cfg_test(lines: &[String]) -> impl Iterator<Item = (usize, &String)> {
    let pairs = lines.iter().zip(&lines[1..]).enumerate();
    let pairs = pairs.filter(|(_, (line, _))| *line == "#[cfg(test)]");
    pairs.map(|(number, (_, next))| (number, next))
}

impl Code {
    /// The module of the staircase that the file belongs to.
    fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// The lines above the unit tests; none of a file that only tests use.
    fn without_tests(&self) -> &[String] {
        let tests = after_cfg_test(&self.lines).find(|(_, line)| line.starts_with("mod tests"));
        let end = match tests {
            _ if self.tests_only => 0,
            Some((number, _)) => number,
            None => self.lines.len(),
        };
        &self.lines[..end]
    }

    /// The modules in files of their own that only tests use, by their path without the extension.
    fn test_modules(&self) -> impl Iterator<Item = String> {
        let folder = match self.path.strip_suffix(".rs").unwrap() {
            "lib" => String::new(),
            path => format!("{path}/"),
        };
        after_cfg_test(&self.lines).filter_map(move |(_, line)| {
            let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
            Some(format!("{folder}{name}"))
        })
    }

    fn may_use(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            self.path == *place
                || place.is_empty()
                || (place.ends_with('/') && self.path.starts_with(place))
        })
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Everything in `src/`.
fn sources() -> Vec<Code> {
    let src = root().join("src");
    let mut folders = vec![src.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Code {
                    path: path
                        .strip_prefix(&src)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                    lines: text.lines().map(without_comment).collect(),
                    tests_only: false,
                });
            }
        }
    }
    assert!(found.len() > 5, "src/ was not found");
    let tests: Vec<String> = found.iter().flat_map(Code::test_modules).collect();
    for code in &mut found {
        code.tests_only = tests.iter().any(|module| {
            let rest = code.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
    }
    found
}

/// The line up to its comment; a `//` within a string ends it too, which costs nothing here.
fn without_comment(line: &str) -> String {
    line.split("//").next().unwrap().to_owned()
}

/// What follows each `name::` in the line that is not itself the tail of a path or a longer name.
fn paths_from<'a>(line: &'a str, name: &str) -> Vec<&'a str> {
    let wanted = format!("{name}::");
    line.match_indices(&wanted)
        .filter(|(at, _)| {
            let before = &line[..*at];
            let within = |c: char| c.is_alphanumeric() || c == '_' || c == '>' || c == '$';
            // `::name` is from the root
            let root = before.strip_suffix("::").filter(|b| !b.ends_with(within));
            !root
                .unwrap_or(before)
                .ends_with(|c: char| within(c) || c == ':')
        })
        .map(|(at, _)| &line[at + wanted.len()..])
        .collect()
}

/// Whether the line uses a crate: by a path from it, or by bringing its name in, also under another.
fn uses_crate(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let brought = ["use ", "extern crate "]
        .iter()
        .find_map(|start| line.strip_prefix(start));
    let mut brought = brought.into_iter().flat_map(first_names);
    !paths_from(line, name).is_empty() || brought.any(|brought| brought == name)
}

#[test]
fn a_crate_is_seen_under_another_name_too() {
    for line in [
        "use a_b;",
        "use a_b as z;",
        "    use a_b as z;",
        "pub use a_b as z;",
        "extern crate a_b;",
        "use {c, a_b as z};",
        "use a_b::{C, D};",
        "let c = a_b::c();",
        "f(::a_b::C)",
    ] {
        assert!(uses_crate(line, "a_b"), "{line}");
    }
    for line in ["use a_bc as z;", "use c::a_b;", "a_b as u32", "c::a_b::d()"] {
        assert!(!uses_crate(line, "a_b"), "{line}");
    }
}

/// The first names of a path's rest: of `a::b` that is `a`, of `{a::b, c}` they are `a` and `c`.
fn first_names(rest: &str) -> Vec<&str> {
    let list = rest
        .strip_prefix('{')
        .map_or(rest, |list| list.trim_end_matches("};"));
    let parts = if rest.starts_with('{') {
        list.split(',').collect()
    } else {
        vec![list]
    };
    parts
        .into_iter()
        .map(|part| {
            let part = part.trim();
            let end = part
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(part.len());
            &part[..end]
        })
        .collect()
}

#[test]
fn a_module_uses_only_what_stands_to_its_right() {
    let place = |name: &str| STAIRCASE.iter().position(|step| *step == name);
    let mut wrong = Vec::new();
    for code in sources() {
        let Some(own) = place(code.module()) else {
            assert_eq!(code.path, "lib.rs", "a file outside of the staircase");
            continue;
        };
        for (number, line) in code.lines.iter().enumerate() {
            let ours = ["crate", "asdf_mount"]
                .iter()
                .flat_map(|name| paths_from(line, name));
            for name in ours.flat_map(first_names) {
                assert!(
                    !name.is_empty(),
                    "src/{}:{}: one `use` a module, please",
                    code.path,
                    number + 1
                );
                if place(name).is_some_and(|used| used < own) {
                    wrong.push(format!("src/{}:{} uses {name}", code.path, number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What each room of `vfs` uses of the others, its tests apart. A room is a file of the folder, with what is below it. What `vfs.rs` passes
/// on is of the room that has it, and its own types are of `vfs`.
fn rooms_of_vfs() -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources();
    let vfs = sources.iter().find(|code| code.path == "vfs.rs").unwrap();
    let text = vfs.without_tests().join(" ");
    let is_room = |(name, _): &(&str, &str)| text.contains(&format!("mod {name};"));
    let passed_on = text.split(';').filter_map(|statement| {
        let statement = statement.trim_start();
        let statement = statement.strip_prefix("pub ").unwrap_or(statement);
        statement
            .strip_prefix("use ")?
            .split_once("::")
            .filter(is_room)
    });
    let mut homes: HashMap<&str, &str> = passed_on
        .flat_map(|(room, names)| first_names(names).into_iter().map(move |name| (name, room)))
        .collect();
    let types = vfs.without_tests().iter().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let kinds = ["struct ", "enum "].iter();
        let mut named = kinds.filter_map(|kind| line.strip_prefix(kind));
        named.next().map(|name| (first_names(name)[0], "vfs"))
    });
    homes.extend(types);
    let mut rooms = BTreeMap::<String, BTreeSet<String>>::new();
    for code in &sources {
        let path = code.path.strip_suffix(".rs").unwrap();
        let Some(path) = path.strip_prefix("vfs/") else {
            continue;
        };
        let room = path.split('/').next().unwrap();
        let text = code.without_tests().join(" ");
        // below a room, `super` is the room itself
        let from = if path == room {
            &["crate::vfs", "super"][..]
        } else {
            &["crate::vfs"]
        };
        let used = from.iter().flat_map(|from| paths_from(&text, from));
        let used = used.flat_map(|rest| first_names(rest.split(';').next().unwrap()));
        let used = used.map(|name| *homes.get(name).unwrap_or(&name));
        let used = used.filter(|used| *used != room).map(str::to_owned);
        rooms.entry(room.to_owned()).or_default().extend(used);
    }
    rooms
}

#[test]
fn the_rooms_of_vfs_use_each_other_in_no_circle() {
    // those that know a type of `vfs.rs` stand above the others: `vfs.rs` may use any
    let rooms = rooms_of_vfs().into_iter();
    let (mut above, mut below): (BTreeMap<_, _>, BTreeMap<_, _>) =
        rooms.partition(|(_, used)| used.contains("vfs"));
    assert!(above.contains_key("write") && below.contains_key("node"));
    for (room, used) in &below {
        let above: Vec<_> = used
            .iter()
            .filter(|used| above.contains_key(*used))
            .collect();
        assert!(above.is_empty(), "{room} uses {above:?}");
    }
    for rooms in [&mut above, &mut below] {
        // what uses none of those that are left is in no circle
        let mut count = usize::MAX;
        while rooms.len() < count {
            count = rooms.len();
            let left: BTreeSet<String> = rooms.keys().cloned().collect();
            rooms.retain(|_, used| !used.is_disjoint(&left));
        }
        assert!(rooms.is_empty(), "{rooms:?}");
    }
}

#[test]
fn main_uses_nothing_but_cli() {
    let main = sources()
        .into_iter()
        .find(|code| code.path == "main.rs")
        .unwrap();
    let used: Vec<_> = main
        .lines
        .iter()
        .flat_map(|line| paths_from(line, "asdf_mount"))
        .flat_map(first_names)
        .collect();
    assert!(used.iter().all(|name| *name == "cli"), "main uses {used:?}");
}

#[test]
fn each_crate_is_used_in_its_own_place() {
    // Unit tests may use any crate: that is where expected values come from.
    let mut wrong = Vec::new();
    for code in sources() {
        for (name, places) in CRATES.iter().filter(|(_, places)| !code.may_use(places)) {
            for (number, line) in code.without_tests().iter().enumerate() {
                if uses_crate(line, name) {
                    wrong.push(format!(
                        "src/{}:{} uses {name}, whose place is {places:?}",
                        code.path,
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_dependency_has_its_place_in_the_table() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    for line in section
        .lines()
        .filter(|line| line.contains('=') && !line.starts_with('#'))
    {
        let package = line.split('=').next().unwrap().trim();
        let name = if package == "md-5" {
            "md5".to_owned()
        } else {
            package.replace('-', "_")
        };
        assert!(
            CRATES.iter().any(|(known, _)| *known == name),
            "{package} is not in the table of crates"
        );
    }
}

/// Where `word` stands in code that is not a test.
fn files_with(word: &str) -> Vec<String> {
    let found = sources().into_iter().filter(|code| {
        let mut lines = code.without_tests().iter();
        lines.any(|line| line.contains(word))
    });
    found.map(|code| code.path).collect()
}

#[test]
fn the_version_gate_is_in_one_place() {
    for word in ["KNOWN_MAJOR", "KNOWN_MINOR", ".major", ".minor"] {
        assert_eq!(files_with(word), ["asdf/dialect.rs"], "{word}");
    }
}

#[test]
fn only_the_crates_of_remote_can_talk_to_a_network() {
    for word in ["std::net", "TcpStream", "UdpSocket"] {
        assert!(files_with(word).is_empty(), "{word}");
    }
    // a descriptor that comes through a socket of this machine
    assert_eq!(files_with("rustix::net"), ["fuse/mounting/helper.rs"]);
    let connects = ["rustix::net::connect", "rustix::net::socket", "SocketAddr"];
    let connects = connects.into_iter().flat_map(files_with);
    assert!(connects.into_iter().all(|file| file == "cli/daemon.rs"));
}

#[test]
fn no_file_is_longer_than_its_limit() {
    for code in sources() {
        let lines = code.lines.len();
        assert!(
            lines <= FILE_LINES,
            "src/{} has {lines} lines, at most {FILE_LINES} allowed",
            code.path
        );
    }
}

#[test]
fn no_function_is_longer_than_its_limit() {
    let mut wrong = Vec::new();
    for code in sources() {
        for (number, line) in code.lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let is_function = line.trim_start().starts_with("fn ")
                || line.contains(" fn ") && line.trim_end().ends_with(['(', '{']);
            let end = format!("{}}}", " ".repeat(indent));
            let lines = code.lines[number..]
                .iter()
                .position(|l| l.trim_end() == end)
                .map_or(0, |n| n + 1);
            // A declaration without a body ends before any closing brace could.
            let declared = code.lines[number..]
                .iter()
                .take(lines)
                .any(|l| l.trim_end().ends_with(';') && l.len() - l.trim_start().len() == indent);
            if is_function && !declared && lines > FUNCTION_LINES {
                wrong.push(format!(
                    "src/{}:{} has {lines} lines, at most {FUNCTION_LINES} allowed",
                    code.path,
                    number + 1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn product_code_behind_a_module_of_tests_is_looked_at() {
    let code = |text: &str| Code {
        path: "save.rs".to_owned(),
        lines: text.lines().map(str::to_owned).collect(),
        tests_only: false,
    };
    let of =
        code("use a;\n#[cfg(test)]\nmod tried;\n\nuse b;\n#[cfg(test)]\nmod tests {\nuse c;\n}");
    assert_eq!(
        of.without_tests().concat(),
        "use a;#[cfg(test)]mod tried;use b;"
    );
    assert!(of.test_modules().eq(["save/tried"]));
    let sources = sources();
    let save = sources.iter().find(|code| code.path == "save.rs").unwrap();
    let last = save
        .lines
        .iter()
        .rposition(|line| line.contains("fn "))
        .unwrap();
    assert!(save.without_tests().len() > last);
    let mut tests = sources.iter().filter(|code| code.tests_only);
    assert!(tests.any(|code| code.path == "save/tests/disk.rs"));
}

#[test]
fn the_paths_of_a_line_are_found() {
    assert_eq!(
        paths_from("use crate::error::Error;", "crate"),
        ["error::Error;"]
    );
    assert_eq!(first_names("{asdf::Tree, codec};"), ["asdf", "codec"]);
    assert_eq!(first_names("error::Error;"), ["error"]);
    assert!(paths_from("let x = bzip2::read(my_lz4::y)", "lz4").is_empty());
    assert!(paths_from("a::bzip2::b", "bzip2").is_empty());
}
