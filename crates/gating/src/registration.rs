//! The decision whether the gate is registered in the API server. While an APIService is unavailable, the API server
//! cannot delete any namespace of the cluster. The APIService is therefore deleted while no gate is ready, and created
//! again when a gate is ready.

use std::borrow::Borrow;
use std::str::FromStr;

use jiff::SignedDuration;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use oz_api::labels;
use oz_core::gate::{GROUP, VERSION};
use oz_core::validate::dns_label;
use serde_json::{Value, json};

use super::API_SERVICE;

/// The time without a ready gate after which the APIService is deleted: longer than the start of a new gate takes.
pub const WITHDRAW_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// Label: the component of oz to which an object belongs. Installations set it on the objects that they create.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// The value of [`COMPONENT`].
pub const GATE: &str = "gate";
/// The label of an EndpointSlice with the name of its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The Service of the gate, in oz's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateService {
    /// The name of the Service.
    pub name: String,
    /// The port of the Service.
    pub port: i32,
}

/// The error for a text that does not name a Service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no Service: write NAME:PORT, such as oz-gate:443")]
pub struct GateServiceError(String);

impl FromStr for GateService {
    type Err = GateServiceError;

    fn from_str(text: &str) -> Result<Self, GateServiceError> {
        let wrong = || GateServiceError(text.to_owned());
        let (name, port) = text.split_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        if dns_label(name).is_err() || port == 0 {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            port: i32::from(port),
        })
    }
}

/// The state of the registration in the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// No APIService exists.
    No,
    /// The APIService is the one of the installation, or was created again.
    Ours,
    /// The APIService leads to another Service, or lacks the label.
    Other,
}

/// The next step of the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No change.
    Leave,
    /// No change yet; the next check follows after this time.
    Wait(SignedDuration),
    /// Deletion of the APIService.
    Withdraw,
    /// Creation of the APIService.
    PutBack,
}

/// Returns the next step; `away` is the time for which no gate has been ready, or `None` if a gate is ready.
#[must_use]
pub fn step(away: Option<SignedDuration>, registered: Registered) -> Step {
    match (away, registered) {
        (None, Registered::No) => Step::PutBack,
        (Some(away), Registered::Ours) if away >= WITHDRAW_AFTER => Step::Withdraw,
        (Some(away), Registered::Ours) => Step::Wait(WITHDRAW_AFTER.saturating_sub(away)),
        _ => Step::Leave,
    }
}

/// Checks whether a gate is ready, by the EndpointSlices of its Service.
#[must_use]
pub fn is_ready<S: Borrow<EndpointSlice>>(slices: &[S]) -> bool {
    let endpoints = slices.iter().flat_map(|slice| &slice.borrow().endpoints);
    endpoints.into_iter().any(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        // An absent condition means ready.
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    })
}

/// Returns the state of the registration for the APIService that was found.
#[must_use]
pub fn registered(
    found: Option<&APIService>,
    namespace: &str,
    service: &GateService,
) -> Registered {
    let Some(found) = found else {
        return Registered::No;
    };
    let spec = found.spec.as_ref();
    let leads_here = spec
        .and_then(|spec| spec.service.as_ref())
        .is_some_and(|to| {
            to.namespace.as_deref() == Some(namespace) && to.name.as_deref() == Some(&service.name)
        });
    let labels = found.metadata.labels.as_ref();
    let is_labelled = labels
        .and_then(|labels| labels.get(COMPONENT))
        .is_some_and(|it| it == GATE);
    match leads_here && is_labelled {
        true => Registered::Ours,
        false => Registered::Other,
    }
}

/// Returns the APIService for its creation. The gate writes the certificates into it.
#[must_use]
pub fn definition(namespace: &str, service: &GateService) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": API_SERVICE,
            "labels": {
                "app.kubernetes.io/name": labels::OZ,
                COMPONENT: GATE,
            },
        },
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"namespace": namespace, "name": service.name, "port": service.port},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> GateService {
        "oz-gate:443".parse().unwrap()
    }

    fn slices(ready: &[Option<bool>]) -> Vec<EndpointSlice> {
        let slice = |ready: &Option<bool>| {
            let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}});
            serde_json::from_value(json!({"addressType": "IPv4", "endpoints": [endpoint]})).unwrap()
        };
        ready.iter().map(slice).collect()
    }

    #[test]
    fn gate_registration_is_withdrawn_after_thirty_seconds_and_restored() {
        let seconds = |seconds| Some(SignedDuration::from_secs(seconds));
        let wait = |seconds| Step::Wait(SignedDuration::from_secs(seconds));
        for (away, registered, expected) in [
            (None, Registered::No, Step::PutBack),
            (None, Registered::Ours, Step::Leave),
            (None, Registered::Other, Step::Leave),
            (seconds(0), Registered::Ours, wait(30)),
            (seconds(29), Registered::Ours, wait(1)),
            (seconds(30), Registered::Ours, Step::Withdraw),
            (seconds(3_000), Registered::Ours, Step::Withdraw),
            (seconds(3_000), Registered::Other, Step::Leave),
            (seconds(0), Registered::No, Step::Leave),
            (seconds(3_000), Registered::No, Step::Leave),
        ] {
            assert_eq!(step(away, registered), expected, "{away:?} {registered:?}");
        }
    }

    #[test]
    fn gate_is_ready_with_single_ready_endpoint_of_any_slice() {
        for (ready, expected) in [
            (&[][..], false),
            (&[Some(false)], false),
            (&[Some(false), Some(true)], true),
            (&[None], true),
        ] {
            assert_eq!(is_ready(&slices(ready)), expected, "{ready:?}");
        }
        let none: EndpointSlice =
            serde_json::from_value(json!({"addressType": "IPv4", "endpoints": null})).unwrap();
        assert!(!is_ready(&[none]));
    }

    #[test]
    fn only_what_leads_to_our_service_and_bears_the_label_is_ours() {
        let ours: APIService = serde_json::from_value(definition("oz", &service())).unwrap();
        assert_eq!(registered(Some(&ours), "oz", &service()), Registered::Ours);
        assert_eq!(registered(None, "oz", &service()), Registered::No);
        assert_eq!(
            registered(Some(&ours), "other", &service()),
            Registered::Other
        );
        let other = GateService {
            name: "other".to_owned(),
            port: 443,
        };
        assert_eq!(registered(Some(&ours), "oz", &other), Registered::Other);
        let mut bare = ours;
        bare.metadata.labels = None;
        assert_eq!(registered(Some(&bare), "oz", &service()), Registered::Other);
        bare.spec = None;
        assert_eq!(registered(Some(&bare), "oz", &service()), Registered::Other);
    }

    #[test]
    fn a_service_is_named_with_its_port() {
        assert_eq!(service().port, 443);
        for wrong in [
            "",
            "oz-gate",
            "oz-gate:",
            ":443",
            "oz-gate:0",
            "oz-gate:70000",
            "Gate:1",
            "a.b:1",
        ] {
            assert!(wrong.parse::<GateService>().is_err(), "{wrong}");
        }
    }
}
