//! The real proxy, driven on loopback: a client with TLS that trusts its authority, a host behind TLS, and a broker.

mod authority;
mod broker;
mod certificates;
mod grants;
mod limits;
mod names;
mod reports;
mod requests;
mod streams;
mod upstream;
mod world;
