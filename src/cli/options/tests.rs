//! What options are accepted, and with which values.

use super::*;

fn parse(list: &str) -> Result<Options, String> {
    Options::parse(&[list.to_owned()]).map_err(|failure| failure.message)
}

#[test]
fn sizes_have_units() {
    for (text, want) in [
        ("0", 0),
        ("17", 17),
        ("4K", 4096),
        ("256M", 256 << 20),
        ("2g", 2 << 30),
        ("1TiB", 1 << 40),
    ] {
        assert_eq!(size(text), Ok(want));
    }
    for text in ["", "M", "-1", "1X", "99999999999T", "1.5G"] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn the_last_of_two_wins() {
    assert!(!parse("ro,rw").unwrap().read_only);
    assert!(parse("rw,ro").unwrap().read_only);
}

#[test]
fn what_fstab_adds_is_ignored() {
    let told =
        "defaults,_netdev,nofail,x-systemd.automount,user,dev,suid,comment=x,x-foo=,comment=";
    // more of mount(8), which were refused
    let more = "lazytime,nolazytime,strictatime,nostrictatime,norelatime,diratime,nosymfollow,silent,loud,mand,nomand,\
                iversion,noiversion,context=x,fscontext=x,defcontext=x,rootcontext=x,X-mount.mkdir,X-mount.subdir=a";
    for list in [told, more] {
        parse(list).unwrap();
    }
}

#[test]
fn an_unknown_option_is_refused_by_name() {
    assert!(
        parse("ro,colour=red")
            .unwrap_err()
            .starts_with("-o colour=red: unknown option")
    );
}

#[test]
fn what_is_listed_is_accepted() {
    for known in OPTIONS {
        for option in known.beginnings() {
            let option = if option.ends_with('=') {
                format!("{option}{}", known.example)
            } else {
                option
            };
            // /data may be missing, and auto_unmount does not stand alone
            let refused = parse(&option).err().unwrap_or_default();
            let known_why =
                refused.contains("a directory is needed") || refused.contains("auto_unmount needs");
            assert!(refused.is_empty() || known_why, "{option}: {refused}");
        }
    }
}

#[test]
fn a_comma_may_be_escaped() {
    assert_eq!(
        parse(r"fsname=a\,b,ro").unwrap().fsname.as_deref(),
        Some("a,b")
    );
}

#[test]
fn values_are_checked() {
    for list in [
        "umask=888",
        "umask=1000",
        "threads=0",
        "threads=x",
        "cache=",
        "fsname=",
        "subtype=",
        "index-cache",
        "index-cache=",
        "save=maybe",
        "pad",
        "pad=zero",
        "validate",
        "previews=0",
        "previews=4096",
        "stretch=percent:0",
        "stretch=percent:101",
        "stretch=zmax",
        "curve=log",
        "uid=-1",
        "uid=no such user",
        "gid=",
        "allow_other,allow_root",
        "allow_external=",
        "allow_external=/nosuch",
        "allow_external=Cargo.toml",
        "match=",
        "match=a[",
        "open=0",
        "show=",
        "show=tree:all",
    ] {
        assert!(parse(list).is_err(), "{list}");
    }
    let why = parse("allow_external=").err();
    assert!(
        why.as_ref()
            .is_some_and(|why| why.contains("needs a value, as in allow_external=")),
        "{why:?}"
    );
    assert_eq!(parse("umask=027").unwrap().shown.umask, 0o027);
    for (list, cache) in [("cache=1", 16 << 20), ("cache=17M", 17 << 20)] {
        assert_eq!(parse(list).unwrap().cache, cache, "{list}");
    }
}

/// The manual and the help named it, and it was refused: "a time such as 10m or 2h is needed".
#[test]
fn a_timeout_may_be_hard() {
    let timeout = |list| parse(list).map(|options| options.timeout);
    assert_eq!(timeout("timeout=hard"), Ok(Duration::MAX));
    assert_eq!(timeout("timeout=2m"), Ok(Duration::from_mins(2)));
    assert_eq!(timeout("timeout=7"), Ok(Duration::from_secs(7)));
}

#[test]
fn an_option_of_before_is_still_taken() {
    for list in ["index-cache=off", "index-cache=/nosuch,ro"] {
        assert!(
            parse(list)
                .unwrap()
                .named
                .iter()
                .all(|known| known.name == "ro")
        );
    }
}

#[test]
fn memory_is_read_from_meminfo() {
    assert_eq!(
        total_memory("MemTotal:       16 kB\nMemFree: 1 kB\n"),
        Some(16384)
    );
    assert_eq!(total_memory("nonsense"), None);
}
