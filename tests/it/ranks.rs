//! Modules are layers: a file imports only from those below its own. Read from
//! the sources, so that a new import against the order fails here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// From the ground up. Modules of one row do not know each other, except those
/// joined by `+`, whose traits name each other.
const RANKS: [&str; 14] = [
    "canonical clock detached identity key metrics partition timestamp ttl",
    "scope",
    "fingerprint",
    "record",
    "body claim handler rejection resource",
    "archive+inspect+store client policy request_outcome",
    "archivist conformance connect console flights gauges in_force leases metered",
    "sweep",
    "outcome",
    "pending",
    "handle",
    "flow",
    "layer",
    "guide worker",
];

/// Above all others.
const LAST: &str = "webhook";

fn rank_of(module: &str) -> Option<usize> {
    if module == LAST {
        return Some(RANKS.len());
    }
    let holds = |row: &&str| row.split([' ', '+']).any(|name| name == module);
    RANKS.iter().position(holds)
}

fn are_joined(one: &str, other: &str) -> bool {
    let groups = RANKS.iter().flat_map(|row| row.split(' '));
    let mut groups = groups.map(|group| group.split('+').collect::<Vec<_>>());
    groups.any(|group| group.contains(&one) && group.contains(&other))
}

#[test]
fn a_file_imports_only_from_modules_below_its_own() {
    let mut against = Vec::new();
    for (module, file, imports) in sources() {
        let rank = rank_of(&module);
        let Some(rank) = rank else {
            panic!("{module} has no rank: give it one in RANKS");
        };
        for import in imports {
            let imported = rank_of(&import);
            let Some(imported) = imported else {
                panic!("{import}, which {} imports, has no rank", file.display());
            };
            let is_own = import == module || are_joined(&module, &import);
            if !is_own && imported >= rank {
                against.push(format!("{} imports {import}", file.display()));
            }
        }
    }
    assert!(
        against.is_empty(),
        "against the order of the modules:\n{}",
        against.join("\n")
    );
}

#[test]
fn every_ranked_module_exists() {
    let there: BTreeSet<_> = sources().into_iter().map(|(module, ..)| module).collect();
    let ranked = RANKS.iter().flat_map(|row| row.split([' ', '+']));
    for module in ranked.chain([LAST]).filter(|name| *name != "conformance") {
        assert!(there.contains(module), "{module} has a rank and no source");
    }
}

#[test]
fn the_reader_of_imports_sees_every_form_of_them() {
    let source = "use crate::{\n    a::{B, c::D},\n    e::F,\n};\n\
                  use crate::g;\npub(crate) use crate::h::I;\nuse std::j;\n\
                  /// [`k`](crate::k)\nfn f() { crate::l::m(); }\n#[cfg(doc)]\nuse crate::n::O;\n";
    let found: Vec<_> = imports_of(source).into_iter().collect();
    // What only the documentation names binds nobody.
    assert_eq!(found, ["a", "e", "g", "h", "l"]);
}

/// Module, file and imports of every source but the crate's root.
fn sources() -> Vec<(String, PathBuf, BTreeSet<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    collect(&root, &mut files);
    let sources = files.into_iter().filter_map(|(file, source)| {
        let inside = file.strip_prefix(&root).expect("it was found there");
        let first = inside.components().next()?;
        let module = Path::new(first.as_os_str()).file_stem()?.to_str()?;
        let imports = imports_of(&source);
        // The command is a crate of its own above them all.
        let is_of_the_library = module != "lib" && module != "bin";
        is_of_the_library.then(|| (module.to_owned(), inside.to_owned(), imports))
    });
    sources.collect()
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).expect("the sources can be read") {
        let path = entry.expect("the sources can be read").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let source = fs::read_to_string(&path).expect("a source is text");
            files.insert(path, source);
        }
    }
}

/// The modules of this crate that a source names outside its comments.
fn imports_of(source: &str) -> BTreeSet<String> {
    let source = without_what_is_for_documentation(source);
    let mut imports = BTreeSet::new();
    for (at, marker) in source.match_indices("crate::") {
        let is_part_of_a_name = source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if is_part_of_a_name || source[..at].ends_with('$') {
            continue;
        }
        let rest = &source[at + marker.len()..];
        match rest.strip_prefix('{') {
            Some(group) => imports.extend(heads_of(group)),
            None => imports.extend(head(rest)),
        }
    }
    imports
}

fn without_what_is_for_documentation(source: &str) -> String {
    let mut lines = source.lines().peekable();
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        let code = line.split("//").next().unwrap_or_default();
        if code.trim() == "#[cfg(doc)]" {
            lines.next();
        } else {
            kept.push_str(code);
            kept.push('\n');
        }
    }
    kept
}

/// The first names of a group of imports, after its opening brace.
fn heads_of(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut heads = Vec::new();
    let mut is_at_start = true;
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_at_start = true,
            _ if is_at_start && !character.is_whitespace() => {
                heads.extend(head(&group[at..]));
                is_at_start = false;
            }
            _ => {}
        }
    }
    heads
}

/// The name at the start of a path, if it is that of a module.
fn head(path: &str) -> Option<String> {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
    let name = &path[..end.unwrap_or(path.len())];
    name.starts_with(|c: char| c.is_ascii_lowercase())
        .then(|| name.to_owned())
}
