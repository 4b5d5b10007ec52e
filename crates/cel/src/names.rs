//! Unknown names in an expression: a policy with a typing error would fail for every request, so its author gets the
//! error immediately.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr};
use oz_core::access::policy::situation::Variable;

/// The functions that exist, in addition to operators and macros.
const FUNCTIONS: [&str; 25] = [
    "bytes",
    "contains",
    "double",
    "duration",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "int",
    "matches",
    "max",
    "min",
    "orValue",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "uint",
];
/// The fields of an entry of `active`.
const ACTIVE: [&str; 6] = ["kind", "namespace", "template", "pod", "request", "until"];

/// Returns an error about the first variable, field or function that does not exist.
pub(crate) fn unknown(expression: &IdedExpr, variables: &[Variable]) -> Option<String> {
    Names {
        known: variables.to_vec(),
    }
    .unknown(expression)
}

/// The names that are in scope, the innermost last.
struct Names<'a> {
    known: Vec<(&'a str, &'a [&'a str])>,
}

impl<'a> Names<'a> {
    fn unknown(&mut self, expression: &'a IdedExpr) -> Option<String> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => None,
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.unknown(&select.operand).or_else(|| {
                let Expr::Ident(name) = &select.operand.expr else {
                    return None;
                };
                self.field(name, &select.field)
            }),
            Expr::List(list) => self.first(&list.elements),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(message) => Some(format!("there is no type {}", message.type_name)),
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                // The names of operators are signs.
                let is_word = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
                if is_word && !FUNCTIONS.contains(&name) {
                    return Some(format!("there is no function {name}"));
                }
                self.first(call.target.as_deref().into_iter().chain(&call.args))
            }
            Expr::Comprehension(one) => self.comprehension(one),
        }
    }

    fn first(&mut self, parts: impl IntoIterator<Item = &'a IdedExpr>) -> Option<String> {
        parts.into_iter().find_map(|part| self.unknown(part))
    }

    fn entries(&mut self, entries: impl Iterator<Item = &'a EntryExpr>) -> Option<String> {
        let parts: Vec<&IdedExpr> = entries
            .flat_map(|entry| match entry {
                EntryExpr::StructField(field) => vec![&field.value],
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
            })
            .collect();
        self.first(parts)
    }

    fn comprehension(&mut self, one: &'a ComprehensionExpr) -> Option<String> {
        if let Some(unknown) = self.first([&one.iter_range, &one.accu_init]) {
            return Some(unknown);
        }
        let outside = self.known.len();
        let fields: &[&str] = match &one.iter_range.expr {
            Expr::Ident(name) if name == "active" => &ACTIVE,
            _ => &[],
        };
        self.known.push((&one.iter_var, fields));
        self.known
            .extend(one.iter_var2.as_deref().map(|name| (name, &[] as &[&str])));
        self.known.push((&one.accu_var, &[]));
        let found = self.first([&one.loop_cond, &one.loop_step, &one.result]);
        self.known.truncate(outside);
        found
    }

    fn find(&self, name: &str) -> Option<&'a [&'a str]> {
        let mut known = self.known.iter().rev();
        known
            .find(|(known, _)| *known == name)
            .map(|(_, fields)| *fields)
    }

    fn variable(&self, name: &str) -> Option<String> {
        if self.find(name).is_some() {
            return None;
        }
        let names: Vec<&str> = self.known.iter().map(|(name, _)| *name).collect();
        Some(format!(
            "there is no variable {name} (there are {})",
            names.join(", ")
        ))
    }

    fn field(&self, name: &str, field: &str) -> Option<String> {
        let fields = self.find(name)?;
        if fields.is_empty() || fields.contains(&field) {
            return None;
        }
        Some(format!(
            "{name} has no field {field} (it has {})",
            fields.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use oz_core::access::policy::situation::VARIABLES;

    use crate::policy::LARGE;
    use crate::{Expression, Value};

    #[test]
    fn what_means_nothing_is_named() {
        for (text, unknown) in [
            ("request.namespace == 'prod'", None),
            ("active.exists(a, a.namespace == request.namespace)", None),
            ("now.getHours() >= 18 || now.getDayOfWeek() in [0, 6]", None),
            ("has(request.reason) && size(request.reason) > 3", None),
            ("requester.groups.all(g, g != 'devs')", None),
            (
                "'tier' in template.labels && template.labels['tier'] == 'prod'",
                None,
            ),
            ("request.duration > duration('1h')", None),
            ("{'a': 1}.a == 1", None),
            (
                "request.nmae == 'x'",
                Some(
                    "request has no field nmae (it has kind, namespace, name, duration, reason, ticket, template, \
                     pod, container, extends, role, subjects)",
                ),
            ),
            (
                "active.exists(a, a.user == 'x')",
                Some("a has no field user (it has kind, namespace, template, pod, request, until)"),
            ),
            (
                "argv[0] == 'x'",
                Some(
                    "there is no variable argv (there are requester, request, template, namespaceLabels, \
                     operations, active, now)",
                ),
            ),
            ("exec('ls')", Some("there is no function exec")),
            (
                "request.name.reverse() == 'x'",
                Some("there is no function reverse"),
            ),
            (
                "requester.groups.exists(g, h == 'x')",
                Some("there is no variable h"),
            ),
        ] {
            let expression = Expression::compile(text, &LARGE).unwrap();
            let found = expression.unknown(&VARIABLES);
            match unknown {
                None => assert_eq!(found, None, "{text}"),
                Some(start) => {
                    let found = found.unwrap_or_default();
                    assert!(found.starts_with(start), "{text}: {found}");
                }
            }
        }
    }

    #[test]
    fn every_function_that_is_listed_is_there() {
        // A function that does not exist would fail as undeclared, and not because of its arguments.
        for name in super::FUNCTIONS {
            let expression = Expression::compile(&format!("{name}(1, 2, 3)"), &[]).unwrap();
            let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
            let value: Result<Value, String> = expression.evaluate([], until);
            let why = value.err().unwrap_or_default();
            assert!(!why.contains("Undeclared"), "{name}: {why}");
        }
    }
}
