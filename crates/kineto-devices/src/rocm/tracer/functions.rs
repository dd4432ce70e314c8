//! HIP's functions by roctracer's numbers, queried once: they differ between HIP versions.

use super::args::Layout;
use crate::rocm::hip::{self, Function};

/// All functions by number.
#[derive(Debug)]
pub(super) struct Functions(Vec<Option<TracedFunction>>);

/// A HIP function of roctracer's.
#[derive(Debug)]
pub(super) struct TracedFunction {
    pub(super) hip: Function,
    /// Whether its calls are excluded.
    pub(super) is_noise: bool,
    /// The layout of its arguments; `None` if they are not of interest, or unknown.
    pub(super) layout: Option<Layout>,
}

/// The end of the numbers that are queried: HIP 6 has 450.
const MOST: u32 = 1024;

impl Functions {
    /// Queries the names of all numbers; `are_args_known` is whether the layouts of this HIP version are known.
    pub(super) fn new(name: impl Fn(u32) -> Option<String>, are_args_known: bool) -> Functions {
        Functions((0..MOST).map(|number| name(number).map(|name| TracedFunction::new(&name, are_args_known))).collect())
    }

    pub(super) fn get(&self, number: u32) -> Option<&TracedFunction> {
        self.0.get(usize::try_from(number).ok()?)?.as_ref()
    }
}

impl TracedFunction {
    fn new(name: &str, are_args_known: bool) -> TracedFunction {
        TracedFunction {
            hip: Function::new(name),
            is_noise: hip::is_noise(name),
            layout: Layout::for_function(name).filter(|_| are_args_known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_numbers() {
        let name = |number| match number {
            107 => Some("hipLaunchKernel".to_owned()),
            220 => Some("hipStreamEndCapture".to_owned()),
            78 => Some("hipGetDevice".to_owned()),
            _ => None,
        };
        let functions = Functions::new(name, true);
        let launch = functions.get(107).unwrap();
        assert!(launch.hip.does == hip::CallEffect::Launch && launch.layout.is_some() && !launch.is_noise);
        assert_eq!((functions.get(220).unwrap().hip.captures, launch.hip.captures), (Some(false), None));
        assert!(functions.get(78).unwrap().is_noise);
        assert!(functions.get(1).is_none() && functions.get(MOST).is_none() && functions.get(u32::MAX).is_none());
        let unread = Functions::new(name, false);
        assert!(unread.get(107).unwrap().layout.is_none(), "HIP's version is not known");
    }
}
