//! Windows of transient bindings that have yet to open: later rights, by the groups that their
//! requesters had at the creation of the bindings.

use std::fmt::Write as _;

use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use oz_compliance::entitlements::{Entitlement, sources};
use oz_core::for_each_kind;
use oz_core::transient::Kind;

use super::finding::{Check, Finding};
use crate::cluster::Cluster;
use crate::failure::Result;

/// The maximum number that is shown.
const SHOWN: usize = 20;
/// The maximum number of objects of a kind that are read.
const LOOKED_AT: usize = 20_000;

/// The windows that were read.
#[derive(Default)]
struct Windows {
    found: Vec<Entitlement>,
    /// The number of their bindings.
    bindings: usize,
    /// The cluster has more objects than are read.
    cut_short: bool,
}

pub(super) async fn windows(cluster: &Cluster) -> Result<Finding> {
    let windows = read(cluster, Timestamp::now()).await?;
    Ok(Check::WaitingWindows.good(text(&windows)))
}

async fn read(cluster: &Cluster, now: Timestamp) -> Result<Windows> {
    let mut windows = Windows::default();
    for_each_kind!(bindings B => { add::<B>(cluster, now, &mut windows).await? });
    for_each_kind!(published B => {
        match add::<B>(cluster, now, &mut windows).await {
            // Most clusters do not have this kind, and no role permits a user to read it there.
            Err(failure) if failure.is_forbidden() => {}
            added => added?,
        }
    });
    Ok(windows)
}

async fn add<B: Kind>(cluster: &Cluster, now: Timestamp, windows: &mut Windows) -> Result<()> {
    let api = Api::<B>::all(cluster.client.clone());
    let pages = cluster.pages(&api, ListParams::default(), LOOKED_AT);
    let (bindings, more) = match pages.await {
        // A kind that is not installed has no windows; another finding reports that it is missing.
        Err(failure) if failure.is_unknown_kind() => return Ok(()),
        pages => pages?,
    };
    windows.cut_short |= more;
    for binding in &bindings {
        let Ok(binding) = binding.stored() else {
            continue;
        };
        let found = sources::waiting(&binding, now);
        windows.bindings += usize::from(!found.is_empty());
        windows.found.extend(found);
    }
    Ok(())
}

fn text(windows: &Windows) -> String {
    let mut lines: Vec<String> = windows
        .found
        .iter()
        .map(|one| {
            let (kind, permits) = (one.kind, one.permits.join(" + "));
            let (source, subject, limits) = (&one.source, &one.subject, &one.limits);
            format!("{source}: {permits} for {kind} {subject} {limits}")
        })
        .collect();
    lines.sort();
    let mut text = match windows.bindings {
        0 => "no transient binding waits for its window".to_owned(),
        1 => "1 transient binding waits for its window: ".to_owned(),
        count => format!("{count} transient bindings wait for their windows: "),
    };
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    text.push_str(&lines.join("; "));
    if more > 0 {
        let _ = write!(text, "; and {more} more");
    }
    if windows.cut_short {
        text.push_str(" (there are more bindings than were read)");
    }
    text
}

#[cfg(test)]
mod tests {
    use oz_compliance::entitlements::{EntitlementKind, SubjectKind};

    use super::*;

    fn window(number: usize) -> Entitlement {
        Entitlement {
            way: EntitlementKind::Waiting,
            namespace: "shop".to_owned(),
            kind: SubjectKind::User,
            subject: "alice".to_owned(),
            permits: vec!["ClusterRole view".to_owned()],
            objects: Vec::new(),
            source: format!("TransientRoleBinding shop/shift-{number:02}"),
            limits: "from 2026-01-03T00:00:00Z for 1h".to_owned(),
        }
    }

    #[test]
    fn windows_are_listed_up_to_a_number() {
        let of = |count| Windows {
            found: (0..count).map(window).collect(),
            bindings: count,
            cut_short: false,
        };
        assert_eq!(text(&of(0)), "no transient binding waits for its window");
        assert_eq!(
            text(&of(1)),
            "1 transient binding waits for its window: TransientRoleBinding shop/shift-00: ClusterRole view for User \
             alice from 2026-01-03T00:00:00Z for 1h"
        );
        let many = text(&of(22));
        assert!(many.starts_with("22 transient bindings wait"), "{many}");
        assert!(many.ends_with("; and 2 more"), "{many}");
    }
}
