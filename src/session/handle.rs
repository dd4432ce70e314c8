//! What guards, profilers and layers hold: a session, or none.

use super::Session;
use std::sync::Arc;

/// A session, or none if the layer is off.
///
/// In WebAssembly there is none by its type, so the linker leaves out what starts, ends and writes recordings.
#[derive(Clone, Default)]
pub(crate) struct SessionHandle {
    #[cfg(not(target_family = "wasm"))]
    session: Option<Arc<Session>>,
}

impl SessionHandle {
    /// Returns the session.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<Session>> {
        #[cfg(not(target_family = "wasm"))]
        return self.session.as_ref();
        #[cfg(target_family = "wasm")]
        None
    }

    /// Takes the session out, so that there is none from now on.
    pub(crate) fn take(&mut self) -> SessionHandle {
        std::mem::take(self)
    }
}

impl From<Arc<Session>> for SessionHandle {
    #[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "there is none"))]
    fn from(session: Arc<Session>) -> SessionHandle {
        SessionHandle {
            #[cfg(not(target_family = "wasm"))]
            session: Some(session),
        }
    }
}
