//! Requests with another credential, or with none.

use oz_api::harness::wire::EgressReason;
use oz_egress::request::Pass;

use crate::credentials::{in_place, injected, refused};
use crate::world::{decided, head, placeholder, to};

#[test]
fn foreign_credential_at_a_host_with_a_credential_is_refused() {
    for (name, host, target, headers) in in_place() {
        for place in [
            "Authorization: Bearer own",
            "Authorization: own",
            "AUTHORIZATION: Basic b3duOm93bg==",
            "Proxy-Authorization: Basic b3duOm93bg==",
            "x-api-key: own",
            "API-Key: own",
            "x-goog-api-key: own",
            "private-token: own",
        ] {
            // Alone, and beside the placeholder in its place, before it and after it.
            let alone = to(host, "/", place);
            refused(host, &alone, EgressReason::ForeignCredential, name);
            for headers in [format!("{place}\n{headers}"), format!("{headers}\n{place}")] {
                let both = decided(host, &to(host, &target, &headers)).unwrap_err();
                assert_eq!(both.status, 403, "{headers}");
            }
        }
        for pair in [
            "key=own",
            "api_key=own",
            "access_token=own",
            "token=own",
            "TOKEN=own",
            "a=b&token=own",
            "a=b;token=own",
            "%74oken=own",
            "%2574oken=own",
            "+token=own",
            "token=&token=own",
        ] {
            let alone = to(host, &format!("/?{pair}"), "");
            refused(host, &alone, EgressReason::ForeignCredential, name);
            let separator = if target.contains('?') { '&' } else { '?' };
            let both = to(host, &format!("{target}{separator}{pair}"), &headers);
            refused(host, &both, EgressReason::ForeignCredential, name);
        }
        for user in ["own", "own:own", ":own", "%6fwn"] {
            let url = head(&format!("GET https://{user}@{host}/\nHost: {host}"));
            refused(host, &url, EgressReason::ForeignCredential, name);
        }
        let cookie = to(host, "/", "Cookie: session=own");
        refused(host, &cookie, EgressReason::ForeignCredential, name);
        let removed = to(host, &target, &format!("{headers}\nCookie: session=own"));
        assert_eq!(decided(host, &removed), injected(name));
    }
}

#[test]
fn foreign_credential_in_the_place_of_a_policy_is_refused() {
    let two = "two.example.com";
    for (target, headers) in [
        ("/", "X-Token: own"),
        ("/?secret=own", ""),
        ("/?SECRET=own", ""),
    ] {
        let head = to(two, target, headers);
        refused(two, &head, EgressReason::ForeignCredential, "ONE");
    }
    let both = format!("X-Token: {}", placeholder('1'));
    let head = to(two, "/?secret=own", &both);
    refused(two, &head, EgressReason::ForeignCredential, "ONE");
    // The credential of another host in its place.
    refused(
        two,
        &to(two, "/", "X-Token: sk-other"),
        EgressReason::ForeignCredential,
        "ONE",
    );
    let free = "free.example.com";
    assert_eq!(
        decided(free, &to(free, "/?secret=x", "X-Token: x")),
        Ok(Pass::Plain)
    );
}

#[test]
fn user_information_is_malformed_at_a_host_without_credential() {
    let host = "free.example.com";
    let url = head(&format!("GET https://user@{host}/\nHost: {host}"));
    let refused = decided(host, &url).unwrap_err();
    assert_eq!(
        (refused.status.as_u16(), refused.reason),
        (400, EgressReason::Protocol)
    );
}

#[test]
fn request_without_credential_passes() {
    for (_, host, _, _) in in_place() {
        for (target, headers) in [
            ("/", ""),
            ("/v1?key=&api_key&limit=3", "Accept: */*\nX-Custom: value"),
            ("/", "Authorization:\nx-api-key: "),
            ("/?tokens=1&my_key=2&keys", ""),
        ] {
            assert_eq!(
                decided(host, &to(host, target, headers)),
                Ok(Pass::Plain),
                "{host}"
            );
        }
    }
    // A host without a credential may have any.
    let free = "free.example.com";
    let headers = "Authorization: Bearer own\nCookie: a=b\nx-api-key: own";
    assert_eq!(
        decided(free, &to(free, "/?token=own", headers)),
        Ok(Pass::Plain)
    );
}
