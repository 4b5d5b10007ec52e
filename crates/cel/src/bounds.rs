//! Bounds for parsed expressions: the maximum cost of an evaluation, computed before the evaluation. A CEL value is no
//! larger than the values that it is made of, so the expression alone determines its size, in copies of the input;
//! literals in the expression are small.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators};
use oz_core::connect::policy::{Excess, MAX_COPIES, MAX_LOOPS, MAX_PATTERNS};

/// Operators and functions that return true, false or a number for all arguments.
const SMALL: [&str; 19] = [
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::IN,
    "contains",
    "startsWith",
    "endsWith",
    MATCHES,
    "size",
    "int",
    "uint",
    "double",
];
const MATCHES: &str = "matches";

/// Checks that evaluating an expression takes little memory, and time in proportion to a few passes over the input,
/// which is in the variables `large`.
///
/// # Errors
/// The bound that the expression exceeds.
pub(crate) fn affordable(expression: &IdedExpr, large: &[&str]) -> Result<(), Excess> {
    let mut cost = Cost {
        large,
        loops: 0,
        patterns: 0,
        item: None,
    };
    cost.copies(expression).map(|_| ())
}

struct Cost<'a> {
    /// The variables that hold the input.
    large: &'a [&'a str],
    loops: usize,
    patterns: usize,
    /// The loop's variable, and the maximum number of copies that it holds.
    item: Option<(&'a str, usize)>,
}

impl<'a> Cost<'a> {
    /// Returns the maximum number of copies of the input that the value of an expression holds.
    fn copies(&mut self, expression: &'a IdedExpr) -> Result<usize, Excess> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(0),
            Expr::Ident(name) => Ok(match self.item {
                Some((item, copies)) if item == name => copies,
                _ if self.large.contains(&name.as_str()) => 1,
                _ => 0,
            }),
            Expr::Select(select) => self.copies(&select.operand),
            Expr::List(list) => self.together(&list.elements),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(message) => self.entries(message.entries.iter().map(|entry| &entry.expr)),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn sum(&mut self, parts: impl IntoIterator<Item = &'a IdedExpr>) -> Result<usize, Excess> {
        parts.into_iter().try_fold(0, |sum: usize, part| {
            Ok(sum.saturating_add(self.copies(part)?))
        })
    }

    /// Returns the copies in a value that combines parts.
    fn together(&mut self, parts: impl IntoIterator<Item = &'a IdedExpr>) -> Result<usize, Excess> {
        let copies = self.sum(parts)?;
        if copies > MAX_COPIES {
            return Err(Excess::Copies);
        }
        Ok(copies)
    }

    fn entries(&mut self, entries: impl Iterator<Item = &'a EntryExpr>) -> Result<usize, Excess> {
        let parts: Vec<&IdedExpr> = entries
            .flat_map(|entry| match entry {
                EntryExpr::StructField(field) => vec![&field.value],
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
            })
            .collect();
        self.together(parts)
    }

    fn call(&mut self, call: &'a CallExpr) -> Result<usize, Excess> {
        let name = call.func_name.as_str();
        if name == MATCHES {
            self.pattern(call)?;
        }
        let given = call.target.as_deref().into_iter().chain(&call.args);
        let copies = if name == operators::ADD {
            self.together(given)?
        } else {
            self.sum(given)?
        };
        Ok(if SMALL.contains(&name) { 0 } else { copies })
    }

    fn pattern(&mut self, call: &CallExpr) -> Result<(), Excess> {
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            return Err(Excess::Patterns);
        }
        let written = call.args.last().map(|pattern| &pattern.expr);
        if matches!(written, Some(Expr::Literal(_))) {
            Ok(())
        } else {
            Err(Excess::PatternNotWritten)
        }
    }

    fn comprehension(&mut self, one: &'a ComprehensionExpr) -> Result<usize, Excess> {
        if self.item.is_some() {
            return Err(Excess::NestedLoops);
        }
        let range = self.copies(&one.iter_range)?;
        self.loops += 1;
        if self.loops > MAX_LOOPS {
            return Err(Excess::Loops);
        }
        self.item = Some((&one.iter_var, range));
        self.copies(&one.loop_step)?;
        self.item = None;
        match &one.accu_init.expr {
            Expr::List(_) if keeps_items(one) => Ok(range),
            Expr::List(_) => Err(Excess::Map),
            _ => Ok(0),
        }
    }
}

/// Checks whether the list that a loop creates has only items of its range: `filter` is `condition ? @result + [item]
/// : @result`, and `map` adds something else.
fn keeps_items(one: &ComprehensionExpr) -> bool {
    let added = match arguments(&one.loop_step, operators::CONDITIONAL) {
        Some([_, added, _]) => added,
        _ => &one.loop_step,
    };
    let Some([_, list]) = arguments(added, operators::ADD) else {
        return false;
    };
    let Expr::List(list) = &list.expr else {
        return false;
    };
    let is_item =
        |added: &IdedExpr| matches!(&added.expr, Expr::Ident(name) if *name == one.iter_var);
    list.elements.iter().all(is_item)
}

/// Returns the arguments if the expression is a call with this name.
fn arguments<'a>(expression: &'a IdedExpr, name: &str) -> Option<&'a [IdedExpr]> {
    match &expression.expr {
        Expr::Call(call) if call.func_name == name => Some(&call.args),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use kube_cel::cel::Program;

    use super::*;

    fn excess(policy: &str) -> Option<Excess> {
        let program = Program::compile(policy).unwrap();
        affordable(program.expression(), &crate::COMMAND).err()
    }

    #[test]
    fn honest_policies_are_affordable() {
        for policy in [
            "argv[0] in ['ls', 'cat', 'nginx'] && !tty",
            "argv[0] in ['ls', 'cat'] && argv.all(a, !a.startsWith('/etc'))",
            "argv.filter(a, a.startsWith('-')).all(a, a in ['-l', '-a'])",
            "argv.map(a, a.startsWith('-'), a).exists_one(a, a == '-l')",
            "argv.exists(a, a == 'x') && argv.existsOne(a, a == 'y')",
            "argv[0] + ' ' + argv[1] in ['git status', 'git log']",
            "argv.all(a, a.matches('^[a-z0-9./-]+$') || a == '/' + container)",
            "size(argv) + size(argv[0]) + size(argv) + size(argv) + size(argv) < 100",
            "{'app': ['ls'], 'db': ['psql']}[container].exists(a, a == argv[0])",
            "container == 'app' && !tty && (stdin ? argv[0] == 'tar' : true)",
            "has({'a': 1}.a)",
        ] {
            assert_eq!(excess(policy), None, "{policy}");
        }
    }

    #[test]
    fn unbounded_policy_expression_is_rejected() {
        let repeated = |text: &str, count: usize| text.repeat(count);
        for (policy, expected) in [
            (
                format!("[argv[0]]{} == []", repeated(".map(a,a+a)", 30)),
                Excess::Map,
            ),
            (
                format!("[argv]{} == []", repeated(".map(a,[a,a])", 30)),
                Excess::Map,
            ),
            (
                format!("[argv]{} == []", repeated(".map(a,true,{1:a,2:a})", 30)),
                Excess::Map,
            ),
            ("argv.map(a, argv).size() == 1".into(), Excess::Map),
            (
                format!("(argv{}).size() > 0", repeated("+argv", 4)),
                Excess::Copies,
            ),
            (
                format!("[argv{}] == []", repeated(",argv", 4)),
                Excess::Copies,
            ),
            (
                format!("argv.all(a, a{} == '')", repeated("+a", 4)),
                Excess::Copies,
            ),
            ("[argv+argv].all(a, a + a + a == [])".into(), Excess::Copies),
            (
                "[argv+argv+argv].filter(a, true)[0] + argv + argv == []".into(),
                Excess::Copies,
            ),
            (
                "[[[argv, argv], argv], [argv, argv]] == []".into(),
                Excess::Copies,
            ),
            (
                "{'a': argv, 'b': [argv, argv, argv, argv]} == {}".into(),
                Excess::Copies,
            ),
            (
                "bytes(argv[0]+argv[0]+argv[0]) + bytes(argv[0]+argv[0]) == b''".into(),
                Excess::Copies,
            ),
            (
                format!("(tty ? argv : argv){} == []", repeated("+argv", 3)),
                Excess::Copies,
            ),
            (
                format!("argv{} == []", repeated(".filter(a,true)", 9)),
                Excess::Loops,
            ),
            (
                repeated("argv.all(a,a=='')||", 8) + "argv.all(a,true)",
                Excess::Loops,
            ),
            (
                "argv.all(a, argv.existsOne(b, a == b))".into(),
                Excess::NestedLoops,
            ),
            (
                "argv.all(a, a.matches(a))".into(),
                Excess::PatternNotWritten,
            ),
            (
                "argv[0].matches('^' + container)".into(),
                Excess::PatternNotWritten,
            ),
            (
                "matches(argv[0], argv[1])".into(),
                Excess::PatternNotWritten,
            ),
            (
                format!("{}tty", repeated("argv[0].matches('')||", 9)),
                Excess::Patterns,
            ),
        ] {
            assert_eq!(excess(&policy), Some(expected), "{policy}");
        }
    }
}
