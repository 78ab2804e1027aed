//! Error texts and log lines of the crates speak Rust. The names of C functions and constants, and environment
//! variables, are words of the C API layer (`src/error.rs` adds them). `variables.rs` is about the variables of the C
//! libraries.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

const WORDS_OF_C: [&str; 3] = ["gdr_", "GDR_", "GDRCOPY_"];

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, files),
            false => files.push(path),
        }
    }
}

/// Appends the strings of some code, without its comments, attributes and test modules.
fn add_strings(code: TokenStream, strings: &mut Vec<String>) {
    let mut is_test = false;
    let mut tokens = code.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                tokens.next_if(|next| next.to_string() == "!");
                let attribute = tokens.next_if(|next| is_group(next, Delimiter::Bracket));
                is_test |= attribute.is_some_and(|it| it.to_string().contains("cfg (test"));
            }
            TokenTree::Group(group) if is_test && group.delimiter() == Delimiter::Brace => {
                is_test = false;
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => is_test = false,
            TokenTree::Group(group) => add_strings(group.stream(), strings),
            TokenTree::Literal(literal) => strings.push(literal.to_string()),
            _ => {}
        }
    }
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if Group::delimiter(group) == delimiter)
}

#[test]
fn texts_of_the_crates_have_no_words_of_c() {
    let (mut files, mut count) = (Vec::new(), 0);
    for package in ["gdrcopy", "gdrcopy-core"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(package);
        sources(&root.join("src"), &mut files);
    }
    files.retain(|file| !file.ends_with("gdrcopy-core/src/variables.rs"));
    for file in files {
        let source = fs::read_to_string(&file).expect("a source file");
        let mut strings = Vec::new();
        add_strings(source.parse().expect("Rust"), &mut strings);
        for string in &strings {
            let found = WORDS_OF_C.iter().find(|&word| string.contains(word));
            assert_eq!(found, None, "{}: {string}", file.display());
        }
        count += strings.len();
    }
    assert!(count > 300, "only {count} strings were found");
}
