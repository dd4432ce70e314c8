//! Writes the corpus that the targets begin with: `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.

use std::error::Error;
use std::fs;
use std::path::Path;
use tracing_kineto::{Format, KinetoLayer};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| -> Result<(), Box<dyn Error>> {
        fs::create_dir_all(corpus.join(target))?;
        Ok(fs::write(corpus.join(target).join(name), bytes)?)
    };

    let folder = tempfile::tempdir_in("/dev/shm")?;
    // A small pool, so that the live file is small.
    let builder = KinetoLayer::builder().no_output().buffer_limit_bytes(1 << 20).shm_folder(folder.path());
    let (layer, guard) = builder.build()?;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..3 {
            let _step = tracing::info_span!("step", step, name = "a \"name\" with ä", share = 0.5).entered();
            tracing::info_span!("inner").in_scope(|| tracing::info!(loss = -1, "an event"));
        }
    });
    for entry in fs::read_dir(folder.path())? {
        let bytes = fs::read(entry?.path())?;
        if bytes.starts_with(b"KINELIVE") {
            // Empty slots follow the used ones.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            write("live_file", "spans", &bytes[..used.min(256 << 10)])?;
        }
    }
    let trace = guard.finish()?;
    let mut bytes = Vec::new();
    trace.write_segment(0, &mut bytes)?;
    write("segment", "spans", &bytes)?;
    for (target, format) in [("json", Format::Json), ("pftrace", Format::Perfetto)] {
        bytes.clear();
        trace.write(&mut bytes, format)?;
        write(target, "spans", if target == "pftrace" { &bytes[1..] } else { &bytes })?;
    }
    write("json", "torch", br#"{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"GPU"}],"traceEvents":[
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1.001,"dur":5,"args":{"External id":1,"Input Dims":[[2,3],[3,4]]}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":2,"dur":1,"args":{"correlation":7,"External id":1}},
{"ph":"X","cat":"kernel","name":"k\u00e4","pid":0,"tid":7,"ts":4,"dur":2.5,"args":{"device":0,"stream":7,"correlation":7}},
{"ph":"s","id":7,"cat":"ac2g","pid":1,"tid":1,"ts":2},{"ph":"f","bp":"e","id":7,"cat":"ac2g","pid":0,"tid":7,"ts":4},
{"ph":"C","name":"memory","pid":0,"ts":5,"args":{"bytes":1}},{"ph":"M","name":"process_name","pid":0,"args":{"name":"GPU 0"}}]}"#)?;

    let request = "ACTIVITIES_DURATION_MSECS=500\nACTIVITIES_LOG_FILE=/tmp/a.json\nPROFILE_START_TIME=0\n";
    write("datagram", "timed", &[b"\0", request.as_bytes()].concat())?;
    let request = "PROFILE_START_ITERATION=4\nPROFILE_START_ITERATION_ROUNDUP=10\nACTIVITIES_ITERATIONS=2\n";
    write("datagram", "iterations", &[b"\0", request.as_bytes()].concat())?;
    let text =
        "# a comment\nACTIVITY_TYPES=cpu_op,kernel\nLOG_LEVEL=\"info\" # why\nBUFFER_LIMIT_MB=64\nFILTER=app=debug\n";
    write("configuration", "keys", text.as_bytes())?;

    // A kernel (kind 10), a call (5) and an external id (39), as records of 256 bytes.
    let mut records = vec![0; 3 * 256];
    for (record, kind) in records.chunks_mut(256).zip([10_u32, 5, 39]) {
        record.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 7) as u8);
        record[..4].copy_from_slice(&kind.to_ne_bytes());
    }
    write("cupti_buffer", "kernel", &records)
}
