//! The flags of composites.

use std::net::SocketAddr;
use std::str::FromStr;

use clap::{ArgAction, Args};
use oz_composites::Account;

/// Whether and how CompositeControllers are run.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompositeArgs {
    /// Run CompositeControllers (metacontroller.k8s.io/v1alpha1): controllers that are functions.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) composites: bool,

    /// As which service account composites read and write, as NAMESPACE/NAME. The operator impersonates
    /// it; what it may not do, no composite does.
    #[arg(long, value_name = "ACCOUNT", required_if_eq("composites", "true"))]
    pub(crate) composite_account: Option<Account>,

    /// Further service accounts, as NAMESPACE/NAME, that a composite may name: by spec.runAs, or by the annotation
    /// oz.wizardofoz.co/run-as. The operator must be allowed to impersonate them.
    #[arg(long, value_delimiter = ',', value_name = "ACCOUNTS")]
    pub(crate) composite_accounts: Vec<Account>,

    /// Run only CompositeControllers and RegoControllers with these labels, such as team=shop: for several
    /// installations side by side, or beside MetaController. One that loses them is let go of as if it were deleted.
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) composite_selector: Vec<(String, String)>,

    /// How many composites run at most.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    pub(crate) max_composites: usize,

    /// The CompositeControllers, by name, whose parents adopt every object that their selector matches and nothing
    /// controls, as with MetaController. Whoever may create such a parent can have these objects deleted.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) adopt_as_original: Vec<String>,

    /// The namespaces of policies: the keys *.rego of their ConfigMaps are one bundle each, and a hook at
    /// http://SERVICE.NAMESPACE/v0/data/PATH is that bundle's data.PATH, asked in process.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) policy_namespaces: Vec<String>,

    /// Ask the functions at a host at this address, as HOST=ADDRESS:PORT: for tests, and to develop a
    /// function at one's desk. May be given more than once.
    #[arg(long, value_name = "HOST=ADDRESS:PORT")]
    pub(crate) hook_address: Vec<HookAddress>,
}

/// Parses KEY=VALUE.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = parts.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The address of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookAddress {
    pub(crate) host: String,
    pub(crate) address: SocketAddr,
}

impl FromStr for HookAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, address) = text
            .split_once('=')
            .filter(|(host, _)| !host.is_empty())
            .ok_or_else(|| format!("{text:?} is not HOST=ADDRESS:PORT"))?;
        let address = address
            .parse()
            .map_err(|error| format!("{address:?} is not ADDRESS:PORT: {error}"))?;
        Ok(Self {
            host: host.to_lowercase(),
            address,
        })
    }
}
