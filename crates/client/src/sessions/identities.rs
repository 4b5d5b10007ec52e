//! The identities that decrypt encrypted recordings. They stay on this machine: no request to the gate has one.

use oz_gating::recording::{Form, PartName};
use oz_recording::age::{self, AgeError, Identity, IdentityFileError, Recipient, read_identities};
use oz_recording::frames::{self, FramesError};

use super::error::{PartError, SessionError};

/// The given identities.
#[derive(Default)]
pub struct Identities(Vec<Identity>);

impl Identities {
    /// Adds the identities of a file, as `age-keygen` writes it.
    ///
    /// # Errors
    /// The text is not the text of such a file.
    pub fn read(&mut self, text: &str) -> Result<(), IdentityFileError> {
        self.0.extend(read_identities(text)?);
        Ok(())
    }

    /// Checks whether no identity was given.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lines of a part, which are at most `limit` bytes.
    pub(super) fn lines(
        &self,
        name: &PartName,
        stored: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, SessionError> {
        let failed = |error: PartError| SessionError::Part {
            name: Box::new(name.clone()),
            error,
        };
        let unpack = |packed: &[u8]| {
            oz_recording::unpack(packed, limit).map_err(|error| failed(error.into()))
        };
        match name.form {
            Form::Plain => unpack(stored),
            Form::Encrypted => match age::decrypt(stored, &self.0) {
                Ok(packed) => unpack(&packed),
                Err(AgeError::NoMatch) => {
                    let recipients = age::named_recipients(stored).into_iter().flatten();
                    Err(self.no_match(name, recipients.collect()))
                }
                Err(error) => Err(failed(error.into())),
            },
            Form::Frames => frames::open(stored, &self.0, limit).map_err(|error| match error {
                FramesError::Key(AgeError::NoMatch) => {
                    let recipients = frames::named_recipients(stored).into_iter().flatten();
                    self.no_match(name, recipients.collect())
                }
                error => failed(error.into()),
            }),
        }
    }

    fn no_match(&self, name: &PartName, to: Vec<Recipient>) -> SessionError {
        let name = Box::new(name.clone());
        if self.is_empty() {
            return SessionError::Encrypted { name, to };
        }
        let ours = self.0.iter().map(Identity::recipient).collect();
        SessionError::OtherIdentity { name, to, ours }
    }
}
