//! The command line: what it accepts, what it prints, how it ends. The manual is its contract.

mod check;
#[cfg(feature = "fuse")]
mod daemon;
mod exit;
mod explode;
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

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use exit::{Exit, Failure};
use options::Options;

use crate::error::{Error, printable};

/// The ways to call the program.
const USAGE: &str = "\
asdf-mount [OPTIONS] FILE [MOUNTPOINT]
       asdf-mount -u MOUNTPOINT...
       asdf-mount --check [--repair] FILE...
       asdf-mount --list FILE
       asdf-mount --explode DIR FILE
       asdf-mount --implode OUT FILE";

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
    #[arg(long, value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    completions: Option<String>,
    /// The ASDF file, and the directory to mount on; without that, one named after FILE is made here
    #[arg(value_name = "FILE] [MOUNTPOINT")]
    paths: Vec<PathBuf>,
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
            // without a terminal there is nobody to tell
            let _ = error.print();
            return status.into();
        }
    };
    match dispatch(&args, arguments) {
        Ok(status) => status.into(),
        Err(failure) => {
            complain(&failure.message);
            failure.exit.into()
        }
    }
}

fn dispatch(args: &Args, arguments: &[OsString]) -> Result<Exit, Failure> {
    if let Some(shell) = &args.completions {
        return completions(shell);
    }
    let which =
        |what: &str| Failure::new(Exit::Usage, format!("which {what}? Try asdf-mount --help"));
    if args.unmount || args.check {
        if args.paths.is_empty() {
            return Err(which(if args.check { "FILE" } else { "MOUNTPOINT" }));
        }
        if args.unmount {
            return Ok(unmount::all(&args.paths));
        }
        let options = Options::parse(&args.options)?;
        return Ok(check::check(&args.paths, &options, args.repair));
    }
    let takes_mountpoint = !args.list && args.explode.is_none() && args.implode.is_none();
    let (file, mountpoint) = match args.paths.as_slice() {
        [] => return Err(which("FILE")),
        [file] => (file, None),
        [file, mountpoint] if takes_mountpoint => (file, Some(mountpoint)),
        [_, .., last] => {
            let why = format!("{}: one argument too many", last.display());
            return Err(Failure::new(Exit::Usage, why));
        }
    };
    if args.list {
        return report::list(file, &Options::parse(&args.options)?);
    }
    if let Some(directory) = &args.explode {
        return explode::explode(directory, file, &Options::parse(&args.options)?);
    }
    if let Some(out) = &args.implode {
        return explode::implode(out, file, &Options::parse(&args.options)?);
    }
    mount(args, file, mountpoint.map(PathBuf::as_path), arguments)
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
    args: &Args,
    _file: &Path,
    _mountpoint: Option<&Path>,
    _arguments: &[OsString],
) -> Result<Exit, Failure> {
    Options::parse(&args.options)?;
    Err(Failure::new(
        Exit::NoFuse,
        "built without FUSE: only --check, --list, --explode and --implode work",
    ))
}

#[cfg(feature = "fuse")]
fn mount(
    args: &Args,
    file: &Path,
    mountpoint: Option<&Path>,
    arguments: &[OsString],
) -> Result<Exit, Failure> {
    let mut options = Options::parse(&args.options)?;
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
    // if standard error is gone there is nobody left to tell
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
        // whoever reads no further has seen enough
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
