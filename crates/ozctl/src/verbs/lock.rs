//! `ozctl lock`: ends all access of a user, of a group, in a namespace or by a template, and blocks
//! new access.

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use oz_api::duration::GoDuration;
use oz_api::{AccessLockSpec, LockTarget, LockedTemplate};
use oz_core::access::lock::target;

use crate::cluster::Cluster;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::locks;
use crate::output::{instant, line};

/// End all access of a user or group, in a namespace or by a template, and let nobody have more
#[derive(Args)]
#[command(after_help = "\
What the lock ends stays ended. It holds until `--until` or for `--for`, and without these until `ozctl unlock NAME`.
Names are compared letter by letter. Break-glass groups get in as ever: oz does not stand between them and a pod.

Examples:
  ozctl lock user alice --reason 'stolen laptop'
  ozctl lock group contractors --reason INC-42 --for 8h
  ozctl lock namespace payments --reason 'release freeze' --until 2026-12-24T12:00:00Z --except-emergency
  ozctl lock template shell -n shop --reason 'wrong workload'")]
pub(crate) struct Lock {
    /// What is locked
    #[arg(value_enum)]
    what: What,
    /// Name of it; of a template, in the chosen namespace
    name: String,
    /// Why; whoever is locked out is told
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// When the lock ends by itself, in RFC 3339
    #[arg(long, value_name = "INSTANT", conflicts_with = "lasting")]
    until: Option<String>,
    /// How long the lock holds, such as 8h
    #[arg(id = "lasting", long = "for", value_name = "DURATION")]
    lasting: Option<GoDuration>,
    /// Let emergencies through all the same
    #[arg(long)]
    except_emergency: bool,
}

/// What can be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    // A user or service account, as the API server knows them
    User,
    // Everybody of a group
    Group,
    // A namespace
    Namespace,
    // A template, of either kind
    Template,
}

impl Lock {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit> {
        let until = self.ends(Timestamp::now())?;
        let cluster = context.cluster().await?;
        let spec = AccessLockSpec {
            target: self.target(&cluster),
            reason: self.reason,
            until,
            except_emergency: self.except_emergency,
        };
        let what = self.what.to_possible_value();
        let what = what.as_ref().map_or("lock", |value| value.get_name());
        let lock = locks::make(&cluster, &locks::prefix(what, &self.name), spec).await?;
        let until = lock.spec.until.as_ref();
        let until = until.map_or("until it is unlocked".to_owned(), |at| {
            format!("until {at}")
        });
        context.print(&format!(
            "{} is locked {until} ({})\n",
            line(&target(&lock.spec.target)),
            lock.name_any()
        ))?;
        Ok(Exit::SUCCESS)
    }

    fn target(&self, cluster: &Cluster) -> LockTarget {
        let name = self.name.clone();
        let none = LockTarget::default();
        match self.what {
            What::User => LockTarget {
                user: Some(name),
                ..none
            },
            What::Group => LockTarget {
                group: Some(name),
                ..none
            },
            What::Namespace => LockTarget {
                namespace: Some(name),
                ..none
            },
            What::Template => LockTarget {
                template: Some(LockedTemplate {
                    namespace: cluster.namespace.clone(),
                    name,
                }),
                ..none
            },
        }
    }

    /// Returns the expiry of the lock.
    fn ends(&self, now: Timestamp) -> Result<Option<String>> {
        let Some(lasting) = self.lasting else {
            return Ok(self.until.clone());
        };
        let end = now.checked_add(SignedDuration::from(lasting));
        let end = end.ok().filter(|_| lasting.is_positive());
        let end = end.ok_or_else(|| {
            Failure::new(format!("--for {lasting}: no lock can hold for that")).next(
                "name a time such as 8h, or leave it out for a lock that holds until it is removed",
            )
        })?;
        Ok(Some(instant(end)))
    }
}
