//! Profiles bevy without a window: its schedules, systems and parallel queries, through its own `trace` feature.
//!
//! ```sh
//! cd examples/bevy && cargo run --release [FILE.pt.trace.json.gz]
//! ```
//!
//! bevy creates the span of a system once and enters it in every update, on whichever pool thread runs the system. Several
//! threads may enter the span of a parallel query at once.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

use bevy_app::{App, PostUpdate, Startup, TaskPoolOptions, TaskPoolPlugin, Update};
use bevy_ecs::prelude::*;
use tracing_kineto::activity::{Body, Lane};
use tracing_kineto::{KinetoLayer, Trace, annotate, counter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const UPDATES: u32 = 60;
const BALLS: u16 = 4000;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "bevy.pt.trace.json.gz".into());
    let (layer, guard) = KinetoLayer::builder().output(&path).metadata("scene", "4000 balls in a box").build()?;
    tracing_subscriber::registry().with(layer).init();

    let mut app = balls_in_a_box();
    for update in 0..UPDATES {
        let _step = annotate!("ProfilerStep#{}", update).entered();
        app.update();
    }
    let bounces = app.world().resource::<Bounces>().0.load(Ordering::Relaxed);
    drop(app);

    let trace = guard.finish()?;
    trace.save(&path)?;
    println!("{BALLS} balls bounced {bounces} times in {UPDATES} updates.");
    describe(&trace);
    println!("The trace is in {path}; drag it onto https://ui.perfetto.dev.");
    Ok(())
}

/// The position of a ball, in a box from -1 to 1.
#[derive(Component)]
struct Position([f32; 2]);

/// The distance that a ball moves in one update.
#[derive(Component)]
struct Velocity([f32; 2]);

/// The number of updates that a ball still lives.
#[derive(Component)]
struct Age(u32);

#[derive(Resource, Default)]
struct Bounces(AtomicU32);

fn balls_in_a_box() -> App {
    let mut app = App::new();
    // More threads than a small machine has cores: with fewer, bevy does not split a query.
    app.add_plugins(TaskPoolPlugin { task_pool_options: TaskPoolOptions::with_num_threads(8) });
    app.init_resource::<Bounces>();
    app.add_systems(Startup, spawn_all);
    app.add_systems(Update, (move_balls, bounce, count_bounces).chain());
    app.add_systems(PostUpdate, (centre, energy, replace_old));
    app
}

fn spawn_all(mut commands: Commands) {
    commands.spawn_batch((0..BALLS).map(ball));
}

/// Creates a ball with its own position and direction.
fn ball(number: u16) -> (Position, Velocity, Age) {
    let angle = f32::from(number) * 2.4;
    let speed = 0.01 + 0.03 * (angle * 7.0).sin().abs();
    (Position([0.0; 2]), Velocity([speed * angle.cos(), speed * angle.sin()]), Age(20 + u32::from(number) % 400))
}

fn move_balls(mut balls: Query<(&mut Position, &Velocity)>) {
    balls.par_iter_mut().for_each(|(mut position, velocity)| {
        position.0.iter_mut().zip(velocity.0).for_each(|(p, v)| *p += v);
    });
}

fn bounce(mut balls: Query<(&Position, &mut Velocity)>, bounces: Res<Bounces>) {
    balls.par_iter_mut().for_each(|(position, mut velocity)| {
        for (p, v) in position.0.iter().zip(&mut velocity.0) {
            if p.abs() > 1.0 && p.signum() == v.signum() {
                *v = -*v;
                bounces.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
}

fn count_bounces(bounces: Res<Bounces>) {
    counter!("bounces", total = bounces.0.load(Ordering::Relaxed));
}

/// Runs at the same time as [`energy`]: both only read.
fn centre(balls: Query<&Position>, mut mean: Local<[f32; 2]>) {
    let count = balls.iter().count().max(1) as f32;
    *mean = balls.iter().fold([0.0; 2], |[x, y], ball| [x + ball.0[0] / count, y + ball.0[1] / count]);
}

fn energy(balls: Query<&Velocity>, mut total: Local<f32>) {
    *total = balls.iter().map(|ball| ball.0[0].powi(2) + ball.0[1].powi(2)).sum();
}

/// Despawns old balls and spawns new ones, when the update's commands are applied.
fn replace_old(mut commands: Commands, mut balls: Query<(Entity, &mut Age)>, mut next: Local<u16>) {
    for (entity, mut age) in &mut balls {
        age.0 -= 1;
        if age.0 == 0 {
            commands.entity(entity).despawn();
            commands.spawn(ball(*next));
            *next = next.wrapping_add(1);
        }
    }
}

/// Prints how often each span ran, the total time, and the number of threads.
fn describe(trace: &Trace) {
    let mut spans = BTreeMap::<String, (u32, u64, BTreeSet<i64>)>::new();
    trace.for_each(|activity| {
        if let (Body::Slice { start, end }, Lane::Id(thread)) = (activity.body, activity.track.thread) {
            let (count, total, threads) = spans.entry(activity.name.to_owned()).or_default();
            *count += 1;
            *total += end.since(start);
            threads.insert(thread);
        }
    });
    println!("\n{:<28} {:>8} {:>10} {:>8}", "span", "count", "total ms", "threads");
    for (name, (count, total, threads)) in spans.iter().filter(|(name, _)| !name.contains('#')) {
        println!("{name:<28} {count:>8} {:>10.3} {:>8}", *total as f64 / 1e6, threads.len());
    }
}
