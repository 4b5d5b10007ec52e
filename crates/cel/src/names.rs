//! Unknown names in an expression: a policy with a typing error would fail for every request, so its author gets the
//! error immediately.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr};
use oz_core::access::policy::situation::Variable;

use crate::UnknownName;

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

/// Checks that every variable, field and function exists.
///
/// # Errors
/// The first one that does not exist.
pub(crate) fn check(
    expression: &IdedExpr,
    variables: &[Variable],
    functions: &[&str],
) -> Result<(), UnknownName> {
    Names {
        functions,
        known: variables.to_vec(),
    }
    .check(expression)
}

/// The names that are in scope, the innermost last.
struct Names<'a> {
    /// Functions in addition to those of every expression.
    functions: &'a [&'a str],
    known: Vec<(&'a str, &'a [&'a str])>,
}

impl<'a> Names<'a> {
    fn check(&mut self, expression: &'a IdedExpr) -> Result<(), UnknownName> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                self.check(&select.operand)?;
                match &select.operand.expr {
                    Expr::Ident(name) => self.field(name, &select.field),
                    _ => Ok(()),
                }
            }
            Expr::List(list) => self.all(&list.elements),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(message) => Err(UnknownName::Type {
                name: message.type_name.clone(),
            }),
            Expr::Call(call) => {
                let name = call.func_name.as_str();
                // The names of operators are signs.
                let is_word = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
                if is_word && !FUNCTIONS.contains(&name) && !self.functions.contains(&name) {
                    let name = name.to_owned();
                    return Err(UnknownName::Function { name });
                }
                self.all(call.target.as_deref().into_iter().chain(&call.args))
            }
            Expr::Comprehension(one) => self.comprehension(one),
        }
    }

    fn all(&mut self, parts: impl IntoIterator<Item = &'a IdedExpr>) -> Result<(), UnknownName> {
        parts.into_iter().try_for_each(|part| self.check(part))
    }

    fn entries(&mut self, entries: impl Iterator<Item = &'a EntryExpr>) -> Result<(), UnknownName> {
        let parts: Vec<&IdedExpr> = entries
            .flat_map(|entry| match entry {
                EntryExpr::StructField(field) => vec![&field.value],
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
            })
            .collect();
        self.all(parts)
    }

    fn comprehension(&mut self, one: &'a ComprehensionExpr) -> Result<(), UnknownName> {
        self.all([&one.iter_range, &one.accu_init])?;
        let outside = self.known.len();
        let fields: &[&str] = match &one.iter_range.expr {
            Expr::Ident(name) if name == "active" => &ACTIVE,
            _ => &[],
        };
        self.known.push((&one.iter_var, fields));
        self.known
            .extend(one.iter_var2.as_deref().map(|name| (name, &[] as &[&str])));
        self.known.push((&one.accu_var, &[]));
        let found = self.all([&one.loop_cond, &one.loop_step, &one.result]);
        self.known.truncate(outside);
        found
    }

    fn find(&self, name: &str) -> Option<&'a [&'a str]> {
        let mut known = self.known.iter().rev();
        known
            .find(|(known, _)| *known == name)
            .map(|(_, fields)| *fields)
    }

    fn variable(&self, name: &str) -> Result<(), UnknownName> {
        if self.find(name).is_some() {
            return Ok(());
        }
        let known = self.known.iter();
        Err(UnknownName::Variable {
            name: name.to_owned(),
            known: known.map(|(name, _)| (*name).to_owned()).collect(),
        })
    }

    fn field(&self, name: &str, field: &str) -> Result<(), UnknownName> {
        match self.find(name) {
            Some(fields) if !fields.is_empty() && !fields.contains(&field) => {
                Err(UnknownName::Field {
                    variable: name.to_owned(),
                    field: field.to_owned(),
                    known: fields.iter().map(|&field| field.to_owned()).collect(),
                })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use oz_core::access::policy::situation::VARIABLES;

    use crate::policy::LARGE;
    use crate::{CelError, Expression, Value};

    #[test]
    fn unknown_name_in_expression_is_reported() {
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
                    "request has no field nmae (it has kind, namespace, name, duration, reason, ticket, emergency, \
                     template, pod, container, extends, role, subjects)",
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
            let found = expression.check_names(&VARIABLES).err();
            let found = found.map(|unknown| unknown.to_string());
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
            let value: Result<Value, CelError> = expression.evaluate([], until);
            let why = value.err().map(|why| why.to_string()).unwrap_or_default();
            assert!(!why.contains("Undeclared"), "{name}: {why}");
        }
    }
}
