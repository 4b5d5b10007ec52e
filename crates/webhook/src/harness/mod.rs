//! Harness runs at admission: who submits them is stamped, and nobody gets through oz what they could not do or
//! read themselves.

mod authors;
mod hooks;
mod record;
mod rules;
mod run;
mod stamp;
mod validate;

pub(crate) use hooks::hooks;
