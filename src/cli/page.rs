//! `--page`: files as one page of HTML.

use std::path::Path;

use super::exit::{Exit, Failure};
use super::options::Options;
use super::preview::{check_replaceable, save};
use super::{complain, files, report};
use crate::view::page::{BEGINS, Page};

/// Writes a page with a file, or with each file of a directory, to `out`. The status is that of the last file that can't be read.
pub(super) fn write(out: &Path, path: &Path, options: &Options) -> Result<Exit, Failure> {
    check_replaceable(out, BEGINS, "page")?;
    let files = files::all(&[path.to_owned()], &options.matching);
    let many = path.is_dir();
    let mut page = Page::new(files.len(), options.shown.style);
    let mut status = Exit::Ok;
    for (file, found) in &files {
        let name = file.strip_prefix(path).ok().filter(|_| many);
        let name = name
            .or_else(|| file.file_name().map(Path::new))
            .unwrap_or(file);
        let name = name.display().to_string();
        match found.clone().and_then(|()| report::read(file, options)) {
            Ok(snapshot) => page.add(&name, &snapshot),
            Err(failure) if many => {
                complain(&failure.message);
                page.add_unread(&name, &failure.message);
                status = failure.exit;
            }
            Err(failure) => return Err(failure),
        }
    }
    let title = path.file_name().map_or(path, Path::new);
    save(out, page.finish(&title.display().to_string()).as_bytes())?;
    Ok(status)
}
