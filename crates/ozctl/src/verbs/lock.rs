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

/// Revoke all access of a user or group, in a namespace or by a template, and deny new access
#[derive(Args)]
#[command(after_help = "\
Access that the lock revokes stays revoked. The lock holds until `--until` or for `--for`, and without these until
`ozctl unlock NAME`. Names must match exactly. Break-glass groups keep their access, which does not depend on oz.

Examples:
  ozctl lock user alice --reason 'stolen laptop'
  ozctl lock group contractors --reason INC-42 --for 8h
  ozctl lock namespace payments --reason 'release freeze' --until 2026-12-24T12:00:00Z --except-emergency
  ozctl lock template shell -n shop --reason 'wrong workload'")]
pub(crate) struct Lock {
    /// Target of the lock
    #[arg(value_enum)]
    what: What,
    /// Name of it; of a template, in the chosen namespace
    name: String,
    /// Reason; the locked user can read it
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Expiry of the lock, in RFC 3339
    #[arg(long, value_name = "INSTANT", conflicts_with = "lasting")]
    until: Option<String>,
    /// Duration of the lock, such as 8h
    #[arg(id = "lasting", long = "for", value_name = "DURATION")]
    lasting: Option<GoDuration>,
    /// Let emergencies through all the same
    #[arg(long)]
    except_emergency: bool,
}

/// The targets of a lock.
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
        let until = until.map_or("until it is removed".to_owned(), |at| format!("until {at}"));
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
        let end =
            end.ok_or_else(|| {
                Failure::new(format!("--for {lasting}: a lock cannot hold for this duration")).next(
                "give a duration such as 8h, or omit it for a lock that holds until it is removed",
            )
            })?;
        Ok(Some(instant(end)))
    }
}
