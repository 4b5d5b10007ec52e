//! The constants of the interception of a run's connections, which the builder of pods, the proxy and `netinit` share.

use std::net::{Ipv4Addr, Ipv6Addr};

use sha2::{Digest as _, Sha256};

use crate::encode;

/// The user ID of the proxy: its connections leave the pod.
pub const PROXY_USER: u32 = 1_337;
/// The user ID of the `oz` container: its connections leave the pod.
pub const REPORTER_USER: u32 = 1_338;
/// The port to which every other TCP connection of the pod is redirected, on 127.0.0.1 and `::1`.
pub const PROXY_PORT: u16 = 15_001;
/// The port to which DNS of the pod is redirected, over UDP and TCP, on 127.0.0.1 and `::1`.
pub const DNS_PORT: u16 = 15_053;

/// The network of the addresses that granted names have in the pod: 198.18.0.0/15.
pub const NAMES_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 0, 0), 15);
/// The network of the IPv6 addresses that granted names have in the pod: fd6f:7a00::/32.
pub const NAMES_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd6f, 0x7a00, 0, 0, 0, 0, 0, 0), 32);

/// The text before the digest in a placeholder.
pub const PLACEHOLDER_PREFIX: &str = "pdk-";
/// The number of hexadecimal digits of a placeholder.
pub const PLACEHOLDER_DIGITS: usize = 48;

/// The file in the agent's container with the proxy's authority and the public authorities, as PEM.
pub const TRUST_FILE: &str = "/etc/ssl/certs/paddock-proxy-ca.crt";
/// The name of the same file in the directory into which the proxy writes it.
pub const TRUST_NAME: &str = "ca.crt";

/// The variables in which clients look for trusted certificates: in the containers of a run with connections that are
/// intercepted, each has the value [`TRUST_FILE`].
pub const TRUST_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "PIP_CERT",
];

/// Returns the text that a run has instead of the value of a credential. It is no secret: it states which credential
/// of which run is meant.
#[must_use]
pub fn placeholder(run_uid: &str, name: &str) -> String {
    let digest = encode::hex(&Sha256::digest(format!("{run_uid}\n{name}")));
    format!("{PLACEHOLDER_PREFIX}{}", &digest[..PLACEHOLDER_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_is_prefix_and_digits_and_differs_by_run_and_name() {
        let key = placeholder("u-1", "ANTHROPIC_API_KEY");
        // `printf 'u-1\nANTHROPIC_API_KEY' | sha256sum`
        assert_eq!(key, "pdk-05cce375f04d96680a1de2278c0214b1ccdf9d44d9b53aa7");
        for (run, name) in [("u-2", "ANTHROPIC_API_KEY"), ("u-1", "OTHER")] {
            assert_ne!(placeholder(run, name), key);
        }
    }
}
