//! The identities that decrypt encrypted recordings. They stay on this machine: ozctl never sends
//! one to the gate.

use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use oz_client::sessions::Identities;

use crate::context::Context;
use crate::failure::{Failure, Result};

/// The maximum size that is read of a file.
const MAX_FILE: u64 = 1 << 20;
/// The file that means standard input.
const STANDARD_INPUT: &str = "-";

/// The flags that name identities.
#[derive(Args)]
pub(super) struct IdentityArgs {
    /// File with age identities that read encrypted recordings, as `age-keygen` writes it; - for standard input; may be
    /// repeated
    #[arg(long = "identity", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl IdentityArgs {
    /// Reads the files; warns if other users can read one of them as well.
    pub(super) fn read(&self, context: &Context) -> Result<Identities> {
        let mut identities = Identities::default();
        for path in &self.files {
            let text = text(context, path)?;
            identities.read(&text).map_err(|why| {
                let message = format!("--identity: {} gives no identity: {why}", path.display());
                Failure::new(message).next("`age-keygen -o FILE` makes such a file")
            })?;
        }
        Ok(identities)
    }
}

fn text(context: &Context, path: &Path) -> Result<String> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format!(
            "--identity: failed to read {}: {error}",
            path.display()
        ))
    };
    let mut text = String::new();
    if path == Path::new(STANDARD_INPUT) {
        let read = std::io::stdin()
            .lock()
            .take(MAX_FILE)
            .read_to_string(&mut text);
        read.map_err(|error| failed(&error))?;
        return Ok(text);
    }
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & 0o077 != 0 {
        let path = path.display();
        context.say_plain(&format!(
            "warning: {path} has a secret key, and others can read it (mode {mode:04o}): chmod 600 {path}"
        ));
    }
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(|error| failed(&error))?;
    Ok(text)
}
