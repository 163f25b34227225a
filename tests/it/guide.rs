//! The guides: each is part of the documentation, each can be found, and no link
//! in them is dead. What rustdoc checks itself, the links to items, is left to it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

#[test]
fn every_guide_is_part_of_the_documentation() {
    let module = read("src/guide/mod.rs");
    for name in guides().keys() {
        let included =
            format!("pub mod {name} {{\n    #![doc = include_str!(\"{name}.md\")]\n}}\n");
        assert!(
            module.contains(&included),
            "src/guide/{name}.md is in no module"
        );
    }
    let modules = module.matches("include_str!").count();
    assert_eq!(modules, guides().len(), "one module for each guide");
}

#[test]
fn every_guide_is_linked_from_their_index() {
    let index = read("src/guide/mod.rs");
    let lines: Vec<_> = index
        .lines()
        .filter(|line| line.starts_with("//! | [`"))
        .collect();
    for name in guides().keys() {
        let entry = format!("//! | [`{name}`] | ");
        let entries = lines.iter().filter(|line| line.starts_with(&entry)).count();
        assert_eq!(entries, 1, "the index has {entries} lines for {name}");
    }
    assert_eq!(lines.len(), guides().len(), "the index names guides only");
}

#[test]
fn no_link_in_a_guide_is_dead() {
    let mut dead = Vec::new();
    for (name, text) in guides() {
        for target in links(&text) {
            if let Err(why) = check(&target, &text) {
                dead.push(format!("{name}: {target} {why}"));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

#[test]
fn every_link_that_a_guide_defines_is_used_in_it() {
    for (name, text) in guides() {
        for (label, _) in definitions(&text) {
            let uses = prose(&text).matches(&format!("[{label}]")).count();
            // One is the definition itself.
            assert!(uses > 1, "{name} defines {label} and never uses it");
        }
    }
}

#[test]
fn every_file_that_a_guide_names_is_there() {
    let folders = ["benches", "docs", "examples", "migrations", "src", "tests"];
    for (name, text) in guides() {
        for word in text.split(|c: char| c.is_whitespace() || "`()|,;\"".contains(c)) {
            let path = word.trim_end_matches(['.', ':']);
            let is_ours = path
                .split_once('/')
                .is_some_and(|(folder, _)| folders.contains(&folder));
            assert!(
                !is_ours || root().join(path).exists(),
                "{name} names {path}, which is not there"
            );
        }
    }
}

#[test]
fn every_rust_block_of_a_guide_is_compiled() {
    for (name, text) in guides() {
        let mut is_inside = false;
        for line in text.lines().filter(|line| line.starts_with("```")) {
            let language = line.trim_start_matches('`');
            let is_known = ["", "no_run", "text", "console"].contains(&language);
            assert!(
                is_known && (!is_inside || language.is_empty()),
                "{name} has a block that nobody compiles: {line}"
            );
            is_inside = !is_inside;
        }
        assert!(!is_inside, "{name} has a block without an end");
    }
}

#[test]
fn the_reader_of_links_sees_every_form_of_them() {
    let text = "# A `b` c, d\n[x](super::ttl) [`y`]: z [y](#e)\n```\na[0](1)\n[q]: no\n```\n\
                [`y`]: crate::Y\n[z]:\n## F\n";
    assert_eq!(links(text), ["super::ttl", "#e", "crate::Y"]);
    assert_eq!(anchors(text), ["a-b-c-d", "f"]);
    assert!(check("ttl.md", "").is_err(), "a file is no page of docs.rs");
    assert!(check("super::no_such_guide", "").is_err());
    assert!(check("super::ttl#no-such-heading", "").is_err());
    assert!(check("crate::store::redis#no-such-heading", "").is_err());
    assert!(check("#f", text).is_ok());
    assert!(check("crate#features", "").is_ok());
}

/// Whether `target`, in a guide that reads `text`, leads somewhere.
fn check(target: &str, text: &str) -> Result<(), &'static str> {
    if target.starts_with("https://") {
        return Ok(());
    }
    let (page, anchor) = match target.split_once('#') {
        Some((page, anchor)) => (page, Some(anchor)),
        None => (target, None),
    };
    let guide = page
        .strip_prefix("super::")
        .or_else(|| page.strip_prefix("crate::guide::"));
    let page_text = match guide {
        Some(guide) => match guides().remove(guide) {
            Some(other) => other,
            None => return Err("is no guide"),
        },
        None if page.is_empty() => text.to_owned(),
        None if anchor.is_none() => {
            let is_item = ["crate::", "std::"]
                .iter()
                .any(|root| page.starts_with(root));
            return if is_item { Ok(()) } else { Err("is no item") };
        }
        None => docs_of(page).ok_or("is no module with headings")?,
    };
    match anchor {
        Some(anchor) if !anchors(&page_text).iter().any(|known| known == anchor) => {
            Err("has no such heading")
        }
        _ => Ok(()),
    }
}

/// The documentation of a module, such as `crate::store::redis`.
fn docs_of(module: &str) -> Option<String> {
    let path = match module.strip_prefix("crate")? {
        "" => "src/lib.rs".to_owned(),
        path => format!("src{}.rs", path.replace("::", "/")),
    };
    let file = [path.clone(), path.replace(".rs", "/mod.rs")]
        .into_iter()
        .find(|file| root().join(file).exists())?;
    let docs = read(&file);
    let lines = docs.lines().filter_map(|line| line.strip_prefix("//!"));
    let lines: Vec<_> = lines
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    Some(lines.join("\n"))
}

/// What headings are called in a link, as rustdoc calls them.
fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let name = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim();
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || "-_".contains(c) => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect()
    };
    headings.map(name).collect()
}

/// Where the links of a text lead to, those that are defined at its end included.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let inline = prose.split("](").skip(1);
    let inline = inline.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    let defined = definitions(text).into_iter().map(|(_, target)| target);
    inline.chain(defined).collect()
}

/// Labels, and where they lead to.
fn definitions(text: &str) -> Vec<(String, String)> {
    let prose = prose(text);
    let defined = prose.lines().filter_map(|line| {
        let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
        (!label.contains(']')).then(|| (label.to_owned(), target.to_owned()))
    });
    defined.collect()
}

/// A text without its blocks of code.
fn prose(text: &str) -> String {
    let outside = text.split("\n```").step_by(2);
    outside.collect::<Vec<_>>().join("\n")
}

/// The guides by name.
fn guides() -> BTreeMap<String, String> {
    let folder = fs::read_dir(root().join("src/guide")).expect("the guides can be read");
    let files = folder.map(|entry| entry.expect("the guides can be read").path());
    let guides = files.filter(|file| file.extension().is_some_and(|kind| kind == "md"));
    let named = guides.map(|file| {
        let name = file.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a guide has a name").to_owned();
        (name, fs::read_to_string(file).expect("a guide is text"))
    });
    named.collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).expect("a source can be read")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
