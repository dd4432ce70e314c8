//! Tests of matching by place: traces of two frameworks, and traces that have nothing in common.

use super::*;

/// A model as one framework names it: operations and kernels by index of a list of layers.
fn network(name: impl Fn(&str) -> (String, Vec<String>), launch: &'static str, layers: usize) -> Program {
    let parts: [(&str, f64, &[f64], u32); 6] = [
        ("norm", 4_000.0, &[9_000.0], 64),
        ("matmul", 6_000.0, &[180_000.0], 1024),
        ("softmax", 4_000.0, &[22_000.0], 128),
        ("matmul", 6_000.0, &[90_000.0, 3_000.0], 512),
        ("gelu", 3_000.0, &[14_000.0], 256),
        ("add", 2_000.0, &[7_000.0], 96),
    ];
    let mut ops = Vec::new();
    for layer in 0..layers {
        for (part, ns, kernels, grid) in parts {
            let (op_name, kernel_names) = name(part);
            let kernels = kernels.iter().zip(&kernel_names).map(|(ns, name)| Kernel {
                name: name.clone(),
                ns: ns * (1.0 + layer as f64 / 50.0),
                stream: 7,
                grid,
            });
            ops.push(Op {
                name: op_name,
                ns,
                kernels: kernels.collect(),
                module: if layer % 2 == 0 { "even" } else { "odd" },
            });
        }
    }
    Program { launch, ..Program::new(ops) }
}

fn torch(layers: usize) -> Program {
    let name = |part: &str| {
        let (op, kernels): (&str, &[&str]) = match part {
            "norm" => ("aten::native_layer_norm", &["void at::native::vectorized_layer_norm_kernel<float>"]),
            "matmul" => ("aten::addmm", &["ampere_sgemm_128x64_tn", "void splitKreduce_kernel<32, 16, float>"]),
            "softmax" => ("aten::_softmax", &["void softmax_warp_forward<float>"]),
            "gelu" => ("aten::gelu", &["void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>"]),
            _ => ("aten::add", &["void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>"]),
        };
        (op.to_owned(), kernels.iter().map(|name| (*name).to_owned()).collect())
    };
    network(name, "cudaLaunchKernel", layers)
}

fn candle(layers: usize) -> Program {
    let name = |part: &str| {
        let (op, kernels): (&str, &[&str]) = match part {
            "norm" => ("layer-norm", &["layernorm_f32"]),
            "matmul" => ("matmul", &["gemm_f32", "fast_sum_f32"]),
            "softmax" => ("softmax-last-dim", &["softmax_f32"]),
            "gelu" => ("unary", &["ugelu_f32"]),
            _ => ("binary", &["badd_f32"]),
        };
        (op.to_owned(), kernels.iter().map(|name| (*name).to_owned()).collect())
    };
    network(name, "cuLaunchKernel", layers)
}

/// Returns the shares of device time and of operations that have a counterpart, on both sides.
fn matched_shares(diff: &Diff) -> [f64; 4] {
    let share =
        |kind: ClassKind, weight: &dyn Fn(&ClassSide) -> u64, side: &dyn Fn(&ClassChange) -> Option<&ClassSide>| {
            let of = |is_matched: bool| {
                let classes = diff.classes.iter().filter(|change| change.kind == kind);
                let counted = classes.filter(|change| !is_matched || change.matched != MatchReason::Unmatched);
                counted.filter_map(|change| side(change).map(weight)).sum::<u64>() as f64
            };
            of(true) / of(false)
        };
    [
        share(ClassKind::Work, &|side| side.total_ns, &|change| change.a.as_ref()),
        share(ClassKind::Work, &|side| side.total_ns, &|change| change.b.as_ref()),
        share(ClassKind::Operation, &|side| side.count, &|change| change.a.as_ref()),
        share(ClassKind::Operation, &|side| side.count, &|change| change.b.as_ref()),
    ]
}

/// Returns the names that match a name of the first side.
fn counterpart(diff: &Diff, name: &str) -> Vec<String> {
    let change =
        diff.classes.iter().find(|change| change.a.as_ref().is_some_and(|side| side.names.iter().any(|of| of == name)));
    change.and_then(|change| change.b.clone()).map_or(Vec::new(), |side| side.names)
}

#[test]
fn traces_of_two_frameworks_match_by_place() {
    let diff = diff(&candle(8), &torch(8));
    let shares = matched_shares(&diff);
    assert!(shares.iter().all(|share| *share >= 0.95), "{shares:?} {}", diff.screen().rows(30));
    for (candle, torch) in [
        ("matmul", "aten::addmm"),
        ("unary", "aten::gelu"),
        ("gemm_f32", "ampere_sgemm_128x64_tn"),
        ("softmax_f32", "void softmax_warp_forward<float>"),
        ("cuLaunchKernel", "cudaLaunchKernel"),
    ] {
        assert_eq!(counterpart(&diff, candle), [torch], "{}", diff.screen().rows(30));
    }
    assert!(diff.screen().rows(30).to_string().contains("(matched by place: "));
    assert!(changes(&diff).is_empty(), "{}", diff.screen());
    check_parts(&diff);
}

#[test]
fn slower_kernel_is_found_across_frameworks() {
    let mut slower = torch(8);
    let gelu = "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>";
    slower
        .ops
        .iter_mut()
        .flat_map(|op| &mut op.kernels)
        .filter(|kernel| kernel.name == gelu)
        .for_each(|kernel| kernel.ns *= 1.3);
    let diff = diff(&candle(8), &slower);
    assert_eq!(changes(&diff), [format!("slower {gelu}")], "{}", diff.screen());
    assert_eq!(diff.changes().next().unwrap().matched, MatchReason::Place);
}

#[test]
fn names_without_meaning_match_by_place() {
    let meaningless = |prefix: &'static str| {
        let name = move |part: &str| {
            let number: u32 = part.bytes().map(u32::from).sum();
            (format!("{prefix}{number}"), vec![format!("{prefix}k{number}"), format!("{prefix}j{number}")])
        };
        network(name, "cudaLaunchKernel", 6)
    };
    let diff = diff(&meaningless("x"), &meaningless("y"));
    let shares = matched_shares(&diff);
    assert!(shares.iter().all(|share| *share >= 0.95), "{shares:?} {}", diff.screen().rows(30));
}

#[test]
fn operations_match_though_one_side_nests_deeper() {
    let mut outer = torch(6);
    // One framework has no annotations around its layers.
    outer.ops.iter_mut().for_each(|op| op.module = "");
    let diff = diff(&candle(6), &outer);
    let shares = matched_shares(&diff);
    assert!(shares.iter().all(|share| *share >= 0.95), "{shares:?} {}", diff.screen().rows(30));
}

#[test]
fn kernels_that_depend_on_sizes_match_as_a_group() {
    let mut sized = torch(8);
    let gemms = sized.ops.iter_mut().flat_map(|op| &mut op.kernels).filter(|kernel| kernel.name.contains("sgemm"));
    gemms.step_by(2).for_each(|kernel| kernel.name = "ampere_sgemm_64x32_tn".to_owned());
    let diff = diff(&candle(8), &sized);
    let mut names = counterpart(&diff, "gemm_f32");
    names.sort();
    assert_eq!(names, ["ampere_sgemm_128x64_tn", "ampere_sgemm_64x32_tn"], "{}", diff.screen().rows(30));
}

#[test]
fn unrelated_traces_stay_new_and_gone() {
    let unrelated = |seed: u64, prefix: &str| {
        let mut random = Random::new(seed);
        let op = |n: u32| {
            let mut time = || 1_000.0 * 10f64.powf(2.0 * random.uniform());
            let kernels: Vec<_> = (0..n % 4).map(|k| (format!("{prefix}_kernel_{n}_{k}"), time())).collect();
            let kernels: Vec<_> = kernels.iter().map(|(name, ns)| (name.as_str(), *ns)).collect();
            op(&format!("{prefix}_{n}"), 5_000.0, &kernels)
        };
        let ops = if seed.is_multiple_of(2) { 17 } else { 23 };
        let mut program = Program::new((0..ops).map(op).collect());
        program.ops.iter_mut().for_each(|op| op.module = "");
        program
    };
    for seed in 0..10 {
        let mut other = unrelated(seed * 2 + 101, "pear");
        other.ops.rotate_left(5);
        let diff = diff(&unrelated(seed * 2, "apple"), &other);
        let placed =
            diff.classes.iter().filter(|change| change.matched == MatchReason::Place && change.kind != ClassKind::Call);
        assert_eq!(placed.count(), 0, "{seed} {}", diff.screen().rows(30));
    }
}
