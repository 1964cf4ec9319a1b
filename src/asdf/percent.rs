//! The percent-encoding of URIs (RFC 3986 §2.1).

/// The bytes of a text with every `%XX` undone; `None` if two hexadecimal digits do not follow a `%`.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let code = digit()? << 4 | digit()?;
            out.push(u8::try_from(code).ok()?);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_hexadecimal_digits_are_an_escape() {
        for (text, want) in [
            ("", Some("")),
            ("a/b c", Some("a/b c")),
            ("a%20b%2F", Some("a b/")),
            ("%c3%A9", Some("é")),
            ("%2525", Some("%25")),
            ("é%41", Some("éA")),
            ("%", None),
            ("%4", None),
            ("a%4", None),
            ("%+5", None),
            ("%-5", None),
            ("% 5", None),
            ("%5+", None),
            ("%zz", None),
            ("%é", None),
        ] {
            let want = want.map(|want| want.as_bytes().to_vec());
            assert_eq!(decoded(text), want, "{text}");
        }
        assert_eq!(decoded("%FF%00"), Some(vec![255, 0]));
    }
}
