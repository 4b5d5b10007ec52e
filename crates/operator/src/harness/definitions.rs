//! The assembly of the controllers of templates and policies.

use oz_engine::Engine;
use oz_runs::definitions::{ClusterTemplates, Policies, Templates};

use super::policies::PolicyObjects;
use super::templates::{ClusterTemplateObjects, TemplateObjects};

/// Adds the controllers of templates and policies, which write their status.
pub(crate) fn definitions(engine: &mut Engine) {
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
    engine.controller(Policies, PolicyObjects { policies });
}
