//! A real Kubernetes for tests, benches and the demo: etcd, the control plane and kwok as child
//! processes of the program that uses them, without root, without a network device, without
//! containers; or, with root, a real node with all of them.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use oz_testkit::Cluster;
//!
//! let cluster = Cluster::shared().await?;
//! let alice = cluster.client("alice").await?;
//! let mark = cluster.audit().mark()?;
//! // … what alice does …
//! let writes = cluster.audit().since(mark)?.by_user("alice").writes().len();
//! # Ok(())
//! # }
//! ```
//!
//! There are two kinds of [`Node`]. With kwok, the default, processes of this machine stand in for
//! containers: an exec into a pod runs a program here, as the user who started the cluster.
//! Standard streams and terminals are real. Two behaviours are not (kwok 0.8): the exit code of the
//! program does not reach the client, who sees an internal error that names it and exits with 1;
//! and the end of standard input does not reach the program, so one that reads to the end hangs. A
//! real node is a kubelet, kube-proxy and containerd in their own namespaces: pods reach Services.
//! Pods have [`NAME_SERVER`], where no server listens unless a test starts one, and this machine reaches pods by address
//! only.
//!
//! `CLUSTER` chooses the cluster: unset for a new one, `current` for that of the user's kubeconfig,
//! `up` for that of `cargo xtask cluster up`. `OZ_KUBERNETES` chooses the version of a new one, such as `1.30`
//! ([`Kubernetes`]); otherwise it is [`KUBERNETES_VERSION`]. `KUBEBUILDER_ASSETS` may name a directory with etcd and
//! the Kubernetes programs; otherwise they are compiled once and cached ([`Tools`]).

mod access;
mod audit;
mod choose;
mod cluster;
mod compile;
mod components;
mod download;
mod features;
mod files;
pub mod fixtures;
mod image;
mod kubeconfig;
mod kubernetes;
mod memory;
mod modules;
mod namespace;
mod node;
pub mod permissions;
mod pki;
mod ports;
mod process;
mod profile;
mod python;
mod repository;
mod scale;
mod spawn;
mod start;
mod state;
mod subject;
mod system;
mod tool;
mod tools;
mod wait;

pub use audit::{AuditEntries, AuditEntry, AuditLog, AuditMark};
pub use cluster::{Cluster, ClusterOptions, USERS};
pub use files::{cache_directory, development_directory};
pub use image::{Image, ImageArchive, compress};
pub use kubernetes::Kubernetes;
pub use memory::MemoryLimit;
pub use modules::KUBERNETES_VERSION;
pub use namespace::{TestNamespace, dump_objects, with_namespace};
pub use node::{NAME_SERVER, Node};
pub use ports::free_address;
pub use process::{
    PROGRAMS, Process, cargo_binary, cargo_example, libfaketime, resident_memory, shift_clock,
};
pub use profile::{PROFILE, Wait};
pub use python::Python;
pub use repository::{EXAMPLES, example_values, examples, repository};
pub use scale::{LONG, is_long, scaled};
pub use spawn::{Running, spawn_dependent};
pub use state::{owner, stop};
pub use system::leave_the_terminal;
pub use tool::Tool;
pub use tools::Tools;
pub use wait::{CONDITION_TIMEOUT, eventually};
