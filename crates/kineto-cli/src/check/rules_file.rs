//! Reads rules from TOML. Errors name the file and the line.

use kineto_trace::analysis::check::{Figure, Quantity, Rule, Rules};
use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys of a rule.
const KEYS: [&str; 8] = ["figure", "of", "in", "each", "max", "min", "optional", "name"];

/// A fault of the file: its place in bytes, and the message.
type Fault = (Range<usize>, String);

/// Reads a file of rules.
pub(super) fn read_rules(path: &Path) -> Result<Rules, String> {
    let text = read_text(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    parse_rules(&text)
        .map_err(|(place, message)| format!("{}:{}: {message}", path.display(), line_number(&text, place.start)))
}

/// Reads the text of a file, which the user may have named by a link or a pipe. One without end is not read to the limit of memory.
fn read_text(path: &Path) -> Result<String, String> {
    const MIB_MAX: u64 = 16;
    let bytes_max = MIB_MAX << 20;
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut text));
    read.map_err(|error| format!("{error}; check the path"))?;
    if text.len() as u64 > bytes_max {
        return Err(format!("it has more than {MIB_MAX} MiB; name a file of rules"));
    }
    String::from_utf8(text).map_err(|_| "it is not UTF-8; name a file of rules".to_owned())
}

fn line_number(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
}

fn parse_rules(text: &str) -> Result<Rules, Fault> {
    let table = DeTable::parse(text)
        .map_err(|error| (error.span().unwrap_or_default(), format!("{}; correct the TOML", error.message())))?;
    let mut rules = None;
    for (key, value) in table.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref().as_array()) {
            ("rule", Some(list)) => rules = Some(list),
            ("rule", None) => return Err((key.span(), "`rule` is not a list; write `[[rule]]`".to_owned())),
            (other, _) => return Err((key.span(), format!("unknown key `{other}`; write `[[rule]]` before a rule"))),
        }
    }
    let rules: Rules = rules.into_iter().flat_map(|list| list.iter()).map(parse_rule).collect::<Result<_, _>>()?;
    if rules.iter().len() == 0 {
        return Err((0..0, "the file has no rule; add one after `[[rule]]`".to_owned()));
    }
    Ok(rules)
}

fn parse_rule(rule: &Spanned<DeValue<'_>>) -> Result<Rule, Fault> {
    let at_rule = |message: &str| (rule.span(), message.to_owned());
    let table = rule.get_ref().as_table().ok_or_else(|| at_rule("the rule is not a table; write `[[rule]]`"))?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.get_ref().as_ref())) {
        return Err((key.span(), format!("unknown key `{}`; a rule has {}", key.get_ref(), KEYS.join(", "))));
    }
    let figure = text(table, "figure")?.ok_or_else(|| at_rule("the rule has no figure; set `figure`"))?;
    let figure: Figure = at(figure.1, figure.0.parse())?;
    let mut parsed = Rule::new(figure);
    parsed = text(table, "of")?.into_iter().fold(parsed, |rule, (name, _)| rule.of(name));
    match (text(table, "in")?, text(table, "each")?) {
        (Some(_), Some((_, place))) => return Err((place, "the rule has `in` and `each`; remove one".to_owned())),
        (Some((span, _)), None) => parsed = parsed.within(span),
        (None, Some((span, _))) => parsed = parsed.each(span),
        (None, None) => {}
    }
    parsed = limit(table, "max")?.into_iter().fold(parsed, Rule::at_most);
    parsed = limit(table, "min")?.into_iter().fold(parsed, Rule::at_least);
    parsed = text(table, "name")?.into_iter().fold(parsed, |rule, (name, _)| rule.named(name));
    if let Some(value) = table.get("optional") {
        let optional = value.get_ref().as_bool();
        let optional = optional
            .ok_or_else(|| (value.span(), "`optional` is not a boolean; write `true` or `false`".to_owned()))?;
        parsed = if optional { parsed.optional() } else { parsed };
    }
    let faulty = parsed.faulty_key().and_then(|key| table.get(key));
    at(faulty.map_or(rule.span(), Spanned::span), parsed.validate())?;
    Ok(parsed)
}

/// Adds a place to an error.
fn at<T>(place: Range<usize>, result: Result<T, impl Display>) -> Result<T, Fault> {
    result.map_err(|error| (place, error.to_string()))
}

/// Returns a text that is not empty, with its place.
fn text<'t>(table: &'t DeTable<'_>, key: &str) -> Result<Option<(&'t str, Range<usize>)>, Fault> {
    let Some(value) = table.get(key) else { return Ok(None) };
    match value.get_ref().as_str() {
        Some(text) if !text.is_empty() => Ok(Some((text, value.span()))),
        Some(_) => Err((value.span(), format!("`{key}` is empty; write a name, or remove it"))),
        None => Err((value.span(), format!("`{key}` is not a text; write it in quotes"))),
    }
}

/// Returns a limit: an integer is a count, a text has a unit.
fn limit(table: &DeTable<'_>, key: &str) -> Result<Option<Quantity>, Fault> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let parsed = match value.get_ref() {
        DeValue::String(text) => at(value.span(), text.parse())?,
        DeValue::Integer(number) => {
            let count = u64::from_str_radix(number.as_str(), number.radix());
            let fault = |_| (value.span(), format!("`{key}` is negative or too large; write a count of at least 0"));
            Quantity::Count(count.map_err(fault)?)
        }
        _ => return Err((value.span(), format!("`{key}` has no unit; write a count, or a text such as \"2.5 ms\""))),
    };
    Ok(Some(parsed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{line_number, parse_rules};

    /// Returns the rules as text, or the line and the message of the error.
    fn parsed(text: &str) -> Result<Vec<String>, (usize, String)> {
        match parse_rules(text) {
            Ok(rules) => Ok(rules.iter().map(ToString::to_string).collect()),
            Err((place, message)) => Err((line_number(text, place.start), message)),
        }
    }

    #[test]
    fn all_keys_of_a_rule_are_read() {
        let text = "[[rule]]\nfigure = 'launches'\neach = 'ProfilerStep#*'\nmax = 1_000\nmin = 0x2\nname = 'few'\n\
                    [[rule]]\nfigure = \"duration.p99\"\nof = \"decode\"\nin = \"request\"\nmax = \"2.5 ms\"\noptional = true\n";
        let rules = parsed(text).unwrap();
        assert_eq!(rules[0], "launches each `ProfilerStep#*`, at least 2, at most 1000");
        assert_eq!(rules[1], "duration.p99 of `decode` in `request`, at most 2.5 ms");
        let inline = parsed("rule = [{figure = 'losses', max = 0}, {figure = 'notes', max = 0}]").unwrap();
        assert_eq!(inline, ["losses, at most 0", "notes, at most 0"]);
    }

    #[test]
    fn errors_name_the_line() {
        let rule = |lines: &str| format!("# a rule\n[[rule]]\nfigure = 'launches'\n{lines}\n");
        for (text, line, message) in [
            (String::new(), 1, "the file has no rule; add"),
            ("# nothing\n".to_owned(), 1, "the file has no rule; add"),
            ("rule = 3\n".to_owned(), 1, "`rule` is not a list"),
            ("rule = [3]\n".to_owned(), 1, "the rule is not a table"),
            ("[rule]\nfigure = 'launches'\n".to_owned(), 1, "`rule` is not a list"),
            ("\n[rules]\n".to_owned(), 2, "unknown key `rules`; write `[[rule]]`"),
            ("\n[[rule]]\nmax = 1\n".to_owned(), 2, "the rule has no figure"),
            (rule("maximum = 3"), 4, "unknown key `maximum`; a rule has figure, of, in"),
            (rule("max = 3\nmax = 4"), 5, "duplicate key"),
            (rule("max = "), 4, ""),
            (rule("max = 3.5"), 4, "`max` has no unit"),
            (rule("max = -3"), 4, "`max` is negative or too large"),
            (rule("max = 99999999999999999999"), 4, ""),
            (rule("max = '3 apples'"), 4, "\"3 apples\" is not a quantity: the unit is unknown; write"),
            (rule("max = '3 ms'"), 4, "wrong unit for a limit of `launches`; expected a count"),
            (rule("min = 3\nmax = '3 ms'"), 5, "wrong unit for a limit of `launches`"),
            (rule("max = 3\nmin = 4"), 5, "`min` is greater than `max`"),
            (rule("max = 3\nof = 'cudaLaunchKernel'"), 5, "`launches` is the same for all names; remove `of`, or use"),
            ("[[rule]]\nfigure = 'idle'\nmax = '1 ms'\nin = 'a'".to_owned(), 4, "`idle` has a value for each span"),
            (rule(""), 2, "the rule has no limit"),
            (rule("max = 3\nin = 'a'\neach = 'b'"), 6, "the rule has `in` and `each`"),
            (rule("max = 3\nin = ''"), 5, "`in` is empty"),
            (rule("max = 3\nin = 4"), 5, "`in` is not a text"),
            (rule("max = 3\noptional = 'yes'"), 5, "`optional` is not a boolean"),
            (rule("max = 3\nname = 'a"), 5, ""),
            ("[[rule]]\nfigure = 'lunches'\nmax = 1".to_owned(), 2, "unknown figure \"lunches\"; nearest: `launches`"),
            (format!("a = {}", "[".repeat(100_000)), 1, ""),
        ] {
            let (found_line, found) = parsed(&text).unwrap_err();
            assert!(
                found_line == line && found.starts_with(message) && found.contains(';'),
                "{found_line}: {found}\n{text:.200}"
            );
        }
    }
}
