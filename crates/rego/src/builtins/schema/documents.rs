//! The documents to which the references of a schema point: the schema, and the parts of it that have an `$id`.

use std::collections::BTreeMap;

use regorus::Value;

use super::super::operand::{Failure, failed};
use super::object::{fields, get};

/// Keys of which the values are objects of schemas, not schemas.
const OBJECTS_OF_SCHEMAS: [&str; 3] = ["properties", "dependencies", "patternProperties"];

/// The documents by their addresses, and the addresses of all references.
pub(super) struct Documents<'v> {
    by_address: BTreeMap<String, &'v Value>,
    /// The absolute address of a reference, by the position of its schema in memory.
    absolute: BTreeMap<usize, String>,
}

impl<'v> Documents<'v> {
    /// Reads all identifiers and references of a schema.
    pub(super) fn from_schema(schema: &'v Value) -> Result<Self, Failure> {
        let mut documents = Self {
            by_address: BTreeMap::new(),
            absolute: BTreeMap::new(),
        };
        documents.read(schema, "")?;
        documents.by_address.insert(String::new(), schema);
        Ok(documents)
    }

    fn read(&mut self, value: &'v Value, base: &str) -> Result<(), Failure> {
        if let Value::Array(items) = value {
            return items.iter().try_for_each(|item| self.read(item, base));
        }
        let mut own = base.to_owned();
        let id = get(value, "id").or_else(|| get(value, "$id"));
        if let Some(Value::String(id)) = id {
            own = resolve(base, id);
            if self.by_address.insert(own.clone(), value).is_some() {
                return failed(format!("Reference already exists: \"{own}\""));
            }
        }
        if let Some(Value::String(reference)) = get(value, "$ref") {
            self.absolute
                .insert(position(value), resolve(&own, reference));
        }
        for (key, part) in fields(value) {
            match key {
                "const" | "enum" => {}
                _ if OBJECTS_OF_SCHEMAS.contains(&key) => {
                    for (_, schema) in fields(part) {
                        self.read(schema, &own)?;
                    }
                }
                _ => self.read(part, &own)?,
            }
        }
        Ok(())
    }

    /// Returns the absolute address of the reference of a schema.
    pub(super) fn address(&self, schema: &Value, reference: &str) -> String {
        let absolute = self.absolute.get(&position(schema));
        absolute.map_or_else(|| reference.to_owned(), Clone::clone)
    }

    /// Returns the schema at an address.
    pub(super) fn find(&self, address: &str) -> Result<&'v Value, Failure> {
        if let Some(document) = self.by_address.get(address).copied() {
            return Ok(document);
        }
        let (document, fragment) = address.split_once('#').unwrap_or((address, ""));
        match self.by_address.get(document).copied() {
            Some(document) => pointed(document, fragment),
            None if !address.contains("://") => {
                failed(format!("Reference {address} must be canonical"))
            }
            None => failed(format!("remote reference loading disabled: {address}")),
        }
    }
}

fn position(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Returns a reference in a document as an absolute one.
fn resolve(base: &str, reference: &str) -> String {
    let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
    let base = base.split('#').next().unwrap_or(base);
    let is_absolute = document.contains("://") || document.starts_with("urn:");
    let resolved = if document.is_empty() {
        base.to_owned()
    } else if is_absolute {
        document.to_owned()
    } else {
        let path = base.find("://").map_or(0, |scheme| {
            let host = &base[scheme + 3..];
            scheme + 3 + host.find('/').unwrap_or(host.len())
        });
        match document.starts_with('/') {
            true => format!("{}{document}", &base[..path]),
            false => {
                let folder = base[path..].rfind('/').map_or(path, |at| path + at + 1);
                let between = if folder == path { "/" } else { "" };
                format!("{}{between}{document}", &base[..folder])
            }
        }
    };
    match fragment {
        "" => resolved,
        _ => format!("{resolved}#{fragment}"),
    }
}

/// Returns the part of a document at a JSON pointer. A fragment that is none is the document.
fn pointed<'v>(document: &'v Value, fragment: &str) -> Result<&'v Value, Failure> {
    let Some(pointer) = fragment.strip_prefix('/') else {
        return Ok(document);
    };
    let mut part = document;
    for token in pointer.split('/') {
        let token = percent_decoded(token).replace("~1", "/").replace("~0", "~");
        part = match part {
            Value::Object(_) => match get(part, &token) {
                Some(value) => value,
                None => return failed(format!("Object has no key '{token}'")),
            },
            Value::Array(items) => {
                let Ok(at) = token.parse::<usize>() else {
                    return failed(format!("Invalid array index '{token}'"));
                };
                let count = items.len();
                match items.get(at) {
                    Some(item) => item,
                    None => return failed(format!("Out of bound array[0,{count}] index '{at}'")),
                }
            }
            _ => return failed(format!("Invalid token reference '{token}'")),
        };
    }
    Ok(part)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let code = others.get(..2).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        match code {
            Some(code) if *first == b'%' => {
                bytes.push(code);
                rest = &others[2..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
