//! Fails if modules of a crate import each other in a circle, or if a module without unsafe code does not forbid unsafe
//! code. `ci/scripts/check-modules.sh` runs it.
//!
//! Here, a module is a file. It uses another module if it imports, or names by a path, an item that the other one
//! defines. A `pub use` by itself does not count, because a `mod.rs` may re-export definitions of its files. Code under
//! `cfg(test)` does not count either.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Meta, UseTree, Visibility};

/// The path of a module, which is empty for the root of the crate.
type Module = Vec<String>;

/// The contents of one file, including its inline modules.
#[derive(Default)]
struct Source {
    file: PathBuf,
    items: BTreeSet<String>,
    /// The names that the file imports, each with the path in its `use`.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules from which all items are imported.
    globs: Vec<Vec<String>>,
    /// The paths that the file names, each with its line number.
    named: Vec<(Vec<String>, usize)>,
    /// True if the file should forbid unsafe code, and neither the file nor a module around it does. A file should do
    /// so if it has no unsafe code and declares no module that has a file of its own.
    lacks_forbid: bool,
}

type Crate = BTreeMap<Module, Source>;

/// For each module, the modules that it uses, and for each of these the number of a line that uses it.
type Uses<'a> = BTreeMap<&'a Module, BTreeMap<&'a Module, usize>>;

fn main() -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for directory in env::args().skip(1) {
        let mut sources = Crate::new();
        let roots = ["lib.rs", "main.rs"].map(|root| Path::new(&directory).join(root));
        let root = roots.iter().find(|root| root.exists()).unwrap_or(&roots[0]);
        read(&mut sources, Module::new(), root, false);
        for source in sources.values() {
            if source.lacks_forbid {
                status = ExitCode::FAILURE;
                println!("{}: start with #![forbid(unsafe_code)]", source.file.display());
            }
        }
        let uses = uses(&sources);
        let circles = circles(&uses);
        for circle in &circles {
            status = ExitCode::FAILURE;
            println!("{directory}: {} modules use each other in a circle:", circle.len());
            for module in circle {
                for (used, line) in &uses[module] {
                    if circle.contains(used) {
                        let file = sources[*module].file.display();
                        println!("  {file}:{line}: {} uses {}", display(module), display(used));
                    }
                }
            }
        }
        if circles.is_empty() {
            println!("{directory}: {} modules, no circle", sources.len());
        }
    }
    status
}

fn display(module: &Module) -> String {
    let mut text = "crate".to_owned();
    for name in module {
        text += "::";
        text += name;
    }
    text
}

/// Returns the value that was read from a file, or panics with the file's name.
fn read_from<T, E: Display>(file: &Path, result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}: {error}", file.display()),
    }
}

/// Reads a module's file, and those of the modules that it declares.
fn read(sources: &mut Crate, module: Module, file: &Path, is_forbidden: bool) {
    let text = read_from(file, fs::read_to_string(file));
    let parsed = read_from(file, syn::parse_file(&text));
    let directory = match file.file_stem().expect("a name").to_str() {
        Some("lib" | "main" | "mod") => file.parent().expect("a directory").to_owned(),
        _ => file.with_extension(""),
    };
    let mut reader = Reader {
        source: Source { file: file.to_owned(), ..Source::default() },
        inline: Vec::new(),
        children: Vec::new(),
    };
    reader.visit_file(&parsed);
    let is_forbidden = is_forbidden || text.contains("#![forbid(unsafe_code)]");
    // A module that forbids unsafe code also forbids it in the modules that it contains. These may need unsafe code, so
    // only modules that contain no others must forbid it.
    let is_leaf = reader.children.is_empty();
    reader.source.lacks_forbid = is_leaf && !is_forbidden && !is_unsafe(text.parse().expect("what syn parsed"));
    sources.insert(module.clone(), reader.source);
    for (child, path) in reader.children {
        let candidates = match path {
            Some(path) => vec![file.with_file_name(path)],
            None => {
                vec![directory.join(format!("{child}.rs")), directory.join(&child).join("mod.rs")]
            }
        };
        let Some(file_of_child) = candidates.iter().find(|file| file.exists()) else {
            panic!("{}: no file of module {child}", file.display());
        };
        let mut path = module.clone();
        path.push(child);
        read(sources, path, file_of_child, is_forbidden);
    }
}

fn is_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "unsafe",
        TokenTree::Group(group) => is_unsafe(group.stream()),
        _ => false,
    })
}

struct Reader {
    source: Source,
    /// The inline modules around the item that is visited.
    inline: Vec<String>,
    /// The modules that this file declares and that have files: the name and the attribute `path` of each.
    children: Vec<(String, Option<String>)>,
}

impl Reader {
    /// Adds a path that is named in the module `inline`. Removes each leading `super` that leads from an inline module
    /// to the module around it in the same file.
    fn names(&mut self, mut path: Vec<String>, line: usize) {
        for _ in 0..self.inline.len() {
            match path.first().map(String::as_str) {
                Some("super") => drop(path.remove(0)),
                _ => break,
            }
        }
        // `pub(crate)` and `pub(super)` in the arguments of a macro use no module.
        let is_visibility = path == ["crate"] || path == ["super"];
        if !path.is_empty() && path != ["Self"] && !is_visibility {
            self.source.named.push((path, line));
        }
    }

    fn import(&mut self, tree: &UseTree, mut prefix: Vec<String>, is_public: bool, line: usize) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, is_public, line);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix.clone(), is_public, line);
                }
            }
            UseTree::Glob(_) => {
                if self.inline.is_empty() {
                    self.source.globs.push(prefix.clone());
                }
                if !is_public {
                    self.names(prefix, line);
                }
            }
            UseTree::Name(name) => self.import_item(&name.ident, &name.ident, prefix, is_public, line),
            UseTree::Rename(rename) => self.import_item(&rename.ident, &rename.rename, prefix, is_public, line),
        }
    }

    fn import_item(&mut self, item: &Ident, name: &Ident, mut path: Vec<String>, is_public: bool, line: usize) {
        let mut name = name.to_string();
        if item == "self" {
            name = path.last().cloned().unwrap_or_default();
        } else {
            path.push(item.to_string());
        }
        if self.inline.is_empty() {
            self.source.imports.insert(name, path.clone());
        }
        if !is_public {
            self.names(path, line);
        }
    }

    /// Adds the paths in a macro's arguments. The macro's syntax is not known, so words joined by `::` count as a path.
    fn macro_input(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.names(std::mem::take(&mut path), line);
                    }
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.names(std::mem::take(&mut path), line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.macro_input(group.stream());
                    }
                }
            }
        }
        self.names(path, line);
    }
}

/// Returns whether an item with these attributes is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Ok(list) = attribute.meta.require_list() else {
            return false;
        };
        let condition = list.tokens.to_string();
        let is_test = condition == "test" || condition.replace(' ', "").starts_with("all(test,");
        list.path.is_ident("cfg") && is_test
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value
            && pair.path.is_ident("path")
        {
            return Some(text.value());
        }
    }
    None
}

impl Visit<'_> for Reader {
    fn visit_item(&mut self, item: &Item) {
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Mod(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            Item::Impl(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        if is_test(attributes) {
            return;
        }
        if let Some(name) = name
            && self.inline.is_empty()
        {
            self.source.items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_none() {
            self.children.push((name, path_attribute(&item.attrs)));
            return;
        }
        self.inline.push(name);
        visit::visit_item_mod(self, item);
        self.inline.pop();
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        let line = item.use_token.span.start().line;
        let is_public = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, Vec::new(), is_public, line);
    }

    fn visit_visibility(&mut self, _: &Visibility) {} // `pub(super)` uses no module.

    fn visit_path(&mut self, path: &syn::Path) {
        if let Some(first) = path.segments.first()
            && path.leading_colon.is_none()
        {
            let line = first.ident.span().start().line;
            self.names(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &syn::Macro) {
        visit::visit_macro(self, item);
        self.macro_input(item.tokens.clone());
    }
}

fn uses(sources: &Crate) -> Uses<'_> {
    let mut uses = Uses::new();
    for (module, source) in sources {
        let used = uses.entry(module).or_default();
        for (path, line) in &source.named {
            if let Some(definer) = defined(sources, module, path, 0)
                && definer != module
            {
                used.entry(definer).or_insert(*line);
            }
        }
    }
    uses
}

/// Returns the module that defines what `path` names in `module`, or `None` if no module of the crate defines it.
fn defined<'a>(sources: &'a Crate, module: &Module, path: &[String], depth: usize) -> Option<&'a Module> {
    if depth > 16 {
        return None; // The import leads to itself.
    }
    let mut at = module.clone();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let mut child = at.clone();
        child.push(first.clone());
        match &**first {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()?),
            // A path of only one word is a variable, even if a module has the same name.
            _ if path.len() == 1 && sources.contains_key(&child) => return None,
            _ if sources.contains_key(&child) => at = child,
            _ => {
                let source = &sources[&at];
                if source.items.contains(first) {
                    break;
                }
                if let Some(import) = source.imports.get(first) {
                    return defined(sources, &at, &[import, after].concat(), depth + 1);
                }
                for glob in &source.globs {
                    let path = [glob, rest].concat();
                    if let Some(definer) = defined(sources, &at, &path, depth + 1)
                        && sources[definer].items.contains(first)
                    {
                        return Some(definer);
                    }
                }
                // The sources of this crate do not define the item. If the path starts with a module of this crate, a
                // macro in that module defines the item. Otherwise the item is from another crate.
                if rest.len() == path.len() {
                    return None;
                }
                break;
            }
        }
        rest = after;
    }
    sources.get_key_value(&at).map(|(module, _)| module)
}

/// Returns the modules that the module `from` uses, directly or through other modules.
fn reached<'a>(uses: &Uses<'a>, from: &'a Module) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for &used in uses[module].keys() {
            if reached.insert(used) {
                next.push(used);
            }
        }
    }
    reached
}

/// Returns the groups of modules that use each other, directly or through other modules.
fn circles<'a>(uses: &Uses<'a>) -> Vec<BTreeSet<&'a Module>> {
    let mut circles: Vec<BTreeSet<&Module>> = Vec::new();
    for &module in uses.keys() {
        if circles.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let mut circle = reached(uses, module);
        circle.retain(|other| reached(uses, other).contains(module));
        if !circle.is_empty() {
            circles.push(circle);
        }
    }
    circles
}
