//! `--check`: verifies structure, block index, checksums and tree, and says what it finds, a line each.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exit::{Exit, Failure};
use super::options::Options;
use super::progress::Progress;
use super::report::{self, Looked};
use super::say_bytes;
use crate::asdf::Snapshot;
use crate::asdf::check::Validate;
use crate::asdf::checksum::{ChecksumState, md5};
use crate::asdf::frame::{Oddity, oddities};
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::{Index, Severity};
use crate::error::{Error, Place, printable};
use crate::save::edit::Edit;
use crate::save::{self, Recovery, Refusal, Writer};

/// How long a check runs before it can be told how long it will.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// What takes less is not worth telling.
const WORTH_TELLING: Duration = Duration::from_mins(1);

/// How bad a file is, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Clean,
    Suspicious,
    Damaged,
}

/// The findings of one file.
struct Findings<'a> {
    path: &'a Path,
    verdict: Verdict,
    lines: Vec<u8>,
}

impl Findings<'_> {
    fn note(&mut self, verdict: Verdict, text: &str) {
        self.verdict = self.verdict.max(verdict);
        let word = match verdict {
            Verdict::Clean => "ok",
            Verdict::Suspicious => "suspicious",
            Verdict::Damaged => "damaged",
        };
        let line = format!("{}: {word}: {text}", self.path.display());
        // writing to a vector can't fail
        let _ = writeln!(self.lines, "{}", printable(&line));
    }
}

/// What a check of one file ends with, from good to bad: what is known to be damaged comes before what could not be looked at.
const SEVERITY: [Exit; 7] = [
    Exit::Ok,
    Exit::Other,
    Exit::Locked,
    Exit::File,
    Exit::Version,
    Exit::NotAsdf,
    Exit::Damaged,
];

/// Checks each file, after repairing what can be if that is wanted. The status is that of the worst.
pub(super) fn check(paths: &[PathBuf], options: &Options, repair: bool) -> Exit {
    let severity = |exit: &Exit| SEVERITY.iter().position(|known| known == exit);
    let status = |path: &PathBuf| match check_file(path, options, repair) {
        Ok(Verdict::Clean) => Exit::Ok,
        Ok(Verdict::Suspicious) => Exit::Other,
        Ok(Verdict::Damaged) => Exit::Damaged,
        Err(failure) => {
            super::complain(&failure.message);
            failure.exit
        }
    };
    let worst = paths.iter().map(status).max_by_key(severity);
    worst.unwrap_or(Exit::Ok)
}

fn check_file(path: &Path, options: &Options, repair: bool) -> Result<Verdict, Failure> {
    let mut findings = Findings {
        path,
        verdict: Verdict::Clean,
        lines: Vec::new(),
    };
    if repair {
        mend(path, &mut findings)?;
    }
    let Looked { snapshot, recovery } = report::read(path, options)?;
    check_recovery(&recovery, &mut findings);
    check_structure(&snapshot, &mut findings);
    check_tree(&snapshot, &mut findings);
    if options.validate != Validate::Off {
        check_rules(&snapshot, &mut findings);
    }
    check_blocks(&snapshot, options, &mut findings);
    if findings.verdict == Verdict::Clean {
        let layout = snapshot.layout();
        let text = format!(
            "{} blocks, {} arrays",
            layout.blocks.len(),
            snapshot.arrays().len()
        );
        findings.note(Verdict::Clean, &text);
    }
    say_bytes(&findings.lines)?;
    Ok(findings.verdict)
}

/// Finishes an interrupted save, and writes a block index that is wrong anew. Checksums are never changed: one that does not
/// match says that data may be damaged, and must go on saying it.
fn mend(path: &Path, findings: &mut Findings<'_>) -> Result<(), Failure> {
    let mut opened = match Writer::open(path, save::Options::default()) {
        Ok(opened) => opened,
        Err(Refusal::Locked { .. }) => {
            let why = format!("{}: mounted; unmount it to repair it", path.display());
            return Err(Failure::new(Exit::Locked, why));
        }
        Err(Refusal::Unwritable(error)) => {
            return Err(Failure::reading(path, &error));
        }
    };
    if opened.recovery == Recovery::Redone {
        findings.note(Verdict::Clean, "the interrupted save has been finished");
    }
    if matches!(opened.scan.layout.index, Index::Wrong(..)) {
        let edit = Edit::text(Arc::new(opened.scan.text));
        let saved = opened.writer.commit(&edit, &mut || ());
        saved.map_err(|error| Failure::reading(path, &error))?;
        findings.note(Verdict::Clean, "the block index has been written anew");
    }
    Ok(())
}

fn check_recovery(recovery: &Recovery, findings: &mut Findings<'_>) {
    match recovery {
        Recovery::Clean => {}
        Recovery::Redone => findings.note(
            Verdict::Suspicious,
            "a save was interrupted; the next mount, or --repair, finishes it",
        ),
        Recovery::Dropped => findings.note(
            Verdict::Suspicious,
            "a save was interrupted before it counted; the next mount, or --repair, clears it away",
        ),
        Recovery::Foreign(why) => {
            let text = format!("a save was interrupted, and the file changed since: {why}");
            findings.note(Verdict::Damaged, &text);
        }
    }
}

fn check_structure(snapshot: &Snapshot, findings: &mut Findings<'_>) {
    for finding in &snapshot.layout().findings {
        let verdict = match finding.severity {
            Severity::Odd => Verdict::Suspicious,
            Severity::Partial | Severity::Frozen | Severity::Damaged => Verdict::Damaged,
        };
        findings.note(verdict, &finding.error.to_string());
    }
}

fn check_tree(snapshot: &Snapshot, findings: &mut Findings<'_>) {
    let layout = snapshot.layout();
    if layout.dialect.writable {
        for odd in oddities(snapshot.text(), layout.has_tree) {
            let Oddity { place, why, advice } = odd;
            findings.note(
                Verdict::Suspicious,
                &format!("tree: {place}: {why}; {advice}"),
            );
        }
    }
    match snapshot.tree() {
        None => {}
        Some(Err(error)) => findings.note(Verdict::Damaged, &format!("tree: {error}")),
        Some(Ok(tree)) => {
            for (place, warning) in tree.warnings().places(tree) {
                findings.note(
                    Verdict::Suspicious,
                    &format!("tree: {place}: {}", warning.message),
                );
            }
        }
    }
    for array in snapshot.arrays() {
        snapshot.look_for(array);
        if let Some(error) = array.problem() {
            findings.note(verdict(error), &error.to_string());
        }
    }
    for limit in snapshot.limits() {
        findings.note(verdict(limit), &format!("tree: {limit}"));
    }
}

/// The rules of the core tags.
fn check_rules(snapshot: &Snapshot, findings: &mut Findings<'_>) {
    let faults = snapshot.faults();
    for fault in &faults.list {
        findings.note(Verdict::Suspicious, &format!("tree: {fault}"));
    }
    if faults.cut {
        let text = "tree: too much breaks the rules of the core tags; not all of it is listed";
        findings.note(Verdict::Suspicious, text);
    }
}

/// What is not supported is not damaged.
fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Unsupported { .. } => Verdict::Suspicious,
        _ => Verdict::Damaged,
    }
}

/// Reads every block: its stored bytes for the checksum, and whether it decodes. Of those that decode to more than `max-check` only
/// the stored bytes.
fn check_blocks(snapshot: &Snapshot, options: &Options, findings: &mut Findings<'_>) {
    let blocks = &snapshot.layout().blocks;
    let is_left_out =
        |header: &BlockHeader| header.is_transformed() && header.data_size > options.max_check;
    let cost = |header: &BlockHeader| {
        let decodes = header.is_transformed() && !is_left_out(header);
        let more = if decodes { header.data_size } else { 0 };
        header.used.saturating_add(more)
    };
    let total = blocks.iter().map(cost).fold(0, u64::saturating_add);
    let mut work = LongWork::new(findings.path, total);
    for (n, header) in blocks.iter().enumerate() {
        if is_left_out(header) {
            check_stored(snapshot, n, header, &mut work, findings);
            continue;
        }
        match snapshot.verify_checksum(n, &mut |bytes| work.add(bytes)) {
            Err(error) => findings.note(Verdict::Damaged, &error.at(Place::Block(n)).to_string()),
            Ok(ChecksumState::Wrong) => {
                findings.note(
                    Verdict::Damaged,
                    &format!("block {n}: the checksum does not match"),
                );
            }
            Ok(_) => {}
        }
        if header.is_transformed()
            && snapshot.checksum_state(n) != ChecksumState::Decoded
            && let Err(error) = snapshot
                .block(n)
                .and_then(|block| md5(&*block, &mut |bytes| work.add(bytes)))
        {
            let error = error.at(Place::Block(n));
            findings.note(verdict(&error), &error.to_string());
        }
    }
}

/// Reads the stored bytes of a block that is not decoded.
fn check_stored(
    snapshot: &Snapshot,
    n: usize,
    header: &BlockHeader,
    work: &mut LongWork<'_>,
    findings: &mut Findings<'_>,
) {
    let stored = snapshot.stored(n);
    let sum = stored.and_then(|stored| md5(&*stored, &mut |bytes| work.add(bytes)));
    let len = header.data_size;
    match sum {
        Err(error) => findings.note(Verdict::Damaged, &error.at(Place::Block(n)).to_string()),
        Ok(sum) => {
            let matches = header.has_checksum() && sum == header.checksum;
            let but = if matches {
                "its checksum matches"
            } else {
                "its checksum was not verified"
            };
            let text = format!(
                "block {n}: not decoded, because max-check allows less than its {len} bytes; {but}"
            );
            findings.note(Verdict::Suspicious, &text);
        }
    }
}

/// Work whose end may be far off: a short file can decode to terabytes. Says so once, wherever standard error goes.
struct LongWork<'a> {
    path: &'a Path,
    progress: Progress,
    begun: Instant,
    total: u64,
    done: u64,
    said: bool,
}

impl<'a> LongWork<'a> {
    fn new(path: &'a Path, total: u64) -> Self {
        Self {
            path,
            progress: Progress::new("checking", total),
            begun: Instant::now(),
            total,
            done: 0,
            said: false,
        }
    }

    /// So many more bytes are done.
    fn add(&mut self, bytes: u64) {
        self.progress.add(bytes);
        self.done = self.done.saturating_add(bytes);
        if let Some(left) = (!self.said)
            .then(|| time_left(self.begun.elapsed(), self.done, self.total))
            .flatten()
        {
            self.said = true;
            let (path, total) = (self.path.display(), self.total);
            super::complain(&format!(
                "{path}: checking all of its {total} bytes, decoded, takes about {} minutes more; -o max-check=SIZE leaves out \
                 blocks that decode to more",
                left.as_secs().div_ceil(60)
            ));
        }
    }
}

/// What is left of a long work, if that can be told by now and is worth telling.
fn time_left(elapsed: Duration, done: u64, total: u64) -> Option<Duration> {
    let left = u128::from(total.saturating_sub(done));
    let millis = elapsed
        .as_millis()
        .saturating_mul(left)
        .checked_div(u128::from(done))?;
    let left = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    (elapsed >= FIRST_LOOK && left >= WORTH_TELLING).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_work_that_goes_on_for_long_is_told_of() {
        let seconds = Duration::from_secs;
        let tib = 1 << 40;
        assert_eq!(time_left(seconds(1), 1 << 30, tib), None, "not known yet");
        assert_eq!(time_left(seconds(10), 1 << 34, tib), Some(seconds(630)));
        assert_eq!(time_left(seconds(10), tib / 2, tib), None, "soon done");
        assert_eq!(time_left(seconds(10), 0, tib), None);
        assert!(time_left(seconds(10), 1, u64::MAX).is_some());
    }
}
