//! The gate's flags. Flags that the other processes also have use the same names.

use clap::Parser;
use oz_api::names;
use oz_config::ConfigArgs;
use oz_runtime::{Address, Common};

/// Opens sessions to the pods of grants, through the API server, and ends them with the grant.
#[derive(Clone, Debug, Parser)]
// The last value of a repeated flag applies: charts and manifests append flags.
#[command(name = names::GATE, version, args_override_self = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Address to serve the API server on, as IP:PORT or :PORT.
    #[arg(long, default_value = ":8443", value_name = "ADDRESS")]
    pub(crate) listen: Address,

    /// Address to serve /healthz, /readyz and /metrics on, as IP:PORT or :PORT; 0 to serve none of them.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    pub(crate) health_probe_bind_address: Address,
}
