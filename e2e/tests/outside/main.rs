//! The library as foreign users have it: packaged, with a separate application around it, which chooses features and
//! the
//! version of Kubernetes. The application is the README's, as it is written there.

mod application;
mod manifest;
mod program;
