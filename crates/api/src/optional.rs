//! Optional strings as the original reads them: in Go an empty string equals a missing one.

use serde::{Deserialize, Deserializer};

/// Reads a string; an empty one becomes `None`.
pub(crate) fn not_empty<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()))
}
