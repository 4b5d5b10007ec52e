//! The grants that a connection uses.

use parking_lot::Mutex;

use super::grants::State;

/// The grants that a connection uses: it is closed when one of them is revoked.
#[derive(Default)]
pub(crate) struct Uses {
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    /// The host and the port: one at a time.
    destination: Option<(String, u16)>,
    credentials: Vec<UsedCredential>,
}

#[derive(PartialEq, Eq)]
struct UsedCredential {
    name: String,
    host: String,
    version: String,
}

impl Uses {
    /// Notes the destination, which replaces the earlier one.
    pub(crate) fn connect(&self, host: &str, port: u16) {
        self.used.lock().destination = Some((host.to_owned(), port));
    }

    /// Notes a credential.
    pub(crate) fn lend(&self, name: &str, host: &str, version: &str) {
        let one = UsedCredential {
            name: name.to_owned(),
            host: host.to_owned(),
            version: version.to_owned(),
        };
        let mut used = self.used.lock();
        if !used.credentials.contains(&one) {
            used.credentials.push(one);
        }
    }

    /// Checks whether all of them are granted.
    pub(crate) fn are_granted(&self, state: &State) -> bool {
        let Ok(granted) = state.granted() else {
            return false;
        };
        let used = self.used.lock();
        let mut credentials = used.credentials.iter();
        let destination = used.destination.as_ref();
        destination.is_none_or(|(host, port)| granted.allows(host, *port))
            && credentials.all(|one| granted.has_credential(&one.name, &one.host, &one.version))
    }
}
