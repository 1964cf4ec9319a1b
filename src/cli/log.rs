//! Where messages go: to standard error until the daemon detaches, then to syslog or the log file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::fs::OFlags;

use super::exit::{Failure, unwritten};
use super::{Args, write_line};
use crate::error::{lock, printable};

/// The name under which syslog has our messages.
const IDENT: &str = "asdf-mount";
/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
/// Syslog's facility for daemons, shifted to its place.
const FACILITY_DAEMON: u8 = 3 << 3;

enum Output {
    Stderr,
    Syslog(Syslog),
    File(File),
}

/// The way to the process that listens at a place, whichever it is at that moment: syslog may be started again.
struct Syslog {
    socket: UnixDatagram,
    place: PathBuf,
}

impl Syslog {
    fn at(place: PathBuf) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, place })
    }

    /// Sends a message. If the queue is full, or no process listens, the message is lost; the mount does not wait.
    fn send(&self, record: &str) {
        let _ = self.socket.send_to(record.as_bytes(), &self.place);
    }
}

/// Where messages go now, and what they are about.
struct SinkState {
    output: Output,
    /// FILE and its mountpoint once that is mounted: they tell the lines of mounts apart that log to the same place.
    mount: Option<(String, String)>,
}

/// What messages are written to.
#[derive(Clone)]
pub(super) struct Sink(Arc<Mutex<SinkState>>);

/// Starts logging to standard error, or to the file that is asked for.
pub(super) fn start(args: &Args) -> Result<Sink, Failure> {
    let file = args.log_file.as_deref();
    let output = match file {
        None => Output::Stderr,
        Some(path) => {
            let opened = open(path).map_err(|error| unwritten("log file", path, &error))?;
            Output::File(opened)
        }
    };
    let sink = Sink(Arc::new(Mutex::new(SinkState {
        output,
        mount: None,
    })));
    let level = match (args.debug, args.verbose, args.quiet) {
        (true, ..) => LevelFilter::Debug,
        (_, true, _) => LevelFilter::Info,
        (.., true) => LevelFilter::Error,
        // a file that is asked for tells when the mount came and went
        _ if file.is_some() => LevelFilter::Info,
        _ => LevelFilter::Warn,
    };
    // in tests a logger may be there already; then that one is used
    if log::set_boxed_logger(Box::new(sink.clone())).is_ok() {
        log::set_max_level(level);
    }
    Ok(sink)
}

/// Opens a log file, but no file of data: a path that was left out on the command line makes FILE the log.
fn open(path: &Path) -> io::Result<File> {
    let mut start = [0; 5];
    // a pipe would be waited for
    let mut read = || File::open(path)?.read_exact(&mut start);
    let is_data = |start: &[u8]| matches!(start, b"#ASDF" | b"%ASDF" | b"%FINF" | b"SIMPL");
    if path.is_file() && read().is_ok() && is_data(&start) {
        return Err(io::Error::other("an ASDF or FITS file; name another one"));
    }
    // nor is a pipe waited for that nobody reads, or one that is full
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).custom_flags(flags);
    options.open(path)
}

impl Sink {
    /// Puts `FILE on MOUNTPOINT` in front of each message that goes to syslog or a file, once if the message begins with FILE.
    pub(super) fn name_mount(&self, file: &Path, mountpoint: &Path) {
        let mut place = lock(&self.0);
        let shown = |path: &Path| printable(&path.display().to_string());
        place.mount = Some((shown(file), shown(mountpoint)));
    }

    /// Goes on to syslog, if messages go to standard error now. Without a syslog they are dropped: a daemon's standard error
    /// is no terminal.
    pub(super) fn detach(&self) {
        let mut place = lock(&self.0);
        if matches!(place.output, Output::Stderr)
            && let Ok(syslog) = Syslog::at(SYSLOG.into())
        {
            place.output = Output::Syslog(syslog);
        }
    }

    /// Writes a message as one line.
    fn write(&self, level: Level, text: &str) -> io::Result<()> {
        let mut place = lock(&self.0);
        let SinkState { output, mount } = &mut *place;
        let mount = &*mount;
        let placed = || match mount {
            None => text.to_owned(),
            Some((file, mountpoint)) => {
                // a message that begins with the path of FILE does not say it twice
                let rest = text.strip_prefix(file.as_str());
                let rest = rest.filter(|rest| rest.starts_with([':', ' ']));
                let rest = rest.map(|rest| rest.trim_start_matches([':', ' ']));
                format!("{file} on {mountpoint}: {}", rest.unwrap_or(text))
            }
        };
        let process = std::process::id();
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        match output {
            // Once it is mounted, hours may pass between two lines. The kernel's first requests, logged at this level, may come before
            // the thread that mounts has named the mount.
            Output::Stderr if mount.is_some() || level >= Level::Debug => {
                write_line(&mut io::stderr().lock(), &format!("{now} {IDENT}: {text}"))?;
            }
            Output::Stderr => {
                write_line(&mut io::stderr().lock(), &format!("{IDENT}: {text}"))?;
            }
            Output::File(file) => {
                let line = format!("{now} {IDENT}[{process}]: {}", placed());
                write_line(file, &line)?;
            }
            Output::Syslog(syslog) => {
                // the severity stands in front, as the syslog protocol has it (RFC 3164)
                let header = FACILITY_DAEMON | priority(level);
                syslog.send(&format!("<{header}>{IDENT}[{process}]: {}", placed()));
            }
        }
        Ok(())
    }
}

/// Severity of syslog, RFC 5424.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

impl Log for Sink {
    /// No messages but ours: those of others have numbers where ours have paths, or URLs with what is secret in them, and call a mount that
    /// is taken away from outside an error.
    fn enabled(&self, message: &Metadata<'_>) -> bool {
        message.target().starts_with("asdf_mount")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = printable(&record.args().to_string());
            // a message that can't be written is lost: the mount goes on
            let _ = self.write(record.level(), text.trim_end());
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// Several mounts may log to one file: the time stood in one line and the message in another.
    #[test]
    fn lines_of_several_mounts_in_one_file_are_not_mixed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let open = || OpenOptions::new().append(true).create(true).open(&path);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let sink = Sink(Arc::new(Mutex::new(SinkState {
                    output: Output::File(open().unwrap()),
                    mount: Some(("f.asdf".to_owned(), "mnt".to_owned())),
                })));
                scope.spawn(move || {
                    for _ in 0..500 {
                        sink.write(Level::Warn, "f.asdf: a message").unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = |line: &&str| {
            line.ends_with("]: f.asdf on mnt: a message") && line.matches(IDENT).count() == 1
        };
        assert_eq!(text.lines().filter(whole).count(), 2000, "{text:.500}");
    }

    /// A mount whose syslog was started again logged nothing any more, and one whose syslog was stopped did not answer any more.
    #[test]
    fn messages_go_to_the_syslog_of_the_moment_and_do_not_wait_for_it() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("log");
        let first = UnixDatagram::bind(&socket).unwrap();
        let syslog = Syslog::at(socket.clone()).unwrap();
        let (sent, done) = channel();
        let sending = std::thread::spawn(move || {
            for _ in 0..2000 {
                syslog.send("<28>asdf-mount: a message");
            }
            sent.send(()).unwrap();
            syslog
        });
        done.recv_timeout(Duration::from_secs(30)).unwrap();
        let syslog = sending.join().unwrap();
        drop(first);
        std::fs::remove_file(&socket).unwrap();
        syslog.send("while no process listens");
        let second = UnixDatagram::bind(&socket).unwrap();
        syslog.send("to the second");
        second.set_nonblocking(true).unwrap();
        let mut record = [0; 100];
        let len = second.recv(&mut record).unwrap();
        assert_eq!(&record[..len], b"to the second");
    }
}
