//! Waits on a virtual clock.
#![cfg(all(feature = "virtual-clock", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "tests")]

use kineto_base::channel::{bounded, channel};
use kineto_base::clock::{Anchor, Converter, now};
use kineto_base::os::datagram::wait_readable;
use kineto_base::os::thread::spawn;
use kineto_base::wait::virtual_clock::selected;
use kineto_base::wait::{park_until, sleep, steady, unpark, wall};
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use test_base::virtual_time;

const SECOND: Duration = Duration::from_secs(1);

/// Starts a thread that notes the seconds at which it is awake.
fn sleeper(times: &Arc<Mutex<Vec<u64>>>, every: u32, count: u32) {
    let (times, begin) = (times.clone(), steady());
    let sleeps = move || {
        for _ in 0..count {
            sleep(every * SECOND);
            times.lock().unwrap().push((steady() - begin).as_secs());
        }
    };
    drop(spawn("sleeper", Box::new(sleeps)).unwrap());
}

#[test]
fn time_passes_only_by_advances_and_is_one_for_all_clocks() {
    virtual_time(|clock| {
        let (begin, wall, ticks) = (steady(), wall(), now());
        std::thread::sleep(Duration::from_millis(5));
        assert!(steady() - begin < Duration::from_micros(1));
        clock.advance(3 * SECOND);
        let passed = [steady() - begin, kineto_base::wait::wall().duration_since(wall).unwrap()];
        passed.iter().for_each(|passed| assert!((*passed - 3 * SECOND) < Duration::from_micros(1)));
        let converter = Converter::new(vec![Anchor::read_clocks(), Anchor::read_clocks()]);
        let end = now();
        assert!(end.0 - ticks.0 - 3_000_000_000 < 1_000);
        assert_eq!(converter.timestamp_of(end).since(converter.timestamp_of(ticks)), end.0 - ticks.0);
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    virtual_time(|clock| {
        let times = Arc::default();
        sleeper(&times, 3, 4);
        sleeper(&times, 7, 2);
        clock.advance(6 * SECOND);
        assert_eq!(*times.lock().unwrap(), [3, 6]);
        clock.advance(SECOND / 2);
        assert_eq!(times.lock().unwrap().len(), 2, "nothing is due");
        clock.advance(3600 * SECOND);
        assert_eq!(*times.lock().unwrap(), [3, 6, 7, 9, 12, 14]);
    });
}

#[test]
fn fine_steps_show_what_one_large_step_shows() {
    virtual_time(|clock| {
        let times = Arc::default();
        sleeper(&times, 1, 3);
        (0..3_000).for_each(|_| clock.advance(SECOND / 1000));
        assert_eq!(*times.lock().unwrap(), [1, 2, 3]);
    });
}

#[test]
fn advance_returns_when_all_that_it_caused_is_done() {
    virtual_time(|clock| {
        let ((first, second), (results, all)) = (channel(), channel());
        let passes = move || {
            while let Ok(n) = second.recv() {
                // Work that takes real time.
                std::thread::yield_now();
                let sum: u64 = std::hint::black_box((0..1_000_000_u64).sum());
                results.send(n * sum).unwrap();
            }
        };
        drop(spawn("second", Box::new(passes)).unwrap());
        let begins = move || {
            for n in 0..10_u64 {
                sleep(SECOND);
                first.send(n).unwrap();
            }
        };
        drop(spawn("first", Box::new(begins)).unwrap());
        for n in 0..10 {
            clock.advance(SECOND);
            assert_eq!(all.try_recv().map(|sum| sum / 499_999_500_000), Ok(n));
            assert!(all.try_recv().is_err());
        }
    });
}

#[test]
fn limits_of_waits_are_those_of_the_clock() {
    virtual_time(|clock| {
        let (sender, receiver) = bounded::<()>(1);
        let (ended, ends) = channel();
        let waits = move || ended.send(receiver.recv_timeout(SECOND)).unwrap();
        drop(spawn("waits", Box::new(waits)).unwrap());
        clock.advance(SECOND / 2);
        assert!(ends.try_recv().is_err());
        clock.advance(SECOND / 2);
        assert_eq!(ends.try_recv(), Ok(Err(RecvTimeoutError::Timeout)));
        drop(sender);
    });
}

#[test]
fn parked_thread_is_woken_by_a_thread_or_by_the_clock() {
    virtual_time(|clock| {
        let (ended, ends) = channel();
        let parks = move || {
            let begin = steady();
            for _ in 0..2 {
                park_until(Some(begin + 5 * SECOND));
                ended.send((steady() - begin).as_secs()).unwrap();
            }
        };
        let thread = spawn("parks", Box::new(parks)).unwrap();
        clock.advance(2 * SECOND);
        unpark(thread.thread());
        clock.settle();
        assert_eq!((ends.try_recv(), ends.try_recv().is_err()), (Ok(2), true));
        clock.advance(9 * SECOND);
        assert_eq!(ends.try_recv(), Ok(5));
    });
}

#[test]
fn time_passes_by_itself_while_something_waits_for_it() {
    virtual_time(|clock| {
        let (begin, machine) = (steady(), Instant::now());
        clock.run(|| (0..24).for_each(|_| sleep(3600 * SECOND)));
        assert!(steady() - begin - 86_400 * SECOND < SECOND);
        assert!(machine.elapsed() < 3600 * SECOND);
    });
}

/// Else a thread that waits for a descriptor would be late by all the steps that others take meanwhile.
#[test]
fn time_does_not_pass_a_wait_for_a_descriptor() {
    virtual_time(|clock| {
        let (begin, step) = (steady(), Duration::from_millis(10));
        let ended = Mutex::new(None);
        let is_over = || ended.lock().unwrap().is_some();
        clock.run(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    wait_readable(&[], 10 * step);
                    *ended.lock().unwrap() = Some(steady() - begin);
                });
                while !is_over() {
                    sleep(step);
                }
            });
        });
        let ended = ended.into_inner().unwrap().unwrap();
        assert!(ended >= 10 * step && ended < 11 * step, "{ended:?}");
    });
}

#[test]
fn time_passes_after_processes_ended_in_a_wait() {
    virtual_time(|clock| {
        let begin = steady();
        // More than may use the clock at once.
        for _ in 0..20 {
            let mut child = Command::new(std::env::current_exe().unwrap());
            let output = child.args(["--ignored", "--exact", "child_that_ends_in_a_wait"]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            clock.advance(2 * SECOND);
        }
        assert_eq!((steady() - begin).as_secs(), 40);
    });
}

#[test]
#[ignore = "run by another test"]
fn child_that_ends_in_a_wait() {
    drop(spawn("waits", Box::new(|| sleep(SECOND))).unwrap());
    selected().unwrap().settle();
}
