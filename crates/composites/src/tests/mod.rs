//! Tests of composites in tables: claims, requests, effects of responses, and expiry.

mod answers;
mod claims;
mod ending;
mod expired;
mod parent_end;
mod policies;
mod rego;
mod related;
mod rights;
mod settling;
mod stored;
mod supervising;
mod unrunnable;
mod world;
