//! Collects the results as tables.

use std::sync::Mutex;

static TABLES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds a table with a title, column names and rows.
pub(crate) fn table(title: &str, columns: &[&str], rows: &[Vec<String>]) {
    let row = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("## {title}\n\n{}", row(columns.to_vec()));
    text += &row(vec!["---"; columns.len()]);
    rows.iter().for_each(|cells| text += &row(cells.iter().map(String::as_str).collect()));
    TABLES.lock().unwrap().push(text);
}

/// Prints all tables, and writes them to a file.
#[expect(clippy::print_stdout, reason = "they are for people")]
pub(crate) fn publish() {
    let tables = TABLES.lock().unwrap().join("\n");
    if tables.is_empty() {
        return;
    }
    println!("{tables}");
    // Cargo sets `<target>/tmp` for tests.
    let target = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    std::fs::write(target.join("wheels.md"), tables).unwrap();
}
