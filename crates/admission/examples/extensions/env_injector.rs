//! Mutating: every container gets an environment variable.

use k8s_openapi::api::core::v1::{EnvVar, Pod};
use oz_admission::{Cx, Hook, Mutate, Notes, Operation, Rejection, Review};

use super::Arguments;

pub struct EnvInjector {
    pub name: String,
    pub value: String,
}

impl Mutate for EnvInjector {
    type Object = Pod;

    async fn mutate(&self, _: &Cx, _: &Review<Pod>, pod: &mut Pod) -> Result<Notes, Rejection> {
        for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
            let env = container.env.get_or_insert_default();
            // The API server may call again: the second time there is no change.
            if env.iter().all(|variable| variable.name != self.name) {
                let value = Some(self.value.clone());
                env.push(EnvVar {
                    name: self.name.clone(),
                    value,
                    value_from: None,
                });
            }
        }
        Ok(Notes::none())
    }
}

pub fn hook(arguments: &Arguments) -> Hook {
    let injector = EnvInjector {
        name: "GREETING".to_owned(),
        value: "hello".to_owned(),
    };
    Hook::mutating("inject-env", injector)
        .on([Operation::Create])
        .namespaces(arguments.here())
}
