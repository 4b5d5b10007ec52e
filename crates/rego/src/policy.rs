//! A policy: its modules and documents, compiled once, and evaluated any number of times.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use regorus::unstable::{Module, Ref};
use regorus::{Engine, PolicyLengthConfig, Value};
use sha2::{Digest, Sha256};

use crate::annotations::Annotations;
use crate::error::{CompileError, CompileErrors, Reason};
use crate::language::Language;
use crate::rewrite::{self, Rewritten};
use crate::{
    bounds, builtins, documents, functions, heads, newer_syntax, normalise, paths, sources, thread,
    tokens, variables,
};

/// The interpretation of modules, if it differs from the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// The language; if absent, v1 is tried, and then v0.
    pub language: Option<Language>,
    /// True if a failure of a built-in function is an error; otherwise its result is undefined, as in OPA.
    pub strict: bool,
}

/// Modules that compile, are within bounds, and are functions of their input and an instant.
#[derive(Clone)]
pub struct Policy {
    pub(crate) engine: Arc<Engine>,
    pub(crate) rules: Arc<[Rule]>,
    language: Language,
    digest: [u8; 32],
    /// True if an evaluation did not stop at its time limit. Its thread cannot be ended.
    pub(crate) stuck: Arc<AtomicBool>,
}

/// The position of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The path for queries, without `data.`.
    pub path: String,
    /// The name of the module.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("language", &self.language)
            .field("digest", &self.digest_text())
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Compiles texts, each with its name, as one policy: modules, in the language of OPA 1.0 if all of them are written
    /// in it, else in the one before; and documents below `data`, if the name ends in `.json`, `.yaml` or `.yml`.
    ///
    /// # Errors
    /// The errors, with file and line: the text is too large or nested too deeply, is not Rego, has functions that do
    /// not exist, call themselves, or are not functions of the input, or reads a path below `data` that nothing
    /// defines; a document cannot be read, or contradicts another or a module.
    pub fn compile(texts: &[(String, String)]) -> Result<Self, CompileErrors> {
        Self::compile_as(texts, Dialect::default())
    }

    /// Compiles texts as [`Policy::compile`] does, in a dialect.
    ///
    /// # Errors
    /// The same as for [`Policy::compile`].
    pub fn compile_as(texts: &[(String, String)], dialect: Dialect) -> Result<Self, CompileErrors> {
        let digest = digest(texts);
        let (modules, documents) = sources::split(texts)?;
        bounds::check(&modules)?;
        on_thread(move || {
            let compiled = compile(&modules, dialect)?;
            paths::check(&compiled.modules, &documents)?;
            let data = sources::merged(documents)?;
            compiled.with_data(documents::data(&data)?, digest)
        })
    }

    /// Compiles modules as [`Policy::compile_as`] does, with `data`, an object, or null for none. As in OPA, a path
    /// below `data` that nothing defines is undefined.
    ///
    /// # Errors
    /// The same as for [`Policy::compile`].
    pub fn compile_with_data(
        modules: &[(String, String)],
        data: &serde_json::Value,
        dialect: Dialect,
    ) -> Result<Self, CompileErrors> {
        bounds::check(modules)?;
        let (digest, modules) = (digest(modules), modules.to_vec());
        let data = documents::data(data)?;
        on_thread(move || compile(&modules, dialect)?.with_data(data, digest))
    }

    /// Returns the language of the policy.
    #[must_use]
    pub fn language(&self) -> Language {
        self.language
    }

    /// Returns the SHA-256 over the names and texts of modules and documents, independent of their order.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns the digest in its text form: `sha256:` and 64 digits.
    #[must_use]
    pub fn digest_text(&self) -> String {
        digest_text(self.digest)
    }

    /// Returns all rules, in the order of their modules and lines; a rule with several definitions appears once.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Checks whether an evaluation of the policy is still running after its time limit. Such a policy is not
    /// evaluated again.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }
}

/// Returns the digest of texts, whether or not they compile.
#[must_use]
pub fn digest(texts: &[(String, String)]) -> [u8; 32] {
    let mut sorted: Vec<&(String, String)> = texts.iter().collect();
    sorted.sort();
    let mut digest = Sha256::new();
    for part in sorted.into_iter().flat_map(|(name, text)| [name, text]) {
        // The length is part of the digest, so that no two lists of texts have the same bytes.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Returns a digest in its text form: `sha256:` and 64 digits.
#[must_use]
pub fn digest_text(digest: [u8; 32]) -> String {
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Compiles on a thread with a large stack.
fn on_thread(
    compile: impl FnOnce() -> Result<Policy, CompileErrors> + Send + 'static,
) -> Result<Policy, CompileErrors> {
    thread::run(None, compile).unwrap_or_else(|error| {
        let error = CompileError::whole(Reason::Semantics, error.to_string());
        Err(CompileErrors::one(error))
    })
}

/// Modules that were read and analysed.
struct Compiled {
    engine: Engine,
    /// The modules as they were written.
    modules: Vec<Ref<Module>>,
    rules: Vec<Rule>,
    language: Language,
}

impl Compiled {
    /// Creates the policy, with documents below `data`.
    fn with_data(mut self, data: Option<Value>, digest: [u8; 32]) -> Result<Policy, CompileErrors> {
        if let Some(data) = data {
            self.engine
                .add_data(data)
                .map_err(|error| unusable(&error))?;
        }
        Ok(Policy {
            engine: Arc::new(self.engine),
            rules: self.rules.into(),
            language: self.language,
            digest,
            stuck: Arc::default(),
        })
    }
}

fn compile(modules: &[(String, String)], dialect: Dialect) -> Result<Compiled, CompileErrors> {
    let modules = &normalised(modules)?;
    let (language, mut engine) = parse(modules, dialect.language)?;
    let written = engine.get_modules().to_vec();
    let used = functions::check(engine.get_modules(), language)?;
    variables::check(engine.get_modules())?;
    let annotations = Annotations::read(modules, engine.get_modules(), &used)?;
    let rules = functions::rules(engine.get_modules());
    let engine = match rewrite::rewrite(modules, engine.get_modules(), &annotations) {
        None => analyse(engine, &used, dialect)?,
        Some(rewritten) => {
            let ready = read_again(&rewritten, language, &used, dialect);
            // An error refers to its position in the original text.
            ready.or_else(|error| analyse(engine, &used, dialect).and(Err(error)))?
        }
    };
    Ok(Compiled {
        engine,
        modules: written,
        rules,
        language,
    })
}

/// Returns modules in the syntax of the interpreter.
fn normalised(modules: &[(String, String)]) -> Result<Vec<(String, String)>, CompileErrors> {
    let mut errors = Vec::new();
    let mut normalised = Vec::new();
    for (name, text) in modules {
        let tokens = tokens::tokens(text);
        errors.extend(newer_syntax::refused(name, &tokens));
        let changed = normalise::normalised(text, &tokens);
        normalised.push((name.clone(), changed.unwrap_or_else(|| text.clone())));
    }
    CompileErrors::all(errors)?;
    // A further body repeats the head of its rule.
    bounds::check(&normalised)?;
    Ok(normalised)
}

/// Returns an engine for rewritten modules.
fn read_again(
    rewritten: &Rewritten,
    language: Language,
    used: &BTreeSet<String>,
    dialect: Dialect,
) -> Result<Engine, CompileErrors> {
    bounds::check(&rewritten.modules)?;
    let (_, mut engine) = parse(&rewritten.modules, Some(language))?;
    let no_annotations = Annotations::default();
    let again = rewrite::rewrite(&rewritten.modules, engine.get_modules(), &no_annotations);
    if let Some(again) = again {
        CompileErrors::all(again.places)?;
    }
    rewritten
        .add_functions(&mut engine)
        .map_err(|error| unusable(&error))?;
    analyse(engine, used, dialect)
}

/// Runs the interpreter's analysis, which reports errors at the first query.
fn analyse(
    mut engine: Engine,
    used: &BTreeSet<String>,
    dialect: Dialect,
) -> Result<Engine, CompileErrors> {
    engine.set_strict_builtin_errors(dialect.strict);
    let analysed = builtins::add(&mut engine, used, dialect.strict)
        .and_then(|()| engine.eval_query("true".to_owned(), false));
    analysed.map(|_| engine).map_err(|error| unusable(&error))
}

fn unusable(error: &anyhow::Error) -> CompileErrors {
    let error = CompileError::drawn("", Reason::Semantics, &error.to_string());
    CompileErrors::one(error)
}

/// Parses modules. If they are in neither language, the errors are those of the language in which more of them could
/// be read.
fn parse(
    modules: &[(String, String)],
    language: Option<Language>,
) -> Result<(Language, Engine), CompileErrors> {
    if let Some(language) = language {
        return match parse_as(language, modules) {
            Ok(engine) => Ok((language, engine)),
            Err(errors) => no_rego(errors),
        };
    }
    let v1 = match parse_as(Language::V1, modules) {
        Ok(engine) => return Ok((Language::V1, engine)),
        Err(errors) => errors,
    };
    let v0 = match parse_as(Language::V0, modules) {
        Ok(engine) => return Ok((Language::V0, engine)),
        Err(errors) => errors,
    };
    let read = |errors: &[CompileError]| {
        let first = errors.first().map(|error| (error.line, error.column));
        (std::cmp::Reverse(errors.len()), first)
    };
    no_rego(if read(&v0) > read(&v1) { v0 } else { v1 })
}

fn no_rego<T>(errors: Vec<CompileError>) -> Result<T, CompileErrors> {
    CompileErrors::all(errors).and_then(|()| {
        let error = CompileError::whole(Reason::Syntax, "not Rego".to_owned());
        Err(CompileErrors::one(error))
    })
}

fn parse_as(language: Language, modules: &[(String, String)]) -> Result<Engine, Vec<CompileError>> {
    let mut engine = Engine::new();
    engine.set_rego_v0(language == Language::V0);
    // The output of `print` is discarded.
    engine.set_gather_prints(true);
    engine.set_policy_length_config(PolicyLengthConfig {
        max_col: NonZeroU32::MAX,
        ..PolicyLengthConfig::default()
    });
    let mut errors = Vec::new();
    for (name, text) in modules {
        if let Err(error) = engine.add_policy(name.clone(), text.clone()) {
            let error = CompileError::drawn(name, Reason::Syntax, &error.to_string());
            let newer = newer_syntax::explained(name, &tokens::tokens(text), language);
            errors.push(newer.unwrap_or(error));
        }
    }
    if errors.is_empty() {
        errors = heads::check(language, engine.get_modules());
    }
    if errors.is_empty() {
        Ok(engine)
    } else {
        Err(errors)
    }
}
