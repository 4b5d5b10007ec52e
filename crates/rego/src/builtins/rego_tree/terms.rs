//! Terms: values, references, calls and comprehensions.

use regorus::Value;
use regorus::unstable::{ArithOp, AssignOp, BinOp, BoolOp, Expr, Span};

use super::super::operand::{Answer, Failure};
use super::node::{Tree, array, compare, function, object, reference, string, term};

/// The name and the operands of a call.
pub(super) struct Call(Value, Vec<Value>);

impl Call {
    /// Returns the operator and the operands.
    pub(super) fn parts(self) -> Value {
        let Self(function, mut operands) = self;
        operands.insert(0, function);
        array(operands)
    }
}

impl Tree {
    /// Returns an expression as a term.
    pub(super) fn term(&mut self, expr: &Expr) -> Answer {
        self.count()?;
        Ok(match expr {
            Expr::String { value, .. } | Expr::RawString { value, .. } => {
                term("string", value.clone())
            }
            Expr::Number { value, .. } => term("number", value.clone()),
            Expr::Bool { value, .. } => term("boolean", value.clone()),
            Expr::Null { .. } => term("null", object([])),
            Expr::Var { span, .. } => self.variable(span),
            Expr::RefDot { .. } | Expr::RefBrack { .. } => self.reference(expr)?,
            Expr::Array { items, .. } => {
                let items = items.iter().map(|item| self.term(item));
                term("array", array(items.collect::<Result<_, _>>()?))
            }
            Expr::Set { items, .. } => {
                let items = items.iter().map(|item| self.term(item));
                let mut items: Vec<Value> = items.collect::<Result<_, _>>()?;
                items.sort_by(compare);
                items.dedup();
                term("set", array(items))
            }
            Expr::Object { fields, .. } => {
                let mut pairs = Vec::new();
                for (_, key, value) in fields {
                    pairs.push((self.term(key)?, self.term(value)?));
                }
                pairs.sort_by(|(one, _), (other, _)| compare(one, other));
                let pairs = pairs
                    .into_iter()
                    .map(|(key, value)| array(vec![key, value]));
                term("object", array(pairs.collect()))
            }
            Expr::ArrayCompr { .. } | Expr::SetCompr { .. } | Expr::ObjectCompr { .. } => {
                self.comprehension(expr)?
            }
            Expr::UnaryExpr { expr: of, .. } if matches!(of.as_ref(), Expr::Number { .. }) => {
                let number = self.term(of)?;
                let negative = number["value"]
                    .as_number()
                    .ok()
                    .and_then(|number| number.neg());
                term("number", negative.map_or(Value::Null, Value::from))
            }
            call => match self.call(call)? {
                // `set()` is a value.
                Some(Call(function, operands)) if operands.is_empty() && is_set(&function) => {
                    term("set", array(Vec::new()))
                }
                Some(call) => term("call", call.parts()),
                None => term("null", object([])),
            },
        })
    }

    /// Returns a variable; `input` and `data` are references.
    fn variable(&mut self, span: &Span) -> Value {
        match span.text() {
            name @ ("input" | "data") => function(name),
            name => self.name(name),
        }
    }

    /// Returns a variable with a name.
    pub(super) fn name(&mut self, name: &str) -> Value {
        match name {
            "_" => {
                let name = self.wildcard();
                term("var", string(&name))
            }
            name => term("var", string(name)),
        }
    }

    /// Returns a reference, also if it has one part only.
    pub(super) fn reference(&mut self, expr: &Expr) -> Answer {
        Ok(reference(self.parts(expr)?))
    }

    /// Returns the parts of a reference.
    pub(super) fn parts(&mut self, expr: &Expr) -> Result<Vec<Value>, Failure> {
        self.count()?;
        match expr {
            Expr::RefDot { refr, field, .. } => {
                let mut parts = self.parts(refr)?;
                parts.push(term("string", string(field.0.text())));
                Ok(parts)
            }
            Expr::RefBrack { refr, index, .. } => {
                let mut parts = self.parts(refr)?;
                parts.push(self.term(index)?);
                Ok(parts)
            }
            Expr::Var { span, .. } => Ok(vec![self.name(span.text())]),
            other => Ok(vec![self.term(other)?]),
        }
    }

    /// Returns an expression as a call; `None` if it is none.
    pub(super) fn call(&mut self, expr: &Expr) -> Result<Option<Call>, Failure> {
        self.count()?;
        let mut binary = |name: &str, lhs: &Expr, rhs: &Expr| {
            let operands = vec![self.term(lhs)?, self.term(rhs)?];
            Ok(Some(Call(function(name), operands)))
        };
        match expr {
            Expr::BoolExpr { op, lhs, rhs, .. } => binary(comparison(op), lhs, rhs),
            Expr::ArithExpr { op, lhs, rhs, .. } => binary(arithmetic(op), lhs, rhs),
            Expr::BinExpr { op, lhs, rhs, .. } => match op {
                BinOp::Intersection => binary("and", lhs, rhs),
                BinOp::Union => binary("or", lhs, rhs),
            },
            Expr::AssignExpr { op, lhs, rhs, .. } => match op {
                AssignOp::ColEq => binary("assign", lhs, rhs),
                AssignOp::Eq => binary("eq", lhs, rhs),
            },
            Expr::UnaryExpr { expr: of, .. } if !matches!(of.as_ref(), Expr::Number { .. }) => {
                let zero = term("number", Value::from(0_u64));
                let operands = vec![zero, self.term(of)?];
                Ok(Some(Call(function("minus"), operands)))
            }
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => {
                let operands = key.iter().chain([value, collection]);
                self.member(operands.map(AsRef::as_ref)).map(Some)
            }
            Expr::Call { fcn, params, .. } => {
                let function = self.reference(fcn)?;
                let operands = params.iter().map(|operand| self.term(operand));
                Ok(Some(Call(function, operands.collect::<Result<_, _>>()?)))
            }
            _ => Ok(None),
        }
    }

    /// Returns `x in y` or `x, y in z`.
    pub(super) fn member<'e>(
        &mut self,
        operands: impl Iterator<Item = &'e Expr>,
    ) -> Result<Call, Failure> {
        let operands = operands.map(|operand| self.term(operand));
        let operands: Vec<Value> = operands.collect::<Result<_, _>>()?;
        let name = format!("internal.member_{}", operands.len());
        Ok(Call(function(&name), operands))
    }

    fn comprehension(&mut self, expr: &Expr) -> Answer {
        let (kind, mut fields, query) = match expr {
            Expr::ArrayCompr { term, query, .. } => (
                "arraycomprehension",
                vec![("term", self.term(term)?)],
                query,
            ),
            Expr::SetCompr { term, query, .. } => {
                ("setcomprehension", vec![("term", self.term(term)?)], query)
            }
            Expr::ObjectCompr {
                key, value, query, ..
            } => {
                let fields = vec![("key", self.term(key)?), ("value", self.term(value)?)];
                ("objectcomprehension", fields, query)
            }
            other => return self.term(other),
        };
        fields.push(("body", self.body(query)?));
        Ok(term(kind, object(fields)))
    }
}

fn is_set(called: &Value) -> bool {
    *called == function("set")
}

fn comparison(op: &BoolOp) -> &'static str {
    match op {
        BoolOp::Lt => "lt",
        BoolOp::Le => "lte",
        BoolOp::Eq => "equal",
        BoolOp::Ge => "gte",
        BoolOp::Gt => "gt",
        BoolOp::Ne => "neq",
    }
}

fn arithmetic(op: &ArithOp) -> &'static str {
    match op {
        ArithOp::Add => "plus",
        ArithOp::Sub => "minus",
        ArithOp::Mul => "mul",
        ArithOp::Div => "div",
        ArithOp::Mod => "rem",
    }
}
