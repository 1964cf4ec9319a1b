//! The mistakes of a new user, and what is said of each: what, where, and what to do.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Outcome, can_mount, is_root, run};
use crate::cookbook::{clean, galaxy, shell};

/// A mistake, how it is typed in a directory with `g.asdf`, `h.asdf` and an empty `m`, the exit status, and words of what is said.
type Mistake = (&'static str, &'static str, i32, &'static str);

/// Of what is to be mounted.
const FILES: &[Mistake] = &[
    (
        "a FITS file without an ASDF tree",
        "printf '%-80s' 'SIMPLE  =                    T' 'BITPIX  =                    8' 'NAXIS   =                    0' END >x
        printf '%-2560s' '' >>x; asdf-mount x m",
        20,
        "a FITS file without an ASDF extension: nothing to mount; astropy.io.fits reads it",
    ),
    ("HDF5", "printf '\\x89HDF\\r\\n\\x1a\\n' >x; asdf-mount x m", 20, "but HDF5: h5ls lists it"),
    ("a NumPy array", "printf '\\x93NUMPY' >x; asdf-mount x m", 20, "but a NumPy array: numpy.load reads it"),
    ("a zip archive", "printf 'PK\\3\\4' >x; asdf-mount x m", 20, "but a zip archive, as .npz files are: unzip"),
    ("a compressed file", "printf '\\x1f\\x8b\\b' >x; asdf-mount x m", 20, "gzip-compressed one: gunzip -k unpacks it"),
    ("a Git LFS pointer", "echo version https://git-lfs.x >x; asdf-mount x m", 20, "a Git LFS pointer: git lfs pull gets the data"),
    ("a failed download", "echo '<html>' >x; asdf-mount x m", 20, "an HTML page, as of a failed download: get it again"),
    ("an empty file", ": >x; asdf-mount x m", 20, "x: empty: 0 bytes"),
    ("a tree without its first line", "echo a: 1 >x; asdf-mount x m", 20, "put a line `#ASDF 1.0.0` in front, if it is a tree"),
    ("a byte order mark", "(printf '\\xef\\xbb\\xbf'; cat g.asdf) >x; asdf-mount x m", 20, "remove these 3 bytes, as tail -c +4 does"),
    ("a newer format", "sed 's/#ASDF 1/#ASDF 2/' g.asdf >x; asdf-mount x m", 21, "newer than 1: try a newer asdf-mount, or -o force"),
    ("a name that is wrong", "asdf-mount nope.asdf m", 11, "nope.asdf: no such file; check its path"),
    ("FILE and MOUNTPOINT exchanged", "asdf-mount m g.asdf", 2, "did you mean asdf-mount g.asdf m?"),
    ("a pipe", "mkfifo x; asdf-mount x m", 11, "x: a pipe can't be read; save what comes through it to a file first"),
    ("a pipe of a shell", "cat g.asdf | asdf-mount --list /dev/stdin", 11, "/dev/stdin: a pipe can't be read; save "),
    ("a device", "asdf-mount /dev/zero m", 11, "/dev/zero: not a file; name the ASDF file itself"),
    ("a URL of another kind", "asdf-mount ftp://x.org/a.asdf m", 11, "a URL of a kind that is not read: download it first"),
    ("a URL of this machine", "asdf-mount file://$PWD/g.asdf m; ls m", 0, "tree.yaml"),
    ("the same of another one", "asdf-mount file://x.org/a.asdf m", 2, "names a file of this machine as file:///path"),
    ("an unset variable", "unset F; asdf-mount \"$F\" m", 2, "an argument is empty; is a variable of the shell not set?"),
    ("an option of mount(8)", "asdf-mount -t asdf g.asdf m", 2, "unexpected argument '-t' found; asdf-mount --help"),
    ("a directory without ASDF files", "mkdir d; touch d/x.txt; asdf-mount d m", 0, "d: no file in it is named *.asdf; -o match=GLOB shows others"),
    ("a file that was cut in its tree", "head -c 150 g.asdf >x; asdf-mount x m", 0, "the tree has no `...` line: the file may have been cut short"),
    ("a file that was cut in a block", "head -c 99999 g.asdf >x; asdf-mount x m", 0, "block 0: 240000 bytes allocated, but the file ends after"),
    ("a command of another program", "asdf-mount list", 11, "no command `list`; --list does that"),
    ("the same for a mount", "asdf-mount mount m", 11, "no command `mount`; asdf-mount FILE MOUNTPOINT does that"),
    ("the same for help", "asdf-mount help", 11, "no command `help`; --help does that"),
    ("no FILE", "asdf-mount", 2, "which FILE? Try asdf-mount --help"),
    (
        "a variable that names no program",
        "FUSERMOUNT_PATH=/nope asdf-mount -o auto_unmount,allow_other g.asdf m",
        30,
        "/nope: no such program; FUSERMOUNT_PATH names it, unset that",
    ),
    ("a version that is none", "sed '1s/0.0/x/' g.asdf >x; asdf-mount x m", 20, "its first line has no version that can be read"),
    ("a name that begins with a dash", "cp g.asdf ./-x.asdf; asdf-mount -x.asdf m", 2, "./-x.asdf names it"),
    ("FILE mounted twice", "mkdir n; asdf-mount g.asdf m; asdf-mount g.asdf n", 13, "has it locked; -r mounts it read-only"),
    ("FILE mounted twice: where", "mkdir n; asdf-mount g.asdf m; asdf-mount g.asdf n", 13, "/m (process "),
];

/// Of where it is to be mounted.
const PLACES: &[Mistake] = &[
    (
        "a MOUNTPOINT in a directory that is missing",
        "asdf-mount g.asdf a/b",
        10,
        "no such directory; mkdir -p a makes it",
    ),
    (
        "a file as MOUNTPOINT",
        "asdf-mount g.asdf g.asdf",
        10,
        "g.asdf: not a directory; name one to mount on",
    ),
    (
        "a MOUNTPOINT that is not empty",
        "touch m/x; asdf-mount g.asdf m",
        0,
        "m: not empty; its 1 entry is hidden until you unmount",
    ),
    (
        "a MOUNTPOINT that is one",
        "asdf-mount g.asdf m; asdf-mount h.asdf m",
        10,
        "g.asdf); asdf-mount -u m first",
    ),
    (
        "the same of a list of one file",
        "echo g.asdf | asdf-mount --files-from - m; asdf-mount h.asdf m",
        10,
        "m: already mounted (1 file); asdf-mount -u m first",
    ),
    (
        "a list without a MOUNTPOINT",
        "echo g.asdf >list; asdf-mount --files-from list",
        2,
        "which MOUNTPOINT? Try asdf-mount --help",
    ),
    (
        "a line feed in the name of FILE",
        "cp g.asdf $'x\ny.asdf'; asdf-mount x*.asdf m; echo '--- [' >m/tree.yaml; asdf-mount -u m",
        40,
        "/x%0Ay.asdf.rejected.yaml",
    ),
    (
        "the same in a mount of many",
        "mkdir d; mv g.asdf $'d/x\ny.asdf'; asdf-mount d m; echo '--- [' >m/x*/tree.yaml; asdf-mount -u m",
        40,
        "asdf-mount: m: unmounted, but x%0Ay.asdf: the tree that was refused is not saved",
    ),
    (
        "no directory for --edit",
        "TMPDIR=/nope asdf-mount --edit g.asdf",
        10,
        "/nope: No such file or directory (os error 2); set TMPDIR to a directory where this user can make files",
    ),
    (
        "an editor that goes on in the background",
        "export TMPDIR=$PWD EDITOR='f() { exec 9<\"$1\"; sleep 60 & echo $! >pid; }; f'
        asdf-mount --edit g.asdf || status=$?; kill $(cat pid); tail --pid=$(cat pid) -s 0.1 -f /dev/null
        asdf-mount -u g.asdf; exit $status",
        10,
        "and leave its directories; then asdf-mount -u g.asdf unmounts it",
    ),
    (
        "a MOUNTPOINT above FILE",
        "asdf-mount g.asdf .",
        12,
        "lies under the mountpoint .",
    ),
    (
        "no MOUNTPOINT, and its name is taken",
        "mkdir g; touch g/x; asdf-mount g.asdf",
        10,
        "not empty; name a MOUNTPOINT behind FILE",
    ),
    (
        "no MOUNTPOINT, and no extension",
        "cp g.asdf x; asdf-mount x",
        10,
        "its name has no extension",
    ),
    (
        "many FILEs",
        "asdf-mount g.asdf h.asdf m; ls m",
        0,
        "g.asdf\nh.asdf",
    ),
    (
        "two MOUNTPOINTs",
        "asdf-mount g.asdf m n",
        2,
        "m: a directory among FILEs; name only the MOUNTPOINT, last",
    ),
    (
        "a MOUNTPOINT left out",
        "asdf-mount m",
        10,
        "on which MOUNTPOINT? Name one at the end",
    ),
];

/// Of options and actions.
const OPTIONS: &[Mistake] = &[
    (
        "a flag of other programs",
        "asdf-mount --readonly g.asdf m",
        2,
        "a similar argument exists: '--read-only'",
    ),
    (
        "one more",
        "asdf-mount --ro g.asdf m; cat m/info/status",
        0,
        "mount     read-only: asked for",
    ),
    (
        "and one more",
        "asdf-mount -R g.asdf m; cat m/info/status",
        0,
        "mount     read-only: asked for",
    ),
    (
        "a mount option misspelt",
        "asdf-mount -o verfy g.asdf m",
        2,
        "-o verfy: unknown option; did you mean verify? -o help lists them",
    ),
    (
        "a mount option of other programs",
        "asdf-mount -o readonly g.asdf m",
        2,
        "did you mean ro?",
    ),
    (
        "no value",
        "asdf-mount -o cache g.asdf m",
        2,
        "-o cache: needs a size, as in cache=256M",
    ),
    (
        "no size",
        "asdf-mount -o cache=12Q g.asdf m",
        2,
        "-o cache=12Q: a size such as 256M is needed",
    ),
    (
        "no threads",
        "asdf-mount -o threads=0 g.asdf m",
        2,
        "1 to 64 threads make sense",
    ),
    (
        "no octal number",
        "asdf-mount -o umask=999 g.asdf m",
        2,
        "an octal number up to 777 is needed",
    ),
    (
        "no user",
        "asdf-mount -o uid=nosuchuser g.asdf m",
        2,
        "give the number, which id -u nosuchuser prints",
    ),
    (
        "a user by name",
        "asdf-mount -o uid=nobody g.asdf m; stat -c %U m/tree.yaml",
        0,
        "nobody",
    ),
    (
        "no choice",
        "asdf-mount -o validate=yes g.asdf m",
        2,
        "off, warn or strict?",
    ),
    (
        "an option that needs another",
        "asdf-mount -o auto_unmount g.asdf m",
        2,
        "needs allow_other or allow_root",
    ),
    (
        "a list of options that was forgotten",
        "asdf-mount -o g.asdf m",
        2,
        "-o g.asdf: unknown option; -o help lists them",
    ),
    (
        "two that contradict each other",
        "asdf-mount -o ro,rw, g.asdf m -oro; cat m/info/status",
        0,
        "mount     read-only: asked for",
    ),
    (
        "a flag without effect",
        "asdf-mount -u -r m",
        2,
        "--read-only: has no effect with --unmount, only with a mount; leave it out",
    ),
    (
        "the same of a list",
        "asdf-mount -v --list g.asdf",
        2,
        "--verbose: has no effect with --list, only with a mount; leave it out",
    ),
    (
        "a check that is to be quiet",
        "asdf-mount -q --check g.asdf && echo quiet",
        0,
        "quiet",
    ),
    (
        "a repair without a check",
        "asdf-mount --repair g.asdf",
        2,
        "--check",
    ),
    (
        "two actions",
        "asdf-mount --check --list g.asdf",
        2,
        "asdf-mount: the argument '--check' cannot be used with '--list'; asdf-mount --help lists the options",
    ),
    (
        "a list of two",
        "asdf-mount --list g.asdf h.asdf",
        0,
        "h.asdf:",
    ),
    (
        "DIR and FILE exchanged",
        "asdf-mount --explode g.asdf out",
        2,
        "did you mean --explode out g.asdf?",
    ),
    (
        "the same names again",
        "asdf-mount --explode out g.asdf; asdf-mount --explode out g.asdf",
        1,
        "there already, and nothing is replaced; name another",
    ),
    (
        "FILE as OUT",
        "asdf-mount --implode g.asdf g.asdf",
        1,
        "there already, and nothing is replaced; name another",
    ),
    (
        "another shell",
        "asdf-mount --completions tcsh",
        2,
        "[possible values: bash, zsh, fish]",
    ),
    (
        "a directory that is missing",
        "asdf-mount --pid-file a/pid g.asdf m",
        1,
        "pid file a/pid: No such file or directory (os error 2); its directory must be there",
    ),
    (
        "the same of a log",
        "asdf-mount --log-file a/log g.asdf m",
        1,
        "its directory must be there",
    ),
    (
        "a PATH that no file of DIR has",
        "mkdir d; cp g.asdf d; asdf-mount --preview x.png d nope",
        1,
        "d: no file has an array at nope; --list shows their paths",
    ),
    (
        "FILE as the pid file",
        "cp g.asdf x; ! asdf-mount --pid-file g.asdf h.asdf m || asdf-mount -u m; cmp x g.asdf",
        0,
        "pid file g.asdf: holds something else than a process ID; name another one",
    ),
    (
        "FILE as the log",
        "cp g.asdf x; ! asdf-mount --log-file g.asdf h.asdf m || asdf-mount -u m; cmp x g.asdf",
        0,
        "log file g.asdf: an ASDF or FITS file; name another one",
    ),
    (
        "a FITS file as the log",
        "printf 'SIMPLE  =' >j.fits; cp j.fits x; ! asdf-mount --log-file j.fits h.asdf m || asdf-mount -u m; cmp x j.fits",
        0,
        "log file j.fits: an ASDF or FITS file; name another one",
    ),
    (
        "the name of a directory from here",
        "mkdir -p d data; cp g.asdf d; asdf-mount -o allow_external=data d m && ls m/g.asdf/arrays >/dev/null && asdf-mount -u m",
        0,
        "",
    ),
    (
        "a full disk",
        "asdf-mount --help >/dev/full",
        1,
        "standard output: No space left on device",
    ),
    (
        "a reader who leaves",
        "asdf-mount --list g.asdf | head -n 1",
        0,
        "tree.yaml",
    ),
    (
        "unmounting what is not mounted",
        "asdf-mount -u m",
        10,
        "m: not a mounted ASDF file; findmnt -t fuse.asdf-mount lists those",
    ),
    (
        "unmounting what is not there",
        "asdf-mount -u n",
        10,
        "n: no such file or directory; check its path",
    ),
    (
        "unmounting what is of others",
        "asdf-mount -u /proc",
        10,
        "/proc: not a mounted ASDF file",
    ),
];

/// Of users, and of the machine: as root, who can be any user.
const MACHINES: &[Mistake] = &[
    (
        "a file of another user",
        "chmod 600 h.asdf; as_nobody --list h.asdf",
        11,
        "you must be able to read it, and to search its directories",
    ),
    (
        "an OUT that may not be written",
        "chmod 777 .; asdf-mount --preview p.png g.asdf; chmod 444 p.png; ! as_nobody --preview p.png g.asdf && test -s p.png",
        0,
        "p.png: Permission denied",
    ),
    (
        "a file in a directory that may be searched and not read",
        "mkdir d; cp h.asdf d; chmod 644 d/h.asdf; chmod 711 d; as_nobody --tree d/h.asdf | head -n 1",
        0,
        "#ASDF 1.0.0",
    ),
    (
        "no MOUNTPOINT, and none can be made",
        "as_nobody g.asdf",
        10,
        "name a MOUNTPOINT behind FILE",
    ),
    (
        "a mount of root",
        "asdf-mount -o allow_other g.asdf m; as_nobody -u m",
        10,
        "m: mounted by root; only root can unmount it",
    ),
    (
        "no fusermount3 in PATH",
        "chown nobody m; with_device 10 229; PATH=/nosuch as_nobody -q g.asdf m; PATH=/nosuch as_nobody -u m; echo gone",
        0,
        "gone",
    ),
    (
        "another device",
        "with_device 1 3; asdf-mount g.asdf m",
        30,
        "not the device of FUSE, which mknod -m 666 /dev/fuse c 10 229 makes",
    ),
    (
        "no /dev/null",
        "with_device 10 229; rm /dev/null; asdf-mount g.asdf m",
        1,
        "mknod -m 666 /dev/null c 1 3 makes it as root",
    ),
    (
        "a limit of processes, of a user who has no others",
        "chown 65533 m; with_device 10 229; ulimit -u 6
        /usr/bin/setpriv --reuid=65533 --regid=65533 --clear-groups ./program -r g.asdf m",
        1,
        "more threads: Resource temporarily unavailable (os error 11); ulimit -u raises their limit",
    ),
    (
        // where what else runs does not read it in the table of mounts, as text
        "odd bytes in a name",
        "with_device 10 229; cp g.asdf $'x \\n\\xfc\\xff.asdf'; asdf-mount x*.asdf m; head -n 1 m/tree.yaml; asdf-mount -u m",
        0,
        "#ASDF 1.0.0",
    ),
    (
        "a FILE that can't be written",
        "chown nobody m; with_device 10 229; as_nobody g.asdf m; as_nobody -u m",
        0,
        "g.asdf: mounted read-only: Permission denied (os error 13); to save into it, let this user write it and read its directory, and mount it again",
    ),
];

/// What these scripts call.
const AS_NOBODY: &str = "chmod 755 .; cp \"$(command -v asdf-mount)\" program
as_nobody() { /usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups ./program \"$@\"; }
with_device() {
    [ -n \"${private-}\" ] || exec env private=1 unshare --mount bash -ec \"$script\"
    mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/fuse c $1 $2
}
";

/// A mistake in an edit, how it is typed, and words of what the status says of it.
const EDITS: &[(&str, &str, &str)] = &[
    (
        "invalid YAML by sed",
        "sed -i 's/F184/[/' m/tree.yaml",
        "correct the YAML; your text is in ",
    ),
    (
        "invalid YAML by echo",
        "echo '--- [' >m/tree.yaml",
        "correct the YAML; your text is in ",
    ),
    (
        "a dump without its tags",
        "sed '1,/^---/d; /^[.]/d; s/!core[^ ]* *//' m/tree.yaml >t; cat t >m/tree.yaml",
        "no line begins with ---, as in a YAML dump that has lost its tags; put back",
    ),
    (
        "the same behind the first line",
        "(echo '#ASDF 1.0.0'; echo 'a: 1') >m/tree.yaml",
        "no line begins with ---",
    ),
    (
        "a tab",
        "sed 's/^data:/\\tx: 1\\n&/' m/tree.yaml >t; cat t >m/tree.yaml",
        "indent with blanks, because YAML takes no tabs there",
    ),
    (
        "a tag that is lost",
        "sed -i 's/!core.ndarray-1.0.0//' m/tree.yaml",
        "has lost its tag",
    ),
    (
        "a block that is not there",
        "sed -i 's/source: 0/source: 7/' m/tree.yaml",
        "array data: block 7 wanted, but there are 2 blocks; correct it",
    ),
    (
        "a shape beyond the block",
        "sed -i 's/200, 300/200, 3000/' m/tree.yaml",
        "wanted of a block of 240000; correct it, or the number of the block",
    ),
    (
        "a type that is none",
        "sed -i 's/float32/float33/' m/tree.yaml",
        "unknown datatype 'float33': there are int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, complex64, complex128, bool8, [ascii, N] and [ucs4, N]; correct it; your text is in ",
    ),
    (
        "no first line",
        "sed -i 1d m/tree.yaml",
        "put back the first line: #ASDF 1.0.0",
    ),
    (
        "no last line",
        "sed -i '$d' m/tree.yaml",
        "end it with a line of three dots",
    ),
    ("no %YAML", "sed -i /%YAML/d m/tree.yaml", "%YAML"),
    (
        "a key twice",
        "sed -i 's/^data:/meta: 1\\n&/' m/tree.yaml",
        "key 'meta' occurs again in its mapping",
    ),
    (
        "a date that is none",
        "sed -i 's/F184/2001-13-45/' m/tree.yaml",
        "2001-13-45",
    ),
    (
        "an alias without an anchor",
        "sed -i 's/F184/*a/' m/tree.yaml",
        "alias *a without its anchor before it",
    ),
    (
        "no UTF-8",
        "sed -i 's/F184/\\xff/' m/tree.yaml",
        "bytes that are not UTF-8",
    ),
    (
        "UTF-16",
        "iconv -t UTF-16 m/tree.yaml >t; cat t >m/tree.yaml",
        "the text is UTF-16; save it as UTF-8",
    ),
    (
        "a standard that is not known",
        "sed -i 's/STANDARD 1.5/STANDARD 2.9/' m/tree.yaml",
        "version 2.9.0 of the ASDF Standard is not known",
    ),
    (
        "an empty text",
        ": >m/tree.yaml; grep F184 m/tree.yaml",
        "save      nothing saved",
    ),
    (
        "everything removed",
        "rm -rf m/*; grep F184 m/tree.yaml",
        "save      nothing saved",
    ),
    (
        "an array of another length",
        "echo hello >m/arrays/data.bin",
        "6 bytes written of 240000; write all of it, or change the shape in tree.yaml first",
    ),
    (
        "a block that is too short",
        "truncate -s 10 m/blocks/0.bin",
        "blocks/0.bin: block 0: with 10 bytes it no longer holds array data; change the array",
    ),
    (
        "no compression",
        "printf x >x; python3 -c 'import os; os.setxattr(\"m/blocks/0.bin\", \"user.asdf.compression\", b\"gzip\")'",
        "refused   blocks/0.bin: invalid: unknown compression; choose none, zlib",
    ),
    (
        "a block that another file writes",
        "exec 7<>m/arrays/data.npy; rm m/blocks/0.bin; exec 7>&-",
        "refused   blocks/0.bin: busy: its block is open for writing as arrays/data.npy; close that first",
    ),
    (
        "FILE open in another program",
        "exec 7<>g.asdf; sed -i s/F184/F158/ m/tree.yaml; exec 7>&-",
        "): close it there, and save again",
    ),
    (
        "FILE written over",
        "echo junk >g.asdf; until grep ^changed m/info/status; do sleep 0.1; done",
        "can't be shown as it is now",
    ),
];

/// The other mistakes, and the tests that make them.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "the name of FILE, or a path inside, for -u",
        "first_hour::a_mount_is_named_by_its_file_and_by_what_is_inside",
    ),
    (
        "-u of what is in use",
        "first_hour::what_keeps_a_mount_busy_is_named",
    ),
    (
        "the mount of a daemon that was killed",
        "cli::what_a_killed_daemon_leaves_can_be_taken_away",
    ),
    (
        "no access to /dev/fuse",
        "cli::without_access_to_the_fuse_device_it_exits_with_30_and_says_how_to_get_it",
    ),
    (
        "no rights to mount",
        "cli::a_mount_that_the_kernel_refuses_exits_with_31",
    ),
    (
        "two files of one name",
        "many::files_are_listed_by_name_and_two_of_a_name_are_refused",
    ),
    (
        "tree.yaml removed or renamed",
        "unsaved::the_name_of_the_tree_is_there_again_when_it_was_taken_away",
    ),
    (
        "files that are copied into the mount",
        "unsaved::files_that_are_in_memory_only_are_named_and_those_of_editors_are_not",
    ),
    (
        "chmod and chown",
        "users::owner_and_mode_are_those_of_the_file_and_no_tool_is_told_otherwise",
    ),
    (
        "FILE removed or moved",
        "refused::the_status_tells_what_is_mounted_and_when_it_has_gone",
    ),
    (
        "a full disk",
        "unsaved::a_text_that_has_no_room_beside_the_file_is_kept_elsewhere",
    ),
    (
        "no place on any disk",
        "unsaved::a_text_in_memory_only_keeps_the_mount_until_it_can_be_kept_or_is_given_up",
    ),
    (
        "a block beyond the disk",
        "users::a_block_longer_than_the_disk_is_refused_before_anything_is_made_of_it",
    ),
    (
        "a limit of file sizes",
        "limits::a_save_that_the_limit_of_file_sizes_stops_is_refused_and_kept",
    ),
    (
        "a limit of descriptors",
        "first_hour::a_mount_that_would_lack_descriptors_is_refused",
    ),
    (
        "an interrupt of a mount in the foreground",
        "cli::signals_unmount_in_order",
    ),
    (
        "an interrupt of --explode",
        "acceptance::what_is_asked_is_answered",
    ),
    (
        "help that is wider than the terminal",
        "first_hour::mount_options_are_found_without_the_manual",
    ),
    (
        "a directory that nothing is written in",
        "users::an_unmount_says_where_a_refused_text_is_or_that_it_is_gone",
    ),
];

/// Makes a mistake where nothing else is, and gives what came of it.
fn make(typed: &str) -> Outcome {
    let place = TempDir::new().unwrap();
    let folder = fs::canonicalize(place.path()).unwrap();
    fs::write(folder.join("g.asdf"), galaxy(30, 200, 300).bytes()).unwrap();
    fs::write(folder.join("h.asdf"), galaxy(31, 4, 3).bytes()).unwrap();
    fs::create_dir(folder.join("m")).unwrap();
    let mut shell = shell(typed);
    let said = run(shell.current_dir(&folder).env("script", typed));
    clean(&folder);
    said
}

fn assert_told(mistakes: &[Mistake]) {
    if !can_mount() {
        return;
    }
    let mut wrong = Vec::new();
    for (mistake, typed, status, words) in mistakes {
        let said = make(typed);
        let told = said.stderr.contains(words) || said.stdout.contains(words);
        if said.code != *status || !told {
            wrong.push(format!("{mistake}: wanted {status} {words:?}: {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_can_not_be_mounted_is_called_by_its_name() {
    assert_told(FILES);
}

#[test]
fn where_nothing_can_be_mounted_is_told() {
    assert_told(PLACES);
}

#[test]
fn what_is_typed_wrong_is_told_with_what_is_right() {
    assert_told(OPTIONS);
}

#[test]
fn what_the_machine_lacks_is_told() {
    if !can_mount() || !is_root() {
        return;
    }
    let mut wrong = Vec::new();
    for (mistake, typed, status, words) in MACHINES {
        let said = make(&format!("{AS_NOBODY}{typed}"));
        let told = said.stderr.contains(words) || said.stdout.contains(words);
        if said.code != *status || !told {
            wrong.push(format!("{mistake}: wanted {status} {words:?}: {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn why_an_edit_is_refused_is_told() {
    if !can_mount() {
        return;
    }
    let mut wrong = Vec::new();
    for (mistake, typed, words) in EDITS {
        let typed = format!(
            "asdf-mount g.asdf m; {{ {typed}; }} || true
            grep -E '^(save|refused|changed)' m/info/status; asdf-mount -u m || true"
        );
        let said = make(&typed);
        if !said.stdout.contains(words) {
            wrong.push(format!("{mistake}: wanted {words:?}: {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_other_mistakes_are_made_by_tests_that_there_are() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration");
    for (mistake, test) in ELSEWHERE {
        let (module, name) = test.split_once("::").unwrap();
        let text = fs::read_to_string(tests.join(module).with_extension("rs")).unwrap();
        let declared = format!("#[test]\nfn {name}() {{");
        assert!(text.contains(&declared), "{mistake}: there is no {test}");
    }
}
