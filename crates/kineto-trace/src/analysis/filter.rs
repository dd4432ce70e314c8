//! Selects a part of a trace's events.

use super::events::{Event, Events};
use crate::time::Timestamp;
use crate::{Error, ErrorKind};

/// Selects events by step, time, thread, stream and name; for [`Events::filtered`].
///
/// An event must meet all conditions that are set. Device work counts to the time and the thread of the call that launched it, if
/// that is known.
///
/// ```no_run
/// use kineto_trace::analysis::{EventFilter, Events};
///
/// let events = Events::read("app.pt.trace.json.gz")?;
/// println!("{}", events.filtered(&EventFilter::new().step(7))?.summary().screen());
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    step: Option<u64>,
    window: Option<(Timestamp, Timestamp)>,
    thread: Option<i64>,
    stream: Option<u64>,
    name: Option<String>,
}

impl EventFilter {
    /// Returns a filter that selects all events.
    pub fn new() -> EventFilter {
        EventFilter::default()
    }

    /// Selects what begins in `ProfilerStep#number`, and the device work launched in it.
    #[must_use]
    pub fn step(self, number: u64) -> EventFilter {
        EventFilter { step: Some(number), ..self }
    }

    /// Selects what begins in this window (`start..end`), and the device work launched in it.
    #[must_use]
    pub fn within(self, start: Timestamp, end: Timestamp) -> EventFilter {
        EventFilter { window: Some((start, end)), ..self }
    }

    /// Selects this thread and the device work that it launched.
    #[must_use]
    pub fn thread(self, id: i64) -> EventFilter {
        EventFilter { thread: Some(id), ..self }
    }

    /// Selects the work of this stream; events of the host stay.
    #[must_use]
    pub fn stream(self, number: u64) -> EventFilter {
        EventFilter { stream: Some(number), ..self }
    }

    /// Selects events whose name contains this text.
    #[must_use]
    pub fn name(self, text: impl Into<String>) -> EventFilter {
        EventFilter { name: Some(text.into()), ..self }
    }
}

impl Events {
    /// Returns the events that `filter` selects, with the same header and names of tracks.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if the trace has no step of that number.
    pub fn filtered(mut self, filter: &EventFilter) -> Result<Events, Error> {
        if matches!(filter, EventFilter { step: None, window: None, thread: None, stream: None, name: None }) {
            return Ok(self);
        }
        let step = filter.step.map(|number| self.step_window(number)).transpose()?;
        let attribution = self.attribution();
        let is_kept = |event: Event<'_>| {
            let launch = attribution.launch(event).unwrap_or(event);
            let is_in = |(start, end): (Timestamp, Timestamp)| (start..end).contains(&launch.start());
            step.is_none_or(is_in)
                && filter.window.is_none_or(is_in)
                && filter.thread.is_none_or(|thread| launch.thread() == Some(thread))
                && (filter.stream.is_none() || !event.is_on_device() || event.stream() == filter.stream)
                && filter.name.as_ref().is_none_or(|text| event.name().contains(text.as_str()))
        };
        let kept: Vec<bool> = self.iter().map(is_kept).collect();
        self.retain_events(&kept);
        Ok(self)
    }

    /// Keeps the events for which `kept` is true, and their arrows.
    fn retain_events(&mut self, kept: &[bool]) {
        let mut next = 0;
        let places: Vec<Option<u32>> = kept
            .iter()
            .map(|is_kept| {
                let place = is_kept.then_some(next);
                next += u32::from(*is_kept);
                place
            })
            .collect();
        let mut flags = kept.iter();
        self.rows.retain(|_| flags.next().is_some_and(|kept| *kept));
        self.flows = self
            .flows
            .iter()
            .filter_map(|(event, flow)| Some((places.get(*event as usize).copied().flatten()?, *flow)))
            .collect();
    }

    /// Returns the start and end of a step on the host.
    pub(super) fn step_window(&self, number: u64) -> Result<(Timestamp, Timestamp), Error> {
        let host = self.iter().filter(|event| event.is_slice() && !event.is_on_device());
        let steps: Vec<_> = host.filter_map(|event| Some((event.step_number()?, event))).collect();
        let Some((_, step)) = steps.iter().find(|(found, _)| *found == number) else {
            let (first, last) = (steps.first().map(|(first, _)| first), steps.last().map(|(last, _)| last));
            let advice = match first.zip(last) {
                Some((first, last)) => format!("the trace has steps {first} to {last}"),
                None => "the trace has no steps; call Profiler::step in the program".to_owned(),
            };
            return Err(Error::new(ErrorKind::Config, format!("there is no step {number}: {advice}")));
        };
        Ok((step.start(), step.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"[
        {"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":1,"tid":1,"ts":0,"dur":10},
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":2,"dur":2,"args":{"correlation":1}},
        {"ph":"s","cat":"ac2g","id":1,"pid":1,"tid":1,"ts":2}, {"ph":"f","bp":"e","cat":"ac2g","id":1,"pid":0,"tid":7,"ts":12},
        {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":12,"dur":5,"args":{"correlation":1,"device":0,"stream":7}},
        {"ph":"X","cat":"user_annotation","name":"ProfilerStep#5","pid":1,"tid":1,"ts":10,"dur":10},
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":2,"ts":11,"dur":2},
        {"ph":"X","cat":"kernel","name":"copy","pid":0,"tid":8,"ts":13,"dur":5,"args":{"device":0,"stream":8}}
    ]"#;

    fn names(filter: &EventFilter) -> Vec<String> {
        let events = Events::from_reader(TEXT.as_bytes()).unwrap().filtered(filter).unwrap();
        events.iter().map(|event| event.name().to_owned()).collect()
    }

    #[test]
    fn each_condition_selects_events() {
        let at = |us: u64| Timestamp::from_nanos(us * 1000);
        let filter = EventFilter::new;
        assert_eq!(names(&filter()).len(), 6);
        assert_eq!(names(&filter().step(4)), ["ProfilerStep#4", "cudaLaunchKernel", "gemm"]);
        assert_eq!(names(&filter().step(5)), ["ProfilerStep#5", "aten::mm", "copy"]);
        assert_eq!(names(&filter().within(at(1), at(11))), ["cudaLaunchKernel", "ProfilerStep#5", "gemm"]);
        assert_eq!(names(&filter().thread(2)), ["aten::mm"]);
        assert_eq!(
            names(&filter().thread(1).name("e")),
            ["ProfilerStep#4", "cudaLaunchKernel", "ProfilerStep#5", "gemm"]
        );
        assert_eq!(names(&filter().stream(8).name("m")), ["aten::mm"]);
    }

    #[test]
    fn arrows_stay_with_their_events() {
        let events = Events::from_reader(TEXT.as_bytes()).unwrap().filtered(&EventFilter::new().name("gemm")).unwrap();
        assert_eq!((events.len(), events.get(0).unwrap().flows().count()), (1, 1));
    }

    #[test]
    fn missing_step_names_those_that_exist() {
        let error = Events::from_reader(TEXT.as_bytes()).unwrap().filtered(&EventFilter::new().step(9)).unwrap_err();
        assert_eq!(error.to_string(), "there is no step 9: the trace has steps 4 to 5");
    }
}
