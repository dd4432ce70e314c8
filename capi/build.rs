//! Keeps the shared library loaded: its threads and exit handlers outlive a `dlclose`.

#[expect(clippy::disallowed_methods, reason = "cargo passes variables to build scripts")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete,-soname,libtracing_kineto_capi.so");
    }
}
