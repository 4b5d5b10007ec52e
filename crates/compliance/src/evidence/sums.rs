//! `SHA256SUMS`, as sha256sum(1) writes and checks it.

use oz_api::encode::hex;
use sha2::{Digest as _, Sha256};

/// The first difference between the sums of files and a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// The text has another line for a file.
    #[error("{name} has another digest")]
    File {
        /// Name of the file.
        name: String,
    },
    /// The text has lines for further files.
    #[error("it names files that do not exist")]
    More,
}

/// The digests of files, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(Vec<(String, String)>);

impl Sums {
    /// Adds a file, with its digest in hexadecimal.
    pub fn add(&mut self, name: &str, digest: String) {
        self.0.push((name.to_owned(), digest));
    }

    /// Returns the content of the file.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.0.iter();
        lines
            .map(|(name, digest)| format!("{digest}  {name}\n"))
            .collect()
    }

    /// Returns `sha256:` and the digest of the file, which is sealed.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("sha256:{}", hex(&Sha256::digest(self.text())))
    }

    /// Returns the first line in which a text differs; `None` if it is the content of the file.
    #[must_use]
    pub fn difference(&self, text: &str) -> Option<Difference> {
        if self.text() == text {
            return None;
        }
        let mut stated = text.lines();
        let mut files = self.0.iter();
        let changed = files.find(|(name, digest)| {
            let own = format!("{digest}  {name}");
            stated.next() != Some(own.as_str())
        });
        Some(match changed {
            Some((name, _)) => Difference::File { name: name.clone() },
            None => Difference::More,
        })
    }
}
