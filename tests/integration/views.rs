//! Further files of arrays: what `-o fits` and `-o previews` show, and `--preview` writes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Mount, asdf_mount, can_mount, daemons_of, run};
use crate::cookbook::{clean, galaxy, has, shell};
use crate::corpus::python;
use crate::sample::{Block, Sample, array, flux, noise, ramp};

/// Bytes of a block that is read where it should not be.
const LEN: usize = 20_000_000;
/// Bytes of a FITS block.
const BLOCK: usize = 2880;

/// The cards of the header at the start of a FITS file, without the blanks at their ends.
fn cards(bytes: &[u8]) -> Vec<String> {
    let cards = bytes.chunks(80);
    let cards = cards.map(|card| String::from_utf8_lossy(card).trim_end().to_owned());
    cards.take_while(|card| card != "END").collect()
}

#[test]
fn fits_files_have_the_values_that_python_reads() {
    let Some(python) = python().filter(|_| can_mount()) else {
        return;
    };
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("kinds.asdf");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fits_oracle.py");
    let oracle = |arguments: &[&Path]| {
        let mut command = Command::new(&python);
        command.arg(&script).args(arguments);
        run(&mut command)
    };
    let made = oracle(&["make".as_ref(), &file]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mount = Mount::new(&file, &["-r", "-o", "fits"]);
    let compared = oracle(&["compare".as_ref(), &file, &mount.dir]);
    assert_eq!(compared.code, 0, "{compared:?}");
    assert!(
        compared.stdout.ends_with("58 equal, 0 different\n"),
        "{compared:?}"
    );
}

/// An image with the coordinates of its gwcs had none in FITS. The numbers are those of gwcs.
#[test]
fn images_have_the_coordinates_that_gwcs_gives() {
    let Some(python) = python().filter(|_| can_mount()) else {
        return;
    };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mount = Mount::new(&tests.join("data/sky.asdf"), &["-r", "-o", "fits"]);
    let mut command = Command::new(&python);
    let command = command.arg(tests.join("fits_oracle.py")).arg("sky");
    let compared = run(command.arg(tests.join("data/sky.tsv")).arg(&mount.dir));
    assert_eq!(compared.code, 0, "{compared:?}");
    assert_eq!(compared.stdout, "0 different\n");
    for (name, why) in [
        (
            "bent",
            "COMMENT no coordinates: degree 5 is 12.86 px off the gwcs",
        ),
        (
            "odd",
            "COMMENT no coordinates: the transform zenithal_equal_area is not known",
        ),
    ] {
        let file = File::open(mount.path(&format!("fits/{name}/data.fits"))).unwrap();
        let mut header = vec![0; 2 * BLOCK];
        file.read_exact_at(&mut header, 0).unwrap();
        let cards = cards(&header);
        assert!(cards.iter().any(|card| card == why), "{cards:?}");
        assert!(!cards.iter().any(|card| card.starts_with("CTYPE")));
    }
}

/// Bytes that the daemon of a mount has read so far.
pub(crate) fn bytes_read(mount: &Mount) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", daemons_of(&mount.dir)[0])).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn what_looks_only_at_names_and_sizes_reads_no_block() {
    if !can_mount() {
        return;
    }
    let shape = format!("[{}]", LEN / 4);
    let body = array("raw", 0, "int32", &shape) + &array("packed", 1, "float32", &shape);
    let sample = Sample::new(&body)
        .block(Block::raw(&noise(LEN)))
        .block(Block::lz4(&ramp(LEN)));
    let dir = TempDir::new().unwrap();
    let views = ["-r", "-o", "fits,previews,zarr"];
    let mount = Mount::new(&sample.write(dir.path()), &views);
    let before = bytes_read(&mount);
    for (program, arguments) in [
        ("ls", &["-lR"][..]),
        ("du", &["-ab"]),
        ("find", &[".", "-size", "+1k", "-ls"]),
    ] {
        let mut command = Command::new(program);
        let said = run(command.args(arguments).current_dir(&mount.dir));
        assert_eq!(said.code, 0, "{said:?}");
        for name in ["packed.fits", "packed.png", "packed/c"] {
            assert!(said.stdout.contains(name), "{name}: {said:?}");
        }
    }
    let read = bytes_read(&mount) - before;
    assert!(read < 1_000_000, "{read} bytes were read");
    let whole = mount.read("fits/packed.fits").unwrap();
    assert_eq!(whole.len() % BLOCK, 0);
    assert!(bytes_read(&mount) - before > read);
}

/// Asks DS9, which counts from 1 and from the left and the bottom, for four elements.
const ASK_DS9: &str = "export XPA_METHOD=local XPA_TMPDIR=$PWD
ds9 -title asked m/fits/data.fits >ds9.log 2>&1 &
until xpaget asked fits size 2>/dev/null | grep -q '300 200'; do kill -0 $!; sleep 0.1; done
xpaget asked data image 1 1 2 2 no | sort
xpaset -p asked exit
wait";

#[test]
fn ds9_shows_row_0_at_the_bottom() {
    let needs = ["ds9", "xvfb-run", "xpaget", "xpaset"];
    if !can_mount() || !has("DS9", needs.into_iter()) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let folder = fs::canonicalize(dir.path()).unwrap();
    fs::write(folder.join("g.asdf"), galaxy(30, 200, 300).bytes()).unwrap();
    fs::write(folder.join("ask"), ASK_DS9).unwrap();
    let script =
        "asdf-mount -r -o fits g.asdf m; xvfb-run --auto-servernum bash -e ask; asdf-mount -u m";
    let said = run(shell(script).current_dir(&folder));
    clean(&folder);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.stdout, "1,1 = 0\n1,2 = 300\n2,1 = 1\n2,2 = 301\n");
}

#[test]
fn topcat_reads_the_columns_of_a_table() {
    if !can_mount() || !has("TOPCAT", ["stilts"].into_iter()) {
        return;
    }
    let column = |name: &str, block: u8, datatype: &str| {
        format!(
            "  - !core/column-1.0.0 {{name: {name}, data: !core/ndarray-1.0.0 \
             {{source: {block}, datatype: {datatype}, byteorder: little, shape: [3]}}}}\n"
        )
    };
    let columns = column("id", 0, "uint32") + &column("name", 1, "[ascii, 2]");
    let body = format!(
        "t: !core/table-1.0.0\n  columns:\n{columns}{}",
        column("flux", 2, "float64")
    );
    let sample = Sample::new(&body)
        .block(Block::raw(
            &[7_u32, 0, u32::MAX].map(u32::to_le_bytes).concat(),
        ))
        .block(Block::lz4(b"a\0bbcc"))
        .block(Block::raw(
            &[1.5_f64, -2.0, 0.25].map(f64::to_le_bytes).concat(),
        ));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-r", "-o", "fits"]);
    let mut stilts = Command::new("stilts");
    let said = run(stilts
        .args(["tpipe", "in=fits/t.fits", "ofmt=csv"])
        .current_dir(&mount.dir));
    let want = "id,name,flux\n7,a,1.5\n0,bb,-2.0\n4294967295,cc,0.25\n";
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, want),
        "{}",
        said.stderr
    );
}

/// A float32 as a FITS file has it.
fn big_endian(values: &[u8]) -> Vec<u8> {
    let values = values.chunks(4);
    values
        .flat_map(|value| value.iter().rev().copied())
        .collect()
}

#[test]
fn a_fits_file_follows_edits_of_its_array_and_of_the_tree() {
    if !can_mount() {
        return;
    }
    let body = "meta: {flux: !unit/quantity-1.1.0 {unit: Jy, value: !core/ndarray-1.0.0 \
        {source: 0, datatype: float32, byteorder: little, shape: [4, 6]}}}\n";
    let sample = Sample::new(body).block(Block::lz4(&flux()));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-o", "fits"]);
    let name = "fits/meta/flux/value.fits";
    let whole = mount.read(name).unwrap();
    assert_eq!(whole.len(), 2 * BLOCK);
    let header = cards(&whole);
    for card in [
        "BITPIX  =                  -32",
        "NAXIS1  =                    6",
        "NAXIS2  =                    4",
        "BUNIT   = 'Jy      '",
        "EXTNAME = 'meta/flux/value'",
    ] {
        assert!(header.iter().any(|found| found == card), "{header:?}");
    }
    assert_eq!(whole[BLOCK..BLOCK + 96], big_endian(&flux()));
    assert!(whole[BLOCK + 96..].iter().all(|byte| *byte == 0));

    let first = || {
        let open = File::open(mount.path(name)).unwrap();
        let mut number = [0; 4];
        open.read_exact_at(&mut number, BLOCK as u64).unwrap();
        f32::from_be_bytes(number)
    };
    assert_eq!(first().to_bits(), 0);
    let written = File::options()
        .write(true)
        .open(mount.path("arrays/meta/flux/value.bin"))
        .unwrap();
    written.write_all_at(&1.5_f32.to_le_bytes(), 0).unwrap();
    drop(written);
    assert_eq!(first().to_bits(), 1.5_f32.to_bits());

    let tree = mount.text("tree.yaml");
    fs::write(mount.path("tree.yaml"), tree.replace("Jy", "mJy")).unwrap();
    let header = cards(&mount.read(name).unwrap());
    assert!(
        header.contains(&"BUNIT   = 'mJy     '".to_owned()),
        "{header:?}"
    );
    fs::write(mount.path("tree.yaml"), tree.replace("flux:", "flow:")).unwrap();
    assert!(mount.read(name).is_err());
    assert!(mount.read("fits/meta/flow/value.fits").is_ok());
    assert_eq!(mount.names("fits/meta"), ["flow"]);
}

#[test]
fn what_fits_cannot_hold_is_listed_with_the_reason() {
    if !can_mount() {
        return;
    }
    let body = array("text", 0, "[ascii, 4]", "[2]");
    let sample = Sample::new(&body).block(Block::raw(&flux()));
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &["-o", "fits"]);
    assert!(mount.names("fits").is_empty());
    let why = mount.text("info/fits.tsv");
    assert!(
        why.contains("text\t-\t-\tarray text: FITS images are of numbers, not of strings"),
        "{why}"
    );
    for (refused, how) in [
        (fs::write(mount.path("fits/x.fits"), b"x"), "a new file"),
        (fs::create_dir(mount.path("fits/x")), "a new directory"),
        (fs::remove_dir(mount.path("fits")), "no directory"),
    ] {
        assert!(refused.is_err(), "{how}");
    }
    mount.unmount();
    let mount = Mount::new(&file, &[]);
    assert_eq!(
        mount.names("info"),
        [
            "arrays.tsv",
            "blocks.tsv",
            "stats.tsv",
            "status",
            "tree.json"
        ]
    );
    assert!(!mount.path("fits").exists());
}

#[test]
fn what_the_elements_of_an_array_do_not_say_is_listed() {
    if !can_mount() {
        return;
    }
    let column = "!core/column-1.0.0 {name: n, data: !core/ndarray-1.0.0 {datatype: [ucs4, 1], data: [a, \u{e9}]}}";
    let body = format!(
        "t: !core/table-1.0.0 {{columns: [{column}]}}\nc: !core/ndarray-1.0.0 {{datatype: int32, data: [1, null, ~]}}\n"
    );
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&body).write(dir.path());
    let mount = Mount::new(&file, &["-o", "fits"]);
    let arrays = mount.text("info/arrays.tsv");
    assert!(
        arrays.contains("\t12\t2 nulls in the tree read as zeros\t"),
        "{arrays}"
    );
    let text = mount.text("info/fits.tsv");
    assert!(text.contains("t\tfits/t.fits\t8640\t\n"), "{text}");
    let refused = mount.read("fits/t.fits").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(5));
    let tree = mount.text("tree.yaml").replace('\u{e9}', "e");
    fs::write(mount.path("tree.yaml"), tree).unwrap();
    assert!(mount.read("fits/t.fits").is_ok());
}

#[test]
fn a_fits_file_is_not_written_to() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "int16", "[48]")).block(Block::raw(&flux()));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-o", "fits"]);
    let path = mount.path("fits/x.fits");
    assert!(path.metadata().unwrap().permissions().readonly());
    assert!(File::options().write(true).open(&path).is_err());
    assert!(fs::remove_file(&path).is_err());
    assert!(fs::rename(&path, mount.path("y.fits")).is_err());
    assert_eq!(mount.read("fits/x.fits").unwrap().len(), 2 * BLOCK);
}

#[test]
fn statistics_are_those_of_the_saved_elements() {
    if !can_mount() {
        return;
    }
    let values = [1.5_f32, f32::NAN, -2.0, 4.0].map(f32::to_le_bytes);
    let body = array("a", 0, "float32", "[4]")
        + &array("big", 1, "uint64", "[2]")
        + &array("name", 0, "[ascii, 4]", "[4]");
    let numbers = [u64::MAX, 7].map(u64::to_le_bytes).concat();
    let sample = Sample::new(&body)
        .block(Block::lz4(&values.concat()))
        .block(Block::raw(&numbers));
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    let listed = mount.path("info/stats.tsv").metadata().unwrap().len();
    let text = mount.text("info/stats.tsv");
    assert_eq!(text.len() as u64, listed);
    let rows: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let want = [
        "path min max mean nan",
        "a -2.0 4.0 1.1666666666666667 1",
        "big 7 18446744073709551615 9.223372036854776e18 0",
        "name - - - -",
    ];
    assert_eq!(rows, want);
    let written = File::options().write(true).open(mount.path("arrays/a.bin"));
    let written = written.unwrap();
    written.write_all_at(&9.0_f32.to_le_bytes(), 0).unwrap();
    drop(written);
    assert!(mount.text("info/stats.tsv").contains("9.0\t"));
    mount.unmount();
    let said = asdf_mount(["--list".as_ref(), "--stats".as_ref(), file.as_os_str()]);
    assert!(
        said.stdout
            .contains("float32 [4]  -2.0 .. 9.0, mean 3.6666666666666665, 1 NaN\n"),
        "{said:?}"
    );
    let said = asdf_mount([
        "--list".as_ref(),
        "--stats".as_ref(),
        "--json".as_ref(),
        file.as_os_str(),
    ]);
    let want = r#""stats":{"min":7,"max":18446744073709551615,"mean":9.223372036854776e+18,"nan":0,"problem":null}"#;
    assert!(said.stdout.contains(want), "{said:?}");
    assert!(
        said.stdout
            .contains(r#""stats":{"min":null,"max":null,"mean":null,"nan":null,"problem":null}"#),
        "{said:?}"
    );
    let said = asdf_mount(["--list".as_ref(), "--json".as_ref(), file.as_os_str()]);
    assert!(!said.stdout.contains("stats"), "{said:?}");
}
