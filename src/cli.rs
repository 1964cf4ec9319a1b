//! The command line: what it accepts, what it prints, how it ends. The manual is its contract.

mod check;
#[cfg(feature = "fuse")]
mod daemon;
mod exit;
mod explode;
mod limits;
#[cfg(feature = "fuse")]
mod log;
#[cfg(feature = "fuse")]
mod memory;
mod options;
mod progress;
mod report;
mod unmount;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use exit::{Exit, Failure};
use options::{Action, Options};

use crate::error::{Error, printable};

/// The ways to call the program.
const USAGE: &str = "\
asdf-mount [OPTIONS] FILE [MOUNTPOINT]
       asdf-mount -u MOUNTPOINT...
       asdf-mount --check [--repair] [-o OPT[,OPT...]] FILE...
       asdf-mount --list [-o OPT[,OPT...]] FILE
       asdf-mount --explode DIR [-o OPT[,OPT...]] FILE
       asdf-mount --implode OUT [-o OPT[,OPT...]] FILE";

/// What `--help` says behind the options.
const AFTER_HELP: &str = "\
Unmount with `umount MOUNTPOINT`, `fusermount3 -u MOUNTPOINT` or `asdf-mount -u MOUNTPOINT`.
The manual, asdf-mount(1), has all -o options, the layout of the mount and the exit statuses.";

/// Mounts an ASDF file as a directory: the tree as a text file, blocks and arrays as data files.
#[derive(Debug, Parser)]
#[command(
    name = "asdf-mount",
    version,
    override_usage = USAGE,
    after_help = AFTER_HELP,
    max_term_width = 100
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Args {
    /// Mount options; may be given several times
    #[arg(short, value_name = "OPT[,OPT...]")]
    options: Vec<String>,
    /// Mount read-only; the same as -o ro
    #[arg(short, long)]
    read_only: bool,
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Stay in the foreground and log each request
    #[arg(short, long)]
    debug: bool,
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Log more
    #[arg(short, long)]
    verbose: bool,
    /// Unmount each MOUNTPOINT and wait until its daemon is gone
    #[arg(short, long, group = "action")]
    unmount: bool,
    /// With --unmount: how long to wait for each daemon
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "unmount",
        default_value_t = 15
    )]
    timeout: u32,
    /// With --unmount: even if a refused tree is in memory only, which is lost then
    #[arg(long, requires = "unmount")]
    discard: bool,
    /// Verify structure, block index, checksums and tree of each FILE
    #[arg(long, group = "action")]
    check: bool,
    /// With --check: finish interrupted saves, and write a wrong block index anew
    #[arg(long, requires = "check")]
    repair: bool,
    /// Print what a mount of FILE would show, with sizes
    #[arg(long, group = "action")]
    list: bool,
    /// Write FILE to DIR as a tree and one file for each block
    #[arg(long, value_name = "DIR", group = "action")]
    explode: Option<PathBuf>,
    /// Write FILE to OUT with the blocks that it names in other files
    #[arg(long, value_name = "OUT", group = "action")]
    implode: Option<PathBuf>,
    /// Write the daemon's process id to this file
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Log to this file instead of syslog
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Print a completion script
    #[arg(long, value_name = "SHELL", group = "action", value_parser = ["bash", "zsh", "fish"])]
    completions: Option<String>,
    /// The ASDF file, and the directory to mount on; without that, one named after FILE is made here
    #[arg(value_name = "FILE] [MOUNTPOINT")]
    paths: Vec<PathBuf>,
}

impl Args {
    fn action(&self) -> Action<'_> {
        match self {
            Self { unmount: true, .. } => Action::Unmount,
            Self { check: true, .. } => Action::Check,
            Self { list: true, .. } => Action::List,
            _ => (self.explode.as_deref().map(Action::Explode))
                .or_else(|| self.implode.as_deref().map(Action::Implode))
                .or_else(|| self.completions.as_deref().map(Action::Completions))
                .unwrap_or(Action::Mount),
        }
    }

    /// The first flag that only a mount takes heed of.
    fn flag_of_mounts(&self) -> Option<&'static str> {
        let flags = [
            ("--read-only", self.read_only),
            ("--foreground", self.foreground),
            ("--debug", self.debug),
            ("--quiet", self.quiet),
            ("--verbose", self.verbose),
            ("--pid-file", self.pid_file.is_some()),
            ("--log-file", self.log_file.is_some()),
        ];
        let given = flags.iter().find(|(_, given)| *given);
        given.map(|(flag, _)| *flag)
    }
}

/// Runs the program. Its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    run_with(&arguments)
}

fn run_with(arguments: &[OsString]) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            let status = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            };
            // without a terminal there is no reader
            let _ = error.print();
            return status.into();
        }
    };
    limits::set_up();
    match dispatch(&args, arguments) {
        Ok(status) => status.into(),
        Err(failure) => {
            complain(&failure.message);
            failure.exit.into()
        }
    }
}

fn dispatch(args: &Args, arguments: &[OsString]) -> Result<Exit, Failure> {
    let action = args.action();
    let idle = args
        .flag_of_mounts()
        .filter(|_| !matches!(action, Action::Mount));
    if let Some(flag) = idle {
        return Err(action.idle(flag));
    }
    let options = Options::parse(&args.options, action)?;
    let which =
        |what: &str| Failure::new(Exit::Usage, format!("which {what}? Try asdf-mount --help"));
    let too_many = |path: &Path| {
        let why = format!("{}: one argument too many", path.display());
        Err(Failure::new(Exit::Usage, why))
    };
    match (action, args.paths.as_slice()) {
        (Action::Completions(shell), []) => completions(shell),
        (Action::Unmount, []) => Err(which("MOUNTPOINT")),
        (Action::Unmount, mountpoints) => {
            let limit = Duration::from_secs(args.timeout.into());
            Ok(unmount::all(mountpoints, limit, args.discard))
        }
        (_, []) => Err(which("FILE")),
        (Action::Check, files) => Ok(check::check(files, &options, args.repair)),
        (Action::List, [file]) => report::list(file, &options),
        (Action::Explode(directory), [file]) => explode::explode(directory, file, &options),
        (Action::Implode(out), [file]) => explode::implode(out, file, &options),
        (Action::Mount, [file]) => mount(args, options, file, None, arguments),
        (Action::Mount, [file, mountpoint]) => {
            mount(args, options, file, Some(mountpoint), arguments)
        }
        (_, [.., last]) => too_many(last),
    }
}

fn completions(shell: &str) -> Result<Exit, Failure> {
    let shell: Shell = shell
        .parse()
        .map_err(|error: String| Failure::new(Exit::Usage, error))?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "asdf-mount", &mut script);
    say_bytes(&script)?;
    Ok(Exit::Ok)
}

#[cfg(not(feature = "fuse"))]
fn mount(
    _args: &Args,
    _options: Options,
    _file: &Path,
    _mountpoint: Option<&Path>,
    _arguments: &[OsString],
) -> Result<Exit, Failure> {
    Err(Failure::new(
        Exit::NoFuse,
        "built without FUSE: only --check, --list, --explode and --implode work",
    ))
}

#[cfg(feature = "fuse")]
fn mount(
    args: &Args,
    mut options: Options,
    file: &Path,
    mountpoint: Option<&Path>,
    arguments: &[OsString],
) -> Result<Exit, Failure> {
    options.read_only |= args.read_only;
    let foreground = args.foreground || args.debug;
    if !foreground && !daemon::is_daemon() {
        return daemon::start(arguments);
    }
    let sink = log::start(
        args.debug,
        args.verbose,
        args.quiet,
        args.log_file.as_deref(),
    )?;
    let request = daemon::Request {
        file,
        mountpoint,
        options: &options,
        pid_file: args.pid_file.as_deref(),
        quiet: args.quiet,
        foreground,
    };
    daemon::serve(&request, &sink)
}

/// The whole path of FILE.
fn resolve(file: &Path) -> Result<PathBuf, Failure> {
    let fail = |cause| Failure::reading(file, &Error::io(file.display().to_string(), cause));
    let path = file.canonicalize().map_err(fail)?;
    if path.metadata().map_err(fail)?.is_file() {
        return Ok(path);
    }
    let why = format!("{}: not a file; name the ASDF file itself", file.display());
    Err(Failure::new(Exit::File, why))
}

/// One line on standard error, whatever it takes.
fn complain(message: &str) {
    // if standard error is gone nothing can be said
    let _ = writeln!(
        std::io::stderr().lock(),
        "asdf-mount: {}",
        printable(message)
    );
}

/// Text on standard output.
fn say_bytes(text: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        // a reader that closes the pipe has seen enough
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Other,
            format!("standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Whether standard error is a terminal: only people get progress and success told.
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
