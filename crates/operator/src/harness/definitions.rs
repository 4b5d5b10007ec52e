//! The assembly of the controllers of templates and policies.

use std::sync::Arc;

use oz_core::access::seal::Keys;
use oz_engine::Engine;
use oz_runs::definitions::{ClusterTemplates, Policies, Templates};

use super::policies::{Checked, PolicyObjects};
use super::templates::{ClusterTemplateObjects, TemplateObjects};

/// Adds the controllers of templates and policies, which write their status. `broker` is the user
/// name of brokers.
pub(crate) fn definitions(engine: &mut Engine, keys: &Keys, broker: &str) {
    let feeds = engine.runtime().feeds();
    let (templates, bases, policies) = (feeds.store(), feeds.store(), feeds.store());
    let objects = TemplateObjects {
        templates,
        bases: bases.clone(),
    };
    engine.controller(Templates, objects);
    engine.controller(
        ClusterTemplates,
        ClusterTemplateObjects { templates: bases },
    );
    let controller = Policies {
        keys: keys.clone(),
        broker: broker.to_owned(),
    };
    let objects = PolicyObjects {
        policies,
        broker: Arc::from(broker),
        checked: Checked::default(),
    };
    engine.controller(controller, objects);
}
