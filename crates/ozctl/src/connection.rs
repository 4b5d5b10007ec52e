//! The flags that choose cluster, user and namespace: those of kubectl. Each verb takes them before
//! and after its name. Help pages show the common ones; `ozctl options` shows all.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::ArgValueCandidates;

use crate::complete;

const HEADING: &str = "Cluster options";

/// The flags that select cluster, user and namespace.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub(crate) struct Connection {
    /// Namespace [default: that of the kubeconfig's context]
    #[arg(short, long, global = true, add = ArgValueCandidates::new(complete::namespaces))]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", add = ArgValueCandidates::new(complete::contexts))]
    pub(crate) context: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE", value_parser = path())]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// User to act as
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Group to act as a member of; may be repeated
    #[arg(long, global = true, value_name = "GROUP")]
    pub(crate) as_group: Vec<String>,
    /// UID to act as
    #[arg(long, global = true, value_name = "UID", hide = true)]
    pub(crate) as_uid: Option<String>,
    /// Further attribute KEY=VALUE of the user to act as; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE", hide = true)]
    pub(crate) as_user_extra: Vec<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub(crate) user: Option<String>,
    /// URL of the API server
    #[arg(short, long, global = true, value_name = "URL", hide = true)]
    pub(crate) server: Option<String>,
    /// Name that the API server's certificate must have
    #[arg(long, global = true, value_name = "NAME", hide = true)]
    pub(crate) tls_server_name: Option<String>,
    /// Do not check the API server's certificate; another server could read and change all data
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub(crate) insecure_skip_tls_verify: Option<bool>,
    /// File with the certificates that vouch for the API server
    #[arg(long, global = true, value_name = "FILE", hide = true, value_parser = path())]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// File with your certificate
    #[arg(long, global = true, value_name = "FILE", hide = true, value_parser = path())]
    pub(crate) client_certificate: Option<PathBuf>,
    /// File with your certificate's key
    #[arg(long, global = true, value_name = "FILE", hide = true, value_parser = path())]
    pub(crate) client_key: Option<PathBuf>,
    /// Bearer token
    #[arg(long, global = true, value_name = "TOKEN", hide = true)]
    pub(crate) token: Option<String>,
    /// Timeout of one request, such as 30s; 0 for none. Sessions and waiting have other limits
    #[arg(long, global = true, value_name = "DURATION", hide = true)]
    pub(crate) request_timeout: Option<String>,
    /// Request no compression of responses
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub(crate) disable_compression: Option<bool>,
    /// Taken for compatibility; ozctl caches nothing
    #[arg(long, global = true, value_name = "DIRECTORY", hide = true, value_parser = path())]
    pub(crate) cache_dir: Option<PathBuf>,
    /// True if ozctl may not ask for input: a shell waits for completions.
    #[arg(skip)]
    pub(crate) unattended: bool,
}

/// Returns a parser of paths. An empty path means none; the library's own parser rejects it.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl Connection {
    /// Returns the flags for a command line with the same cluster and namespace.
    pub(crate) fn chosen(&self) -> String {
        let path = |path: &PathBuf| path.display().to_string();
        let flags = [
            ("-n", self.namespace.clone()),
            ("--context", self.context.clone()),
            ("--kubeconfig", self.kubeconfig.as_ref().map(path)),
        ];
        let given = flags.into_iter();
        given
            .filter_map(|(flag, value)| Some(format!(" {flag} {}", value?)))
            .collect()
    }

    /// Removes empty values: an empty value is equivalent to no flag, as with kubectl, since
    /// scripts pass on variables that may be empty.
    pub(crate) fn tidy(&mut self) {
        for text in [
            &mut self.namespace,
            &mut self.context,
            &mut self.impersonate,
            &mut self.as_uid,
            &mut self.cluster,
            &mut self.user,
            &mut self.server,
            &mut self.tls_server_name,
            &mut self.token,
            &mut self.request_timeout,
        ] {
            text.take_if(|text| text.is_empty());
        }
        for path in [
            &mut self.kubeconfig,
            &mut self.certificate_authority,
            &mut self.client_certificate,
            &mut self.client_key,
        ] {
            path.take_if(|path| path.as_os_str().is_empty());
        }
    }
}
