//! Tests of what is reported, and of the totals.

use super::*;

#[test]
fn slower_kernel_is_found_alone() {
    for seed in 0..5 {
        let before = Program::model();
        let mut after = before.clone();
        after.kernel("kernel_5").ns *= 1.05;
        let diff = Diff::between(&[before.profile(seed)], &[after.profile(seed + 100)]);
        assert_eq!(changes(&diff), ["slower kernel_5"], "{seed}: {}", diff.screen().rows(20));
        assert!(diff.is_slower());
        let back = Diff::between(&[after.profile(seed + 100)], &[before.profile(seed)]);
        assert_eq!((changes(&back), back.is_slower()), (vec!["faster kernel_5".to_owned()], false));
        check_parts(&diff);
    }
}

#[test]
fn slower_operation_and_step_are_found() {
    let before = Program::model();
    let mut after = before.clone();
    after.ops[3].ns *= 60.0;
    let diff = diff(&before, &after);
    let slower: Vec<_> = diff.slower().map(ClassChange::name).collect();
    assert_eq!((slower, diff.total.verdict), (vec!["op_4"], ChangeVerdict::Drift));
    assert!(diff.is_slower_alike() && !diff.is_slower(), "one run a side: {}", diff.screen());
    assert!(diff.screen().to_string().starts_with("The step changed by +"), "{}", diff.screen());
    let side = |program: &Program, first: u64| (first..first + 4).map(|seed| program.profile(seed)).collect::<Vec<_>>();
    let several = Diff::between(&side(&before, 1), &side(&after, 10));
    assert!(several.is_slower() && several.total.verdict == ChangeVerdict::Slower, "{}", several.screen());
    // The step waits less for the device.
    assert_eq!(changes(&diff)[1..], ["faster cudaDeviceSynchronize"]);
    let part = &diff.parts[0];
    assert_eq!((part.kind, part.name.as_deref()), (PathKind::Operation, Some("op_4")), "{}", diff.screen());
    check_parts(&diff);
}

#[test]
fn equal_traces_have_no_change() {
    let profile = Program::model().profile(1);
    let diff = Diff::between(std::slice::from_ref(&profile), std::slice::from_ref(&profile));
    assert!(
        diff.classes.iter().all(|change| change.verdict == ChangeVerdict::Same && change.matched == MatchReason::Name)
    );
    assert!(changes(&diff).is_empty() && !diff.is_slower() && diff.total.change_ns() == 0);
    assert!(diff.screen().to_string().starts_with("No change above 3 % and the spread of the steps."));
    check_parts(&diff);
    // Without a threshold, too.
    let side = std::slice::from_ref(&profile);
    let diff = DiffOptions::new().threshold_percent(0.0).compare(side, side);
    let is_same = |change: &ClassChange| change.verdict == ChangeVerdict::Same;
    assert!(diff.total.verdict == ChangeVerdict::Same && diff.classes.iter().all(is_same), "{diff:?}");
    assert!(!diff.screen().to_string().contains("changed alike"), "{}", diff.screen());
}

#[test]
fn threshold_decides_what_is_reported() {
    let before = Program { noise: 0.001, ..Program::model() };
    let mut after = before.clone();
    after.kernel("kernel_5").ns *= 1.02;
    let (a, b) = ([before.profile(1)], [after.profile(2)]);
    assert!(changes(&Diff::between(&a, &b)).is_empty());
    assert_eq!(changes(&DiffOptions::new().threshold_percent(1.0).compare(&a, &b)), ["slower kernel_5"]);
}

#[test]
fn new_and_gone_classes_are_found() {
    let before = Program::model();
    let mut after = before.clone();
    after.ops[0] = op("attention", 90_000.0, &[("flash_fwd", 900.0), ("flash_split", 400_000.0)]);
    let diff = diff(&before, &after);
    let expected = ["new flash_split", "new attention", "gone kernel_1", "gone op_1", "new flash_fwd"];
    let found = changes(&diff);
    assert!(expected.iter().all(|change| found.iter().any(|found| found == change)), "{found:?}");
    assert!(diff.classes.iter().all(|change| change.a.is_some() || change.b.is_some()));
    check_parts(&diff);
}

#[test]
fn new_kernel_explains_the_step() {
    let before = Program::model();
    for steps in [40, 25] {
        let mut after = Program { steps, ..before.clone() };
        after.ops[4].kernels.push(Kernel { name: "kernel_new".to_owned(), ..before.ops[0].kernels[0].clone() });
        after.kernel("kernel_new").ns = 800_000.0;
        let found = diff(&before, &after);
        let new = found.changes().find(|change| change.name() == "kernel_new").unwrap();
        assert_eq!((new.verdict, new.change_percent), (ChangeVerdict::New, None));
        assert!(found.is_slower() && found.total.verdict == ChangeVerdict::Slower, "{}", found.screen());
        let back = diff(&after, &before);
        assert!(!back.is_slower() && back.total.verdict == ChangeVerdict::Faster, "{}", back.screen());
    }
}

#[test]
fn faster_kernel_explains_no_slower_step() {
    let before = Program::model();
    let mut after = before.clone();
    after.ops[3].ns *= 60.0;
    after.kernel("kernel_5").ns *= 0.9;
    let found = diff(&before, &after);
    assert!(changes(&found).contains(&"faster kernel_5".to_owned()), "{}", found.screen());
    assert!(found.is_slower_alike() && found.total.verdict == ChangeVerdict::Drift, "{}", found.screen());
}

#[test]
fn event_of_one_trace_is_not_new() {
    let program = Program { steps: 6, ..Program::model() };
    let once = |seed: u64| {
        let event = r#"{"ph":"X","cat":"cpu_op","name":"import_once","pid":1,"tid":2,"ts":1000000,"dur":5}"#;
        profile(&program.json(seed).replace("]}", &format!(",{event}]}}")))
    };
    let (a, mut b) = (runs(&program, 1, 4), runs(&program, 10, 4));
    b[3] = once(20);
    assert!(changes(&Diff::between(&a, &b)).is_empty());
    // In all traces it is new, but has no time in a step.
    let found = Diff::between(&a, &(20..24).map(once).collect::<Vec<_>>());
    assert_eq!(changes(&found), ["new import_once"]);
    assert!(found.screen().to_string().starts_with("No change"), "{}", found.screen());
}

#[test]
fn outlines_are_bounded() {
    // Each event has a name of its own, but for kernels.
    let names = |prefix: &str, kernel: &str| {
        let slice = |category: &str, name: &str, ts: usize, dur: usize| {
            format!(r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}"#)
        };
        let mut events: Vec<String> =
            (0..30_000).map(|n| slice("cpu_op", &format!("{prefix}_{n}"), n * 10, 1)).collect();
        events.extend((0..40).map(|n| slice("cpu_op", kernel, n * 10_000 + 2, 5)));
        profile(&format!("{{\"traceEvents\": [{}]}}", events.join(",")))
    };
    let (a, b) = (names("a", "work"), names("b", "work"));
    assert!(a.outline.nodes.len() <= Outline::MAX_NODES + 1 && a.outline.nodes.len() > 1, "{}", a.outline.nodes.len());
    let found = Diff::between(&[a], &[b]);
    let of_both: Vec<_> = found.classes.iter().filter(|change| change.matched == MatchReason::Name).collect();
    assert_eq!(of_both.iter().map(|change| change.name()).collect::<Vec<_>>(), ["work"]);
}

#[test]
fn one_outline_of_a_side_is_enough() {
    let (before, after) = (Program { steps: 8, ..Program::model() }, {
        let mut after = Program { steps: 8, ..Program::model() };
        after.ops[3].name = "renamed".to_owned();
        after.kernel("kernel_4").name = "other".to_owned();
        after
    });
    let (mut a, mut b) = (runs(&before, 1, 3), runs(&after, 10, 3));
    let all = Diff::between(&a, &b);
    TraceProfile::keep_one_outline(&mut a);
    TraceProfile::keep_one_outline(&mut b);
    assert!(a[0].outline.nodes.len() > 1 && a[1].outline.nodes.is_empty());
    assert_eq!(Diff::between(&a, &b).to_json(), all.to_json());
}

#[test]
fn moved_classes_are_found() {
    let before = Program::model();
    let mut stream = before.clone();
    stream.kernel("kernel_3").stream = 20;
    let moved = diff(&before, &stream);
    assert_eq!(changes(&moved), ["moved kernel_3"], "{}", moved.screen());
    let change = moved.changes().next().unwrap();
    assert_eq!(change.moves, [ClassMove::Stream("0/7".into(), "0/20".into())]);

    // All streams have another number: none moved.
    let mut renamed = before.clone();
    renamed.ops.iter_mut().flat_map(|op| &mut op.kernels).for_each(|kernel| kernel.stream = 20);
    assert!(changes(&diff(&before, &renamed)).is_empty());

    let mut parent = before.clone();
    let kernel = parent.ops[2].kernels.remove(0);
    parent.ops[3].kernels.push(kernel);
    let moved = diff(&before, &parent);
    let change = moved.changes().find(|change| change.name() == "kernel_3").unwrap();
    assert_eq!(
        (change.verdict, &change.moves[0]),
        (ChangeVerdict::Moved, &ClassMove::Parent("op_3".into(), "op_4".into()))
    );

    let mut count = before.clone();
    let half = Kernel { ns: count.kernel("kernel_12").ns / 2.0, ..count.kernel("kernel_12").clone() };
    count.ops[11].kernels = vec![half.clone(), half];
    let moved = diff(&before, &count);
    let change = moved.changes().find(|change| change.name() == "kernel_12").unwrap();
    assert_eq!((change.verdict, &change.moves), (ChangeVerdict::Moved, &vec![ClassMove::Count(1.0, 2.0)]));
}

#[test]
fn moved_class_has_the_same_time() {
    let before = Program { steps: 0, ..Program::model() };
    let moved = |ns: f64| {
        let mut after = before.clone();
        let mut kernel = after.ops[2].kernels.remove(0);
        kernel.ns *= ns;
        after.ops[3].kernels.push(kernel);
        let found = diff(&Program { noise: 0.001, ..before.clone() }, &Program { noise: 0.001, ..after });
        found.classes.iter().find(|change| change.name() == "kernel_3").unwrap().verdict
    };
    assert_eq!((moved(1.0), moved(3.0)), (ChangeVerdict::Moved, ChangeVerdict::TooFew));
}

#[test]
fn traces_without_steps_compare_events() {
    let mut before = Program::model();
    let ops = before.ops.clone();
    before.ops = (0..30).flat_map(|_| ops.clone()).collect();
    before.steps = 0;
    let mut after = before.clone();
    after
        .ops
        .iter_mut()
        .flat_map(|op| &mut op.kernels)
        .filter(|kernel| kernel.name == "kernel_5")
        .for_each(|kernel| kernel.ns *= 1.1);
    let found = diff(&before, &after);
    assert_eq!(
        (found.unit, changes(&found)),
        (DiffUnit::Trace, vec!["slower kernel_5".to_owned()]),
        "{}",
        found.screen()
    );
    assert_eq!(found.total.verdict, ChangeVerdict::Same, "one run a side, and a change below the threshold");
    check_parts(&found);

    // Calls of other sizes: each is compared with itself.
    let mut sizes = before;
    sizes
        .ops
        .iter_mut()
        .flat_map(|op| &mut op.kernels)
        .zip(1..)
        .for_each(|(kernel, size)| kernel.ns *= 1.0 + f64::from(size % 40));
    let mut slower = sizes.clone();
    slower
        .ops
        .iter_mut()
        .flat_map(|op| &mut op.kernels)
        .filter(|kernel| kernel.name == "kernel_5")
        .for_each(|kernel| kernel.ns *= 1.06);
    assert_eq!(changes(&diff(&sizes, &slower)), ["slower kernel_5"]);

    // Once is too few.
    let (before, mut after) = (Program { steps: 0, ..Program::model() }, Program { steps: 0, ..Program::model() });
    after.ops.iter_mut().flat_map(|op| &mut op.kernels).for_each(|kernel| kernel.ns *= 2.0);
    let found = diff(&before, &after);
    assert!(changes(&found).is_empty() && found.total.verdict == ChangeVerdict::TooFew, "{}", found.screen());
    assert!(found.classes.iter().any(|change| change.verdict == ChangeVerdict::TooFew));
    check_parts(&found);
}

#[test]
fn order_of_events_and_traces_does_not_matter() {
    let (before, after) = (Program::model(), {
        let mut after = Program::model();
        after.kernel("kernel_9").ns *= 1.2;
        after
    });
    let reversed = |json: &str| {
        let mut trace: serde_json::Value = serde_json::from_str(json).unwrap();
        trace["traceEvents"].as_array_mut().unwrap().reverse();
        profile(&trace.to_string())
    };
    let (a, b) = (before.json(1), after.json(2));
    let expected = Diff::between(&[profile(&a)], &[profile(&b)]).to_json();
    assert_eq!(Diff::between(&[reversed(&a)], &[reversed(&b)]).to_json(), expected);
    let (one, other) = ([before.profile(1), before.profile(3)], [before.profile(3), before.profile(1)]);
    let [one, other] = [one, other].map(|a| Diff::between(&a, &[profile(&b)]));
    assert_eq!(changes(&one), changes(&other));
    check_parts(&one);
}

#[test]
fn hostile_values_are_compared() {
    let slice = |name: &str, ts: u64, dur: u64| {
        format!("{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"{name}\",\"pid\":1,\"tid\":1,\"ts\":{ts},\"dur\":{dur}}}")
    };
    let step = |n: u64, ts: u64, dur: u64| {
        slice("", ts, dur)
            .replace("cpu_op", "user_annotation")
            .replace("\"name\":\"\"", &format!("\"name\":\"ProfilerStep#{n}\""))
    };
    let trace = |events: &[String]| profile(&format!("{{\"traceEvents\": [{}]}}", events.join(",")));
    let huge = u64::MAX / 1000 - 1;
    let kinds = [
        TraceProfile::default(),
        trace(&[]),
        trace(&[slice("a", 0, 0)]),
        trace(&[step(1, 0, 5), slice("a", 1, 2)]),
        trace(&(0..9).map(|n| step(1, n * 10, 0)).collect::<Vec<_>>()),
        trace(&(0..9).map(|n| step(7, 5, n * 3)).collect::<Vec<_>>()),
        trace(
            &(0..9)
                .flat_map(|n| [step(n, n * 10, 10), slice("a", n * 10, 0), slice("b", n * 10, 20)])
                .collect::<Vec<_>>(),
        ),
        trace(&[slice("a", 0, huge), slice("a", 1, huge - 1), slice("b", huge, 0)]),
        trace(&(0..200).map(|n| slice("deep", n, 1_000 - n)).collect::<Vec<_>>()),
        trace(&(0..50_000).map(|n| slice(if n % 2 == 0 { "a" } else { "b" }, n * 2, 1)).collect::<Vec<_>>()),
    ];
    for a in &kinds {
        for b in &kinds {
            let diff = Diff::between(std::slice::from_ref(a), std::slice::from_ref(b));
            check_parts(&diff);
            assert!(!diff.screen().rows(3).to_string().is_empty());
            assert!(serde_json::from_str::<serde_json::Value>(&diff.to_json()).is_ok());
        }
        let same = Diff::between(std::slice::from_ref(a), std::slice::from_ref(a));
        assert!(changes(&same).is_empty() && !same.is_slower(), "{same:?}");
    }
    assert!(changes(&Diff::between(&[], &[])).is_empty());
}

#[test]
fn screen_starts_with_at_most_ten_lines() {
    let before = Program::model();
    let mut after = before.clone();
    after.ops.iter_mut().for_each(|op| op.name += "_v2_of_a_long_name_that_does_not_fit_into_the_line_of_a_screen");
    after.ops.iter_mut().step_by(2).for_each(|op| op.ns *= 3.0);
    let diff = diff(&before, &after);
    let text = diff.screen().to_string();
    let table = text.lines().position(str::is_empty).unwrap();
    assert!((2..=10).contains(&table), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(diff.screen().rows(50).to_string().contains("Kernels, copies and fills"));
}

#[test]
fn json_has_all_figures() {
    let before = Program::model();
    let mut after = before.clone();
    after.kernel("kernel_5").ns *= 1.2;
    let json: serde_json::Value = serde_json::from_str(&diff(&before, &after).to_json()).unwrap();
    assert_eq!(
        (&json["schema"], &json["per"], &json["is_slower"]),
        (&"kineto-diff/1".into(), &"step".into(), &true.into())
    );
    let first = &json["classes"][0];
    assert_eq!(
        (&first["name"], &first["kind"], &first["verdict"]),
        (&"kernel_5".into(), &"work".into(), &"slower".into())
    );
    assert!(first["change_pct"].as_f64().unwrap() > 15.0 && first["a"]["mean_count"] == 1.0, "{first}");
    assert!(json["total"]["parts"].as_array().is_some_and(|parts| parts.len() > 10));
}
