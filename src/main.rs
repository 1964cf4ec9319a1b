//! Mounts an ASDF file as a directory.

use std::process::ExitCode;

fn main() -> ExitCode {
    asdf_mount::cli::run()
}
