//! The files of the authority, and of the state for the kubelet.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::proxy::authority::Authority;
use crate::proxy::ready;

#[test]
fn authority_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let trust = directory.path().join("ca.crt");
    let first = Authority::open(directory.path(), "team/hello").unwrap();
    first.publish(&trust).unwrap();
    let published = fs::metadata(&trust).unwrap();
    let second = Authority::open(directory.path(), "team/hello").unwrap();
    second.publish(&trust).unwrap();
    assert_eq!(first.certificate(), second.certificate());
    // The same file: agents have mounted it.
    assert_eq!(fs::metadata(&trust).unwrap().ino(), published.ino());
    assert_eq!(published.permissions().mode() & 0o777, 0o644);
    let key = fs::metadata(directory.path().join("authority.pem")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let leaf = second.leaf("a.example.com").unwrap();
    assert_eq!(leaf.cert.len(), 1);
}

#[test]
fn trust_file_has_the_authority_and_the_public_ones() {
    let directory = tempfile::tempdir().unwrap();
    let trust = directory.path().join("ca.crt");
    let authority = Authority::open(directory.path(), "team/hello").unwrap();
    authority.publish(&trust).unwrap();
    let text = fs::read_to_string(&trust).unwrap();
    assert!(!text.contains("PRIVATE"));
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    let public = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
    assert_eq!(certificates.len(), public.len() + 1);
    assert_eq!(&certificates[0], authority.certificate());
    assert_eq!(&certificates[1..], public);
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    assert_eq!(added, public.len() + 1);
}

#[test]
fn incomplete_authority_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("authority.pem"), "-----BEGIN").unwrap();
    let made = Authority::open(directory.path(), "team/hello").unwrap();
    let read = Authority::open(directory.path(), "team/hello").unwrap();
    assert_eq!(made.certificate(), read.certificate());
}

/// The original copies one key of an authority into every namespace.
#[test]
fn f18_each_proxy_has_an_authority_of_its_own() {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let first = Authority::open(one.path(), "team/hello").unwrap();
    let second = Authority::open(two.path(), "team/hello").unwrap();
    assert_ne!(first.certificate(), second.certificate());
    let read = |directory: &tempfile::TempDir| fs::read(directory.path().join("authority.pem"));
    assert_ne!(read(&one).unwrap(), read(&two).unwrap());
}

/// Names without end: the number of certificates in memory is limited.
#[test]
fn number_of_leaves_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path(), &"x".repeat(200)).unwrap();
    for number in 0..600 {
        let name = format!("{number}.example.com");
        authority.leaf(&name).unwrap();
    }
    assert_eq!(authority.made(), 600);
    assert_eq!(authority.kept(), 256);
}

#[test]
fn readiness_names_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let check = || ready::wait(directory.path(), Duration::ZERO);
    assert!(format!("{:#}", check().unwrap_err()).contains("not started"));
    ready::set(directory.path(), Some("no broker")).unwrap();
    assert_eq!(check().unwrap_err().to_string(), "no broker");
    ready::set(directory.path(), None).unwrap();
    check().unwrap();
}
