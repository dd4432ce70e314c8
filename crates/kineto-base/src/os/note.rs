//! An ELF note in every program and library that contains this crate, by which one copy finds another.
#![allow(unsafe_code, reason = "the loader's list of files has no safe form")]

use std::path::PathBuf;

/// An ELF note: it is in memory wherever the file is loaded, and survives stripping.
#[cfg(target_os = "linux")]
#[derive(Debug)]
#[repr(C, align(4))]
struct Note {
    name_length: u32,
    /// Zero: the note has only a name.
    text_length: u32,
    kind: u32,
    name: [u8; 16],
}

#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".note.tracing-kineto")]
static NOTE: Note = Note { name_length: 15, text_length: 0, kind: 1, name: *b"tracing-kineto\0\0" };

/// Returns the path of another copy of this crate that is loaded in this process: the program, or a library.
#[cfg(target_os = "linux")]
pub fn other_copy() -> Option<PathBuf> {
    let mut found: Option<PathBuf> = None;
    // SAFETY: `visit_loaded_file` runs only during this call, and its last argument is a pointer to `found`, as it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit_loaded_file), (&raw mut found).cast()) };
    found
}

/// Returns `None`: only ELF has such notes.
#[cfg(not(target_os = "linux"))]
pub fn other_copy() -> Option<PathBuf> {
    None
}

/// Searches a loaded file other than this one for the note; returns 1 to end the search.
#[cfg(target_os = "linux")]
unsafe extern "C" fn visit_loaded_file(
    file: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut std::ffi::c_void,
) -> std::ffi::c_int {
    let own = (&raw const NOTE).cast::<u8>();
    // SAFETY: `Note` has no padding, so all its bytes are initialized.
    let note = unsafe { std::slice::from_raw_parts(own, size_of::<Note>()) };
    // SAFETY: the loader passes a valid entry, which stays valid during this call.
    let file = unsafe { &*file };
    // SAFETY: the loader's entry has `dlpi_phnum` headers.
    let headers = unsafe { std::slice::from_raw_parts(file.dlpi_phdr, file.dlpi_phnum.into()) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        // Notes that no segment loads are not in memory.
        let end = header.p_vaddr.saturating_add(header.p_memsz);
        let is_loaded = headers.iter().any(|part| {
            let is_readable = part.p_type == libc::PT_LOAD && part.p_flags & libc::PF_R != 0;
            is_readable && part.p_vaddr <= header.p_vaddr && end <= part.p_vaddr.saturating_add(part.p_memsz)
        });
        if !is_loaded {
            continue;
        }
        // The loader's base may be negative relative to the file's addresses.
        let start = file.dlpi_addr.wrapping_add(header.p_vaddr) as *const u8;
        let length = usize::try_from(header.p_memsz);
        // SAFETY: the segment that contains these notes is loaded and readable, and they are never written.
        let notes = unsafe { std::slice::from_raw_parts(start, length.unwrap_or(0)) };
        if notes.as_ptr_range().contains(&own) {
            return 0;
        }
        if notes.windows(note.len()).any(|part| part == note) {
            // SAFETY: the loader's name is a C string.
            let name = unsafe { std::ffi::CStr::from_ptr(file.dlpi_name) };
            // SAFETY: `found` points to the result in `other_copy`.
            unsafe { *found.cast::<Option<PathBuf>>() = Some(object_path(name)) };
            return 1;
        }
    }
    0
}

/// Returns the path for the loader's name, which is empty for the program.
#[cfg(target_os = "linux")]
fn object_path(name: &std::ffi::CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    match name.to_bytes() {
        [] => std::env::current_exe().unwrap_or_default(),
        name => std::ffi::OsStr::from_bytes(name).into(),
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    #[test]
    fn copy_does_not_find_itself() {
        assert_eq!(super::other_copy(), None);
    }
}
