//! Holds ARCHITECTURE.md: who uses whom, which file there is, and what each file may do.
//!
//! The table of rooms and the code map are read from that document, so that it cannot say anything else than what is
//! so. The rules have tests of their own, with sources that break them.

mod keys;
mod lexer;
mod paths;
mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rules::{Exports, Source, Table};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> io::Result<String> {
    fs::read_to_string(root().join("ARCHITECTURE.md"))
}

/// Where the libraries are, and the names of their sections in ARCHITECTURE.md: their rooms and their files.
const LIBRARIES: [(&str, &str, &str); 2] =
    [("src/", "rooms", "code-map"), ("crates/kineto-trace/src/", "rooms kineto-trace", "code-map kineto-trace")];

/// Returns the source files of all packages.
fn sources() -> io::Result<Vec<Source>> {
    fn collect(folder: &Path, above: &str, found: &mut Vec<Source>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = format!("{above}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                collect(&entry.path(), &format!("{name}/"), found)?;
            } else if name.ends_with(".rs") {
                found.push(Source::new(&name, &fs::read_to_string(entry.path())?));
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    collect(&root().join("src"), "", &mut found)?;
    for package in fs::read_dir(root().join("crates"))? {
        let name = package?.file_name();
        let sources = format!("crates/{}/src/", name.to_string_lossy());
        collect(&root().join(&sources), &sources, &mut found)?;
    }
    Ok(found)
}

/// What stands between `<!-- name -->` and `<!-- /name -->`.
fn section<'d>(document: &'d str, name: &str) -> Option<&'d str> {
    let (_, rest) = document.split_once(&format!("<!-- {name} -->"))?;
    rest.split_once(&format!("<!-- /{name} -->")).map(|(section, _)| section)
}

/// The names in backticks.
fn names(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Reads rows of `| room | what it is | what it may use |`.
fn table(section: &str) -> Table {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let cells: Vec<_> = row.split('|').collect();
        let [_, room, .., uses, _] = cells.as_slice() else { return None };
        Some((names(room).into_iter().next()?, names(uses)))
    })
    .collect()
}

/// Reads `pub use room::{A, B}` of the root; macros are exported from where they are.
fn exports(root: &str) -> Exports {
    let tokens = lexer::tokens(root);
    let imported = paths::paths(&tokens, &[]).into_iter().filter_map(|path| match path.segments.as_slice() {
        [room, .., name] => Some((name.clone(), room.clone())),
        _ => None,
    });
    let macros = ["annotate", "counter"].map(|name| (name.to_owned(), "macros".to_owned()));
    imported.chain(macros).collect()
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_room_uses_only_what_the_table_says_and_the_table_says_no_more() {
    let document = document().unwrap();
    let (all, mut faults) = (sources().unwrap(), Vec::new());
    for (folder, rooms, _) in LIBRARIES {
        let table = table(section(&document, rooms).expect("ARCHITECTURE.md has no table of rooms"));
        let sources: Vec<_> = all.iter().filter(|source| source.path().starts_with(folder)).collect();
        let exports = exports(&fs::read_to_string(root().join(folder).join("lib.rs")).unwrap());
        let mut used = Table::new();
        faults.extend(sources.iter().flat_map(|source| rules::rooms(source, &table, &exports, &mut used)));
        let rooms: BTreeSet<_> = sources.iter().map(|source| source.room()).collect();
        for (room, allowed) in &table {
            if !rooms.contains(room) {
                faults.push(format!("ARCHITECTURE.md has a room `{room}`, which {folder} has not"));
            }
            let used = used.get(room).map(Vec::as_slice).unwrap_or_default();
            let idle = allowed.iter().filter(|entry| !used.contains(entry));
            faults.extend(idle.map(|entry| format!("ARCHITECTURE.md lets `{room}` use `{entry}`, which it does not")));
        }
    }
    assert_none(&faults);
}

#[test]
fn the_code_map_has_a_line_for_every_file() {
    let document = document().unwrap();
    let mut described = BTreeSet::new();
    for (folder, _, map) in LIBRARIES {
        let map = section(&document, map).expect("ARCHITECTURE.md has no code map");
        let lines = map.lines().filter_map(|line| line.split_once(' ')).filter(|(file, _)| file.ends_with(".rs"));
        let lines = lines.filter(|(_, text)| !text.trim().is_empty()).map(|(file, _)| file);
        described.extend(
            lines.map(|file| if file.starts_with("crates/") { file.to_owned() } else { format!("{folder}{file}") }),
        );
    }
    let there: BTreeSet<_> = sources().unwrap().iter().map(Source::path).collect();
    let missing = there.difference(&described).map(|file| format!("{file} is not in the code map"));
    let gone = described.difference(&there).map(|file| format!("the code map has {file}, which does not exist"));
    assert_none(&missing.chain(gone).collect::<Vec<_>>());
}

#[test]
fn every_file_keeps_the_rules_of_the_house() {
    let rules = [
        rules::statics_survive_forks,
        rules::debug_is_short,
        rules::no_formats,
        rules::no_tracing_macros,
        rules::shape,
    ];
    let sources = sources().unwrap();
    assert!(sources.len() > 50, "the sources were not found");
    assert_none(&sources.iter().flat_map(|source| rules.iter().flat_map(|rule| rule(source))).collect::<Vec<_>>());
}

/// What a reader is told about losses is all that there is.
#[test]
fn the_readme_names_every_loss() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let losses = section(&readme, "losses").expect("README.md has no table of losses");
    let told: BTreeSet<_> = losses.lines().filter_map(|line| line.split('|').nth(1)).flat_map(names).collect();
    let there: BTreeSet<_> = tracing_kineto::Loss::ALL.iter().map(|loss| loss.as_str().to_owned()).collect();
    assert_eq!(told, there);
}

#[test]
fn the_comparison_with_torch_names_tests_that_exist() {
    let document = fs::read_to_string(root().join("docs/from-torch.md")).unwrap_or_default();
    let mut faults = Vec::new();
    faults.extend(names(&document).iter().filter_map(|name| no_such_test(name)));
    let counts = section(&document, "counts").expect("docs/from-torch.md has no counts");
    let expected = counted(section(&document, "items").expect("docs/from-torch.md has no items"));
    faults
        .extend(expected.into_iter().filter(|line| !counts.contains(line)).map(|line| format!("not counted: {line}")));
    assert_none(&faults);
}

/// Says so if a name is one of a test, `file.rs::name`, and there is no such test.
fn no_such_test(name: &str) -> Option<String> {
    let (file, test) = name.split_once(".rs::")?;
    let from_root = ["src/", "crates/"].iter().any(|folder| file.starts_with(folder));
    let file = if from_root { format!("{file}.rs") } else { format!("tests/{file}.rs") };
    let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
    // Tests of a harness of our own are in a table by name.
    let is_there = text.contains(&format!("fn {test}(")) || text.contains(&format!("\"{test}\""));
    (!is_there).then(|| format!("{file} has no test `{test}`"))
}

#[test]
fn every_key_has_code_that_acts_on_it_and_a_test_that_shows_it() {
    let table = tracing_kineto::KinetoLayerBuilder::reference();
    let (keys, sources) = (keys::keys_of(&table), sources().unwrap());
    let missing = keys::LIBKINETO.iter().filter(|key| !keys.contains(**key)).map(|key| format!("{key} is no key here"));
    let owned = keys::OWNERS.iter().flat_map(|owner| keys::faults(owner, &sources));
    let untested = keys::OWNERS.iter().filter_map(|owner| match owner.test.contains(".rs::") {
        true => no_such_test(owner.test),
        false => Some(format!("`{}` is the name of no test", owner.test)),
    });
    let unowned = keys::unowned(&keys, keys::OWNERS);
    assert_none(&missing.chain(unowned).chain(owned).chain(untested).collect::<Vec<_>>());
}

#[test]
fn a_key_without_an_owner_is_found() {
    let table = "| Cargo feature `x` | | on or off | off |  | a |\n|---|---|\n| `ONE` | `one(bool)` | true or false | `true` | at \
                 once | b |\n| `TWO` |  | text | empty |  | c |\n| `HOME`, `PATH` |  |  | unset |  | d |\n\
                 | `SHELL` |  |  | unset |  | e |";
    let keys = keys::keys_of(table);
    assert_eq!(keys.iter().collect::<Vec<_>>(), ["ONE", "TWO"]);
    let owner = |key, file, name| keys::Owner { key, file, name, test: "" };
    let (one, gone) = (owner("ONE", "a.rs", "one"), owner("THREE", "a.rs", "one"));
    assert_eq!(keys::unowned(&keys, &[one, gone]), ["TWO has no owner", "THREE has an owner, and is no key"]);
    let sources = [
        Source::new("config/mod.rs", "struct Config { one: bool, two: bool }"),
        Source::new("config/parse.rs", "fn f() { one }"),
        Source::new("a.rs", "/// one\nfn f() { config.one; \"two\" } #[cfg(test)] mod tests { fn g() { two } }"),
    ];
    let faults = |file, name| keys::faults(&owner("ONE", file, name), &sources).len();
    assert_eq!((faults("a.rs", "one"), faults("a.rs", "two"), faults("b.rs", "one")), (0, 1, 1));
    assert_eq!((faults("config/parse.rs", "one"), faults("a.rs", "f"), faults("a.rs", "three")), (1, 0, 2));
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
    let text = "x\n<!-- rooms -->\n| Room | What | May use |\n|---|---|---|\n| `a` | first | `b`, `c::d` |\n\
                | `b` | uses `a` not | nothing |\n<!-- /rooms -->\n| `c` | outside | `a` |";
    let read = table(section(text, "rooms").unwrap());
    let expected = [("a", vec!["b", "c::d"]), ("b", vec![])];
    let expected = expected.map(|(room, uses)| (room.to_owned(), uses.into_iter().map(str::to_owned).collect()));
    assert_eq!(read, Table::from(expected));
    assert_eq!(section(text, "code-map"), None);
    let exports = exports("pub mod a; pub use a::{B, c::D}; pub use e::F;");
    assert_eq!((exports["B"].as_str(), exports["D"].as_str(), exports["F"].as_str()), ("a", "a", "e"));
    assert_eq!(exports["annotate"], "macros");
}
