//! Every recipe of asdf-mount-cookbook(7) is run as it stands there, and prints what it says it does.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::{PROGRAM, can_mount, mount_table, run};
use crate::corpus::python;
use crate::sample::{Block, Sample, array};

/// A recipe of the page.
struct Recipe {
    title: String,
    /// What it takes that may be missing, from `.\" needs:`: commands, `root`, `userns` (user namespaces), `remote` (URLs),
    /// `python3:MODULE`.
    needs: Vec<String>,
    /// Begins with what stands behind `.\" first:`, a server of the test for example, which readers do not see.
    script: String,
    /// From displays behind `.\" prints`.
    prints: String,
}

/// A line of a display as troff prints it.
fn printed(line: &str) -> String {
    line.trim_start_matches("\\&").replace("\\e", "\\") + "\n"
}

fn recipe(section: &str) -> Recipe {
    let (title, body) = section.split_once('\n').unwrap();
    let (mut needs, mut script, mut prints) = (Vec::new(), String::new(), String::new());
    let (mut shown, mut output) = (false, false);
    for line in body.lines() {
        if let Some(words) = line.strip_prefix(".\\\" needs: ") {
            needs.extend(words.split(' ').map(str::to_owned));
        } else if let Some(line) = line.strip_prefix(".\\\" first: ") {
            script.push_str(line);
            script.push('\n');
        } else if line == ".\\\" prints" {
            output = true;
        } else if line == ".Bd -literal -offset indent" {
            shown = true;
        } else if line == ".Ed" {
            (shown, output) = (false, false);
        } else if shown {
            let text = if output { &mut prints } else { &mut script };
            text.push_str(&printed(line));
        } else if line.starts_with(".Sh") {
            break;
        }
    }
    Recipe {
        title: title.to_owned(),
        needs,
        script,
        prints,
    }
}

fn recipes() -> Vec<Recipe> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/asdf-mount-cookbook.7");
    let page = fs::read_to_string(page).unwrap();
    page.split("\n.Ss ").skip(1).map(recipe).collect()
}

/// A file as the page describes it, of other shapes and values.
pub(crate) fn galaxy(exposure: u8, rows: u16, columns: u16) -> Sample {
    let elements = 0..rows * columns;
    let data: Vec<u8> = (elements.clone())
        .flat_map(|i| (f32::from(i) + f32::from(exposure) - 30.0).to_le_bytes())
        .collect();
    let quality: Vec<u8> = elements.map(|_| 0).collect();
    let shape = format!("[{rows}, {columns}]");
    let meta = format!("meta: {{exposure: {exposure}.5, filter: F184, instrument: demo camera}}\n");
    let arrays = array("data", 0, "float32", &shape) + &array("dq", 1, "uint8", &shape);
    Sample::new(&(meta + &arrays))
        .padding(&[0; 500])
        .block(Block::raw(&data))
        .block(Block::zlib(&quality))
}

/// Files for the recipes.
fn files() -> TempDir {
    let place = TempDir::new().unwrap();
    let write = |name: &str, sample: &Sample| {
        fs::write(place.path().join(name), sample.bytes()).unwrap();
    };
    write("galaxy.asdf", &galaxy(30, 200, 300));
    fs::create_dir(place.path().join("night")).unwrap();
    for i in 0..25 {
        write(&format!("night/n{i:04}.asdf"), &galaxy(i, 4, 3));
    }
    let samples = Sample::new(&array("samples", 0, "int16", "['*']"));
    write("stream.asdf", &samples.block(Block::streamed(&[])));
    place
}

/// A shell in which the program and Python of the tests are found, and no configuration of a user.
pub(crate) fn shell(script: &str) -> Command {
    let python = python();
    let bins = [Some(Path::new(PROGRAM)), python.as_deref()];
    let folders = bins.into_iter().flatten().map(|bin| bin.parent().unwrap());
    let system = std::env::var_os("PATH").unwrap();
    let folders = folders.map(Path::to_owned);
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&system)));
    let mut shell = Command::new("bash");
    shell
        .args(["-e", "-c", script])
        .env("PATH", path.unwrap())
        .env(
            "PYTHONPATH",
            concat!(env!("CARGO_MANIFEST_DIR"), "/package/python"),
        )
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("LC_ALL", "C.UTF-8");
    shell
}

/// Whether this machine has all that a script needs; says what it lacks.
pub(crate) fn has<'a>(title: &str, mut needs: impl Iterator<Item = &'a str>) -> bool {
    let missing = |need: &&str| {
        let test = match need.split_once(':') {
            Some((python, module)) => format!("{python} -c 'import {module}'"),
            None if *need == "remote" => cfg!(feature = "remote").to_string(),
            None if *need == "root" => "[ $UID = 0 ]".to_owned(),
            None if *need == "userns" => "unshare --user --map-root-user true".to_owned(),
            None => format!("command -v {need}"),
        };
        run(&mut shell(&test)).code != 0
    };
    let lacks = needs.find(missing);
    if let Some(need) = lacks {
        println!("skipped: {title}: no {need} here");
    }
    lacks.is_none()
}

/// Takes away what a script that failed has left mounted.
pub(crate) fn clean(place: &Path) {
    let mounts = mount_table("mounts");
    for mount in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(mount).starts_with(place) {
            run(Command::new("umount").arg("-l").arg(mount));
        }
    }
}

#[test]
fn every_recipe_of_the_cookbook_does_what_it_says() {
    if !can_mount() {
        return;
    }
    let recipes = recipes();
    assert!(recipes.len() >= 15, "{} recipes", recipes.len());
    let mut wrong = Vec::new();
    for recipe in &recipes {
        if !has(&recipe.title, recipe.needs.iter().map(String::as_str)) {
            continue;
        }
        let place = files();
        let folder = fs::canonicalize(place.path()).unwrap();
        let said = run(shell(&recipe.script).current_dir(&folder));
        let mounts = mount_table("mounts");
        let left = mounts.contains(folder.to_str().unwrap());
        if (said.code, &said.stdout, left) != (0, &recipe.prints, false) {
            wrong.push(format!("{}: mounts left: {left}, {said:?}", recipe.title));
            clean(&folder);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_declares_the_file_that_the_recipes_use() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/asdf-mount-cookbook.7");
    let page = fs::read_to_string(page).unwrap();
    let tree = galaxy(30, 200, 300);
    let lines = str::from_utf8(tree.tree()).unwrap().lines();
    for line in lines.filter(|line| line.contains(": ")) {
        assert!(page.contains(line), "{line}");
    }
}
