//! The kernels, as PTX that runs on every GPU since Maxwell.

/// `vecadd(a, b, c, n)`: c = a + b, one thread an element. `empty()`: nothing. `spin(cycles)`: runs
/// that long.
pub const PTX: &str = "\
.version 6.0
.target sm_50
.address_size 64

.visible .entry vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %past;
    .reg .f32 %x, %y;
    .reg .b32 %block, %threads, %thread, %index, %count;
    .reg .b64 %a, %b, %c, %at;

    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %c, [c];
    ld.param.u32 %count, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.s32 %index, %block, %threads, %thread;
    setp.ge.u32 %past, %index, %count;
    @%past bra end;
    cvta.to.global.u64 %a, %a;
    cvta.to.global.u64 %b, %b;
    cvta.to.global.u64 %c, %c;
    mul.wide.u32 %at, %index, 4;
    add.s64 %a, %a, %at;
    add.s64 %b, %b, %at;
    add.s64 %c, %c, %at;
    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    add.f32 %x, %x, %y;
    st.global.f32 [%c], %x;
end:
    ret;
}

.visible .entry empty()
{
    ret;
}

.visible .entry spin(.param .u64 cycles)
{
    .reg .pred %more;
    .reg .b64 %cycles, %begin, %now;

    ld.param.u64 %cycles, [cycles];
    mov.u64 %begin, %clock64;
again:
    mov.u64 %now, %clock64;
    sub.s64 %now, %now, %begin;
    setp.lt.u64 %more, %now, %cycles;
    @%more bra again;
    ret;
}
";
