//! Limits for the metadata of an object, by number and by bytes. Metadata costs every component that stores
//! the object, lists it and caches it, and each user who may create a request chooses its content.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use oz_api::labels;

use super::Violation;

/// The maximum size of the metadata of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataBounds {
    /// The maximum number of labels, and of annotations.
    pub pairs: usize,
    /// The maximum number of finalizers, and of owner references.
    pub references: usize,
    /// Bytes of labels, annotations, finalizers and owner references together, as they are written and
    /// without oz's own stamp.
    pub bytes: usize,
}

/// The bounds of objects that request access: the metadata that a requester writes by hand, and a reserve.
pub const REQUEST_METADATA: MetadataBounds = MetadataBounds {
    pairs: 64,
    references: 16,
    bytes: 16 * 1024,
};

/// The bounds of templates: `kubectl apply` stores the whole template once more, in an annotation.
pub const TEMPLATE_METADATA: MetadataBounds = MetadataBounds {
    pairs: 64,
    references: 16,
    bytes: 128 * 1024,
};

/// Checks the metadata of an object that is created, or changed from `old`. Metadata that exceeded a limit
/// before may stay and may shrink, so that users can still repair the object and remove its finalizers.
/// Managed fields do not count: oz does not read them, and they are removed before an object is decoded.
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
        let message = format!("has {size} {unit}: the maximum is {limit}; remove some");
        found.push(Violation::new(field, message));
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
    // The webhook writes the stamp, and its length depends on the requester's groups.
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
