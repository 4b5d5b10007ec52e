//! Whom the pods of runs are to trust: the broker publishes the certificates of its authority in a ConfigMap of
//! oz's own namespace, [`BROKER_CA`](crate::names::BROKER_CA), and pods have them in their environment. So
//! nobody needs to read a Secret for it.

use k8s_openapi::api::core::v1::ConfigMap;

/// The key of the ConfigMap under which they are, as PEM.
pub const BUNDLE_KEY: &str = "ca.crt";
/// The most bytes that are put into an environment: a few certificates, of which one has some 600.
const MOST: usize = 16 * 1024;
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

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
    fn what_would_fill_an_environment_is_not() {
        assert_eq!(trusted(&map(&pem(&"x".repeat(MOST)))), None);
    }
}
