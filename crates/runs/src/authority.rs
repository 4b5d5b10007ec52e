//! The address of the broker in the pods of runs, and the certificates that they trust. The broker publishes the
//! certificates of its authority in a ConfigMap in the namespace of oz, [`BROKER_CA`](oz_api::names::BROKER_CA), and
//! pods have them in their environment, so that no component reads a Secret for them. The address is that of the
//! broker's Service: it is in the hosts file of the pods, since they may not query name servers, through which they
//! could leak data.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};

/// The key of the certificates in the ConfigMap, as PEM.
pub const BUNDLE_KEY: &str = "ca.crt";
/// The maximum size of the certificates in an environment: a few certificates of about 600 bytes each.
const MOST: usize = 16 * 1024;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Name of the port of the Service.
const PORT: &str = "broker";

/// The broker, as the pods of runs connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The host name in pods, for which its certificate is issued.
    pub host: String,
    /// The port of its Service.
    pub port: u16,
    /// The addresses of its Service, one for each IP family.
    pub addresses: Vec<String>,
    /// The certificates of its authority, as PEM.
    pub certificates: String,
}

impl Endpoint {
    /// Creates the endpoint of a broker with this Service and this ConfigMap; `None` while it has no address or no
    /// certificate.
    #[must_use]
    pub fn from_service(service: &Service, certificates: &ConfigMap) -> Option<Self> {
        let metadata = &service.metadata;
        let (name, namespace) = (metadata.name.as_ref()?, metadata.namespace.as_ref()?);
        let spec = service.spec.as_ref()?;
        let mut ports = spec.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref() == Some(PORT))?.port;
        let addresses = spec.cluster_ips.iter().flatten();
        let addresses: Vec<_> = addresses.filter(|it| *it != "None").cloned().collect();
        (!addresses.is_empty()).then_some(Self {
            host: format!("{name}.{namespace}.svc"),
            port: port.try_into().ok()?,
            addresses,
            certificates: trusted(certificates)?,
        })
    }

    /// Returns the URL of the broker.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.port)
    }

    /// Returns the host aliases for a pod.
    pub(super) fn host_aliases(&self) -> Value {
        let line = |address| json!({"ip": address, "hostnames": [self.host]});
        self.addresses.iter().map(line).collect()
    }
}

/// Returns the certificates (PEM) of the ConfigMap, without other content; `None` if there are none, or more than fit
/// into an environment. A pod without certificates cannot connect to the broker, so its run waits.
#[must_use]
pub fn trusted(map: &ConfigMap) -> Option<String> {
    let text = map.data.as_ref()?.get(BUNDLE_KEY)?;
    let mut found = String::new();
    for part in text.split_inclusive(END) {
        if let Some(begin) = part.rfind(BEGIN).filter(|_| part.ends_with(END)) {
            found.push_str(&part[begin..]);
            found.push('\n');
        }
    }
    (!found.is_empty() && found.len() <= MOST).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn map(text: &str) -> ConfigMap {
        ConfigMap {
            data: Some(BTreeMap::from([(BUNDLE_KEY.to_owned(), text.to_owned())])),
            ..ConfigMap::default()
        }
    }

    fn pem(name: &str) -> String {
        format!("{BEGIN}\n{name}\n{END}\n")
    }

    #[test]
    fn only_whole_certificates_are_handed_on() {
        let two = pem("one") + &pem("two");
        assert_eq!(trusted(&map(&two)), Some(two.clone()));
        let noisy = format!("# ours\n{}between\n{}{BEGIN}\nhalf", pem("one"), pem("two"));
        assert_eq!(trusted(&map(&noisy)), Some(two));
        for none in ["", "nothing", BEGIN, END] {
            assert_eq!(trusted(&map(none)), None, "{none}");
        }
        assert_eq!(trusted(&ConfigMap::default()), None);
    }

    #[test]
    fn an_endpoint_has_an_address_a_port_and_certificates() {
        let map = map(&pem("one"));
        let service = |spec: Value| -> Service {
            let metadata = json!({"name": "oz-broker", "namespace": "oz-system"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let port = json!([{"name": "metrics", "port": 1}, {"name": "broker", "port": 8443}]);
        let both = service(json!({"clusterIPs": ["10.0.0.9", "fd00::9"], "ports": port}));
        let found = Endpoint::from_service(&both, &map).unwrap();
        assert_eq!(found.url(), "https://oz-broker.oz-system.svc:8443");
        assert_eq!(
            found.host_aliases(),
            json!([
                {"ip": "10.0.0.9", "hostnames": ["oz-broker.oz-system.svc"]},
                {"ip": "fd00::9", "hostnames": ["oz-broker.oz-system.svc"]},
            ])
        );
        assert_eq!(Endpoint::from_service(&both, &ConfigMap::default()), None);
        for (what, spec) in [
            ("no address yet", json!({"ports": port})),
            ("headless", json!({"clusterIPs": ["None"], "ports": port})),
            (
                "no port of ours",
                json!({"clusterIPs": ["10.0.0.9"], "ports": [{"port": 1}]}),
            ),
        ] {
            assert_eq!(Endpoint::from_service(&service(spec), &map), None, "{what}");
        }
    }

    #[test]
    fn oversized_certificate_bundle_is_not_trusted() {
        assert_eq!(trusted(&map(&pem(&"x".repeat(MOST)))), None);
    }
}
