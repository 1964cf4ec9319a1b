//! Names the format of a file that is not ASDF by its first bytes, and a program that reads it.

/// First bytes, what begins with them, and what reads it.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"\x1f\x8b", "a gzip-compressed one: gunzip -k unpacks it"),
    (b"BZh", "a bzip2-compressed one: bunzip2 -k unpacks it"),
    (b"\xfd7zXZ\0", "an xz-compressed one: unxz -k unpacks it"),
    (
        b"\x28\xb5\x2f\xfd",
        "a zstd-compressed one: unzstd unpacks it",
    ),
    (b"\x89HDF\r\n\x1a\n", "HDF5: h5ls lists it"),
    (b"\x93NUMPY", "a NumPy array: numpy.load reads it"),
    (
        b"PK\x03\x04",
        "a zip archive, as .npz files are: unzip or numpy.load reads it",
    ),
    (
        b"version https://git-lfs",
        "a Git LFS pointer: git lfs pull gets the data",
    ),
    (
        b"\xef\xbb\xbf#ASDF",
        "one with a byte order mark in front of #ASDF: remove these 3 bytes, as tail -c +4 does",
    ),
    (
        b"\xff\xfe",
        "UTF-16 text: iconv -f UTF-16 -t UTF-8 makes it UTF-8",
    ),
    (
        b"\xfe\xff",
        "UTF-16 text: iconv -f UTF-16 -t UTF-8 makes it UTF-8",
    ),
    (
        b"#\0A\0S\0D\0F\0",
        "UTF-16 text: iconv -f UTF-16LE -t UTF-8 makes it UTF-8",
    ),
    (
        b"\0#\0A\0S\0D\0F",
        "UTF-16 text: iconv -f UTF-16BE -t UTF-8 makes it UTF-8",
    ),
    (b"SIMPLE  =", "FITS: astropy.io.fits reads it"),
];

/// How the texts begin that servers send instead of a file; in lower case, without blanks in front.
const ANSWERS: &[(&[u8], &str)] = &[
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<?xml", "XML"),
    (b"<error", "XML"),
    (b"{\"", "JSON"),
];

/// Why the file with these first bytes is no ASDF file.
pub(super) fn why_not_asdf(start: &[u8]) -> String {
    let what = SIGNATURES
        .iter()
        .find(|(signature, _)| start.starts_with(signature));
    if let Some((_, what)) = what {
        return format!("not an ASDF file but {what}");
    }
    // servers send blanks in front, and HTML in either case
    let begins = start.trim_ascii_start();
    let answer = ANSWERS.iter().find(|(answer, _)| {
        let head = begins.get(..answer.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(answer))
    });
    if let Some((_, what)) = answer {
        return format!("not an ASDF file but {what}, as of a failed download: get it again");
    }
    // NUL is valid UTF-8 and fills many a binary file
    let text = std::str::from_utf8(start).is_ok_and(|text| !text.contains('\0'));
    let what = match () {
        () if start.is_empty() => "empty: 0 bytes",
        () if start.starts_with(b"#ASDF ") => {
            "not an ASDF file: its first line has no version that can be read, as in `#ASDF 1.0.0`"
        }
        () if text => {
            "not an ASDF file but text: put a line `#ASDF 1.0.0` in front, if it is a tree"
        }
        () => "not an ASDF file: no `#ASDF` in the first line",
    };
    what.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_instead_is_told() {
        for (start, want) in [
            (&b""[..], "empty: 0 bytes"),
            (b"\x1f\x8b\x08\0", "gunzip -k"),
            (b"  <!DOCTYPE HTML>", "HTML page, as of a failed download"),
            (
                b"<?xml version=\"1.0\"?>\n<Error>",
                "but XML, as of a failed",
            ),
            (b"{\"message\": \"Not Found\"}", "but JSON, as of a failed"),
            (
                b"version https://git-lfs.github.com/spec/v1\n",
                "git lfs pull",
            ),
            (b"\xef\xbb\xbf#ASDF 1.0.0\n", "byte order mark"),
            (b"#\0A\0S\0D\0F\0 \x001\0", "iconv -f UTF-16LE"),
            (b"\0#\0A\0S\0D\0F\0 \x001", "iconv -f UTF-16BE"),
            (b"a: 1\n", "if it is a tree"),
            (b"#ASDF 1.x\n", "its first line has no version"),
            (b"\x7fELF\0", "no `#ASDF` in the first line"),
        ] {
            let why = why_not_asdf(start);
            assert!(why.contains(want), "{why}");
        }
    }
}
