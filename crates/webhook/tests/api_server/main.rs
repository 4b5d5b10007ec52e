//! The webhook alone on a real API server: the actions of users, the responses, and the stored
//! objects.

mod replicas;
mod requests;
mod roles;
mod support;
mod templates;
