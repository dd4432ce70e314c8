//! The subscribers, and their callbacks around API calls.

use crate::client::{self, Client};
use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::calls;
use crate::shared::counters::count;
use crate::shared::tracer::{ApiCall, DRIVER_API, RUNTIME_API};
use sim_core::handles::lock;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// `CUpti_CallbackFunc`: user data, domain, callback id, data of the call.
pub(crate) type Callback = extern "C" fn(*mut c_void, u32, u32, *const CallbackData);

/// `CUpti_CallbackData`.
#[derive(Debug)]
#[repr(C)]
pub struct CallbackData {
    site: u32,
    function_name: *const c_char,
    parameters: *const c_void,
    return_value: *mut c_void,
    symbol_name: *const c_char,
    context: u64,
    context_id: u32,
    correlation_data: *mut u64,
    correlation_id: u32,
}

/// Before and after a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Site {
    Enter = 0,
    Exit = 1,
}

/// More callback ids than there are, for each of the two domains of calls.
const CALLS: usize = 1024;

/// A subscriber of either version.
#[derive(Debug)]
struct Subscriber {
    callback: Option<Callback>,
    user: usize,
    handle: usize,
    /// The calls whose callback is enabled, by domain.
    enabled: [Vec<AtomicBool>; 2],
    /// Whether any is.
    any: AtomicBool,
}

/// The subscribers, and how many handles have been given out.
static SUBSCRIBERS: Mutex<(Vec<Arc<Subscriber>>, usize)> = Mutex::new((Vec::new(), 0));
/// Whether any call of any subscriber is enabled.
static ANY: AtomicBool = AtomicBool::new(false);

/// What libcupti calls a subscriber without a name.
const NO_NAME: &str = "<not provided>";

impl Subscriber {
    fn new(callback: Option<Callback>, user: *mut c_void, handle: usize) -> Arc<Subscriber> {
        let enabled = [(); 2].map(|()| (0..CALLS).map(|_| AtomicBool::new(false)).collect());
        Arc::new(Subscriber { callback, user: user as usize, handle, enabled, any: AtomicBool::new(false) })
    }

    fn calls(&self, domain: u32) -> Outcome<&[AtomicBool]> {
        match domain {
            DRIVER_API => Ok(&self.enabled[0]),
            RUNTIME_API => Ok(&self.enabled[1]),
            // Resources, synchronization, NVTX, state: no callbacks here.
            3..=6 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_PARAMETER),
        }
    }
}

fn next_handle(handles: &mut usize) -> usize {
    *handles += 1;
    *handles * 0x10
}

/// Subscribes by the first version: alone, or next to subscribers of the second that allow others.
pub(crate) fn subscribe(callback: Option<Callback>, user: *mut c_void) -> Outcome<usize> {
    count(&link::counters().subscribes);
    let (subscribers, handles) = &mut *lock(&SUBSCRIBERS);
    let is_first = |held: &Arc<Subscriber>| client::subscribers().iter().all(|client| client.handle != held.handle);
    let refuses = client::subscribers().iter().any(|client| !client.allows_others);
    if refuses || subscribers.iter().any(is_first) || link::options().busy {
        return Err(Code::MULTIPLE_SUBSCRIBERS);
    }
    let handle = next_handle(handles);
    subscribers.push(Subscriber::new(callback, user, handle));
    Ok(handle)
}

/// Subscribes by the second version. Also returns the name of a subscriber that was first.
pub(crate) fn subscribe_by_name(
    callback: Option<Callback>,
    user: *mut c_void,
    name: &str,
    allows_others: bool,
) -> (Outcome<usize>, Option<String>) {
    count(&link::counters().subscribes);
    let (subscribers, handles) = &mut *lock(&SUBSCRIBERS);
    if link::options().busy {
        return (Err(Code::MULTIPLE_SUBSCRIBERS), Some("CUPTI for a tool".to_owned()));
    }
    let shared = client::subscribers();
    let holder = subscribers.first().map(|first| {
        let client = shared.iter().find(|client| client.handle == first.handle);
        client.map_or(NO_NAME.to_owned(), |client| client.name.clone())
    });
    let holder = holder.map(|name| format!("CUPTI for {name}"));
    // A subscriber of the first version lets others in until it records, as on a real GPU with 13.5.
    let is_first_idle = !client::first().activity.is_any_enabled();
    let are_all_shared = shared.len() == subscribers.len() || is_first_idle;
    let is_shareable = are_all_shared && shared.iter().all(|client| client.allows_others);
    let is_granted = subscribers.is_empty() || allows_others && is_shareable;
    if !is_granted {
        // CUPTI names no holder to a request that would share.
        return (Err(Code::MULTIPLE_SUBSCRIBERS), holder.filter(|_| !allows_others));
    }
    let handle = next_handle(handles);
    client::add(Client::new(handle, name.to_owned(), allows_others));
    subscribers.push(Subscriber::new(callback, user, handle));
    (Ok(handle), holder)
}

pub(crate) fn unsubscribe(handle: usize) -> Outcome {
    count(&link::counters().unsubscribes);
    find(handle)?;
    lock(&SUBSCRIBERS).0.retain(|subscriber| subscriber.handle != handle);
    client::remove(handle);
    note_enabled();
    Ok(())
}

/// Resets to the initial state.
pub(crate) fn reset() {
    lock(&SUBSCRIBERS).0.clear();
    client::remove_all();
    note_enabled();
}

fn find(handle: usize) -> Outcome<Arc<Subscriber>> {
    let (subscribers, _) = &*lock(&SUBSCRIBERS);
    subscribers.iter().find(|subscriber| subscriber.handle == handle).cloned().ok_or(Code::INVALID_PARAMETER)
}

/// Enables the subscriber's callback for one call, or for all of a domain.
pub(crate) fn enable(handle: usize, domain: u32, cbid: Option<u32>, enable: bool) -> Outcome {
    let subscriber = find(handle)?;
    let calls = subscriber.calls(domain)?;
    if let Some(cbid) = cbid {
        let versions = calls::find(domain, cbid).and_then(calls::first_versions);
        if versions.is_some_and(|(_, driver)| link::options().driver < driver) {
            return Err(Code::INVALID_PARAMETER);
        }
        Code::unless(link::options().callback_error.code_for(cbid))?;
    }
    match cbid {
        Some(cbid) => calls.get(cbid as usize).ok_or(Code::INVALID_PARAMETER)?.store(enable, Ordering::Relaxed),
        None => calls.iter().for_each(|call| call.store(enable, Ordering::Relaxed)),
    }
    let any = subscriber.enabled.iter().flatten().any(|call| call.load(Ordering::Relaxed));
    subscriber.any.store(any, Ordering::Relaxed);
    note_enabled();
    Ok(())
}

fn note_enabled() {
    let any = lock(&SUBSCRIBERS).0.iter().any(|subscriber| subscriber.any.load(Ordering::Relaxed));
    ANY.store(any, Ordering::Relaxed);
}

/// Calls the subscribers for a call, if enabled.
pub(crate) fn notify(site: Site, call: &mut ApiCall) {
    if !ANY.load(Ordering::Relaxed) {
        return;
    }
    let subscribers = lock(&SUBSCRIBERS).0.clone();
    for subscriber in &subscribers {
        let enabled = subscriber.calls(call.domain).ok().and_then(|calls| calls.get(call.cbid as usize));
        if !enabled.is_some_and(|enabled| enabled.load(Ordering::Relaxed)) {
            continue;
        }
        let Some(callback) = subscriber.callback else { continue };
        let data = CallbackData {
            site: site as u32,
            function_name: call.name,
            parameters: call.params,
            return_value: (&raw mut call.result).cast(),
            symbol_name: call.symbol,
            context: call.context,
            context_id: call.context_id,
            correlation_data: &raw mut call.data,
            correlation_id: call.correlation,
        };
        callback(subscriber.user as *mut c_void, call.domain, call.cbid, &raw const data);
    }
}
