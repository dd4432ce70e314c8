//! Other profilers in the process: those that share libcupti, and those that exclude others.

use other::{Form, OtherProfiler};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::cuda;
use support::cuda::Cuda;
use support::gpu::{PATIENCE, in_child, machine};
use support::wait::sleep;
use support::{name_of, virtual_time};
use tracing_kineto::activity::CorrelationId;
use tracing_kineto::integration::trial::{Findings, Trial, TrialRecord};
use tracing_kineto::integration::{Cupti, Options, Recording, Selection, Unavailable, Why};
use tracing_kineto::{ActivityType, ActivityTypes, Loss};

/// A profiler that counts the kernels in its own records.
#[allow(unsafe_code, reason = "a profiler calls libcupti, which is foreign code")]
mod other {
    use std::ffi::{CStr, c_char, c_void};
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use support::cuda;

    /// The functions by which it subscribes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Form {
        First,
        Shared,
        Alone,
    }

    pub(super) const NAME: &CStr = c"another profiler";
    const KERNELS: u32 = 10;
    const BUFFER_BYTES: usize = 1 << 20;

    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    static KERNELS_SEEN: AtomicUsize = AtomicUsize::new(0);
    /// Kernels whose records have no end.
    static KERNELS_CUT: AtomicUsize = AtomicUsize::new(0);
    /// The offset of the end in a kernel's record.
    const END_AT: usize = 24;

    /// `CUpti_SubscriberParams`.
    #[repr(C)]
    struct Params {
        size: usize,
        name: *const c_char,
        other_name: *mut c_char,
        other_name_bytes: usize,
        allows_others: u8,
    }

    pub(super) struct OtherProfiler {
        form: Form,
        handle: usize,
    }

    macro_rules! call {
        ($name:literal, $($argument:expr => $type:ty),*) => {{
            type Function = extern "C" fn($($type),*) -> i32;
            // SAFETY: the simulator's function of that name has this type.
            let function = unsafe { *cuda::cupti().get::<Function>(concat!($name, "\0").as_bytes()).unwrap() };
            function($($argument),*)
        }};
    }

    type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);

    extern "C" fn ignore(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

    extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
        // Leaked, as a test needs few.
        let memory = Box::leak(vec![0u64; BUFFER_BYTES / 8].into_boxed_slice());
        // SAFETY: the simulator passes a valid place.
        unsafe { buffer.write(memory.as_mut_ptr().cast()) };
        // SAFETY: the same.
        unsafe { size.write(BUFFER_BYTES) };
        // SAFETY: the same.
        unsafe { most.write(0) };
    }

    extern "C" fn shared_requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize, _: *const c_void) {
        requested(buffer, size, most);
    }

    extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
        count_kernels(
            |record| call!("cuptiActivityGetNextRecord", buffer => *mut u8, valid => usize, record => *mut *mut u8),
        );
    }

    extern "C" fn shared_completed(buffer: *mut u8, _: usize, valid: usize, _: *const c_void) {
        let handle = HANDLE.load(Ordering::Relaxed);
        count_kernels(|record| {
            call!(
                "cuptiActivityGetNextRecord_v2",
                handle => usize, buffer => *mut u8, valid => usize, record => *mut *mut u8
            )
        });
    }

    fn count_kernels(next: impl Fn(*mut *mut u8) -> i32) {
        let mut record = null_mut();
        while next(&raw mut record) == 0 {
            // SAFETY: each record begins with its kind.
            let kind = unsafe { record.cast::<u32>().read_unaligned() };
            if kind == KERNELS {
                KERNELS_SEEN.fetch_add(1, Ordering::Relaxed);
                // SAFETY: a kernel's record is longer than that.
                let end = unsafe { record.wrapping_byte_add(END_AT).cast::<u64>().read_unaligned() };
                KERNELS_CUT.fetch_add(usize::from(end == 0), Ordering::Relaxed);
            }
        }
    }

    impl OtherProfiler {
        /// Subscribes; returns CUPTI's error and the name of the subscriber that excludes it.
        pub(super) fn subscribe(form: Form) -> Result<OtherProfiler, (i32, String)> {
            let (mut handle, mut other) = (0, [0u8; 64]);
            let code = if form == Form::First {
                call!("cuptiSubscribe", &raw mut handle => *mut usize, ignore => Callback, null_mut() => *mut c_void)
            } else {
                let mut params = Params {
                    size: size_of::<Params>(),
                    name: NAME.as_ptr(),
                    other_name: other.as_mut_ptr().cast(),
                    other_name_bytes: other.len(),
                    allows_others: (form == Form::Shared).into(),
                };
                call!(
                    "cuptiSubscribe_v2",
                    &raw mut handle => *mut usize, ignore => Callback, null_mut() => *mut c_void,
                    &raw mut params => *mut Params
                )
            };
            if code != 0 {
                let name = CStr::from_bytes_until_nul(&other).unwrap().to_string_lossy().into_owned();
                return Err((code, name));
            }
            Ok(OtherProfiler { form, handle })
        }

        /// Records kernels; returns CUPTI's error.
        pub(super) fn start(&self) -> i32 {
            HANDLE.store(self.handle, Ordering::Relaxed);
            KERNELS_SEEN.store(0, Ordering::Relaxed);
            KERNELS_CUT.store(0, Ordering::Relaxed);
            let handle = self.handle;
            if self.form == Form::First {
                type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
                type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
                match call!("cuptiActivityRegisterCallbacks", requested => Requested, completed => Completed) {
                    0 => call!("cuptiActivityEnable", KERNELS => u32),
                    code => code,
                }
            } else {
                type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const c_void);
                type Completed = extern "C" fn(*mut u8, usize, usize, *const c_void);
                let code = call!(
                    "cuptiActivityRegisterCallbacks_v2",
                    handle => usize, shared_requested => Requested, shared_completed => Completed
                );
                assert_eq!(code, 0);
                call!("cuptiActivityEnable_v2", handle => usize, KERNELS => u32, null() => *const c_void)
            }
        }

        /// Returns how many kernels it has seen without their end.
        pub(super) fn cut_kernels(&self) -> usize {
            KERNELS_CUT.load(Ordering::Relaxed)
        }

        /// Unsubscribes; returns how many kernels it has seen.
        pub(super) fn stop(self) -> usize {
            call!("cuptiActivityFlushAll", 1 => u32);
            if self.form == Form::First {
                call!("cuptiActivityDisable", KERNELS => u32);
            } else {
                call!("cuptiActivityDisable_v2", self.handle => usize, KERNELS => u32, null() => *const c_void);
            }
            assert_eq!(call!("cuptiUnsubscribe", self.handle => usize), 0);
            KERNELS_SEEN.load(Ordering::Relaxed)
        }
    }
}

const LAUNCHES: usize = 20;
const TYPES: ActivityTypes = ActivityTypes::of(&[
    ActivityType::ConcurrentKernel,
    ActivityType::GpuMemset,
    ActivityType::CudaRuntime,
    ActivityType::CudaDriver,
    ActivityType::ExternalCorrelation,
    ActivityType::CudaSync,
]);

fn launch(cuda: &Cuda) {
    let stream = cuda.stream();
    let kernel = cuda.only_kernel("work");
    (0..LAUNCHES).for_each(|_| cuda.launch(kernel, 1, stream));
    cuda.synchronize();
}

/// Records with these options set.
fn record(options: &[&'static str], work: impl FnOnce(&dyn Recording)) -> Result<Findings, Unavailable> {
    let mut selection = Selection::of(TYPES);
    options.iter().for_each(|option| selection.options.set(option, true));
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection)?;
    work(trial.recording());
    Ok(trial.stop(PATIENCE))
}

fn kernels(found: &Findings) -> usize {
    found.of(ActivityType::ConcurrentKernel).count()
}

/// Records while another profiler does, which has subscribed before. Returns how many kernels both have seen.
fn after_the_other(cuda: &Cuda, options: &[&'static str], form: Form) -> (Result<usize, Unavailable>, usize) {
    let other = OtherProfiler::subscribe(form).unwrap_or_else(|error| panic!("{form:?}: {error:?}"));
    assert_eq!(other.start(), 0, "{form:?}");
    let ours = record(options, |_| launch(cuda));
    if ours.is_err() {
        launch(cuda);
    }
    (ours.map(|found| kernels(&found)), other.stop())
}

/// Records; meanwhile another profiler subscribes. Returns how many kernels both have seen, or the other's error.
fn before_the_other(cuda: &Cuda, options: &[&'static str], form: Form) -> (usize, Result<usize, (i32, String)>) {
    let mut theirs = Ok(0);
    let ours = record(options, |_| {
        let started = OtherProfiler::subscribe(form).and_then(|other| match other.start() {
            0 => Ok(other),
            code => {
                other.stop();
                Err((code, String::new()))
            }
        });
        launch(cuda);
        theirs = started.map(OtherProfiler::stop);
    });
    (kernels(&ours.unwrap()), theirs)
}

#[virtual_time]
fn profilers_that_share_see_all_kernels() {
    for version in ["13.4", "13.5"] {
        let machine = machine(&format!("cupti={version}"));
        let (ours, theirs) = after_the_other(&machine, &[], Form::Shared);
        assert_eq!((ours.unwrap(), theirs), (LAUNCHES, LAUNCHES), "{version}");
        assert_eq!(before_the_other(&machine, &[], Form::Shared), (LAUNCHES, Ok(LAUNCHES)), "{version}");
    }
}

#[virtual_time]
fn stops_keep_the_ends_of_another_profilers_kernels() {
    const ROUNDS: usize = 3;
    let machine = machine("cupti=13.4,no_finish=endless");
    let other = OtherProfiler::subscribe(Form::Shared).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(other.start(), 0);
    // Any forced flush cuts it.
    machine.launch(machine.only_kernel("endless"), 1, machine.stream());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            machine.set_current(machine.context(0));
            let (kernel, streams) = (machine.only_kernel("work_us5000"), [(); 64].map(|()| machine.stream()));
            let mut streams = streams.into_iter().cycle();
            // The device is never idle, so a stop waits until the library's buffer is full: that must not take until its time limit.
            while !is_over.load(Ordering::Relaxed) {
                streams.by_ref().take(10).for_each(|stream| machine.launch(kernel, 1, stream));
                sleep(Duration::from_millis(1));
            }
            cuda::finish();
            machine.synchronize();
        });
        for round in 0..ROUNDS {
            let found = record(&[], |_| sleep(Duration::from_millis(5)));
            let kernels = found.map(|found| kernels(&found)).unwrap();
            assert!(kernels >= 50, "{round}: {kernels}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let cut = other.cut_kernels();
    let seen = other.stop();
    assert!(seen >= ROUNDS * 50 && cut == 0, "{cut} of {seen} are cut");
}

/// Checks that the profiler that subscribes first records, and that the other one is refused with a reason.
fn check_exclusion(cuda: &Cuda, options: &[&'static str], form: Form, says: &str, code: i32) {
    let (ours, theirs) = after_the_other(cuda, options, form);
    assert_eq!(theirs, LAUNCHES, "{form:?}");
    let reason = ours.unwrap_err().to_string();
    assert!(reason.contains(says), "{form:?}: {reason}");
    let (ours, theirs) = before_the_other(cuda, options, form);
    assert_eq!(ours, LAUNCHES, "{form:?}");
    let (refused, name) = theirs.unwrap_err();
    let own = if options.is_empty() { "tracing-kineto" } else { "<not provided>" };
    assert!(name.is_empty() || name == format!("CUPTI for {own}"), "{form:?}: {name}");
    assert_eq!(refused, code, "{form:?}");
}

// Shows the key CUPTI_EXCLUSIVE.
#[virtual_time]
fn first_of_two_profilers_excludes_the_other() {
    let machine = machine("cupti=13.5");
    check_exclusion(&machine, &[], Form::Alone, "`another profiler`", 39);
    // Next to a shared subscriber, the first version's subscription succeeds, and its calls fail.
    check_exclusion(&machine, &[], Form::First, "PyTorch's profiler", 14);
    // A process that has shared libcupti does not return, so this is another process.
    in_child(name_of(child_that_excludes_others), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_excludes_others() {
    let cuda = Cuda::with("cupti=13.5");
    let exclusive = ["CUPTI_EXCLUSIVE"];
    check_exclusion(&cuda, &exclusive, Form::Alone, "`another profiler`", 39);
    check_exclusion(&cuda, &exclusive, Form::First, "PyTorch's profiler", 39);
    check_exclusion(&cuda, &exclusive, Form::Shared, "without CUPTI_EXCLUSIVE", 39);
    // The first version makes one record of a graph.
    let stream = cuda.stream();
    let kernel = cuda.only_kernel("node");
    let graph = cuda.graph(stream, || (0..4).for_each(|_| cuda.launch(kernel, 1, stream)));
    let found = record(&["CUDA_GRAPH_TRACE"], |_| {
        cuda.launch_graph(graph, stream);
        cuda.synchronize();
    });
    assert_eq!(kernels(&found.unwrap()), 1);
}

#[virtual_time]
fn attached_tool_is_named() {
    let _machine = machine("cupti=13.5,busy=1");
    for options in [&[][..], &["CUPTI_EXCLUSIVE"]] {
        let reason = record(options, |_| ()).unwrap_err();
        assert_eq!(reason.why(), Why::Busy);
        assert!(reason.message().contains("`a tool`"), "{reason}");
    }
}

#[virtual_time]
fn profiler_that_shares_is_named() {
    let _machine = machine("cupti=13.4");
    let other = OtherProfiler::subscribe(Form::Shared).unwrap_or_else(|error| panic!("{error:?}"));
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &Selection::of(TYPES)).unwrap();
    let note = "libcupti is shared with `another profiler`".to_owned();
    assert!(trial.capabilities().notes.contains(&note), "{:?}", trial.capabilities());
    drop(trial);
    other.stop();
}

// Shows the key CUPTI_HARDWARE_TIMES.
#[virtual_time]
fn hardware_times_are_noted_where_they_are_refused() {
    for (version, error, says) in [
        ("13.5", 27, Some("NOT_SUPPORTED")),
        ("13.5", 0, None),
        ("13.0", 43, Some("MIG")),
        ("13.0", 0, None),
        ("12.4", 0, Some("NOT_IMPLEMENTED")),
    ] {
        let machine = machine(&format!("cupti={version},hardware_times_error={error}"));
        let mut selection = Selection::of(TYPES);
        selection.options.set("CUPTI_HARDWARE_TIMES", true);
        let cupti = Cupti::new(&Options::default());
        let trial = Trial::start(&cupti, &selection).unwrap();
        let note = trial.capabilities().notes.iter().find(|note| note.contains("those of the hardware"));
        assert_eq!(note.is_some(), says.is_some(), "{version}: {error}");
        assert!(says.is_none_or(|says| note.unwrap().contains(says)), "{version}: {note:?}");
        launch(&machine);
        assert_eq!(kernels(&trial.stop(PATIENCE)), LAUNCHES);
    }
}

#[virtual_time]
fn full_buffer_of_hardware_times_is_noted() {
    for (settings, asks, is_noted) in [("", true, true), ("", false, false), ("hardware_times_error=27", true, false)] {
        let machine = machine(&format!("cupti=13.5,hardware_times_error=0,timestamp_zero=1,{settings}"));
        let mut selection = Selection::of(TYPES);
        selection.options.set("CUPTI_HARDWARE_TIMES", asks);
        let cupti = Cupti::new(&Options::default());
        let trial = Trial::start(&cupti, &selection).unwrap();
        launch(&machine);
        let found = trial.stop(PATIENCE);
        let note = format!("{LAUNCHES} records of device work without times: the hardware's buffer of times was full");
        assert_eq!(found.notes.iter().any(|known| known.starts_with(&note)), is_noted, "{:?}", found.notes);
    }
}

#[virtual_time]
fn driver_that_refuses_to_share_is_used_alone() {
    // A process that has shared libcupti does not return, so this is another process.
    in_child(name_of(child_that_cannot_share), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_cannot_share() {
    let cuda = Cuda::with("cupti=13.5,shared_timestamp_error=999");
    assert_eq!(kernels(&record(&[], |_| launch(&cuda)).unwrap()), LAUNCHES);
    assert_eq!((cuda::count("subscribes"), cuda::count("unsubscribes")), (2, 2));
}

// Shows the key CUPTI_ALL_FIELDS.
#[virtual_time]
fn selected_fields_give_the_same_records() {
    let machine = machine("cupti=13.5");
    let (stream, memory) = (machine.stream(), machine.allocate(4096));
    let kernel = machine.only_kernel("work_regs64_smem1024");
    let records = |options: &[&'static str]| {
        let found = record(options, |recording| {
            assert!(recording.push(CorrelationId(77)));
            machine.launch(kernel, 3, stream);
            machine.memset(memory, 7, stream);
            recording.pop();
            machine.synchronize();
        });
        let content = |record: &TrialRecord| {
            let varies = |key: &str| ["correlation", "memory bandwidth (GB/s)"].contains(&key);
            let args: Vec<_> = record.args.iter().filter(|(key, _)| !varies(key)).cloned().collect();
            (record.kind, record.name.clone(), record.external, record.launches, record.device, args)
        };
        let mut records: Vec<_> = found.unwrap().records.iter().map(content).collect();
        records.sort_by_key(|record| format!("{record:?}"));
        records
    };
    let selected = records(&[]);
    assert!(selected.len() >= 4, "{selected:?}");
    assert_eq!(selected, records(&["CUPTI_ALL_FIELDS"]));
    assert_eq!(selected, records(&["CUPTI_EXCLUSIVE"]));
}

#[virtual_time]
fn fields_that_libcupti_lacks_are_zero() {
    for (kind, field) in [(10, 31), (10, 45), (10, 4), (5, 7), (39, 1), (38, 7)] {
        let machine = machine(&format!("cupti=13.5,without_field={field}:{kind}"));
        let found = record(&[], |_| launch(&machine)).unwrap();
        assert_eq!((kernels(&found), found.lost(Loss::DeviceRecordsUnread)), (LAUNCHES, 0), "{kind}: {field}");
    }
}

#[virtual_time]
fn refused_field_selects_none() {
    for (kind, field) in [(10, 45), (5, 7), (38, 7)] {
        let machine = machine(&format!("cupti=13.5,refused_field={field}:{kind}"));
        let cupti = Cupti::new(&Options::default());
        let trial = Trial::start(&cupti, &Selection::of(TYPES)).unwrap();
        assert_eq!(
            (trial.capabilities().types, trial.capabilities().notes.len()),
            (TYPES, 0),
            "{:?}",
            trial.capabilities()
        );
        launch(&machine);
        assert_eq!(kernels(&trial.stop(PATIENCE)), LAUNCHES, "{kind}: {field}");
    }
}

#[virtual_time]
fn exclusive_recording_may_follow_a_shared_one() {
    let machine = machine("cupti=13.5");
    assert_eq!(kernels(&record(&[], |_| launch(&machine)).unwrap()), LAUNCHES);
    let (ours, theirs) = before_the_other(&machine, &["CUPTI_EXCLUSIVE"], Form::Shared);
    assert_eq!((ours, theirs.unwrap_err().0), (LAUNCHES, 39));
    let found = record(&["TEARDOWN_CUPTI"], |_| launch(&machine)).unwrap();
    assert!(found.notes.iter().any(|note| note.contains("was not detached")), "{:?}", found.notes);
    assert_eq!(kernels(&found), LAUNCHES);
}

#[virtual_time]
fn stops_during_launches_leave_memory_for_the_next() {
    let machine = machine("cupti=13.5,no_finish=endless");
    let (endless, kernel) = (machine.only_kernel("endless"), machine.only_kernel("work"));
    let mut selection = Selection::of(ActivityType::ConcurrentKernel.into());
    // Few buffers, so that those that do not come back are soon missed.
    selection.buffer_bytes = 512 << 10;
    for round in 0..30 {
        let cupti = Cupti::new(&Options::default());
        let trial = Trial::start(&cupti, &selection).unwrap();
        let stream = machine.stream();
        machine.launch(kernel, 1, stream);
        machine.synchronize();
        let is_over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            // What is launched after the end is not waited for, so its buffer is out when the subscriber leaves.
            scope.spawn(|| {
                machine.set_current(machine.context(0));
                while !is_over.load(Ordering::Relaxed) {
                    (0..10).for_each(|_| machine.launch(endless, 1, stream));
                    sleep(Duration::from_micros(200));
                }
            });
            sleep(Duration::from_millis(2));
            let found = trial.stop(Duration::from_millis(10));
            is_over.store(true, Ordering::Relaxed);
            found
        });
        cuda::finish();
        let recorded = found.of(ActivityType::ConcurrentKernel).any(|kernel| kernel.name == "work");
        assert!(recorded, "{round}: {:?}", found.losses);
    }
}

#[virtual_time]
fn records_with_a_bad_layout_are_counted() {
    for fault in 1..=3 {
        let machine = machine(&format!("cupti=13.5,layout_fault={fault}"));
        let found = record(&[], |recording| {
            for _ in 0..3 {
                launch(&machine);
                recording.drain(Duration::ZERO);
            }
        });
        let (found, launched) = (found.unwrap(), 3 * LAUNCHES);
        let unread = usize::try_from(found.lost(Loss::DeviceRecordsUnread)).unwrap();
        assert!(kernels(&found) < launched && kernels(&found) + unread >= launched, "{fault}: {unread}");
    }
}
