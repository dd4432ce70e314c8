//! Compares the field offsets in `records.rs` with NVIDIA's headers, as a C compiler sees them.

use crate::report;
use crate::wheel::{self, Wheel};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[("fields_lie_where_nvidias_headers_have_them", each_header)];

/// A view of a record in `records.rs`.
#[derive(Debug)]
struct View {
    name: String,
    /// The minimum length of the record in any version.
    size: usize,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    at: usize,
    size: usize,
    /// Whether some versions lack it.
    is_later: bool,
}

/// Returns NVIDIA's name of a record, without its version number.
fn struct_name(view: &str) -> String {
    let name = match view {
        "Memcpy2" => "MemcpyPtoP",
        "Memory2" => "Memory",
        "Api" => "API",
        other => other,
    };
    format!("CUpti_Activity{name}")
}

/// Returns NVIDIA's name of a field; names of a single record are listed with it.
fn field_name(view: &str, field: &str) -> String {
    let name = match (view, field) {
        ("Overhead", "what") => "overheadKind",
        ("Memory2", "operation") => "memoryOperationType",
        ("Marker", "process") => "objectId.pt.processId",
        ("Marker", "thread") => "objectId.pt.threadId",
        ("Marker" | "MarkerData", "id") => "id",
        (_, "what") => "type",
        ("CudaEvent", "event") => "eventId",
        (_, "event") => "cudaEventId",
        (_, "registers") => "registersPerThread",
        (_, "static_shared") => "staticSharedMemory",
        (_, "dynamic_shared") => "dynamicSharedMemory",
        (_, "device") => "deviceId",
        (_, "context") => "contextId",
        (_, "stream") => "streamId",
        (_, "correlation") => "correlationId",
        (_, "graph") => "graphId",
        (_, "graph_node") => "graphNodeId",
        (_, "channel") => "channelID",
        (_, "source_kind") => "srcKind",
        (_, "target_kind") => "dstKind",
        (_, "source_device") => "srcDeviceId",
        (_, "source_context") => "srcContextId",
        (_, "target_device") => "dstDeviceId",
        (_, "target_context") => "dstContextId",
        (_, "function") => "cbid",
        (_, "thread") => "threadId",
        (_, "result") => "returnValue",
        (_, "device_time") => "deviceTimestamp",
        (_, "id_kind") => "externalKind",
        (_, "id") => "externalId",
        // The names differ only in case: "grid_x" is "gridX".
        (_, other) => return camel_case(other),
    };
    name.to_owned()
}

fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
}

/// Returns the records declared in `records.rs`.
fn views() -> Vec<View> {
    let source = support::root().join("crates/kineto-devices/src/cupti/records.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let (_, list) = source.split_once("\nrecords! {").unwrap();
    let (list, _) = list.split_once("\n}").unwrap();
    let mut views: Vec<View> = Vec::new();
    let mut is_later = false;
    for line in list.lines().map(str::trim).filter(|line| !line.starts_with("///")) {
        if let Some(head) = line.strip_suffix(" bytes {") {
            let (name, size) = head.split_once(", ").unwrap();
            views.push(View { name: name.to_owned(), size: size.parse().unwrap(), fields: Vec::new() });
            is_later = false;
        }
        is_later |= line.starts_with('+');
        for field in line.trim_start_matches("+ {").split(", ").filter(|part| part.contains('=')) {
            let (name, rest) = field.split_once(':').unwrap();
            let (kind, at) = rest.split_once('=').unwrap();
            // The number by which the field can be selected may follow.
            let at = at.trim().split([' ', ',']).next().unwrap().parse().unwrap();
            let size = kind.trim().trim_start_matches('u').parse::<usize>().unwrap() / 8;
            views.last_mut().unwrap().fields.push(Field { name: name.trim().to_owned(), at, size, is_later });
        }
    }
    views
}

/// Returns the newest version of a record in a header, and the text between its braces.
fn newest<'h>(header: &'h str, name: &str) -> (String, &'h str) {
    let end = format!("}} {name}");
    let forms = header.match_indices(&end).filter_map(|(at, found)| {
        let (number, _) = header[at + found.len()..].split_once(';')?;
        let number: u32 = if number.is_empty() { 1 } else { number.parse().ok()? };
        let begin = header[..at].rfind("typedef struct")?;
        Some((number, &header[begin..at]))
    });
    let (number, body) = forms.max_by_key(|(number, _)| *number).unwrap_or_else(|| panic!("no {name}"));
    (if number == 1 { name.to_owned() } else { format!("{name}{number}") }, body)
}

/// Returns a C program that prints the offset and size of each field in the header, and the size of the record.
fn program(views: &[View], header: &str) -> String {
    let mut text = "#include <stddef.h>\n#include <stdio.h>\n#include <cupti.h>\nint main(void) {\n".to_owned();
    for view in views {
        let (name, body) = newest(header, &struct_name(&view.name));
        writeln!(text, "printf(\"{} - 0 %zu\\n\", sizeof({name}));", view.name).unwrap();
        for field in &view.fields {
            let member = field_name(&view.name, &field.name);
            let is_there = body.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == member);
            if is_there || !field.is_later {
                let (view, ours) = (&view.name, &field.name);
                let size = format!("sizeof((({name} *)0)->{member})");
                writeln!(text, "printf(\"{view} {ours} %zu %zu\\n\", offsetof({name}, {member}), {size});").unwrap();
            }
        }
    }
    text + "return 0;\n}\n"
}

/// Returns the layout in a version's headers, as lines of view, field (`-` for the record), offset and size.
fn compiled(wheel: &Wheel, views: &[View], folder: &Path) -> Vec<(String, String, usize, usize)> {
    let read = |name: &str| std::fs::read_to_string(wheel.include.join(name)).unwrap_or_default();
    let header = read("cupti_activity.h") + &read("cupti_activity_deprecated.h");
    let (source, binary) = (folder.join("fields.c"), folder.join("fields"));
    std::fs::write(&source, program(views, &header)).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg("-w").arg("-I").arg(&wheel.include).arg("-I").arg(wheel::cuda_headers());
    let built = compiler.arg(&source).arg("-o").arg(&binary).output().unwrap();
    assert!(built.status.success(), "{}: {}", wheel.version, String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&binary).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        (words[0].to_owned(), words[1].to_owned(), words[2].parse().unwrap(), words[3].parse().unwrap())
    };
    text.lines().map(line).collect()
}

#[expect(clippy::print_stdout, reason = "reports why the test is skipped")]
fn each_header() {
    if Command::new("cc").arg("--version").output().is_err() {
        return println!("skipped: there is no C compiler (cc)");
    }
    let views = views();
    assert!(views.len() > 10, "{views:?}");
    let folder = tempfile::tempdir().unwrap();
    let mut rows = Vec::new();
    for wheel in wheel::all() {
        let said = compiled(&wheel, &views, folder.path());
        let told = |view: &str, field: &str| {
            said.iter().find(|line| line.0 == view && line.1 == field).map(|line| (line.2, line.3))
        };
        let (mut checked, mut absent, mut sizes) = (0, Vec::new(), Vec::new());
        for view in &views {
            let version = &wheel.version;
            let (_, size) = told(&view.name, "-").unwrap();
            assert!(size >= view.size, "{version}: {} has {size} bytes, not {}", view.name, view.size);
            sizes.push(format!("{} {size}", view.name));
            for Field { name, at, size: width, .. } in &view.fields {
                match told(&view.name, name) {
                    Some(place) => {
                        assert_eq!(place, (*at, *width), "{version}: {}.{name}", view.name);
                        checked += 1;
                    }
                    // The record's length must show that the field is missing.
                    None => {
                        assert!(at + width > size, "{version}: {}.{name} would be read from what is not it", view.name);
                        absent.push(format!("{}.{name}", view.name));
                    }
                }
            }
        }
        let absent = if absent.is_empty() { "none".to_owned() } else { absent.join(", ") };
        rows.push(vec![wheel.version, checked.to_string(), absent, sizes.join(", ")]);
    }
    let columns = ["CUPTI", "fields as in the headers", "not in this version", "bytes of a record"];
    report::table("Fields of records, by NVIDIA's headers", &columns, &rows);
}
