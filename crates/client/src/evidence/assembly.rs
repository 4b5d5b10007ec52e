//! Writing a bundle: records are passed through as they come, one after the other in the order of their time, and
//! what is told of them is made meanwhile.

use std::collections::BTreeMap;
use std::io::{self, Seek, Write};

use oz_compliance::entitlements::Entitlements;
use oz_compliance::evidence::{self as files, Accounts, Manifest, ObjectDigest, Sums, controls};
use oz_trail::verify::{Evidence, Report};
use oz_trail::{Action, Entry, Published, Writer, canonical};
use serde_json::Value;

use super::archive::{self, Open};
use super::{judged, published_trust, text};

/// What belongs in a bundle besides records.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// What the bundle is about.
    pub manifest: Manifest,
    /// The keys that the cluster published.
    pub keys: Vec<Published>,
    /// The checkpoints, by slot, as the ConfigMap has them.
    pub checkpoints: BTreeMap<String, String>,
    /// Templates and policies.
    pub objects: Vec<ObjectDigest>,
    /// Who could get in.
    pub entitlements: Entitlements,
}

/// A bundle that takes records.
pub struct Assembly<F: Write + Seek> {
    gathered: Gathered,
    archive: archive::Writer<F>,
    records: Open,
    lines: usize,
    accounts: Accounts,
    evidence: Evidence,
    /// Lines of the file of that name.
    boundary: Vec<Vec<u8>>,
    /// The first signed record of each chain that comes after the time.
    closed: BTreeMap<Writer, u64>,
}

/// A bundle that has everything but its seal.
pub struct Sealable<F: Write + Seek> {
    archive: archive::Writer<F>,
    /// What is to be sealed.
    pub sums: Sums,
    /// What verifying the records came to, by the keys that the cluster published.
    pub report: Report,
    /// What the records come to.
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

    /// Takes the spec of an AuditEvent, if it belongs in the bundle.
    pub fn record(&mut self, spec: &Value) -> io::Result<()> {
        let entry = serde_json::from_value::<Entry>(spec.clone()).ok();
        let time = entry.as_ref().map(|entry| entry.record.time);
        let mut line = canonical(spec);
        line.push(b'\n');
        // What is no record is among them: checking says so.
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

    /// Whether a record of another time is needed to judge those of this one: by the first of a chain it can be told
    /// which chains there are, by keys and by what was shortened, what is believed and what may be missing, and by
    /// the first signed record of a chain that comes after, that none of it is.
    fn bounds(&mut self, entry: &Entry) -> bool {
        let (writer, seq) = (&entry.link.writer, entry.link.seq);
        let before = entry.record.time < self.gathered.manifest.from;
        let action = entry.record.action;
        let closes = match self.closed.get(writer) {
            _ if before => false,
            // Two of one instant may come in any order.
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

    /// Writes what is told of the records.
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
    /// Ends the bundle, with the record that seals it if there is one.
    pub fn finish(mut self, seal: Option<&Value>) -> io::Result<F> {
        if let Some(seal) = seal {
            self.archive.add(files::SEAL, text(seal).as_bytes())?;
        }
        self.archive.finish()
    }
}
