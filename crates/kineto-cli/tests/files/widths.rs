//! Commands in a terminal of 80 columns.

use super::command;
use kineto_base::text::text_width;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{self, File};
use std::io::Read as _;

/// Times of centuries, and names of wide characters.
const WIDE: &str = r#"{"traceEvents": [
    {"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"数据加载线程数据加载线程"}},
    {"ph":"X","cat":"cpu_op","name":"学習ステップの前処理と後処理をまとめて行う関数の長い名前学習ステップの前処理","pid":1,"tid":1,"ts":0,"dur":4000000000000000,
        "args":{"Input Dims":[[64,32],[32,16]]}},
    {"ph":"X","cat":"kernel","name":"행렬곱셈커널행렬곱셈커널행렬곱셈커널행렬곱셈커널행렬곱셈커널행렬곱셈커널","pid":0,"tid":7,"ts":5,"dur":7000000000000000,"args":{"device":0}}
]}"#;

/// Runs a command whose output is a terminal; returns the output without the codes of headings.
fn run_in_terminal(arguments: &[&str]) -> String {
    let terminal = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap());
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let screen = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut child = command(arguments).stdout(screen).spawn().unwrap();
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    // It ends with an error when the command has closed the terminal.
    while let Some(read) = (&terminal).read(&mut part).ok().filter(|read| *read > 0) {
        bytes.extend_from_slice(&part[..read]);
    }
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap().replace('\r', "").replace("\u{1b}[1m", "").replace("\u{1b}[0m", "")
}

#[test]
fn lines_fit_a_terminal_of_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.json");
    fs::write(&path, WIDE).unwrap();
    let path = path.to_str().unwrap();
    for arguments in [
        &["summary", path][..],
        &["table", path],
        &["table", path, "--by", "device,thread"],
        &["table", path, "--by", "shapes,stack,thread"],
        &["path", path],
        &["validate", path],
        &["diff", "--rows", "5", path, path],
    ] {
        let text = run_in_terminal(arguments);
        let long: Vec<_> = text.lines().filter(|line| text_width(line) > 80 && !line.contains(path)).collect();
        assert!(text.contains(['…', '.']) && long.is_empty(), "{arguments:?}: {long:#?}");
    }
}
