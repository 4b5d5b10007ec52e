//! The objects that the author of another object must be able to read, since oz reads them for that object: oz gives no
//! user the content of a Secret that the user may not read.

use oz_api::harness::{BrokerPolicy, HarnessRun, Workspace};

/// An object of the same namespace that another one names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The kind of the object.
    pub kind: NamedKind,
    /// The name of the object.
    pub name: String,
    /// Path of the field with the name.
    pub field: String,
}

/// A kind of a named object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum NamedKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl NamedKind {
    /// The resource, as access reviews name it.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }
}

fn secret(name: &str, field: String) -> Named {
    Named {
        kind: NamedKind::Secret,
        name: name.to_owned(),
        field,
    }
}

/// Returns the object from which the prompt of a run is read.
#[must_use]
pub fn of_run(run: &HarnessRun) -> Vec<Named> {
    let Some(source) = &run.spec.prompt_from else {
        return Vec::new();
    };
    let config = source.config_map_key_ref.as_ref().map(|reference| Named {
        kind: NamedKind::ConfigMap,
        name: reference.name.clone(),
        field: "spec.promptFrom.configMapKeyRef".to_owned(),
    });
    let field = "spec.promptFrom.secretKeyRef".to_owned();
    let reference = source.secret_key_ref.as_ref();
    let secret = reference.map(|reference| secret(&reference.name, field));
    config.into_iter().chain(secret).collect()
}

/// Returns the Secrets with which the seed of a workspace is read.
#[must_use]
pub fn of_workspace(workspace: &Workspace) -> Vec<Named> {
    let repositories = workspace.spec.seed.iter().flat_map(|seed| &seed.repos);
    let named = repositories.enumerate().filter_map(|(number, one)| {
        let reference = one.credentials_secret_ref.as_ref()?;
        let field = format!("spec.seed.repos[{number}].credentialsSecretRef");
        Some(secret(&reference.name, field))
    });
    named.collect()
}

/// Returns the Secrets of the credentials of a policy.
#[must_use]
pub fn of_policy(policy: &BrokerPolicy) -> Vec<Named> {
    let grants = policy.spec.grants.credentials.iter().enumerate();
    let named = grants.filter_map(|(number, grant)| {
        let reference = grant.provider.secret_ref.as_ref()?;
        let field = format!("spec.grants.credentials[{number}].provider.secretRef");
        Some(secret(&reference.name, field))
    });
    named.collect()
}
