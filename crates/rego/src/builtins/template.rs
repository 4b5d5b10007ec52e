//! `strings.render_template`: the templates of Go's package `text/template`.
//! See <https://pkg.go.dev/text/template>.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use gotmpl::{Template, Value as Data};
use regorus::Value;

use super::bounds::{Excess, MAX_ITEMS, MAX_TEXT};
use super::operand::{Answer, Failure, bounded, fields, text};

/// Implements `strings.render_template`. A missing variable is `<undefined>`.
pub(super) fn render(values: &[Value]) -> Answer {
    let text = text(values, 0)?;
    fields(values, 1)?;
    let parsed = Template::new("template")
        .max_range_iters(MAX_ITEMS as u64)
        .parse(text);
    let template = parsed.map_err(|error| Failure::Failed(error.to_string()))?;
    let mut out = Out::default();
    let rendered = template.execute_fmt(&mut out, &data(&values[1]));
    if out.full {
        return Err(Excess::Text.into());
    }
    rendered.map_err(|error| Failure::Failed(error.to_string()))?;
    bounded(out.text.replace("<no value>", "<undefined>"))
}

/// A text that does not grow beyond its bound.
#[derive(Default)]
struct Out {
    text: String,
    full: bool,
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > MAX_TEXT {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Returns a value for a template.
fn data(value: &Value) -> Data {
    match value {
        Value::Null | Value::Undefined => Data::Nil,
        Value::Bool(bool) => Data::Bool(*bool),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Data::Int(whole),
            (None, Some(float)) => Data::Float(float),
            (None, None) => Data::String(number.format_decimal().into()),
        },
        Value::String(text) => Data::String(text.clone()),
        Value::Array(items) => Data::List(items.iter().map(data).collect()),
        Value::Set(items) => Data::List(items.iter().map(data).collect()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                let key: Arc<str> = match key {
                    Value::String(key) => key.clone(),
                    key => super::rego_text::written(key).into(),
                };
                (key, data(value))
            });
            Data::Map(Arc::new(fields.collect::<BTreeMap<_, _>>()))
        }
    }
}
