//! A transient binding explained: what was asked for, what became of it, and the rules as they apply
//! now. The plan is the operator's own, for such an object made now. Which roles may be bound at all
//! is in the operator's flags, which nobody here can read: that is said.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use oz_core::access::stamp::{self, Requester};
use oz_core::api::{
    Phase, RoleKind, RoleReference, TransientClusterRoleBinding, TransientRoleBinding,
};
use oz_core::controller::{Controller, Plan};
use oz_core::lifecycle::window::has_come;
use oz_core::transient::{
    BindableRoles, Binding, Facts, Kind, Listed, Lookup, Policy, Position, RolePattern, Terms,
    Transient, may_bind,
};
use serde_json::{Value, json};

use super::made_now::{MadeNow, keys};
use super::show;
use crate::cluster::Cluster;
use crate::context::{Context, Style};
use crate::failure::{Failure, Result};
use crate::names;
use crate::output::{self, TextFormat, to_value};

/// A rule, as it applies now. `None` if it cannot be told from here.
struct Rule {
    name: &'static str,
    holds: Option<bool>,
    message: String,
}

impl Rule {
    fn new(name: &'static str, holds: Option<bool>, message: impl Into<String>) -> Self {
        Self {
            name,
            holds,
            message: message.into(),
        }
    }
}

/// Explains the binding that `word` names, `trb/NAME` or `tcrb/NAME`, or only its name; `None` if
/// there is none. Says whether its rights are there, or would be given.
pub(super) async fn explain(
    context: &Context,
    cluster: &Cluster,
    word: &str,
    format: TextFormat,
) -> Result<Option<bool>> {
    let Some((namespaced, wide, name)) = kinds(word) else {
        return Ok(None);
    };
    let name = names::checked(name)?;
    // Whoever gave only a name may have meant a request, and need not know of bindings.
    let only_a_name = namespaced && wide;
    if namespaced {
        let api = cluster.api::<TransientRoleBinding>();
        if let Some(found) = absent(only_a_name, cluster.find(&api, name).await)? {
            return told(context, cluster, &found, format).await.map(Some);
        }
    }
    if wide {
        let api = Api::<TransientClusterRoleBinding>::all(cluster.client.clone());
        if let Some(found) = absent(only_a_name, cluster.find(&api, name).await)? {
            return told(context, cluster, &found, format).await.map(Some);
        }
    }
    if only_a_name {
        return Ok(None);
    }
    Err(Failure::new(format!("there is no {word}"))
        .next("`ozctl get trb` and `ozctl get tcrb` list those that are there"))
}

/// Which kinds of binding a word may mean, and its name; `None` if it names another kind.
fn kinds(word: &str) -> Option<(bool, bool, &str)> {
    let Some((kind, name)) = word.split_once('/') else {
        return Some((true, true, word));
    };
    match kind.to_lowercase().as_str() {
        "trb" | "transientrolebinding" | "transientrolebindings" => Some((true, false, name)),
        "tcrb" | "transientclusterrolebinding" | "transientclusterrolebindings" => {
            Some((false, true, name))
        }
        _ => None,
    }
}

/// Where only a name was given, a kind that is not installed, or that one may not read, has no object
/// of that name.
fn absent<K>(only_a_name: bool, answer: Result<Option<K>>) -> Result<Option<K>> {
    match answer {
        Err(failure) if only_a_name && (failure.is_unknown_kind() || failure.is_forbidden()) => {
            Ok(None)
        }
        answer => answer,
    }
}

async fn told<K: Kind>(
    context: &Context,
    cluster: &Cluster,
    object: &K,
    format: TextFormat,
) -> Result<bool> {
    let now = Timestamp::now();
    let binding = object.view();
    // What the webhook wrote; whether it is believed is the operator's to say, and its status does.
    let requester = stamp::of(binding.metadata)
        .and_then(|text| serde_json::from_str::<Requester>(text).ok())
        .unwrap_or_default();
    let mut rules = Vec::new();
    let mut plan = None;
    match &binding.terms {
        Err(violations) => {
            let wrong = |one| Rule::new("spec", Some(false), format!("{one}"));
            rules.extend(violations.iter().map(wrong));
        }
        Ok(terms) => {
            rules.push(window(terms, &binding, now));
            let content = content(cluster, terms, binding.namespace()).await;
            rules.push(role(&terms.role, content.as_ref()));
            let may = may(cluster, &requester, binding.namespace(), &terms.role).await;
            rules.push(right(&requester, &terms.role, may.as_ref()));
            rules.push(Rule::new(
                "list",
                None,
                "which roles oz may bind, and for how long, is in its flags --bindable-roles and \
                 --max-binding-window",
            ));
            if let (Ok(content), Ok(may)) = (content, may) {
                let lookup = Lookup {
                    role: Ok(content),
                    may_bind: Ok(may),
                    taken: Ok(false),
                };
                plan = Some(planned(object, terms, &requester, lookup, now)?);
            }
        }
    }
    let phase = binding
        .status
        .map(|status| status.phase)
        .unwrap_or_default();
    let holds = match phase {
        Phase::Pending => rules.iter().all(|rule| rule.holds != Some(false)),
        phase => phase == Phase::Active,
    };
    let text = match format {
        TextFormat::Text => text(context, &binding, &requester, &rules, plan.as_ref()),
        TextFormat::Json => output::json(&value(&binding, &requester, &rules, plan.as_ref())?)?,
        TextFormat::Yaml => output::yaml(&value(&binding, &requester, &rules, plan.as_ref())?)?,
    };
    context.print(&text)?;
    Ok(holds)
}

fn window(terms: &Terms, binding: &Binding<'_>, now: Timestamp) -> Rule {
    if let Some(why) = terms.never() {
        return Rule::new("window", Some(false), why);
    }
    let status = binding.status;
    let end = status.and_then(|status| status.expires_at);
    match terms.position(now, binding.created()) {
        _ if end.is_some_and(|end| has_come(now, end)) => Rule::new("window", Some(false), "it is over"),
        Position::After => Rule::new("window", Some(false), "it is over"),
        Position::Before(opens) => Rule::new("window", Some(true), format!("it opens at {opens}")),
        Position::Inside(until) => {
            let until = end.unwrap_or(until);
            Rule::new("window", Some(true), format!("it is open until {until}"))
        }
    }
}

fn role(role: &RoleReference, content: Result<&Option<Vec<PolicyRule>>, &Failure>) -> Rule {
    let title = format!("{} {}", role.kind, role.name);
    match content {
        Err(why) => Rule::new(
            "role",
            None,
            format!("{title} cannot be read: {}", why.message()),
        ),
        Ok(None) => Rule::new("role", Some(false), format!("there is no {title}")),
        Ok(Some(rules)) => match Policy::permits_content(role, Listed::ByPattern, rules) {
            Ok(_) => Rule::new(
                "role",
                Some(true),
                format!("{title} holds nothing dangerous"),
            ),
            Err(why) => Rule::new("role", None, why.message),
        },
    }
}

fn right(requester: &Requester, role: &RoleReference, may: Result<&bool, &Failure>) -> Rule {
    let (user, title) = (&requester.user, format!("{} {}", role.kind, role.name));
    match may {
        _ if user.is_empty() => {
            Rule::new("requester", Some(false), "nobody is known to have asked")
        }
        Err(why) => Rule::new(
            "requester",
            None,
            format!("cannot be told: {}", why.message()),
        ),
        Ok(true) => Rule::new("requester", Some(true), format!("{user} may bind {title}")),
        Ok(false) => Rule::new(
            "requester",
            Some(false),
            format!("{user} may not bind {title}"),
        ),
    }
}

async fn content(
    cluster: &Cluster,
    terms: &Terms,
    namespace: Option<&str>,
) -> Result<Option<Vec<PolicyRule>>> {
    let name = &terms.role.name;
    let rules = match (terms.role.kind, namespace) {
        (RoleKind::Role, Some(namespace)) => {
            let api = Api::<Role>::namespaced(cluster.client.clone(), namespace);
            cluster
                .answer(api.get_opt(name))
                .await?
                .map(|role| role.rules)
        }
        _ => {
            let api = Api::<ClusterRole>::all(cluster.client.clone());
            cluster
                .answer(api.get_opt(name))
                .await?
                .map(|role| role.rules)
        }
    };
    Ok(rules.map(Option::unwrap_or_default))
}

async fn may(
    cluster: &Cluster,
    requester: &Requester,
    namespace: Option<&str>,
    role: &RoleReference,
) -> Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let review = may_bind(requester, namespace, role);
    let answer = cluster
        .answer(reviews.create(&PostParams::default(), &review))
        .await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The operator's plan for such an object, had it been made now, if the operator's list has the role.
fn planned<K: Kind>(
    object: &K,
    terms: &Terms,
    requester: &Requester,
    lookup: Lookup,
    now: Timestamp,
) -> Result<Plan> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let view = object.view();
    let entry = match (terms.role.kind, view.namespace()) {
        (RoleKind::Role, Some(namespace)) => format!("{namespace}/{}", terms.role.name),
        _ => terms.role.name.clone(),
    };
    let entry: RolePattern = entry.parse().map_err(|error| failed(&error))?;
    let policy = Policy {
        roles: BindableRoles(vec![entry]),
        longest: SignedDuration::MAX,
        longest_in: BTreeMap::new(),
        own_namespace: String::new(),
    };
    let mut value = to_value(object)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let mut made_now: K = serde_json::from_value(value).map_err(|error| failed(&error))?;
    let metadata = MadeNow {
        requester,
        kind: view.kind.clone(),
        namespace: view.namespace(),
        name: view.name(),
        spec_digest: view.spec_digest.clone(),
        at: now,
    };
    *made_now.meta_mut() = ObjectMeta {
        finalizers: object.meta().finalizers.clone(),
        ..metadata.metadata()?
    };
    let facts = Facts {
        same_stamp: Some(None),
        lookup: Some(lookup),
    };
    let controller = Transient::<K>::new(keys()?, Arc::new(policy));
    let decision = controller.decide(now, &made_now, &facts, &[]).decided();
    Ok(decision.map(|decision| decision.plan).unwrap_or_default())
}

fn text(
    context: &Context,
    binding: &Binding<'_>,
    requester: &Requester,
    rules: &[Rule],
    plan: Option<&Plan>,
) -> String {
    let title = |text: &str| context.paint_output(Style::Bold, text);
    let place = binding.namespace().map_or_else(
        || "for the whole cluster".to_owned(),
        |namespace| format!("in namespace {namespace}"),
    );
    let mut lines = vec![format!("{} {} {place}", binding.kind, binding.name())];
    lines.push(match requester.user.as_str() {
        "" => "  asked by   nobody that is known".to_owned(),
        user => format!("  asked by   {}", output::line(user)),
    });
    if let Ok(terms) = &binding.terms {
        lines.push(format!(
            "  role       {} {}",
            terms.role.kind, terms.role.name
        ));
        for subject in &terms.subjects {
            let name = output::line(&subject.name);
            lines.push(format!("  subject    {} {name}", subject.kind));
        }
        if let Some(reason) = &terms.reason {
            lines.push(format!("  reason     {}", output::line(reason)));
        }
    }
    if let Some(status) = binding.status {
        lines.push(String::new());
        lines.push(title(&format!("What became of it: {}", status.phase)));
        let conditions = status.conditions.iter();
        lines.extend(conditions.map(|one| show::condition(context, one)));
        if let Some(until) = status.expires_at {
            lines.push(format!("    until {until}"));
        }
    }
    lines.push(String::new());
    lines.push(title("The rules, as they apply now"));
    for rule in rules {
        let mark = match rule.holds {
            Some(true) => show::yes(context),
            Some(false) => show::no(context),
            None => "?  ".to_owned(),
        };
        let message = output::line(&rule.message);
        lines.push(format!("  {mark} {}: {message}", rule.name));
    }
    lines.push(String::new());
    lines.push(title("What the operator would do for such an object now"));
    match plan {
        Some(plan) => show::steps(plan, &mut lines),
        None => lines.push("  cannot be told, for the reasons above".to_owned()),
    }
    lines.join("\n") + "\n"
}

fn value(
    binding: &Binding<'_>,
    requester: &Requester,
    rules: &[Rule],
    plan: Option<&Plan>,
) -> Result<Value> {
    let rule =
        |rule: &Rule| json!({"rule": rule.name, "holds": rule.holds, "message": rule.message});
    Ok(json!({
        "kind": binding.kind,
        "namespace": binding.namespace(),
        "name": binding.name(),
        "requester": {"user": requester.user, "groups": requester.groups},
        "status": binding.status.map(to_value).transpose()?,
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
        "plan": plan.map(to_value).transpose()?,
    }))
}
