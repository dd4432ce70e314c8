//! Stub of the plugin loader for builds without the feature `plugins`; the reason names the feature.

use super::{Collector, Rejected, Unavailable};
use std::path::Path;
use std::sync::Arc;

/// Returns no plugin, and the reason.
pub fn load_plugins(_folder: &Path) -> (Vec<Arc<dyn Collector>>, Vec<Rejected>) {
    (Vec::new(), vec![("plugins", Unavailable::not_built("plugins"))])
}
