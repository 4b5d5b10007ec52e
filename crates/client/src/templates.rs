//! The templates by which a user may ask for access. The same function decides that in the webhook and in the operator.

use futures::FutureExt as _;
use futures::future::{try_join, try_join_all};
use kube::ResourceExt as _;
use kube::api::ListParams;
use oz_api::{AccessConfig, CrossVersionObjectReference, Operation, Requester};
use oz_core::access::decide::{self, Ask, Denial};
use oz_core::for_each_kind;
use oz_core::kinds::AccessTemplate;
use serde_json::{Value, json};

use crate::choose;
use crate::cluster::Cluster;
use crate::failure::{Failure, Result};
use crate::objects::whole;

/// The templates that a user sees.
#[derive(Clone, Debug)]
pub struct Templates {
    /// The user.
    pub me: Requester,
    /// The templates.
    pub offers: Vec<Offer>,
}

/// A template, and whether it lets the user in.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The namespace.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The purpose of its requests.
    pub purpose: &'static str,
    /// The workload; `None` for pods of their own spec.
    pub workload: Option<CrossVersionObjectReference>,
    /// The rules.
    pub config: AccessConfig,
    /// The permitted operations.
    pub operations: Vec<Operation>,
    /// True if the template is ready.
    pub is_ready: bool,
    /// The reason why the template does not let the user in.
    pub denial: Option<Denial>,
    /// The object, as the API has it, with `mayAsk` and, if it is false, `reason`.
    pub object: Value,
}

/// A function that makes the offer of a template to the user.
type Offering = Box<dyn FnOnce(&Requester) -> Result<Offer>>;

/// Lists the templates of every kind.
///
/// # Errors
/// The templates may not be listed.
pub async fn list(cluster: &Cluster, everywhere: bool) -> Result<Templates> {
    let mut lists = Vec::new();
    for_each_kind!(templates T => {
        let api = cluster.api_in::<T>(everywhere);
        let list = async move {
            let found = cluster.answer(api.list(&ListParams::default())).await?;
            let found = found.items.into_iter();
            let offers = found.map(|one| Box::new(move |me: &Requester| offer(me, &one)) as Offering);
            Ok::<Vec<Offering>, Failure>(offers.collect())
        };
        lists.push(list.boxed_local());
    });
    let (me, lists) = try_join(choose::myself(cluster), try_join_all(lists)).await?;
    let offers = lists.into_iter().flatten().map(|offer| offer(&me));
    let offers = offers.collect::<Result<_>>()?;
    Ok(Templates { me, offers })
}

fn offer<T: AccessTemplate>(me: &Requester, template: &T) -> Result<Offer> {
    let config = template.config();
    // A request chooses its own container; the question here is about the user.
    let denial = decide::may_ask(me, template.name(), config, Ask::default()).err();
    let mut object = whole(template)?;
    object["mayAsk"] = json!(denial.is_none());
    if let Some(denial) = &denial {
        object["reason"] = json!(denial.message);
    }
    Ok(Offer {
        namespace: template.namespace(),
        name: template.name().to_owned(),
        purpose: T::PURPOSE,
        workload: template.workload().cloned(),
        config: config.clone(),
        operations: decide::operations(config),
        is_ready: template.is_ready(),
        denial,
        object,
    })
}
