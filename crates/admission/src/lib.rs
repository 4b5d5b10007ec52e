#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod certificate;
pub mod connect;
mod decode;
mod endpoint;
mod handler;
mod hook;
mod lean;
mod manager;
mod metrics;
mod patch;
mod readiness;
mod registration;
mod review;
mod seen;
mod server;
mod signals;
mod task;
mod verdict;
mod watch;
mod wire;

pub use certificate::{
    CertPolicy, CertSource, Reason, authority::Error as CertificateError, needs_rotation,
    secret::ROTATE_ANNOTATION, store::Error as StoreError,
};
pub use decode::{DECODE_FAILED, UNEXPECTED_KIND};
pub use endpoint::Endpoint;
pub use handler::{Mutate, Validate};
pub use hook::{
    FailurePolicy, Hook, HookKind, NamespaceScope, ResourceRule, ResourceScope, SideEffects,
};
pub use kube::core::{GroupVersionKind, GroupVersionResource};
pub use manager::{
    ConfigError, Degraded, Error, LeaderError, Manager, ManagerBuilder, Observer, Registration,
    RegistrationMode, Upkeep, UpkeepError,
};
pub use readiness::Gate;
pub use registration::{FINGERPRINT_LABEL, apply::Error as RegistrationError};
pub use review::{Cx, Operation, Review, Reviewed, UserInfo};
pub use server::{
    Limits,
    reviewer::{Clock, Reply},
};
pub use signals::signals;
pub use task::{Task, TaskError};
pub use tokio_util::sync::CancellationToken;
pub use verdict::{Cause, Notes, Rejection};
pub use watch::{Replay, Watch, WatchEvent, Watched, Watcher};
