//! Plugins in a build without the feature `plugins`: none is loaded, and the reason names the feature.

use super::{Collector, Rejected, Unavailable};
use std::path::Path;
use std::sync::Arc;

/// Returns no plugin, and that the feature is off.
pub(crate) fn plugins(_folder: &Path) -> (Vec<Arc<dyn Collector>>, Vec<Rejected>) {
    (Vec::new(), vec![("plugins", Unavailable::not_built("plugins"))])
}
