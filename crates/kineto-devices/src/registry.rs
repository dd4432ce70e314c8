//! The names of record layouts in segment files.
//!
//! Every process knows the layouts of this crate. Those of a program's own collectors have no name; see
//! [`by_value`](super::records::by_value).

use super::records::pairs::PAIRS;
#[cfg(any(feature = "cuda", feature = "rocm", feature = "xpu"))]
use super::telemetry;
use super::vendor::vendor_layouts;
use super::{RecordLayout, RecordView, deferred, timers};
use kineto_base::encoding::encoded_as;
use kineto_model::activity::ArgValue;

/// A layout and its name, which never changes. The layout has a size, so that no other one has its address.
pub(super) type NamedLayout = (&'static str, &'static dyn RecordLayout);

/// Declares the layouts of a module's records as variants of an enum, so that no two share an address: for each its static, its
/// variant with an unused number, and its name in segment files.
macro_rules! layouts {
    (
        $(#[$about:meta])*
        $shape:ident
        $($(#[$doc:meta])* $layout:ident = $variant:ident: $number:literal, $name:literal;)+
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum $shape {
            $($variant = $number,)+
        }

        $($(#[$doc])* pub(crate) static $layout: $shape = $shape::$variant;)+

        /// All layouts, with their names.
        pub(crate) const LAYOUTS: &[$crate::registry::NamedLayout] = &[$(($name, &$layout)),+];
    };
}
pub(crate) use layouts;

/// The layout of records whose arguments are keys and values.
const BY_VALUE: NamedLayout = ("pairs", &PAIRS);

/// The layout of records whose own is not in this build; it shows nothing.
#[derive(Debug)]
#[repr(u8)]
enum UnknownLayout {
    Unknown = 1,
}

static UNKNOWN: UnknownLayout = UnknownLayout::Unknown;

impl RecordLayout for UnknownLayout {
    fn visit(&self, _record: &RecordView<'_>, _each: &mut dyn FnMut(&str, ArgValue<'_>)) {}
}

static LISTS: &[&[NamedLayout]] = &[
    &[BY_VALUE],
    timers::LAYOUTS,
    deferred::LAYOUTS,
    #[cfg(any(feature = "cuda", feature = "rocm", feature = "xpu"))]
    telemetry::LAYOUTS,
];

fn all_layouts() -> impl Iterator<Item = &'static NamedLayout> {
    LISTS.iter().copied().flatten().chain(vendor_layouts())
}

/// Returns whether two references lead to the same layout. One without a size may have the address of another.
fn is_same(one: &dyn RecordLayout, other: &dyn RecordLayout) -> bool {
    size_of_val(one) > 0 && std::ptr::addr_eq(one, other)
}

/// Returns the name of a layout; `None` if other processes do not know it.
pub(super) fn layout_name(layout: &'static dyn RecordLayout) -> Option<&'static str> {
    all_layouts().find(|(_, known)| is_same(*known, layout)).map(|(name, _)| *name)
}

/// Returns whether this build lacks the layout of records from a file.
pub(super) fn is_unknown(layout: &'static dyn RecordLayout) -> bool {
    is_same(layout, &UNKNOWN)
}

encoded_as! {
    &'static dyn RecordLayout as String: |layout| layout_name(*layout).unwrap_or(BY_VALUE.0).to_owned(), |name| {
        Some(all_layouts().find(|(known, _)| *known == name).map_or(&UNKNOWN, |(_, layout)| *layout))
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn layouts_have_names_and_addresses_of_their_own() {
        let (names, places): (BTreeSet<_>, BTreeSet<_>) =
            all_layouts().map(|(name, layout)| (*name, std::ptr::from_ref(*layout).addr())).unzip();
        assert_eq!((names.len(), places.len()), (all_layouts().count(), all_layouts().count()));
        for (name, layout) in all_layouts() {
            assert_eq!(layout_name(*layout), Some(*name), "the layout has no size");
        }
        assert_eq!(layout_name(&UNKNOWN), None);
    }
}
