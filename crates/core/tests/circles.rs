//! Tests that imports have one direction: no file of a crate imports, directly or indirectly, a file that
//! imports it. A `mod.rs` or `lib.rs` that re-exports items of its child files does not count as importing
//! them, and a file that imports a re-exported item from it imports the file that defines the item. Calls of
//! a parent into its child by the bare name of the child are not checked.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test should stop where it failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path as FilePath;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The remaining circles, by crate. This list may only become shorter; `api`, `trail`, `gating`, `runs`,
/// `composites` and `compliance` have none.
const KNOWN: [&str; 15] = [
    "admission: certificate/rotation, certificate/secret",
    "admission: changes, watch",
    "admission: manager/register, manager/upkeep",
    "core: access/approval, access/approval/matching, access/decide, access/emergency, \
     access/grant, access/lock, access/policy, access/request, access/stamp, \
     access/ticket, kinds, transient/grant, transient/kind, validate/access_config, \
     validate/access_pod, validate/approval, validate/emergency, validate/request, \
     validate/template",
    "engine: assemble, controllers, engine",
    "engine: run/pass, run/runner",
    "gate: storage, storage/file, storage/s3, storage/s3/credentials, \
     storage/s3/web_identity",
    "ozctl: complete, connect, connection",
    "ozctl: context, output",
    "recording: age, age/header",
    "rego: functions, policy, rewrite, variables",
    "runtime: lease, runtime, tasks",
    "runtime: store/source, store/watch",
    "testkit-s3: , backend",
    "testkit: cluster, start",
];

/// The circles inside of one folder of the core: its one circle would hide any other.
const IN_FOLDERS_OF_CORE: [&str; 1] = ["core: validate/access_pod, validate/template"];

/// The path of a module or item: its names from the root of the crate.
type Path = Vec<String>;

/// The paths that a file names in its crate.
#[derive(Default)]
struct Named {
    /// The paths, each with the name under which the file re-exports it, if it does.
    paths: Vec<(Path, Option<String>)>,
}

struct Reader<'a> {
    /// The module of the file.
    me: &'a Path,
    found: Named,
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        // Whether the next item is a test, and whether it is public.
        let (mut is_test, mut is_public) = (false, false);
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                    is_test |= group.to_string().replace(' ', "") == "[cfg(test)]";
                }
                TokenTree::Group(group) => {
                    if !is_test {
                        self.read(group.stream());
                    }
                    is_test &= group.delimiter() != Delimiter::Brace;
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => {
                    (is_test, is_public) = (false, false);
                }
                TokenTree::Ident(ident) if is_test => drop(ident.to_string()),
                TokenTree::Ident(ident) => match ident.to_string().as_str() {
                    "pub" => is_public = true,
                    "use" => {
                        let end = tokens[at..].iter().position(|token| is(token, ';'));
                        let end = at + end.unwrap_or(tokens.len() - at);
                        self.tree(&tokens[at..end], &mut Path::new(), is_public, true);
                        at = end;
                    }
                    "crate" | "super" | "self" => {
                        let end = tokens[at..].chunks(3).position(|next| {
                            !matches!(next, [a, b, TokenTree::Ident(_)] if is(a, ':') && is(b, ':'))
                        });
                        let end = at + 3 * end.unwrap_or((tokens.len() - at) / 3);
                        if end > at {
                            self.tree(&tokens[at - 1..end], &mut Path::new(), false, false);
                        }
                        at = end;
                    }
                    "fn" | "struct" | "enum" | "mod" | "impl" | "const" => is_public = false,
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Reads the tree after `use`, or a path in code.
    fn tree(&mut self, tokens: &[TokenTree], before: &mut Path, is_public: bool, is_use: bool) {
        let start = before.len();
        let mut called = None;
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    called = tokens.get(at + 1).map(TokenTree::to_string);
                    break;
                }
                TokenTree::Ident(ident) => before.push(ident.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for one in inner.split(|token| is(token, ',')) {
                        self.tree(one, before, is_public, is_use);
                    }
                    before.truncate(start);
                    return;
                }
                _ => {}
            }
        }
        let word = called.or_else(|| before.last().cloned());
        if before.len() > start {
            self.name(before, word.filter(|_| is_public), is_use);
        }
        before.truncate(start);
    }

    /// Adds a path, from the root of the crate.
    fn name(&mut self, path: &[String], handed_on: Option<String>, is_use: bool) {
        let mut full = match path[0].as_str() {
            "crate" => Path::new(),
            "self" | "super" => self.me.clone(),
            _ if is_use => self.me.clone(),
            _ => return,
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(full.pop()),
                name => full.push(name.to_owned()),
            }
        }
        self.found.paths.push((full, handed_on));
    }
}

fn is(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// Adds the modules below `directory` that are not tests, with the paths that they name.
fn modules(directory: &FilePath, module: &Path, found: &mut BTreeMap<Path, Named>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut me = module.clone();
        if path.is_dir() {
            if name != "tests" && name != "testing" {
                me.push(name);
                modules(&path, &me, found);
            }
        } else if let Some(name) = name.strip_suffix(".rs") {
            match name {
                "tests" => continue,
                name if name.ends_with("_tests") => continue,
                "mod" | "lib" | "main" => {}
                name => me.push(name.to_owned()),
            }
            let text = fs::read_to_string(&path).unwrap();
            let mut reader = Reader {
                me: &me,
                found: Named::default(),
            };
            reader.read(text.parse().unwrap());
            let named = reader.found;
            found.entry(me).or_default().paths.extend(named.paths);
        }
    }
}

/// Returns the files of a crate that each of its files imports.
fn imports(source: &FilePath) -> BTreeMap<Path, BTreeSet<Path>> {
    let mut named = BTreeMap::new();
    modules(source, &Path::new(), &mut named);
    // The file to which a path leads, and the word that it names there.
    let file_of = |path: &Path| {
        let mut ends = (0..=path.len()).rev();
        let end = ends.find(|&end| named.contains_key(&path[..end]));
        (
            path[..end.unwrap()].to_vec(),
            path.get(end.unwrap()).cloned(),
        )
    };
    let mut handed_on = BTreeMap::new();
    for (me, one) in &named {
        for (path, word) in &one.paths {
            if let Some(word) = word {
                handed_on.insert((me.clone(), Some(word.clone())), file_of(path));
            }
        }
    }
    let defined = |path: &Path| {
        let mut place = file_of(path);
        for _ in 0..8 {
            match handed_on.get(&place) {
                Some(next) => place = next.clone(),
                None => break,
            }
        }
        place.0
    };
    let of = |me: &Path, one: &Named| {
        let counts = |(path, word): &&(Path, Option<String>)| {
            word.is_none() || !file_of(path).0.starts_with(me)
        };
        let paths = one.paths.iter().filter(counts);
        let files = paths.map(|(path, _)| defined(path));
        files.filter(|file| file != me).collect()
    };
    named
        .iter()
        .map(|(me, one)| (me.clone(), of(me, one)))
        .collect()
}

/// Returns the sets of files that import each other, directly or indirectly, among those that `counts`
/// accepts.
fn circles(
    imports: &BTreeMap<Path, BTreeSet<Path>>,
    counts: impl Fn(&Path) -> bool,
) -> BTreeSet<Vec<Path>> {
    let reached = |from: &Path| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from.clone()];
        while let Some(next) = open.pop() {
            for file in imports[&next].iter().filter(|file| counts(file)) {
                if seen.insert(file.clone()) {
                    open.push(file.clone());
                }
            }
        }
        seen
    };
    let files: Vec<&Path> = imports.keys().filter(|file| counts(file)).collect();
    let reached: BTreeMap<&Path, BTreeSet<Path>> =
        files.iter().map(|&file| (file, reached(file))).collect();
    let circle = |file: &&Path| {
        let others = reached[*file]
            .iter()
            .filter(|other| reached[*other].contains(*file));
        others.cloned().collect::<Vec<Path>>()
    };
    let circles = files.iter().map(circle);
    circles.filter(|circle| circle.len() > 1).collect()
}

#[test]
fn no_file_imports_what_imports_it() {
    let crates = FilePath::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut found, mut in_folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let imports = imports(&entry.path().join("src"));
        let all: usize = imports.values().map(BTreeSet::len).sum();
        assert!(
            all >= imports.len() / 2,
            "the imports of {name} were not read"
        );
        let line = |circle: &Vec<Path>| {
            let files: Vec<String> = circle.iter().map(|file| file.join("/")).collect();
            format!("{name}: {}", files.join(", "))
        };
        found.extend(circles(&imports, |_| true).iter().map(line));
        if name == "core" {
            let folders: BTreeSet<&[String]> =
                imports.keys().filter_map(|file| file.get(..1)).collect();
            let inside = |folder| circles(&imports, |file| file.starts_with(folder));
            let inside = folders.into_iter().flat_map(inside);
            in_folders.extend(inside.map(|circle| line(&circle)));
        }
    }
    found.sort();
    assert_eq!(found, KNOWN);
    assert_eq!(in_folders, IN_FOLDERS_OF_CORE);
}
