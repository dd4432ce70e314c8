//! The catalogue of argument names that PyTorch's front end and Kineto's collectors write, with their types.
//!
//! Readers of traces (TensorBoard, HTA, PyTorch's own tools) expect exactly these names. The layer uses the catalogue
//! to map a span's fields to arguments; the writer, trace checks and the documentation use it too. Other names are
//! allowed anywhere.

use super::ArgValue;
pub use super::value_kind::ValueKind;

/// One argument of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name in the trace file.
    pub key: &'static str,
    /// The type of its value.
    pub kind: ValueKind,
    /// The component that writes it.
    pub owner: Owner,
    /// The name of a span's field that maps to it.
    pub alias: Option<&'static str>,
}

/// The component that writes an argument.
///
/// An argument of several components, such as `device`, is listed once, under the most general one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Owner {
    /// The trace writer; a span's field cannot be such an argument.
    Writer,
    /// The front end, on operations: names that a span's field may have.
    FrontEnd,
    /// The front end, on functions of an interpreter.
    Python,
    /// The front end, on `[memory]` and `[OutOfMemory]` instants.
    Memory,
    /// The front end, on operations named `record_param_comms`; they are copied to the kernels launched there.
    Collective,
    /// Every collector, on device activities.
    Device,
    /// Collectors, on kernels.
    Kernel,
    /// Collectors, inside a kernel's `occupancy`.
    Occupancy,
    /// Collectors, on copies and fills.
    Memcpy,
    /// Collectors, on calls of a runtime or driver.
    Runtime,
    /// Collectors, on `cuda_sync` and `cuda_event`.
    Sync,
    /// The collector for AMD devices.
    Rocm,
    /// The collector for Intel devices.
    Xpu,
    /// Every collector, in the header's `deviceProperties`.
    DeviceProperty,
}

/// All arguments of trace rows; each name and alias occurs once.
pub const CATALOGUE: &[Entry] = {
    use {Owner::*, ValueKind::*};
    &[
        entry("External id", Int, Writer),
        entry("Ev Idx", Int, Writer),
        entry("Record function id", Uint, Writer),
        entry("finished", Bool, Writer),
        entry("Op count", Int, Writer),
        entry("Input Dims", NestedInts, FrontEnd).with_alias("dims"),
        entry("Input Strides", NestedInts, FrontEnd).with_alias("strides"),
        entry("Input type", Strs, FrontEnd).with_alias("types"),
        entry("Concrete Inputs", Strs, FrontEnd).with_alias("concrete_inputs"),
        entry("Sequence number", Int, FrontEnd).with_alias("seq"),
        entry("Fwd thread id", Uint, FrontEnd).with_alias("fwd_thread"),
        entry("Record function scope", Int, FrontEnd).with_alias("record_scope"),
        entry("Call stack", Str, FrontEnd).with_alias("call_stack"),
        entry("Module Hierarchy", Str, FrontEnd).with_alias("module_hierarchy"),
        entry("CallFrom", Str, FrontEnd).with_alias("call_from"),
        entry("Backend", Str, FrontEnd),
        entry("Python id", Uint, Python),
        entry("Python parent id", Uint, Python),
        entry("Python module id", Uint, Python),
        entry("Python thread", Uint, Python),
        entry("Addr", Uint, Memory),
        entry("Bytes", Int, Memory),
        entry("Total Allocated", Uint, Memory),
        entry("Total Reserved", Uint, Memory),
        entry("Device Type", Int, Memory),
        entry("Device Id", Int, Memory),
        entry("Collective name", Str, Collective).with_alias("collective_name"),
        entry("dtype", Str, Collective),
        entry("In msg nelems", Int, Collective).with_alias("in_msg_nelems"),
        entry("Out msg nelems", Int, Collective).with_alias("out_msg_nelems"),
        entry("In split size", Str, Collective).with_alias("in_split_size"),
        entry("Out split size", Str, Collective).with_alias("out_split_size"),
        entry("Global rank start", Int, Collective).with_alias("global_rank_start"),
        entry("Global rank stride", Int, Collective).with_alias("global_rank_stride"),
        entry("Group size", Int, Collective),
        entry("Process Group Name", Str, Collective).with_alias("process_group_name"),
        entry("Process Group Description", Str, Collective).with_alias("process_group_description"),
        entry("Process Group Ranks", Str, Collective).with_alias("process_group_ranks"),
        entry("Rank", Int, Collective),
        entry("Src Rank", Int, Collective).with_alias("src_rank"),
        entry("Dst Rank", Int, Collective).with_alias("dst_rank"),
        entry("Seq", Int, Collective),
        entry("Comms Id", Handle, Collective).with_alias("comms_id"),
        entry("Is asynchronized op", Bool, Collective),
        entry("Input Tensors start", Str, Collective),
        entry("Output Tensors start", Str, Collective),
        entry("device", Int, Device),
        entry("context", Handle, Device),
        entry("stream", Int, Device),
        entry("correlation", Uint, Device),
        entry("graph id", Uint, Device),
        entry("graph node id", Uint, Device),
        entry("channel", Uint, Device),
        entry("channel_type", Int, Device),
        entry("queued", Uint, Kernel),
        entry("registers per thread", Uint, Kernel),
        entry("shared memory", Int, Kernel),
        entry("blocks per SM", Float, Kernel),
        entry("warps per SM", Float, Kernel),
        entry("grid", Ints, Kernel),
        entry("block", Ints, Kernel),
        entry("est. achieved occupancy %", Int, Kernel),
        entry("occupancy", Dict, Kernel),
        entry("priority", Int, Kernel),
        entry("activeBlocksPerMultiprocessor", Int, Occupancy),
        entry("limitingFactors", Str, Occupancy),
        entry("blockLimitRegs", Int, Occupancy),
        entry("blockLimitSharedMem", Int, Occupancy),
        entry("blockLimitWarps", Int, Occupancy),
        entry("blockLimitBlocks", Int, Occupancy),
        entry("blockLimitBarriers", Int, Occupancy),
        entry("allocatedRegistersPerBlock", Int, Occupancy),
        entry("allocatedSharedMemPerBlock", Uint, Occupancy),
        entry("bytes", Uint, Memcpy),
        entry("memory bandwidth (GB/s)", Float, Memcpy),
        entry("fromDevice", Uint, Memcpy),
        entry("inDevice", Uint, Memcpy),
        entry("toDevice", Uint, Memcpy),
        entry("fromContext", Uint, Memcpy),
        entry("inContext", Uint, Memcpy),
        entry("toContext", Uint, Memcpy),
        entry("cbid", Uint, Runtime),
        entry("cuda_sync_kind", Str, Sync),
        entry("event_id", Uint, Sync),
        entry("wait_on_stream", Int, Sync),
        entry("wait_on_cuda_event_id", Uint, Sync),
        entry("wait_on_cuda_event_record_corr_id", Int, Sync),
        entry("cid", Uint, Rocm),
        entry("hsa_queue", Uint, Rocm),
        entry("kernel", Str, Rocm),
        entry("kind", Str, Rocm),
        entry("src", Str, Rocm),
        entry("dst", Str, Rocm),
        entry("ptr", Str, Rocm),
        entry("l0 call", Str, Xpu),
        entry("l0 queue", Str, Xpu),
        entry("sycl queue", Uint, Xpu),
        entry("appended", Str, Xpu),
        entry("appended_rel_to_start", Str, Xpu),
        entry("submitted", Str, Xpu),
        entry("submitted_rel_to_start", Str, Xpu),
        entry("sycl_task_begin", Str, Xpu),
        entry("sycl_task_begin_rel_to_start", Str, Xpu),
        entry("sycl_enqk_begin", Str, Xpu),
        entry("sycl_enqk_begin_rel_to_start", Str, Xpu),
        entry("source_file_name", Str, Xpu),
        entry("source_line_number", Uint, Xpu),
        entry("kernel_id", Uint, Xpu),
        entry("sycl_node_id", Uint, Xpu),
        entry("sycl_invocation_id", Uint, Xpu),
        // Kineto's spelling.
        entry("memory opration id", Uint, Xpu),
        entry("Type", Str, Xpu),
        entry("Context_handle", Str, Xpu),
        entry("Queue_handle", Str, Xpu),
        entry("Event_handle", Str, Xpu),
        entry("Number_wait_events", Uint, Xpu),
        entry("Return_code", Int, Xpu),
        entry("Communicator_id", Uint, Xpu),
        entry("overhead cost", Uint, Xpu),
        entry("overhead occupancy", Str, Xpu),
        entry("overhead count", Uint, Xpu),
    ]
};

/// Host arguments that HTA expects with a certain type, but that no version of PyTorch writes; [`lookup_field`] ignores them.
pub const HTA_ARGUMENTS: &[Entry] = {
    use {Owner::*, ValueKind::*};
    &[
        entry("kernel_backend", Str, FrontEnd),
        entry("kernel_hash", Str, FrontEnd),
        entry("batchId", Str, FrontEnd),
        entry("batchSize", Int, FrontEnd),
        entry("In msg size", Int, FrontEnd),
        entry("Out msg size", Int, FrontEnd),
    ]
};

/// All device properties in the header's `deviceProperties`. They are not arguments, so [`lookup_field`] ignores them.
pub const DEVICE_PROPERTIES: &[Entry] = {
    use {Owner::DeviceProperty, ValueKind::*};
    &[
        entry("id", Uint, DeviceProperty),
        entry("name", Str, DeviceProperty),
        entry("totalGlobalMem", Uint, DeviceProperty),
        entry("computeMajor", Int, DeviceProperty),
        entry("computeMinor", Int, DeviceProperty),
        entry("maxThreadsPerBlock", Int, DeviceProperty),
        entry("maxThreadsPerMultiprocessor", Int, DeviceProperty),
        entry("regsPerBlock", Int, DeviceProperty),
        entry("warpSize", Int, DeviceProperty),
        entry("sharedMemPerBlock", Uint, DeviceProperty),
        entry("numSms", Int, DeviceProperty),
        entry("regsPerMultiprocessor", Int, DeviceProperty),
        entry("sharedMemPerBlockOptin", Uint, DeviceProperty),
        entry("sharedMemPerMultiprocessor", Uint, DeviceProperty),
        entry("maxSharedMemoryPerMultiProcessor", Uint, DeviceProperty),
        entry("maxComputeUnits", Uint, DeviceProperty),
        entry("maxWorkGroupSize", Uint, DeviceProperty),
        entry("maxClockFrequency", Uint, DeviceProperty),
        entry("maxMemAllocSize", Uint, DeviceProperty),
        entry("localMemSize", Uint, DeviceProperty),
        entry("vendor", Str, DeviceProperty),
        entry("driverVersion", Str, DeviceProperty),
    ]
};

/// Returns the argument that a span's field maps to, by name or alias.
///
/// Aliases exist only for arguments of the front end, and only for names that are unlikely to mean something else in a
/// program. So `backend`, `rank`, `group_size` and device arguments have none. The aliases are:
///
/// | field | argument |
/// |---|---|
/// | `dims` | `Input Dims` |
/// | `strides` | `Input Strides` |
/// | `types` | `Input type` |
/// | `concrete_inputs` | `Concrete Inputs` |
/// | `seq` | `Sequence number` |
/// | `fwd_thread` | `Fwd thread id` |
/// | `record_scope` | `Record function scope` |
/// | `call_stack` | `Call stack` |
/// | `module_hierarchy` | `Module Hierarchy` |
/// | `call_from` | `CallFrom` |
/// | `collective_name` | `Collective name` |
/// | `in_msg_nelems` | `In msg nelems` |
/// | `out_msg_nelems` | `Out msg nelems` |
/// | `in_split_size` | `In split size` |
/// | `out_split_size` | `Out split size` |
/// | `global_rank_start` | `Global rank start` |
/// | `global_rank_stride` | `Global rank stride` |
/// | `process_group_name` | `Process Group Name` |
/// | `process_group_description` | `Process Group Description` |
/// | `process_group_ranks` | `Process Group Ranks` |
/// | `src_rank` | `Src Rank` |
/// | `dst_rank` | `Dst Rank` |
/// | `comms_id` | `Comms Id` |
///
/// It searches the table, so call it once per callsite.
pub fn lookup_field(field: &str) -> Option<&'static Entry> {
    CATALOGUE.iter().find(|entry| entry.key == field || entry.alias == Some(field))
}

impl Owner {
    /// Returns whether readers trust the name of such an argument on any row. The names of AMD's and Intel's collectors
    /// are words such as `kind` and `src`, which readers only show.
    pub const fn is_trusted(self) -> bool {
        !matches!(self, Owner::Rocm | Owner::Xpu | Owner::Occupancy)
    }
}

impl Entry {
    /// Returns the value to be written under [`key`](Entry::key); `None` if it has the wrong type.
    ///
    /// In that case a field keeps its own name, since readers of `Input Dims` accept only lists there. JSON text of the
    /// right shape counts as a list or object, so `dims = ?[[2, 3], [4]]` becomes `"Input Dims": [[2, 3], [4]]`. Text
    /// of an integer counts as an integer (`seq = %node`).
    pub fn typed_value<'v>(&self, value: ArgValue<'v>) -> Option<ArgValue<'v>> {
        match (self.kind, value) {
            (ValueKind::Int | ValueKind::Uint | ValueKind::Handle, ArgValue::Str(text)) => {
                let number = text.parse().map(ArgValue::U64).or_else(|_| text.parse().map(ArgValue::I64));
                let handle = (self.kind == ValueKind::Handle).then_some(value);
                number.ok().filter(|number| self.kind.accepts(*number)).or(handle)
            }
            (_, ArgValue::Str(text)) if self.kind != ValueKind::Str => {
                self.kind.accepts_json(text).then_some(ArgValue::Json(text))
            }
            _ => self.kind.accepts(value).then_some(value),
        }
    }

    /// Returns the argument with an alias.
    const fn with_alias(mut self, alias: &'static str) -> Entry {
        self.alias = Some(alias);
        self
    }
}

/// Returns an argument without an alias.
const fn entry(key: &'static str, kind: ValueKind, owner: Owner) -> Entry {
    Entry { key, kind, owner, alias: None }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_aliases_are_unique() {
        let mut seen = HashSet::new();
        for name in CATALOGUE.iter().flat_map(|entry| [Some(entry.key), entry.alias]).flatten() {
            assert!(seen.insert(name), "{name} occurs twice");
        }
        let properties: HashSet<_> = DEVICE_PROPERTIES.iter().map(|entry| entry.key).collect();
        assert_eq!(properties.len(), DEVICE_PROPERTIES.len());
    }

    #[test]
    fn every_entry_is_found_by_name_and_by_alias() {
        for entry in CATALOGUE {
            assert_eq!(lookup_field(entry.key), Some(entry));
            if let Some(alias) = entry.alias {
                assert_eq!(lookup_field(alias), Some(entry));
            }
        }
        assert_eq!(lookup_field("dims").unwrap().key, "Input Dims");
        assert_eq!(lookup_field("seq").unwrap().key, "Sequence number");
        for ordinary in ["", "name", "id", "rank", "backend", "group_size", "device_id", "message", "Dims"] {
            assert_eq!(lookup_field(ordinary), None, "{ordinary}");
        }
    }

    #[test]
    fn only_front_end_has_aliases_and_docs_list_them() {
        let source = include_str!("catalogue.rs");
        let listed = source.lines().filter(|line| line.starts_with("/// | `")).count();
        let aliased: Vec<_> = CATALOGUE.iter().filter(|entry| entry.alias.is_some()).collect();
        assert_eq!(listed, aliased.len());
        for entry in aliased {
            assert!(matches!(entry.owner, Owner::FrontEnd | Owner::Collective), "{}", entry.key);
            let row = format!("\n/// | `{}` | `{}` |\n", entry.alias.unwrap(), entry.key);
            assert!(source.contains(&row), "{row}");
        }
    }

    /// Returns the value as written for a field of that name.
    fn typed(field: &str, value: ArgValue<'_>) -> Option<String> {
        lookup_field(field).unwrap().typed_value(value).map(|value| format!("{value:?}"))
    }

    #[test]
    fn json_text_becomes_a_list() {
        for good in ["[[2, 3], [4]]", "[]", "[[], [[1, 2], [3]]]", " [[9223372036854775807]] "] {
            assert_eq!(typed("dims", ArgValue::Str(good)).as_deref(), Some(good));
            assert_eq!(typed("Input Strides", ArgValue::Json(good)).as_deref(), Some(good));
        }
        for bad in [
            "",
            "[2, 3]",
            "[[1.5]]",
            "[[2, [3]]]",
            "[[\"a\"]]",
            "[[2, 3]",
            "{}",
            "(2, 3)",
            "7",
            "[[9223372036854775808]]",
        ] {
            assert_eq!(typed("dims", ArgValue::Str(bad)), None, "{bad}");
        }
        assert_eq!(typed("types", ArgValue::Str(r#"["f32"]"#)).as_deref(), Some(r#"["f32"]"#));
        assert_eq!(typed("types", ArgValue::Strs(&["f32"])).as_deref(), Some(r#"["f32"]"#));
        assert_eq!(typed("types", ArgValue::Str("f32")), None);
        assert_eq!(typed("grid", ArgValue::Str("[1, 2, 3]")).as_deref(), Some("[1, 2, 3]"));
        assert_eq!(typed("grid", ArgValue::Ints(&[1])).as_deref(), Some("[1]"));
        assert_eq!(typed("dims", ArgValue::Ints(&[1])), None);
        assert_eq!(typed("occupancy", ArgValue::Str("{}")).as_deref(), Some("{}"));
        assert_eq!(typed("occupancy", ArgValue::Dict(super::super::NO_ARGS)).as_deref(), Some("{}"));
        assert_eq!(typed("occupancy", ArgValue::Json("[]")), None);
    }

    #[test]
    fn values_of_the_wrong_type_are_rejected() {
        assert_eq!(typed("seq", ArgValue::I64(-1)).as_deref(), Some("-1"));
        assert_eq!(typed("seq", ArgValue::Str("-12")).as_deref(), Some("-12"));
        assert_eq!(typed("seq", ArgValue::Str("twelve")), None);
        assert_eq!(typed("seq", ArgValue::F64(1.0)), None);
        assert_eq!(typed("seq", ArgValue::Bool(true)), None);
        assert_eq!(typed("fwd_thread", ArgValue::I64(-1)), None);
        assert_eq!(typed("fwd_thread", ArgValue::Str("-1")), None);
        assert_eq!(typed("comms_id", ArgValue::U64(u64::MAX)).as_deref(), Some("18446744073709551615"));
        assert_eq!(typed("comms_id", ArgValue::I128(-1)), None);
        assert_eq!(typed("comms_id", ArgValue::U128(7)).as_deref(), Some("7"));
        assert_eq!(typed("blocks per SM", ArgValue::I64(2)).as_deref(), Some("2"));
        assert_eq!(typed("blocks per SM", ArgValue::F64(f64::INFINITY)).as_deref(), Some("inf"));
        assert_eq!(typed("call_stack", ArgValue::Str("[1]")).as_deref(), Some("\"[1]\""));
        assert_eq!(typed("call_stack", ArgValue::I64(1)), None);
        assert_eq!(typed("Is asynchronized op", ArgValue::Bool(true)).as_deref(), Some("true"));
        assert_eq!(typed("context", ArgValue::Str("0x00000000000000ff")).as_deref(), Some("\"0x00000000000000ff\""));
        assert_eq!(typed("context", ArgValue::I64(-1)), None);
    }
}
