//! The rules that every source file keeps, each as a function from a source to what is wrong with it.

use std::collections::BTreeMap;

use crate::paths::{Path, module_of, paths};
use test_architecture::lexer::{Kind, Token, tokens, without_tests};

/// One source file: its name and its text. The names of the library's files begin below `src`, others at the root.
pub(crate) struct Source {
    pub(crate) file: String,
    text: String,
    tokens: Vec<Token>,
    /// The same without what is compiled for tests alone.
    shipped: Vec<Token>,
}

/// For each top-level module what it may import: others, or modules below them.
pub(crate) type Table = BTreeMap<String, Vec<String>>;

/// The names that the crate's root exports, with their modules.
pub(crate) type Exports = BTreeMap<String, String>;

/// The only files that know what a trace file looks like.
const FORMATS: [&str; 2] = ["crates/kineto-model/src/write/", "crates/kineto-trace/src/analysis/read/"];
/// The only files that read JSON: what a page cuts short, what a user gives as metadata or as an argument, the settings on their way into the
/// header, and what a process says that it is doing.
const JSON_READERS: [&str; 7] = [
    "crates/kineto-model/src/write/",
    "crates/kineto-model/src/activity/value_kind.rs",
    "crates/kineto-cli/src/status.rs",
    "crates/kineto-cli/src/report/data.rs",
    "trace/header.rs",
    "trace/metadata.rs",
    "crates/kineto-devices/src/plugin/metadata.rs",
];
/// The only files that name the crate whose macros emit spans and events: one defines ours, for users to call, the others
/// have spans that a program asks for: those of collective operations, of the steps of a schedule, and of its C half.
const TRACING_MACROS: [&str; 4] = ["macros.rs", "collective.rs", "session/annotation.rs", "capi/src/ranges.rs"];

/// The files in which the root names what programs meet of other packages.
const FACE: [&str; 2] = [include_str!("../../../../src/lib.rs"), include_str!("../../../../src/integration.rs")];

impl Source {
    pub(crate) fn new(file: &str, text: &str) -> Source {
        let tokens = tokens(text);
        // A `tests.rs`, or a folder of that name, is what its neighbour declares for tests alone.
        let in_folder = file.split_once("src/").is_some_and(|(_, path)| path.contains("/tests/"));
        let all_tests = file.ends_with("/tests.rs") || in_folder;
        let shipped = if all_tests { Vec::new() } else { without_tests(&tokens) };
        Source { file: file.to_owned(), text: text.to_owned(), tokens, shipped }
    }

    /// Returns the tokens without items for tests alone.
    pub(crate) fn shipped(&self) -> &[Token] {
        &self.shipped
    }

    /// Returns the names of the types that its shipped part defines.
    pub(crate) fn types(&self) -> impl Iterator<Item = &str> {
        const KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "union"];
        let pairs = self.shipped.iter().zip(self.shipped.iter().skip(1));
        let defined = pairs.filter(|(first, _)| KEYWORDS.iter().any(|keyword| first.is_word(keyword)));
        defined.filter_map(|(_, name)| name.word()).filter(|name| name.starts_with(char::is_uppercase))
    }

    /// Returns whether its shipped part reads a field of that name.
    pub(crate) fn reads_field(&self, name: &str) -> bool {
        self.shipped.windows(2).any(|pair| matches!(pair, [dot, field] if dot.is_sign('.') && field.is_word(name)))
    }

    /// Returns whether its shipped part contains that text as a literal.
    pub(crate) fn quotes(&self, text: &str) -> bool {
        let shipped = self.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        shipped.contains(&format!("\"{text}\""))
    }

    /// Returns what the file is for: its first line, without the `//! `.
    pub(crate) fn purpose(&self) -> Option<&str> {
        self.text.lines().next()?.strip_prefix("//! ")
    }

    /// The first part of the module's path: `layer` for `layer/find.rs`, `lib` for the root.
    pub(crate) fn top_module(&self) -> String {
        self.module().first().cloned().unwrap_or_else(|| "lib".to_owned())
    }

    /// Returns its path from the root on.
    pub(crate) fn path(&self) -> String {
        if ["crates/", "capi/"].iter().any(|folder| self.file.starts_with(folder)) {
            self.file.clone()
        } else {
            format!("src/{}", self.file)
        }
    }

    /// Returns the module that it is, from its package's root.
    fn module(&self) -> Vec<String> {
        module_of(self.file.split_once("/src/").map_or(&self.file, |(_, file)| file))
    }

    fn paths(&self) -> Vec<Path> {
        paths(&self.tokens, &self.module())
    }

    fn shipped_paths(&self) -> Vec<Path> {
        paths(&self.shipped, &self.module())
    }

    fn is_one_of(&self, places: &[&str]) -> bool {
        places.iter().any(|place| if place.ends_with('/') { self.file.starts_with(place) } else { self.file == *place })
    }

    fn fault(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path())
    }
}

/// What the table lets this file use, and what it uses: tests too, since they hold the code in its place.
///
/// The root may import everything. Whatever is imported is added to `used`, as module and entry of the table.
pub(crate) fn imports(source: &Source, table: &Table, exports: &Exports, used: &mut Table) -> Vec<String> {
    let module = source.top_module();
    if module == "lib" {
        return Vec::new();
    }
    let Some(allowed) = table.get(&module) else {
        return vec![source.fault(1, &format!("the module `{module}` is not in the table"))];
    };
    let mut faults = Vec::new();
    for path in source.paths() {
        let Some(target) = path.leads_to().filter(|target| !target.is_empty()) else { continue };
        let Some(first) = target.first() else { continue };
        // A name that the root exports leads to where it is made.
        let target = match exports.get(first) {
            // The compiler keeps the order of packages.
            Some(maker) if maker.starts_with("kineto_") => continue,
            Some(maker) if !table.contains_key(first) => vec![maker.clone()],
            _ => target,
        };
        if target.first() == Some(&module) {
            continue;
        }
        let shown = target.join("::");
        let within = |entry: &&String| shown == **entry || shown.starts_with(&format!("{entry}::"));
        match allowed.iter().find(within) {
            Some(entry) => used.entry(module.clone()).or_default().push(entry.clone()),
            None => faults.push(source.fault(path.line, &format!("`{module}` may not import `{shown}`"))),
        }
    }
    faults
}

/// A lock or queue of the whole process is one that each forked child has its own of: a fork may copy it half changed.
pub(crate) fn statics_survive_forks(source: &Source) -> Vec<String> {
    const SHARED: [&str; 5] = ["Mutex", "RwLock", "Condvar", "SegQueue", "ArrayQueue"];
    const GUARDS: [&str; 2] = ["Own", "PerProcess"];
    let mut faults = Vec::new();
    for (at, token) in source.shipped.iter().enumerate().filter(|(_, token)| token.is_word("static")) {
        let declared: Vec<_> = source.shipped.iter().skip(at).take_while(|token| !token.is_sign('=')).collect();
        let has = |names: &[&str]| declared.iter().any(|token| token.word().is_some_and(|word| names.contains(&word)));
        // `&'static` and `static ||` declare nothing.
        let is_item = declared.get(2).is_some_and(|token| token.is_sign(':'));
        if is_item && has(&SHARED) && !has(&GUARDS) {
            faults.push(source.fault(token.line, "is shared by all threads outside of fork::Own and fork::PerProcess"));
        }
    }
    faults
}

/// A public type whose private fields can hold much has a `Debug` written by hand: programs record it of their arguments.
/// Programs meet the types of `kineto-base` and `kineto-devices` that the root names.
pub(crate) fn debug_is_short(source: &Source) -> Vec<String> {
    const LARGE: [&str; 11] =
        ["Arc", "Box", "Vec", "VecDeque", "HashMap", "BTreeMap", "Mutex", "MutexGuard", "RwLock", "Own", "dyn"];
    let derives = source.shipped.iter().enumerate().filter(|(_, token)| token.is_word("derive"));
    let structs = derives.filter_map(|(at, derive)| {
        let item: Vec<_> = source.shipped.iter().skip(at).take_while(|token| !token.is_word("impl")).collect();
        let derived = item.iter().position(|token| token.is_sign(']'))?;
        let is_public = |pair: &[&Token]| matches!(pair, [a, b] if a.is_word("pub") && b.is_word("struct"));
        let public = item.windows(2).position(is_public)?;
        // Attributes alone lie between.
        let is_its = item.get(derived..public)?.iter().all(|token| !token.is_word("struct") && !token.is_word("enum"));
        let has_debug = item.iter().take(derived).any(|token| token.is_word("Debug"));
        let name = item.get(public + 2)?.word()?;
        let is_shown = !source.is_one_of(&["crates/kineto-base/", "crates/kineto-devices/"])
            || FACE.iter().any(|text| tokens(text).iter().any(|token| token.is_word(name)));
        (is_its && has_debug && is_shown).then(|| (derive, private_words(item.get(public..).unwrap_or_default())))
    });
    let large = structs.filter(|(_, words)| words.iter().any(|word| LARGE.contains(word)));
    large.map(|(derive, _)| source.fault(derive.line, "derives a Debug that may be long; write a short one")).collect()
}

/// The words in the types of a structure's private fields.
fn private_words<'t>(item: &[&'t Token]) -> Vec<&'t str> {
    let (mut depth, mut words, mut is_public) = (0usize, Vec::new(), false);
    for (at, token) in item.iter().enumerate() {
        match token.kind {
            Kind::Sign('{' | '(' | '<' | '[') => depth += 1,
            Kind::Sign('}' | ')' | '>' | ']') => depth = depth.saturating_sub(1),
            Kind::Sign(',') if depth == 1 => is_public = false,
            Kind::Sign(';') if depth == 0 => break,
            Kind::Word(ref word) if word == "pub" => {
                is_public = depth == 1 && item.get(at + 1).is_some_and(|next| !next.is_sign('('));
            }
            Kind::Word(ref word) if depth > 0 && !is_public => words.push(word.as_str()),
            _ => {}
        }
        if depth == 0 && token.is_sign('}') {
            break;
        }
    }
    words
}

/// Only writers and readers of files know their format.
pub(crate) fn no_formats(source: &Source) -> Vec<String> {
    const WORDS: [&str; 3] = ["traceEvents", "\"ph\"", "\\\"ph\\\""];
    let mut faults = Vec::new();
    if !source.is_one_of(&FORMATS) {
        let texts = source.shipped.iter().filter(|token| {
            token.text().is_some_and(|text| text == "ph" || WORDS.iter().any(|word| text.contains(word)))
        });
        faults.extend(texts.map(|token| {
            source.fault(token.line, "knows the format of a file, which only write and analysis/read do")
        }));
    }
    if !source.is_one_of(&JSON_READERS) {
        const READERS: [&str; 4] = ["from_str", "from_slice", "from_reader", "*"];
        let reads = |path: &Path| READERS.iter().any(|reader| path.contains(&["serde_json", reader]));
        let paths = source.shipped_paths().into_iter().filter(reads);
        faults.extend(paths.map(|path| source.fault(path.line, "reads JSON outside of its places")));
    }
    faults
}

/// Modules that work in folders to which other users may write open files by `os::folder` alone.
pub(crate) fn no_plain_opens(source: &Source) -> Vec<String> {
    const MODULES: [&str; 7] =
        ["builder/", "live/", "ondemand/", "segment/", "session/", "write/", "crates/kineto-cli/src/top/"];
    /// One opens what the user names, the others read `/proc`.
    const OTHERS: [&str; 3] =
        ["segment/mod.rs", "ondemand/dynolog/ancestors.rs", "crates/kineto-cli/src/top/live_files.rs"];
    const CALLS: [[&str; 2]; 4] = [["File", "open"], ["fs", "read"], ["fs", "read_to_string"], ["fs", "write"]];
    if !source.is_one_of(&MODULES) || source.is_one_of(&OTHERS) {
        return Vec::new();
    }
    let opens = |path: &Path| CALLS.iter().any(|call| path.contains(call));
    let paths = source.shipped_paths().into_iter().filter(opens);
    paths
        .map(|path| source.fault(path.line, "opens a file that another user may have replaced; use os::folder"))
        .collect()
}

/// Time is read and waited for through `kineto_base::wait`, so that tests can give another one. Analysis and the command need
/// none: no simulated device runs with them. A request's file is dated by the kernel.
pub(crate) fn no_other_time(source: &Source) -> Vec<String> {
    const OTHERS: [&str; 5] = [
        "crates/kineto-base/src/wait",
        "crates/kineto-cli/",
        "crates/kineto-trace/",
        "link/tests/",
        "ondemand/trigger.rs",
    ];
    const CALLS: [[&str; 2]; 5] = [
        ["Instant", "now"],
        ["SystemTime", "now"],
        ["thread", "sleep"],
        ["thread", "park_timeout"],
        ["sync", "Condvar"],
    ];
    if OTHERS.iter().any(|place| source.file.starts_with(place)) {
        return Vec::new();
    }
    let names = |path: &Path| CALLS.iter().any(|call| path.contains(call));
    let faults = source.shipped_paths().into_iter().filter(names);
    faults.map(|path| source.fault(path.line, "reads or awaits time past kineto_base::wait")).collect()
}

/// The library emits nothing through `tracing` by itself, so that no layer ever calls itself.
pub(crate) fn no_tracing_macros(source: &Source) -> Vec<String> {
    if source.is_one_of(&TRACING_MACROS) {
        return Vec::new();
    }
    let names = |path: &Path| path.segments.first().is_some_and(|first| first == "tracing");
    let faults = source.shipped_paths().into_iter().filter(names);
    faults.map(|path| source.fault(path.line, "names `tracing`: the types are in tracing_core")).collect()
}

/// Returns whether the file lifts the ban of `unsafe` for all of it or a part, tests included.
pub(crate) fn allows_unsafe(source: &Source) -> bool {
    let allows = |words: &[Token]| match words {
        [level, open, lint] => {
            (level.is_word("allow") || level.is_word("expect")) && open.is_sign('(') && lint.is_word("unsafe_code")
        }
        _ => false,
    };
    source.tokens.windows(3).any(allows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule's faults for a file of that name, and that it has none for one where the same is allowed.
    fn check(rule: fn(&Source) -> Vec<String>, wrong: &str, file: &str, elsewhere: &str) {
        assert_eq!(rule(&Source::new(file, wrong)).len(), 1, "{wrong}");
        assert_eq!(rule(&Source::new(elsewhere, wrong)), [""; 0], "{wrong} in {elsewhere}");
    }

    fn table(rows: &[(&str, &[&str])]) -> Table {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        rows.iter().map(|(module, uses)| ((*module).to_owned(), owned(uses))).collect()
    }

    #[test]
    fn statics_with_locks_are_faults_unless_forks_are_guarded() {
        for wrong in ["static A: Mutex<u8> = Mutex::new(0);", "static Q: OnceLock<SegQueue<u8>> = OnceLock::new();"] {
            assert_eq!(statics_survive_forks(&Source::new("a.rs", wrong)).len(), 1, "{wrong}");
        }
        for right in [
            "static A: fork::Own<u8> = fork::Own::of_first(0);",
            "static Q: PerProcess<SegQueue<u8>> = PerProcess::of_first(SegQueue::new());",
            "static ONCE: OnceLock<u8> = OnceLock::new();",
            "fn f(a: &'static Mutex<u8>) { let b = Mutex::new(0); }",
        ] {
            assert_eq!(statics_survive_forks(&Source::new("a.rs", right)), [""; 0], "{right}");
        }
    }

    #[test]
    fn a_module_imports_what_the_table_allows() {
        let table = table(&[("a", &["b", "c::rows"]), ("b", &[]), ("c", &[]), ("d", &[])]);
        let exports = Exports::from([("Maker".to_owned(), "d".to_owned())]);
        let faults = |file: &str, text: &str| {
            let mut used = Table::new();
            (imports(&Source::new(file, text), &table, &exports, &mut used), used)
        };
        let (none, used) = faults("a/x.rs", "use crate::{b::B, c::rows::R}; use super::y; use crate::a::z;");
        assert_eq!(none, [""; 0]);
        assert_eq!(used["a"], ["b", "c::rows"]);
        for wrong in [
            "use crate::d;",
            "use crate::c::other;",
            "use crate::c;",
            "use crate::c::rowsome;",
            "use super::super::d;",
            "fn f() { crate::d::g() }",
            "use crate::Maker;",
            "use crate::*;",
            "#[cfg(test)] mod tests { use crate::d; }",
            "mod m { use super::super::super::d; }",
        ] {
            assert_eq!(faults("a/x.rs", wrong).0.len(), 1, "{wrong}");
        }
        assert_eq!(faults("d/x.rs", "use crate::Maker;").0, [""; 0]);
        assert_eq!(faults("e.rs", "").0.len(), 1, "a module that is not in the table");
        assert_eq!(faults("lib.rs", "use crate::d;").0, [""; 0]);
    }

    #[test]
    fn each_rule_finds_faults_except_in_its_place() {
        check(
            no_formats,
            "const A: &str = \"{\\\"ph\\\":\\\"X\\\"}\";",
            "trace/walk.rs",
            "crates/kineto-model/src/write/json.rs",
        );
        check(
            no_formats,
            "const A: &[u8] = br#\"\"traceEvents\": [\"#;",
            "trace/walk.rs",
            "crates/kineto-model/src/write/json.rs",
        );
        check(no_formats, "fn f() { serde_json::from_str(a) }", "config/mod.rs", "trace/metadata.rs");
        let [command, status] = ["crates/kineto-cli/src/main.rs", "crates/kineto-cli/src/status.rs"];
        check(no_formats, "fn f() { serde_json::from_str(a) }", command, status);
        check(no_plain_opens, "fn f() { File::open(a) }", "segment/folder.rs", "segment/mod.rs");
        check(no_plain_opens, "fn f() { std::fs::read_to_string(a) }", "write/file.rs", "doctor/machine.rs");
        check(no_tracing_macros, "fn f() { tracing::warn!(\"a\") }", "guard.rs", "macros.rs");
        check(no_tracing_macros, "use tracing::{info as say};", "guard.rs", "macros.rs");
    }

    #[test]
    fn time_past_the_clock_is_found() {
        let wrong = "fn f() { std::thread::sleep(a); } #[cfg(test)] mod tests { fn g() { Instant::now() } }";
        check(no_other_time, wrong, "session/steps.rs", "crates/kineto-base/src/wait.rs");
        check(no_other_time, "use std::sync::Condvar;", "a.rs", "crates/kineto-cli/src/a.rs");
    }

    #[test]
    fn files_that_allow_unsafe_are_found() {
        let allows = |text: &str| allows_unsafe(&Source::new("a.rs", text));
        assert!(allows("#![allow(unsafe_code, reason = \"b\")]") && allows("fn f() { #[expect(unsafe_code)] g() }"));
        assert!(!allows("#![forbid(unsafe_code)]\n// allow(unsafe_code)\nfn f() { \"allow(unsafe_code)\" }"));
    }

    #[test]
    fn debug_of_public_types_with_much_inside_is_not_derived() {
        for wrong in [
            "#[derive(Clone, Debug)] #[must_use = \"x\"] pub struct A<'a> { pub b: u8, c: Option<Arc<B>> }",
            "#[derive(Debug)] pub struct A(Vec<u8>);",
            "#[derive(Debug)] struct A; #[derive(Debug)] pub struct B { pub(crate) c: &'static dyn C }",
        ] {
            assert_eq!(debug_is_short(&Source::new("a.rs", wrong)).len(), 1, "{wrong}");
        }
        for right in [
            "#[derive(Clone)] pub struct A { b: Arc<B> } #[derive(Debug)] pub struct C { d: u8 }",
            "#[derive(Debug)] pub struct A { pub b: Vec<u8>, c: Option<String> }",
            "#[derive(Debug)] struct A { b: Arc<B> } pub struct C { d: Vec<u8> }",
            "#[derive(Debug)] enum A { B(Vec<u8>) } pub struct C { d: Vec<u8> }",
        ] {
            assert_eq!(debug_is_short(&Source::new("a.rs", right)), [""; 0], "{right}");
        }
    }

    #[test]
    fn what_only_sounds_like_it_is_no_fault() {
        let harmless = "//! No serde_json::from_str, no \"traceEvents\".\n\
                        fn f() { \"tracing::info!\" }\n\
                        #[cfg(test)] mod tests { fn g() { serde_json::from_str(a); tracing::info!() } }";
        let source = Source::new("guard.rs", harmless);
        for rule in [no_formats, no_tracing_macros] {
            assert_eq!(rule(&source), [""; 0]);
        }
    }

    #[test]
    fn items_for_tests_are_not_shipped() {
        let types = |text: &str| Source::new("a.rs", text).types().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(types("struct A; #[cfg(all(test, not(loom)))] mod tests { struct B; } enum C {}"), ["A", "C"]);
        assert_eq!(types("#[cfg(not(test))] struct A; #[cfg(test)] union B {}"), ["A"]);
        assert_eq!(Source::new("a/tests.rs", "struct A;").types().count(), 0);
    }
}
