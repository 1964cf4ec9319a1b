//! From FILE and MOUNTPOINT to a mount that is served, and its end.
//!
//! The daemon is this program started once more, in a session of its own: nothing is forked with threads or locks in it. It
//! tells the waiting parent over its standard output that the mount can be read, in a line that says nothing else; until then
//! its messages, and what it tells people on a terminal, go to the parent's standard error, and its exit status becomes the
//! parent's.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use log::{debug, info, warn};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::iterator::Signals;

use super::Args;
use super::ending::Ending;
use super::exit::{Exit, Failure};
use super::far::{self, Sources};
use super::inherited::{self, FUSE_NUMBER, Inherited, is_fuse};
use super::log::{Sink, start as start_log};
use super::mountpoint::{Mountpoint, unusable};
use super::opening;
use super::options::Options;
use super::pid_file::PidFile;
use super::{complain, counted, idle, interrupt, limits, on_terminal, sources, unmount};
use crate::codec::Cache;
use crate::collection::Collection;
use crate::fuse::{Mount, MountOptions};
use crate::vfs::{Scratch, Vfs};

/// Set in the environment of the daemon.
const DAEMON: &str = "ASDF_MOUNT_DAEMON";
/// What the daemon says when the mount can be read.
const READY: &str = "ready\n";

/// How long the first answer of a mount may take.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// What is mounted through.
const FUSE_DEVICE: &str = "/dev/fuse";

/// Threads that serve requests by default. Those that may wait for servers have others.
const THREADS: usize = 4;

/// Whether this process is the one that shall serve in the background.
pub(super) fn is_daemon() -> bool {
    std::env::var_os(DAEMON).is_some()
}

/// How the daemon's allocator is set up, mallopt(3), so that its memory stays near the cache's budget.
///
/// glibc moves the limit above which a buffer is a mapping of its own upwards with every such buffer that is freed, up to
/// 32 MiB, and has an arena for each thread. Decoders come and go with buffers of some megabytes on every thread, and the
/// holes that they leave took as much memory again as the cache. Large buffers that are used again and again are kept by us
/// (the cache's, and [`crate::source::PooledBuf`]), so that all others may go back at once.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_MMAP_THRESHOLD_", "524288"),
    ("MALLOC_TRIM_THRESHOLD_", "4194304"),
];

/// The command that starts the daemon: this program with the same arguments. Settings of the allocator that the user has made stay.
fn daemon(arguments: &[OsString]) -> std::io::Result<Command> {
    let mut daemon = Command::new(std::env::current_exe()?);
    let unset = ALLOCATOR
        .into_iter()
        .filter(|(name, _)| std::env::var_os(name).is_none());
    // arguments can be read by all users in /proc; the environment cannot
    let (arguments, urls) = far::hidden(arguments);
    daemon
        .args(arguments.iter().skip(1))
        .env(DAEMON, "1")
        .env("TMPDIR", temporary_files())
        .envs(paths())
        .envs(unset)
        .envs(urls);
    Ok(daemon)
}

/// The variables that name files which the daemon reads later, with whole paths: it leaves the working directory.
fn paths() -> impl Iterator<Item = (&'static str, PathBuf)> {
    /// Of certificates and of the credentials for buckets.
    const NAMES: [&str; 5] = [
        "SSL_CERT_FILE",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
    ];
    NAMES.into_iter().filter_map(|name| {
        let path = std::env::var_os(name).filter(|path| !path.is_empty())?;
        Some((name, std::path::absolute(path).ok()?))
    })
}

/// The directory for temporary files, by its whole path: the daemon leaves the working directory.
pub(super) fn temporary_files() -> PathBuf {
    let set = std::path::absolute(std::env::temp_dir());
    // an empty path is none
    set.unwrap_or_else(|_| PathBuf::from("/tmp"))
}

/// Takes out of a command's environment what the parent has told the daemon there.
pub(super) fn keep_own(command: &mut Command) -> &mut Command {
    command.env_remove(DAEMON).env_remove(far::URLS)
}

/// The failure to start the daemon.
fn not_started(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Other, format!("starting the daemon: {error}"))
}

/// Makes this process the daemon, in the foreground.
pub(super) fn become_daemon(arguments: &[OsString]) -> Result<Exit, Failure> {
    // exec(2), so that the process keeps its number: a service manager watches it
    let failed = daemon(arguments).map(|mut daemon| daemon.exec());
    Err(not_started(&failed.unwrap_or_else(|error| error)))
}

/// Starts the daemon with the same arguments, and waits until it serves or has failed. It reads standard input if it `needs_input`.
pub(super) fn start(arguments: &[OsString], needs_input: bool) -> Result<Exit, Failure> {
    let fail = |error| not_started(&error);
    let mut daemon = daemon(arguments)
        .map_err(fail)?
        .stdin(if needs_input {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let mut line = String::new();
    if let Some(out) = daemon.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(fail)?;
    }
    // a line, not the end of the pipe: the daemon may have children that hold it open
    if line == READY {
        return Ok(Exit::Ok);
    }
    let status = daemon.wait().map_err(fail)?;
    if status.code().is_none() {
        let why = format!("the daemon ended before it had mounted: {status}");
        return Err(Failure::new(Exit::Other, why));
    }
    // the daemon has said why itself
    Ok(Exit::of_child(status.code()))
}

/// Mounts `files`, and those of the list that is asked for, and serves until the file system is unmounted.
pub(super) fn serve(
    args: &Args,
    options: &Options,
    files: &[PathBuf],
    mountpoint: Option<&Path>,
) -> Result<Exit, Failure> {
    // before anything is opened; the list of files may be among them
    let device = mountpoint.and_then(inherited::named);
    let inherited = (!args.is_foreground()).then(|| Inherited::take(device));
    check_input(args, options)?;
    let sink = start_log(args)?;
    let heeded = interrupt::heeded(args.is_foreground());
    let signals = Signals::new(&heeded).map_err(|error| no_signals(&error))?;
    let cache = Cache::new(options.cache);
    let told = give_up_on_signal(&heeded, &cache)?;
    let mounting = give_up_with_parent(args, &told)?;
    let given_up = |failure| {
        if told.load(Ordering::Relaxed) {
            return Failure::new(Exit::Other, "ended by a signal, and nothing is mounted");
        }
        failure
    };
    let mounted = sources::find(files, args, options, &cache).map_err(given_up)?;
    options.check_effect(args.action(), mounted.reads())?;
    let members = match &mounted {
        Sources::One(..) => 0,
        // a descriptor for the file, and one for its directory
        Sources::Many(..) => options.open.saturating_mul(2),
    };
    let threads = options.threads.unwrap_or(THREADS);
    limits::check_room(threads, members, options.cache)?;
    let mut mountpoint = Mountpoint::prepare(mountpoint, &mounted, options)?;
    check_remote_cache(options, &mountpoint.path)?;
    let options = Options {
        threads: Some(threads),
        ..options.clone()
    };
    let name = mounted.name().to_owned();
    let files = Arc::new(open(mounted, args, &options, &cache).map_err(given_up)?);
    let mount = mount(&files, &name, &mut mountpoint, &options)?;
    let place = format!("{} on {}", name.display(), mountpoint.path.display());
    let message = format!("mounted {place} {}", summary(&files));
    info!("{message}");
    if let Collection::One(vfs) = &*files
        && let Some(why) = vfs.why_read_only()
        && !options.read_only
        && !vfs.is_far()
    {
        warn!("{}: mounted read-only: {why}", name.display());
    }
    sink.name_mount(&name, &mountpoint.path);
    if mount.mounted().is_some() {
        wait_for_an_answer(&mountpoint.path)?;
        set_read_ahead(&mountpoint.path);
    }
    let (ending, ended) = Ending::of(&mount);
    idle::watch(&files, &mount, &options, &ending)?;
    let pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
    end_on_signal(signals, ending)?;
    announce(args, &options, &sink, &message, mounting)?;
    drop(inherited);
    let ended = ended.wait_for(mount);
    drop(pid_file);
    drop(mountpoint);
    ended.map_err(|error| Failure::new(Exit::Other, format!("serving the mount: {error}")))?;
    info!("unmounted {}", name.display());
    Ok(if files.end() { Exit::Ok } else { Exit::Pending })
}

/// Refuses to read the list of files to the end of standard input, and to end the mount with that.
fn check_input(args: &Args, options: &Options) -> Result<(), Failure> {
    if options.until_eof && args.reads_input() {
        let why = "-o until-eof: the list of --files-from ends standard input; name a file";
        return Err(Failure::new(Exit::Usage, why));
    }
    Ok(())
}

/// How it is mounted, and what is in it.
fn summary(files: &Collection) -> String {
    let access = if files.is_read_only() { "ro" } else { "rw" };
    match files {
        Collection::One(vfs) => match vfs.snapshot().block_count() {
            Some(blocks) => format!("({access}, {})", counted(blocks, "block")),
            None => format!("({access}, the tree alone)"),
        },
        Collection::Many(_) => format!("({access}, many files)"),
    }
}

/// Opens what is mounted.
fn open(
    mounted: Sources,
    args: &Args,
    options: &Options,
    cache: &Arc<Cache>,
) -> Result<Collection, Failure> {
    match mounted {
        Sources::One(file, _) => {
            let vfs = Arc::new(opening::alone(&file, options, cache)?);
            if args.edit
                && let Some(why) = vfs.why_read_only()
            {
                let why = format!("it can't be edited: {why}");
                return Err(Failure::of(Exit::File, file.whole(), why));
            }
            prepare_from_thread(&vfs)?;
            Ok(Collection::One(vfs))
        }
        Sources::Many(contents, _) => {
            let read_only = options.read_only || contents.is_far();
            let shown = options.shown.clone();
            let scratch = Scratch::new(options.scratch, &contents.folder());
            let opener = opening::opener(options, &scratch, cache);
            let (open, cache) = (options.open, Arc::clone(cache));
            let files = Collection::many(contents, open, read_only, shown, scratch, opener, cache);
            Ok(files)
        }
    }
}

/// Refuses to keep parts of far files under the mountpoint, because the daemon can't wait for itself.
fn check_remote_cache(options: &Options, mountpoint: &Path) -> Result<(), Failure> {
    match &options.remote_cache {
        Some((dir, _)) if may_lie_under(dir, mountpoint) => {
            let dir = dir.display();
            let why = format!("-o remote-cache: {dir} lies under the mountpoint; name another one");
            Err(Failure::new(Exit::Overlap, why))
        }
        _ => Ok(()),
    }
}

/// Whether a directory, which need not be there yet, is or may become one below the mountpoint.
fn may_lie_under(dir: &Path, mountpoint: &Path) -> bool {
    // DIR may not exist yet: the nearest directory that does tells where it will be
    let mut ancestors = dir.ancestors();
    let there = ancestors.find_map(|path| Some((path, path.canonicalize().ok()?)));
    let Some((path, real)) = there else {
        return true;
    };
    let missing = dir.strip_prefix(path).unwrap_or(Path::new(""));
    let leads_back = missing
        .components()
        .any(|part| !matches!(part, Component::Normal(_)));
    // A link to where nothing is: after mounting there may be something.
    let dangling = missing
        .components()
        .next()
        .is_some_and(|first| path.join(first).symlink_metadata().is_ok());
    real.starts_with(mountpoint) || leads_back || dangling
}

/// Mounts what is open, if there is a device to mount with. In tables of mounts it is called `name`, unless `fsname=` says
/// something else.
fn mount(
    files: &Arc<Collection>,
    name: &Path,
    mountpoint: &mut Mountpoint,
    options: &Options,
) -> Result<Mount, Failure> {
    let fsname = options.fsname.clone().map(OsString::from);
    let fsname = fsname.unwrap_or_else(|| name.as_os_str().to_owned());
    let mount_options = MountOptions {
        fsname,
        subtype: options.subtype.clone(),
        read_only: files.is_read_only(),
        allow_other: options.shown.allow_other,
        allow_root: options.allow_root,
        auto_unmount: options.auto_unmount,
        threads: options.threads.unwrap_or(THREADS),
        helpers: unmount::helpers(),
    };
    let mounted = match mountpoint.device.take() {
        Some(device) => Mount::on(files, device, &mount_options),
        None => mountpoint.mount(|path| Mount::new(files, path, &mount_options))?,
    };
    let given = inherited::named(&mountpoint.path).is_some();
    let mountpoint = &mountpoint.path;
    mounted.map_err(|error| {
        if !given && let Err(failure) = check_device() {
            return failure;
        }
        if error.kind() == ErrorKind::NotFound {
            return Failure::new(Exit::NoFuse, unmount::no_helper());
        }
        if Errno::from_io_error(&error).is_some_and(unmount::daemon_is_gone) {
            let why = unusable(mountpoint, &error);
            return Failure::of(Exit::Mountpoint, mountpoint, why);
        }
        let why = error.to_string();
        Failure::of(Exit::Refused, mountpoint, why.trim())
    })
}

/// Checks that there is a device to mount with, and that this user may open it, which mounting with `fusermount3` needs as well, unless that
/// asks a program outside of a sandbox.
fn check_device() -> Result<(), Failure> {
    const CONTAINER: &str = "in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN";
    let opened = File::options().read(true).write(true).open(FUSE_DEVICE);
    let error = match opened.and_then(|device| device.metadata()) {
        Ok(meta) if is_fuse(&meta) => return Ok(()),
        Ok(_) => {
            let (major, minor) = FUSE_NUMBER;
            let why = format!(
                "{FUSE_DEVICE}: not the device of FUSE, which mknod -m 666 {FUSE_DEVICE} c {major} {minor} makes as root"
            );
            return Err(Failure::new(Exit::NoFuse, why));
        }
        Err(error) => error,
    };
    let why = match error.kind() {
        ErrorKind::NotFound => "not there; load the module fuse (modprobe fuse)",
        ErrorKind::PermissionDenied => {
            "no access to it; chmod 666 /dev/fuse as root gives it to everybody, which is the usual mode"
        }
        _ => &error.to_string(),
    };
    Err(Failure::new(
        Exit::NoFuse,
        format!("{FUSE_DEVICE}: {why}; {CONTAINER}"),
    ))
}

/// Reads the tree while the mount is made, see [`Vfs::prepare`].
fn prepare_from_thread(vfs: &Arc<Vfs>) -> Result<(), Failure> {
    let vfs = Arc::clone(vfs);
    std::thread::Builder::new()
        .name("tree".to_owned())
        .spawn(move || vfs.prepare())
        .map(drop)
        .map_err(|error| Failure::new(Exit::Other, format!("reading the tree: {error}")))
}

/// The failure to listen for signals.
fn no_signals(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Other, format!("signals: {error}"))
}

/// Makes threads that wait for a server give up when the process is asked to end, until there is a mount that can be unmounted instead.
/// Gives a flag that tells whether it was asked.
fn give_up_on_signal(heeded: &[i32], cache: &Cache) -> Result<Arc<AtomicBool>, Failure> {
    let told = Arc::new(AtomicBool::new(false));
    for signal in heeded {
        signal_hook::flag::register(*signal, Arc::clone(&told))
            .map_err(|error| no_signals(&error))?;
    }
    let asked = Arc::clone(&told);
    cache.decode_while(move || !asked.load(Ordering::Relaxed));
    Ok(told)
}

/// Has `told` say that the process is asked to end if the parent ends before the pipe that this gives is closed; nothing is given if no
/// parent waits.
fn give_up_with_parent(args: &Args, told: &Arc<AtomicBool>) -> Result<Option<PipeWriter>, Failure> {
    if args.is_foreground() {
        return Ok(None);
    }
    let told = Arc::clone(told);
    let (mounted, mounting) = std::io::pipe().map_err(|error| no_signals(&error))?;
    let watch = move || {
        let stdout = std::io::stdout();
        // A pipe without a reader is in error, and one without a writer hangs up; nothing else is waited for. poll(2) has to return when
        // FILE is mounted: as long as it waits, it keeps the pipe to the parent open.
        let mut fds = [stdout.as_fd(), mounted.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty()));
        while poll(&mut fds, None) == Err(Errno::INTR) {}
        if fds[1].revents().is_empty() {
            told.store(true, Ordering::SeqCst);
        }
    };
    std::thread::Builder::new()
        .name("parent".to_owned())
        .spawn(watch)
        .map_err(|error| no_signals(&error))?;
    Ok(Some(mounting))
}

/// Ends the mount when the process is asked to end.
fn end_on_signal(mut signals: Signals, ending: Ending) -> Result<(), Failure> {
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                info!("signal {signal}: unmounting");
                ending.end();
            }
        })
        .map_err(|error| no_signals(&error))?;
    Ok(())
}

/// Waits until the mount has answered a request, so that a caller finds it serving.
fn wait_for_an_answer(mountpoint: &Path) -> Result<(), Failure> {
    let fail = |why: String| {
        let why = format!("the mount does not answer: {why}");
        Failure::of(Exit::Other, mountpoint, why)
    };
    let (answer, answered) = mpsc::channel();
    let path = mountpoint.to_owned();
    // in a thread of its own: if no answer comes, this one can still say so and end
    let asking = std::thread::Builder::new().name("first".to_owned());
    asking
        .spawn(move || answer.send(rustix::fs::statfs(&path).map(drop)))
        .map_err(|error| fail(error.to_string()))?;
    match answered.recv_timeout(FIRST_ANSWER) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(fail(error.to_string())),
        Err(_) => Err(fail(format!(
            "nothing came in {} s",
            FIRST_ANSWER.as_secs()
        ))),
    }
}

/// Tells the service manager, the terminal and the parent that the mount can be read. In the background it then leaves the terminal.
fn announce(
    args: &Args,
    options: &Options,
    sink: &Sink,
    message: &str,
    mounting: Option<PipeWriter>,
) -> Result<(), Failure> {
    let fail = |error: std::io::Error| {
        let why = match error.kind() {
            ErrorKind::BrokenPipe => {
                "nothing is mounted: the command that was to be told of it has ended".to_owned()
            }
            _ => format!("detaching: {error}"),
        };
        Failure::new(Exit::Other, why)
    };
    notify_service_manager();
    if on_terminal() && !args.quiet && !args.edit {
        complain(message);
    }
    if args.is_foreground() {
        return Ok(());
    }
    // what can fail comes first: once the parent has said that it is mounted, nothing may end the mount
    std::env::set_current_dir("/").map_err(fail)?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(fail)?;
    // In a session of its own the daemon does not keep the shell's terminal. This comes before the parent is told, because the parent
    // returns then: if the terminal is closed at once, its SIGHUP would end the mount.
    let _ = rustix::process::setsid();
    drop(mounting);
    let mut out = std::io::stdout();
    out.write_all(READY.as_bytes())
        .and_then(|()| out.flush())
        .map_err(fail)?;
    sink.detach();
    // the parent has said that it is mounted
    let mut left = vec![
        rustix::stdio::dup2_stdout(&null),
        rustix::stdio::dup2_stderr(&null),
    ];
    if !options.until_eof {
        left.push(rustix::stdio::dup2_stdin(&null));
    }
    for error in left.into_iter().filter_map(Result::err) {
        warn!("detaching: {error}");
    }
    Ok(())
}

/// `READY=1` for systemd's `Type=notify`, sd_notify(3).
fn notify_service_manager() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
    if let Err(error) = sent {
        warn!("telling the service manager: {error}");
    }
}

/// How much the kernel may read ahead, in KiB, where the daemon may set that.
const READ_AHEAD_KIB: u32 = 1024;

/// Lets the kernel read ahead as far as one request reaches. Only root may; without, the default of 128 KiB stays.
fn set_read_ahead(mountpoint: &Path) {
    let set = || -> std::io::Result<()> {
        let device = std::fs::metadata(mountpoint)?.dev();
        // the kernel's default of 128 KiB would make eight requests of a segment
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        std::fs::write(path, READ_AHEAD_KIB.to_string())
    };
    if let Err(error) = set() {
        debug!("read-ahead stays at the kernel's default: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_directory_under_the_mountpoint_is_told_from_others() {
        let place = tempfile::TempDir::new().unwrap();
        let root = place.path().canonicalize().unwrap();
        let mountpoint = root.join("mnt");
        std::fs::create_dir_all(mountpoint.join("there")).unwrap();
        symlink(&mountpoint, root.join("link")).unwrap();
        symlink(mountpoint.join("blocks"), root.join("dangling")).unwrap();
        for (dir, under) in [
            ("mnt", true),
            ("mnt/there", true),
            ("mnt/blocks", true),
            ("mnt/.cache/asdf-mount", true),
            ("link/blocks", true),
            ("dangling", true),
            ("dangling/a", true),
            ("none/../mnt/blocks", true),
            ("mnt/../other", false),
            ("mnt2/blocks", false),
            ("", false),
        ] {
            assert_eq!(may_lie_under(&root.join(dir), &mountpoint), under, "{dir}");
        }
    }
}
