//! The note in every program and library that has this crate in it, by which one copy of it finds another.
#![allow(unsafe_code, reason = "what the loader has loaded has no safe form")]

use std::path::PathBuf;

/// An ELF note: in memory wherever the file is loaded, and there when symbols are stripped.
#[cfg(target_os = "linux")]
#[derive(Debug)]
#[repr(C, align(4))]
struct Note {
    name_length: u32,
    /// It has only a name.
    text_length: u32,
    kind: u32,
    name: [u8; 16],
}

#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".note.tracing-kineto")]
static NOTE: Note = Note { name_length: 15, text_length: 0, kind: 1, name: *b"tracing-kineto\0\0" };

/// Returns the file of another copy of this crate that is loaded in this process: the program, or a library.
#[cfg(target_os = "linux")]
#[cfg_attr(not(feature = "capi"), allow(dead_code, reason = "asked for by the functions for C"))]
pub(crate) fn other_copy() -> Option<PathBuf> {
    let mut found: Option<PathBuf> = None;
    // SAFETY: `look` is called before this returns, and takes its last argument for what it is.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// Only ELF has such notes.
#[cfg(not(target_os = "linux"))]
#[cfg_attr(not(feature = "capi"), allow(dead_code, reason = "asked for by the functions for C"))]
pub(crate) fn other_copy() -> Option<PathBuf> {
    None
}

/// Looks for the note in a file that is loaded, but for this one; 1 ends the search.
#[cfg(target_os = "linux")]
unsafe extern "C" fn look(file: *mut libc::dl_phdr_info, _: usize, found: *mut std::ffi::c_void) -> std::ffi::c_int {
    let own = (&raw const NOTE).cast::<u8>();
    // SAFETY: the note has no padding.
    let note = unsafe { std::slice::from_raw_parts(own, size_of::<Note>()) };
    // SAFETY: the loader hands in a file that stays loaded meanwhile.
    let file = unsafe { &*file };
    // SAFETY: it has as many headers as it says.
    let headers = unsafe { std::slice::from_raw_parts(file.dlpi_phdr, file.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        // Notes need not be loaded, and are nowhere then.
        let end = header.p_vaddr.saturating_add(header.p_memsz);
        let is_loaded = headers.iter().any(|part| {
            let is_readable = part.p_type == libc::PT_LOAD && part.p_flags & libc::PF_R != 0;
            is_readable && part.p_vaddr <= header.p_vaddr && end <= part.p_vaddr.saturating_add(part.p_memsz)
        });
        if !is_loaded {
            continue;
        }
        // The loader says by how much the file is moved, be it down.
        let start = file.dlpi_addr.wrapping_add(header.p_vaddr) as *const u8;
        let length = usize::try_from(header.p_memsz);
        // SAFETY: these notes are in memory there, and nobody writes to them.
        let notes = unsafe { std::slice::from_raw_parts(start, length.unwrap_or(0)) };
        if notes.as_ptr_range().contains(&own) {
            return 0;
        }
        if notes.windows(note.len()).any(|part| part == note) {
            // SAFETY: it is a C string.
            let name = unsafe { std::ffi::CStr::from_ptr(file.dlpi_name) };
            // SAFETY: it is the place of `other_copy` for the result.
            unsafe { *found.cast::<Option<PathBuf>>() = Some(path(name)) };
            return 1;
        }
    }
    0
}

/// The path by the loader's name, which is empty for the program.
#[cfg(target_os = "linux")]
fn path(name: &std::ffi::CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    match name.to_bytes() {
        [] => std::env::current_exe().unwrap_or_default(),
        name => std::ffi::OsStr::from_bytes(name).into(),
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    #[test]
    fn a_copy_does_not_find_itself() {
        assert_eq!(super::other_copy(), None);
    }
}
