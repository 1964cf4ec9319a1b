//! Keys from `~/.aws/credentials` and what belongs to them from `~/.aws/config`, as the tools of AWS have them.
//!
//! Only what stands there in plain: no roles that have to be assumed, no single sign-on, no programs that are asked.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// The longest file that is read.
const FILE_LIMIT: u64 = 1 << 20;

/// A profile; empty where there is none.
#[derive(Default)]
pub(super) struct Profile(HashMap<String, String>);

impl Profile {
    /// The profile of `AWS_PROFILE`, or the default one.
    pub(super) fn find(variables: &HashMap<String, String>) -> Self {
        let name = variables
            .get("AWS_PROFILE")
            .map_or("default", String::as_str);
        let config = read(variables, "AWS_CONFIG_FILE", "config");
        let credentials = read(variables, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
        Self::of(name, &config, &credentials)
    }

    /// The profile of that name: `[profile NAME]` in the text of the configuration, but `[default]`; `[NAME]` in that of the credentials.
    fn of(name: &str, config: &str, credentials: &str) -> Self {
        let mut found = HashMap::new();
        // the keys of the credentials go before those of the configuration
        section(config, &mut found, |title| match title.split_once(' ') {
            Some(("profile", rest)) => rest.trim() == name,
            _ => name == "default" && title == name,
        });
        section(credentials, &mut found, |title| title == name);
        Self(found)
    }

    /// A value, if it is not empty.
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key).map(String::as_str);
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

/// Takes over the pairs of the sections whose title is wanted.
fn section(text: &str, found: &mut HashMap<String, String>, wanted: impl Fn(&str) -> bool) {
    let mut within = false;
    for line in text.lines() {
        // settings of a service stand indented below their name, and are none of the profile
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            let title = title.split_once(']').map_or(title, |(title, _)| title);
            within = wanted(title.trim());
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
}

/// The file that a variable names, or the one of this name in `~/.aws`; empty if it can't be read.
fn read(variables: &HashMap<String, String>, variable: &str, name: &str) -> String {
    let path = variables.get(variable).map(PathBuf::from);
    let path = path.or_else(|| {
        let home = variables.get("HOME")?;
        Some(PathBuf::from(home).join(".aws").join(name))
    });
    let mut text = String::new();
    if let Some(file) = path.and_then(|path| File::open(path).ok())
        && file.take(FILE_LIMIT).read_to_string(&mut text).is_err()
    {
        text.clear();
    }
    text
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
