//! Tests that runs of one program have no changes, however they differ.

use super::*;

/// Compares pairs of sets of runs of one program; returns the false alarms.
fn false_alarms(run: impl Fn(&mut Random) -> Program, [runs_a, runs_b]: [u64; 2], pairs: u64) -> Vec<String> {
    let mut alarms = Vec::new();
    for pair in 0..pairs {
        let mut random = Random::new(pair + 1);
        let mut side = |first: u64, count: u64| {
            (first..first + count).map(|seed| run(&mut random).profile(seed)).collect::<Vec<_>>()
        };
        let (a, b) = (side(pair * 100, runs_a), side(pair * 100 + 50, runs_b));
        let diff = Diff::between(&a, &b);
        check_means(&diff, [&a, &b]);
        alarms.extend(changes(&diff));
        alarms.extend((diff.total.verdict == ChangeVerdict::Slower).then(|| format!("total {:?}", diff.total)));
    }
    alarms
}

fn small() -> Program {
    Program { steps: 30, noise: 0.05, ..Program::model() }
}

#[test]
fn independent_noise_is_no_change() {
    assert_eq!(false_alarms(|_| small(), [1, 1], 12), [""; 0]);
}

#[test]
fn correlated_noise_is_no_change() {
    assert_eq!(false_alarms(|_| Program { memory: 0.8, ..small() }, [1, 1], 12), [""; 0]);
}

#[test]
fn drift_between_runs_is_no_change() {
    // A clock that differs by up to a fifth between runs.
    let drifting = |random: &mut Random| Program { speed: 0.9 + 0.2 * random.uniform(), ..small() };
    assert_eq!(false_alarms(drifting, [1, 1], 12), [""; 0]);
    for runs in [[2, 2], [4, 4], [6, 1]] {
        assert_eq!(false_alarms(|random| Program { steps: 8, ..drifting(random) }, runs, 6), [""; 0], "{runs:?}");
    }
}

#[test]
fn operations_that_differ_between_runs_are_no_change() {
    // The layout of memory, for example, differs between runs.
    let layout = |random: &mut Random| {
        let mut program = small();
        program.ops.iter_mut().for_each(|op| {
            op.ns *= 1.0 + 0.03 * random.normal();
            op.kernels.iter_mut().for_each(|kernel| kernel.ns *= 1.0 + 0.02 * random.normal());
        });
        program
    };
    assert_eq!(false_alarms(layout, [1, 1], 12), [""; 0]);
    for runs in [[2, 2], [5, 5], [6, 1]] {
        assert_eq!(false_alarms(|random| Program { steps: 8, ..layout(random) }, runs, 6), [""; 0], "{runs:?}");
    }
}

#[test]
fn kernel_that_differs_between_runs_is_no_change() {
    let differing = |random: &mut Random| {
        let mut program = Program { steps: 8, ..small() };
        program.kernel("kernel_5").ns *= 1.0 + 0.08 * random.normal();
        program
    };
    for runs in [[10, 1], [3, 3]] {
        assert_eq!(false_alarms(differing, runs, 8), [""; 0], "{runs:?}");
    }
}

#[test]
fn slow_run_counts_only_with_several_runs() {
    let before = small();
    let after = Program { speed: 1.2, ..small() };
    let one = diff(&before, &after);
    assert!(changes(&one).is_empty() && one.total.verdict == ChangeVerdict::Drift, "{}", one.screen());
    assert!(one.host_drift_percent > 15.0 && one.device_drift_percent > 15.0, "{one:?}");
    assert!(one.screen().to_string().starts_with("All changed alike: the step by +"), "{}", one.screen());
    assert!(one.is_slower_alike() && !one.is_slower());
    let side = |program: &Program, first: u64| (first..first + 5).map(|seed| program.profile(seed)).collect::<Vec<_>>();
    let several = Diff::between(&side(&before, 1), &side(&after, 10));
    assert!(several.is_slower() && several.total.verdict == ChangeVerdict::Slower, "{}", several.screen());
}

#[test]
fn slow_down_of_everything_is_never_silent() {
    for factor in [1.05, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 3.0] {
        let after = Program { noise: 0.01, speed: factor, ..Program::model() };
        let found = diff(&Program { noise: 0.01, ..Program::model() }, &after);
        let text = found.screen().to_string();
        assert!(found.is_slower() || found.is_slower_alike(), "{factor}: {text}");
        assert!((found.device_drift_percent - (factor - 1.0) * 100.0).abs() < 2.0, "{factor}: {text}");
        assert!(!text.starts_with("No change"), "{factor}: {text}");
        let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
        assert_eq!(json["is_slower_alike"], found.is_slower_alike());
        let back = diff(&after, &Program { noise: 0.01, ..Program::model() });
        assert!(!back.is_slower() && !back.is_slower_alike());
    }
}

#[test]
fn change_of_many_classes_is_no_noise() {
    let before = Program::model();
    let mut after = before.clone();
    after.ops.iter_mut().step_by(2).flat_map(|op| &mut op.kernels).for_each(|kernel| kernel.ns *= 2.0);
    let found = diff(&before, &after);
    assert_eq!(found.slower().count(), 7, "six kernels, and the wait for them: {}", found.screen());
    after.ops.iter_mut().flat_map(|op| &mut op.kernels).for_each(|kernel| kernel.ns *= 3.0);
    assert!(diff(&before, &after).slower().count() >= 12);
}

#[test]
fn few_slow_steps_that_change_the_mean_are_found() {
    let before = Program { steps: 100, ..Program::model() };
    let slow = |is_in| Program { factors: vec![("kernel_12", is_in, 30.0)], ..before.clone() };
    let after = slow(|step| step % 7 == 0);
    let found = diff(&before, &after);
    assert!(found.slower().any(|change| change.name() == "kernel_12"), "{}", found.screen());
    assert_eq!((found.total.verdict, found.total.slow_steps), (ChangeVerdict::Drift, Some([0.0, 0.15])));
    assert!(found.slower().all(|change| change.needs_runs) && found.is_slower_alike(), "one run a side: {found:?}");
    let text = found.screen().to_string();
    assert!(text.starts_with("The step changed by +") && text.contains(", through slow steps (0 % -> 15 %)"), "{text}");
    assert!(text.contains("\nslower? ") && text.contains("kernel_12: slow in 0 % -> 15 % of steps"), "{text}");
    let back = diff(&after, &before);
    assert!(!back.is_slower() && !back.is_slower_alike());
    check_parts(&found);
    let three = Diff::between(&runs(&before, 1, 3), &runs(&after, 10, 3));
    assert!(three.slower().all(|change| change.needs_runs) && !three.is_slower(), "{}", three.screen());
    for count in [4, 5] {
        let several = Diff::between(&runs(&before, 1, count), &runs(&after, 10, count));
        let kernel = several.slower().find(|change| change.name() == "kernel_12");
        assert!(several.is_slower() && kernel.is_some_and(|change| !change.needs_runs), "{}", several.screen());
        assert_eq!(several.total.verdict, ChangeVerdict::Slower, "{}", several.screen());
    }
    // Two of a hundred may be chance; the output names them.
    let few = diff(&before, &slow(|step| step % 50 == 7));
    let text = few.screen().to_string();
    assert!(!few.is_slower() && text.lines().nth(1).unwrap().contains("through slow steps (0 % -> 2 %)"), "{text}");
}

#[test]
fn kernels_of_one_run_show_no_spread_of_runs() {
    let side = |clock: f64, first: u64| {
        let traced = Program { clock, ..Program::model() };
        let mut host = traced.clone();
        host.ops.iter_mut().for_each(|op| op.kernels.clear());
        let mut side = vec![traced.profile(first)];
        side.extend(runs(&host, first + 1, 3));
        side
    };
    let found = Diff::between(&side(1.0, 1), &side(1.06, 10));
    let kernels: Vec<_> = found.classes.iter().filter(|change| change.kind == ClassKind::Work).collect();
    assert!(kernels.len() == 12 && found.device_drift_percent > 5.0, "{found:?}");
    assert!(kernels.iter().all(|change| !change.verdict.is_change()), "{}", found.screen().rows(20));
}

#[test]
fn slow_steps_of_some_runs_are_no_change() {
    // Each run has its own shares of slow steps: most are small, and some large.
    let differing = |random: &mut Random| {
        let slow: [StepFilter; 5] =
            [|_| false, |step| step % 20 == 3, |step| step % 9 == 1, |step| step % 4 == 2, |step| step % 5 > 1];
        let mut factor = |kernel| {
            let large = random.uniform() * random.uniform();
            let share = [0.2, 0.4, 0.6, 0.8].iter().filter(|limit| large > **limit).count();
            (kernel, slow[share], 1.6)
        };
        let factors = ["kernel_3", "kernel_5", "kernel_7", "kernel_9", "kernel_11"].map(&mut factor);
        Program { noise: 0.01, factors: factors.to_vec(), ..small() }
    };
    for runs in [[3, 3], [4, 4], [6, 1]] {
        for pair in 0..6 {
            let mut random = Random::new(pair + 1);
            let mut side = |first: u64, count: u64| {
                (first..first + count).map(|seed| differing(&mut random).profile(seed)).collect::<Vec<_>>()
            };
            let found = Diff::between(&side(pair * 100, runs[0]), &side(pair * 100 + 50, runs[1]));
            assert!(!found.is_slower(), "{runs:?} {}", found.screen());
        }
    }
}

#[test]
fn work_that_some_steps_lack_is_compared() {
    let program = |factors: &[StepFactor]| Program { steps: 100, factors: factors.to_vec(), ..Program::model() };
    let lacks = |is_in, factor: f64| [("kernel_8", is_in, 0.0), ("kernel_8", (|_| true) as StepFilter, factor)];
    let check = |name: &str, a: &[StepFactor], b: &[StepFactor], expected: &str| {
        let found = diff(&program(a), &program(b));
        assert!(changes(&found).iter().any(|change| change == expected), "{name}: {}", found.screen());
        let back = diff(&program(b), &program(a));
        assert!(!back.slower().any(|change| change.name() == "kernel_8"), "{name}: {}", back.screen());
        check_parts(&found);
        found
    };
    let (every_fifth, every_second): (StepFilter, StepFilter) = (|step| step % 5 == 0, |step| step % 2 == 0);
    assert!(check("80 %", &lacks(every_fifth, 1.0), &lacks(every_fifth, 3.0), "slower kernel_8").is_slower());
    check("50 %", &lacks(every_second, 1.0), &lacks(every_second, 1.5), "slower kernel_8");
    let (rare, frequent): (StepFilter, StepFilter) = (|step| step % 20 > 0, |step| step % 20 >= 9);
    check("5 to 45 %", &lacks(rare, 20.0), &lacks(frequent, 20.0), "slower kernel_8");
    check("new in 45 %", &lacks(|_| true, 20.0), &lacks(frequent, 20.0), "new kernel_8");
}

#[test]
fn change_that_spares_the_fastest_steps_is_found() {
    let before = Program { steps: 100, ..Program::model() };
    let after = Program { factors: vec![("kernel_12", |step| step % 6 > 0, 1.3)], ..before.clone() };
    let found = diff(&before, &after);
    assert!(found.slower().any(|change| change.name() == "kernel_12"), "{}", found.screen());
    let side = |program: &Program, first: u64| (first..first + 4).map(|seed| program.profile(seed)).collect::<Vec<_>>();
    let several = Diff::between(&side(&before, 1), &side(&after, 10));
    assert_eq!(several.total.verdict, ChangeVerdict::Slower, "{}", several.screen());
}

#[test]
fn wait_for_a_slower_device_is_drift() {
    let before = Program { noise: 0.01, ..Program::model() };
    let clock = diff(&before, &Program { clock: 1.06, ..before.clone() });
    assert!(changes(&clock).is_empty() && clock.is_slower_alike(), "{}", clock.screen());
    let mut most = before.clone();
    most.ops.iter_mut().skip(5).flat_map(|op| &mut op.kernels).for_each(|kernel| kernel.ns *= 1.1);
    let most = diff(&before, &most);
    let text = most.screen().to_string();
    assert!(most.is_slower_alike() && !changes(&most).iter().any(|change| change.contains("Synchronize")), "{text}");
}

#[test]
fn ranks_are_one_run() {
    let side = |program: &Program, first: u64| -> Vec<TraceProfile> {
        (0..8).map(|rank| rank_profile(program, first + rank, rank)).collect()
    };
    let (before, after) = (small(), Program { speed: 1.05, ..small() });
    let found = Diff::between(&side(&before, 1), &side(&after, 20));
    assert!(found.is_slower_alike(), "{}", found.screen());
    // Four runs of each rank.
    let sides =
        |program: &Program, first: u64| (0..4).flat_map(|run| side(program, first + run * 8)).collect::<Vec<_>>();
    let found = Diff::between(&sides(&before, 1), &sides(&after, 50));
    assert!(found.is_slower(), "{}", found.screen());
}

#[test]
fn runs_differ_together_with_all_ranks() {
    // Each run has a clock of its own, which its ranks share: 32 traces are four runs.
    for pair in 0..6 {
        let mut random = Random::new(pair + 1);
        let mut side = |first: u64| {
            (0..4)
                .flat_map(|run| {
                    let program = Program { steps: 6, speed: 1.0 + 0.05 * random.normal(), ..small() };
                    (0..8).map(move |rank| rank_profile(&program, first + run * 8 + rank, rank)).collect::<Vec<_>>()
                })
                .collect::<Vec<_>>()
        };
        let found = Diff::between(&side(pair * 200), &side(pair * 200 + 100));
        assert!(changes(&found).is_empty() && found.total.verdict != ChangeVerdict::Slower, "{}", found.screen());
    }
}

#[test]
fn ranks_with_other_work_hide_no_change() {
    // The stages of a pipeline; the change is the same in each.
    let side = |factor: f64, first: u64| -> Vec<TraceProfile> {
        let rank = |run: u64, rank: u64| {
            let mut program = Program { steps: 10, clock: 1.0 + rank as f64, ..Program::model() };
            program.kernel("kernel_5").ns *= factor;
            rank_profile(&program, first + run * 4 + rank, rank)
        };
        (0..4).flat_map(|run| (0..4).map(move |number| rank(run, number))).collect()
    };
    let found = Diff::between(&side(1.0, 1), &side(1.3, 100));
    assert_eq!(changes(&found), ["slower kernel_5"], "{}", found.screen());
    assert!(found.is_slower());
}

#[test]
fn traces_that_take_no_part_are_named() {
    let side = |first: u64| -> Vec<TraceProfile> {
        (0..4).flat_map(|run| (0..2).map(move |rank| rank_profile(&small(), first + run * 2 + rank, rank))).collect()
    };
    let (a, mut b) = (side(1), side(50));
    let expected = Diff::between(&a, &b);
    // A slow rank that only one side has, a run that lacks a rank, and a short run.
    b.insert(3, rank_profile(&Program { speed: 9.0, ..small() }, 99, 7));
    b.extend((0..2).map(|rank| rank_profile(&Program { speed: 9.0, steps: 3, ..small() }, 90 + rank, rank)));
    b.push(rank_profile(&Program { speed: 9.0, ..small() }, 98, 1));
    let found = Diff::between(&a, &b);
    let left_out: Vec<_> =
        found.b.left_out.iter().map(|left_out| (left_out.trace, left_out.rank, left_out.reason)).collect();
    let expected_left_out = [
        (3, Some(7), LeftOutReason::RankOfOneSide),
        (11, Some(1), LeftOutReason::IncompleteRun),
        (9, Some(0), LeftOutReason::FewSteps),
        (10, Some(1), LeftOutReason::FewSteps),
    ];
    assert_eq!(left_out, expected_left_out);
    assert_eq!((&found.total, &found.parts, &found.classes), (&expected.total, &expected.parts, &expected.classes));
    let text = found.screen().to_string();
    for line in [
        "left out of B: trace 4 (A lacks rank 7)",
        "left out of B: trace 12 (other runs have more ranks)",
        "left out of B: traces 10, 11 (fewer than four steps)",
    ] {
        assert!(text.contains(line) && !text.contains("left out of A"), "{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(json["b"]["left_out"][0], serde_json::json!({"trace": 4, "rank": 7, "reason": "rank_of_one_side"}));
    assert_eq!((&json["b"]["traces"], &json["a"]["left_out"]), (&8.into(), &serde_json::json!([])));
}

#[test]
fn short_ranks_of_one_run_have_no_steps() {
    let side = |factor: f64, first: u64, ranks: u64| -> Vec<TraceProfile> {
        let rank = |rank: u64| {
            let mut program = Program { steps: 3, ..Program::model() };
            program.ops = (0..10).flat_map(|_| program.ops.clone()).collect();
            let slower =
                program.ops.iter_mut().flat_map(|op| &mut op.kernels).filter(|kernel| kernel.name == "kernel_5");
            slower.for_each(|kernel| kernel.ns *= factor);
            rank_profile(&program, first + rank, rank)
        };
        (0..ranks).map(rank).collect()
    };
    for ranks in [1, 2] {
        let found = Diff::between(&side(1.0, 1, ranks), &side(1.5, 50, ranks));
        assert_eq!(found.unit, DiffUnit::Trace);
        assert!(found.is_slower() && changes(&found) == ["slower kernel_5"], "{ranks}: {}", found.screen());
    }
}

#[test]
fn short_trace_hides_no_change() {
    let program = |steps: u32, factor: f64| {
        let mut program = Program { steps, ..Program::model() };
        program.kernel("kernel_5").ns *= factor;
        program
    };
    let (a, mut b) = (runs(&program(40, 1.0), 1, 2), runs(&program(40, 1.5), 10, 2));
    b.push(program(3, 1.5).profile(30));
    let found = Diff::between(&a, &b);
    assert_eq!(changes(&found), ["slower kernel_5"], "{}", found.screen());
    // If all are short, their means are compared.
    let found = Diff::between(&runs(&program(3, 1.0), 1, 3), &runs(&program(3, 3.0), 10, 3));
    assert!(found.is_slower() && changes(&found).contains(&"slower kernel_5".to_owned()), "{}", found.screen());
}

#[test]
fn slow_down_of_few_steps_is_never_silent() {
    for steps in [0, 1, 3] {
        let program = |speed: f64| Program { steps, speed, ..Program::model() };
        let found = diff(&program(1.0), &program(1.3));
        let text = found.screen().to_string();
        assert!(found.is_slower_alike() && found.total.verdict == ChangeVerdict::TooFew, "{steps}: {text}");
        assert!(text.starts_with("The mean ") && text.contains(": too few values to tell"), "{steps}: {text}");
        assert!(!text.contains("slow steps"), "{steps}: {text}");
        let back = diff(&program(1.3), &program(1.0));
        assert!(!back.is_slower() && !back.is_slower_alike());
    }
    // Three of 3 steps are no spread of steps, but of runs.
    let program = |speed: f64| Program { steps: 3, speed, ..Program::model() };
    let found = Diff::between(&runs(&program(1.0), 1, 4), &runs(&program(1.3), 10, 4));
    assert!(found.is_slower(), "{}", found.screen());
}

#[test]
fn side_without_steps_is_named() {
    let found = diff(&Program::model(), &Program { steps: 0, ..Program::model() });
    assert_eq!(found.unit, DiffUnit::Trace);
    assert!(found.screen().to_string().contains("B has fewer than four steps, so whole traces are compared"));
    assert!(!diff(&Program::model(), &Program::model()).screen().to_string().contains("whole traces"));
}

#[test]
fn outliers_hide_no_change() {
    // The first step warms up, and a neighbour disturbs others.
    let before = Program { steps: 50, ..Program::model() };
    let mut after = before.clone();
    after.kernel("kernel_7").ns *= 1.1;
    let disturb = |profile: TraceProfile| {
        let mut profile = profile;
        for class in &mut profile.classes {
            class.steps.iter_mut().step_by(17).for_each(|share| share.ns *= 30);
        }
        profile
    };
    let diff = Diff::between(&[disturb(before.profile(1))], &[after.profile(2)]);
    assert_eq!(changes(&diff), ["slower kernel_7"], "{}", diff.screen());
}
