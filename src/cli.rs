//! The command line: what it accepts, what it prints, how it ends. The manual is its contract.

mod advice;
mod check;
mod closed_output;
mod compact;
mod completions;
#[cfg(feature = "fuse")]
mod daemon;
#[cfg(feature = "fuse")]
mod edit;
#[cfg(feature = "fuse")]
mod ending;
mod exit;
mod explode;
mod far;
mod files;
#[cfg(feature = "fuse")]
mod idle;
#[cfg(feature = "fuse")]
mod inherited;
mod interrupt;
mod limits;
#[cfg(feature = "fuse")]
mod log;
#[cfg(feature = "fuse")]
mod mountpoint;
#[cfg(feature = "fuse")]
mod on_refuse;
#[cfg(feature = "fuse")]
mod opening;
mod options;
mod page;
#[cfg(feature = "fuse")]
mod pid_file;
mod preview;
mod progress;
mod references;
mod report;
#[cfg(feature = "fuse")]
mod sources;
#[cfg(feature = "fuse")]
mod turn;
mod unmount;
mod usage;

use std::ffi::OsString;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::error::ContextKind;
use clap::{ArgAction, CommandFactory, Parser, ValueHint};

use closed_output::{printed, unprinted};
use completions::Shell;
use exit::{Exit, Failure};
use far::Urls;
use options::effect::{self, Reads};
use options::{Action, Options};

use crate::error::{Error, printable};

/// How long `-u` waits for each daemon by default.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(15);

/// The manual pages, as mdoc(7) has them.
const MANUAL: &[u8] = include_bytes!("../man/asdf-mount.1");
const SEMANTICS: &[u8] = include_bytes!("../man/asdf-mount-semantics.7");
const COOKBOOK: &[u8] = include_bytes!("../man/asdf-mount-cookbook.7");

/// Mounts an ASDF file as a directory: its tree as a text file, its blocks and arrays as data files.
#[derive(Debug, Parser)]
#[command(
    name = "asdf-mount",
    version,
    disable_help_flag = true,
    override_usage = usage::usage(),
    after_help = usage::AFTER_HELP,
    after_long_help = format!("{}\n\n{}", options::table::help(), usage::AFTER_HELP),
    max_term_width = 100
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Args {
    /// Mount options, separated by commas; -o help lists them
    #[arg(short, value_name = "OPT[,OPT...]")]
    options: Vec<String>,
    /// Mount read-only; the same as -o ro
    #[arg(short, long, alias = "ro", short_alias = 'R')]
    read_only: bool,
    /// Stay in the foreground
    // a program that mounts for its container may add another -f
    #[arg(short, long, overrides_with = "foreground")]
    foreground: bool,
    /// Stay in the foreground and log each request
    #[arg(short, long)]
    debug: bool,
    /// Print errors only; with --check or --list, problems only
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Besides errors, log each mount, unmount and save
    #[arg(short, long)]
    verbose: bool,
    /// Edit the tree of FILE in $VISUAL or $EDITOR: mount FILE, run the editor, unmount
    #[arg(long, group = "action")]
    edit: bool,
    /// Unmount each MOUNTPOINT, and wait for the end of its daemon (the background process)
    #[arg(short, long, group = "action")]
    unmount: bool,
    /// With -u: how long to wait for each daemon, in seconds [default: 15]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Undo a refused (invalid) edit: show the saved tree again
    #[arg(long, group = "action")]
    revert: bool,
    /// With -u or --revert: go on even if a refused text is only in memory; the text is then lost
    #[arg(long)]
    discard: bool,
    /// Find corrupt data: verify the structure, block index, checksums and tree of each FILE or DIR
    #[arg(long, group = "action")]
    check: bool,
    /// With --check: before the check, finish an interrupted save and rewrite a wrong block index
    #[arg(long)]
    repair: bool,
    /// Print what a mount of each FILE or DIR would show, with sizes
    #[arg(long, group = "action")]
    list: bool,
    /// With --list: also print the smallest, largest and mean number of each array, and how many are NaN
    #[arg(long)]
    stats: bool,
    /// Print the tree of FILE, its YAML text
    #[arg(long, group = "action")]
    tree: bool,
    /// With --list, --check or --tree: print one line of JSON for each FILE
    #[arg(long)]
    json: bool,
    /// Write a PNG picture of the array at PATH to OUT; without PATH, of several arrays side by side
    #[arg(long, value_name = "OUT", group = "action", value_hint = ValueHint::FilePath)]
    preview: Option<PathBuf>,
    /// Write an HTML page to OUT: the tree, pictures and statistics of FILE or DIR
    #[arg(long, value_name = "OUT", group = "action", value_hint = ValueHint::FilePath)]
    page: Option<PathBuf>,
    /// With --preview: the longest side of the picture, in pixels (16 to 2048)
    #[arg(long, value_name = "N", value_parser = options::picture_size)]
    size: Option<u16>,
    /// Print where the arrays of FILE or DIR lie (JSON for kerchunk), so that xarray reads them without this program
    #[arg(long, group = "action")]
    references: bool,
    /// Write FILE to DIR in exploded form: a file for the tree, and one for each block that an array uses
    #[arg(long, value_name = "DIR", group = "action", value_hint = ValueHint::DirPath)]
    explode: Option<PathBuf>,
    /// Undo --explode: write FILE, and the data that it has in other files, to OUT
    #[arg(long, value_name = "OUT", group = "action")]
    implode: Option<PathBuf>,
    /// Write FILE to OUT without the blocks that no array uses
    #[arg(long, value_name = "OUT", group = "action", value_hint = ValueHint::FilePath)]
    compact: Option<PathBuf>,
    /// Write the process ID of the daemon to this file
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Log to this file instead of syslog
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Mount the files whose paths are in this file, one a line; - is standard input
    #[arg(long, value_name = "LIST")]
    files_from: Option<PathBuf>,
    /// With --files-from: paths end in NUL instead of a line feed
    #[arg(short = '0')]
    nul: bool,
    /// Print a completion script
    #[arg(long, value_name = "SHELL", group = "action")]
    completions: Option<Shell>,
    /// Show the manual; if output is not a terminal, print its source
    #[arg(long, group = "action")]
    man: bool,
    /// Show the manual page on layout, saves, errors and limits
    #[arg(long, group = "action")]
    semantics: bool,
    /// Show the manual page with recipes
    #[arg(long, group = "action")]
    cookbook: bool,
    /// Print this help; -h leaves out the mount options
    #[arg(short, long, action = ArgAction::Help)]
    help: (),
    /// FILE is an ASDF file. DIR stands for all *.asdf files below it. A URL begins with https://, http://, s3://, gs://, az:// or
    /// file://. MOUNTPOINT is the directory to mount on; by default, x.asdf is mounted on x in the working directory
    #[arg(value_name = "FILE|DIR|URL]... [MOUNTPOINT")]
    paths: Vec<PathBuf>,
}

impl Args {
    /// What the flags ask for; no two such flags can be given.
    fn action(&self) -> Action<'_> {
        match self {
            Self { edit: true, .. } => Action::Edit,
            Self { unmount: true, .. } => Action::Unmount,
            Self { revert: true, .. } => Action::Revert,
            Self { check: true, .. } => Action::Check,
            Self { list: true, .. } => Action::List,
            Self { tree: true, .. } => Action::Tree,
            Self {
                references: true, ..
            } => Action::References,
            Self { man: true, .. } => Action::Man,
            Self {
                semantics: true, ..
            } => Action::Semantics,
            Self { cookbook: true, .. } => Action::Cookbook,
            _ => (self.explode.as_deref().map(Action::Explode))
                .or_else(|| self.preview.as_deref().map(Action::Preview))
                .or_else(|| self.page.as_deref().map(Action::Page))
                .or_else(|| self.implode.as_deref().map(Action::Implode))
                .or_else(|| self.compact.as_deref().map(Action::Compact))
                .or_else(|| self.completions.map(Action::Completions))
                .unwrap_or(Action::Mount),
        }
    }

    /// Whether this process serves the mount itself, instead of starting one in the background.
    #[cfg(feature = "fuse")]
    fn is_foreground(&self) -> bool {
        self.foreground || self.debug
    }

    /// Whether the paths of files come from standard input. The daemon has another one, unless it needs this.
    #[cfg(feature = "fuse")]
    fn reads_input(&self) -> bool {
        let list = self.files_from.as_deref();
        list.is_some_and(sources::is_input)
    }

    /// Refuses the first flag that was given and makes no difference to the action.
    fn check_effect(&self, action: Action<'_>) -> Result<(), Failure> {
        let mounts = matches!(action, Action::Mount);
        let checks = matches!(action, Action::Check);
        let lists = matches!(action, Action::List);
        let unmounts = matches!(action, Action::Unmount);
        let looks = checks || lists || matches!(action, Action::Tree);
        let gives_up = unmounts || matches!(action, Action::Revert);
        let draws = matches!(action, Action::Preview(_));
        let from_list = self.files_from.is_some();
        let flags = [
            ("--read-only", self.read_only, mounts, "a mount"),
            ("--foreground", self.foreground, mounts, "a mount"),
            ("--debug", self.debug, mounts, "a mount"),
            (
                "--quiet",
                self.quiet,
                mounts || checks || lists,
                "a mount, --check and --list",
            ),
            ("--verbose", self.verbose, mounts, "a mount"),
            ("--pid-file", self.pid_file.is_some(), mounts, "a mount"),
            ("--log-file", self.log_file.is_some(), mounts, "a mount"),
            ("--files-from", from_list, mounts, "a mount"),
            ("--json", self.json, looks, "--list, --check and --tree"),
            ("--discard", self.discard, gives_up, "-u and --revert"),
            ("--timeout", self.timeout.is_some(), unmounts, "-u"),
            ("--repair", self.repair, checks, "--check"),
            ("--stats", self.stats, lists, "--list"),
            ("--size", self.size.is_some(), draws, "--preview"),
            ("-0", self.nul, from_list, "--files-from"),
        ];
        let unheeded = flags.iter().find(|(_, given, heeded, _)| *given && !heeded);
        unheeded.map_or(Ok(()), |(flag, .., of)| {
            let there = format!("{}, only with {of}", action.name());
            Err(effect::idle(flag, &there))
        })
    }
}

/// So many of a thing, in words.
fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// So many blocks and arrays, in words.
fn counts(blocks: usize, arrays: usize) -> String {
    format!("{}, {}", counted(blocks, "block"), counted(arrays, "array"))
}

/// Runs the program. Its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    run_with(&arguments)
}

/// Runs the program with these arguments, the first of which is its name.
fn run_with(arguments: &[OsString]) -> ExitCode {
    let mut args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(mut error) => {
            if error.use_stderr() {
                error.remove(ContextKind::Usage);
                if arguments.iter().any(|argument| argument.is_empty()) {
                    complain("an argument is empty; is a variable of the shell not set?");
                    return Exit::Usage.into();
                }
                complain(&usage::complaint(&error.render().to_string()));
                for advice in advice::for_arguments(arguments) {
                    complain(&advice);
                }
                return Exit::Usage.into();
            }
            let printed = printed(error.print());
            return printed.map_or_else(Failure::told, |()| Exit::Ok).into();
        }
    };
    limits::set_up();
    dispatch(&mut args, arguments)
        .unwrap_or_else(Failure::told)
        .into()
}

/// Takes the URLs out of the arguments, so that no message shows what is secret in them, refuses flags and options that make no
/// difference, and does what is asked for. Of a mount, options are checked later: by then its files are known.
fn dispatch(args: &mut Args, arguments: &[OsString]) -> Result<Exit, Failure> {
    let told = Urls::from_environment();
    let mut urls = told.clone();
    // what a URL is called may be the text of another one, but not to the daemon, which is told each that it could mistake
    for path in args.paths.iter_mut().filter(|path| !told.has(path)) {
        *path = urls.take(path)?;
    }
    let action = args.action();
    args.check_effect(action)?;
    if args.options.iter().any(|list| list == "help") {
        say_bytes(format!("{}\n", options::table::help()).as_bytes())?;
        return Ok(Exit::Ok);
    }
    let mut options = Options::parse(&args.options)?;
    options.read_only |= args.read_only;
    if !matches!(action, Action::Mount) {
        // what a mount reads is known when the list of its files has been read
        let looks = matches!(
            action,
            Action::Check
                | Action::List
                | Action::Preview(_)
                | Action::Page(_)
                | Action::References
        );
        let reads = Reads {
            far: args.paths.iter().any(|path| urls.has(path)),
            directory: looks && args.paths.iter().any(|path| path.is_dir()),
            ..Reads::default()
        };
        options.check_effect(action, reads)?;
    }
    options.urls = urls;
    perform(args, &options, arguments)
}

/// Does what is asked for with the paths that are given, or says which paths are missing, mistaken for each other, or too many.
fn perform(args: &Args, options: &Options, arguments: &[OsString]) -> Result<Exit, Failure> {
    let action = args.action();
    let which =
        |what: &str| Failure::new(Exit::Usage, format!("which {what}? Try asdf-mount --help"));
    match (action, args.paths.as_slice()) {
        (Action::Man, []) => show_page(MANUAL),
        (Action::Semantics, []) => show_page(SEMANTICS),
        (Action::Cookbook, []) => show_page(COOKBOOK),
        (Action::Completions(shell), []) => {
            say_bytes(completions::script(shell, &Args::command()).as_bytes())?;
            Ok(Exit::Ok)
        }
        (Action::Unmount | Action::Revert, []) => Err(which("MOUNTPOINT")),
        (Action::Mount, []) if args.files_from.is_some() => Err(which("MOUNTPOINT")),
        (Action::Revert, [mountpoint]) => unmount::revert(mountpoint, &options.urls, args.discard),
        (Action::Unmount, mountpoints) => {
            let given = args.timeout.map(|limit| Duration::from_secs(limit.into()));
            let limit = given.unwrap_or(UNMOUNT_TIMEOUT);
            let urls = &options.urls;
            Ok(unmount::all(mountpoints, urls, limit, args.discard))
        }
        (_, []) => Err(which("FILE")),
        (Action::Check, files) => check::check(files, options, args),
        (Action::Tree, [file]) => report::tree(file, options, args.json),
        (Action::References, [file]) => references::print(file, options),
        (Action::Preview(out), [file, path @ ..]) if path.len() < 2 => {
            preview::write(out, file, path.first(), options, args.size)
        }
        (Action::Page(out), [path]) => page::write(out, path, options),
        (Action::List, files) => report::list(files, options, args),
        (Action::Explode(file), [directory]) if file.is_file() && !directory.is_file() => {
            let (file, directory) = (file.display(), directory.display());
            let why = format!("{file}: a file; did you mean --explode {directory} {file}?");
            Err(Failure::new(Exit::Usage, why))
        }
        (Action::Explode(directory), [file]) => explode::explode(directory, file, options),
        (Action::Implode(out), [file]) => explode::implode(out, file, options),
        (Action::Compact(out), [file]) => compact::compact(out, file, options),
        (Action::Mount, paths) => mount_paths(args, options, paths, arguments),
        (Action::Edit, file @ [_]) => mount(args, options, file, None, arguments),
        #[cfg(feature = "fuse")]
        (Action::Edit, [file @ .., mountpoint]) if daemon::is_daemon() => {
            mount(args, options, file, Some(mountpoint), arguments)
        }
        (_, [.., last]) => {
            let why = format!("{}: one argument too many", last.display());
            Err(Failure::new(Exit::Usage, why))
        }
    }
}

/// Mounts what the paths name, the last of which is the mountpoint, if there is one.
fn mount_paths(
    args: &Args,
    options: &Options,
    paths: &[PathBuf],
    arguments: &[OsString],
) -> Result<Exit, Failure> {
    let refuse = |why: String| Err(Failure::new(Exit::Usage, why));
    match paths {
        [mountpoint] if args.files_from.is_some() => {
            mount(args, options, &[], Some(mountpoint), arguments)
        }
        file @ [_] => mount(args, options, file, None, arguments),
        [.., url] if options.urls.has(url) => {
            let url = url.display();
            refuse(format!(
                "{url}: a URL; name the MOUNTPOINT behind the FILEs"
            ))
        }
        [directory, file] if directory.is_dir() && is_file(file) => {
            let (file, directory) = (file.display(), directory.display());
            refuse(format!(
                "{directory}: a directory; did you mean asdf-mount {file} {directory}?"
            ))
        }
        [_, _, .., file] if is_file(file) => {
            let file = file.display();
            refuse(format!(
                "{file}: a file; name the MOUNTPOINT behind the FILEs"
            ))
        }
        [files @ .., mountpoint] => mount(args, options, files, Some(mountpoint), arguments),
        [] => refuse("which FILE? Try asdf-mount --help".to_owned()),
    }
}

/// Whether a regular file is named where a mountpoint should be. A path in one of our mounts is not looked at: its daemon may be stopped,
/// and the call would not return.
fn is_file(mountpoint: &Path) -> bool {
    let whole = unmount::find::without_links(mountpoint);
    unmount::find::around(&whole).is_none() && mountpoint.is_file()
}

/// Refuses: this program is built without FUSE.
#[cfg(not(feature = "fuse"))]
fn mount(
    _args: &Args,
    _options: &Options,
    _files: &[PathBuf],
    _mountpoint: Option<&Path>,
    _arguments: &[OsString],
) -> Result<Exit, Failure> {
    Err(Failure::new(
        Exit::NoFuse,
        "built without FUSE: only --check, --list, --tree, --preview, --page, --references, --explode, --implode and --compact work",
    ))
}

/// Starts the daemon, which is this program once more, or becomes it. In the daemon, serves the mount.
#[cfg(feature = "fuse")]
fn mount(
    args: &Args,
    options: &Options,
    files: &[PathBuf],
    mountpoint: Option<&Path>,
    arguments: &[OsString],
) -> Result<Exit, Failure> {
    if !daemon::is_daemon() {
        limits::check_null()?;
        if args.edit {
            return edit::edit(files, options, arguments);
        }
        return if args.is_foreground() {
            daemon::become_daemon(arguments)
        } else {
            daemon::start(arguments, args.reads_input() || options.until_eof)
        };
    }
    daemon::serve(args, options, files, mountpoint)
}

/// Shows a manual page with man(1), or prints its source if there is no terminal or no man(1).
fn show_page(page: &[u8]) -> Result<Exit, Failure> {
    if std::io::stdout().is_terminal() {
        let man = Command::new("man")
            .args(["-l", "-"])
            .stdin(Stdio::piped())
            .spawn();
        if let Ok(mut man) = man {
            if let Some(mut input) = man.stdin.take() {
                // a reader that leaves early has seen enough
                let _ = input.write_all(page);
            }
            if man.wait().is_ok_and(|status| status.success()) {
                return Ok(Exit::Ok);
            }
        }
    }
    say_bytes(page)?;
    Ok(Exit::Ok)
}

/// The absolute path of FILE, without symbolic links.
fn resolve(file: &Path) -> Result<PathBuf, Failure> {
    let fail = |cause| Failure::reading(file, &Error::io(file.display().to_string(), cause));
    // asked first: /dev/stdin may lead to a pipe, which has no path
    if let Ok(kind) = file.metadata().map(|meta| meta.file_type())
        && !kind.is_file()
    {
        let why = if kind.is_fifo() {
            "a pipe can't be read; save what comes through it to a file first"
        } else {
            "not a file; name the ASDF file itself"
        };
        return Err(Failure::of(Exit::File, file, why));
    }
    match file.canonicalize() {
        Err(cause) if cause.kind() == ErrorKind::NotFound => Err(advice::instead_of_missing(file)
            .map_or_else(|| fail(cause), |why| Failure::new(Exit::File, why))),
        path => path.map_err(fail),
    }
}

/// Prints one line on standard error.
fn complain(message: &str) {
    // if standard error is gone nothing can be said
    let line = format!("asdf-mount: {}", printable(message));
    let _ = write_line(&mut std::io::stderr().lock(), &line);
}

/// Writes a line with one call of the system, so that it is not mixed with lines of other processes.
fn write_line(out: &mut impl Write, line: &str) -> std::io::Result<()> {
    out.write_all(format!("{line}\n").as_bytes())
}

/// An object as one line of JSON on standard output.
fn print_line(object: &impl serde::Serialize) -> Result<(), Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = serde_json::to_writer(&mut out, object).map_err(std::io::Error::from);
    printed(
        written
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush()),
    )
}

/// The same line in memory, for an object that is short.
fn json_line(object: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    let line = serde_json::to_vec(object).map_err(|error| unprinted(&error.into()));
    let mut line = line?;
    line.push(b'\n');
    Ok(line)
}

/// Text on standard output.
fn say_bytes(text: &[u8]) -> Result<(), Failure> {
    // nothing is lost on an output that cannot be written
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    printed(out.write_all(text).and_then(|()| out.flush()))
}

/// Whether standard error is a terminal: only there are progress and success shown.
fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_may_stand_behind_the_files() {
        let line = ["asdf-mount", "a.asdf", "/mnt", "-o", "ro,cache=1M", "-f"];
        let args = Args::try_parse_from(line).unwrap();
        assert_eq!(args.paths, ["a.asdf", "/mnt"].map(PathBuf::from));
        assert_eq!(args.options, ["ro,cache=1M"]);
        assert!(args.foreground);
    }
}
