//! What the head of an object may come to, by number and by bytes. It costs whoever stores the object,
//! lists it and keeps it in memory, and whoever may create a request writes what they like there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::labels;

use super::Violation;

/// The most that metadata may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataBounds {
    /// Labels, and annotations; each.
    pub pairs: usize,
    /// Finalizers, and owner references; each.
    pub references: usize,
    /// Bytes of labels, annotations, finalizers and owner references together, as they are written
    /// and without oz's own stamp.
    pub bytes: usize,
}

/// The bounds of whatever asks for access: what an engineer writes by hand, and some more.
pub const REQUEST_METADATA: MetadataBounds = MetadataBounds {
    pairs: 64,
    references: 16,
    bytes: 16 * 1024,
};

/// The bounds of templates: `kubectl apply` keeps all of one once more, in an annotation.
pub const TEMPLATE_METADATA: MetadataBounds = MetadataBounds {
    pairs: 64,
    references: 16,
    bytes: 128 * 1024,
};

/// Checks the metadata of an object that is created, or changed from `old`. What was too much before
/// may stay and may shrink, so that it can still be mended, and freed of its finalizers. Managed fields
/// do not count: nothing of oz reads them, and they are cut out before an object is decoded.
#[must_use]
pub fn metadata(
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
    bounds: &MetadataBounds,
) -> Vec<Violation> {
    let before = old.map(measured);
    let limits = [
        bounds.pairs,
        bounds.pairs,
        bounds.references,
        bounds.references,
        bounds.bytes,
    ];
    let mut found = Vec::new();
    for (index, (size, limit)) in measured(new).into_iter().zip(limits).enumerate() {
        let was = before.map_or(0, |before| before[index]);
        let (field, unit) = MEASURES[index];
        if size <= limit || size <= was {
            continue;
        }
        let message = format!("comes to {size} {unit}: {limit} are enough; take some away");
        found.push(Violation::of(field, message));
    }
    found
}

const MEASURES: [(&str, &str); 5] = [
    ("metadata.labels", "labels"),
    ("metadata.annotations", "annotations"),
    ("metadata.finalizers", "finalizers"),
    ("metadata.ownerReferences", "owner references"),
    (
        "metadata.annotations",
        "bytes, with labels, finalizers and owner references",
    ),
];

fn measured(metadata: &ObjectMeta) -> [usize; MEASURES.len()] {
    let labels = metadata.labels.iter().flatten();
    // The stamp is the webhook's, and as long as the requester's groups make it.
    let annotations = metadata.annotations.iter().flatten().filter(|(key, _)| {
        let key = key.as_str();
        key != labels::REQUESTER && key != labels::REQUESTED_BY
    });
    let finalizers = metadata.finalizers.iter().flatten();
    let owners = metadata.owner_references.iter().flatten();
    let pairs = labels.clone().chain(annotations.clone());
    let bytes = pairs
        .map(|(key, value)| key.len() + value.len())
        .chain(finalizers.clone().map(String::len))
        .chain(owners.clone().map(|owner| {
            owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len()
        }))
        .sum();
    [
        labels.count(),
        annotations.count(),
        finalizers.count(),
        owners.count(),
        bytes,
    ]
}
