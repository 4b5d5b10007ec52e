//! Composites in tables: what is claimed, what is asked, what follows from an answer, and what ends.

mod answers;
mod claims;
mod ending;
mod policies;
mod rego;
mod related;
mod rights;
mod settling;
mod supervising;
mod unrunnable;
mod world;
