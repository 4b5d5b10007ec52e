//! The whole of oz on a cluster: installed from the repository's manifests, operator and webhook as
//! processes of this machine under the service accounts and roles that they have in production.
//! Tests, demo and benches stand on this.

mod access;
mod audit;
mod helm;
mod records;
mod scene;
mod system;
mod terminal;

pub use access::{
    AccessRequest, Asked, ExecRequests, PodRequests, Requests, active, conditions_line,
    exec_request, exec_template, pod_request, pod_template,
};
pub use audit::Auditor;
pub use helm::{chart, helm};
pub use records::{records_in, records_of};
pub use scene::{Scene, TEMPLATE, WORKLOAD};
pub use system::{
    NAMESPACE, Operator, Options, System, Webhook, install, repository, run, unregister,
};
pub use terminal::{Piece, Terminal};
