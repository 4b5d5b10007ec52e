//! The webhook on a real API server, alone: what people do, what they are told, and what is stored.

mod replicas;
mod requests;
mod roles;
mod support;
mod templates;
