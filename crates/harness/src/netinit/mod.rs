//! `oz-harness netinit`, the first init container of a run that requires hosts or injected credentials: it confines the
//! connections of the pod to the proxy, whichever network plugin the cluster has.
//!
//! It writes an nf_tables table in one transaction, which replaces the table of an earlier start; reads the table back;
//! and tries to leave the pod. The container has the capability NET_ADMIN and no other. Without SETUID it cannot become
//! the agent's user, so that it tries as user 0: the rules name the users 1337 and 1338 only, and user 0 is another user
//! to them as 65532 is. See docs/adr/0045-an-nf-tables-table-confines-a-run.md.

mod attempt;
mod expression;
mod message;
mod netlink;
mod table;
mod uapi;
mod verify;

use anyhow::{Result, anyhow};
use rustix::io::Errno;

use crate::log;
use netlink::{Netlink, Step};
use table::{Chain, TABLE, chains};
use uapi::{
    NFT_MSG_DELTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_NEWRULE, NFT_MSG_NEWTABLE, NLM_F_APPEND,
    NLM_F_CREATE,
};

/// Confines the connections of this network namespace.
///
/// # Errors
/// When the table cannot be written, is not as written, or when a connection is not redirected or refused.
pub(crate) fn run() -> Result<()> {
    let chains = chains();
    let netlink = Netlink::open().map_err(|failure| {
        let advice = advice(failure.errno, None);
        anyhow!(
            "failed to open a netlink socket of netfilter: {}: {advice}",
            failure.errno
        )
    })?;
    write(&netlink, &chains)?;
    verify::compare(&netlink, &chains)?;
    for line in attempt::leave()? {
        log::say(&line);
    }
    log::say(&format!(
        "table inet {TABLE} confines the connections of the pod"
    ));
    Ok(())
}

/// A step of the transaction, with its text and module for messages.
struct Named {
    text: String,
    module: Option<&'static str>,
}

fn write(netlink: &Netlink, chains: &[Chain]) -> Result<()> {
    let (steps, names): (Vec<Step>, Vec<Named>) = transaction(chains).into_iter().unzip();
    netlink.write(&steps).map_err(|failure| {
        let name = failure.step.and_then(|step| names.get(step));
        let what = name.map_or("the transaction", |name| &name.text);
        let module = name.and_then(|name| name.module);
        anyhow!(
            "failed to write table inet {TABLE}: the kernel refused {what}: {}: {}",
            failure.errno,
            advice(failure.errno, module)
        )
    })
}

/// Returns the steps that replace the table. The first one creates a table that the second one can delete.
fn transaction(chains: &[Chain]) -> Vec<(Step, Named)> {
    let table = |message, flags| {
        let step = Step {
            message,
            flags,
            attributes: table::table(),
        };
        let text = "the table".to_owned();
        (step, Named { text, module: None })
    };
    let mut steps = vec![
        table(NFT_MSG_NEWTABLE, NLM_F_CREATE),
        table(NFT_MSG_DELTABLE, 0),
        table(NFT_MSG_NEWTABLE, NLM_F_CREATE),
    ];
    for chain in chains {
        let step = Step {
            message: NFT_MSG_NEWCHAIN,
            flags: NLM_F_CREATE,
            attributes: chain.attributes(),
        };
        let named = Named {
            text: format!("chain {}", chain.name),
            module: chain.module,
        };
        steps.push((step, named));
        steps.extend(chain.rules.iter().map(|rule| {
            let step = Step {
                message: NFT_MSG_NEWRULE,
                flags: NLM_F_CREATE | NLM_F_APPEND,
                attributes: rule.attributes(chain.name),
            };
            let named = Named {
                text: format!("rule `{}`", rule.text),
                module: rule.expressions.iter().find_map(|part| part.module),
            };
            (step, named)
        }));
    }
    steps
}

/// Returns the next step of an administrator.
fn advice(errno: Errno, module: Option<&str>) -> String {
    match errno {
        Errno::PERM | Errno::ACCESS => "this container requires user 0 and the capability NET_ADMIN; label the \
            namespace with pod-security.kubernetes.io/enforce=privileged, and permit the capability in other admission \
            policies"
            .to_owned(),
        Errno::NOENT
        | Errno::OPNOTSUPP
        | Errno::PROTONOSUPPORT
        | Errno::AFNOSUPPORT
        | Errno::PROTOTYPE => {
            let modules = module.map_or_else(
                || "nf_tables".to_owned(),
                |module| format!("nf_tables and {module}"),
            );
            format!(
                "the kernel of the node does not provide this part of nf_tables; load {modules} on the node (modprobe), \
                 with Linux 5.2 or later, or run the pod on another node"
            )
        }
        _ => "check the kernel's log on the node".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_next_step() {
        let table: [(Errno, Option<&str>, &str); 4] = [
            (Errno::PERM, None, "capability NET_ADMIN"),
            (Errno::PROTONOSUPPORT, None, "load nf_tables on the node"),
            (
                Errno::NOENT,
                Some("nft_redir"),
                "load nf_tables and nft_redir on the node",
            ),
            (Errno::NOBUFS, None, "the kernel's log"),
        ];
        for (errno, module, expected) in table {
            let said = advice(errno, module);
            assert!(said.contains(expected), "{said}");
        }
    }
}
