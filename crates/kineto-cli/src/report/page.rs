//! Makes the page of its template, style, scripts and data.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// The start of each page.
const DOCTYPE: &str = "<!doctype html>";

/// The mark of a page, near its start.
const GENERATOR: &str = r#"<meta name="generator" content="kineto report">"#;

const TEMPLATE: &str = include_str!("report.html");
const STYLE: &str = include_str!("report.css");
const SCRIPTS: [&str; 6] = [
    include_str!("format.js"),
    include_str!("range.js"),
    include_str!("timeline.js"),
    include_str!("sections.js"),
    include_str!("diff.js"),
    include_str!("report.js"),
];

/// Returns the page. `data` is JSON of any content.
pub(super) fn render_page(title: &str, data: &str) -> String {
    let nonce = random_nonce();
    let scripts = SCRIPTS.concat();
    let mut page = String::with_capacity(TEMPLATE.len() + STYLE.len() + scripts.len() + data.len() + 1000);
    page.push_str(DOCTYPE);
    // The template is split rather than replaced in: texts of the trace may contain its marks.
    for (index, part) in TEMPLATE.split("{{").enumerate() {
        let (mark, rest) = part.split_once("}}").filter(|_| index > 0).unwrap_or(("", part));
        match mark {
            "title" => page.push_str(&escape_html(title)),
            "nonce" => page.push_str(&nonce),
            "style" => page.push_str(STYLE),
            "script" => page.push_str(&scripts),
            "data" => page.push_str(&escape_json(data)),
            _ => {}
        }
        page.push_str(rest);
    }
    page
}

/// Returns whether these are the first bytes of a page that [`render_page`] made.
pub(super) fn is_page(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    text.starts_with(DOCTYPE) && text.contains(GENERATOR)
}

/// Returns a number that a trace cannot know: only scripts with it run.
fn random_nonce() -> String {
    (0..2).map(|_| format!("{:016x}", RandomState::new().build_hasher().finish())).collect()
}

/// Returns JSON that neither ends the element around it nor begins a comment in it.
pub(super) fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_all_parts_and_no_markup_of_the_trace() {
        let page = render_page("<b>&{{data}}", r#"{"name":"</script><img onerror=x>{{style}}"}"#);
        assert!(is_page(page.as_bytes().get(..1024).unwrap()) && page.contains("&lt;b&gt;&amp;{{data}}"));
        assert!(page.contains(r#"{"name":"\u003c/script>\u003cimg onerror=x>{{style}}"}"#));
        assert_eq!(page.matches("</script>").count(), 2, "data and code");
        assert!(page.matches(&random_nonce()).count() == 0 && page.contains("script-src 'nonce-"));
    }

    #[test]
    fn template_style_and_scripts_name_no_other_place() {
        for text in [TEMPLATE, STYLE].into_iter().chain(SCRIPTS) {
            for place in ["https:", "http:", "@import", "url(", "fetch(", "innerHTML", "eval("] {
                let allowed = if place == "http:" { text.matches("http://www.w3.org/2000/svg").count() } else { 0 };
                assert_eq!(text.matches(place).count(), allowed, "{place}");
            }
            assert!(!text.contains("</script") || text == TEMPLATE);
        }
    }
}
