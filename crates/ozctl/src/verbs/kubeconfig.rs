//! `ozctl kubeconfig`: writes a kubeconfig with which an unmodified kubectl connects through the
//! gate of a request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::ArgValueCandidates;
use kube::ResourceExt;
use kube::config::{
    AuthInfo, Cluster as Server, Context as Pair, Kubeconfig as Written, NamedAuthInfo,
    NamedCluster, NamedContext,
};
use oz_api::RequestStatus;
use oz_core::kinds::AccessRequest;
use oz_core::{for_each_kind, gate};

use super::revoke::no_request;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::names::Named;
use crate::output::yaml;
use crate::{complete, connect, request};

/// Write a kubeconfig for kubectl and others, for a request that goes through oz's gate
///
/// A template with `sessions: Gate` grants no direct access to the pod: `ozctl exec`, `logs`, `cp`
/// and `port-forward` use the gate automatically, and all other clients require its address. The
/// kubeconfig contains this address and the credentials of your current context: certificates,
/// token, or the plugin that provides one.
///
/// The kubeconfig leads to the pod of this request, for the operations that the request grants,
/// until its expiry; for other objects use your own kubeconfig. The file may contain your
/// credentials: ozctl creates it with mode 0600, and does not overwrite a file.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ozctl kubeconfig alice-x7k2p -o web.kubeconfig
  kubectl --kubeconfig web.kubeconfig exec -it web-7d4b9c5f6-x2x8p -- /bin/sh
  KUBECONFIG=web.kubeconfig kubectl logs -f web-7d4b9c5f6-x2x8p")]
pub(crate) struct Kubeconfig {
    /// Name of the running request, or KIND/NAME
    #[arg(add = ArgValueCandidates::new(complete::requests))]
    name: String,
    /// The file to write; it must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Kubeconfig {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let cluster = context.cluster().await?;
        let named = Named::request(&self.name)?;
        for_each_kind!(requests R => {
            if named.may_be::<R>()
                && let Some(request) = cluster.find(&cluster.api::<R>(), named.name).await?
            {
                let status = request::status(&request);
                by_gate::<R>(named.name, &status)?;
                let (server, user) = connect::chosen(&context.connection).await?;
                let name = request.name_any();
                let written = written(server, user, &cluster.url, &cluster.namespace, &name)?;
                let written = serde_json::to_value(&written)
                    .map_err(|error| Failure::new(format!("failed to write a kubeconfig: {error}")))?;
                return self.write(context, &yaml(&written)?, &status);
            }
        });
        Err(no_request(&cluster, named.name))
    }

    fn write(&self, context: &Context, text: &str, status: &RequestStatus) -> Result<Exit> {
        let Some(path) = &self.output else {
            context.print(text)?;
            return Ok(Exit::SUCCESS);
        };
        let file = create(path).and_then(|mut file| file.write_all(text.as_bytes()));
        file.map_err(|error| unwritten(path, &error))?;
        let pod = status.pod_name.as_deref().unwrap_or("POD");
        let reached = match status.expires_at {
            Some(until) => format!("{pod} until {until}"),
            None => pod.to_owned(),
        };
        context.say_plain(&format!(
            "{} leads to pod {reached}: kubectl --kubeconfig {} exec -it {pod} -- /bin/sh",
            path.display(),
            path.display()
        ));
        Ok(Exit::SUCCESS)
    }
}

/// Checks that the request leads through the gate, and does so now.
fn by_gate<R: AccessRequest>(name: &str, status: &RequestStatus) -> Result<()> {
    if !status.phase.is_granted() {
        let failure = Failure::new(format!(
            "request {name} is {}; a kubeconfig requires one that is Starting or Active",
            status.phase
        ));
        return Err(failure.next(format!("create a new request with `ozctl {}`", R::PURPOSE)));
    }
    if !status.gate {
        let failure = Failure::new(format!("request {name} does not go through oz's gate"));
        return Err(failure.next(
            "use kubectl with the kubeconfig that you have; status.accessMessage of the request says how",
        ));
    }
    Ok(())
}

/// Returns the kubeconfig: the API server and the user of the current one, at the address of the
/// gate.
fn written(
    mut server: Server,
    mut user: AuthInfo,
    url: &str,
    namespace: &str,
    request: &str,
) -> Result<Written> {
    let url = url.trim_end_matches('/');
    server.server = Some(format!("{url}{}", gate::prefix(namespace, request)));
    // The new file is in another directory. The paths of the kubeconfig are absolute, those of flags may be relative.
    for file in [
        &mut server.certificate_authority,
        &mut user.client_certificate,
        &mut user.client_key,
        &mut user.token_file,
    ]
    .into_iter()
    .flatten()
    {
        let path =
            std::path::absolute(&*file).map_err(|error| unwritten(Path::new(file), &error))?;
        *file = path.to_string_lossy().into_owned();
    }
    let name = format!("oz-{namespace}-{request}");
    Ok(Written {
        api_version: Some("v1".to_owned()),
        kind: Some("Config".to_owned()),
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(server),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(Pair {
                cluster: name.clone(),
                user: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                ..Pair::default()
            }),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Written::default()
    })
}

/// Creates a file that only its owner can read.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("failed to write {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            failure.next("name another file with -o, or remove this one")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn credentials_stay_as_they_are_and_only_the_address_is_another() {
        let server: Server = serde_json::from_value(json!({
            "server": "https://kubernetes.example:6443/", "certificate-authority-data": "Y2E=",
            "proxy-url": "http://proxy:3128", "tls-server-name": "kubernetes",
        }))
        .unwrap();
        let user = json!({
            "token": "secret", "client-certificate": "/home/alice/alice.crt", "client-key-data": "a2V5",
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "login", "args": ["--as", "alice"],
                "env": [{"name": "A", "value": "b"}], "interactiveMode": "IfAvailable", "provideClusterInfo": true,
            },
        });
        let parsed: AuthInfo = serde_json::from_value(user.clone()).unwrap();
        let url = "https://kubernetes.example:6443/";
        let made = written(server, parsed, url, "shop", "alice-x7k2p").unwrap();
        let made = serde_json::to_value(&made).unwrap();
        let cluster = &made["clusters"][0]["cluster"];
        assert_eq!(
            cluster["server"],
            "https://kubernetes.example:6443/apis/gate.oz.wizardofoz.co/v1alpha1/namespaces/shop/gates/\
             alice-x7k2p/proxy"
        );
        assert_eq!(cluster["certificate-authority-data"], "Y2E=");
        assert_eq!(cluster["proxy-url"], "http://proxy:3128");
        for (name, value) in user.as_object().unwrap() {
            let written = &made["users"][0]["user"][name];
            assert!(contains(written, value), "{name}: {written}");
        }
        let context = &made["contexts"][0];
        assert_eq!(context["context"]["namespace"], "shop");
        assert_eq!(made["current-context"], context["name"]);
    }

    fn contains(all: &Value, part: &Value) -> bool {
        match part {
            Value::Object(fields) => fields.iter().all(|(name, part)| contains(&all[name], part)),
            _ => all == part,
        }
    }
}
