//! Tests of composites in tables: claims, requests, effects of responses, and expiry.

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
