//! Files stay readable for other programs, and what other programs write can be saved.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Mount, asdf_mount, can_mount};
use crate::sample::{Block, Sample, array, noise};

/// What stands between the tree and the first block of a file.
fn space(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let position = |needle: &[u8]| {
        bytes
            .windows(needle.len())
            .position(|found| found == needle)
    };
    let (end, block) = (position(b"\n...\n"), position(b"\xd3BLK"));
    bytes[end.unwrap() + 5..block.unwrap()].to_vec()
}

#[test]
fn the_user_chooses_what_stands_behind_the_tree() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "uint8", "[90]"))
        .padding(&[b'\n'; 90])
        .block(Block::raw(&noise(90)));
    for (options, want) in [
        (&[][..], vec![b'\n'; 89]),
        (&["-o", "pad=nul"], vec![0; 89]),
        (&["-o", "pad=blank"], vec![b' '; 89]),
        (&["-o", "pad=none"], vec![]),
    ] {
        let dir = TempDir::new().unwrap();
        let file = sample.write(dir.path());
        let mount = Mount::new(&file, options);
        let tree = mount.text("tree.yaml").replace("x:", "xy:");
        fs::write(mount.path("tree.yaml"), tree).unwrap();
        assert_eq!(mount.read("arrays/xy.bin").unwrap(), noise(90));
        mount.unmount();
        assert_eq!(space(&file), want, "{options:?}");
        assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
    }
}
