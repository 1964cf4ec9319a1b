//! `fusermount3`, which mounts for users without privileges, and sends the device of the mount through a socket. In a sandbox a program of
//! this name may pass the request on to one outside, so it is asked also where there is no device to be seen.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fuser::SessionACL;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use super::MountOptions;
use crate::source::in_utf8;

/// The environment variable that says which descriptor is the socket.
const SOCKET: &str = "_FUSE_COMMFD";
/// The longest message of a helper that is shown, in bytes.
const MESSAGE: u64 = 64 << 10;

/// Has a helper mount at `mountpoint`: the device, and the socket that keeps the helper waiting for the end of this process if it is to unmount
/// then.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if no helper can be started; what the helper says.
pub(super) fn mount(
    mountpoint: &Path,
    options: &MountOptions,
) -> io::Result<(OwnedFd, Option<UnixStream>)> {
    let (ours, theirs) = UnixStream::pair()?;
    // the helper is to have its end
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut helper = start_first(&options.helpers, |helper| {
        start(helper, mountpoint, options, &theirs)
    })?;
    // else this end would stay open, and the wait below would not end if the helper dies
    drop(theirs);
    match receive(&ours) {
        Some(device) if options.auto_unmount => Ok((device, Some(ours))),
        Some(device) => {
            helper.wait()?;
            Ok((device, None))
        }
        None => {
            let mut said = Vec::new();
            if let Some(errors) = helper.stderr.take() {
                errors.take(MESSAGE).read_to_end(&mut said)?;
            }
            helper.wait()?;
            Err(io::Error::other(
                String::from_utf8_lossy(&said).into_owned(),
            ))
        }
    }
}

/// Starts the first of the helpers that starts.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is no helper; else the reason why the last one that is there does not start.
fn start_first<T>(helpers: &[OsString], start: impl Fn(&OsStr) -> io::Result<T>) -> io::Result<T> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for helper in helpers {
        match start(helper) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let why = format!("{}: {error}", helper.display());
                failed = io::Error::new(error.kind(), why);
            }
            started => return started,
        }
    }
    Err(failed)
}

fn start(
    helper: &OsStr,
    mountpoint: &Path,
    options: &MountOptions,
    socket: &UnixStream,
) -> io::Result<Child> {
    Command::new(helper)
        .args(["-o", &list(options), "--"])
        .arg(mountpoint)
        .env(SOCKET, socket.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// The options for a helper. The kernel checks permissions itself.
fn list(options: &MountOptions) -> String {
    // fusermount3 splits the list at commas
    let (name, kind) = (in_utf8(&options.fsname), &options.subtype);
    let mut list = format!(
        "fsname={},subtype={},default_permissions,nosuid,nodev,noexec,noatime",
        escaped(&name),
        escaped(kind)
    );
    let flags = [
        ("ro", options.read_only),
        ("allow_other", options.acl() != SessionACL::Owner),
        ("auto_unmount", options.auto_unmount),
    ];
    for (flag, _) in flags.iter().filter(|(_, given)| *given) {
        list.push(',');
        list.push_str(flag);
    }
    list
}

/// A value in that list, which ends at a comma unless a backslash stands before it.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,")
}

/// The descriptor that comes through the socket, if one comes before it is closed.
fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut text, &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    // the descriptor has been dropped by the kernel, as when this process may open no more
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return None;
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_does_not_start_is_named_by_its_error() {
        let helpers = ["gone", "denied", "good"].map(OsString::from);
        let start = |helper: &OsStr| match helper.to_str() {
            Some("gone") => Err(io::ErrorKind::NotFound.into()),
            Some("denied") => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(helper.to_owned()),
        };
        let outcome = |count| start_first(&helpers[..count], start).map_err(|error| error.kind());
        assert_eq!(outcome(0), Err(io::ErrorKind::NotFound));
        assert_eq!(outcome(1), Err(io::ErrorKind::NotFound));
        assert_eq!(outcome(2), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(outcome(3), Ok("good".into()));
    }
}
