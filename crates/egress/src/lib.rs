//! The decisions of a harness run's proxy, without I/O: the host of a connection, the names that the pod resolves, the
//! requests that pass, and the place of a credential in a request.
//!
//! Every input is hostile: the agent writes the bytes of [`hello`], [`heads`], [`request`] and [`dns`]. A function of these modules
//! returns a decision for any bytes, within time that grows with their number only.

pub mod address;
pub mod dns;
pub mod grants;
pub mod heads;
pub mod hello;
mod name;
mod placeholder;
pub mod request;
