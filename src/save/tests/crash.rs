//! Crashes at every operation of every kind of save, with every part of what was not durable lost or kept, and again inside
//! the recovery: FILE is then old or new, and new if the save was acknowledged.
//!
//! Where the ways to lose are too many to try all of them, the extremes, every single one, and a random sample are tried.
//! `ASDF_MOUNT_CRASH_STATES` sets how many; `ASDF_MOUNT_CRASH_SEED` another sample.

use std::ffi::OsStr;
use std::sync::Arc;

use super::disk::{Fault, Sim, Spoil, Trouble};
use super::scenarios::{NAME, Saved, Scenario, Story, scenarios};
use super::source;
use crate::asdf::layout::Severity;
use crate::asdf::sample::Sample;
use crate::save::edit::Edit;
use crate::save::name;
use crate::save::recovery::{self, Recovery};
use crate::save::store::{Access, Store};
use crate::save::writer::{SaveOptions, Writer};
use crate::source::read_all;

const EINTR: i32 = 4;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const ENOSPC: i32 = 28;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Ways in which what is not durable can survive: all of them if they are not more than `limit`.
fn ways(choices: &[usize], limit: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let all = choices
        .iter()
        .try_fold(1usize, |all, n| all.checked_mul(*n))
        .filter(|&all| all <= limit);
    if let Some(all) = all {
        return (0..all)
            .map(|mut way| {
                let digit = |n: &usize| {
                    let digit = way % n;
                    way /= n;
                    digit
                };
                choices.iter().map(digit).collect()
            })
            .collect();
    }
    let newest: Vec<usize> = choices.iter().map(|n| n - 1).collect();
    let mut out = vec![vec![0; choices.len()], newest.clone()];
    for (i, &n) in choices.iter().enumerate().filter(|(_, n)| **n > 1) {
        let (mut lost, mut kept) = (newest.clone(), vec![0; choices.len()]);
        lost[i] = 0;
        kept[i] = n - 1;
        out.extend([lost, kept]);
    }
    while out.len() > limit / 2 {
        out.swap_remove(random.below(out.len()));
    }
    while out.len() < limit {
        out.push(sample(choices, random));
    }
    out
}

/// One way: in order, in reverse, or at random with a density that is random, too.
fn sample(choices: &[usize], random: &mut Random) -> Vec<usize> {
    let cut = random.below(choices.len());
    let (order, density) = (random.below(3), random.below(10));
    let pick = |(i, n): (usize, &usize)| match order {
        0 if i < cut => n - 1,
        1 if i >= cut => n - 1,
        2 if random.below(10) >= density => random.below(*n),
        _ => 0,
    };
    choices.iter().enumerate().map(pick).collect()
}

/// What became of FILE.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Old,
    New,
    Lost(String),
}

/// Compares FILE with what it was and should be. Zeros behind it are space for a journal that was never written, or is gone.
fn outcome(content: &[u8], old: &[u8], new: &[u8]) -> Outcome {
    let is = |whole: &[u8]| {
        let tail = content.strip_prefix(whole);
        tail.is_some_and(|tail| tail.len() < 100_000 && tail.iter().all(|&byte| byte == 0))
    };
    if is(new) {
        return Outcome::New;
    }
    if is(old) {
        return Outcome::Old;
    }
    Outcome::Lost(format!(
        "{} bytes that are neither old nor new",
        content.len()
    ))
}

/// Recovers, and says what FILE is then.
fn recovered(disk: Sim, old: &[u8], new: &[u8]) -> Outcome {
    let disk = Arc::new(disk);
    let name = OsStr::new(NAME);
    let Some(before) = disk.content(name) else {
        return Outcome::Lost("no file".into());
    };
    let shown = shown(&disk, &before);
    if let Err(refusal) = Writer::open_in(Arc::clone(&disk), name, SaveOptions::default()) {
        return Outcome::Lost(format!("refused: {refusal:?}"));
    }
    let now = outcome(&disk.content(name).unwrap(), old, new);
    if shown.as_deref().map(|shown| outcome(shown, old, new)) != Ok(Outcome::Old)
        && shown != Ok(disk.content(name).unwrap())
    {
        return Outcome::Lost("read only it looked different".into());
    }
    let names = disk.names().unwrap();
    if names != [name] {
        return Outcome::Lost(format!("left over: {names:?}"));
    }
    now
}

/// FILE as a read-only mount shows it.
fn shown(disk: &Arc<Sim>, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let name = OsStr::new(NAME);
    let file = disk.open(name, Access::Read).unwrap();
    let mut shown = source(bytes);
    match recovery::shown(disk, name, &file, &mut shown) {
        Ok((Recovery::Clean | Recovery::Redone | Recovery::Dropped, _)) => {
            Ok(read_all(&*shown, 1 << 20).unwrap())
        }
        other => Err(format!("{:?}", other.map(|(recovery, _)| recovery))),
    }
}

/// What a crash may leave, once FILE is recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    Old,
    OldOrNew,
    New,
    /// The new file, without a recovery.
    Done,
}

impl Promise {
    fn is_new(self) -> bool {
        matches!(self, Self::New | Self::Done)
    }

    fn of(saved: &Saved) -> Self {
        match saved {
            Saved::Acknowledged => Self::Done,
            Saved::Unfinished { lasts: true, .. } => Self::New,
            Saved::Unfinished { .. } | Saved::Refused => Self::OldOrNew,
        }
    }
}

/// One save whose crashes are tried.
struct Trial<'a> {
    scenario: &'a Scenario,
    story: Story,
    random: Random,
    /// How many states of the disk are tried after each crash.
    states: usize,
    /// After how many of them crashes inside the recovery are tried.
    nested: usize,
}

impl<'a> Trial<'a> {
    fn new(scenario: &'a Scenario, states: u64, nested: usize) -> Self {
        let seed = setting("ASDF_MOUNT_CRASH_SEED", 0x9E37_79B9_7F4A_7C15);
        Self {
            scenario,
            story: scenario.story(),
            random: Random(seed.max(1)),
            states: setting("ASDF_MOUNT_CRASH_STATES", states) as usize,
            nested,
        }
    }

    /// Recovers, and judges what FILE is then.
    fn judge(&self, disk: Sim, promise: Promise) -> Result<(), String> {
        match recovered(disk, &self.story.old, &self.story.new) {
            Outcome::Lost(why) => Err(why),
            Outcome::Old if promise.is_new() => Err("an acknowledged save is gone".to_owned()),
            Outcome::New if promise == Promise::Old => Err("a refused save is there".to_owned()),
            _ => Ok(()),
        }
    }

    /// Tries crashes of one disk; the first that loses anything.
    fn crashes(&mut self, disk: &Sim, promise: Promise) -> Result<(), String> {
        let ways = ways(&disk.choices(), self.states, &mut self.random);
        for (n, way) in ways.iter().enumerate() {
            let crashed = disk.crash(way);
            let sidecar = crashed.content(&name::sidecar(OsStr::new(NAME)));
            let done = crashed.content(OsStr::new(NAME)).as_ref() == Some(&self.story.new)
                && sidecar.is_none();
            if promise == Promise::Done && !done {
                return Err(format!(
                    "acknowledged, but recovery is needed after {way:?}"
                ));
            }
            self.judge(crashed, promise)
                .map_err(|why| format!("{why} after {way:?}"))?;
            if n % ways.len().div_ceil(self.nested.max(1)) == 0 && self.nested > 0 {
                self.crashes_in_recovery(disk, way, promise)?;
            }
        }
        self.judge(disk.kill(), promise)
    }

    fn crashes_in_recovery(
        &mut self,
        disk: &Sim,
        way: &[usize],
        promise: Promise,
    ) -> Result<(), String> {
        let recover = |disk: &Arc<Sim>| {
            drop(Writer::open_in(
                Arc::clone(disk),
                OsStr::new(NAME),
                SaveOptions::default(),
            ));
        };
        let whole = Arc::new(disk.crash(way));
        recover(&whole);
        for cut in 0..whole.ops().len() {
            let again = Arc::new(disk.crash(way));
            again.arm(Trouble {
                cut: Some(cut),
                ..Trouble::default()
            });
            recover(&again);
            for second in ways(&again.choices(), 4, &mut self.random) {
                self.judge(again.crash(&second), promise).map_err(|why| {
                    format!("{why} after {way:?}, recovery cut at {cut}, {second:?}")
                })?;
            }
        }
        Ok(())
    }

    /// Crashes before every operation of the save from `from` on, and after the last; the sync `lie` does nothing.
    fn crash_everywhere(&mut self, from: usize, lie: Option<usize>) -> Result<(), String> {
        for cut in from..=self.story.ops.len() {
            let disk = Arc::new(self.scenario.disk());
            let trouble = Trouble {
                cut: Some(cut),
                lie,
                ..Trouble::default()
            };
            let (_, saved) = self.scenario.save(&disk, trouble);
            let shows = outcome(
                &disk.content(OsStr::new(NAME)).unwrap(),
                &self.story.old,
                &self.story.new,
            );
            if self.scenario.atomic && matches!(shows, Outcome::Lost(_)) {
                return Err(format!("seen torn at {cut}"));
            }
            self.crashes(&disk, Promise::of(&saved))
                .map_err(|why| format!("cut at {cut}: {why}"))?;
        }
        Ok(())
    }

    /// Says what was tried.
    fn fail(&self, why: &str) -> ! {
        let ops: Vec<_> = self.story.ops.iter().enumerate().collect();
        panic!(
            "{}: {why}; a way is what was kept of each part, see Sim::choices\n{ops:?}",
            self.scenario.name
        );
    }
}

#[test]
fn no_crash_loses_or_tears_a_save() {
    for scenario in scenarios() {
        let mut trial = Trial::new(&scenario, 16, 4);
        if let Err(why) = trial.crash_everywhere(0, None) {
            trial.fail(&why);
        }
    }
}

#[test]
fn every_sync_is_needed() {
    for scenario in scenarios() {
        let ops = scenario.story().ops;
        for (lie, kind) in ops
            .iter()
            .enumerate()
            .filter(|(_, kind)| kind.starts_with("sync"))
        {
            let mut trial = Trial::new(&scenario, 150, 0);
            if trial.crash_everywhere(lie, Some(lie)).is_ok() {
                trial.fail(&format!("nobody misses {kind} at {lie}"));
            }
        }
    }
}

impl Trial<'_> {
    /// Lets one operation fail: what is read of FILE is old or new as it was said, whatever crash follows, and where the writer is
    /// not broken the next save is as good as any.
    fn fault(&mut self, trouble: Trouble) -> Result<(), String> {
        let disk = Arc::new(self.scenario.disk());
        let (mut writer, saved) = self.scenario.save(&disk, trouble);
        let broken = writer.status().broken().is_some();
        match &saved {
            Saved::Acknowledged => return self.crashes(&disk, Promise::Done),
            Saved::Unfinished { now, .. } if now.as_ref() != Some(&self.story.new) => {
                return Err("what is read of FILE is not the new one".to_owned());
            }
            Saved::Unfinished { .. } => self.crashes(&disk, Promise::of(&saved))?,
            Saved::Refused => {
                disk.arm(Trouble::default());
                let now = writer.view().and_then(|view| read_all(&*view, 1 << 20));
                if now.ok().as_ref() != Some(&self.story.old) {
                    return Err("refused, but not as it was".to_owned());
                }
                let sure = !broken && writer.is_settled();
                let promise = if sure {
                    Promise::Old
                } else {
                    Promise::OldOrNew
                };
                self.crashes(&disk, promise)?;
            }
        }
        if broken {
            return Ok(());
        }
        disk.arm(Trouble::default());
        let again = if saved == Saved::Refused {
            self.scenario.save_again(&mut writer)
        } else {
            writer.settle()
        };
        again.map_err(|error| format!("then, without a fault: {error}"))?;
        self.crashes(&disk, Promise::Done)
    }
}

#[test]
fn a_fault_at_any_operation_leaves_old_or_new() {
    let often = [EIO, ENOSPC].map(|code| [Fault::Errno(code), Fault::Forever(code)]);
    let rare = [Fault::Errno(EACCES), Fault::Errno(EBUSY), Fault::Short];
    for scenario in scenarios() {
        let mut trial = Trial::new(&scenario, 4, 0);
        for at in 0..trial.story.ops.len() {
            for fault in often.into_iter().flatten().chain(rare) {
                let trouble = Trouble {
                    fault: Some((at, fault)),
                    ..Trouble::default()
                };
                if let Err(why) = trial.fault(trouble) {
                    trial.fail(&format!("{fault:?} at {at}: {why}"));
                }
            }
        }
    }
}

/// A disk that is full for a while harms nothing, whatever it is that finds no room.
#[test]
fn a_copy_that_a_disk_has_spoiled_does_not_take_the_name() {
    let old = Sample::TREE;
    let text = b"#ASDF 1.0.0\n---\nnote: another\n...\n";
    let spoils: [(Spoil, &str); 2] = [
        (
            |content| content[20] = b'?',
            "byte 0: the copy has another text",
        ),
        (
            |content| content.truncate(30),
            "byte 30: the copy is cut short",
        ),
    ];
    for (spoil, words) in spoils {
        let mut sim = Sim::new(OsStr::new(NAME), old);
        sim.spoil = Some(spoil);
        let disk = Arc::new(sim);
        let options = SaveOptions {
            replace: true,
            ..SaveOptions::default()
        };
        let opened = Writer::open_in(Arc::clone(&disk), OsStr::new(NAME), options);
        let mut writer = opened.map_err(drop).unwrap().writer;
        let refused = writer.save(&Edit::text(Arc::new(text.to_vec()))).map(drop);
        let said = refused.unwrap_err().to_string();
        assert!(said.starts_with(words), "{said}");
        assert_eq!(disk.content(OsStr::new(NAME)).unwrap(), old);
    }
}

#[test]
fn a_full_disk_breaks_nothing() {
    for scenario in scenarios() {
        for at in 0..scenario.story().ops.len() {
            for fault in [Fault::Errno(ENOSPC), Fault::Forever(ENOSPC)] {
                let trouble = Trouble {
                    fault: Some((at, fault)),
                    ..Trouble::default()
                };
                let (writer, saved) = scenario.save(&Arc::new(scenario.disk()), trouble);
                let broken = writer.status().broken();
                assert!(
                    broken.is_none(),
                    "{}: {fault:?} at {at}: {saved:?}, {broken:?}",
                    scenario.name
                );
            }
        }
    }
}

/// Some file systems are interrupted by signals. A copy that passes through memory then made the save fail.
#[test]
fn what_a_signal_interrupts_is_done_again() {
    let mut kinds = Vec::new();
    for scenario in scenarios() {
        for (at, op) in scenario.story().ops.into_iter().enumerate() {
            if !["copy", "write"].contains(&op) {
                continue;
            }
            kinds.push(op);
            let trouble = Trouble {
                fault: Some((at, Fault::Errno(EINTR))),
                ..Trouble::default()
            };
            let (_, saved) = scenario.save(&Arc::new(scenario.disk()), trouble);
            let name = scenario.name;
            assert_eq!(saved, Saved::Acknowledged, "{name}: {op} at {at}");
        }
    }
    assert!(kinds.contains(&"copy") && kinds.contains(&"write"));
}

/// Writes into block 1 of a file, as a mount does, and gives it that checksum: whether it came to the end.
fn write_block(disk: &Arc<Sim>, cut: usize, md5: [u8; 16]) -> bool {
    let opened = Writer::open_in(Arc::clone(disk), OsStr::new(NAME), SaveOptions::default());
    let mut writer = opened
        .unwrap_or_else(|refusal| panic!("{refusal:?}"))
        .writer;
    disk.arm(Trouble {
        cut: Some(cut),
        ..Trouble::default()
    });
    let written = writer.begin_patch(1, &(100..700)).and_then(|begun| {
        begun.unfinished.map_or(Ok(()), Err)?;
        writer.patch(1, |put| put(100, &[9; 300]))?;
        writer.patch(1, |put| put(400, &[9; 300]))?;
        writer.sync_patch()?;
        writer.end_patch(1, md5)
    });
    written.is_ok()
}

/// Checksum and data of block 1 after recovery.
fn block_after(disk: Sim) -> ([u8; 16], Vec<u8>) {
    let disk = Arc::new(disk);
    let opened = Writer::open_in(Arc::clone(&disk), OsStr::new(NAME), SaveOptions::default());
    let layout = opened
        .unwrap_or_else(|refusal| panic!("{refusal:?}"))
        .scan
        .layout;
    assert!(
        layout.blocks.len() == 2
            && layout
                .worst()
                .is_none_or(|worst| worst.severity == Severity::Odd)
    );
    let start = layout.blocks[1].data_offset() as usize;
    let content = disk.content(OsStr::new(NAME)).unwrap();
    (
        layout.blocks[1].checksum,
        content[start..start + layout.stored_len(1) as usize].to_vec(),
    )
}

#[test]
fn no_crash_leaves_a_false_checksum() {
    let file = Sample::new().block(&[1; 700]).block(&[2; 900]).bytes();
    let (old_md5, old) = block_after(Sim::new(OsStr::new(NAME), &file));
    let mut new = old.clone();
    new[100..700].fill(9);
    let mut random = Random(1);
    for new_md5 in [[9; 16], [0; 16]] {
        let mut all = 0;
        for cut in 0.. {
            let disk = Arc::new(Sim::new(OsStr::new(NAME), &file));
            let ended = write_block(&disk, cut, new_md5);
            for way in ways(&disk.choices(), 60, &mut random) {
                let (md5, data) = block_after(disk.crash(&way));
                let is_true = (md5 == old_md5 && data == old)
                    || (md5 == new_md5 && data == new)
                    || md5 == [0; 16];
                assert!(is_true, "cut at {cut}, {way:?}");
                assert!(
                    !ended || (md5 == new_md5 && data == new),
                    "ended, but lost: cut at {cut}, {way:?}"
                );
            }
            all += 1;
            if ended {
                break;
            }
        }
        assert!(all > 5);
    }
}

mod patch;
