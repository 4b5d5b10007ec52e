//! Compiles a schema, and finds its errors.

use std::collections::BTreeMap;

use regorus::Value;

use super::super::bounds::{Excess, MAX_ITEMS};
use super::super::operand::{Failure, failed};
use super::super::pattern;
use super::documents::Documents;
use super::keywords;
use super::keywords::{Draft, different_texts, list, text, wrong};
use super::object::{fields, get};
use super::rules::{
    Additional, Arrays, Combined, Common, Dependency, Id, Items, MAX_DEPTH, Node, Nodes, Numbers,
    Objects, Rules, Texts,
};

/// The compiler of one schema.
pub(super) struct Compiler<'v> {
    documents: Documents<'v>,
    nodes: Nodes,
    /// The nodes of the addresses to which references point.
    references: BTreeMap<String, Id>,
    draft: Draft,
    depth: usize,
}

impl<'v> Compiler<'v> {
    pub(super) fn compile(schema: &'v Value) -> Result<Nodes, Failure> {
        let mut compiler = Self {
            draft: Draft::from_schema(schema)?,
            documents: Documents::from_schema(schema)?,
            nodes: Vec::new(),
            references: BTreeMap::new(),
            depth: 0,
        };
        compiler.add(schema)?;
        Ok(compiler.nodes)
    }

    /// Compiles a schema to a node.
    fn add(&mut self, schema: &'v Value) -> Result<Id, Failure> {
        let id = self.nodes.len();
        self.nodes.push(Node::Pass(true));
        self.fill(id, schema)?;
        Ok(id)
    }

    fn fill(&mut self, id: Id, schema: &'v Value) -> Result<(), Failure> {
        if self.nodes.len() > MAX_ITEMS {
            return Err(Excess::Elements.into());
        }
        if self.depth > MAX_DEPTH {
            return Err(Excess::Depth.into());
        }
        self.depth += 1;
        self.nodes[id] = self.node(schema)?;
        self.depth -= 1;
        Ok(())
    }

    fn node(&mut self, schema: &'v Value) -> Result<Node, Failure> {
        match schema {
            Value::Bool(pass) if self.draft >= Draft::Six => return Ok(Node::Pass(*pass)),
            Value::Object(_) => {}
            _ => return failed("Expected: Valid Schema, given: Invalid JSON"),
        }
        let is_old = match self.draft {
            Draft::Four => true,
            Draft::Any => get(schema, "id").is_some(),
            Draft::Six | Draft::Seven => false,
        };
        text(schema, if is_old { "id" } else { "$id" })?;
        self.definitions(schema)?;
        text(schema, "title")?;
        text(schema, "description")?;
        if let Some(reference) = text(schema, "$ref")? {
            return self.reference(schema, reference);
        }
        let mut rules = Rules {
            types: keywords::types(schema)?,
            ..Rules::default()
        };
        self.objects(schema, &mut rules.objects)?;
        rules.combined.dependencies = self.dependencies(schema)?;
        self.items(schema, &mut rules.arrays)?;
        rules.numbers = self.numbers(schema)?;
        rules.texts = texts(schema)?;
        if let Some(format) = text(schema, "format")? {
            rules.common.format = Some(format.to_owned());
        }
        sizes(schema, &mut rules)?;
        if self.draft >= Draft::Six
            && let Some(contains) = get(schema, "contains")
        {
            rules.arrays.contains = Some(self.add(contains)?);
        }
        self.common(schema, &mut rules.common)?;
        self.combined(schema, &mut rules.combined)?;
        Ok(Node::Rules(Box::new(rules)))
    }

    /// Checks the schemas to which references may point.
    fn definitions(&mut self, schema: &'v Value) -> Result<(), Failure> {
        let expected = "Array Of Schemas";
        match get(schema, "definitions") {
            None => Ok(()),
            Some(all @ Value::Object(_)) => fields(all).try_for_each(|(_, one)| match one {
                Value::Bool(_) | Value::Object(_) => self.add(one).map(drop),
                _ => wrong(expected, "definitions"),
            }),
            Some(_) => wrong(expected, "definitions"),
        }
    }

    fn reference(&mut self, schema: &'v Value, reference: &str) -> Result<Node, Failure> {
        let address = self.documents.address(schema, reference);
        if let Some(known) = self.references.get(&address) {
            return Ok(Node::Reference(*known));
        }
        let id = self.nodes.len();
        self.nodes.push(Node::Pass(true));
        self.references.insert(address.clone(), id);
        let found = self.documents.find(&address)?;
        if !matches!(found, Value::Bool(_) | Value::Object(_)) {
            return failed("Valid Schema must be of type object");
        }
        self.fill(id, found)?;
        Ok(Node::Reference(id))
    }

    /// Compiles a keyword that is a schema.
    fn schema(
        &mut self,
        schema: &'v Value,
        key: &str,
        error: impl FnOnce() -> Failure,
    ) -> Result<Option<Id>, Failure> {
        match get(schema, key) {
            None => Ok(None),
            Some(one @ (Value::Bool(_) | Value::Object(_))) => self.add(one).map(Some),
            Some(_) => Err(error()),
        }
    }

    fn additional(&mut self, schema: &'v Value, key: &str) -> Result<Additional, Failure> {
        match get(schema, key) {
            None | Some(Value::Bool(true)) => Ok(Additional::Any),
            Some(Value::Bool(false)) => Ok(Additional::None),
            Some(one @ Value::Object(_)) => self.add(one).map(Additional::Schema),
            Some(_) => wrong("boolean/Valid Schema", key),
        }
    }

    fn objects(&mut self, schema: &'v Value, rules: &mut Objects) -> Result<(), Failure> {
        match get(schema, "properties") {
            None => {}
            Some(all @ Value::Object(_)) => {
                for (key, one) in fields(all) {
                    rules.properties.push((key.to_owned(), self.add(one)?));
                }
            }
            Some(_) => return failed("Properties must be of type object"),
        }
        rules.additional = self.additional(schema, "additionalProperties")?;
        match get(schema, "patternProperties") {
            None => {}
            Some(all @ Value::Object(_)) => {
                for (key, one) in fields(all) {
                    let Ok(regex) = pattern::compile(key) else {
                        return failed(format!("Invalid regex pattern '{key}'"));
                    };
                    rules.patterns.push((regex, self.add(one)?));
                }
            }
            Some(_) => return wrong("Valid Schema", "patternProperties"),
        }
        if self.draft >= Draft::Six {
            rules.names = self.schema(schema, "propertyNames", || {
                let expected = "Invalid type. Expected: Valid Schema, given: patternProperties";
                Failure::Failed(expected.to_owned())
            })?;
        }
        Ok(())
    }

    fn dependencies(&mut self, schema: &'v Value) -> Result<Vec<(String, Dependency)>, Failure> {
        let all = match get(schema, "dependencies") {
            None => return Ok(Vec::new()),
            Some(all @ Value::Object(_)) => all,
            Some(_) => return failed("dependencies must be of type object"),
        };
        let wrong = "Dependency must be of type Schema Or Array Of Strings";
        let mut dependencies = Vec::new();
        for (key, one) in fields(all) {
            let dependency = match one {
                Value::Bool(_) | Value::Object(_) => Dependency::Schema(self.add(one)?),
                Value::Array(keys) => {
                    let keys = keys.iter().map(|key| match key {
                        Value::String(key) => Ok(key.as_ref().to_owned()),
                        _ => failed(wrong),
                    });
                    Dependency::Keys(keys.collect::<Result<_, _>>()?)
                }
                _ => return failed(wrong),
            };
            dependencies.push((key.to_owned(), dependency));
        }
        Ok(dependencies)
    }

    fn items(&mut self, schema: &'v Value, rules: &mut Arrays) -> Result<(), Failure> {
        let expected = "Valid Schema/Array Of Schemas";
        match get(schema, "items") {
            None => {}
            Some(one @ (Value::Bool(_) | Value::Object(_))) => {
                rules.items = Items::Each(self.add(one)?);
            }
            Some(Value::Array(all)) => {
                let ids = all.iter().map(|one| match one {
                    Value::Bool(_) | Value::Object(_) => self.add(one),
                    _ => wrong(expected, "items"),
                });
                rules.items = Items::First(ids.collect::<Result<_, _>>()?);
            }
            Some(_) => return wrong(expected, "items"),
        }
        rules.additional = self.additional(schema, "additionalItems")?;
        Ok(())
    }

    fn numbers(&self, schema: &Value) -> Result<Numbers, Failure> {
        let multiple_of = keywords::multiple_of(schema)?;
        let (lower, upper) = (
            ("exclusiveMinimum", "minimum"),
            ("exclusiveMaximum", "maximum"),
        );
        let mut minimum = keywords::limit(schema, lower.1)?;
        let above = keywords::exclusive(schema, lower, &mut minimum, self.draft)?;
        let mut maximum = keywords::limit(schema, upper.1)?;
        let below = keywords::exclusive(schema, upper, &mut maximum, self.draft)?;
        Ok(Numbers {
            multiple_of,
            minimum,
            above,
            maximum,
            below,
        })
    }

    fn common(&self, schema: &Value, rules: &mut Common) -> Result<(), Failure> {
        if self.draft >= Draft::Six {
            rules.constant = get(schema, "const").cloned();
        }
        if let Some(allowed) = list(schema, "enum")? {
            let mut sorted = allowed.clone();
            sorted.sort();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return failed("enum items must be unique");
            }
            rules.allowed = Some(allowed.into_iter().cloned().collect());
        }
        Ok(())
    }

    fn combined(&mut self, schema: &'v Value, rules: &mut Combined) -> Result<(), Failure> {
        rules.one_of = self.all(schema, "oneOf")?;
        rules.any_of = self.all(schema, "anyOf")?;
        rules.all_of = self.all(schema, "allOf")?;
        let one = |compiler: &mut Self, key: &str| {
            compiler.schema(schema, key, || {
                Failure::Failed(format!("{key} must be of an object"))
            })
        };
        rules.not = one(self, "not")?;
        if self.draft >= Draft::Seven {
            rules.condition = one(self, "if")?;
            rules.then = one(self, "then")?;
            rules.otherwise = one(self, "else")?;
        }
        Ok(())
    }

    fn all(&mut self, schema: &'v Value, key: &str) -> Result<Vec<Id>, Failure> {
        let all = list(schema, key)?.into_iter().flatten();
        all.map(|one| self.add(one)).collect()
    }
}

/// Returns the rules for texts.
fn texts(schema: &Value) -> Result<Texts, Failure> {
    let (min, max) = (
        keywords::count(schema, "minLength")?,
        keywords::count(schema, "maxLength")?,
    );
    if min.zip(max).is_some_and(|(min, max)| min > max) {
        return failed("minLength cannot be greater than maxLength");
    }
    let pattern = match text(schema, "pattern")? {
        None => None,
        Some(pattern) => match pattern::compile(pattern) {
            Ok(regex) => Some((pattern.to_owned(), regex)),
            Err(_) => return failed("pattern must be a valid regex"),
        },
    };
    Ok(Texts { min, max, pattern })
}

/// Reads the sizes of objects and arrays.
fn sizes(schema: &Value, rules: &mut Rules) -> Result<(), Failure> {
    let objects = &mut rules.objects;
    objects.min = keywords::count(schema, "minProperties")?;
    objects.max = keywords::count(schema, "maxProperties")?;
    let sizes = objects.min.zip(objects.max);
    if sizes.is_some_and(|(min, max)| min > max) {
        return failed("minProperties cannot be greater than maxProperties");
    }
    objects.required = different_texts(schema, "required")?;
    rules.arrays.min = keywords::count(schema, "minItems")?;
    rules.arrays.max = keywords::count(schema, "maxItems")?;
    match get(schema, "uniqueItems") {
        None => Ok(()),
        Some(Value::Bool(unique)) => {
            rules.arrays.unique = *unique;
            Ok(())
        }
        Some(_) => failed("uniqueItems must be of a boolean"),
    }
}
