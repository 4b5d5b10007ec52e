//! The table as the kernel returns it, compared with the table that was written.

use anyhow::{Context as _, Result, anyhow, bail};

use super::advice;
use super::message::{Attributes, after_general, attributes, find, find_text};
use super::netlink::{Failure, Netlink};
use super::table::{Chain, Rule, TABLE, table};
use super::uapi::*;

/// Reads the table and compares it with the written one.
///
/// # Errors
/// When the table cannot be read, or differs in a chain, a rule, or their order.
pub(super) fn compare(netlink: &Netlink, chains: &[Chain]) -> Result<()> {
    let found = list(netlink, NFT_MSG_GETTABLE, &Attributes::default())?;
    let is_written = found.iter().any(|read| has_all(read, table().as_bytes()));
    if !is_written {
        bail!("failed to verify table inet {TABLE}: the kernel does not return it");
    }
    let found: Vec<_> = list(netlink, NFT_MSG_GETCHAIN, &Attributes::default())?
        .into_iter()
        .filter(|read| find_text(read, NFTA_CHAIN_TABLE) == Some(TABLE))
        .collect();
    compare_chains(&found, chains)?;
    for chain in chains {
        let of_chain = Attributes::default()
            .text(NFTA_RULE_TABLE, TABLE)
            .text(NFTA_RULE_CHAIN, chain.name);
        let found: Vec<_> = list(netlink, NFT_MSG_GETRULE, &of_chain)?
            .into_iter()
            .filter(|read| {
                find_text(read, NFTA_RULE_TABLE) == Some(TABLE)
                    && find_text(read, NFTA_RULE_CHAIN) == Some(chain.name)
            })
            .collect();
        compare_rules(&found, chain)?;
    }
    Ok(())
}

/// Returns the attributes of each answer.
fn list(netlink: &Netlink, message: u16, request: &Attributes) -> Result<Vec<Vec<u8>>> {
    let found = netlink
        .list(message, request)
        .map_err(|Failure { errno, .. }| anyhow!("{errno}: {}", advice(errno, None)))
        .with_context(|| format!("failed to read table inet {TABLE}"))?;
    let lists = found.iter().map(|payload| after_general(payload).to_vec());
    Ok(lists.collect())
}

fn compare_chains(found: &[Vec<u8>], chains: &[Chain]) -> Result<()> {
    for chain in chains {
        let written = chain.attributes();
        if !found.iter().any(|read| has_all(read, written.as_bytes())) {
            bail!(differs(&format!("chain {}", chain.name)));
        }
    }
    if found.len() != chains.len() {
        bail!(differs(&format!("the number of chains, {},", found.len())));
    }
    Ok(())
}

fn compare_rules(found: &[Vec<u8>], chain: &Chain) -> Result<()> {
    for (read, rule) in found.iter().zip(&chain.rules) {
        if !is_rule(read, rule) {
            let what = format!("rule `{}` of chain {}", rule.text, chain.name);
            bail!(differs(&what));
        }
    }
    if found.len() != chain.rules.len() {
        let what = format!(
            "the number of rules of chain {}, {},",
            chain.name,
            found.len()
        );
        bail!(differs(&what));
    }
    Ok(())
}

fn differs(what: &str) -> String {
    format!(
        "failed to verify table inet {TABLE}: {what} is not as written; another program in the pod changes the table, or \
         the kernel does not support the rule"
    )
}

fn is_rule(read: &[u8], rule: &Rule) -> bool {
    let list = find(read, NFTA_RULE_EXPRESSIONS).unwrap_or_default();
    let found = attributes(list);
    found.len() == rule.expressions.len()
        && found
            .iter()
            .zip(&rule.expressions)
            .all(|((_, read), written)| {
                find_text(read, NFTA_EXPR_NAME) == Some(written.name)
                    && find(read, NFTA_EXPR_DATA)
                        .is_some_and(|data| has_all(data, written.data.as_bytes()))
            })
}

/// Checks whether a list has all attributes that were written, byte by byte. The kernel adds others, such as handles,
/// and newer kernels add the defaults of newer attributes.
fn has_all(read: &[u8], written: &[u8]) -> bool {
    attributes(written)
        .into_iter()
        .all(|(kind, value)| find(read, kind) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::super::table::chains;
    use super::*;

    /// Returns a rule as the kernel returns it: with a handle, and a default in each expression.
    fn read(rule: &Rule, chain: &str) -> Vec<u8> {
        let list = rule
            .expressions
            .iter()
            .fold(Attributes::default(), |list, part| {
                let data = [
                    part.data.as_bytes(),
                    Attributes::default().number(99, 0).as_bytes(),
                ]
                .concat();
                let part = Attributes::default()
                    .text(NFTA_EXPR_NAME, part.name)
                    .bytes(NFTA_EXPR_DATA, &data);
                list.nested(NFTA_LIST_ELEM, &part)
            });
        Attributes::default()
            .text(NFTA_RULE_TABLE, TABLE)
            .text(NFTA_RULE_CHAIN, chain)
            .bytes(3, &[0; 8])
            .nested(NFTA_RULE_EXPRESSIONS, &list)
            .as_bytes()
            .to_vec()
    }

    #[test]
    fn changed_rule_is_found() {
        for chain in chains() {
            let found: Vec<_> = chain
                .rules
                .iter()
                .map(|rule| read(rule, chain.name))
                .collect();
            compare_rules(&found, &chain).unwrap();
            for place in 0..found.len() {
                let mut fewer = found.clone();
                fewer.remove(place);
                assert!(compare_rules(&fewer, &chain).is_err(), "{place}");
                let mut more = found.clone();
                more.insert(place, found[place].clone());
                assert!(compare_rules(&more, &chain).is_err(), "{place}");
                let rule = &chain.rules[place];
                // A rule with one expression less matches more packets.
                let fewer = Rule {
                    text: String::new(),
                    expressions: rule.expressions[1..].to_vec(),
                };
                assert!(!is_rule(&read(&fewer, chain.name), rule), "{}", rule.text);
            }
        }
    }

    #[test]
    fn changed_chain_is_found() {
        let written = chains();
        let found = |chains: &[Chain]| -> Vec<Vec<u8>> {
            chains
                .iter()
                .map(|chain| chain.attributes().as_bytes().to_vec())
                .collect()
        };
        compare_chains(&found(&written), &written).unwrap();
        assert!(compare_chains(&found(&written[..2]), &written).is_err());
        assert!(compare_chains(&found(&written), &written[..2]).is_err());
        let mut changed = chains();
        changed[1].policy = NF_ACCEPT;
        assert!(compare_chains(&found(&changed), &written).is_err());
        let mut changed = chains();
        changed[0].priority = 0;
        assert!(compare_chains(&found(&changed), &written).is_err());
    }
}
