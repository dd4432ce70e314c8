//! A harness for tests that start their own program again, which takes a `main` of theirs.
//!
//! It understands filters, `--skip`, `--exact` and `--list`, and passes over other options.

/// A test and its name.
pub type Test = (&'static str, fn());

/// Runs the tests that the arguments ask for, in the manner of Rust's own harness.
pub fn run(args: &[String], tests: &[&[Test]]) -> std::process::ExitCode {
    let (mut flags, mut filters, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        match arg {
            "--skip" => skipped.extend(rest.next()),
            flag if flag.starts_with('-') => flags.push(flag),
            filter => filters.push(filter),
        }
    }
    let has = |flag: &str| flags.contains(&flag);
    let asked_for = |name: &str| {
        let fits = |text: &&str| if has("--exact") { name == *text } else { name.contains(*text) };
        !has("--ignored") && (filters.is_empty() || filters.iter().any(fits)) && !skipped.iter().any(fits)
    };
    let tests: Vec<Test> = tests.iter().copied().flatten().copied().filter(|(name, _)| asked_for(name)).collect();
    if has("--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return std::process::ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let mut failed = 0;
    for (name, test) in &tests {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {} passed; {failed} failed\n", tests.len() - failed);
    if failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
