//! Metrics of kernels.

use std::ffi::{CStr, CString, c_char};
use support::own_process;
use support::pti_client::*;
use support::xpu;
use support::xpu::WaitKind;

/// A device, by PTI's struct of 40 bytes.
fn devices(pti: Pti) -> Vec<[u64; 5]> {
    let get = pti.function::<extern "C" fn(*mut [u64; 5], *mut u32) -> u32>("ptiMetricsGetDevices");
    let mut number = 0;
    assert_eq!(get(std::ptr::null_mut(), &raw mut number), 0);
    let mut all = vec![[0; 5]; number as usize];
    assert_eq!(get(all.as_mut_ptr(), &raw mut number), 0);
    all
}

fn enable(pti: Pti) -> (u32, usize) {
    let mut scope = 0;
    let enable = pti.function::<extern "C" fn(*mut usize) -> u32>("ptiMetricsScopeEnable");
    (enable(&raw mut scope), scope)
}

fn configure(pti: Pti, scope: usize, device: u64, metrics: &[&str]) -> u32 {
    type Configure = extern "C" fn(usize, u32, *const u64, u32, *const *const c_char, usize) -> u32;
    let names: Vec<CString> = metrics.iter().map(|name| CString::new(*name).unwrap()).collect();
    let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let configure = pti.function::<Configure>("ptiMetricsScopeConfigure");
    configure(scope, 1, &raw const device, 1, pointers.as_ptr(), pointers.len())
}

fn call(pti: Pti, name: &str, scope: usize) -> u32 {
    pti.function::<extern "C" fn(usize) -> u32>(name)(scope)
}

/// What the buffer of that index has: for each kernel its id, its name and the bits of its values.
fn calculated(pti: Pti, scope: usize, index: usize, metrics: usize) -> Vec<(u64, String, Vec<u64>)> {
    type Buffer = extern "C" fn(usize, usize, *mut usize, *mut usize) -> u32;
    type Query = extern "C" fn(usize, usize, *mut usize, *mut usize) -> u32;
    type Calculate = extern "C" fn(usize, usize, *mut u64, usize, *mut usize) -> u32;
    let (mut buffer, mut size, mut count) = (0, 0, 0);
    let get = pti.function::<Buffer>("ptiMetricsScopeGetCollectionBuffer");
    assert_eq!(get(scope, index, &raw mut buffer, &raw mut size), 0);
    let query = pti.function::<Query>("ptiMetricsScopeQueryMetricsBufferSize");
    assert_eq!(query(scope, buffer, &raw mut size, &raw mut count), 0);
    assert_eq!(size, count * (32 + 8 * metrics));
    let mut words = vec![0_u64; size / 8];
    let calculate = pti.function::<Calculate>("ptiMetricsScopeCalculateMetrics");
    assert_eq!(calculate(scope, buffer, words.as_mut_ptr(), 8, &raw mut count), 154, "too small");
    assert_eq!(calculate(scope, buffer, words.as_mut_ptr(), size, &raw mut count), 0);
    let start = words.as_ptr() as u64;
    let record = |at: usize| {
        let [kernel, _queue, name, values] = words[at * 4..at * 4 + 4].try_into().unwrap();
        // SAFETY: the name is a C string.
        let name = unsafe { CStr::from_ptr(name as *const c_char) }.to_str().unwrap().to_owned();
        let first = ((values - start) / 8) as usize;
        (kernel, name, words[first..first + metrics].to_vec())
    };
    (0..count).map(record).collect()
}

#[own_process]
fn each_kernel_of_the_device_has_its_values() {
    let session = session_of("devices=2", &[KERNEL]);
    let pti = session.pti;
    let devices = devices(pti);
    assert_eq!(devices.len(), 2);
    let (code, scope) = enable(pti);
    assert_eq!((code, configure(pti, scope, devices[1][0], &["GpuTime", "XVE_ACTIVE", "OverrunOccurred"])), (0, 0));
    assert_eq!(call(pti, "ptiMetricsScopeStartCollection", scope), 0);
    let queues = [session.xpu.queue(0), session.xpu.queue(1)];
    session.xpu.submit(queues[0], "elsewhere");
    (0..3).for_each(|_| session.xpu.submit(queues[1], "gemm_us500"));
    session.xpu.wait(queues[1], WaitKind::Device);
    assert_eq!(call(pti, "ptiMetricsScopeStopCollection", scope), 0);
    session.xpu.submit(queues[1], "later");
    session.xpu.wait(queues[1], WaitKind::Device);
    let mut buffers = 0;
    let count = pti.function::<extern "C" fn(usize, *mut usize) -> u32>("ptiMetricsScopeGetCollectionBuffersCount");
    assert_eq!((count(scope, &raw mut buffers), buffers), (0, 2), "two kernels fit into the smallest buffer");
    let records = [calculated(pti, scope, 0, 3), calculated(pti, scope, 1, 3)].concat();
    let ids: Vec<_> =
        pti.of_kind(KERNEL).iter().filter(|row| row.text(24) == "gemm_us500").map(|row| row.u64(48)).collect();
    assert_eq!(records.iter().map(|record| record.0).collect::<Vec<_>>(), ids);
    for (_, name, values) in records {
        assert_eq!((name.as_str(), &values[..]), ("gemm_us500", &[500_000, 50.0_f32.to_bits().into(), 0][..]));
    }
    assert_eq!((call(pti, "ptiMetricsScopeDisable", scope), call(pti, "ptiMetricsScopeDisable", scope)), (0, 3));
    assert_eq!((xpu::count("scopes"), xpu::count("open_scopes")), (1, 0));
}

#[own_process]
fn what_cannot_be_collected_is_refused() {
    let session = session_of("", &[]);
    let pti = session.pti;
    let (_, scope) = enable(pti);
    let device = devices(pti)[0][0];
    assert_eq!(call(pti, "ptiMetricsScopeStartCollection", scope), 105, "not configured");
    assert_eq!(configure(pti, scope, device, &["Nonsense"]), 151);
    assert_eq!(configure(pti, scope, device, &["GpuTime", "L3_MISS"]), 152);
    assert_eq!(configure(pti, scope, device + 1, &["GpuTime"]), 3);
    assert_eq!(configure(pti, scope, device, &["GpuTime"]), 0);
    assert_eq!(call(pti, "ptiMetricsScopeStartCollection", scope), 8, "no view of the device is enabled");
    pti.call("ptiViewEnable", KERNEL);
    assert_eq!(call(pti, "ptiMetricsScopeStartCollection", scope), 0);
    assert_eq!(call(pti, "ptiMetricsScopeStartCollection", scope), 104);
    assert_eq!(configure(pti, scope, device, &["GpuTime"]), 104);
    assert_eq!(call(pti, "ptiMetricsScopeDisable", scope), 0);
    xpu::configure("scope_error=200");
    let (_, scope) = enable(pti);
    assert_eq!(configure(pti, scope, device, &["GpuTime"]), 200);
    assert_eq!(call(pti, "ptiMetricsScopeDisable", scope), 0);
    xpu::configure("pti=0.14");
    assert_eq!(enable(pti).0, 2, "there were none then");
}
