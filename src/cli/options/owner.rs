//! The numbers of users and groups, which `uid=` and `gid=` may give by name.
//!
//! A static program has no name service switch, so names are looked up in the files that every system has; what only LDAP or another
//! service knows has to be given as a number.

/// Where names have their numbers, and what prints the number of a name that is not there.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnerNames {
    what: &'static str,
    file: &'static str,
    command: &'static str,
}

/// The users, passwd(5).
pub(super) const USERS: OwnerNames = OwnerNames {
    what: "user",
    file: "/etc/passwd",
    command: "id -u",
};

/// The groups, group(5).
pub(super) const GROUPS: OwnerNames = OwnerNames {
    what: "group",
    file: "/etc/group",
    command: "getent group",
};

impl OwnerNames {
    /// The number that is given, or that belongs to the name that is given.
    pub(super) fn number(self, given: &str) -> Result<u32, String> {
        self.number_in(given, || std::fs::read(self.file).unwrap_or_default())
    }

    /// The number that is given, or that a line of the table has in its third field. The table is only asked for a name.
    fn number_in(self, given: &str, table: impl FnOnce() -> Vec<u8>) -> Result<u32, String> {
        let Self {
            what,
            file,
            command,
        } = self;
        if given.is_empty() || given.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            // the greatest means "no change" to the kernel
            let number = given.parse().ok().filter(|number| *number < u32::MAX);
            return number.ok_or_else(|| format!("the number or the name of a {what} is needed"));
        }
        let table = table();
        let table = String::from_utf8_lossy(&table);
        let named = table.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next();
            name.filter(|name| *name == given)?;
            fields.nth(1)?.parse().ok()
        });
        named.ok_or_else(|| {
            format!(
                "no {what} of that name in {file}; give the number, which {command} {given} prints"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_of_its_line() {
        let table =
            b"root:x:0:0:root:/root:/bin/sh\n\xff:x:7:7\nbroken\n+:::\nastro:x:1000:100::/:\n";
        let number = |given| USERS.number_in(given, || table.to_vec());
        for (given, want) in [("root", 0), ("astro", 1000), ("77", 77)] {
            assert_eq!(number(given), Ok(want));
        }
        for given in ["", "-1", "4294967295", "12a"] {
            let why = "the number or the name of a user is needed";
            assert_eq!(number(given), Err(why.to_owned()), "{given}");
        }
        for given in ["broken", "+", "x", "Astro"] {
            let why = number(given).unwrap_err();
            let end = format!("; give the number, which id -u {given} prints");
            assert!(why.ends_with(&end), "{why}");
        }
    }

    #[test]
    fn root_is_known_here() {
        assert_eq!(USERS.number("root"), Ok(0));
        assert_eq!(GROUPS.number("root"), Ok(0));
    }
}
