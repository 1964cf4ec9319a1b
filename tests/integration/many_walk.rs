//! Random walks over a collection, against a model of what each file holds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::common::{Mount, can_mount, eventually};
use crate::many::{data, sample};

/// Steps of a walk, and the seeds of those that are always done. `MANY_SEED` does one more.
const STEPS: usize = 150;
const SEEDS: [u64; 2] = [1, 2];
const NAMES: [&str; 6] = [
    "a.asdf", "b.asdf", "s/c.asdf", "s/d.asdf", "t/e.asdf", "t/f.asdf",
];

/// What a file is to show: nothing, if it can't be read.
type Content = Option<(String, Vec<u8>)>;

struct Walk {
    dir: TempDir,
    mount: Option<Mount>,
    model: BTreeMap<&'static str, Content>,
    /// The scratch files that were made since the mount, each by the name of the file that it was made in.
    notes: BTreeMap<&'static str, Vec<u8>>,
    state: u64,
    made: usize,
    log: Vec<String>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let dir = TempDir::new().unwrap();
        for sub in ["s", "t"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
        }
        Self {
            dir,
            mount: None,
            model: BTreeMap::new(),
            notes: BTreeMap::new(),
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            made: 0,
            log: vec![format!("seed {seed}")],
        }
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) as usize % n
    }

    fn mount(&mut self) -> &Mount {
        let dir = self.dir.path();
        self.mount
            .get_or_insert_with(|| Mount::new(dir, &["-o", "open=2"]))
    }

    /// The name of a file, one that is there if `there`.
    fn name(&mut self, there: bool) -> Option<&'static str> {
        let names: Vec<_> = NAMES
            .into_iter()
            .filter(|name| self.model.contains_key(name) == there)
            .collect();
        let at = self.below(names.len().max(1));
        names.get(at).copied()
    }

    /// A new file, in a place of its own.
    fn make(&mut self) -> (std::path::PathBuf, Content) {
        self.made += 1;
        let new = sample(self.made);
        let path = self.dir.path().join("new");
        fs::write(&path, new.bytes()).unwrap();
        let text = String::from_utf8(new.tree().to_vec()).unwrap();
        (path, Some((text, data(self.made))))
    }

    fn step(&mut self) -> Option<()> {
        let root = self.dir.path().to_owned();
        let at = |name: &str| root.join(name);
        match self.below(15) {
            0 | 1 => {
                let name = self.name(false)?;
                let (new, content) = self.make();
                fs::rename(new, at(name)).unwrap();
                self.model.insert(name, content);
                self.log.push(format!("add {name}"));
            }
            2 => {
                let name = self.name(true)?;
                fs::remove_file(at(name)).unwrap();
                self.model.remove(name);
                self.log.push(format!("remove {name}"));
            }
            3 => {
                let (from, to) = (self.name(true)?, self.name(false)?);
                fs::rename(at(from), at(to)).unwrap();
                let content = self.model.remove(from)?;
                self.model.insert(to, content);
                self.log.push(format!("rename {from} {to}"));
            }
            4 => {
                let name = self.name(true)?;
                let (new, content) = self.make();
                fs::rename(new, at(name)).unwrap();
                self.model.insert(name, content);
                self.log.push(format!("replace {name}"));
            }
            5 => {
                let name = self.name(true)?;
                fs::write(at(name), "no ASDF").unwrap();
                self.model.insert(name, None);
                self.log.push(format!("damage {name}"));
            }
            6 => {
                let name = self.name(true)?;
                self.settle(name);
                self.edit_text(name)?;
            }
            7 => {
                let name = self.name(true)?;
                self.settle(name);
                self.edit_block(name)?;
            }
            8 => {
                let name = self.name(true)?;
                self.settle(name);
            }
            9 => {
                let name = self.name(true)?;
                let (new, content) = self.make();
                fs::write(at(name), fs::read(new).unwrap()).unwrap();
                self.model.insert(name, content);
                self.log.push(format!("overwrite {name}"));
            }
            10 => {
                // the member is open then, with nothing of it known that its arrays have
                let name = self.name(true)?;
                let tree = self.mount().read(&format!("{name}/tree.yaml"));
                self.log.push(format!("glance at {name}: {}", tree.is_ok()));
            }
            11 => {
                let name = self.name(true)?;
                self.settle(name);
                self.write_note(name)?;
            }
            12 => {
                let name = self.name(true)?;
                self.disguise(name)?;
            }
            13 => self.rest(),
            _ => self.unmount(),
        }
        Some(())
    }

    /// The next step mounts again. What was in the mount only is gone.
    fn unmount(&mut self) {
        self.mount = None;
        self.notes.clear();
        self.log.push("remount".to_owned());
    }

    /// Writes another content in place, of the same length, and puts the time of the last change back.
    fn disguise(&mut self, name: &'static str) -> Option<()> {
        let (new, content) = self.make();
        let bytes = fs::read(new).unwrap();
        let path = self.dir.path().join(name);
        let file = File::options().write(true).open(path).unwrap();
        let before = file.metadata().unwrap();
        if before.len() != bytes.len() as u64 {
            return None;
        }
        file.write_all_at(&bytes, 0).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        self.model.insert(name, content);
        self.log.push(format!("disguise {name}"));
        Some(())
    }

    /// Lets so much time pass, once in a while, that members which are opened now and closed are known while they are.
    fn rest(&mut self) {
        if self.below(3) > 0 {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1100));
        self.log.push("rest".to_owned());
        self.settle_all();
    }

    fn edit_text(&mut self, name: &'static str) -> Option<()> {
        let number = self.below(1000);
        let (text, _) = self.model.get_mut(name)?.as_mut()?;
        *text = text.replacen("\n...", &format!("\n# edit {number}\n..."), 1);
        let (path, text) = (format!("{name}/tree.yaml"), text.clone());
        self.log.push(format!("edit {path}"));
        let path = self.mount().path(&path);
        fs::write(path, text).unwrap_or_else(|error| panic!("{error}: {:?}", self.log));
        Some(())
    }

    fn edit_block(&mut self, name: &'static str) -> Option<()> {
        let (at, byte) = (self.below(64), self.below(256) as u8);
        let file = ["blocks/0.bin", "arrays/flux.bin"][self.below(2)];
        let (_, bytes) = self.model.get_mut(name)?.as_mut()?;
        bytes[at] = byte;
        self.log.push(format!("write {name}/{file}"));
        let path = self.mount().path(&format!("{name}/{file}"));
        let written = File::options().write(true).open(path);
        let written = written.and_then(|file| file.write_all_at(&[byte], at as u64));
        written.unwrap_or_else(|error| panic!("{error}: {:?}", self.log));
        Some(())
    }

    fn write_note(&mut self, name: &'static str) -> Option<()> {
        self.model.get(name)?.as_ref()?;
        let note = vec![b'x'; self.below(5000)];
        self.log.push(format!("note in {name}"));
        let path = self.mount().path(&format!("{name}/note"));
        fs::write(path, &note).unwrap_or_else(|error| panic!("{error}: {:?}", self.log));
        self.notes.insert(name, note);
        Some(())
    }

    /// Waits until a file is shown as the model has it.
    fn settle(&mut self, name: &str) {
        let want = self.model.get(name).cloned();
        let what = format!("{name} as in the model: {:?}", self.log);
        let mount = self.mount();
        eventually(&what, || shown(mount, name) == want);
        if let Some(Some(_)) = want {
            let note = self.mount().read(&format!("{name}/note")).ok();
            assert_eq!(note.as_ref(), self.notes.get(name), "note: {:?}", self.log);
        }
    }

    fn settle_all(&mut self) {
        for name in NAMES {
            self.settle(name);
        }
    }
}

/// What a file shows, if there is one.
fn shown(mount: &Mount, name: &str) -> Option<Content> {
    let at = |file: &str| mount.path(&format!("{name}/{file}"));
    let is_there = |path: &Path| path.exists();
    if !is_there(&mount.path(name)) {
        return None;
    }
    let status = fs::read_to_string(at("info/status")).ok()?;
    if status.starts_with("mount     not readable") {
        return Some(None);
    }
    let text = fs::read_to_string(at("tree.yaml")).ok()?;
    let (block, array) = (
        fs::read(at("blocks/0.bin")).ok()?,
        fs::read(at("arrays/flux.bin")).ok()?,
    );
    let count = |dir: &str| fs::read_dir(at(dir)).map(Iterator::count).ok();
    let counts = [count("")?, count("arrays")?, count("blocks")?];
    // one may have been read before a change, and one after it; there may be a note beside the four names
    let is_whole = block == array && counts[0] >= 4 && counts[1..] == [2, 1];
    is_whole.then_some(Some((text, block)))
}

fn walk(seed: u64) {
    let mut walk = Walk::new(seed);
    for step in 0..STEPS {
        walk.step();
        if step % 25 == 0 {
            walk.settle_all();
        }
    }
    walk.settle_all();
    walk.unmount();
    walk.settle_all();
}

#[test]
fn a_collection_shows_what_its_files_hold_whatever_becomes_of_them() {
    if !can_mount() {
        return;
    }
    let more = std::env::var("MANY_SEED").ok();
    let more = more.and_then(|seed| seed.parse().ok());
    for seed in SEEDS.into_iter().chain(more) {
        walk(seed);
    }
}
