//! The GPU's work: `y = a x + y`, a heavier kernel, and `y = a x + y` again.

use tracing_kineto::ActivityType;
use tracing_kineto_wgpu::{TimedEncoder, Timestamps, wgpu};
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, Buffer, BufferDescriptor, BufferUsages, ComputePass,
    ComputePipeline, ComputePipelineDescriptor, ShaderModule, ShaderModuleDescriptor, ShaderSource,
};

/// The GPU's activities in each step, in order.
pub(crate) const ROWS: [(ActivityType, &str); 5] = [
    (ActivityType::GpuMemcpy, "Memcpy HtoD"),
    (ActivityType::ConcurrentKernel, "saxpy"),
    (ActivityType::ConcurrentKernel, "burn"),
    (ActivityType::ConcurrentKernel, "saxpy"),
    (ActivityType::GpuMemcpy, "Memcpy DtoD"),
];

const ELEMENTS: u32 = 1 << 18;
const BYTES: u64 = ELEMENTS as u64 * 4;
const GROUP: u32 = 64;

const SHADER: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn saxpy(@builtin(global_invocation_id) at: vec3<u32>) {
    y[at.x] = 2.0 * x[at.x] + y[at.x];
}

@compute @workgroup_size(64)
fn burn(@builtin(global_invocation_id) at: vec3<u32>) {
    var value = y[at.x];
    for (var i = 0u; i < 200u; i++) {
        value = value * 0.999 + 0.5;
    }
    y[at.x] = value;
}
";

/// The buffers and pipelines.
pub(crate) struct Program {
    host: Buffer,
    x: Buffer,
    y: Buffer,
    result: Buffer,
    saxpy: (ComputePipeline, BindGroup),
    burn: (ComputePipeline, BindGroup),
}

impl Program {
    pub(crate) fn new(timestamps: &Timestamps) -> Program {
        let device = timestamps.device();
        let buffer = |usage, mapped_at_creation| {
            device.create_buffer(&BufferDescriptor { label: None, size: BYTES, usage, mapped_at_creation })
        };
        let host = buffer(BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC, true);
        let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), ELEMENTS as usize).flatten().collect();
        if let Ok(mut view) = host.get_mapped_range_mut(..) {
            view.copy_from_slice(&ones);
        }
        host.unmap();
        let x = buffer(BufferUsages::STORAGE | BufferUsages::COPY_DST, false);
        let y = buffer(BufferUsages::STORAGE | BufferUsages::COPY_SRC, false);
        let result = buffer(BufferUsages::COPY_DST, false);
        let source = ShaderSource::Wgsl(SHADER.into());
        let module = device.create_shader_module(ShaderModuleDescriptor { label: None, source });
        let stage = |entry| stage(device, &module, entry, &x, &y);
        let (saxpy, burn) = (stage("saxpy"), stage("burn"));
        Program { host, x, y, result, saxpy, burn }
    }

    /// Encodes a step.
    pub(crate) fn encode(&self, timestamps: &Timestamps) -> TimedEncoder {
        let mut encoder = timestamps.encoder(Some("step"));
        let kind = ActivityType::GpuMemcpy;
        encoder.commands(kind, "Memcpy HtoD", |copy| copy.copy_buffer_to_buffer(&self.host, 0, &self.x, 0, BYTES));
        for (name, stage) in [("saxpy", &self.saxpy), ("burn", &self.burn), ("saxpy", &self.saxpy)] {
            encoder.compute_pass(name, |pass| dispatch(pass, stage));
        }
        encoder.commands(kind, "Memcpy DtoD", |copy| copy.copy_buffer_to_buffer(&self.y, 0, &self.result, 0, BYTES));
        encoder
    }
}

fn stage(
    device: &wgpu::Device,
    module: &ShaderModule,
    entry: &str,
    x: &Buffer,
    y: &Buffer,
) -> (ComputePipeline, BindGroup) {
    // Both use the same two buffers, though only one reads the first.
    let storage = |binding, read_only| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries = [storage(0, true), storage(1, false)];
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
    let both = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        ..Default::default()
    });
    let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
        label: Some(entry),
        layout: Some(&both),
        module,
        entry_point: Some(entry),
        compilation_options: Default::default(),
        cache: None,
    });
    let entries =
        [(0, x), (1, y)].map(|(binding, buffer)| BindGroupEntry { binding, resource: buffer.as_entire_binding() });
    let group = device.create_bind_group(&BindGroupDescriptor { label: None, layout: &layout, entries: &entries });
    (pipeline, group)
}

fn dispatch(pass: &mut ComputePass<'_>, (pipeline, group): &(ComputePipeline, BindGroup)) {
    pass.set_pipeline(pipeline);
    pass.set_bind_group(0, group, &[]);
    pass.dispatch_workgroups(ELEMENTS / GROUP, 1, 1);
}
