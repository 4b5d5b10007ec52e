//! The library as strangers have it: packaged, with an application of their own around it, which chooses
//! features and the version of Kubernetes. The application is the README's, as it is written there.

mod application;
mod manifest;
mod program;
