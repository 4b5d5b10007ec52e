//! `SHA256SUMS`, as sha256sum(1) writes and checks it.

use oz_api::encode::hex;
use sha2::{Digest as _, Sha256};

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

    /// Returns a description of the first line in which a text differs.
    #[must_use]
    pub fn difference(&self, text: &str) -> Option<String> {
        let own = self.text();
        if own == text {
            return None;
        }
        let mut stated = text.lines();
        for (name, digest) in &self.0 {
            let line = stated.next().unwrap_or_default();
            if line != format!("{digest}  {name}") {
                return Some(format!("{name} is not the file that was summed up"));
            }
        }
        Some("it names files that are not there".to_owned())
    }
}
