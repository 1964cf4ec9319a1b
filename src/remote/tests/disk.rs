//! Pieces on disk.

use std::path::Path;
use std::sync::Mutex;

use super::*;

/// Waits until so many pieces and states are there.
fn wait_for_files(dir: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names = found.map(|file| file.path());
        let whole = names.filter(|path| path.extension().is_some_and(|it| it == "piece"));
        let there = whole.count();
        if there >= count {
            return;
        }
        assert!(Instant::now() < deadline, "{there} files");
        thread::yield_now();
    }
}

/// With each mount, its new time made it seem to have changed while it was read.
#[test]
fn an_object_that_was_stored_once_more_as_it_was_is_the_same() {
    let (bytes, place) = (bytes(MIB), tempfile::tempdir().unwrap());
    let dir = place.path().join("far");
    let hour = Arc::new(AtomicUsize::new(10));
    let now = Arc::clone(&hour);
    let stub = server(&bytes, move |_, answer| {
        let hour = now.load(Ordering::Relaxed);
        let time = format!("Sun, 22 Nov 2026 {hour}:00:00 GMT");
        answer.with("Last-Modified", &time)
    });
    let mount = || {
        let disk = Some((dir.clone(), 32 << 20));
        remote_with(16 << 20, RemoteOptions { disk, ..options() })
    };
    let first = mount();
    drop(open(&first, &stub).unwrap());
    wait_for_files(&dir, 2);
    drop(first);
    hour.store(11, Ordering::Relaxed);
    let object = open(&mount(), &stub).unwrap();
    assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
    assert_eq!(stub.sent(), MIB, "each piece came once");
    // as a listing says it
    let time = std::time::UNIX_EPOCH + Duration::from_secs(9);
    let listed = Identity::new(MIB as u64, Some(ETAG.to_owned()), Some(time));
    let requests = stub.requests().len();
    let url = at(&stub.url("/a.asdf"));
    let again = mount().open_known(&url, Some(listed), &Arc::default());
    again.unwrap().read_exact_at(&mut [0; 9], 0).unwrap();
    assert_eq!(stub.requests().len(), requests);
}

#[test]
fn pieces_are_kept_for_the_next_mount_and_never_of_another_state() {
    let bytes = bytes(MIB);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("far");
    let state = Arc::new(Mutex::new("\"1\"".to_owned()));
    let (now, body) = (Arc::clone(&state), bytes.clone());
    let stub = Stub::new(move |request| Answer::good(request, &body, &now.lock().unwrap()));
    let mount = || {
        let disk = Some((dir.clone(), 32 << 20));
        remote_with(16 << 20, RemoteOptions { disk, ..options() })
    };
    let sent = |remote: &Remote| {
        let before = stub.sent();
        let object = open(remote, &stub).unwrap();
        assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
        stub.sent() - before
    };
    let first = mount();
    assert_eq!(sent(&first), MIB);
    // what is to be written is written all the same, and the state
    drop(first);
    wait_for_files(&dir, 16 + 1);
    let asked = stub.requests().len();
    assert_eq!(sent(&mount()), 0, "the server is asked for its state only");
    assert_eq!(stub.requests().len(), asked + 1);
    let place = at(&stub.url("/a.asdf"));
    let probed = mount().probe(&place, None, &Arc::default());
    assert!(probed.is_ok_and(|(identity, _)| identity.size() == MIB as u64));
    assert_eq!(stub.sent(), MIB);
    // a damaged piece is fetched again
    let files = std::fs::read_dir(&dir).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let long = paths.filter(|path| std::fs::metadata(path).unwrap().len() > 65_536);
    for path in long.take(3) {
        let mut damaged = std::fs::read(&path).unwrap();
        damaged[30_000] ^= 1;
        std::fs::write(&path, damaged).unwrap();
    }
    assert_eq!(sent(&mount()), 192 << 10);
    "\"2\"".clone_into(&mut state.lock().unwrap());
    assert_eq!(sent(&mount()), MIB, "of another state nothing is taken");
    "W/\"3\"".clone_into(&mut state.lock().unwrap());
    for _ in 0..2 {
        assert_eq!(sent(&mount()), MIB, "nothing is kept by a weak tag");
    }
}

#[test]
fn the_disk_is_used_up_to_its_size_and_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let bytes = bytes(8 * MIB);
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("far");
    let stub = server(&bytes, |_, answer| answer);
    let disk = || Some((dir.clone(), 1 << 20));
    let remote = remote_with(
        64 << 20,
        RemoteOptions {
            disk: disk(),
            ..options()
        },
    );
    let object = open(&remote, &stub).unwrap();
    assert!(read_all(&*object, u64::MAX).unwrap() == bytes);
    let used = || -> u64 {
        let files = std::fs::read_dir(&dir).unwrap();
        files
            .filter_map(|file| Some(file.ok()?.metadata().ok()?.len()))
            .sum()
    };
    // what is being written counts until it has its name
    let begun = Instant::now();
    while used() > (1 << 20) + (256 << 10) {
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", used());
        thread::yield_now();
    }
    assert_eq!(
        std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777,
        0o700
    );
    drop((object, remote));
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Remote::new(
        RemoteOptions {
            disk: disk(),
            ..options()
        },
        &Cache::new(1 << 20),
    );
    assert!(
        refused
            .map(drop)
            .unwrap_err()
            .to_string()
            .contains("others may write")
    );
}

/// Another endpoint may have another object by the same name, and even with the same tag.
#[test]
fn pieces_of_one_server_are_not_those_of_another() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("far");
    let mount = |stub: &Stub| {
        let disk = Some((dir.clone(), 32 << 20));
        buckets::bucket_of(
            stub,
            &[("AWS_SKIP_SIGNATURE", "true")],
            RemoteOptions { disk, ..options() },
        )
    };
    let read = |remote: &Remote| {
        let object = remote.open(&at("s3://pub/a.asdf")).unwrap();
        read_all(&*object, u64::MAX).unwrap()
    };
    let one = server(&vec![1; 300_000], |_, answer| answer);
    let other = server(&vec![2; 300_000], |_, answer| answer);
    let first = mount(&one);
    assert!(read(&first) == vec![1; 300_000]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::read_dir(&dir).map_or(0, Iterator::count) < 5 {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    drop(first);
    assert!(read(&mount(&other)) == vec![2; 300_000]);
}
