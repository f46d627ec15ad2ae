//! Reads from a crate's sources which of its modules import which.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::tree::Tree;

/// Maximum number of re-exports through which a name is followed.
const MAX_RE_EXPORTS: usize = 8;

/// The path of a module: its names from the crate's root. The root's path is empty.
pub(super) type Path = Vec<String>;

struct Module<'a> {
    file: &'a str,
    /// Paths that the module names, as written, with their lines. Test modules are left out.
    named_paths: Vec<(Path, usize)>,
    /// Names that `use` brings into the module, with their paths as written.
    imports: BTreeMap<String, Path>,
}

/// The modules of a crate by their paths.
type Modules<'a> = BTreeMap<Path, Module<'a>>;

/// Which modules with the same parent import which: (importing, imported), with the file and line
/// of one import.
pub(super) type Edges<'a> = BTreeMap<(String, String), (&'a str, usize)>;

/// The source folder of a Rust file: `server/src` for `server/src/http/chat.rs`.
pub(super) fn source_folder(path: &str) -> Option<&str> {
    let end = path.find("/src/")? + "/src".len();
    let extension = std::path::Path::new(path).extension();
    extension
        .is_some_and(|extension| extension == "rs")
        .then(|| &path[..end])
}

/// The modules below a source folder: one for each file.
fn modules<'a>(tree: &'a Tree, source: &'a str) -> Modules<'a> {
    let mut modules = Modules::new();
    for (file, text) in tree.files(source, "rs") {
        let place = file.strip_prefix(source).unwrap_or(file);
        let place = place.trim_start_matches('/').trim_end_matches(".rs");
        let mut path: Path = place.split('/').map(str::to_owned).collect();
        let is_root = path.len() == 1 && ["lib", "main"].contains(&place);
        if is_root || path.last().is_some_and(|last| last == "mod") {
            path.pop();
        }
        let mut module = Module {
            file,
            named_paths: Vec::new(),
            imports: BTreeMap::new(),
        };
        if let Ok(tokens) = text.parse::<TokenStream>() {
            collect_paths(tokens, &mut module);
        }
        modules.insert(path, module);
    }
    modules
}

/// Collects the paths that these tokens name.
fn collect_paths(tokens: TokenStream, module: &mut Module) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut index = 0;
    while index < tokens.len() {
        let line = tokens[index].span().start().line;
        match &tokens[index] {
            TokenTree::Ident(ident) if ident == "use" => {
                let end = tokens[index..].iter().position(is_semicolon);
                let end = end.map_or(tokens.len(), |length| index + length);
                import(&tokens[index + 1..end], &[], line, module);
                index = end;
            }
            TokenTree::Ident(_) => {
                let (path, length) = path_at(&tokens[index..]);
                if path.len() > 1 {
                    module.named_paths.push((path, line));
                }
                index += length;
            }
            TokenTree::Group(group) => {
                if !is_of_tests(&tokens[..index]) {
                    collect_paths(group.stream(), module);
                }
                index += 1;
            }
            _ => index += 1,
        }
    }
}

/// Whether a body that follows these tokens is that of `#[cfg(test)] mod name`.
fn is_of_tests(before: &[TokenTree]) -> bool {
    let [.., attribute, keyword, _] = before else {
        return false;
    };
    keyword.to_string() == "mod" && attribute.to_string().replace(' ', "") == "[cfg(test)]"
}

fn is_semicolon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')
}

/// The path at the start of the tokens, and the number of its tokens.
fn path_at(tokens: &[TokenTree]) -> (Path, usize) {
    let mut path = Path::new();
    let mut index = 0;
    while let Some(TokenTree::Ident(ident)) = tokens.get(index) {
        path.push(ident.to_string());
        index += 1;
        if !starts_with_colons(&tokens[index..]) {
            break;
        }
        index += 2;
    }
    (path, index)
}

fn starts_with_colons(tokens: &[TokenTree]) -> bool {
    tokens.len() >= 2 && tokens[..2].iter().all(|token| token.to_string() == ":")
}

/// Collects the paths of a use tree: `a::{b, c::{self, d as e}}`.
fn import(tokens: &[TokenTree], prefix: &[String], line: usize, module: &mut Module) {
    let (path, length) = path_at(tokens);
    let mut full = prefix.to_vec();
    full.extend(
        path.iter()
            .filter(|name| *name != "self" || prefix.is_empty())
            .cloned(),
    );
    match tokens.get(length) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |token: &TokenTree| token.to_string() == ",";
            for branch in inner.split(is_comma).filter(|branch| !branch.is_empty()) {
                import(branch, &full, line, module);
            }
        }
        Some(TokenTree::Ident(keyword)) if keyword == "as" => {
            let name = tokens.get(length + 1).map(ToString::to_string);
            module
                .imports
                .insert(name.unwrap_or_default(), full.clone());
            module.named_paths.push((full, line));
        }
        _ => {
            if let Some(name) = full.last().cloned() {
                module.imports.insert(name, full.clone());
                module.named_paths.push((full, line));
            }
        }
    }
}

/// For each parent module below a source folder: which of its child modules import which.
pub(super) fn edges_by_parent<'a>(tree: &'a Tree, source: &'a str) -> BTreeMap<Path, Edges<'a>> {
    let modules = modules(tree, source);
    let mut all: BTreeMap<Path, Edges> = BTreeMap::new();
    for (from, module) in &modules {
        for (written, line) in &module.named_paths {
            let Some(to) = absolute(&modules, from, written) else {
                continue;
            };
            let to = owner(&modules, &to, MAX_RE_EXPORTS);
            // The first names in which the paths differ have the same parent. An import between a
            // module and its ancestor has no such names, and adds no edge.
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
                let edges = all.entry(from[..common].to_vec()).or_default();
                let edge = (one.clone(), other.clone());
                edges.entry(edge).or_insert((module.file, *line));
            }
        }
    }
    all
}

/// The path from the crate's root of a path that is written in module `from`. None if it
/// begins with a name that is no child module of `from`, for example another crate's.
fn absolute(modules: &Modules, from: &[String], written: &[String]) -> Option<Path> {
    let (first, rest) = written.split_first()?;
    let mut base = from.to_vec();
    match first.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            base.pop();
            let mut rest = rest;
            while let Some(("super", after)) = rest
                .split_first()
                .map(|(next, after)| (next.as_str(), after))
            {
                base.pop();
                rest = after;
            }
            base.extend_from_slice(rest);
            return Some(base);
        }
        child => {
            base.push(child.to_owned());
            if !modules.contains_key(&base) {
                return None;
            }
        }
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The module that defines what a path names. Follows at most `max_re_exports` re-exports.
fn owner(modules: &Modules, path: &[String], max_re_exports: usize) -> Path {
    let is_module = |length: &usize| modules.contains_key(&path[..*length]);
    let length = (1..=path.len()).take_while(is_module).last().unwrap_or(0);
    let holder = &path[..length];
    let re_exported = path.get(length).and_then(|name| {
        let written = modules.get(holder)?.imports.get(name)?;
        absolute(modules, holder, written)
    });
    match re_exported {
        Some(mut next) if max_re_exports > 0 && next != path => {
            next.extend_from_slice(&path[length + 1..]);
            owner(modules, &next, max_re_exports - 1)
        }
        _ => holder.to_vec(),
    }
}
