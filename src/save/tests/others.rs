//! Another program at any moment of a save.

use std::ffi::OsStr;
use std::sync::Arc;

use super::disk::{Deed, Fault, Sim, Trouble, When};
use super::source;
use crate::asdf::sample::Sample;
use crate::error::Error;
use crate::save::edit::{BlockEdit, Edit, StoredBlock};
use crate::save::store::{Access, Store};
use crate::save::writer::{Committed, Method, SaveOptions, Writer};

const NAME: &str = "f.asdf";
const ENOSPC: i32 = 28;
const OTHER: &[u8] = b"#ASDF 1.0.0\nTHE OTHER\n";

fn open(sim: Sim, replace: bool) -> (Arc<Sim>, Writer<Sim>) {
    let sim = Arc::new(sim);
    let options = SaveOptions {
        replace,
        ..SaveOptions::default()
    };
    let Ok(opened) = Writer::open_in(Arc::clone(&sim), OsStr::new(NAME), options) else {
        panic!("it can be opened");
    };
    (sim, opened.writer)
}

fn text(note: &str) -> Edit {
    let text = format!("#ASDF 1.0.0\n---\nnote: {note}\n...\n");
    Edit::text(Arc::new(text.into_bytes()))
}

fn has(content: &[u8], part: &[u8]) -> bool {
    content.windows(part.len()).any(|it| it == part)
}

/// FILE, if it can be saved in place.
fn padded() -> Sample {
    Sample::new().padding(&[0; 1300])
}

/// A save of a text during which another program has done something.
struct Disturbed {
    sim: Arc<Sim>,
    saved: Result<Committed<super::disk::Handle>, Error>,
    /// The operation that was about to be done; not for a moment that is counted in reads.
    op: &'static str,
}

impl Disturbed {
    fn file(&self) -> Vec<u8> {
        self.sim.content(OsStr::new(NAME)).unwrap()
    }

    /// Whether the save has written FILE at that moment: then nothing can tell the other program's write from it.
    fn is_writing(&self) -> bool {
        ["write", "set_len", "reserve"].contains(&self.op)
    }
}

/// Another machine had changed FILE just before a save, on a disk that showed it as it was when it was opened: its block was cut off, or
/// its whole file replaced by a copy of the old one.
#[test]
fn what_another_machine_has_written_is_asked_for() {
    const EXTRA: &[u8] = b"its block";
    let sample = padded().block(&[7; 3000]);
    let bytes = sample.bytes();
    let data = bytes.windows(3).position(|part| part == [7; 3]).unwrap() + 100;
    let header = bytes
        .windows(4)
        .position(|part| part == b"\xd3BLK")
        .unwrap()
        + 40;
    let long = "x".repeat(9000);
    for replace in [false, true] {
        for note in ["1", &long] {
            let mine = format!("note: {note}");
            let saved = |deed| {
                let mut sim = Sim::new(OsStr::new(NAME), &bytes);
                sim.cached = true;
                let (sim, mut writer) = open(sim, replace);
                sim.do_elsewhere(deed);
                let saved = writer.save(&text(note));
                (saved, sim.content(OsStr::new(NAME)).unwrap(), sim, writer)
            };
            for (deed, theirs) in [
                (Deed::Touch(20), &b"!"[..]),
                (Deed::Touch(header), b"!"),
                (Deed::Append(EXTRA), EXTRA),
                (Deed::Replace(NAME, OTHER), b"THE OTHER"),
            ] {
                let (saved, content, ..) = saved(deed);
                assert!(matches!(saved, Err(Error::Stale { .. })), "{deed:?}");
                assert!(
                    has(&content, theirs) && !has(&content, mine.as_bytes()),
                    "{deed:?}"
                );
            }
            // data are no part of what a save depends on, but they stay
            let (saved, content, ..) = saved(Deed::Touch(data));
            assert!(saved.is_ok() && has(&content, &[7, b'!', 7]), "{replace}");
        }
    }
}

/// What it was read by was kept, so that it was found changed again and again, or was read as it had been.
#[test]
fn what_another_machine_has_written_is_read_by_a_new_descriptor() {
    let mut sim = Sim::new(OsStr::new(NAME), &padded().block(b"abc").bytes());
    sim.cached = true;
    let (sim, mut writer) = open(sim, false);
    sim.do_elsewhere(Deed::Touch(20));
    let found = writer.reload().unwrap().unwrap();
    assert_eq!(found.text[20], b'!');
    assert!(writer.reload().unwrap().is_none());
    writer.save(&text("1")).unwrap();
}

/// The name was found in a cache; FILE was saved where nobody would find it.
#[test]
fn a_file_without_a_name_is_gone() {
    let (sim, mut writer) = open(
        Sim::new(OsStr::new(NAME), &padded().block(b"abc").bytes()),
        false,
    );
    sim.set_links(OsStr::new(NAME), 0);
    assert!(matches!(writer.save(&text("1")), Err(Error::Stale { .. })));
    assert!(!has(&sim.content(OsStr::new(NAME)).unwrap(), b"note: 1"));
}

/// A save for each moment that `when` counts. `exchange`: whether two names can be exchanged.
fn at_each_moment(
    sample: &Sample,
    (replace, exchange): (bool, bool),
    when: fn(usize) -> When,
    deed: Deed,
) -> Vec<Disturbed> {
    let mut all = Vec::new();
    loop {
        let mut sim = Sim::new(OsStr::new(NAME), &sample.bytes());
        sim.exchange = exchange;
        let (sim, mut writer) = open(sim, replace);
        let when = when(all.len());
        sim.arm(Trouble {
            other: Some((when, deed)),
            ..Trouble::default()
        });
        let saved = writer.save(&text("1"));
        let Some(moment) = sim.deed_done() else {
            assert!(!all.is_empty() && saved.is_ok());
            return all;
        };
        let op = match when {
            When::Op(_) => sim.ops()[moment],
            When::Read(_) => "",
        };
        all.push(Disturbed { sim, saved, op });
    }
}

/// R deleted it: it looked at the inode that it had open, which nothing had changed.
#[test]
fn a_file_that_takes_the_name_while_a_copy_is_made_stays() {
    let sample = Sample::new().block(b"abc");
    for exchange in [true, false] {
        for when in [When::Op, When::Read] {
            let deed = Deed::Replace(NAME, OTHER);
            for save in at_each_moment(&sample, (true, exchange), when, deed) {
                let names = save.sim.names().unwrap();
                let content = |name| save.sim.content(name).unwrap();
                let stays = names.iter().any(|name| has(&content(name), b"THE OTHER"));
                // between a look and a rename nothing can be done
                assert!(stays || !exchange && save.op == "rename", "{}", save.op);
            }
        }
    }
}

/// Without a call to exchange names, what was written while R looked at FILE for the last time was lost.
#[test]
fn data_written_while_a_copy_is_made_stay() {
    let sample = Sample::new().block(b"abc");
    let bytes = sample.bytes();
    let at = bytes.windows(3).position(|part| part == b"abc").unwrap();
    for exchange in [true, false] {
        for save in at_each_moment(&sample, (true, exchange), When::Read, Deed::Touch(at)) {
            assert!(save.saved.is_err() || has(&save.file(), b"!bc"));
        }
    }
}

/// The file that was saved had no name any more.
#[test]
fn a_save_in_place_of_a_file_that_loses_its_name_is_not_reported_as_saved() {
    let deed = Deed::Replace(NAME, OTHER);
    for save in at_each_moment(&padded().block(b"abc"), (false, true), When::Op, deed) {
        assert!(save.saved.is_err() || has(&save.file(), b"note: 1"));
    }
}

/// It was cut off: the length was set, though it did not change.
#[test]
fn what_is_appended_to_a_stream_during_a_save_of_the_text_stays() {
    let deed = Deed::Append(b"MORE DATA");
    for save in at_each_moment(
        &padded().streamed(&[4; 1000]),
        (false, true),
        When::Op,
        deed,
    ) {
        assert!(has(&save.file(), b"MORE DATA"), "{}", save.op);
    }
}

/// It was written over, or cut off, by a save that gave FILE another length.
#[test]
fn what_is_appended_to_a_stream_while_its_length_is_saved_stays_or_is_told() {
    const MORE: &[u8] = b"MORE DATA OF ANOTHER PROGRAM";
    for len in [900, 1100] {
        let sample = padded().streamed(&[4; 1000]);
        for n in 0.. {
            let (sim, mut writer) = open(Sim::new(OsStr::new(NAME), &sample.bytes()), false);
            sim.arm(Trouble {
                other: Some((When::Op(n), Deed::Append(MORE))),
                ..Trouble::default()
            });
            let stored = StoredBlock::raw(source(&vec![4; len]));
            let saved = writer.save(&Edit::block(BlockEdit::Replace { n: 0, stored }));
            let Some(moment) = sim.deed_done() else {
                assert!(n > 5 && saved.is_ok());
                break;
            };
            let op = sim.ops()[moment];
            let content = sim.content(OsStr::new(NAME)).unwrap();
            // between a look and the write nothing can be done
            let is_writing = ["write", "set_len", "sync file", "sync file data"].contains(&op);
            assert!(
                is_writing || has(&content, MORE),
                "{len}: {op} at {n}: {:?}",
                saved.map(drop)
            );
        }
    }
}

/// It was written over by the journal, or cut off with it.
#[test]
fn what_is_appended_where_the_journal_lies_stays_or_is_told() {
    const MORE: &[u8] = &[b'+'; 9000];
    let deed = Deed::Append(MORE);
    for save in at_each_moment(&padded().block(b"abc"), (false, true), When::Op, deed) {
        let is_whole = save
            .saved
            .as_ref()
            .is_ok_and(|saved| saved.unfinished.is_none());
        // between a look and the cut nothing can be done
        assert!(!is_whole || has(&save.file(), MORE) || save.op == "set_len");
    }
}

/// Its times were those of the save, so that it was never shown.
#[test]
fn a_save_tells_that_another_program_has_written_meanwhile() {
    for sample in [padded().block(b"abc"), padded().streamed(b"abc")] {
        let bytes = sample.bytes();
        let at = bytes.windows(3).position(|part| part == b"abc").unwrap();
        for when in [When::Op, When::Read] {
            for save in at_each_moment(&sample, (false, true), when, Deed::Touch(at)) {
                let told = save.saved.as_ref().map(|saved| saved.around.is_none());
                assert!(told.unwrap_or(true) || save.is_writing(), "{}", save.op);
            }
        }
    }
    for (sample, replace) in [(padded().block(b"abc"), false), (Sample::new(), true)] {
        let (_sim, mut writer) = open(Sim::new(OsStr::new(NAME), &sample.bytes()), replace);
        assert!(writer.save(&text("1")).unwrap().around.is_some());
    }
}

/// The next save looked at FILE through its journal, which hid the change, and wrote over it.
#[test]
fn what_is_written_after_an_unfinished_save_is_not_overwritten() {
    let name = OsStr::new(NAME);
    let mut unfinished = 0;
    for n in 0..40 {
        let (sim, mut writer) = open(Sim::new(name, &padded().block(b"abc").bytes()), false);
        sim.arm(Trouble {
            fault: Some((n, Fault::Forever(ENOSPC))),
            ..Trouble::default()
        });
        let Ok(committed) = writer.save(&text("first")) else {
            continue;
        };
        if committed.unfinished.is_none() {
            continue;
        }
        assert_eq!(committed.method, Method::InPlace);
        unfinished += 1;
        // there is room again, and another program edits the text in place
        sim.arm(Trouble::default());
        let content = sim.content(name).unwrap();
        let at = content.windows(6).position(|it| it == b"note: ").unwrap() + 6;
        let file = sim.open(name, Access::Write).unwrap();
        sim.write(&file, b"other", at as u64).unwrap();
        let saved = writer.save(&text("third"));
        assert!(saved.is_err() || has(&sim.content(name).unwrap(), b"other"));
    }
    assert!(unfinished > 0);
}

/// FILE was not looked at as long as a copy was made, and blocks were read where they had been.
#[test]
fn a_save_says_that_it_writes_file_only_when_a_copy_is_whole() {
    let bytes = Sample::new().block(b"abc").bytes();
    let (sim, mut writer) = open(Sim::new(OsStr::new(NAME), &bytes), true);
    let mut begun = None;
    let mut observer = |changes_data: bool| {
        assert!(!changes_data);
        begun = Some(sim.ops().len());
    };
    writer.commit(&text("1"), &mut observer).unwrap();
    let ops = sim.ops();
    assert_eq!(ops.get(begun.unwrap()), Some(&"exchange"), "{ops:?}");
}

/// Where names can't be exchanged nor removed, each save left a whole copy of FILE.
#[test]
fn no_copy_is_made_again_where_one_could_not_take_the_name() {
    const EPERM: i32 = 1;
    let bytes = padded().block(b"abc").bytes();
    let (sim, mut writer) = open(Sim::new(OsStr::new(NAME), &bytes), true);
    writer.save(&text("1")).unwrap();
    let exchange = sim.ops().iter().position(|op| *op == "exchange").unwrap();
    sim.arm(Trouble {
        fault: Some((exchange, Fault::Errno(EPERM))),
        ..Trouble::default()
    });
    for note in ["2", "3"] {
        let saved = writer.save(&text(note)).unwrap();
        assert_eq!(saved.method, Method::InPlace);
        assert!(sim.ops().contains(&"exchange") == (note == "2"));
        sim.arm(Trouble::default());
    }
    // another program has given the name to a file that it can be given to: of this one nothing is known
    let new = OsStr::new("new");
    let made = sim.create(new, None).unwrap();
    sim.write(&made, &bytes, 0).unwrap();
    sim.rename(new, OsStr::new(NAME)).unwrap();
    assert!(writer.reload().unwrap().is_some());
    assert_eq!(writer.save(&text("4")).unwrap().method, Method::Replaced);
}

/// Gigabytes were written before the disk was found to be full.
#[test]
fn no_copy_is_begun_that_the_disk_has_no_room_for() {
    let mut sim = Sim::new(OsStr::new(NAME), &padded().block(b"abc").bytes());
    let len = sim.content(OsStr::new(NAME)).unwrap().len() as u64;
    for (free, method) in [(100, Method::InPlace), (len + 100, Method::Replaced)] {
        sim.free = Some(free);
        let (disk, mut writer) = open(sim, true);
        let saved = writer.save(&text(&free.to_string()));
        assert_eq!(saved.unwrap().method, method);
        assert_eq!(disk.ops().contains(&"create"), method == Method::Replaced);
        assert_eq!(writer.status().copying(), None);
        sim = disk.kill();
    }
}
