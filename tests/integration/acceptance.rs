//! What a new user types in the first hour, as it is typed, and what has to come of it.
//!
//! The packages are tried by `scripts/package`, the first lines of the README by `first_hour`.

use std::fs;

use tempfile::TempDir;

use crate::common::{can_mount, mount_table, run};
use crate::cookbook::{clean, galaxy, has, shell};
use crate::sample::{Block, Sample, noise};

/// What it is about, what it needs beside the program, and a script that fails if something else comes of it. There are two files,
/// `g.asdf` and `h.asdf`.
type Typed = (&'static str, &'static str, &'static str);

const MOUNTS: &[Typed] = &[
    (
        "a full disk loses no refused text",
        "root mkfs.ext4",
        "truncate -s 2M i; mkfs.ext4 -qm 0 i; mkdir fs; mount -o loop i fs; trap 'umount fs' EXIT
        cp g.asdf fs; dd if=/dev/zero of=fs/z bs=1k 2>/dev/null || true
        export XDG_STATE_HOME=$PWD/state
        asdf-mount fs/g.asdf m; echo '--- [' >m/tree.yaml; asdf-mount -u m || [ $? = 40 ]
        grep -qxF -- '--- [' state/asdf-mount/g.asdf.rejected.yaml",
    ),
    (
        "files that live in memory only are told of",
        "",
        "asdf-mount g.asdf m; cp /etc/passwd m/results.csv; grep -q results.csv m/info/status
        asdf-mount -u m 2>&1 | grep -q results.csv",
    ),
    (
        "a limit of file sizes ends no daemon",
        "",
        "(ulimit -f 300; asdf-mount g.asdf m)
        (grep -vxF ... m/tree.yaml; printf '# %0300000d\\n...\\n' 0) >long
        cp long m/tree.yaml 2>&1 | grep -q 'File too large'
        ls m/tree.yaml; asdf-mount -u m || [ $? = 40 ]; [ -z \"$(ls -A | grep asdf-mount-)\" ]",
    ),
    (
        "the directory named after a file is used if it is empty, or what a dead mount has left",
        "getfattr",
        "mkdir g; asdf-mount g.asdf; kill -9 $(getfattr --only-values -n user.asdf.pid g)
        while ls g >/dev/null 2>&1; do :; done
        asdf-mount g.asdf; asdf-mount -u g; [ -d g ]
        asdf-mount g.asdf new; asdf-mount -u new; [ ! -e new ]",
    ),
    (
        "all files of a directory are one mount",
        "",
        "mkdir -p tree/r0001; cp g.asdf tree/r0001; asdf-mount -r tree m; [ -d m/r0001/g.asdf/blocks ]
        [ $(grep -rl filter --include=tree.yaml m) = m/r0001/g.asdf/tree.yaml ]; asdf-mount -u m",
    ),
    (
        "an array is a FITS file",
        "fitsverify python3:astropy",
        "asdf-mount -r -o fits g.asdf m; fitsverify -q m/fits/data.fits
        python3 -c '
from astropy.io import fits; import numpy as np
assert (fits.getdata(\"m/fits/data.fits\") == np.load(\"m/arrays/data.npy\")).all()'
        asdf-mount -u m",
    ),
    (
        "a mount is taken away by the name of its file",
        "",
        "asdf-mount -u /nonexist 2>&1 | grep -q 'no such'
        asdf-mount g.asdf m; asdf-mount -u g.asdf; ! mountpoint -q m",
    ),
    (
        "a mount does not hide another",
        "",
        "asdf-mount g.asdf m; s=0; asdf-mount -r h.asdf m || s=$?; asdf-mount -u m; [ $s = 10 ]",
    ),
    (
        "the type of a mount is the same for all users",
        "root findmnt",
        "asdf-mount g.asdf m; findmnt -nt fuse.asdf-mount m; asdf-mount -u m",
    ),
    (
        "a mount that lacks descriptors is not made, and one that is made answers",
        "",
        "for n in 6 8 10 12 14; do
            s=0; (ulimit -n $n; timeout 20 asdf-mount g.asdf m) || s=$?
            [ $s != 124 ]; [ $s != 0 ] || [ -e m/tree.yaml ]; asdf-mount -u m || true
        done",
    ),
    (
        "a file whose group a user namespace lacks can be saved there",
        "root unshare",
        "chgrp 4321 g.asdf; unshare -Urm sh -c 'asdf-mount g.asdf m; sed s/^---/#new\\\\n---/ m/tree.yaml >t; cp t m/tree.yaml; umount m'
        grep -qx '#new' g.asdf; [ $(stat -c %g g.asdf) = 4321 ]",
    ),
    (
        "a rename saves what was synced of a map, however few threads there are",
        "python3",
        "asdf-mount -o threads=1 g.asdf m; (grep -vxF ... m/tree.yaml; printf '# old\\n...\\n') >m/t.tmp
        python3 -c '
import mmap, os
file = open(\"m/t.tmp\", \"r+\"); map = mmap.mmap(file.fileno(), 0)
at = map.find(b\"# old\"); map[at:at + 5] = b\"# new\"; map.flush()
os.rename(\"m/t.tmp\", \"m/tree.yaml\")
assert b\"# new\" in open(\"g.asdf\", \"rb\").read()'
        asdf-mount -u m",
    ),
    (
        "what can not be exploded leaves no directory",
        "",
        "(trap '' XFSZ; ulimit -f 0; asdf-mount --explode a/b g.asdf) 2>&1 | grep -q 'too large'; [ ! -e a ]",
    ),
    (
        "a mount that is not used goes",
        "",
        "asdf-mount -o idle=200ms g.asdf m; for i in {1..100}; do mountpoint -q m || exit 0; sleep 0.1; done; exit 1",
    ),
];

const SAYS: &[Typed] = &[
    (
        "the mount options are found without the manual",
        "",
        "asdf-mount --help | grep -q allow_external; [ -z \"$(COLUMNS=80 asdf-mount --help | awk 'length > 80')\" ]
        asdf-mount -o verfy g.asdf m 2>&1 | grep -q 'did you mean verify'",
    ),
    (
        "what is no ASDF file is called by its name",
        "gzip",
        "gzip -k g.asdf; asdf-mount g.asdf.gz m 2>&1 | grep -q 'gunzip -k'
        printf 'version https://git-lfs' >l; asdf-mount l m 2>&1 | grep -q 'git lfs pull'",
    ),
    (
        "what an interrupt has begun is not left",
        "timeout",
        "timeout -s INT 0.05 asdf-mount --explode out big.asdf || true
        timeout -s INT 0.05 asdf-mount --implode one.asdf big.asdf || true
        [ -z \"$(ls -A . out 2>/dev/null | grep '^\\.[a-z]')\" ]",
    ),
    (
        "the status tells at once that FILE is gone",
        "",
        "asdf-mount g.asdf m; mv g.asdf i.asdf
        for i in {1..50}; do ! grep -q '^changed.*no longer there' m/info/status || break; sleep 0.1; done
        grep -q '^changed.*no longer there' m/info/status; asdf-mount -u m",
    ),
    (
        "there is a way back from a refused text",
        "",
        "asdf-mount g.asdf m; echo x >m/tree.yaml; asdf-mount --revert m; grep -q '^#ASDF' m/tree.yaml; asdf-mount -u m",
    ),
    (
        "each line of a log file has its time",
        "",
        "asdf-mount --log-file l g.asdf m; asdf-mount -u m; grep -qE '^20..-..-..T' l; ! grep -vE '^20..-..-..T' l",
    ),
    (
        "a mode is changed in FILE or not at all",
        "",
        "asdf-mount g.asdf m; s=0; chmod 600 m/tree.yaml || s=$?; asdf-mount -u m; [ $s != 0 ] || [ $(stat -c %a g.asdf) = 600 ]",
    ),
    (
        "a check is silent of what is in order, and finds a stream that goes on behind its end",
        "",
        "[ -z \"$(asdf-mount --check -q g.asdf)\" ]
        s=0; asdf-mount --check short.asdf || s=$?; [ $s = 1 ]",
    ),
    (
        "a list is for programs too",
        "jq",
        "asdf-mount --list --json g.asdf | jq -e '.arrays[] | select(.path == \"data\").shape == [200, 300]'",
    ),
    (
        "an array is a picture",
        "file",
        "asdf-mount --preview p.png g.asdf data; file p.png | grep -q 'PNG image data'",
    ),
    (
        "the library needs no parser of command lines",
        "cargo",
        "cd \"$CARGO_MANIFEST_DIR\"; ! cargo tree --offline --no-default-features -e normal | grep -q clap",
    ),
];

/// Runs each where nothing else is. What is wrong with any.
fn accept(typed: &[Typed]) {
    if !can_mount() {
        return;
    }
    let long = Sample::new("a: 1\n").block(Block::raw(&noise(64 << 20)));
    let short = Sample::new("a: 1\n").block(Block::zlib(&noise(50_000)).data_size(49_999));
    let mut wrong = Vec::new();
    for (about, needs, script) in typed {
        if !has(about, needs.split_whitespace()) {
            continue;
        }
        let place = TempDir::new().unwrap();
        let folder = fs::canonicalize(place.path()).unwrap();
        let write = |name: &str, sample: &Sample| {
            fs::write(folder.join(name), sample.bytes()).unwrap();
        };
        write("g.asdf", &galaxy(30, 200, 300));
        write("h.asdf", &galaxy(31, 4, 3));
        if script.contains("short.asdf") {
            write("short.asdf", &short);
        }
        if script.contains("big.asdf") {
            write("big.asdf", &long);
        }
        let said = run(shell(script).current_dir(&folder));
        let mounts = mount_table("mounts");
        let left = mounts.contains(folder.to_str().unwrap());
        if said.code != 0 || left {
            wrong.push(format!("{about}: mounts left: {left}, {said:?}"));
            clean(&folder);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_mounted_comes_and_goes_as_it_should() {
    accept(MOUNTS);
}

#[test]
fn what_is_asked_is_answered() {
    accept(SAYS);
}
