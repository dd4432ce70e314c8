//! Callbacks around HIP's calls, and the calls' arguments.

use crate::context;
use crate::layout::{CallbackInfo, HIP_RUNTIME_API, Passed};
use crate::names;
use crate::shared::clock::thread;
use crate::shared::tracer::{ApiCall, Argument, Style, offsets};
use crate::status::{Status, code_of};
use sim_core::exports;
use sim_core::ffi::slice;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Phases of a call.
pub(crate) const ENTER: u32 = 1;
pub(crate) const EXIT: u32 = 2;

/// Bytes for arguments: more than any call has.
const ARGUMENTS: usize = 256;

/// `rocprofiler_callback_tracing_hip_api_data_t`, and behind its end what the arguments are.
#[repr(C)]
struct Payload {
    size: u64,
    arguments: [u64; ARGUMENTS / 8],
    returned: u64,
    shapes: *const Argument,
    count: usize,
}

/// The struct that the client gets.
const SEEN: usize = 8 + ARGUMENTS + 8;

impl Payload {
    fn new(call: &ApiCall) -> Payload {
        let mut payload = Payload {
            size: SEEN as u64,
            arguments: [0; ARGUMENTS / 8],
            returned: call.result as u32 as u64,
            shapes: call.arguments,
            count: call.count,
        };
        call.pack(&mut payload.arguments, false);
        payload
    }
}

/// Calls the services for a call of HIP's.
pub(crate) fn tell(call: &mut ApiCall, phase: u32) {
    let operation = names::operation(call.call);
    let services = context::services(HIP_RUNTIME_API, operation);
    if services.is_empty() {
        return;
    }
    let mut payload = Payload::new(call);
    for service in services {
        let info = CallbackInfo {
            context: service.context,
            thread: thread(),
            correlation: call.correlation,
            external: 0,
            kind: HIP_RUNTIME_API,
            operation,
            phase,
            payload: &raw mut payload as u64,
        };
        service.call(&info, &mut call.data[0][0]);
    }
}

/// A value as text; pointers are followed as often as `most` says. Also how often they were.
fn text(argument: &Argument, value: *const u8, most: i32) -> (String, i32) {
    let shape = &argument.shape;
    let number = |address: *const u8, size: usize| -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the caller knows of that many bytes, at most eight.
        unsafe { std::ptr::copy_nonoverlapping(address, bytes.as_mut_ptr(), size.min(8)) };
        u64::from_ne_bytes(bytes)
    };
    let raw = number(value, shape.size);
    let text = match shape.style {
        Style::Signed | Style::Unsigned | Style::Pointer if shape.indirection > 0 => {
            let [size, _] = shape.target;
            return match (raw, size) {
                (0, 1..) => ("(null)".to_owned(), 0),
                (_, 1..=8) if most > 0 => (format!("{:#x}", number(raw as *const u8, size)), 1),
                (0, _) => ("0".to_owned(), 0),
                _ => (format!("{raw:#x}"), 0),
            };
        }
        Style::Signed => (raw as u32 as i32).to_string(),
        Style::Unsigned => raw.to_string(),
        Style::Pointer => format!("{raw:#x}"),
        Style::Text if raw == 0 => "(null)".to_owned(),
        // SAFETY: HIP's arguments of that style are C strings.
        Style::Text => unsafe { CStr::from_ptr(raw as *const c_char) }.to_string_lossy().into_owned(),
        Style::CopyKind => match raw {
            0 => "HostToHost".to_owned(),
            1 => "HostToDevice".to_owned(),
            2 => "DeviceToHost".to_owned(),
            3 => "DeviceToDevice".to_owned(),
            4 => "Default".to_owned(),
            other => format!("hipMemcpy_UNKNOWN={other}"),
        },
        Style::Dimensions => {
            let of = |index: usize| number(value.wrapping_add(4 * index), 4);
            format!("{{z={}, y={}, x={}}}", of(2), of(1), of(0))
        }
    };
    (text, 0)
}

/// Takes an argument: kind, operation, number, address of the value, indirections, type, name, text, how many pointers
/// were followed for that, the client's own; anything but 0 ends it.
type ArgumentCallback = extern "C" fn(
    u32,
    i32,
    u32,
    *const c_void,
    i32,
    *const c_char,
    *const c_char,
    *const c_char,
    i32,
    *mut c_void,
) -> c_int;

exports! {
    code_of as i32;

    /// Tells the arguments of the call that a record is of, within the callback that got it.
    fn rocprofiler_iterate_callback_tracing_kind_operation_args(
        record: Passed, callback: ArgumentCallback, most: i32, data: *mut c_void,
    ) {
        let [_, _, _, _, _, kind, _, payload] = record.0;
        let (kind, operation) = (kind as u32, (kind >> 32) as i32);
        if kind != HIP_RUNTIME_API || payload == 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the record of a callback under way, whose payload is one of ours.
        let payload = unsafe { &*(payload as *const Payload) };
        let all = slice(payload.shapes, payload.count);
        for ((argument, offset), number) in all.iter().zip(offsets(all, false)).zip(0..) {
            let value = payload.arguments.as_ptr().cast::<u8>().wrapping_add(offset);
            let (text, followed) = text(argument, value, most);
            let (shape, text) = (argument.shape, CString::new(text).unwrap_or_default());
            let (value, name, text) = (value.cast(), argument.name, text.as_ptr());
            let (indirection, type_name) = (shape.indirection, shape.type_name);
            if callback(kind, operation, number, value, indirection, type_name, name, text, followed, data) != 0 {
                break;
            }
        }
        Ok(())
    }
}
