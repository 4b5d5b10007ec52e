//! The identities that decrypt encrypted recordings. They stay on this machine: ozctl never sends
//! one to the gate.

use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use oz_gating::recording::{Form, PartName};
use oz_recording::age::{self, AgeError, Identity, Recipient, read_identities};
use oz_recording::frames::{self, FramesError};

use crate::context::Context;
use crate::failure::{Failure, Result};

/// The maximum size that is read of a file.
const MAX_FILE: u64 = 1 << 20;
/// The file that means standard input.
const STANDARD_INPUT: &str = "-";

/// How identities are named.
#[derive(Args)]
pub(super) struct IdentityArgs {
    /// File with age identities that read encrypted recordings, as `age-keygen` writes it; - for standard input; may be
    /// repeated
    #[arg(long = "identity", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// The given identities.
#[derive(Default)]
pub(crate) struct Identities(Vec<Identity>);

impl IdentityArgs {
    /// Reads the files; warns if other users can read one of them as well.
    pub(super) fn read(&self, context: &Context) -> Result<Identities> {
        let mut identities = Vec::new();
        for path in &self.files {
            let text = text(context, path)?;
            let read = read_identities(&text).map_err(|why| {
                let message = format!("--identity: {} gives no identity: {why}", path.display());
                Failure::new(message).next("`age-keygen -o FILE` makes such a file")
            })?;
            identities.extend(read);
        }
        Ok(Identities(identities))
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

impl Identities {
    /// Checks whether no identity was given.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lines of a part, which are at most `limit` bytes.
    pub(super) fn lines(&self, name: &PartName, stored: &[u8], limit: usize) -> Result<Vec<u8>> {
        let failed =
            |why: &dyn std::fmt::Display| Failure::new(format!("failed to read {name}: {why}"));
        let unpack =
            |packed: &[u8]| oz_recording::unpack(packed, limit).map_err(|why| failed(&why));
        match name.form {
            Form::Plain => unpack(stored),
            Form::Encrypted => match age::decrypt(stored, &self.0) {
                Ok(packed) => unpack(&packed),
                Err(AgeError::NoMatch) => {
                    let recipients = age::named_recipients(stored).unwrap_or_default();
                    Err(self.no_match(name, &recipients))
                }
                Err(why) => Err(failed(&why)),
            },
            Form::Frames => frames::open(stored, &self.0, limit).map_err(|why| match why {
                FramesError::Key(AgeError::NoMatch) => {
                    let recipients = frames::named_recipients(stored).unwrap_or_default();
                    self.no_match(name, &recipients)
                }
                why => failed(&why),
            }),
        }
    }

    fn no_match(&self, name: &PartName, recipients: &[Recipient]) -> Failure {
        let written = list(recipients.iter().copied())
            .unwrap_or_else(|| "somebody it does not name".to_owned());
        match list(self.0.iter().map(Identity::recipient)) {
            None => Failure::new(format!("{name} is encrypted to {written}"))
                .next("give the age identity of one of them: `--identity FILE`. `ozctl sessions verify` needs none"),
            Some(ours) => Failure::new(format!("{name} is encrypted to {written}, and the identity given is of {ours}"))
                .next("give the identity of one of them: `age-keygen -y FILE` shows whose a file is"),
        }
    }
}

fn list(recipients: impl Iterator<Item = Recipient>) -> Option<String> {
    let all: Vec<String> = recipients.map(|one| one.to_string()).collect();
    (!all.is_empty()).then(|| all.join(", "))
}
