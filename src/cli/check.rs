//! `--check`: verifies structure, block index, checksums and tree, and says what it finds, a line each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use super::exit::{Exit, Failure};
use super::far::expanded;
use super::options::Options;
use super::progress::Progress;
use super::{Args, report, say_bytes};
use crate::asdf::Snapshot;
use crate::asdf::check::Validate;
use crate::asdf::checksum::{ChecksumState, md5};
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::{BlockIndex, Severity};
use crate::asdf::text_frame::oddities;
use crate::codec::cores::cores;
use crate::codec::{Cache, code_text};
use crate::collection::is_lack;
use crate::error::{Error, Place, printable};
use crate::save::edit::Edit;
use crate::save::{self, NotOpened, Recovery, Writer};

/// How bad a file is, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(into = "&'static str")]
enum Verdict {
    Clean,
    Suspicious,
    Damaged,
    Unchecked,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Clean => "ok",
            Self::Suspicious => "suspicious",
            Self::Damaged => "damaged",
            Self::Unchecked => "not checked",
        }
    }
}

impl From<Verdict> for &str {
    fn from(verdict: Verdict) -> Self {
        verdict.word()
    }
}

/// What a check found in one file. With `--json` this is the object that is printed.
#[derive(serde::Serialize)]
struct Findings<'a> {
    #[serde(rename = "file", serialize_with = "shown")]
    path: &'a Path,
    verdict: Verdict,
    blocks: Option<usize>,
    arrays: Option<usize>,
    #[serde(rename = "findings")]
    list: Vec<Remark>,
}

/// One finding.
#[derive(serde::Serialize)]
struct Remark {
    verdict: Verdict,
    text: String,
}

/// Writes a path as it is shown.
fn shown<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

impl<'a> Findings<'a> {
    /// Those of a file in which nothing was found yet.
    fn new(path: &'a Path) -> Self {
        Self {
            path,
            verdict: Verdict::Clean,
            blocks: None,
            arrays: None,
            list: Vec::new(),
        }
    }

    /// Takes in a finding. The file is as bad as its worst one.
    fn note(&mut self, verdict: Verdict, text: &str) {
        self.verdict = self.verdict.max(verdict);
        let text = text.to_owned();
        self.list.push(Remark { verdict, text });
    }

    /// A line of text for each finding.
    fn lines(&self) -> Vec<u8> {
        let path = self.path.display();
        let line = |Remark { verdict, text }: &Remark| {
            let line = format!("{path}: {}: {text}", verdict.word());
            format!("{}\n", printable(&line)).into_bytes()
        };
        self.list.iter().flat_map(line).collect()
    }
}

/// The exit statuses of a check of one file, from good to bad. Known damage is worse than a file that could not be read.
const SEVERITY: [Exit; 8] = [
    Exit::Ok,
    Exit::Other,
    Exit::Usage,
    Exit::Locked,
    Exit::File,
    Exit::Version,
    Exit::NotAsdf,
    Exit::Damaged,
];

/// Checks each file, and all files in each directory, on all cores. Prints the findings in the order of the files, and a last line
/// with counts if there are several. The status is that of the worst file.
pub(super) fn check(paths: &[PathBuf], options: &Options, how: &Args) -> Result<Exit, Failure> {
    let far = |path: &&PathBuf| how.repair && options.urls.has(path);
    if let Some(far) = paths.iter().find(far) {
        let why = format!("{}; leave out --repair", save::ONLY_READ);
        return Err(Failure::of(Exit::Usage, far, why));
    }
    let (files, options) = &expanded(paths, options)?;
    let check = Check {
        options,
        how,
        cache: Cache::new(options.cache),
        alone: files.len() == 1,
    };
    let mut tally = Totals {
        how,
        counts: BTreeMap::new(),
        worst: Exit::Ok,
    };
    // one file a thread: each is decoded on one core, and a directory uses all of them
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let (next, check) = (&next, &check);
        let work = move |sender: mpsc::Sender<_>| {
            // each thread takes the next file, until none is left or the receiver is gone
            while let n = next.fetch_add(1, Ordering::Relaxed)
                && let Some((path, found)) = files.get(n)
                && let checked = found.clone().and_then(|()| check.file(path))
                && sender.send((n, checked)).is_ok()
            {}
        };
        let threads = (0..cores().min(files.len())).map(|_| {
            let sender = sender.clone();
            thread::Builder::new().spawn_scoped(scope, move || work(sender))
        });
        if threads.flatten().count() == 0 {
            // without a thread, this one does their work
            work(sender.clone());
        }
        drop(sender);
        let total = u64::try_from(files.len()).unwrap_or(u64::MAX);
        let mut progress = Progress::new("checking", total, !check.alone);
        let mut done = BTreeMap::new();
        // threads end in any order, the lines come in that of the files
        let mut in_order = files.iter().zip(0_usize..).peekable();
        for (n, checked) in receiver {
            done.insert(n, checked);
            while let Some(((path, _), n)) = in_order.peek()
                && let Some(checked) = done.remove(n)
            {
                tally.tell(path, checked)?;
                progress.add(1);
                in_order.next();
            }
        }
        Ok::<(), Failure>(())
    })?;
    tally.end(files.len())
}

/// The outcomes of the files that have been checked.
struct Totals<'a> {
    how: &'a Args,
    /// How many files have each verdict.
    counts: BTreeMap<Verdict, usize>,
    worst: Exit,
}

impl Totals<'_> {
    /// Prints the findings of a file, and counts it.
    fn tell(
        &mut self,
        path: &Path,
        checked: Result<(Verdict, Vec<u8>), Failure>,
    ) -> Result<(), Failure> {
        let severity = |exit: &Exit| SEVERITY.iter().position(|known| known == exit);
        let (verdict, exit) = match checked {
            Ok((verdict, lines)) => {
                say_bytes(&lines)?;
                let exit = match verdict {
                    Verdict::Clean => Exit::Ok,
                    Verdict::Suspicious | Verdict::Unchecked => Exit::Other,
                    Verdict::Damaged => Exit::Damaged,
                };
                (verdict, exit)
            }
            Err(failure) => {
                super::complain(&failure.message);
                if self.how.json {
                    let mut findings = Findings::new(path);
                    findings.note(Verdict::Unchecked, failure.about(path));
                    say_bytes(&super::json_line(&findings)?)?;
                }
                (Verdict::Unchecked, failure.exit)
            }
        };
        let count = self.counts.entry(verdict).or_default();
        *count = count.saturating_add(1);
        // exit statuses have no order of their own: `SEVERITY` gives it
        let worst = [self.worst, exit].into_iter().max_by_key(severity);
        self.worst = worst.unwrap_or(exit);
        Ok(())
    }

    /// Prints how many files have each verdict, and gives the exit status.
    fn end(self, files: usize) -> Result<Exit, Failure> {
        if files > 1 && !self.how.json && !self.how.quiet {
            use Verdict as V;
            let counts = [V::Clean, V::Suspicious, V::Damaged, V::Unchecked].map(|verdict| {
                let count = self.counts.get(&verdict).copied().unwrap_or(0);
                format!("{count} {}", verdict.word())
            });
            let line = format!("{files} files: {}\n", counts.join(", "));
            say_bytes(line.as_bytes())?;
        }
        Ok(self.worst)
    }
}

/// How files are checked.
struct Check<'a> {
    options: &'a Options,
    how: &'a Args,
    /// Shared by all files, so that they stay within one budget of memory.
    cache: Arc<Cache>,
    /// Whether there is only one file: then its bytes are what the progress bar shows.
    alone: bool,
}

impl Check<'_> {
    /// An error of reading the data of a file, if it tells of the file. A lack of descriptors or memory, or a server that does not give what
    /// it has, does not: then the file is not checked.
    fn told_of(&self, path: &Path, error: Error) -> Result<Error, Failure> {
        let is_far = self.options.urls.has(path);
        let is_of_server = is_far && matches!(error, Error::Io { .. } | Error::Stale { .. });
        // neither a server that fails nor a lack of memory says anything of the file
        if is_of_server || is_lack(&error) {
            return Err(Failure::reading(path, &error));
        }
        Ok(error)
    }

    /// Checks one file. Gives the verdict and the lines to print.
    fn file(&self, path: &Path) -> Result<(Verdict, Vec<u8>), Failure> {
        let mut findings = Findings::new(path);
        let unwritable = if self.how.repair {
            mend(path, &mut findings)?
        } else {
            None
        };
        let cache = Arc::clone(&self.cache);
        let (snapshot, recovery) = report::read_with(path, self.options, cache)?;
        check_recovery(&recovery, &mut findings);
        check_structure(&snapshot, &mut findings);
        check_tree(&snapshot, &mut findings);
        if self.options.shown.validate != Validate::Off {
            check_rules(&snapshot, &mut findings);
        }
        check_blocks(self, &snapshot, &mut findings)?;
        if let Some(why) = unwritable.filter(|_| findings.verdict != Verdict::Clean) {
            findings.note(findings.verdict, &format!("not repaired: {why}"));
        }
        let (blocks, arrays) = (snapshot.layout().blocks.len(), snapshot.arrays().len());
        let verdict = findings.verdict;
        if verdict == Verdict::Clean && self.how.quiet {
            return Ok((verdict, Vec::new()));
        }
        let unused = Snapshot::unused_text(&snapshot.unused_blocks());
        if self.how.json {
            if let Some(unused) = unused {
                findings.note(Verdict::Clean, &unused);
            }
            (findings.blocks, findings.arrays) = (Some(blocks), Some(arrays));
            let line = super::json_line(&findings)?;
            return Ok((verdict, line));
        }
        let counts = (verdict == Verdict::Clean).then(|| super::counts(blocks, arrays));
        let rest: Vec<String> = counts.into_iter().chain(unused).collect();
        if !rest.is_empty() {
            findings.note(Verdict::Clean, &rest.join("; "));
        }
        Ok((verdict, findings.lines()))
    }
}

/// `--repair`: finishes an interrupted save, and rewrites a wrong block index. Checksums are never changed: a checksum that does not
/// match is the sign that data may be damaged, and must stay. Gives the reason if FILE can't be written.
fn mend(path: &Path, findings: &mut Findings<'_>) -> Result<Option<Error>, Failure> {
    let mut opened = match Writer::open(path, save::SaveOptions::default()) {
        Ok(opened) => opened,
        Err(NotOpened::Locked { .. }) => {
            let why = "mounted; unmount it to repair it";
            return Err(Failure::of(Exit::Locked, path, why));
        }
        // the check that follows says whether there is anything to repair
        Err(NotOpened::Unwritable(error)) => return Ok(Some(error)),
    };
    match &opened.recovery {
        Recovery::Redone => {
            findings.note(Verdict::Clean, "the interrupted save has been finished");
        }
        Recovery::Replaced(kept) => {
            let text = format!(
                "a save was interrupted{}",
                report::of_replaced(kept.as_deref())
            );
            findings.note(Verdict::Clean, &text);
        }
        Recovery::Clean | Recovery::Dropped | Recovery::Foreign(_) => {}
    }
    if matches!(opened.scan.layout.index, BlockIndex::Wrong(..)) {
        // a save of the same text writes what is wrong around it: the index
        let edit = Edit::text(opened.scan.text);
        let saved = opened.writer.commit(&edit, &mut |_| ());
        saved.map_err(|error| Failure::within(path, &error))?;
        findings.note(Verdict::Clean, "the block index has been rewritten");
    }
    Ok(None)
}

/// Notes what an interrupted save has left. It is damage only if the file has been changed since.
fn check_recovery(recovery: &Recovery, findings: &mut Findings<'_>) {
    match recovery {
        Recovery::Clean => {}
        Recovery::Redone => findings.note(
            Verdict::Suspicious,
            "a save was interrupted; the next mount, or --repair, finishes it",
        ),
        Recovery::Dropped => findings.note(
            Verdict::Suspicious,
            "a save was interrupted before it took effect; the next mount, or --repair, removes what it left",
        ),
        Recovery::Replaced(kept) => {
            let text = format!("a save was interrupted{}", report::of_replaced(kept.as_deref()));
            findings.note(Verdict::Suspicious, &text);
        }
        Recovery::Foreign(why) => {
            let text = format!("a save was interrupted, and the file changed since: {why}");
            findings.note(Verdict::Damaged, &text);
        }
    }
}

/// Notes what was found along the blocks. What costs data, or forbids a save, is damage.
fn check_structure(snapshot: &Snapshot, findings: &mut Findings<'_>) {
    for finding in &snapshot.layout().findings {
        let verdict = match finding.severity {
            Severity::Odd => Verdict::Suspicious,
            Severity::Partial | Severity::ReadOnly | Severity::Damaged => Verdict::Damaged,
        };
        findings.note(verdict, &finding.error.to_string());
    }
}

/// Notes what is wrong with the lines around the tree, with the tree itself, and with each array, for which other files are looked at.
fn check_tree(snapshot: &Snapshot, findings: &mut Findings<'_>) {
    let layout = snapshot.layout();
    if layout.dialect.writable {
        for odd in oddities(snapshot.text(), layout.has_tree) {
            findings.note(Verdict::Suspicious, &format!("tree: {odd}"));
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
            findings.note(verdict(&error), &error.to_string());
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

/// The verdict on an error: a feature that is not supported is no damage.
fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Unsupported { .. } => Verdict::Suspicious,
        _ => Verdict::Damaged,
    }
}

/// Reads every block: compares the checksum of its stored bytes, and decodes it. A block that decodes to more than `max-check` is not
/// decoded.
fn check_blocks(
    check: &Check<'_>,
    snapshot: &Snapshot,
    findings: &mut Findings<'_>,
) -> Result<(), Failure> {
    let options = check.options;
    let blocks = &snapshot.layout().blocks;
    let is_left_out =
        |header: &BlockHeader| header.is_transformed() && header.data_size > options.max_check;
    let cost = |header: &BlockHeader| {
        let decodes = header.is_transformed() && !is_left_out(header);
        let more = if decodes { header.data_size } else { 0 };
        header.used.saturating_add(more)
    };
    let total = blocks.iter().map(cost).fold(0, u64::saturating_add);
    let path = findings.path;
    let mut progress = Progress::new("checking", total, check.alone);
    let mut done = |bytes| {
        progress.add(bytes);
        if let Some(left) = progress.long_left() {
            let (path, minutes) = (path.display(), left.as_secs().div_ceil(60));
            super::complain(&format!(
                "{path}: checking all of its {total} bytes, decoded, takes about {minutes} minutes more; -o max-check=SIZE leaves out \
                 blocks that decode to more"
            ));
        }
    };
    for (n, header) in blocks.iter().enumerate() {
        if is_left_out(header) {
            check_stored(check, snapshot, n, &mut done, findings)?;
            continue;
        }
        match snapshot.verify_checksum(n, &mut done) {
            Err(error) => {
                let error = check.told_of(path, error)?.at(Place::Block(n));
                findings.note(Verdict::Damaged, &error.to_string());
            }
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
            && let Err(error) = snapshot.block(n).and_then(|block| md5(&*block, &mut done))
        {
            let error = check.told_of(path, error)?.at(Place::Block(n));
            findings.note(verdict(&error), &error.to_string());
            continue;
        }
        check_end(check, snapshot, n, header, findings)?;
    }
    Ok(())
}

/// Looks at what stands behind the data of a compressed block, which was decoded.
fn check_end(
    check: &Check<'_>,
    snapshot: &Snapshot,
    n: usize,
    header: &BlockHeader,
    findings: &mut Findings<'_>,
) -> Result<(), Failure> {
    let (code, len) = (code_text(header.compression), header.data_size);
    match snapshot.goes_on(n) {
        Ok(true) => {
            let text = format!("block {n}: the {code} stream goes on behind its {len} bytes");
            findings.note(Verdict::Suspicious, &text);
        }
        Err(error @ (Error::Io { .. } | Error::Unsupported { .. })) => {
            let error = check.told_of(findings.path, error)?.at(Place::Block(n));
            findings.note(verdict(&error), &error.to_string());
        }
        Ok(false) if snapshot.lacks_end(n) => {
            let text = format!(
                "block {n}: the {code} stream does not end as it should behind its {len} bytes; no checksum of its own tells whether \
                 they are right"
            );
            findings.note(Verdict::Suspicious, &text);
        }
        // any other damage of the block has been told above
        Ok(false) | Err(_) => {}
    }
    Ok(())
}

/// Reads the stored bytes of a block that is not decoded. `done` is told how many were read.
fn check_stored(
    check: &Check<'_>,
    snapshot: &Snapshot,
    n: usize,
    done: &mut dyn FnMut(u64),
    findings: &mut Findings<'_>,
) -> Result<(), Failure> {
    let Some(header) = snapshot.layout().blocks.get(n) else {
        return Ok(());
    };
    let stored = snapshot.stored(n);
    let sum = stored.and_then(|stored| md5(&*stored, done));
    let len = header.data_size;
    match sum {
        Err(error) => {
            let error = check.told_of(findings.path, error)?.at(Place::Block(n));
            findings.note(Verdict::Damaged, &error.to_string());
        }
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
    Ok(())
}
