//! Keys from `~/.aws/credentials` and what belongs to them from `~/.aws/config`, as the tools of AWS have them.
//!
//! Only what stands there in plain: no roles that have to be assumed, no single sign-on, no programs that are asked.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

/// The longest file that is read.
const FILE_LIMIT: u64 = 1 << 20;

/// Settings of a profile by which the tools of AWS get keys that do not stand there in plain.
const ELSEWHERE: [&str; 8] = [
    "role_arn",
    "credential_process",
    "credential_source",
    "login_session",
    "sso_account_id",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
];

/// A profile; empty where there is none.
#[derive(Default)]
pub(super) struct Profile {
    values: HashMap<String, String>,
    is_found: bool,
    /// Why it has no keys, if the user has named it or the file that can't be read.
    lack: Option<String>,
}

impl Profile {
    /// The profile of `AWS_PROFILE`, or the default one.
    pub(super) fn find(variables: &HashMap<String, String>) -> Self {
        let named = given(variables, "AWS_PROFILE");
        let config = ProfileFile::read(variables, "AWS_CONFIG_FILE", "config");
        let credentials =
            ProfileFile::read(variables, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let name = named.unwrap_or("default");
        let profile = Self::of(name, &config.text, &credentials.text);
        let mut files = [&credentials, &config].into_iter();
        let unread = files.find(|file| file.why.is_some() && (file.is_named || named.is_some()));
        let why = match (unread, named) {
            (Some(ProfileFile { name, why, .. }), _) => {
                format!("{name}: {}", why.as_deref().unwrap_or_default())
            }
            (None, Some(named)) if !profile.is_found => format!(
                "AWS_PROFILE={named}: no such profile in {} or {}",
                credentials.name, config.name
            ),
            (None, Some(named)) => match profile.unusable() {
                Some(why) => format!("AWS_PROFILE={named}: {why}"),
                None => return profile,
            },
            // nobody has asked for it
            (None, None) => return profile,
        };
        Self {
            lack: profile.keys().is_none().then_some(why),
            ..profile
        }
    }

    /// The profile of that name: `[profile NAME]` in the text of the configuration, but `[default]`; `[NAME]` in that of the credentials.
    fn of(name: &str, config: &str, credentials: &str) -> Self {
        let mut values = HashMap::new();
        // the keys of the credentials go before those of the configuration
        let in_config = section(config, &mut values, |title| match title.split_once(' ') {
            Some(("profile", rest)) => rest.trim() == name,
            _ => name == "default" && title == name,
        });
        let in_credentials = section(credentials, &mut values, |title| title == name);
        Self {
            values,
            is_found: in_config || in_credentials,
            lack: None,
        }
    }

    /// What it has in the place of keys, if anything: the credentials of the machine are others than the user wants then.
    fn unusable(&self) -> Option<&'static str> {
        let has = |key: &&str| self.get(key).is_some();
        if ELSEWHERE.iter().any(has) {
            return Some(
                "has no keys; SSO, roles and credential_process are not supported: eval \"$(aws configure export-credentials --format env)\" gets keys by them",
            );
        }
        match ["aws_access_key_id", "aws_secret_access_key"].map(|key| self.get(key).is_some()) {
            [true, false] => Some("has no aws_secret_access_key"),
            [false, true] => Some("has no aws_access_key_id"),
            _ => None,
        }
    }

    /// Why there are no keys in the profile from which the user wants them.
    pub(super) fn lack(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// A value, if it is not empty.
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.values.get(key).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Key and secret.
    pub(super) fn keys(&self) -> Option<(&str, &str)> {
        self.get("aws_access_key_id")
            .zip(self.get("aws_secret_access_key"))
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.get("aws_session_token")
    }

    pub(super) fn region(&self) -> Option<&str> {
        self.get("region")
    }

    pub(super) fn endpoint(&self) -> Option<&str> {
        self.get("endpoint_url")
    }
}

/// Takes over the pairs of the sections whose title is wanted. Whether there are any such sections.
fn section(text: &str, found: &mut HashMap<String, String>, wanted: impl Fn(&str) -> bool) -> bool {
    let (mut within, mut is_found) = (false, false);
    for line in text.lines() {
        // settings of a service stand indented below their name, and are none of the profile
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            let title = title.split_once(']').map_or(title, |(title, _)| title);
            within = wanted(title.trim());
            is_found |= within;
        } else if within
            && !nested
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            // a comment behind a value begins with a blank
            let value = value.split(" #").next().unwrap_or_default();
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    is_found
}

/// The value of a variable; one that is empty counts as one that is not there.
fn given<'a>(variables: &'a HashMap<String, String>, name: &str) -> Option<&'a str> {
    let value = variables.get(name).map(|value| value.trim());
    value.filter(|value| !value.is_empty())
}

/// A file with profiles.
struct ProfileFile {
    /// What it is called in messages.
    name: String,
    /// Whether a variable names it.
    is_named: bool,
    /// Empty if there is no such file, or if it can't be read.
    text: String,
    /// Why it can't be read. A file that no variable names may be missing.
    why: Option<String>,
}

impl ProfileFile {
    /// The file that a variable names, or the one of this name in `~/.aws`.
    fn read(variables: &HashMap<String, String>, variable: &str, name: &str) -> Self {
        let named = given(variables, variable);
        let path = match (named, given(variables, "HOME")) {
            (Some(path), _) => Some(PathBuf::from(path)),
            (None, Some(home)) => Some(PathBuf::from(home).join(".aws").join(name)),
            (None, None) => None,
        };
        let text = path.map_or(Ok(String::new()), text_of);
        let is_missing = |error: &io::Error| {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        };
        let why = text.as_ref().err();
        let why = why.filter(|error| named.is_some() || !is_missing(error));
        Self {
            name: match named {
                Some(path) => format!("{variable}={path}"),
                None => format!("~/.aws/{name}"),
            },
            is_named: named.is_some(),
            why: why.map(ToString::to_string),
            text: text.unwrap_or_default(),
        }
    }
}

/// The text of a file, as far as it is read.
fn text_of(path: PathBuf) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(FILE_LIMIT)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
[default]
region = eu-west-1
[profile survey]
region=us-east-1   # where the bucket is
s3 =
    endpoint_url = https://nested.example
endpoint_url = https://s3.example:9000
";
    const CREDENTIALS: &str = "\
# mine
[default]
aws_access_key_id = AKDEFAULT
aws_secret_access_key = a/b+c=d==

; another
[ survey ]
AWS_ACCESS_KEY_ID=AKSURVEY
aws_secret_access_key=secret
aws_session_token = token
";

    #[test]
    fn a_profile_is_found_in_both_files() {
        let default = Profile::of("default", CONFIG, CREDENTIALS);
        assert_eq!(default.keys(), Some(("AKDEFAULT", "a/b+c=d==")));
        assert_eq!(
            (default.region(), default.token(), default.endpoint()),
            (Some("eu-west-1"), None, None)
        );
        let survey = Profile::of("survey", CONFIG, CREDENTIALS);
        assert_eq!(survey.keys(), Some(("AKSURVEY", "secret")));
        assert_eq!(
            (survey.region(), survey.token()),
            (Some("us-east-1"), Some("token"))
        );
        assert_eq!(survey.endpoint(), Some("https://s3.example:9000"));
    }

    #[test]
    fn what_is_not_there_or_is_no_such_file_gives_nothing() {
        for (name, config, credentials) in [
            ("other", CONFIG, CREDENTIALS),
            ("default", "", ""),
            (
                "default",
                "[default\nx",
                "=\n[default]\naws_access_key_id=\n[]",
            ),
        ] {
            let profile = Profile::of(name, config, credentials);
            assert_eq!((profile.keys(), profile.region()), (None, None));
        }
    }
}
