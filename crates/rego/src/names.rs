//! The meanings of the names in a module: those of its package, and those of its imports.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::Module;

use crate::syntax::{package, path};

/// The meanings of names in a module.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) package: Vec<String>,
    imports: BTreeMap<String, Vec<String>>,
}

impl Names {
    pub(crate) fn from_module(module: &Module) -> Self {
        let mut imports = BTreeMap::new();
        for import in &module.imports {
            let Some(path) = path(&import.refr) else {
                continue;
            };
            let alias = import.r#as.as_ref().map(|span| span.text().to_owned());
            if let Some(alias) = alias.or_else(|| path.last().cloned()) {
                imports.insert(alias, path);
            }
        }
        Self {
            package: package(module),
            imports,
        }
    }

    /// Returns a path with the import that its first name means.
    pub(crate) fn whole(&self, path: Vec<String>) -> Vec<String> {
        match path.split_first() {
            Some((first, rest)) => match self.imports.get(first) {
                Some(import) => [import.as_slice(), rest].concat(),
                None => path,
            },
            None => path,
        }
    }

    /// Finds the known function that a path names: in this package, by an import, or in full.
    pub(crate) fn function(&self, known: &BTreeSet<String>, path: &[String]) -> Option<String> {
        let (first, rest) = path.split_first()?;
        let imported = self.imports.get(first).map(|import| {
            let whole = [import.as_slice(), rest].concat();
            whole.join(".")
        });
        let candidates = [
            Some(joined(&self.package, Some(path))),
            imported,
            Some(path.join(".")),
        ];
        let mut candidates = candidates.into_iter().flatten();
        candidates.find(|name| known.contains(name))
    }
}

/// Returns the full path of a name in a package; that of the package itself, if the name is computed.
pub(crate) fn joined(package: &[String], path: Option<&[String]>) -> String {
    let parts = package.iter().chain(path.into_iter().flatten());
    parts.map(String::as_str).collect::<Vec<_>>().join(".")
}
