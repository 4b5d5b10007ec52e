//! The list of stored recordings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::key::PartName;

/// The recordings of one request, by session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The sessions, in the order in which they were opened.
    pub sessions: Vec<Recorded>,
}

/// The recording of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// `NAMESPACE/REQUEST/SESSION`.
    pub session: String,
    /// The names of the stored parts, in their order.
    pub parts: Vec<String>,
}

impl Listing {
    /// Creates the listing of these parts.
    #[must_use]
    pub fn from_parts(parts: impl IntoIterator<Item = PartName>) -> Self {
        let mut sessions: BTreeMap<_, Vec<PartName>> = BTreeMap::new();
        for part in parts {
            sessions.entry(part.session.clone()).or_default().push(part);
        }
        let sessions = sessions.into_iter().map(|(key, mut parts)| {
            parts.sort_unstable();
            let parts = parts.iter().map(PartName::to_string);
            Recorded {
                session: key.to_string(),
                parts: parts.collect(),
            }
        });
        Self {
            sessions: sessions.collect(),
        }
    }
}
