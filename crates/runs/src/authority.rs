//! Where pods of runs find the broker, and whom they trust there. The broker publishes the certificates of its
//! authority in a ConfigMap of oz's own namespace, [`BROKER_CA`](oz_api::names::BROKER_CA), and pods have them in
//! their environment: so nobody needs to read a Secret for it. Its address is that of its Service: the pods' hosts
//! file has it, since they may ask no name server, by which they could tell others what they know.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};

/// The key of the ConfigMap under which they are, as PEM.
pub const BUNDLE_KEY: &str = "ca.crt";
/// The most bytes that are put into an environment: a few certificates, of which one has some 600.
const MOST: usize = 16 * 1024;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Name of the port of the Service.
const PORT: &str = "broker";

/// The broker as pods of runs know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name that it has in pods, which its certificate is for.
    pub host: String,
    /// The port of its Service.
    pub port: u16,
    /// The addresses of its Service: one, or one of each family.
    pub addresses: Vec<String>,
    /// The certificates that it is known by, as PEM.
    pub certificates: String,
}

impl Endpoint {
    /// The endpoint of a broker with this Service and this ConfigMap; `None` while it has no address or no
    /// certificate.
    #[must_use]
    pub fn of(service: &Service, certificates: &ConfigMap) -> Option<Self> {
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

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.port)
    }

    /// The lines of a pod's hosts file about it.
    pub(super) fn host_aliases(&self) -> Value {
        let line = |address| json!({"ip": address, "hostnames": [self.host]});
        self.addresses.iter().map(line).collect()
    }
}

/// The certificates (PEM) that the ConfigMap holds, and nothing else of it; `None` if there are none, or more
/// than an environment is given. A pod made without them could not trust anybody: it is to wait.
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
        let found = Endpoint::of(&both, &map).unwrap();
        assert_eq!(found.url(), "https://oz-broker.oz-system.svc:8443");
        assert_eq!(
            found.host_aliases(),
            json!([
                {"ip": "10.0.0.9", "hostnames": ["oz-broker.oz-system.svc"]},
                {"ip": "fd00::9", "hostnames": ["oz-broker.oz-system.svc"]},
            ])
        );
        assert_eq!(Endpoint::of(&both, &ConfigMap::default()), None);
        for (what, spec) in [
            ("no address yet", json!({"ports": port})),
            ("headless", json!({"clusterIPs": ["None"], "ports": port})),
            (
                "no port of ours",
                json!({"clusterIPs": ["10.0.0.9"], "ports": [{"port": 1}]}),
            ),
        ] {
            assert_eq!(Endpoint::of(&service(spec), &map), None, "{what}");
        }
    }

    #[test]
    fn oversized_certificate_bundle_is_not_trusted() {
        assert_eq!(trusted(&map(&pem(&"x".repeat(MOST)))), None);
    }
}
