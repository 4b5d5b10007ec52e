//! The client for the cluster that the flags choose, by the rules of kubectl: flags, then the
//! kubeconfig, then the service account of the pod in which ozctl runs.

use std::io::IsTerminal;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue};
use kube::Config;
use kube::config::{
    AuthInfo, Cluster as Server, ExecInteractiveMode, KubeConfigOptions, Kubeconfig,
    KubeconfigError,
};
use oz_api::duration::GoDuration;
use oz_outbound::proxy;

use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::failure::{Failure, Result};

/// The timeout for a connection to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the cluster that the flags choose.
pub(crate) async fn connect(flags: &Connection) -> Result<Cluster> {
    let config = config(flags).await?;
    let named = flags.namespace.clone();
    let namespace = named.unwrap_or_else(|| config.default_namespace.clone());
    Cluster::new(config, &namespace, request_timeout(flags)?)
}

fn request_timeout(flags: &Connection) -> Result<Option<Duration>> {
    let Some(text) = flags.request_timeout.as_deref() else {
        return Ok(None);
    };
    // kubectl reads a number without a unit as seconds.
    let duration = match text.parse::<i64>() {
        Ok(seconds) => GoDuration::from_secs(seconds),
        Err(_) => text
            .parse()
            .map_err(|error| Failure::new(format!("--request-timeout: {error}")))?,
    };
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(0);
    Ok((nanos > 0).then(|| Duration::from_nanos(nanos)))
}

/// Returns the entries of a kubeconfig that the flags choose.
fn options(flags: &Connection) -> KubeConfigOptions {
    KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    }
}

async fn loaded(kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> Result<Config> {
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    config.map_err(|error| {
        Failure::new(format!("failed to use the kubeconfig: {error}"))
            .next("`kubectl config get-contexts` lists what it has")
    })
}

async fn config(flags: &Connection) -> Result<Config> {
    let options = options(flags);
    let kubeconfig = kubeconfig(flags)?;
    if let Some(user) = &flags.user {
        known_user(kubeconfig.as_ref(), user)?;
    }
    let own_proxy = kubeconfig
        .as_ref()
        .and_then(|kubeconfig| server(kubeconfig, &options)?.proxy_url.clone());
    let mut config = match kubeconfig {
        Some(kubeconfig) => loaded(kubeconfig, &options).await?,
        None => match &flags.server {
            Some(server) => Config::new(url(server)?),
            None => Config::incluster().map_err(|_| {
                Failure::new("there is no kubeconfig, and this is not a pod of a cluster")
                    .next("name one with --kubeconfig or $KUBECONFIG")
            })?,
        },
    };
    overrule(&mut config, flags)?;
    // The API server names the owner of fields after the part before the slash.
    let agent = HeaderValue::from_static(concat!("ozctl/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let may_ask = !flags.unattended && std::io::stdin().is_terminal();
    leave_input_alone(&mut config.auth_info, may_ask)?;
    // The library compares NO_PROXY with the proxy; kubectl compares it with the server.
    let proxy = proxy::find(&config.cluster_url, own_proxy.as_deref(), |name| {
        std::env::var(name).ok()
    });
    config.proxy_url = proxy
        .map_err(|error| Failure::new(error.to_string()).next("write it as http://HOST:PORT"))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // A session may be silent for all its duration; pings keep its connection alive.
    config.read_timeout = None;
    Ok(config)
}

/// Returns the API server and the user that the kubeconfig and the flags choose, as written there.
pub(crate) async fn chosen(flags: &Connection) -> Result<(Server, AuthInfo)> {
    let options = options(flags);
    let found = kubeconfig(flags)?;
    let server = found.as_ref().and_then(|found| server(found, &options));
    let Some((kubeconfig, mut server)) = found.as_ref().zip(server.cloned()) else {
        return Err(
            Failure::new("there is no kubeconfig to take the credentials from")
                .next("name one with --kubeconfig or $KUBECONFIG"),
        );
    };
    let mut config = loaded(kubeconfig.clone(), &options).await?;
    overrule(&mut config, flags)?;
    server.tls_server_name = config.tls_server_name;
    if let Some(insecure) = flags.insecure_skip_tls_verify {
        server.insecure_skip_tls_verify = Some(insecure);
    }
    if let Some(file) = &flags.certificate_authority {
        server.certificate_authority_data = None;
        server.certificate_authority = Some(file.to_string_lossy().into_owned());
    }
    Ok((server, config.auth_info))
}

/// Checks that the kubeconfig has this user: the library would continue without credentials.
fn known_user(kubeconfig: Option<&Kubeconfig>, user: &str) -> Result<()> {
    let mut users = kubeconfig.iter().flat_map(|known| &known.auth_infos);
    match users.any(|known| known.name == user) {
        true => Ok(()),
        false => Err(Failure::new(format!("the kubeconfig has no user {user}"))
            .next("`kubectl config get-users` lists what it has")),
    }
}

/// Returns the kubeconfig that the flags or the environment name, merged into one; `None` if none
/// exists.
pub(crate) fn kubeconfig(flags: &Connection) -> Result<Option<Kubeconfig>> {
    let unreadable = |error: KubeconfigError| {
        Failure::new(format!("failed to read the kubeconfig: {error}"))
            .next("name another with --kubeconfig or $KUBECONFIG")
    };
    if let Some(path) = &flags.kubeconfig {
        let read = oz_client::kubeconfig::read(path);
        return read.map(Some).map_err(unreadable);
    }
    let named = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let found = oz_client::kubeconfig::find(named.as_deref()).map_err(unreadable)?;
    match (found, named) {
        (None, Some(named)) => Err(Failure::new(format!(
            "there is no kubeconfig at {}",
            named.display()
        ))
        .next("name another with --kubeconfig or $KUBECONFIG")),
        (found, _) => Ok(found),
    }
}

/// Keeps standard input for the session: typed-ahead or piped input is not for a credential plugin.
/// A plugin may read it only if a user is at a terminal.
fn leave_input_alone(auth: &mut AuthInfo, may_ask: bool) -> Result<()> {
    let Some(plugin) = auth.exec.as_mut().filter(|_| !may_ask) else {
        return Ok(());
    };
    if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
        let command = plugin.command.as_deref().unwrap_or_default();
        return Err(Failure::new(format!(
            "the credential plugin {command} asks at a terminal, and standard input is not one"
        ))
        .next("run it where input is a terminal, or give credentials by --token"));
    }
    plugin.interactive_mode = Some(ExecInteractiveMode::Never);
    Ok(())
}

/// Returns the entry of the kubeconfig for the chosen cluster.
fn server<'a>(kubeconfig: &'a Kubeconfig, options: &'a KubeConfigOptions) -> Option<&'a Server> {
    let context = options
        .context
        .as_ref()
        .or(kubeconfig.current_context.as_ref());
    let context = || {
        let mut contexts = kubeconfig.contexts.iter();
        let named = contexts.find(|known| Some(&known.name) == context)?;
        Some(&named.context.as_ref()?.cluster)
    };
    let name = options.cluster.as_ref().or_else(context)?;
    let mut clusters = kubeconfig.clusters.iter();
    let named = clusters.find(|known| known.name == *name)?;
    named.cluster.as_ref()
}

/// Applies the flags of the command line, which override the kubeconfig.
fn overrule(config: &mut Config, flags: &Connection) -> Result<()> {
    if let Some(server) = &flags.server {
        config.cluster_url = url(server)?;
    }
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    if let Some(insecure) = flags.insecure_skip_tls_verify {
        config.accept_invalid_certs = insecure;
    }
    if let Some(file) = &flags.certificate_authority {
        config.root_cert = Some(oz_client::tls::certificates(file)?);
        // Otherwise the file of a pod's service account would replace the flag.
        config.root_cert_file = None;
    }
    if let Some(disable) = flags.disable_compression {
        config.disable_compression = disable;
    }
    let auth = &mut config.auth_info;
    if let Some(token) = &flags.token {
        if HeaderValue::from_str(token).is_err() {
            return Err(Failure::new("--token: it has letters that no token has")
                .next("give only the token, without characters such as a line break"));
        }
        // With two kinds of credentials the API server would choose; the flag must win.
        *auth = AuthInfo {
            token: Some(token.clone().into()),
            ..AuthInfo::default()
        };
    }
    let path = |path: &std::path::Path| path.display().to_string();
    if let Some(file) = &flags.client_certificate {
        auth.client_certificate = Some(path(file));
        auth.client_certificate_data = None;
    }
    if let Some(file) = &flags.client_key {
        auth.client_key = Some(path(file));
        auth.client_key_data = None;
    }
    if let Some(user) = &flags.impersonate {
        auth.impersonate = Some(user.clone());
        auth.impersonate_groups = None;
    }
    if !flags.as_group.is_empty() {
        auth.impersonate_groups = Some(flags.as_group.clone());
    }
    let more = !flags.as_group.is_empty() || !flags.as_user_extra.is_empty();
    if (more || flags.as_uid.is_some()) && auth.impersonate.is_none() {
        return Err(Failure::new(
            "--as-group, --as-uid and --as-user-extra require a user to impersonate",
        )
        .next("name one with --as"));
    }
    impersonation_headers(config, flags)
}

fn impersonation_headers(config: &mut Config, flags: &Connection) -> Result<()> {
    let mut header = |name: &str, value: &str| -> Result<()> {
        let wrong = |_| Failure::new(format!("{name}: {value} is not a value for a header"));
        let value = HeaderValue::from_str(value).map_err(|error| wrong(error.to_string()))?;
        let name: HeaderName = name.parse().map_err(|_| {
            Failure::new(format!(
                "--as-user-extra: {name} is not a name for a header"
            ))
        })?;
        config.headers.push((name, value));
        Ok(())
    };
    if let Some(uid) = &flags.as_uid {
        header("Impersonate-Uid", uid)?;
    }
    for pair in &flags.as_user_extra {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::new(format!("--as-user-extra: {pair} is not KEY=VALUE")))?;
        header(&format!("Impersonate-Extra-{key}"), value)?;
    }
    Ok(())
}

fn url(text: &str) -> Result<http::Uri> {
    text.parse()
        .map_err(|error| Failure::new(format!("--server: {text} is not a URL: {error}")))
}
