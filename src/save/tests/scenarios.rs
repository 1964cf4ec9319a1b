//! The kinds of saves that crash tests are about, each as small as it can be.

use std::ffi::OsStr;
use std::sync::Arc;

use super::disk::{Sim, Trouble};
use super::source;
use crate::asdf::layout::Extent;
use crate::asdf::sample::{Sample, block_with};
use crate::error::Result;
use crate::save::edit::{BlockEdit, Edit, Piece, StoredBlock};
use crate::save::plan::Pad;
use crate::save::view::StoreSource;
use crate::save::writer::{Method, SaveOptions, Writer};
use crate::source::read_all;

/// The name of the file that is saved.
pub(super) const NAME: &str = "f.asdf";

/// One kind of save.
#[derive(Clone)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    file: Vec<u8>,
    /// A save that comes before, and is acknowledged.
    first: Option<Edit>,
    edit: Edit,
    options: SaveOptions,
    grain: Option<u64>,
    /// Whether names can be swapped.
    exchange: bool,
    links: u64,
    /// Whether files can't be made in the directory.
    sealed: bool,
    /// Whether other programs see the old file or the new one whole at every moment.
    pub(super) atomic: bool,
}

impl Scenario {
    fn new(name: &'static str, file: Vec<u8>, edit: Edit) -> Self {
        Self {
            name,
            file,
            first: None,
            edit,
            options: SaveOptions::default(),
            grain: None,
            exchange: true,
            links: 1,
            sealed: false,
            atomic: false,
        }
    }

    pub(super) fn disk(&self) -> Sim {
        let mut sim = Sim::new(OsStr::new(NAME), &self.file);
        sim.grain = self.grain;
        sim.exchange = self.exchange;
        sim.sealed = self.sealed;
        // where no sidecar can be made, getting shorter has to be one step
        sim.stepwise = !self.sealed;
        sim.set_links(OsStr::new(NAME), self.links);
        sim
    }

    /// Opens the file for writing, and does what comes before.
    pub(super) fn open(&self, disk: &Arc<Sim>) -> Writer<Sim> {
        let opened = Writer::open_in(Arc::clone(disk), OsStr::new(NAME), self.options);
        let mut writer = opened
            .unwrap_or_else(|refusal| panic!("{refusal:?}"))
            .writer;
        if let Some(first) = &self.first {
            writer.save(first).unwrap();
        }
        writer
    }

    /// Saves on `disk`, with the trouble armed before.
    pub(super) fn save(&self, disk: &Arc<Sim>, trouble: Trouble) -> (Writer<Sim>, Saved) {
        let mut writer = self.open(disk);
        disk.arm(trouble);
        let saved = match writer.save(&self.edit) {
            Ok(committed) if committed.unfinished.is_none() => Saved::Acknowledged,
            Ok(committed) => Saved::Unfinished {
                now: match &committed.bytes {
                    Some(bytes) => read_all(&**bytes, 1 << 20).ok(),
                    None => StoreSource::open(disk, &committed.file)
                        .and_then(|file| read_all(&file, 1 << 20))
                        .ok(),
                },
                lasts: committed.method == Method::InPlace,
            },
            Err(_) => Saved::Refused,
        };
        (writer, saved)
    }

    /// Saves once more.
    pub(super) fn save_again(&self, writer: &mut Writer<Sim>) -> Result<()> {
        writer.save(&self.edit).map(drop)
    }

    /// FILE before the save and after it, if nothing comes between, and the operations of it.
    pub(super) fn story(&self) -> Story {
        let disk = Arc::new(self.disk());
        drop(self.open(&disk));
        let old = disk.content(OsStr::new(NAME)).unwrap();
        let disk = Arc::new(self.disk());
        let (_, saved) = self.save(&disk, Trouble::default());
        assert_eq!(saved, Saved::Acknowledged, "{}", self.name);
        Story {
            old,
            new: disk.content(OsStr::new(NAME)).unwrap(),
            ops: disk.ops(),
        }
    }
}

/// What is known of FILE after a save.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Saved {
    /// It is new.
    Acknowledged,
    /// It has happened, but is not done.
    Unfinished {
        /// What is read of FILE.
        now: Option<Vec<u8>>,
        /// Whether it outlives a crash.
        lasts: bool,
    },
    /// It is not saved, or so it is said.
    Refused,
}

/// A save that nothing comes between.
pub(super) struct Story {
    pub(super) old: Vec<u8>,
    pub(super) new: Vec<u8>,
    pub(super) ops: Vec<&'static str>,
}

fn text(len: usize) -> Edit {
    let text = format!("#ASDF 1.0.0\n---\nnote: {}\n...\n", "x".repeat(len));
    Edit::text(Arc::new(text.into_bytes()))
}

fn stored(bytes: &[u8]) -> StoredBlock {
    StoredBlock::raw(source(bytes))
}

fn replace(n: usize, stored: StoredBlock) -> Edit {
    Edit::block(BlockEdit::Replace { n, stored })
}

fn checksum(n: usize, md5: [u8; 16]) -> BlockEdit {
    BlockEdit::Checksum { n, md5 }
}

fn padded() -> Sample {
    Sample::new().padding(&[0; 1300])
}

fn plain() -> Vec<u8> {
    padded().block(&[1; 700]).block(&[2; 900]).bytes()
}

/// Everything.
pub(super) fn scenarios() -> Vec<Scenario> {
    [room(), blocks(), ends()].concat()
}

/// Saves that make room, and those that do not have to.
fn room() -> Vec<Scenario> {
    let grow = Scenario::new("a text that outgrows its space", plain(), text(4000));
    let fits = Scenario::new("a text that fits", plain(), text(900));
    let anew = SaveOptions {
        replace: true,
        ..SaveOptions::default()
    };
    let snug = Sample::new().block(&[1; 700]).block(&[2; 900]).bytes();
    let absent = SaveOptions {
        pad: Pad::Absent,
        ..SaveOptions::default()
    };
    vec![
        Scenario {
            atomic: true,
            ..Scenario::new("a text that outgrows no space", snug, text(900))
        },
        Scenario {
            name: "no space to be left where blocks are shared",
            options: absent,
            grain: Some(512),
            atomic: true,
            ..fits.clone()
        },
        Scenario {
            atomic: true,
            ..grow.clone()
        },
        Scenario {
            name: "growing where names can't be swapped",
            exchange: false,
            atomic: true,
            ..grow.clone()
        },
        Scenario {
            name: "growing where blocks are shared",
            grain: Some(512),
            atomic: true,
            ..grow.clone()
        },
        Scenario {
            name: "growing with two names",
            links: 2,
            ..grow.clone()
        },
        Scenario {
            name: "growing where nothing may be made beside",
            sealed: true,
            ..grow
        },
        Scenario {
            name: "save=replace",
            options: anew,
            atomic: true,
            ..fits.clone()
        },
        Scenario {
            name: "two texts after each other",
            first: Some(text(1000)),
            ..fits.clone()
        },
        fits,
    ]
}

/// Edits of blocks.
fn blocks() -> Vec<Scenario> {
    let slack = padded()
        .stored(block_with(*b"zlib", &[3; 600], 600, 2000))
        .block(b"abc")
        .bytes();
    // a sector is written whole or not at all, so that a header within one needs no journal
    let space = vec![0; 1024 - 46 - Sample::TREE.len()];
    let straddling = Sample::new().padding(&space).block(&[1; 700]).bytes();
    let shorter = Scenario::new(
        "one block less",
        plain(),
        Edit::block(BlockEdit::RemoveLast),
    );
    let several = Edit {
        blocks: vec![
            checksum(0, [0; 16]),
            BlockEdit::Replace {
                n: 1,
                stored: stored(&[9; 100]),
            },
            BlockEdit::Append(stored(&[8; 800])),
        ],
        ..text(900)
    };
    vec![
        Scenario::new(
            "a stream in its allocated space",
            slack,
            replace(0, stored(&[5; 1500])),
        ),
        Scenario::new(
            "a header in two sectors",
            straddling,
            Edit::block(checksum(0, [6; 16])),
        ),
        Scenario::new(
            "a new block",
            plain(),
            Edit::block(BlockEdit::Append(stored(&[7; 5000]))),
        ),
        shorter.clone(),
        Scenario {
            name: "one block less, nothing may be made beside",
            sealed: true,
            ..shorter
        },
        Scenario::new("several at once", plain(), several),
    ]
}

/// Files whose end is special.
fn ends() -> Vec<Scenario> {
    let stream = padded().block(&[1; 600]).streamed(&[4; 1000]).bytes();
    let unindexed = padded().block(b"abc").index(false).bytes();
    let stale = [&unindexed[..], b"#ASDF BLOCK INDEX\n---\n- 7\n...\n"].concat();
    let followed = [&plain()[..], &[0; 1700]].concat();
    let bare = Sample::new().index(false).bytes();
    let long = text(3000).text.unwrap().to_vec();
    let cut = StoredBlock {
        pieces: vec![Piece::Old(Extent { start: 0, end: 100 })],
        ..stored(b"")
    };
    let before = Scenario::new("a text before a stream", stream.clone(), text(900));
    let more = StoredBlock {
        pieces: vec![
            Piece::Old(Extent {
                start: 0,
                end: 1000,
            }),
            Piece::New(source(&[8; 1500])),
        ],
        ..stored(b"")
    };
    vec![
        before.clone(),
        Scenario {
            name: "two texts before a stream",
            first: Some(text(1000)),
            ..before
        },
        Scenario::new("a stream that grows", stream.clone(), replace(1, more)),
        Scenario::new("a stream that shrinks", stream, replace(1, cut)),
        Scenario::new("a wrong index", stale, text(10)),
        Scenario::new("an index that something follows", followed, text(10)),
        Scenario::new("a bare text that grows", bare, text(6000)),
        Scenario::new("a bare text that shrinks", long, text(10)),
    ]
}
