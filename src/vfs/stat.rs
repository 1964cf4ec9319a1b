//! What `stat(2)` and `getxattr(2)` say of the files of the mount, and changes of attributes: owner and mode, which are those of FILE, and
//! `user.asdf.*`.

use std::ffi::OsStr;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::fs::{StatVfs, XattrFlags};

use super::attr::sizes_of_disk;
use super::node::{Node, View};
use super::scratch::{Role, ScratchFile};
use super::state::State;
use super::views::hdu_source;
use super::{
    Attr, Attributes, Error, FileFacts, Losses, Result, Saves, TreeFile, Vfs, VfsOptions, index,
    info, locked, root_directories,
};
use crate::asdf::text_frame::standard;
use crate::codec::{Choice, codes};
use crate::save::processes::pid_namespace;
use crate::save::store::Facts;
use crate::source::len_u64;

/// The permission bits of a mode, with set-id and sticky bits.
const MODE_MASK: u32 = 0o7777;
/// Of them, those by which a file is a program, or a directory is searched.
const EXECUTE_BITS: u32 = 0o111;
/// The number of the user who may change any file.
const ROOT: u32 = 0;

/// What our extended attributes begin with.
const PREFIX: &str = "user.asdf.";
/// Those of the mount rather than the file: they answer, but are not listed, so that nothing copies them with the root.
const UNLISTED: [&str; 7] = [
    "cache_used",
    "pid",
    "pidns",
    "refused",
    "scratch",
    "unkept",
    "unsaved",
];
/// The longest value that one gets, in bytes; Linux has 64 KiB (`XATTR_SIZE_MAX`).
const LONGEST: usize = 60 << 10;

/// What a value gets that names no compression.
static UNKNOWN_COMPRESSION: LazyLock<String> = LazyLock::new(|| {
    let mut names = vec!["none".to_owned()];
    names.extend(codes());
    let last = names.pop().unwrap_or_default();
    format!("unknown compression; choose {} or {last}", names.join(", "))
});

impl Vfs {
    /// Sizes of FILE's file system; `None` if FILE is on a server, as they are not known then.
    ///
    /// # Errors
    /// [`Error::Library`] if the system does not tell them.
    pub fn statfs(&self) -> Result<Option<StatVfs>> {
        let state = self.shown.now();
        let file = state.snapshot.file().map(|file| file.file());
        let sizes = file.map(|file| sizes_of_disk(file, self.is_read_only()));
        sizes.transpose()
    }

    /// The attributes of a node in a state.
    pub(super) fn attr(&self, state: &State, node: Node) -> Result<Attr> {
        let size = match node {
            Node::Root
            | Node::Blocks
            | Node::Info
            | Node::Hdus
            | Node::ArrayDir(_)
            | Node::ViewDir(..) => 0,
            Node::Status
            | Node::BlocksTsv
            | Node::ArraysTsv
            | Node::FitsTsv
            | Node::ZarrTsv
            | Node::TreeJson => info::len(&self.saves, &self.scratch, state, node),
            Node::StatsTsv => state.stats_len(),
            Node::View(view, number) => state.in_views().len(view, number)?,
            Node::Block(_) | Node::Array(..) => self.blocks.size(state, node)?,
            Node::ArrayLink(number) => len_u64(state.link(number)?.len()),
            Node::HduHeader(_) | Node::HduBin(_) => hdu_source(&state.snapshot, node)?.len(),
            Node::Tree(_) | Node::Scratch(_) => {
                return Ok(attr_of(&self.saves, &*self.file_of(node)?));
            }
        };
        let links = state.links(node, &self.options)?;
        let mut attr = described(&self.saves, state, node, size, links);
        if state.is_growing(node) {
            // the file keeps its number at all lengths, so a length that the kernel keeps may be one of before
            attr.attr_valid = Duration::ZERO;
        }
        Ok(attr)
    }
}

/// The attributes of a scratch file, or of `tree.yaml`, which has FILE's owner and mode.
pub(super) fn attr_of(saves: &Saves, file: &ScratchFile) -> Attr {
    let mut attr = file.attr();
    if file.role() == Role::Tree {
        let of_file = FileFacts::of(&saves.shown.now().stat, &saves.options);
        (attr.perm, attr.uid, attr.gid) = (of_file.perm, of_file.uid, of_file.gid);
    }
    if saves.writing.is_err() {
        // no name changes
        attr.entry_valid = attr.attr_valid;
    }
    attr
}

/// Attributes, without reading the tree, of a node that can't be measured without it; nothing for other nodes. A directory whose names
/// have not been made has the link count 1, which says that directories in it are not counted. A text under `info/` has its last
/// length, if it was made before. The kernel asks again before it tells this length to a program, and keeps no pages that would be cut
/// off there.
pub(super) fn unmeasured(saves: &Saves, state: &State, node: Node) -> Option<Attr> {
    let made = match node {
        Node::ARRAYS => state.is_named(),
        Node::ViewDir(view, _) => state.views.has_made(view),
        text if text.is_info() => {
            let known = locked(&state.infos).get(&node).map_or(0, |info| info.0);
            let attr = described(saves, state, node, known, 1);
            let attr_valid = Duration::ZERO;
            return Some(Attr { attr_valid, ..attr });
        }
        _ => true,
    };
    (!made).then(|| described(saves, state, node, 0, 1))
}

/// The attributes of something with that size and so many names.
pub(super) fn described(saves: &Saves, state: &State, node: Node, size: u64, links: u32) -> Attr {
    let is_read_only = saves.writing.is_err();
    let attr = Attr::of_file(node, size, &state.stat, is_read_only, &saves.options);
    let time = saves.blocks.patched_time(state, node).or(state.time(node));
    Attr {
        nlink: links,
        version: state.version(node),
        mtime: time.unwrap_or(attr.mtime),
        ctime: time.unwrap_or(attr.ctime),
        ..attr
    }
}

impl State {
    /// The link count of a node; that of a directory counts its own `.` and the `..` of each directory in it.
    fn links(&self, node: Node, options: &VfsOptions) -> Result<u32> {
        let directories = match node {
            Node::Root => {
                u32::try_from(root_directories(self.is_fits(), options).len()).unwrap_or(u32::MAX)
            }
            // directories of planes are not counted, which the link count 1 says
            Node::ViewDir(view @ View::Previews, number) => {
                let is_there = self.catalogue().subdirectories(number).is_some()
                    || self.in_views().planes_in(view, number).is_some();
                return is_there.then_some(1).ok_or(Error::NotFound);
            }
            // as those of a directory whose names have not been made: directories in it are not counted
            Node::ViewDir(View::Zarr, number) => {
                let there = self.in_views().zarr().has_directory(number);
                return there.then_some(1).ok_or(Error::NotFound);
            }
            Node::ArrayDir(number) | Node::ViewDir(_, number) => {
                let held = self.catalogue().subdirectories(number);
                u32::try_from(held.ok_or(Error::NotFound)?).unwrap_or(u32::MAX)
            }
            Node::Blocks | Node::Info | Node::Hdus => 0,
            _ => return Ok(1),
        };
        Ok(directories.saturating_add(2))
    }
}

impl Saves {
    /// Gives FILE the owner and the mode that a file of the mount is to have, which has these attributes now. What it has already is no
    /// change. The kernel has checked by then that the user may change those of the file that it knows, by the owner that is shown. The
    /// daemon may be root, and the owner that is shown an option's: so it is asked here who FILE belongs to.
    ///
    /// Execute bits are ignored, as files of the mount never show any, and `install` sets them on all; so are bits that `umask=` hides.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the file has an owner and mode of its own, or shows those that options give; if the user may not do
    /// that to FILE; for set-id and sticky bits. [`Error::Library`] if FILE is another by now, or the system refuses.
    pub(super) fn set_facts(&self, now: &Attr, changes: &Attributes) -> Result<()> {
        let bits = MODE_MASK & !(EXECUTE_BITS | self.options.umask);
        let mode = changes.mode.map(|mode| mode & bits);
        let mode = mode.filter(|mode| *mode != u32::from(now.perm) & bits);
        let uid = changes.uid.filter(|uid| *uid != now.uid);
        let gid = changes.gid.filter(|gid| *gid != now.gid);
        if mode.is_none() && uid.is_none() && gid.is_none() {
            return Ok(());
        }
        // of these files they are FILE's
        let is_of_file = matches!(
            now.node,
            Node::Root | Node::Tree(_) | Node::Scratch(_) | Node::Block(_) | Node::Array(..)
        );
        if !is_of_file {
            return Err(Error::NotPermitted(
                "owner and mode of this file are not yours to change",
            ));
        }
        if mode.is_some_and(|mode| mode & !0o666 != 0) {
            return Err(Error::NotPermitted("FILE gets no set-id and sticky bits"));
        }
        if (uid.is_some() && self.options.uid.is_some())
            || (gid.is_some() && self.options.gid.is_some())
        {
            return Err(Error::NotPermitted(
                "-o uid or -o gid sets the owner that is shown",
            ));
        }
        let mut writer = self.writer()?;
        self.catch_up(Some(&mut writer));
        let state = self.shown.now();
        let may = changes
            .by
            .is_some_and(|user| user == ROOT || (user == state.stat.uid && uid.is_none()));
        if !may {
            return Err(Error::NotPermitted(
                "only the owner of FILE and root change its owner and mode",
            ));
        }
        // bits that are not shown stay
        let mode = mode.map(|mode| mode | (state.stat.mode & MODE_MASK & !bits & 0o777));
        let stat = writer.set_facts(Facts { uid, gid, mode })?;
        if state.is_of(&stat) {
            self.show_times(&state, Some(stat));
        }
        // else another program has changed FILE at the same time, which the next look finds
        Ok(())
    }
}

impl Vfs {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], [`Error::NotFound`].
    pub fn getxattr(&self, node: Node, name: &OsStr) -> Result<Vec<u8>> {
        let wanted = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .ok_or(Error::NoAttribute)?;
        if wanted == "unkept" || wanted == "unsaved" {
            self.tree.wait_for_closing();
        }
        match wanted {
            // a program that is about to unmount asks this: there may be room for the text by now; if not, the attribute tells
            "unkept" => drop(self.tree.rescue(&self.saves)),
            "error" | "rejected" => self.tree.rescue_if_idle(&self.saves),
            _ => {}
        }
        // all are made for one that is asked for: they are few, and one function decides what there is
        let all = self.attributes_of(node)?;
        let found = all.into_iter().find(|(name, _)| *name == wanted);
        let (_, value) = found.ok_or(Error::NoAttribute)?;
        Ok(shortened(value).into_bytes())
    }

    /// The names of the attributes that tell of the file, each with a NUL behind it.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn listxattr(&self, node: Node) -> Result<Vec<u8>> {
        let names = self.attributes_of(node)?;
        Ok(names
            .iter()
            .filter(|(name, _)| !UNLISTED.contains(name))
            .flat_map(|(name, _)| format!("{PREFIX}{name}\0").into_bytes())
            .collect())
    }

    /// Sets an attribute: `user.asdf.compression` of a block encodes it anew, `user.asdf.revert` of the root has `tree.yaml` show FILE's
    /// tree again instead of a text that was refused, and loses that if it is in memory only and the value is `discard`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Exists`], [`Error::NoAttribute`] where the flags forbid it; [`Error::NotSupported`] for any
    /// other attribute.
    pub fn setxattr(
        &self,
        node: Node,
        name: &OsStr,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        if node == Node::Root && name == "user.asdf.revert" {
            return self.tree.give_up_refused(&self.saves, value == b"discard");
        }
        self.saves.open_for_writing()?;
        if !flags.is_empty() {
            match self.getxattr(node, name) {
                Ok(_) if flags.contains(XattrFlags::CREATE) => return Err(Error::Exists),
                // setxattr(2): ENODATA if there is nothing to replace
                Err(error) if flags.contains(XattrFlags::REPLACE) => return Err(error),
                _ => {}
            }
        }
        match node {
            block @ Node::Block(n) if name == "user.asdf.compression" => {
                let choice = compression(value);
                self.saves.noted(
                    block,
                    choice.and_then(|choice| self.saves.recompress(n, choice)),
                )?;
                locked(&self.saves.news).forget_refusals(Some(index(n)));
                Ok(())
            }
            _ => Err(Error::NotSupported(
                "only user.asdf.compression of a block and user.asdf.revert of the root can be set",
            )),
        }
    }

    /// Our attributes can't be removed, and there are no others.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NotPermitted`], [`Error::NoAttribute`].
    pub fn removexattr(&self, node: Node, name: &OsStr) -> Result<()> {
        self.saves.open_for_writing()?;
        self.getxattr(node, name)?;
        Err(Error::NotPermitted("user.asdf attributes follow the file"))
    }

    /// The attributes of a node, without their prefix; none for a node of which there is nothing to tell.
    fn attributes_of(&self, node: Node) -> Result<Vec<(&'static str, String)>> {
        let state = self.shown.now();
        Ok(match node {
            Node::Root => root_attributes(&self.saves, &state, &self.losses()),
            Node::Block(n) => block_attributes(&state, index(n))?,
            Node::Array(n, _) => array_attributes(&state, n)?,
            Node::Tree(_) | Node::Scratch(_) => match self.file_of(node) {
                Ok(file) if file.role() == Role::Tree => text_attributes(&self.tree),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        })
    }
}

/// A text that fits into an attribute.
#[must_use]
pub fn shortened(mut text: String) -> String {
    // cut between characters: half of one would make getfattr print the value in base64
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// The compression that a value names.
fn compression(value: &[u8]) -> Result<Choice> {
    let choice = Choice::named(value.trim_ascii_end());
    choice.ok_or_else(|| Error::Invalid(&UNKNOWN_COMPRESSION))
}

/// Of `tree.yaml`: why it is not saved, and where the text is kept.
fn text_attributes(tree: &TreeFile) -> Vec<(&'static str, String)> {
    let refused = tree.refusal(|refused| {
        let kept = refused.kept().map(|kept| kept.display().to_string());
        let kept = kept.map(|kept| ("rejected", kept));
        [("error", refused.describe())]
            .into_iter()
            .chain(kept)
            .collect()
    });
    refused.unwrap_or_default()
}

/// Of the root: what is known of FILE, and the attributes of the mount, which are [`UNLISTED`].
fn root_attributes(saves: &Saves, state: &State, losses: &Losses) -> Vec<(&'static str, String)> {
    let layout = state.snapshot.layout();
    let mut out = vec![
        ("file", saves.path.display().to_string()),
        ("version", layout.version.to_string()),
        ("container", state.snapshot.container()),
        ("cache_used", state.snapshot.cache().used().to_string()),
        ("pid", std::process::id().to_string()),
    ];
    out.extend(pid_namespace().map(|namespace| ("pidns", namespace)));
    let news = [
        ("unsaved", losses.unsaved.join("\n")),
        ("scratch", losses.scratch.join(", ")),
    ];
    let news = news.into_iter().filter(|(_, value)| !value.is_empty());
    out.extend(news);
    if saves.tree.refusal(|_| ()).is_some() {
        out.push(("refused", "tree.yaml".to_owned()));
    }
    if saves.tree.refusal(|it| it.kept().is_none()) == Some(true) {
        out.push(("unkept", "tree.yaml".to_owned()));
    }
    if let Some(standard) = standard(state.snapshot.text()) {
        out.push(("standard", standard));
    }
    out
}

/// Of a block: its header, how much of it is verified, and what is wrong with it.
fn block_attributes(state: &State, n: usize) -> Result<Vec<(&'static str, String)>> {
    let snapshot = &state.snapshot;
    let header = snapshot.layout().blocks.get(n).ok_or(Error::NotFound)?;
    let mut out = vec![
        (
            "compression",
            Choice::of(header.compression, snapshot.framing(n)).to_string(),
        ),
        ("checksum", header.checksum_text()),
        ("checksum_state", snapshot.checksum_state(n).to_string()),
        ("allocated_size", header.allocated.to_string()),
        ("used_size", header.used.to_string()),
        ("data_size", snapshot.block_len(n).unwrap_or(0).to_string()),
        ("offset", header.offset.to_string()),
        ("flags", header.flags.to_string()),
    ];
    if let Some(error) = snapshot.block_error(n) {
        out.push(("problem", error.to_string()));
    }
    Ok(out)
}

/// Of an array: its declaration, as far as the tree has one, and what is wrong with it.
fn array_attributes(state: &State, number: u32) -> Result<Vec<(&'static str, String)>> {
    let array = state.array(number)?;
    let optional = [
        ("datatype", array.datatype_text()),
        ("shape", array.shape_text()),
        ("byteorder", array.byteorder_text()),
        ("strides", array.strides_text()),
        ("unit", array.unit().map(str::to_owned)),
        ("problem", array.remark()),
    ];
    let mut out: Vec<_> = optional
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    out.push(("source", array.source_text()));
    out.push(("tag", array.tag().to_owned()));
    out.push(("path", array.path()));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;

    /// `rsync -X` left out the file of a table with thousands of columns, because the kernel took no datatype of that length.
    #[test]
    fn no_value_is_longer_than_the_kernel_takes() {
        let fields = (0..4000).map(|n| format!("{{name: column_{n}, datatype: float32}}"));
        let fields = fields.collect::<Vec<_>>().join(", ");
        let text = format!(
            "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            t: !core/ndarray-1.0.0 {{source: 0, datatype: [{fields}], byteorder: little, shape: [0]}}\n...\n"
        );
        let (_dir, vfs) = writable(&Sample::new().text(text.as_bytes()).block(b"abc"));
        let table = vfs.lookup(Node::ARRAYS, "t.bin".as_ref()).unwrap().node;
        let value = vfs.getxattr(table, "user.asdf.datatype".as_ref()).unwrap();
        assert!(value.starts_with(b"[column_0:float32,column_1:"));
        assert_eq!(value.len(), LONGEST);
    }

    #[test]
    fn compressions_are_named_by_their_code_and_dialect() {
        let code = |value: &[u8]| compression(value).unwrap().code;
        assert_eq!(code(b"none"), [0; 4]);
        assert_eq!(code(b"zlib\n"), *b"zlib");
        assert_eq!(code(b"lz4"), *b"lz4\0");
        for bad in [
            &b""[..],
            b"nope",
            b"zlib2",
            b":",
            b"zlib:",
            b"zlib:chunk",
            b"none:chunk",
        ] {
            assert!(matches!(compression(bad), Err(Error::Invalid(_))));
        }
    }

    #[cfg(feature = "blosc")]
    #[test]
    fn a_dialect_is_called_as_it_is_chosen() {
        for (name, framing) in [("blsc", None), ("blsc:chunk", Some("one chunk"))] {
            let choice = compression(name.as_bytes()).unwrap();
            assert_eq!(choice, Choice::of(*b"blsc", framing));
            assert_eq!(choice.to_string(), name);
        }
        assert!(compression(b"blsc:chunks").is_err());
        assert_eq!(Choice::of(*b"bls2", Some("one chunk")).to_string(), "bls2");
    }
}
