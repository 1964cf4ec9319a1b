//! `info/stats.tsv`: a line for each array, with what its numbers are.
//!
//! To make it, all arrays are read. So it is made when it is read, and its numbers have blanks in front: its size is known before.

use std::sync::Arc;

use log::warn;

use super::Text;
use crate::asdf::Snapshot;
use crate::error::Error;
use crate::source::{Made, Memory, Source};
use crate::vfs::locked;
use crate::vfs::node::Node;
use crate::vfs::state::State;
use crate::view::stats::Stats;

/// Characters of a number: those of the longest float64.
const NUMBER: usize = 24;

impl State {
    /// The size of `info/stats.tsv`.
    pub(in crate::vfs) fn stats_len(&self) -> u64 {
        let known = locked(&self.info_lens).get(&Node::StatsTsv).copied();
        known.unwrap_or_else(|| {
            let len = stats_tsv(&self.snapshot, &[]).len();
            locked(&self.info_lens).insert(Node::StatsTsv, len);
            len
        })
    }

    /// `info/stats.tsv`, of what is saved.
    pub(in crate::vfs) fn stats_source(&self) -> Arc<dyn Source> {
        let snapshot = Arc::clone(&self.snapshot);
        let make = move || {
            let stats = snapshot.all_stats();
            // if the reader is gone, what was not read is not known, and the next reader asks for it
            snapshot.cache().check_wanted()?;
            let text = stats_tsv(&snapshot, &stats);
            let bytes: Arc<dyn Source> = Arc::new(Memory::new(text.into_string().into_bytes()));
            Ok(bytes)
        };
        Arc::new(Made::new(self.stats_len(), make))
    }
}

impl Text {
    /// Adds a line, whose length does not depend on the numbers in it.
    fn stats_row(&mut self, path: &str, numbers: &[String]) {
        let numbers = numbers.iter().map(|number| format!("{number:>NUMBER$}"));
        self.row(std::iter::once(path.to_owned()).chain(numbers));
    }
}

/// A line for each array, with what is known of its numbers; `stats` may be shorter.
fn stats_tsv(snapshot: &Snapshot, stats: &[Result<Option<Stats>, Error>]) -> Text {
    let mut text = Text::default();
    let names = ["min", "max", "mean", "nan"].map(str::to_owned);
    text.stats_row("path", &names);
    for (i, array) in snapshot.arrays().iter().enumerate() {
        let found = match stats.get(i) {
            Some(Ok(found)) => *found,
            Some(Err(error)) => {
                warn!("info/stats.tsv: {error}");
                None
            }
            None => None,
        };
        text.stats_row(&array.path(), &columns(found));
    }
    text
}

/// Smallest, largest, mean and count of NaN; `-` for what there is not.
fn columns(stats: Option<Stats>) -> [String; 4] {
    let none = || "-".to_owned();
    let Some(Stats { range, mean, nan }) = stats else {
        return [none(), none(), none(), none()];
    };
    let (low, high) = range.unzip();
    [
        low.map_or_else(none, |low| low.to_string()),
        high.map_or_else(none, |high| high.to_string()),
        mean.map_or_else(none, |mean| format!("{mean:?}")),
        nan.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::source::read_all;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, Open, Opened, Result as Outcome};
    use crate::view::stats::Number;

    /// A program that reads in pieces got the beginning of one table and the end of another.
    #[test]
    fn who_reads_the_table_gets_one_of_them() -> Outcome<()> {
        let sample = |name: &str, value: &[u8]| {
            let text = format!(
                "#ASDF 1.0.0\n%YAML 1.1\n--- !<tag:stsci.edu:asdf/core/asdf-1.1.0>\n\
                {name}: !<tag:stsci.edu:asdf/core/ndarray-1.0.0> {{source: 0, datatype: uint8, byteorder: little, shape: [1]}}\n...\n"
            );
            Sample::new().text(text.as_bytes()).block(value)
        };
        let (dir, vfs) = writable(&sample("x", b"1"));
        let open = || vfs.open_now(Node::StatsTsv, Access::default());
        let shown = |opened: &Opened| {
            let Open::Data(open) = &opened.handle.open else {
                panic!("no data")
            };
            let source = open.current_source(&vfs.saves, &vfs.saves.reading())?;
            Outcome::<_>::Ok(read_all(&*source, 1 << 20)?)
        };
        let before = open()?;
        let first = shown(&before)?;
        let changed = sample("x", b"22").block(b"more");
        std::fs::write(dir.path().join("a.asdf"), changed.bytes()).unwrap();
        vfs.saves.refresh_soon();
        vfs.refresh();
        assert_ne!(shown(&open()?)?, first, "other elements");
        let refused = shown(&before).unwrap_err();
        assert!(refused.to_string().contains("open it again"), "{refused}");
        Ok(())
    }

    #[test]
    fn no_number_makes_a_line_longer() {
        let double = |low, high| Some((Number::Double(low), Number::Double(high)));
        let longest = Stats {
            range: double(f64::MIN, -f64::MIN_POSITIVE),
            mean: Some(-1.234_567_890_123_456_7e-300),
            nan: u64::MAX,
        };
        let (low, high) = (i64::MIN.into(), u64::MAX.into());
        let integers = Stats {
            range: Some((Number::Integer(low), Number::Integer(high))),
            ..longest
        };
        for stats in [None, Some(longest), Some(integers)] {
            let mut text = Text::default();
            text.stats_row("a", &columns(stats));
            assert_eq!(text.len(), 1 + 4 * 25 + 1);
        }
    }
}
