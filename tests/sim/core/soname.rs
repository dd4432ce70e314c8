//! The build script of the simulated libraries: gives each the real library's soname.

fn main() {
    println!("cargo:rerun-if-changed=../../core/soname.rs");
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let name = match package.as_str() {
        "sim-cuda-cupti" => "libcupti.so.13",
        "sim-cuda-driver" => "libcuda.so.1",
        "sim-cuda-nvml" => "libnvidia-ml.so.1",
        "sim-rocm-hip" => "libamdhip64.so.6",
        "sim-rocm-smi" => "librocm_smi64.so.7",
        "sim-rocm-sdk" => "librocprofiler-sdk.so.1",
        "sim-rocm-tracer" => "libroctracer64.so.4",
        "sim-xpu-level-zero" | "sim-xpu-old-loader" => "libze_loader.so.1",
        "sim-xpu-pti" => "libpti_view.so.1",
        other => panic!("{other} has no name; add it to soname.rs"),
    };
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name}");
    }
}
