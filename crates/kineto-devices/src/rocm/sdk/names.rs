//! Names of the library's numbers: HIP functions, copies, kernels.

use crate::rocm::hip::{self, Direction, Function};
use kineto_base::sorted::SortedMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Kinds of callbacks.
pub(super) const HIP_RUNTIME: u32 = 5;
pub(super) const CODE_OBJECT: u32 = 10;
const MEMORY_COPY: u32 = 13;

/// The operation that loads a kernel, for libraries that do not name it.
const KERNEL_SYMBOL: u32 = 2;

/// The library's operations by number. The library names them, since the numbers differ between versions.
#[derive(Debug, Default)]
pub(super) struct Operations {
    functions: SortedMap<u32, Function>,
    copies: SortedMap<u32, Direction>,
    kernel_symbol: Option<u32>,
}

impl Operations {
    /// Queries the names of operations; `each` calls back with the number and name of all operations of a kind.
    pub(super) fn query(each: impl Fn(u32, &mut dyn FnMut(u32, &str))) -> Operations {
        let mut known = Operations::default();
        each(HIP_RUNTIME, &mut |number, name| {
            known.functions.insert(number, Function::new(name));
        });
        each(MEMORY_COPY, &mut |number, name| {
            let ways = [
                ("HOST_TO_HOST", Direction::HostToHost),
                ("HOST_TO_DEVICE", Direction::HostToDevice),
                ("DEVICE_TO_HOST", Direction::DeviceToHost),
                ("DEVICE_TO_DEVICE", Direction::DeviceToDevice),
            ];
            if let Some((_, direction)) = ways.into_iter().find(|(part, _)| name.ends_with(part)) {
                known.copies.insert(number, direction);
            }
        });
        each(CODE_OBJECT, &mut |number, name| {
            if name.ends_with("KERNEL_SYMBOL_REGISTER") && !name.contains("HOST") {
                known.kernel_symbol = Some(number);
            }
        });
        known
    }

    /// Returns the numbers of the functions that are recorded.
    pub(super) fn recorded_functions(&self) -> Vec<u32> {
        let worth = self.functions.iter().filter(|(_, function)| !hip::is_noise(&function.name));
        worth.map(|(number, _)| *number).collect()
    }

    pub(super) fn function(&self, number: u32) -> Option<&Function> {
        self.functions.get(&number)
    }

    /// Returns the direction of a copy, if the library names it.
    pub(super) fn copy_direction(&self, number: u32) -> Option<Direction> {
        self.copies.get(&number).copied()
    }

    pub(super) fn is_kernel_symbol(&self, number: u32) -> bool {
        number == self.kernel_symbol.unwrap_or(KERNEL_SYMBOL)
    }
}

/// The mangled names of loaded kernels. Names of unloaded kernels are kept, since their work may arrive later;
/// numbers are not reused.
#[derive(Debug, Default)]
pub(super) struct Symbols(HashMap<u64, Arc<str>>);

/// The most kernels that are kept.
const MOST: usize = 1 << 18;

impl Symbols {
    pub(super) fn add(&mut self, kernel: u64, name: &str) {
        if self.0.len() < MOST {
            // The symbol of a kernel descriptor has a suffix.
            self.0.insert(kernel, name.strip_suffix(".kd").unwrap_or(name).into());
        }
    }

    pub(super) fn get(&self, kernel: u64) -> Option<Arc<str>> {
        self.0.get(&kernel).cloned()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Operations as a library names them.
    pub(crate) fn operations() -> Operations {
        Operations::query(|kind, each| {
            let names: &[(u32, &str)] = match kind {
                HIP_RUNTIME => &[
                    (48, "hipDeviceSynchronize"),
                    (107, "hipLaunchKernel"),
                    (134, "hipMemcpyAsync"),
                    (140, "hipMemsetAsync"),
                    (150, "hipMalloc"),
                    (215, "hipGraphLaunch"),
                    (301, "hipStreamBeginCapture"),
                    (302, "hipStreamEndCapture"),
                    (60, "hipGetDevice"),
                ],
                MEMORY_COPY => &[(0, "NONE"), (2, "MEMORY_COPY_HOST_TO_DEVICE"), (3, "DEVICE_TO_HOST")],
                CODE_OBJECT => &[(3, "CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER"), (7, "DEVICE_KERNEL_SYMBOL_REGISTER")],
                _ => &[],
            };
            names.iter().for_each(|(number, name)| each(*number, name));
        })
    }

    #[test]
    fn operations_are_found_by_name() {
        let known = operations();
        assert_eq!(known.recorded_functions(), [48, 107, 134, 140, 150, 215, 301, 302]);
        assert_eq!(known.function(107).map(|function| function.does), Some(hip::CallEffect::Launch));
        assert_eq!(
            [0, 2, 3].map(|number| known.copy_direction(number)),
            [None, Some(Direction::HostToDevice), Some(Direction::DeviceToHost)]
        );
        assert!(known.is_kernel_symbol(7) && !known.is_kernel_symbol(2));
        assert!(Operations::default().is_kernel_symbol(2));
    }

    #[test]
    fn symbols_stay_and_are_bounded() {
        let mut symbols = Symbols::default();
        symbols.add(5, "_Z6vecaddv.kd");
        assert_eq!(symbols.get(5).as_deref(), Some("_Z6vecaddv"));
        assert_eq!(symbols.get(6), None);
        (0..2 * MOST as u64).for_each(|kernel| symbols.add(kernel, "k"));
        assert_eq!(symbols.0.len(), MOST);
    }
}
