//! Device work and counters as PyTorch writes them: render stages and counter events of GPUs.

use super::PerfettoReader;
use super::event::PacketTime;
use super::wire::ProtoMessage;
use crate::activity::ArgValue;
use crate::analysis::events::{EventDraft, Phase, StringId, TrackId};
use crate::analysis::json_reader::Result;
use crate::write::perfetto::fields::{gpu_counter, interned, stage};

/// The stages of PyTorch, and the categories of such work in its JSON.
const CATEGORIES: [(&str, &str); 6] = [
    ("Kernel", "kernel"),
    ("Memcpy", "gpu_memcpy"),
    ("Memset", "gpu_memset"),
    ("Annotation", "gpu_user_annotation"),
    ("EventRecord", "graph_event_node"),
    ("HostNode", "graph_host_node"),
];

/// Arguments that have another name in PyTorch's JSON.
const RENAMED: [(&str, &str); 5] = [
    ("device id", "device"),
    ("context id", "context"),
    ("stream id", "stream"),
    ("registers_per_thread", "registers per thread"),
    ("shared_mem_dynamic", "shared memory"),
];

/// The fields of a render stage.
#[derive(Debug, Default)]
struct RenderStage {
    id: u64,
    duration: u64,
    device: i64,
    queue: Option<StringId>,
    stage: Option<StringId>,
    name: Option<StringId>,
}

impl PerfettoReader {
    /// Adds device work.
    pub(super) fn read_render_stage(&mut self, message: ProtoMessage<'_>, time: PacketTime) -> Result<()> {
        if self.is_late {
            return Ok(());
        }
        let (mut work, mut fields, mut waits) = (RenderStage::default(), message, Vec::new());
        let first = self.builder.events.arguments.current_mark().entry;
        while let Some((field, value)) = fields.next_field()? {
            let id = value.number();
            match field {
                stage::EVENT_ID => work.id = id,
                stage::DURATION => work.duration = id,
                stage::GPU_ID => work.device = value.signed(),
                stage::QUEUE_ID => {
                    work.queue = Some(self.sequence_text(time.sequence, interned::GPU_SPECIFICATIONS, id))
                }
                stage::STAGE_ID => {
                    work.stage = Some(self.sequence_text(time.sequence, interned::GPU_SPECIFICATIONS, id))
                }
                stage::NAME_ID => work.name = Some(self.sequence_text(time.sequence, interned::NAMES, id)),
                stage::NAME => work.name = Some(self.intern(value.bytes())),
                stage::WAIT_IDS => waits.push(id),
                stage::EXTRA_DATA => self.store_extra(value.message(), first)?,
                stage::LAUNCH => self.store_launch(value.message(), time.sequence, first)?,
                _ => {}
            }
        }
        let strings = &mut self.builder.events.strings;
        let stage = work.stage.map(|stage| strings.get(stage).to_owned()).unwrap_or_default();
        let queue = work.queue.map(|queue| strings.get(queue).to_owned()).unwrap_or_default();
        let category =
            CATEGORIES.iter().find(|(name, _)| *name == stage).map_or(stage.as_str(), |(_, category)| category);
        let name = work.name.filter(|name| *name != StringId::EMPTY).or(work.stage).unwrap_or(StringId::EMPTY);
        let category = strings.intern(category);
        let track = self.stream_track(work.device, &queue);
        let end = Some(time.at.saturating_add(i64::try_from(work.duration).unwrap_or(i64::MAX)));
        let arguments = self.builder.events.arguments.range_from(first);
        let row = self.next_row();
        let (phase, start) = (Phase::Slice, time.at);
        self.builder.push(&EventDraft { phase, track, start, end, category, name, arguments, external: None });
        self.flows.add_stage(work.id, row);
        waits.into_iter().for_each(|wait| self.flows.push_wait(row, wait));
        Ok(())
    }

    /// Returns the track of a stream by the name of its queue, such as "[07] stream 7".
    fn stream_track(&mut self, device: i64, queue: &str) -> u32 {
        let numbered = queue.strip_prefix('[').and_then(|rest| rest.split_once("] "));
        let number = numbered.and_then(|(number, _)| number.parse().ok());
        let name = numbered.map_or(queue, |(_, name)| name);
        let number = number.or_else(|| name.strip_prefix("stream ")?.parse().ok());
        let thread = number.map_or_else(|| TrackId::Name(queue.to_owned()), TrackId::Id);
        self.known_track(TrackId::Id(device), thread, name)
    }

    /// Stores an argument whose value is a text, though it may be a number.
    fn store_extra(&mut self, mut message: ProtoMessage<'_>, first: u32) -> Result<()> {
        let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
        while let Some((field, found)) = message.next_field()? {
            match field {
                stage::EXTRA_NAME => name = found.bytes(),
                stage::EXTRA_VALUE => value = found.bytes(),
                _ => {}
            }
        }
        let key = self.argument_key(name);
        let text = String::from_utf8_lossy(value);
        let value = match (text.parse(), text.parse()) {
            (Ok(integer), _) => ArgValue::I64(integer),
            (_, Ok(float)) if f64::is_finite(float) => ArgValue::F64(float),
            _ => ArgValue::Str(&text),
        };
        self.builder.events.arguments.store_arg(first, key, value);
        Ok(())
    }

    /// Stores the sizes and arguments of a kernel's launch.
    fn store_launch(&mut self, mut message: ProtoMessage<'_>, sequence: u64, first: u32) -> Result<()> {
        while let Some((field, value)) = message.next_field()? {
            match field {
                stage::GRID | stage::WORKGROUP => {
                    let key = if field == stage::GRID { "grid" } else { "block" };
                    let (mut sizes, mut size) = ([0; 3], value.message());
                    while let Some((axis, value)) = size.next_field()? {
                        let axis = usize::try_from(axis).unwrap_or(usize::MAX).wrapping_sub(1);
                        if let Some(size) = sizes.get_mut(axis) {
                            *size = value.signed();
                        }
                    }
                    let key = self.builder.events.strings.intern(key);
                    self.builder.events.arguments.store_arg(first, key, ArgValue::Ints(&sizes));
                }
                stage::ARGS => self.store_launch_arg(value.message(), sequence, first)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn store_launch_arg(&mut self, mut message: ProtoMessage<'_>, sequence: u64, first: u32) -> Result<()> {
        let (mut name, mut value) = (None, None);
        while let Some((field, found)) = message.next_field()? {
            match field {
                stage::ARG_NAME_ID => {
                    let id = self.sequence_text(sequence, interned::COMPUTE_ARG_NAMES, found.number());
                    name = Some(self.builder.events.strings.get(id).to_owned());
                }
                stage::ARG_NAME => name = Some(String::from_utf8_lossy(found.bytes()).into_owned()),
                stage::ARG_INT => value = Some(ArgValue::I64(found.signed())),
                stage::ARG_UINT => value = Some(ArgValue::U64(found.number())),
                _ => {}
            }
        }
        if let Some((name, value)) = name.zip(value) {
            let key = self.argument_key(name.as_bytes());
            self.builder.events.arguments.store_arg(first, key, value);
        }
        Ok(())
    }

    fn argument_key(&mut self, name: &[u8]) -> StringId {
        let renamed = RENAMED.iter().find(|(from, _)| from.as_bytes() == name).map(|(_, to)| to.as_bytes());
        self.intern(renamed.unwrap_or(name))
    }

    /// Adds the values of a GPU's counters.
    pub(super) fn read_gpu_counters(&mut self, message: ProtoMessage<'_>, time: PacketTime) -> Result<()> {
        let (mut device, mut descriptor, mut fields) = (0, 0, message);
        while let Some((field, value)) = fields.next_field()? {
            match field {
                gpu_counter::GPU_ID => device = value.signed(),
                gpu_counter::DESCRIPTOR_ID => descriptor = value.number(),
                gpu_counter::DESCRIPTOR => {
                    let (sequences, events) = (&mut self.sequences, &mut self.builder.events);
                    let sequence = sequences.entry(time.sequence).or_default();
                    sequence.read_counters(0, value.message(), &mut events.strings, &mut events.notes)?;
                }
                _ => {}
            }
        }
        let mut fields = message;
        while let Some((field, value)) = fields.next_field()? {
            if field == gpu_counter::COUNTERS && !self.is_late {
                self.add_gpu_counter(value.message(), (device, descriptor), time)?;
            }
        }
        Ok(())
    }

    fn add_gpu_counter(
        &mut self,
        mut message: ProtoMessage<'_>,
        (device, descriptor): (i64, u64),
        time: PacketTime,
    ) -> Result<()> {
        let (mut id, mut value) = (0, None);
        while let Some((field, found)) = message.next_field()? {
            match field {
                gpu_counter::ID => id = found.number(),
                gpu_counter::INT => value = Some(ArgValue::I64(found.signed())),
                gpu_counter::DOUBLE => value = Some(ArgValue::F64(found.double())),
                _ => {}
            }
        }
        let name = self.sequences.get(&time.sequence).and_then(|sequence| sequence.counter_name(descriptor, id));
        let (Some(name), Some(value)) = (name, value) else { return Ok(()) };
        let track = self.known_track(TrackId::Name(format!("GPU {device} Counters")), TrackId::Id(0), "");
        let arguments = &mut self.builder.events.arguments;
        let first = arguments.current_mark().entry;
        arguments.store_arg(first, StringId::EMPTY, value);
        let (arguments, at) = (arguments.range_from(first), time.at);
        let (phase, category) = (Phase::Counter, StringId::EMPTY);
        let (start, end) = (at, Some(at));
        self.builder.push(&EventDraft { phase, track, start, end, category, name, arguments, external: None });
        Ok(())
    }
}
