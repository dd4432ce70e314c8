//! Checks the sources: which module imports which (`layers.md`), and what each file may do; and what the documents state.
//!
//! The rules have tests of their own, with sources that break them.

mod keys;
mod language;
mod paths;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rules::{Exports, Source, Table};
use test_architecture::files::{files, packages, texts};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the libraries are, and the names of their tables in layers.md.
const LIBRARIES: [(&str, &str); 4] = [
    ("src/", "modules"),
    ("crates/kineto-base/src/", "modules kineto-base"),
    ("crates/kineto-model/src/", "modules kineto-model"),
    ("crates/kineto-trace/src/", "modules kineto-trace"),
];

/// Returns the source files of all packages.
fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let folders = ["src", "capi/src"].map(str::to_owned).into_iter().chain(packages(&root()).unwrap());
        let texts = folders.flat_map(|folder| texts(&root(), &folder, &[".rs"]).unwrap());
        texts.map(|(file, text)| Source::new(file.strip_prefix("src/").unwrap_or(&file), &text)).collect()
    });
    &SOURCES
}

/// The text between `<!-- name -->` and `<!-- /name -->`.
fn section<'d>(document: &'d str, name: &str) -> Option<&'d str> {
    let (_, rest) = document.split_once(&format!("<!-- {name} -->"))?;
    rest.split_once(&format!("<!-- /{name} -->")).map(|(section, _)| section)
}

/// The names in backticks.
fn names(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Reads rows of `| module | what it is | what it may import |`.
fn table(section: &str) -> Table {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let cells: Vec<_> = row.split('|').collect();
        let [_, module, .., uses, _] = cells.as_slice() else { return None };
        Some((names(module).into_iter().next()?, names(uses)))
    })
    .collect()
}

/// Reads `pub use module::{A, B}` of the root; macros are exported from where they are.
fn exports(root: &str) -> Exports {
    let tokens = test_architecture::lexer::tokens(root);
    let imported = paths::paths(&tokens, &[]).into_iter().filter_map(|path| match path.segments.as_slice() {
        [module, .., name] => Some((name.clone(), module.clone())),
        _ => None,
    });
    let macros = ["annotate", "counter"].map(|name| (name.to_owned(), "macros".to_owned()));
    imported.chain(macros).collect()
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn modules_import_what_the_table_allows_and_no_less() {
    let document = fs::read_to_string(root().join("tests/architecture/layers.md")).unwrap();
    let (all, mut faults) = (sources(), Vec::new());
    for (folder, modules) in LIBRARIES {
        let table = table(section(&document, modules).expect("layers.md has no table of modules"));
        let sources: Vec<_> = all.iter().filter(|source| source.path().starts_with(folder)).collect();
        let exports = exports(&fs::read_to_string(root().join(folder).join("lib.rs")).unwrap());
        let mut used = Table::new();
        faults.extend(sources.iter().flat_map(|source| rules::imports(source, &table, &exports, &mut used)));
        let modules: BTreeSet<_> = sources.iter().map(|source| source.top_module()).collect();
        for (module, allowed) in &table {
            if !modules.contains(module) {
                faults.push(format!("layers.md has a module `{module}`, which {folder} has not"));
            }
            let used = used.get(module).map(Vec::as_slice).unwrap_or_default();
            let idle = allowed.iter().filter(|entry| !used.contains(entry));
            faults.extend(idle.map(|entry| format!("layers.md lets `{module}` import `{entry}`, which it does not")));
        }
    }
    assert_none(&faults);
}

/// The first lines of the files are the map of the code.
#[test]
fn every_file_begins_with_its_purpose() {
    let sources = sources();
    let has_purpose = |source: &&Source| source.purpose().is_some_and(|purpose| purpose.split(' ').count() > 2);
    let missing = sources.iter().filter(|source| !has_purpose(source));
    assert_none(
        &missing.map(|source| format!("{} does not begin with its purpose", source.path())).collect::<Vec<_>>(),
    );
}

#[test]
fn every_file_keeps_the_rules() {
    let rules = [
        rules::statics_survive_forks,
        rules::debug_is_short,
        rules::no_formats,
        rules::no_other_time,
        rules::no_plain_opens,
        rules::no_tracing_macros,
    ];
    let sources = sources();
    assert!(sources.len() > 50, "the sources were not found");
    assert_none(&sources.iter().flat_map(|source| rules.iter().flat_map(|rule| rule(source))).collect::<Vec<_>>());
}

/// The lint `unsafe_code` denies `unsafe` in all other files.
#[test]
fn listed_files_alone_allow_unsafe() {
    let found: BTreeSet<_> = sources().iter().filter(|source| rules::allows_unsafe(source)).map(Source::path).collect();
    let listed: BTreeSet<_> = include_str!("../../unsafe-files.txt").lines().map(str::to_owned).collect();
    let new = found.difference(&listed).map(|file| {
        format!("{file} allows `unsafe`: use a safe wrapper, or add it to tests/architecture/unsafe-files.txt")
    });
    let gone = listed.difference(&found).map(|file| format!("{file} has no `unsafe`: remove it from unsafe-files.txt"));
    assert_none(&new.chain(gone).collect::<Vec<_>>());
}

#[test]
fn banned_expressions_do_not_occur() {
    let banned = language::Banned::parse(include_str!("../../banned-words.txt"));
    let mut found = BTreeMap::new();
    for (file, text) in
        texts(&root(), "", &[".rs", ".md"]).unwrap().iter().filter(|(file, _)| !file.starts_with("tests/architecture/"))
    {
        banned.find(file, text, &mut found);
    }
    assert_none(&banned.faults(&found));
}

#[test]
fn function_names_are_short() {
    /// How many are longer: the name of a function of ROCm. This number only shrinks.
    const LONG: usize = 1;
    let files = texts(&root(), "", &[".rs"]).unwrap();
    assert!(files.len() > 500, "the files were not found");
    let long =
        files.iter().flat_map(|(file, text)| language::long_names(text).into_iter().map(move |name| (file, name)));
    let long: Vec<_> = long.map(|(file, (line, name))| format!("{file}:{line}: {name} is too long")).collect();
    assert!(long.len() >= LONG, "lower LONG to {}", long.len());
    assert!(long.len() == LONG, "{} names are too long, {LONG} allowed:\n{}", long.len(), long.join("\n"));
}

/// `repeated-types.txt` lists the exceptions; it only shrinks.
#[test]
fn type_names_are_unique_in_a_package() {
    let found = language::repeated_types(sources().iter());
    let listed: BTreeSet<_> = include_str!("../../repeated-types.txt").lines().map(str::to_owned).collect();
    let new = found
        .difference(&listed)
        .map(|name| format!("several types are called {name}, and not one in each vendor's folder: rename one"));
    let gone = listed.difference(&found).map(|name| format!("{name} is unique now: remove it from repeated-types.txt"));
    assert_none(&new.chain(gone).collect::<Vec<_>>());
}

#[test]
fn warnings_and_errors_say_what_to_do() {
    /// How many do not; this number only shrinks.
    const WITHOUT_REMEDY: usize = 0;
    assert_none(&language::remedy_faults(sources(), WITHOUT_REMEDY));
}

/// Checks that a document is as generated; with the variable `UPDATE_DOCS`, writes it.
#[expect(clippy::disallowed_methods, reason = "the variable is for this test alone")]
fn assert_generated(document: &str, expected: &str, test: &str) {
    let path = root().join(document);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        assert!(fs::write(&path, expected).is_ok(), "cannot write {document}");
    }
    let is_current = fs::read_to_string(path).unwrap_or_default() == expected;
    assert!(is_current, "{document} is outdated: UPDATE_DOCS=1 cargo test --package test-architecture {test}");
}

#[test]
fn messages_page_lists_all_messages() {
    assert_generated("docs/dev/messages.md", &language::messages_page(sources()), "messages");
}

/// Returns the page of the book with that name.
fn page(name: &str) -> io::Result<String> {
    fs::read_to_string(root().join("docs/src").join(name))
}

#[test]
fn data_loss_page_lists_every_cause() {
    let page = page("data-loss.md").unwrap();
    let losses = section(&page, "losses").expect("data-loss.md has no table of losses");
    let listed: BTreeSet<_> = losses.lines().filter_map(|line| line.split('|').nth(1)).flat_map(names).collect();
    let known: BTreeSet<_> = tracing_kineto::Loss::ALL.iter().map(|loss| loss.as_str().to_owned()).collect();
    assert_eq!(listed, known);
}

#[test]
fn configuration_page_has_the_settings() {
    let page = page("configuration.md").unwrap();
    let actual = section(&page, "config-table").expect("configuration.md has no table of settings");
    // The page introduces the table in words of its own.
    let rows = tracing_kineto::KinetoLayerBuilder::reference();
    let rows = rows.lines().filter(|line| line.starts_with('|'));
    let expected = rows.fold("\n".to_owned(), |table, row| table + row + "\n");
    let page = page.replace(&format!("-->{actual}<!--"), &format!("-->{expected}<!--"));
    assert_generated("docs/src/configuration.md", &page, "settings");
}

/// The comments of the manifest are the only description of the features.
#[test]
fn features_page_has_the_comments_of_the_manifest() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, features) = manifest.split_once("\n[features]\ndefault = ").unwrap();
    let (default, features) = features.split_once('\n').unwrap();
    let (mut page, mut effect) = (String::from(FEATURES_HEAD), String::new());
    for line in features.lines().take_while(|line| !line.starts_with('[')) {
        if let Some(comment) = line.strip_prefix("# ") {
            effect = format!("{effect} {comment}");
        } else if let Some((name, implied)) = line.split_once(" = ") {
            assert!(!effect.is_empty(), "the feature {name} has no comment in Cargo.toml");
            let is_on = if default.contains(&format!("\"{name}\"")) { "on" } else { "off" };
            let implied = implied.split('"').skip(1).step_by(2).filter(|other| !other.contains([':', '/']));
            let implied: String = implied.map(|other| format!(" Implies `{other}`.")).collect();
            page += &format!("| `{name}` | {is_on} |{}{implied} |\n", std::mem::take(&mut effect));
        }
    }
    assert_generated("docs/src/features.md", &(page + FEATURES_END), "features");
}

const FEATURES_HEAD: &str = "\
# Cargo features

<!-- Generated from the comments in Cargo.toml: UPDATE_DOCS=1 cargo test --package test-architecture features -->

| Feature | Default | What it adds |
|---|---|---|
";

const FEATURES_END: &str = "
No feature needs a vendor's toolkit. In WebAssembly, the crate compiles with the default features and without any, and records
nothing.

With `default-features = false`, and no feature that implies `devices`, no collector is compiled: spans, events, memory, NVTX ranges,
segments and live files are as always, and the trace's header says that devices were not recorded. Files with records
of devices are read without these, and the result names the feature.
";

#[test]
fn book_lists_and_compiles_every_page() {
    let (summary, library) = (page("SUMMARY.md").unwrap(), fs::read_to_string(root().join("src/lib.rs")).unwrap());
    let files = fs::read_dir(root().join("docs/src")).unwrap().map(|file| file.unwrap().path());
    let pages = files.filter(|file| !file.is_dir()).map(|page| page.file_name().unwrap().to_owned());
    let pages = pages.map(|page| page.to_string_lossy().into_owned()).filter(|page| page != "SUMMARY.md");
    let missing = pages.filter(|page| {
        !summary.contains(&format!("]({page})")) || !library.contains(&format!("\"../docs/src/{page}\""))
    });
    assert_none(
        &missing
            .map(|page| format!("{page} is not in SUMMARY.md, or src/lib.rs does not include it"))
            .collect::<Vec<_>>(),
    );
}

/// Returns the documents for readers of the repository.
fn documents() -> io::Result<Vec<PathBuf>> {
    let folders =
        ["", "docs/src", "docs/dev", "docs/decisions", "examples", "tests", "crates/kineto-trace", "crates/kineto-cli"];
    let mut found = Vec::new();
    for folder in folders {
        let files = fs::read_dir(root().join(folder))?.map(|entry| entry.map(|entry| entry.path()));
        let files = files.collect::<io::Result<Vec<_>>>()?;
        found.extend(files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    Ok(found)
}

/// Returns the anchors of a document's headings, as GitHub and mdBook name them.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings =
        document.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |letter: char| letter.is_alphanumeric() || letter == ' ' || letter == '-' || letter == '_';
    headings.map(|heading| heading.to_lowercase().replace(|letter| !kept(letter), "").replace(' ', "-")).collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut faults = Vec::new();
    for document in documents().unwrap() {
        let text = fs::read_to_string(&document).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        for link in links.filter(|link| !link.contains("://") && !link.contains(' ')) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { document.clone() } else { document.with_file_name(file) };
            let is_there = anchor.is_empty() && target.exists()
                || fs::read_to_string(&target).is_ok_and(|target| anchors(&target).contains(anchor));
            if !is_there {
                faults.push(format!("{}: {link} leads nowhere", document.display()));
            }
        }
    }
    assert_none(&faults);
}

/// Returns the names of files in backticks: `lane.rs`, `layer/lane.rs`, `docs/dev`.
fn files_named_by(text: &str) -> impl Iterator<Item = String> {
    let is_file = |name: &String| {
        let (stem, extension) = name.rsplit_once('.').unwrap_or_default();
        let part = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
        !stem.is_empty() && extension == "rs" && name.chars().all(part)
    };
    names(text).into_iter().filter(is_file)
}

/// Paths in the documents are whole, or begin anywhere: `lane.rs` is enough.
#[test]
fn documents_name_files_that_exist() {
    let known: Vec<_> = files(&root(), &[""]).unwrap().iter().map(|path| format!("/{}", path.display())).collect();
    let mut faults = Vec::new();
    for document in documents().unwrap() {
        let text = fs::read_to_string(&document).unwrap();
        let missing = files_named_by(&text).filter(|name| {
            let end = format!("/{name}");
            !root().join(name).exists() && !known.iter().any(|file| file.ends_with(&end))
        });
        faults.extend(missing.map(|name| format!("{}: there is no {name}", document.display())));
    }
    assert_none(&faults);
}

#[test]
fn torch_parity_names_tests_that_exist() {
    let document = fs::read_to_string(root().join("docs/dev/torch-parity.md")).unwrap_or_default();
    let mut faults = Vec::new();
    faults.extend(names(&document).iter().filter_map(|name| no_such_test(name)));
    let counts = section(&document, "counts").expect("torch-parity.md has no counts");
    let expected = counted(section(&document, "items").expect("torch-parity.md has no items"));
    faults
        .extend(expected.into_iter().filter(|line| !counts.contains(line)).map(|line| format!("not counted: {line}")));
    assert_none(&faults);
}

/// Reports if a name is one of a test, `file.rs::name`, and there is no such test.
fn no_such_test(name: &str) -> Option<String> {
    let (file, test) = name.split_once(".rs::")?;
    let from_root = ["src/", "crates/"].iter().any(|folder| file.starts_with(folder));
    let file = if from_root { format!("{file}.rs") } else { format!("tests/{file}.rs") };
    let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
    // Tests of a harness of our own are in a table by name.
    let is_there = text.contains(&format!("fn {test}(")) || text.contains(&format!("\"{test}\""));
    (!is_there).then(|| format!("{file} has no test `{test}`"))
}

/// Returns the sources of all tests, also of those inside of packages.
fn texts_of_tests() -> String {
    let texts = ["src", "tests", "crates"].map(|folder| texts(&root(), folder, &[".rs"]).unwrap());
    texts.into_iter().flatten().map(|(_, text)| text).collect()
}

#[test]
fn each_key_is_used_and_has_a_test() {
    let table = fs::read_to_string(root().join("src/config/keys.rs")).unwrap();
    let (rows, sources, texts) = (keys::rows(&table), sources(), texts_of_tests());
    let reference = tracing_kineto::KinetoLayerBuilder::reference();
    let lost = rows.iter().filter(|(name, _)| !reference.contains(&format!("\n| `{name}` | ")));
    let lost = lost.map(|(name, _)| format!("{name} is not in the table of settings"));
    let is_key = |name: &str| rows.iter().any(|(key, _)| key == name);
    let missing = keys::LIBKINETO.iter().filter(|key| !is_key(key)).map(|key| format!("{key} is no key here"));
    let shown: BTreeSet<_> = keys::shown_keys(&texts).collect();
    let untested = rows.iter().filter(|(name, _)| !shown.contains(name.as_str()));
    let untested = untested.map(|(name, _)| format!("no test has the comment `// Shows the key {name}.`"));
    let gone = shown.iter().filter(|name| !is_key(name)).map(|name| format!("a test shows {name}, which is no key"));
    let unused = rows.iter().filter_map(|(name, target)| keys::unused(name, target, sources));
    assert_none(&lost.chain(missing).chain(untested).chain(gone).chain(unused).collect::<Vec<_>>());
    assert!(rows.len() > 100, "{}", rows.len());
}

#[test]
fn settings_name_methods_of_the_builder() {
    let folder = fs::read_dir(root().join("src/builder")).unwrap();
    let sources: String = folder.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let reference = tracing_kineto::KinetoLayerBuilder::reference();
    let methods: BTreeSet<_> = keys::methods(&reference).collect();
    let gone = methods.iter().filter(|name| !keys::is_method(name, &sources));
    assert_none(
        &gone.map(|name| format!("the table of settings names {name}, which is no method")).collect::<Vec<_>>(),
    );
    assert!(methods.len() > 50, "{}", methods.len());
    assert!(["Dumps::output", "dump_on", "Dumps::o"].iter().all(|name| !keys::is_method(name, &sources)));
}

#[test]
fn unused_or_untested_key_is_found() {
    let table = "\nkeys! {\n    One: Both Now \"ONE\", 1,\n        \"a; b\" => one: u32 = 1;\n    Two: Both \"TWO\" => (part.two);\n    \
                 Three: Both \"THREE\" => (|config, value| config.part.three = value);\n    Four: Both \"FOUR\" => (option);\n}\n";
    let rows = keys::rows(table);
    assert_eq!(rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["ONE", "TWO", "THREE", "FOUR"]);
    let unused = |text: &str| {
        let sources = [Source::new("config/keys.rs", "config.one.two"), Source::new("a.rs", text)];
        rows.iter().filter(|(name, target)| keys::unused(name, target, &sources).is_some()).count()
    };
    assert_eq!(unused("fn f() { config.one; config.part.two; part.three; \"FOUR\" }"), 0);
    assert_eq!(unused("fn one() { two(); three } #[cfg(test)] mod tests { fn g() { part.two } }"), 4);
    let shown = keys::shown_keys("    // Shows the keys ONE, TWO.\n// Shows the key THREE.\n// Shows the window.\n");
    assert_eq!(shown.collect::<Vec<_>>(), ["ONE", "TWO", "THREE"]);
}

/// The rows of the table that counts items: by group, and of all.
fn counted(items: &str) -> Vec<String> {
    const STATUSES: [&str; 4] = ["done", "partly", "not yet", "refused"];
    let is_item =
        |row: &&str| row.strip_prefix("| ").is_some_and(|row| row.starts_with(|first: char| first.is_ascii_digit()));
    let count = |text: &str| {
        let rows = text.lines().filter(is_item);
        let statuses: Vec<_> = rows.filter_map(|row| row.split('|').nth(4)).map(str::trim).collect();
        let of = STATUSES.map(|status| statuses.iter().filter(|known| **known == status).count());
        (of, statuses.len())
    };
    let groups = items.split("\n## ").skip(1).map(|group| {
        let (title, (of, all)) = (group.lines().next().unwrap_or_default(), count(group));
        format!("| {title} | {} | {all} |", of.map(|number| number.to_string()).join(" | "))
    });
    let (of, all) = count(items);
    let total = format!("| **all** | {} | **{all}** |", of.map(|number| format!("**{number}**")).join(" | "));
    groups.chain([total]).collect()
}

#[test]
fn documents_are_read_as_they_are_written() {
    let text = "x\n<!-- modules -->\n| Module | What | May import |\n|---|---|---|\n| `a` | first | `b`, `c::d` |\n\
                | `b` | uses `a` not | nothing |\n<!-- /modules -->\n| `c` | outside | `a` |";
    let read = table(section(text, "modules").unwrap());
    let expected = [("a", vec!["b", "c::d"]), ("b", vec![])];
    let expected = expected.map(|(module, uses)| (module.to_owned(), uses.into_iter().map(str::to_owned).collect()));
    assert_eq!(read, Table::from(expected));
    assert_eq!(section(text, "other"), None);
    let exports = exports("pub mod a; pub use a::{B, c::D}; pub use e::F;");
    assert_eq!((exports["B"].as_str(), exports["D"].as_str(), exports["F"].as_str()), ("a", "a", "e"));
    assert_eq!(exports["annotate"], "macros");
}
