//! The decision of alice about each line of the list of users who could get access, and its record.

use serde_json::{Value, json};

use crate::output::{run_commands, shows};
use crate::shop;
use crate::stub::{Answer, ReceivedRequest, Stub, status};

/// Answers as the API server of the shop, and also accepts attestations.
fn answer(asked: &ReceivedRequest) -> Answer {
    match asked.what.split_once(' ') {
        Some(("POST", path)) if path.ends_with("/namespaces/oz-system/accessreviews") => {
            (201, asked.body.clone())
        }
        Some(("POST", path)) if path.ends_with("/namespaces/elsewhere/accessreviews") => status(
            403,
            "alice cannot create accessreviews in the namespace \"elsewhere\"",
        ),
        _ => shop::answer(asked),
    }
}

/// Writes the shop's list to a file, with these decisions in their order; the last applies to all
/// following lines.
fn list(stub: &Stub, format: &str, file: &str, decisions: &[(&str, &str)]) {
    let words = ["audit", "entitlements", "--to-attest", "-o", format];
    let list = stub.ozctl(&words).output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    let last = decisions.last();
    let decision = |number: usize| decisions.get(number).or(last).copied().unwrap_or_default();
    let text = match format {
        "csv" => {
            let lines = text.lines().enumerate().map(|(number, line)| {
                match line.strip_suffix(",,").filter(|_| number > 0) {
                    Some(bare) => {
                        let (decision, why) = decision(number - 1);
                        format!("{bare},{decision},{why}\n")
                    }
                    None => format!("{line}\n"),
                }
            });
            lines.collect()
        }
        _ => {
            let mut value: Value = serde_json::from_str(&text).unwrap();
            let lines = value["entitlements"].as_array_mut().unwrap();
            for (number, line) in lines.iter_mut().enumerate() {
                let (decision, why) = decision(number);
                (line["decision"], line["rationale"]) = (decision.into(), why.into());
            }
            value.to_string()
        }
    };
    std::fs::write(stub.directory.path().join(file), text).unwrap();
}

#[test]
fn incomplete_attestation_is_rejected_and_not_recorded() {
    let stub = Stub::start(answer);
    list(&stub, "csv", "none.csv", &[("", "")]);
    list(
        &stub,
        "json",
        "some.json",
        &[
            ("keep", "on call"),
            ("", ""),
            ("maybe", "so"),
            ("keep", " "),
        ],
    );
    list(&stub, "csv", "all.csv", &[("keep", "on call")]);
    list(&stub, "csv", "bidi.csv", &[("keep", "\u{202e}tfel")]);
    let path = |name: &str| stub.directory.path().join(name);
    let all = std::fs::read_to_string(path("all.csv")).unwrap();
    std::fs::write(path("changed.csv"), all.replace("devs", "interns")).unwrap();
    std::fs::write(path("image.png"), [0xff, 0xd8, 0xff]).unwrap();
    let lines = [
        "audit attest none.csv",
        "audit attest some.json",
        "audit attest bidi.csv",
        "audit attest changed.csv",
        "audit attest nothing.csv",
        "audit attest image.png",
        "audit attest all.csv --dry-run",
        "audit attest all.csv --oz-namespace elsewhere",
        "audit attest",
        "audit entitlements --to-attest",
    ];
    shows(&run_commands(&stub, &lines), "attest");
    let asked = stub.asked();
    let posted = asked.iter().filter(|asked| {
        asked.what.starts_with("POST")
            && asked.what.contains("accessreviews")
            && asked.what.contains("oz-system")
    });
    assert_eq!(posted.count(), 0);
}

#[test]
fn attestation_records_digests_counts_and_removals() {
    for format in ["csv", "json"] {
        let stub = Stub::start(answer);
        let file = format!("review.{format}");
        list(
            &stub,
            format,
            &file,
            &[("remove", "left"), ("KEEP", "on call")],
        );
        let said = run_commands(&stub, &[&format!("audit attest {file}")]);
        assert!(said.contains("1 removed (attestation-"), "{said}");
        assert!(said.contains("To be removed manually"), "{said}");
        let asked = stub.asked();
        let posted = asked
            .iter()
            .find(|asked| asked.what.starts_with("POST") && asked.what.ends_with("/accessreviews"));
        let body = &posted.unwrap().body;
        let spec = body["spec"].as_object().unwrap();
        assert_eq!(spec.keys().collect::<Vec<_>>(), ["attestation"]);
        let attestation = &spec["attestation"];
        assert_eq!(attestation["removed"], json!(1));
        assert_eq!(attestation["removals"][0]["rationale"], "left");
        assert_eq!(attestation["removals"].as_array().map(Vec::len), Some(1));
    }
}
