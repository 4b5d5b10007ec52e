//! Writing a bundle: audit records pass through as they arrive, one after the other in the order of their time, and
//! the accounts of them are computed at the same time.

use std::collections::BTreeMap;
use std::io::{self, Seek, Write};

use oz_compliance::entitlements::Entitlements;
use oz_compliance::evidence::{self as files, Accounts, Manifest, ObjectDigest, Sums, controls};
use oz_trail::verify::{Evidence, Report};
use oz_trail::{Action, Entry, Published, Writer, canonical};
use serde_json::Value;

use super::archive::{self, Open};
use super::{judged, published_trust, text};

/// The content of a bundle other than audit records.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The scope of the bundle.
    pub manifest: Manifest,
    /// The keys that the cluster published.
    pub keys: Vec<Published>,
    /// The checkpoints, by slot, as they are in the ConfigMap.
    pub checkpoints: BTreeMap<String, String>,
    /// Templates and access policies.
    pub objects: Vec<ObjectDigest>,
    /// The users who could get access.
    pub entitlements: Entitlements,
}

/// A bundle that accepts audit records.
pub struct Assembly<F: Write + Seek> {
    gathered: Gathered,
    archive: archive::Writer<F>,
    records: Open,
    lines: usize,
    accounts: Accounts,
    evidence: Evidence,
    /// The lines of the file `boundary`.
    boundary: Vec<Vec<u8>>,
    /// The sequence number of the first signed audit record of each chain after the period.
    closed: BTreeMap<Writer, u64>,
}

/// A complete bundle without its seal.
pub struct Sealable<F: Write + Seek> {
    archive: archive::Writer<F>,
    /// The sums to seal.
    pub sums: Sums,
    /// The result of verifying the audit records, with the keys that the cluster published.
    pub report: Report,
    /// The accounts of the audit records.
    pub accounts: Accounts,
}

impl<F: Write + Seek> Assembly<F> {
    /// Begins a bundle.
    pub fn new(file: F, gathered: Gathered) -> io::Result<Self> {
        let mut archive = archive::Writer::new(file);
        archive.add(files::MANIFEST, text(&gathered.manifest).as_bytes())?;
        archive.add(files::KEYS, text(&gathered.keys).as_bytes())?;
        archive.add(files::CHECKPOINTS, text(&gathered.checkpoints).as_bytes())?;
        let mut evidence = Evidence::default();
        evidence.objects();
        for (slot, text) in &gathered.checkpoints {
            evidence.checkpoint(slot, text);
        }
        let records = archive.begin(files::RECORDS)?;
        Ok(Self {
            gathered,
            archive,
            records,
            lines: 0,
            accounts: Accounts::default(),
            evidence,
            boundary: Vec::new(),
            closed: BTreeMap::new(),
        })
    }

    /// Adds the spec of an AuditEvent, if it belongs in the bundle.
    pub fn record(&mut self, spec: &Value) -> io::Result<()> {
        let entry = serde_json::from_value::<Entry>(spec.clone()).ok();
        let time = entry.as_ref().map(|entry| entry.record.time);
        let mut line = canonical(spec);
        line.push(b'\n');
        // A line that is not an audit record is included: the check reports it.
        if time.is_none_or(|time| self.gathered.manifest.covers(time)) {
            self.lines += 1;
            self.evidence
                .exported(files::RECORDS, self.lines, spec.clone());
            if let Some(entry) = &entry {
                self.accounts.take(entry);
            }
            return self.archive.write(&mut self.records, &line);
        }
        if entry.is_some_and(|entry| self.bounds(&entry)) {
            self.boundary.push(line);
            let number = self.boundary.len();
            self.evidence
                .exported(files::BOUNDARY, number, spec.clone());
        }
        Ok(())
    }

    /// Checks whether an audit record of another period is needed to judge those of this one. The first audit record
    /// of a chain shows which chains exist; audit records about keys show which signatures are trusted; audit records
    /// about shortening show which others may be missing; the first signed audit record of a chain after the period
    /// shows that none is missing.
    fn bounds(&mut self, entry: &Entry) -> bool {
        let (writer, seq) = (&entry.link.writer, entry.link.seq);
        let before = entry.record.time < self.gathered.manifest.from;
        let action = entry.record.action;
        let closes = match self.closed.get(writer) {
            _ if before => false,
            // Two audit records with the same instant may have any order.
            Some(&closed) => seq < closed,
            None => {
                if entry.link.signature.is_some() {
                    self.closed.insert(writer.clone(), seq);
                }
                true
            }
        };
        closes
            || matches!(action, Action::WriterStarted | Action::TrailShortened)
            || before && action == Action::KeyRotated
    }

    /// Writes the accounts of the audit records.
    pub fn sealable(self) -> io::Result<Sealable<F>> {
        let Self {
            gathered,
            mut archive,
            records,
            accounts,
            evidence,
            boundary,
            ..
        } = self;
        archive.end(records)?;
        archive.add(files::BOUNDARY, &boundary.concat())?;
        archive.add(files::APPROVALS, accounts.approvals().as_bytes())?;
        archive.add(files::REVIEWS, accounts.reviews().as_bytes())?;
        archive.add(files::ATTESTATIONS, accounts.attestations().as_bytes())?;
        archive.add(files::SUMMARY, accounts.summary().as_bytes())?;
        if let Some(sample) = &gathered.manifest.sample {
            archive.add(files::SAMPLE, accounts.sample(sample).as_bytes())?;
        }
        let (objects, entitlements) = (&gathered.objects, &gathered.entitlements);
        archive.add(files::OBJECTS, text(objects).as_bytes())?;
        archive.add(files::ENTITLEMENTS, text(entitlements).as_bytes())?;
        archive.add(files::ENTITLEMENTS_CSV, entitlements.csv().as_bytes())?;
        let trust = published_trust(&gathered.keys).unwrap_or_default();
        let manifest = &gathered.manifest;
        let (report, told) = judged(manifest, evidence, trust);
        archive.add(files::VERIFY, text(&told).as_bytes())?;
        let page = controls(manifest, &accounts, entitlements, objects, &report);
        archive.add(files::CONTROLS, page.as_bytes())?;
        let sums = archive.sums().clone();
        archive.add(files::SUMS, sums.text().as_bytes())?;
        Ok(Sealable {
            archive,
            sums,
            report,
            accounts,
        })
    }
}

impl<F: Write + Seek> Sealable<F> {
    /// Ends the bundle, with the audit record that seals it if there is one.
    pub fn finish(mut self, seal: Option<&Value>) -> io::Result<F> {
        if let Some(seal) = seal {
            self.archive.add(files::SEAL, text(seal).as_bytes())?;
        }
        self.archive.finish()
    }
}
