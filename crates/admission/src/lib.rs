#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod cache;
mod caller;
mod certificate;
mod changes;
pub mod connect;
mod conversion;
mod crypto;
mod decode;
mod endpoint;
mod envelope;
mod functions;
mod handler;
mod hook;
mod lean;
mod manager;
mod metrics;
mod patch;
mod registered_rules;
mod registration;
mod review;
mod rules;
mod scope;
mod server;
mod service;
mod task;
pub mod testing;
mod verdict;
mod watch;
mod wire;

pub use cache::{Cache, NotSynced};
pub use caller::Caller;
pub use certificate::{
    AuthorityError, CertPolicy, CertSource, ClientAuthority, ClientCertificate, Reason,
    UnprovenClient, authority::Error as CertificateError, needs_rotation,
    secret::ROTATE_ANNOTATION, store::Error as StoreError,
};
pub use conversion::{Conversion, Convert, ConvertError, ConvertFn, convert_fn};
pub use decode::{DECODE_FAILED, UNEXPECTED_KIND};
pub use endpoint::{Endpoint, EndpointError};
pub use functions::{
    EachOperation, FromAsyncFn, FromFn, ValidateEach, each_operation, mutate_fn, validate_async_fn,
    validate_fn, watch_fn,
};
pub use handler::{Mutate, Validate};
pub use hook::{FailurePolicy, Hook, HookKind, MatchPolicy, SideEffects};
pub use kube::core::{GroupVersionKind, GroupVersionResource};
pub use manager::{
    ConfigError, Error, Manager, ManagerBuilder, Observer, Registration, RegistrationMode, Upkeep,
    UpkeepError, configurations,
};
pub use oz_runtime::{
    Change, Clock, Event, EventType, Gate, Kind, Runtime, RuntimeError, Selection, Store,
    Subscription, TaskError, shutdown_on_signal, with_causes,
};
pub use registration::{FINGERPRINT_LABEL, apply::Error as RegistrationError};
pub use review::{Cx, Operation, Review, Reviewed, UserInfo};
pub use rules::{ResourceRule, ResourceScope, Rules};
pub use scope::{LabelledNamespace, NamespaceScope};
pub use server::{Limits, peer::Peer, reviewer::Reply};
pub use service::{BUNDLE_KEY, Clients, TlsService};
pub use task::Task;
pub use tokio_util::sync::CancellationToken;
pub use verdict::{Cause, Notes, Rejection};
pub use watch::{Replay, Watch, WatchEvent, Watched, Watcher};
