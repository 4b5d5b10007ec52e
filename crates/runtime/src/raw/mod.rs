//! The text of objects that others stored, before anything decodes it. Whoever may store one object
//! somewhere in the cluster must not be able to stop, slow or fill us by it.

mod decode;
mod layer;
mod scan;
mod split;
mod strip;
#[cfg(test)]
mod tests;

pub(crate) use decode::without_content;
pub use decode::{Undecodable, decode};
pub(crate) use layer::StripLayer;
pub use split::{Form, MAX_OBJECT_BYTES, Piece, RawObject, Splitter};
pub use strip::Strip;
