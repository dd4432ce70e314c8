//! Compiles plugins in C.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a plugin in C into a folder, as library `name`.
pub fn compile(source: &str, into: &Path, name: &str, defines: &[&str]) -> PathBuf {
    let root = crate::root();
    let library = into.join(format!("{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-shared", "-fPIC", "-I"])
        .arg(root.join("include"));
    let output = cc.args(defines).arg(root.join(source)).arg("-o").arg(&library).output().expect("no C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}
