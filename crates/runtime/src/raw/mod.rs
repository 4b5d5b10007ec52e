//! The text of objects that other users stored, before the decoder reads it. A user who may store
//! one object somewhere in the cluster must not be able to stop, slow or fill this process with it.

mod decode;
mod layer;
mod metadata;
mod scan;
mod split;
mod strip;
#[cfg(test)]
mod tests;

pub(crate) use decode::{ListEnd, Unreadable, list_end, metadata_of, value, without_content};
pub use decode::{TOO_LARGE, Undecodable, decode};
pub(crate) use layer::StripLayer;
pub use metadata::KEPT_LABELS;
pub use split::{Form, MAX_OBJECT_BYTES, Piece, RawObject, Splitter};
pub use strip::Strip;
