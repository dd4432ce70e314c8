//! A program on Intel GPUs: its rows, their lanes, arguments and links.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use support::gpu::{correlation, events, interval, kernels, name, stream, tally, under};
use support::intel::{Counts, driver, machine, record, runtime};
use support::virtual_time;
use support::xpu::{MemoryKind, Queue, WaitKind, Xpu};
use support::{File, gpu, intel, own_process, record_with, xpu};
use tracing::info_span;
use tracing_kineto::{ActivityType, annotate};

const PLACES: [MemoryKind; 4] = [MemoryKind::Pageable, MemoryKind::Pinned, MemoryKind::Device, MemoryKind::Shared];
const WAITS: [WaitKind; 5] = [WaitKind::Fence, WaitKind::Event, WaitKind::List, WaitKind::Queue, WaitKind::Device];

/// Runs work of each kind on two queues of a device, each kind in its own span.
fn program(xpu: &Xpu, [one, two]: [Queue; 2]) {
    let _step = annotate!("step").entered();
    info_span!("gemm").in_scope(|| [one, two].map(|queue| xpu.submit_at(queue, "gemm_us300", "gemm.cpp", 7)));
    info_span!("copies").in_scope(|| {
        for (from, to) in PLACES.into_iter().flat_map(|from| PLACES.map(|to| (from, to))) {
            xpu.memcpy(two, from, to, 1 << 20);
        }
    });
    info_span!("peer").in_scope(|| xpu.memcpy_peer(one, 1, 1 << 16));
    info_span!("fills").in_scope(|| [one, two].map(|queue| xpu.memset(queue, 0x5a, 4096)));
    info_span!("memory").in_scope(|| xpu.allocate());
    info_span!("reduce").in_scope(|| xpu.collective("allreduce", 77, 100));
    info_span!("waits").in_scope(|| WAITS.map(|wait| xpu.wait(two, wait)));
}

fn recorded() -> File {
    let machine = machine("devices=2");
    let queues = [machine.queue(0), machine.queue(0)];
    let file = record(|| program(&machine, queues));
    assert_eq!(xpu::count("synchronizes"), WAITS.len() as u64, "only the program's own calls");
    assert_eq!((xpu::count("push_depth"), xpu::count("enabled_views"), xpu::count("dropped")), (0, 0, 0));
    file
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

#[virtual_time]
fn all_work_has_rows_and_links() {
    let file = recorded();
    let expected = Counts {
        // SYCL calls that submit work, and the one that allocates.
        runtime: 2 + 16 + 1 + 2 + 1,
        driver: 2 + 16 + 1 + 2 + 1 + 5,
        kernels: 2,
        copies: 17,
        fills: 2,
        linked: 21,
        starts: 21,
        ends: 21,
        annotations: 2,
        waits: 5,
        collectives: 1,
    };
    assert_eq!(Counts::of(&file), expected, "{}", file.trace.stats());
    let spans = tally(gpu::work(&file).into_iter().map(|work| under(&file, work).to_owned()));
    assert_eq!(spans, counts([("gemm", 2), ("copies", 16), ("peer", 1), ("fills", 2)]));
    assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
    let allocation: Vec<_> = runtime(&file).into_iter().filter(|call| name(call) == "urUSMDeviceAlloc").collect();
    assert_eq!((allocation.len(), under(&file, allocation[0])), (1, "memory"));
}

#[own_process]
fn calls_are_on_their_threads_in_their_spans() {
    let file = recorded();
    let functions = counts([
        ("urEnqueueKernelLaunch", 2),
        ("urEnqueueUSMFill", 2),
        ("urEnqueueUSMMemcpy", 17),
        ("urUSMDeviceAlloc", 1),
    ]);
    assert_eq!(tally(runtime(&file).into_iter().map(|call| name(call).to_owned())), functions);
    let functions = counts([
        ("zeCommandListAppendLaunchKernel", 2),
        ("zeCommandListAppendMemoryCopy", 17),
        ("zeCommandListAppendMemoryFill", 2),
        ("zeCommandListHostSynchronize", 1),
        ("zeCommandQueueSynchronize", 1),
        ("zeDeviceSynchronize", 1),
        ("zeEventHostSynchronize", 1),
        ("zeFenceHostSynchronize", 1),
        ("zeMemAllocDevice", 1),
    ]);
    assert_eq!(tally(driver(&file).into_iter().map(|call| name(call).to_owned())), functions);
    let spans: BTreeSet<_> = runtime(&file).into_iter().chain(driver(&file)).map(|call| under(&file, call)).collect();
    assert_eq!(spans, BTreeSet::from(["copies", "fills", "gemm", "memory", "peer", "waits"]));
    let (process, thread) = (u64::from(std::process::id()), file.slice("gemm").tid);
    for call in runtime(&file).into_iter().chain(driver(&file)) {
        assert_eq!((call["pid"].as_u64(), call["tid"].as_u64()), (Some(process), Some(thread)), "{call}");
        let slice = file.slice(under(&file, call));
        let (start, end) = interval(call);
        assert!(slice.start <= start && end <= slice.end, "{call} in {slice:?}");
    }
    // A driver call lies in the runtime call with its id.
    for call in driver(&file) {
        let around = runtime(&file).into_iter().find(|around| correlation(around) == correlation(call));
        assert!(
            around
                .is_none_or(|around| interval(around).0 <= interval(call).0 && interval(call).1 <= interval(around).1)
        );
    }
}

#[virtual_time]
fn work_is_on_the_queues_of_its_device() {
    let file = recorded();
    let lanes: BTreeSet<_> = gpu::work(&file).into_iter().map(stream).collect();
    assert_eq!(lanes.len(), 2, "{lanes:?}");
    let named = |(pid, tid): (i64, i64)| {
        let of = |event: &&Value| event["ph"] == "M" && event["name"] == "thread_name" && event["pid"] == pid;
        let mut names = file.events().filter(of).filter(|event| event["tid"] == tid);
        names.next().map(|event| event["args"]["name"].as_str().unwrap().trim().to_owned())
    };
    for lane in &lanes {
        assert_eq!((lane.0, named(*lane)), (0, Some(format!("Stream {}", lane.1))));
    }
    for work in gpu::work(&file) {
        assert_eq!(work["args"]["sycl queue"].as_i64(), Some(stream(work).1), "{work}");
    }
    let annotations: BTreeSet<_> = events(&file, "X", "gpu_user_annotation").into_iter().map(stream).collect();
    assert_eq!(annotations, lanes, "each queue has the annotation");
    for annotation in events(&file, "X", "gpu_user_annotation") {
        assert_eq!(name(annotation), "step");
        let (start, end) = interval(annotation);
        let around = |work: &&Value| {
            stream(work) != stream(annotation) || (start <= interval(work).0 && interval(work).1 <= end)
        };
        assert!(gpu::work(&file).iter().all(around));
    }
    let devices = file.json["deviceProperties"].as_array().unwrap();
    let devices: Vec<_> = devices.iter().map(|device| (device["id"].as_i64(), device["name"].as_str())).collect();
    let gpu = "Simulated Intel GPU (no real device)";
    assert_eq!(devices, [(Some(0), Some(gpu)), (Some(1), Some(gpu))]);
}

#[virtual_time]
fn copies_and_fills_are_named_by_their_memory_kinds() {
    let file = recorded();
    let places = ["Host (User Allocated)", "Host (Driver Allocated)", "Device", "Shared"];
    let letters = ["M", "H", "D", "S"];
    let mut expected = BTreeMap::new();
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
        expected.insert(format!("Memcpy {}2{} ({} -> {})", letters[from], letters[to], places[from], places[to]), 1);
    }
    // The copy between devices is D2D too.
    *expected.get_mut("Memcpy D2D (Device -> Device)").unwrap() += 1;
    assert_eq!(tally(events(&file, "X", "gpu_memcpy").into_iter().map(|copy| name(copy).to_owned())), expected);
    assert!(events(&file, "X", "gpu_memset").into_iter().all(|fill| name(fill) == "Memset (90 -> Device)"));
}

/// Returns the args of a row that come from its record: keys in order, each with its type (s string, u unsigned, i signed,
/// f fraction).
fn shape(row: &Value) -> String {
    let own = ["External id", "span id", "parent id"];
    let args = row["args"].as_object().unwrap().iter().filter(|(key, _)| !own.contains(&key.as_str()));
    let of = |value: &Value| match value {
        Value::String(_) => "s",
        Value::Number(number) if number.to_string().contains(['.', 'e']) => "f",
        Value::Number(_) => "u",
        _ => "?",
    };
    args.map(|(key, value)| format!("{key}:{}", of(value))).collect::<Vec<_>>().join(" ")
}

const TIMES: &str = "appended:s appended_rel_to_start:s submitted:s submitted_rel_to_start:s";
// libkineto has no stream, and the context is a text.
const PLACE: &str = "device:u stream:u context:u sycl queue:u l0 queue:s";

#[virtual_time]
fn args_have_libkinetos_keys_and_types() {
    let file = recorded();
    let all = |cat: &str| -> BTreeSet<String> { events(&file, "X", cat).into_iter().map(shape).collect() };
    let kernel = format!(
        "correlation:u {TIMES} sycl_task_begin:s sycl_task_begin_rel_to_start:s sycl_enqk_begin:s \
         sycl_enqk_begin_rel_to_start:s {PLACE} source_file_name:s source_line_number:u kernel_id:u sycl_node_id:u \
         sycl_invocation_id:u"
    );
    assert_eq!(all("kernel"), BTreeSet::from([kernel]));
    let copy =
        format!("correlation:u l0 call:s {TIMES} {PLACE} memory opration id:u bytes:u memory bandwidth (GB/s):f");
    let peer = format!("{copy} fromDevice:u toDevice:u");
    assert_eq!(all("gpu_memcpy"), BTreeSet::from([copy.clone(), peer]));
    assert_eq!(all("gpu_memset"), BTreeSet::from([copy]));
    assert_eq!(
        (all("xpu_runtime"), all("xpu_driver")),
        (BTreeSet::from(["correlation:u".into()]), BTreeSet::from(["correlation:u".into()]))
    );
    let wait = "correlation:u Type:s Context_handle:s Queue_handle:s Event_handle:s Number_wait_events:u Return_code:u";
    assert_eq!(all("xpu_sync"), BTreeSet::from([wait.to_owned()]));
    assert_eq!(all("collective_comm"), BTreeSet::from(["Communicator_id:u".to_owned()]));
    assert_eq!(all("overhead"), BTreeSet::from(["overhead cost:u overhead occupancy:s overhead count:u".to_owned()]));
}

/// Converts microseconds as text, such as "-3.250", to nanoseconds.
fn micros(text: &Value) -> i64 {
    let text = text.as_str().unwrap();
    let (whole, part) = text.trim_start_matches('-').split_once('.').unwrap();
    assert_eq!(part.len(), 3, "{text}");
    let value = whole.parse::<i64>().unwrap() * 1000 + part.parse::<i64>().unwrap();
    if text.starts_with('-') { -value } else { value }
}

#[virtual_time]
fn args_have_the_times_and_ids_of_the_work() {
    let file = recorded();
    let hex = |value: &Value| value.as_str().is_some_and(|text| text.len() == 18 && text.starts_with("0x"));
    for work in gpu::work(&file) {
        let args = &work["args"];
        assert!(args["context"].is_u64() && hex(&args["l0 queue"]), "{work}");
        // Appended to a list, submitted to the device, started: in this order, at the given distances from the start.
        for time in ["appended", "submitted"] {
            let (at, relative) = (micros(&args[time]), micros(&args[format!("{time}_rel_to_start")]));
            assert_eq!(at - relative, i64::try_from(interval(work).0).unwrap(), "{work}");
            assert!(relative < 0, "{work}");
        }
        assert!(micros(&args["appended"]) <= micros(&args["submitted"]));
    }
    for kernel in kernels(&file) {
        let args = &kernel["args"];
        assert_eq!((&args["source_file_name"], &args["source_line_number"]), (&"gemm.cpp".into(), &7.into()));
        let times = ["sycl_task_begin", "sycl_enqk_begin", "appended"].map(|time| micros(&args[time]));
        assert!(times.is_sorted(), "{kernel}");
        assert_eq!(interval(kernel).1 - interval(kernel).0, 300_000);
    }
    let copies = events(&file, "X", "gpu_memcpy");
    let (peer, others): (Vec<_>, Vec<_>) = copies.into_iter().partition(|copy| under(&file, copy) == "peer");
    assert_eq!(peer[0]["args"]["l0 call"], "zeCommandListAppendMemoryCopy(D2D - P2P)");
    assert_eq!(
        ["bytes", "fromDevice", "toDevice"].map(|key| peer[0]["args"][key].as_u64()),
        [Some(1 << 16), Some(0), Some(1)]
    );
    for copy in others {
        let bandwidth = copy["args"]["memory bandwidth (GB/s)"].as_f64().unwrap();
        assert_eq!((copy["args"]["bytes"].as_u64(), bandwidth.round()), (Some(1 << 20), 25.0));
    }
    let ids: HashSet<_> = gpu::work(&file)
        .into_iter()
        .map(|work| work["args"].get("kernel_id").unwrap_or(&work["args"]["memory opration id"]).as_u64())
        .collect();
    assert_eq!(ids.len(), 21, "ids are distinct");
}

#[virtual_time]
fn waits_collectives_and_overhead_have_separate_rows() {
    let file = recorded();
    let thread = file.slice("waits").tid;
    let waits = events(&file, "X", "xpu_sync");
    let types: Vec<_> = waits.iter().map(|wait| wait["args"]["Type"].as_str().unwrap()).collect();
    let expected = ["HOST_FENCE", "HOST_EVENT", "HOST_COMMAND_LIST", "HOST_COMMAND_QUEUE", "HOST_DEVICE"];
    assert_eq!(types, expected);
    for wait in &waits {
        assert_eq!((wait["pid"].as_i64(), wait["tid"].as_u64()), (Some(-1), Some(thread)), "{wait}");
        let calls: Vec<_> = driver(&file).into_iter().filter(|call| correlation(call) == correlation(wait)).collect();
        assert_eq!((calls.len(), name(calls[0])), (1, name(wait)), "its call is recorded too");
        let is_event = wait["args"]["Type"] == "HOST_EVENT";
        assert_eq!(wait["args"]["Event_handle"] != "0x0000000000000000", is_event);
        assert_eq!(wait["args"]["Number_wait_events"], u32::from(is_event));
    }
    let collective = events(&file, "X", "collective_comm")[0];
    let slice = file.slice("reduce");
    assert_eq!((name(collective), &collective["args"]["Communicator_id"]), ("xccl::allreduce", &77.into()));
    assert_eq!(
        (collective["pid"].as_u64(), collective["tid"].as_u64()),
        (Some(std::process::id().into()), Some(slice.tid))
    );
    assert!(slice.start <= interval(collective).0 && interval(collective).1 <= slice.end);
    let overheads = events(&file, "X", "overhead");
    assert!(!overheads.is_empty());
    for overhead in overheads {
        assert_eq!((overhead["pid"].as_i64(), name(overhead)), (Some(0x1FFF_FFFF), "Instrumentation"));
        assert!(overhead["args"]["overhead occupancy"].as_str().unwrap().ends_with('%'));
    }
}

#[virtual_time]
fn level_zero_program_is_linked_without_arrows() {
    let machine = machine("");
    let queues = [machine.driver_queue(0), machine.driver_queue(0)];
    let file = record(|| {
        info_span!("work").in_scope(|| queues.map(|queue| machine.submit(queue, "alone")));
        info_span!("copy").in_scope(|| machine.memcpy(queues[0], MemoryKind::Pinned, MemoryKind::Device, 4096));
        machine.wait(queues[1], WaitKind::Device);
    });
    let expected = Counts { driver: 4, kernels: 2, copies: 1, linked: 3, waits: 1, ..Counts::default() };
    assert_eq!(Counts::of(&file), expected, "{}", file.trace.stats());
    let spans = tally(gpu::work(&file).into_iter().map(|work| under(&file, work).to_owned()));
    assert_eq!(spans, counts([("work", 2), ("copy", 1)]));
    let lanes: HashSet<_> = kernels(&file).into_iter().map(stream).collect();
    assert_eq!(lanes.len(), 2, "each queue has its lane");
    assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
}

#[virtual_time]
fn devices_have_separate_rows() {
    let machine = machine("devices=2");
    let queues = [machine.queue(0), machine.queue(1)];
    let file = record(|| {
        for (queue, kernel) in queues.iter().zip(["on_first", "on_second"]) {
            machine.submit(*queue, kernel);
        }
        machine.wait(queues[0], WaitKind::Device);
    });
    let devices: BTreeMap<_, _> = kernels(&file).into_iter().map(|kernel| (name(kernel), stream(kernel).0)).collect();
    assert_eq!(devices, BTreeMap::from([("on_first", 0), ("on_second", 1)]));
}

/// Nanoseconds by which a drawn row may differ from its times: one, plus one for each nested row.
const CLOSE: u64 = 4;

// Shows the key XPUPTI_PROFILER_METRICS.
#[virtual_time]
fn metrics_of_kernels_are_rows_and_counters() {
    let machine = machine("");
    let queue = machine.queue(0);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("kineto.conf");
    let keys = "XPUPTI_PROFILER_METRICS=GpuTime,XVE_ACTIVE\nXPUPTI_PROFILER_ENABLE_PER_KERNEL=true\n";
    std::fs::write(&config, keys).unwrap();
    let types = intel::TYPES.with(ActivityType::XpuScopeProfiler);
    let file = record_with(
        |builder| intel::all(builder).activities(types).config_file(&config),
        || {
            info_span!("gemm").in_scope(|| (0..3).for_each(|_| machine.submit(queue, "gemm_us500")));
            machine.wait(queue, WaitKind::Queue);
        },
    );
    let (of_metrics, own): (Vec<_>, Vec<_>) =
        kernels(&file).into_iter().partition(|row| name(row).starts_with("metrics: "));
    assert_eq!((of_metrics.len(), own.len()), (3, 3), "{}", file.trace.stats());
    for row in &of_metrics {
        let kernel = own.iter().find(|kernel| kernel["args"]["kernel_id"] == row["args"]["kernel_id"]).unwrap();
        assert_eq!((name(row), row["pid"].as_i64()), ("metrics: gemm_us500", Some(0)));
        let ((start, end), (from, to)) = (interval(row), interval(kernel));
        assert!((1..=CLOSE).contains(&(from - start)) && (1..=CLOSE).contains(&(end - to)), "around its kernel: {row}");
        let values = ["GpuTime::ns", "XVE_ACTIVE::percent"].map(|key| row["args"][key].as_f64());
        assert_eq!(values, [Some(500_000.0), Some(50.0)]);
        assert_eq!(row["args"]["queue"].as_str(), Some(format!("0x{:x}", queue.0)).as_deref());
    }
    let counters: Vec<_> = file.events().filter(|event| event["ph"] == "C" && event["name"] == "xpu").collect();
    assert_eq!(counters.len(), 6, "one at the start of each kernel and one at its end");
    for counter in &counters {
        let at = support::nanos(&counter["ts"]);
        let values = ["GpuTime", "XVE_ACTIVE"].map(|key| counter["args"][key].as_f64().unwrap());
        let expected = if own.iter().any(|kernel| interval(kernel).0.abs_diff(at) < CLOSE) {
            [500_000.0, 50.0]
        } else {
            [0.0, 0.0]
        };
        assert_eq!((values, counter["cat"].as_str()), (expected, Some("xpu_scope_profiler")));
    }
    assert_eq!((xpu::count("scopes"), xpu::count("open_scopes")), (1, 0));
}
