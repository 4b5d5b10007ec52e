//! Rules: their heads, and the statements in their bodies.

use regorus::Value;
use regorus::unstable::{
    AssignOp, Expr, Literal, LiteralStmt, Query, Ref, Rule, RuleAssign, RuleBody, RuleHead,
};

use super::super::operand::{Answer, Failure};
use super::node::{Tree, array, object, string, term};

/// The fields of the head of a rule that its `else` has, too.
struct Head {
    fields: Vec<(&'static str, Value)>,
    /// The key, if it is not constant, or if the rule has a value and no body.
    key: Option<Value>,
    /// The name, if it is a field of heads with a value only.
    name: Option<Value>,
}

impl Tree {
    /// Returns a rule.
    pub(super) fn rule(&mut self, rule: &Rule) -> Answer {
        match rule {
            Rule::Spec { head, bodies, .. } => {
                let is_bare = bodies.iter().all(|body| body.query.stmts.is_empty());
                let (head, assign, is_set) = self.head(head, is_bare)?;
                self.with_bodies(&head, assign, is_set, bodies)
            }
            Rule::Default {
                refr,
                args,
                op,
                value,
                ..
            } => {
                let mut head = self.name_of(refr, args.is_empty(), true)?;
                self.arguments(args, &mut head)?;
                let value = self.term(value)?;
                let fields = head_fields(&head, Some((is_assigned(op), value)));
                Ok(object([
                    ("default", Value::from(true)),
                    ("head", object(fields)),
                    ("body", generated()),
                ]))
            }
        }
    }

    /// Returns a rule from its head and its first body; each further one is an `else`.
    fn with_bodies(
        &mut self,
        head: &Head,
        assign: Option<&RuleAssign>,
        is_set: bool,
        bodies: &[RuleBody],
    ) -> Answer {
        let value = match assign {
            _ if is_set => None,
            Some(assign) => Some((is_assigned(&assign.op), self.term(&assign.value)?)),
            None => Some((false, term("boolean", Value::from(true)))),
        };
        let mut fields = head.fields.clone();
        let has_value = assign.is_some();
        fields.extend(
            head.name
                .iter()
                .filter(|_| has_value)
                .map(|name| ("name", name.clone())),
        );
        fields.extend(head.key.iter().map(|key| ("key", key.clone())));
        fields.extend(value_fields(value));
        let mut rule = vec![("head", object(fields))];
        let (first, others) = bodies.split_first().unzip();
        rule.push((
            "body",
            match first {
                Some(body) => self.body(&body.query)?,
                None => generated(),
            },
        ));
        if let Some(others @ [next, ..]) = others {
            rule.push((
                "else",
                self.with_bodies(head, next.assign.as_ref(), is_set, others)?,
            ));
        }
        Ok(object(rule))
    }

    /// Returns a head, its value, and whether it is that of a set.
    fn head<'r>(
        &mut self,
        head: &'r RuleHead,
        is_bare: bool,
    ) -> Result<(Head, Option<&'r RuleAssign>, bool), Failure> {
        Ok(match head {
            RuleHead::Compr { refr, assign, .. } => {
                let is_constant = is_bare && assign.is_some();
                let head = self.name_of(refr, true, is_constant)?;
                (head, assign.as_ref(), false)
            }
            RuleHead::Set { refr, key, .. } => {
                let mut head = self.name_of(refr, false, false)?;
                if let Some(key) = key {
                    head.fields.push(("key", self.term(key)?));
                }
                (head, None, true)
            }
            RuleHead::Func {
                refr, args, assign, ..
            } => {
                let mut head = self.name_of(refr, false, false)?;
                self.arguments(args, &mut head)?;
                (head, assign.as_ref(), false)
            }
        })
    }

    /// Returns the name of a rule. If it has two parts, the first one may be a name, and the second one a key, as in the
    /// language before 1.0; a constant key counts if `with_constant` is true.
    fn name_of(
        &mut self,
        refr: &Expr,
        may_have_key: bool,
        with_constant: bool,
    ) -> Result<Head, Failure> {
        let parts = self.parts(refr)?;
        let mut head = Head {
            fields: Vec::new(),
            key: None,
            name: None,
        };
        match parts.as_slice() {
            [name] => head.fields.push(("name", name["value"].clone())),
            [name, key] if may_have_key => {
                head.name = Some(name["value"].clone());
                let kind = &key["type"];
                let is_variable = ["var", "ref"].iter().any(|one| *kind == string(one));
                head.key = (is_variable || with_constant).then(|| key.clone());
            }
            _ => {}
        }
        head.fields.push(("ref", array(parts)));
        Ok(head)
    }

    fn arguments(&mut self, args: &[Ref<Expr>], head: &mut Head) -> Result<(), Failure> {
        let terms = args.iter().map(|arg| self.term(arg));
        let terms: Vec<Value> = terms.collect::<Result<_, _>>()?;
        if !terms.is_empty() {
            head.fields.push(("args", array(terms)));
        }
        Ok(())
    }

    /// Returns the statements of a body.
    pub(super) fn body(&mut self, query: &Query) -> Answer {
        if query.stmts.is_empty() {
            return Ok(generated());
        }
        let statements = query.stmts.iter().enumerate();
        let statements = statements.map(|(at, statement)| self.statement(at, statement));
        Ok(array(statements.collect::<Result<_, _>>()?))
    }

    fn statement(&mut self, at: usize, statement: &LiteralStmt) -> Answer {
        self.count()?;
        let mut fields = vec![("index", Value::from(at))];
        let terms = match &statement.literal {
            Literal::SomeVars { vars, .. } => {
                let symbols = vars.iter().map(|name| self.name(name.text()));
                symbols_of(symbols.collect())
            }
            Literal::SomeIn {
                key,
                value,
                collection,
                ..
            } => {
                let operands = key.iter().chain([value, collection]);
                let call = self.member(operands.map(AsRef::as_ref))?;
                symbols_of(vec![term("call", call.parts())])
            }
            Literal::Expr { expr, .. } => self.expression(expr)?,
            Literal::NotExpr { expr, .. } => {
                fields.push(("negated", Value::from(true)));
                self.expression(expr)?
            }
            Literal::Every {
                key,
                value,
                domain,
                query,
                ..
            } => {
                let key = match key {
                    Some(key) => self.name(key.text()),
                    None => Value::Null,
                };
                let value = self.name(value.text());
                let domain = self.term(domain)?;
                let body = self.body(query)?;
                object([
                    ("key", key),
                    ("value", value),
                    ("domain", domain),
                    ("body", body),
                ])
            }
        };
        fields.push(("terms", terms));
        let mut with = Vec::new();
        for one in &statement.with_mods {
            let target = self.reference(&one.refr)?;
            let value = self.term(&one.r#as)?;
            with.push(object([("target", target), ("value", value)]));
        }
        if !with.is_empty() {
            fields.push(("with", array(with)));
        }
        Ok(object(fields))
    }

    /// Returns the operator and the operands of a call, or one term.
    fn expression(&mut self, expr: &Expr) -> Answer {
        match self.call(expr)? {
            Some(call) => Ok(call.parts()),
            None => self.term(expr),
        }
    }
}

fn symbols_of(symbols: Vec<Value>) -> Value {
    object([("symbols", array(symbols))])
}

fn is_assigned(op: &AssignOp) -> bool {
    matches!(op, AssignOp::ColEq)
}

fn value_fields(value: Option<(bool, Value)>) -> Vec<(&'static str, Value)> {
    let Some((is_assigned, value)) = value else {
        return Vec::new();
    };
    let assign = is_assigned.then(|| ("assign", Value::from(true)));
    [("value", value)].into_iter().chain(assign).collect()
}

fn head_fields(head: &Head, value: Option<(bool, Value)>) -> Vec<(&'static str, Value)> {
    let mut fields = head.fields.clone();
    fields.extend(value_fields(value));
    fields
}

/// Returns the body of a rule without one.
fn generated() -> Value {
    array(vec![object([
        ("generated", Value::from(true)),
        ("index", Value::from(0_u64)),
        ("terms", term("boolean", Value::from(true))),
    ])])
}
