//! Tests of differences between generated traces, whose changes are known.

mod changes;
mod matches;
mod noise;

use super::outline::Outline;
use super::*;
use crate::analysis::events::Events;
use std::fmt::Write as _;

/// A generator of pseudorandom numbers (xorshift).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number of a distribution with the mean 0 and the deviation 1, nearly normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// An operation of a model: its name, its self time, and the kernels that it launches.
#[derive(Clone)]
struct Op {
    name: String,
    ns: f64,
    kernels: Vec<Kernel>,
    /// The annotation around it.
    module: &'static str,
}

#[derive(Clone)]
struct Kernel {
    name: String,
    ns: f64,
    stream: u32,
    grid: u32,
}

/// The name of a kernel, which steps, and a factor of its time there.
type StepFactor = (&'static str, StepFilter, f64);

type StepFilter = fn(u32) -> bool;

/// A program that runs a list of operations in each step.
#[derive(Clone)]
struct Program {
    ops: Vec<Op>,
    steps: u32,
    /// The relative deviation of each time.
    noise: f64,
    /// How much of a step's deviation the next step keeps.
    memory: f64,
    /// A factor of all times of the run.
    speed: f64,
    /// A factor of all times of the device.
    clock: f64,
    launch: &'static str,
    /// Kernels that take another time in some steps: the name, whether a step is one of them, and a factor; 0 for no event.
    factors: Vec<StepFactor>,
}

fn op(name: &str, ns: f64, kernels: &[(&str, f64)]) -> Op {
    let kernel = |(name, ns): &(&str, f64)| Kernel { name: (*name).to_owned(), ns: *ns, stream: 7, grid: 0 };
    Op { name: name.to_owned(), ns, kernels: kernels.iter().map(kernel).collect(), module: "model" }
}

impl Program {
    fn new(ops: Vec<Op>) -> Program {
        Program {
            ops,
            steps: 40,
            noise: 0.02,
            memory: 0.0,
            speed: 1.0,
            clock: 1.0,
            launch: "cudaLaunchKernel",
            factors: Vec::new(),
        }
    }

    /// A program of twelve operations with a kernel each.
    fn model() -> Program {
        let name = |n: u32| (format!("op_{n}"), format!("kernel_{n}"));
        let op = |n: u32| {
            let (op_name, kernel) = name(n);
            op(&op_name, 3_000.0 + f64::from(n) * 500.0, &[(&kernel, 20_000.0 + f64::from(n * n) * 900.0)])
        };
        Program::new((1..=12).map(op).collect())
    }

    fn kernel(&mut self, name: &str) -> &mut Kernel {
        let all = self.ops.iter_mut().flat_map(|op| &mut op.kernels);
        all.into_iter().find(|kernel| kernel.name == name).unwrap()
    }

    fn json(&self, seed: u64) -> String {
        let mut run = Run { text: String::new(), random: Random::new(seed), at: 0, id: 1, busy_until: 0, step: 0 };
        let mut deviations = vec![0.0; self.ops.iter().map(|op| 1 + op.kernels.len()).sum::<usize>()];
        for step in 0..self.steps.max(1) {
            let start = run.at;
            run.step = step;
            let mut place = deviations.iter_mut();
            let mut module: Option<(&str, u64)> = None;
            run.at += 1_000;
            for op in &self.ops {
                if module.is_some_and(|(name, _)| name != op.module) {
                    run.close_module(&mut module);
                }
                module.get_or_insert((op.module, run.at));
                self.add_op(&mut run, op, &mut || place.next().unwrap());
            }
            run.close_module(&mut module);
            // The step waits for the device.
            let sync = run.at;
            run.at = run.at.max(run.busy_until) + 2_000;
            let length = run.at - sync;
            run.add("cuda_runtime", "cudaDeviceSynchronize", (1, 1), (sync, length), "");
            if self.steps > 0 {
                let length = run.at - start;
                run.add("user_annotation", &format!("ProfilerStep#{step}"), (1, 1), (start, length), "");
            }
            run.at += 500;
        }
        format!("{{\"traceEvents\": [{}]}}", run.text.trim_end_matches(','))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a conversion to u64 saturates")]
    fn add_op<'d>(&self, run: &mut Run, op: &Op, deviation: &mut impl FnMut() -> &'d mut f64) {
        let mut time = |ns: f64, random: &mut Random| {
            let slot = deviation();
            *slot = self.memory * *slot + (1.0 - self.memory.powi(2)).sqrt() * random.normal();
            ((ns * self.speed * (1.0 + self.noise * *slot)).max(0.0)) as u64
        };
        let (start, own) = (run.at, time(op.ns, &mut run.random));
        run.at += own / 2;
        for kernel in &op.kernels {
            let factor = |(name, is_in, factor): &StepFactor| {
                if kernel.name == *name && is_in(run.step) { *factor } else { 1.0 }
            };
            let factor: f64 = self.factors.iter().map(factor).product();
            let (id, ns) = (run.id, time(kernel.ns * factor * self.clock, &mut run.random));
            if factor == 0.0 {
                continue;
            }
            run.id += 1;
            run.add("cuda_runtime", self.launch, (1, 1), (run.at, 1_000), &format!("\"correlation\":{id}"));
            let begin = (run.at + 1_500).max(run.busy_until);
            let grid = if kernel.grid > 0 {
                format!(",\"grid\":[{},1,1],\"block\":[128,1,1]", kernel.grid)
            } else {
                String::new()
            };
            let args = format!("\"correlation\":{id},\"device\":0,\"stream\":{}{grid}", kernel.stream);
            run.add("kernel", &kernel.name, (0, kernel.stream), (begin, ns), &args);
            run.busy_until = begin + ns;
            run.at += 1_200;
        }
        run.at += own - own / 2;
        let length = run.at - start;
        run.add("cpu_op", &op.name, (1, 1), (start, length), "");
        run.at += 300;
    }

    fn profile(&self, seed: u64) -> TraceProfile {
        profile(&self.json(seed))
    }
}

/// A trace that is being written; times are nanoseconds.
struct Run {
    text: String,
    random: Random,
    at: u64,
    id: u64,
    busy_until: u64,
    step: u32,
}

impl Run {
    fn add(&mut self, category: &str, name: &str, (pid, tid): (u32, u32), (start, ns): (u64, u64), args: &str) {
        let micros = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
        let _ = write!(
            self.text,
            "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{},\
             \"args\":{{{args}}}}},",
            micros(start),
            micros(ns)
        );
    }

    fn close_module(&mut self, module: &mut Option<(&str, u64)>) {
        if let Some((name, start)) = module.take().filter(|(name, _)| !name.is_empty()) {
            self.add("user_annotation", name, (1, 1), (start, self.at - start), "");
        }
    }
}

fn profile(json: &str) -> TraceProfile {
    Events::from_reader(json.as_bytes()).unwrap().profile()
}

/// Compares a run of each of two programs.
fn diff(a: &Program, b: &Program) -> Diff {
    Diff::between(&[a.profile(1)], &[b.profile(2)])
}

/// Returns the changes as "verdict name".
fn changes(diff: &Diff) -> Vec<String> {
    diff.changes().map(|change| format!("{} {}", change.verdict.as_str(), change.name())).collect()
}

/// Checks that the totals are the mean steps of both sides.
fn check_means(diff: &Diff, sides: [&[TraceProfile]; 2]) {
    let means = sides.map(|side| {
        let steps: Vec<u64> = side.iter().flat_map(|profile| &profile.steps).copied().collect();
        steps.iter().sum::<u64>() / steps.len() as u64
    });
    assert_eq!([diff.total.a_ns, diff.total.b_ns], means);
}

/// Returns profiles of runs with successive seeds.
fn runs(program: &Program, first: u64, count: u64) -> Vec<TraceProfile> {
    (first..first + count).map(|seed| program.profile(seed)).collect()
}

/// Returns the profile of a rank.
fn rank_profile(program: &Program, seed: u64, rank: u64) -> TraceProfile {
    profile(&program.json(seed).replacen('{', &format!("{{\"distributedInfo\": {{\"rank\": {rank}}}, "), 1))
}

/// Checks that the parts of each side add up to its total exactly.
fn check_parts(diff: &Diff) {
    let sum = |ns: fn(&DiffPart) -> u64| diff.parts.iter().map(ns).sum::<u64>();
    assert_eq!((sum(|part| part.a_ns), sum(|part| part.b_ns)), (diff.total.a_ns, diff.total.b_ns), "{diff:?}");
    assert_eq!(diff.parts.iter().map(DiffPart::change_ns).sum::<i64>(), diff.total.change_ns());
}
