//! The capabilities file of OPA, with what policies can use here: `opa check --capabilities` and linters read it.

use serde_json::{Map, Value, json};

/// The functions, one in each line: `name(types) type @property`.
const SIGNATURES: &str = include_str!("signatures.txt");

/// Returns the capabilities, in the format of OPA 1.22.4.
#[must_use]
pub fn capabilities() -> Value {
    let lines = SIGNATURES.lines().filter(|line| !line.starts_with('#'));
    json!({
        "builtins": lines.map(builtin).collect::<Vec<_>>(),
        "future_keywords": [],
        "wasm_abi_versions": [],
        "features": ["rego_v1"],
    })
}

fn builtin(line: &str) -> Value {
    let mut parts = line.split(" @");
    let signature = parts.next().unwrap_or_default();
    let (name, rest) = signature.split_once('(').unwrap_or((signature, ")"));
    let mut reader = Reader { rest };
    let mut decl = Map::new();
    let mut args = Vec::new();
    while !reader.eat(")") && !reader.rest.is_empty() {
        if reader.eat("...") {
            decl.insert("variadic".to_owned(), reader.union());
        } else {
            args.push(reader.union());
        }
        reader.eat(", ");
    }
    if !args.is_empty() {
        decl.insert("args".to_owned(), Value::from(args));
    }
    if reader.eat(" ") {
        decl.insert("result".to_owned(), reader.union());
    }
    decl.insert("type".to_owned(), Value::from("function"));
    let mut builtin = Map::new();
    builtin.insert("name".to_owned(), Value::from(name));
    builtin.insert("decl".to_owned(), Value::from(decl));
    for property in parts {
        let (key, value) = match property.split_once('=') {
            Some((key, value)) => (key, Value::from(value)),
            None => (property, Value::from(true)),
        };
        builtin.insert(key.to_owned(), value);
    }
    Value::from(builtin)
}

/// The reader of types: `array<any>|set<any>`, `[number, string]`, `{op: string}object<any, any>`.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn word(&mut self) -> String {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word.to_owned()
    }

    fn union(&mut self) -> Value {
        let mut of = vec![self.one()];
        while self.eat("|") {
            of.push(self.one());
        }
        match of.len() {
            1 => of.swap_remove(0),
            _ => json!({"of": of, "type": "any"}),
        }
    }

    fn one(&mut self) -> Value {
        if self.eat("[") {
            return json!({"static": self.list("]"), "type": "array"});
        }
        let mut fields = Vec::new();
        if self.eat("{") {
            while !self.eat("}") && !self.rest.is_empty() {
                let key = self.word();
                self.eat(": ");
                fields.push(json!({"key": key, "value": self.union()}));
                self.eat(", ");
            }
        }
        let mut read = Map::new();
        if !fields.is_empty() {
            read.insert("static".to_owned(), Value::from(fields));
        }
        let name = self.word();
        if self.eat("<") {
            let mut parameters = self.list(">").into_iter();
            let (first, second) = (parameters.next(), parameters.next());
            let (key, value) = match (name.as_str(), second) {
                ("set", _) => ("of", json!(first)),
                (_, Some(second)) => ("dynamic", json!({"key": first, "value": second})),
                _ => ("dynamic", json!(first)),
            };
            read.insert(key.to_owned(), value);
        }
        read.insert("type".to_owned(), Value::from(name));
        Value::from(read)
    }

    fn list(&mut self, end: &str) -> Vec<Value> {
        let mut types = Vec::new();
        while !self.eat(end) && !self.rest.is_empty() {
            types.push(self.union());
            self.eat(", ");
        }
        types
    }
}
