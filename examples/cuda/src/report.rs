//! Prints the result of each check, one per line.

use serde_json::{Value, json};
use std::fmt::Display;
use std::process::ExitCode;

/// Counts and prints checks, as text or as JSON lines.
pub struct Report {
    pub json: bool,
    passed: u32,
    failed: u32,
}

impl Report {
    pub fn new(json: bool) -> Report {
        Report { json, passed: 0, failed: 0 }
    }

    /// Prints a check with its figures.
    pub fn check(&mut self, name: &str, passed: bool, figures: impl Display) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        self.line(if passed { "PASS" } else { "FAIL" }, name, figures);
    }

    /// Prints a skipped check, with the reason.
    pub fn pass_over(&self, name: &str, why: &str) {
        self.line("----", name, format_args!("passed over: {why}"));
    }

    fn line(&self, result: &str, name: &str, figures: impl Display) {
        if self.json {
            println!("{}", json!({ "check": name, "result": result, "figures": figures.to_string() }));
        } else {
            println!("{result}  {name:<34} {figures}");
        }
    }

    /// Prints a line that is not a check.
    pub fn say(&self, text: impl Display) {
        if !self.json {
            println!("{text}");
        }
    }

    /// Prints a figure in JSON output.
    pub fn figure(&self, name: &str, value: impl Into<Value>, unit: &str) {
        if self.json {
            println!("{}", json!({ "figure": name, "value": value.into(), "unit": unit }));
        }
    }

    /// Prints the overall result.
    pub fn end(&self) -> ExitCode {
        self.say(format_args!("\n{} checks passed, {} failed", self.passed, self.failed));
        self.figure("failed checks", self.failed, "");
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
