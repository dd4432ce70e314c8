//! The session of a guard, a profiler or a layer, if it has one.

use super::Session;
use std::sync::Arc;

/// A session, or none if the layer is off.
///
/// In WebAssembly the type cannot hold a session, so the linker drops the code that starts, ends and writes recordings.
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

    /// Takes the session out and leaves none.
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
