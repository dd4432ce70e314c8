//! Telemetry: power, clocks, temperature, utilization and used memory of a vendor's devices, sampled some times a second.
//!
//! The vendor's module finds the devices in its management library and reads their values ([`ManagementLibrary`]). A
//! thread ([`sampler`]) reads those of all devices in turn, and writes a record for each ([`metric`]). It is the only
//! thread that calls the library during a recording, so that a library that hangs stops nothing else.

mod metric;
mod sampler;

pub(super) use metric::{DeviceMetric, LAYOUTS, ReadError, read_into};

use super::library::Attempt;
use super::library::contained::try_call_on_thread;
use super::library::lazy::LazyLibrary;
use super::library::lease::{ExclusiveLease, OwningProcess};
use super::library::panic::catch_panic;
use super::{Capabilities, Collector, DeviceDescription, Options, RecordSink, Recording, Selection, Unavailable, Why};
use kineto_model::activity::{ActivityType, ActivityTypes};
use sampler::{ClockReasons, DeviceReader, SampledDevice, TelemetryRecording};
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A vendor's library that tells the state of its devices. It is opened once, and never closed.
pub(super) trait ManagementLibrary: fmt::Debug + Send + Sync + Sized + 'static {
    /// The name of the collector.
    const NAME: &'static str;
    /// The name of the library in messages.
    const LIBRARY: &'static str;
    /// The reasons for lower clocks.
    const REASONS: ClockReasons;

    /// A device as the library knows it, with the earlier readings that differences need.
    type Device: fmt::Debug + Send + 'static;
    /// The inputs of the library that the vendor's other collectors have.
    type Context: fmt::Debug + Clone + Send + Sync + 'static;

    /// Returns the process-wide state.
    fn state() -> &'static TelemetryState;

    /// Opens the library, if the vendor's driver is present.
    ///
    /// # Errors
    /// The missing file, function or device.
    fn open(context: &Self::Context, options: &Options, attempts: &mut Vec<Attempt>) -> Result<Self, Unavailable>;

    /// Returns the file that it was opened from, and its version.
    fn describe(&self) -> (Option<PathBuf>, Option<String>);

    /// Returns whether the calling thread may wait for the driver to list devices.
    fn can_wait_for_devices() -> bool {
        true
    }

    /// Returns the devices that the program uses, numbered as the vendor's other collectors number them. A device that
    /// this library does not know has a reason instead.
    fn find_devices(&self) -> Vec<(DeviceDescription, Result<Self::Device, String>)>;

    /// Reads a value, in the unit of [`DeviceMetric`].
    ///
    /// # Errors
    /// Why there is no value.
    fn read(&self, device: &mut Self::Device, metric: DeviceMetric) -> Result<i64, ReadError>;
}

/// The process-wide state of a management library.
#[derive(Debug)]
pub(super) struct TelemetryState {
    /// Held by the thread of a recording, also when the recording has abandoned it.
    lease: ExclusiveLease,
    owner: OwningProcess,
}

impl TelemetryState {
    pub(super) const fn new() -> TelemetryState {
        TelemetryState { lease: ExclusiveLease::new(), owner: OwningProcess::new() }
    }
}

/// Samples a vendor's devices.
pub(super) struct Telemetry<L: ManagementLibrary> {
    context: L::Context,
    loaded: LazyLibrary<Arc<L>>,
    calls: LibraryCalls,
}

/// Calls a library on other threads, one at a time, since it may hang.
#[derive(Debug, Default)]
struct LibraryCalls {
    /// Locked during a call, so that other callers wait. The thread of the last call owns the token until the call ends.
    token: Mutex<Weak<()>>,
}

impl LibraryCalls {
    /// Calls a library.
    ///
    /// # Errors
    /// This call or an earlier one did not return in time, the call panicked, or the operating system refuses a thread.
    fn call<R: Send + 'static>(
        &self,
        [collector, library]: [&'static str; 2],
        patience: Duration,
        call: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Unavailable> {
        let mut last = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        // A second thread would hang as well.
        if last.upgrade().is_some() {
            return Err(hung_call(library, patience));
        }
        let token = Arc::new(());
        *last = Arc::downgrade(&token);
        let call = move || {
            let _token = token;
            catch_panic(library, call)
        };
        let returned = try_call_on_thread(collector, patience, call).map_err(|error| Unavailable::no_thread(&error))?;
        returned.unwrap_or_else(|| Err(hung_call(library, patience)))
    }
}

fn hung_call(library: &str, patience: Duration) -> Unavailable {
    let message = format!("{library} did not return from a call within {} s", patience.as_secs());
    Unavailable::new(Why::Failed, message, "restart the program; if that does not help, check the driver")
}

impl<L: ManagementLibrary> fmt::Debug for Telemetry<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("library", &L::LIBRARY).finish_non_exhaustive()
    }
}

/// The option with the rate.
const RATE: &str = "DEVICE_TELEMETRY_HZ";
/// The highest rate: readings of some values are means of as long a time.
const HIGHEST: u32 = 10;
/// How long a library may take to initialise, or to find its devices.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the requested samples a second, or 0.
fn requested_rate(options: &Options) -> i64 {
    options.number(RATE).unwrap_or(0).max(0)
}

/// Returns the samples a second, and a note if the requested rate is another one.
fn effective_rate(options: &Options) -> (u32, Option<String>) {
    let requested = requested_rate(options);
    let rate = u32::try_from(requested).unwrap_or(u32::MAX).clamp(1, HIGHEST);
    let note = (requested > rate.into())
        .then(|| format!("{RATE} is {requested}: devices are sampled {rate} times a second, the most"));
    (rate, note)
}

impl<L: ManagementLibrary> Telemetry<L> {
    /// Makes a collector that finds the library by these options. Opens nothing yet.
    pub(super) fn new(context: L::Context, options: &Options) -> Telemetry<L> {
        Telemetry { context, loaded: LazyLibrary::new(options.clone()), calls: LibraryCalls::default() }
    }

    /// Opens the library, searching again until it is found.
    fn load(&self) -> Result<Arc<L>, Unavailable> {
        let state = L::state();
        if state.owner.is_inherited() {
            return Err(Unavailable::in_fork(&format!("used {}", L::LIBRARY)));
        }
        let find = |options: &Options, attempts: &mut Vec<Attempt>| {
            state.owner.claim();
            let (context, options) = (self.context.clone(), options.clone());
            let (library, tried) = self.call(move || {
                let mut tried = Vec::new();
                (L::open(&context, &options, &mut tried).map(Arc::new), tried)
            })?;
            attempts.extend(tried);
            library
        };
        self.loaded.get_or_find(find).cloned()
    }

    /// Calls the library on another thread, since it may hang.
    fn call<R: Send + 'static>(&self, call: impl FnOnce() -> R + Send + 'static) -> Result<R, Unavailable> {
        self.calls.call([L::NAME, L::LIBRARY], PATIENCE, call)
    }

    /// Finds the devices, and the reasons why others are not sampled.
    fn find_devices(&self, library: &Arc<L>) -> Result<FoundDevices, Unavailable> {
        let own = library.clone();
        self.call(move || FoundDevices::find(&own))?.check(L::LIBRARY)
    }
}

/// A device of a library that is read.
#[derive(Debug)]
struct LibraryDevice<L: ManagementLibrary> {
    library: Arc<L>,
    device: L::Device,
}

impl<L: ManagementLibrary> DeviceReader for LibraryDevice<L> {
    fn read(&mut self, metric: DeviceMetric) -> Result<i64, ReadError> {
        self.library.read(&mut self.device, metric)
    }
}

/// The devices that are sampled, and notes about the others.
#[derive(Debug)]
struct FoundDevices {
    devices: Vec<SampledDevice>,
    notes: Vec<String>,
}

impl FoundDevices {
    fn find<L: ManagementLibrary>(library: &Arc<L>) -> FoundDevices {
        let mut found = FoundDevices { devices: Vec::new(), notes: Vec::new() };
        for (description, device) in library.find_devices() {
            match device {
                Ok(device) => {
                    let device = Box::new(LibraryDevice { library: library.clone(), device });
                    found.devices.push(SampledDevice::new(description, device, L::REASONS));
                }
                Err(reason) => found.add_missing(&description, L::LIBRARY, &reason),
            }
        }
        found
    }

    fn add_missing(&mut self, description: &DeviceDescription, library: &str, reason: &str) {
        self.notes.push(format!("{} is not sampled by {library}: {reason}", description.label));
    }

    /// Checks that there is a device.
    ///
    /// # Errors
    /// Why there is none.
    fn check(self, library: &str) -> Result<FoundDevices, Unavailable> {
        if !self.devices.is_empty() {
            return Ok(self);
        }
        let message = if self.notes.is_empty() {
            format!("{library} has no device to sample")
        } else {
            self.notes.join(", and ")
        };
        Err(Unavailable::new(Why::NoDevice, message, "see which devices the program may use"))
    }

    /// Lists the values of each device; the library is called.
    fn list_values(mut self) -> Vec<String> {
        self.devices.iter_mut().map(SampledDevice::list_values).collect()
    }

    fn into_descriptions(self) -> Vec<DeviceDescription> {
        self.devices.into_iter().map(SampledDevice::into_description).collect()
    }
}

/// Returns the capabilities of a library that was opened.
fn capabilities<L: ManagementLibrary>(library: &L) -> Capabilities {
    let (path, version) = library.describe();
    let metadata = version.map(|version| (format!("{}_version", L::NAME), Value::from(version).to_string()));
    let types = ActivityType::HardwareCounters.into();
    Capabilities { types, library: path, metadata: metadata.into_iter().collect(), ..Capabilities::default() }
}

impl<L: ManagementLibrary> Collector for Telemetry<L> {
    fn name(&self) -> &'static str {
        L::NAME
    }

    fn types(&self) -> ActivityTypes {
        ActivityType::HardwareCounters.into()
    }

    fn is_selected(&self, selection: &Selection) -> bool {
        requested_rate(&selection.options) > 0
    }

    fn is_optional(&self) -> bool {
        true
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let library = self.load()?;
        let mut found = self.find_devices(&library)?;
        let mut can = capabilities(&*library);
        can.notes = std::mem::take(&mut found.notes);
        can.notes.extend(self.call(move || found.list_values())?);
        Ok(can)
    }

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        let library = self.load()?;
        let found = if L::can_wait_for_devices() { Some(self.find_devices(&library)?) } else { None };
        if !L::state().lease.try_acquire() {
            return Err(Unavailable::library_in_use(L::LIBRARY));
        }
        let (rate, note) = effective_rate(&selection.options);
        if let Some(note) = note {
            sink.note(note);
        }
        let can = capabilities(&*library);
        let find = Box::new(move || found.unwrap_or_else(|| FoundDevices::find(&library)));
        let release = || L::state().lease.release();
        let period = Duration::from_secs(1) / rate;
        let recording = TelemetryRecording::start([L::NAME, L::LIBRARY], release, find, period, sink)?;
        Ok((can, Box::new(recording)))
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        let found = self.loaded.get().and_then(|library| self.find_devices(library).ok());
        found.map(FoundDevices::into_descriptions).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const NAMES: [&str; 2] = ["test", "libtest"];

    #[test]
    fn calls_wait_for_each_other() {
        let calls = LibraryCalls::default();
        let arrived = Arc::new(AtomicU32::new(0));
        let call = || {
            arrived.fetch_add(1, Ordering::SeqCst);
            let arrived = arrived.clone();
            // The first call lasts until all threads are about to call.
            let wait_for_all = move || {
                while arrived.load(Ordering::SeqCst) < 4 {
                    std::thread::yield_now();
                }
            };
            calls.call(NAMES, Duration::from_secs(60), wait_for_all)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(call)).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap().is_ok()));
        });
    }

    #[test]
    fn hung_call_refuses_others_until_it_returns() {
        let calls = LibraryCalls::default();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let hung = calls.call(NAMES, Duration::ZERO, move || _ = released.recv()).unwrap_err();
        let refused = calls.call(NAMES, Duration::from_secs(60), || ()).unwrap_err();
        for reason in [hung, refused] {
            assert!(reason.message().starts_with("libtest did not return from a call"), "{reason}");
        }
        drop(release);
        while calls.call(NAMES, Duration::from_secs(60), || ()).is_err() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn panic_in_a_call_is_no_hang() {
        let calls = LibraryCalls::default();
        let reason = calls.call(NAMES, Duration::from_secs(60), || panic!("planted")).unwrap_err();
        assert_eq!(reason.message(), "it panicked in `libtest`: planted");
        assert!(calls.call(NAMES, Duration::from_secs(60), || ()).is_ok());
    }

    #[test]
    fn rate_is_clamped_with_a_note() {
        let rate = |hz: Option<i64>| {
            let mut options = Options::default();
            hz.into_iter().for_each(|hz| options.set(RATE, hz));
            let (rate, note) = effective_rate(&options);
            (requested_rate(&options) > 0, rate, note.is_some())
        };
        let cases = [None, Some(0), Some(1), Some(10), Some(11), Some(i64::MAX)].map(rate);
        let expected = [
            (false, 1, false),
            (false, 1, false),
            (true, 1, false),
            (true, 10, false),
            (true, 10, true),
            (true, 10, true),
        ];
        assert_eq!(cases, expected);
    }
}
