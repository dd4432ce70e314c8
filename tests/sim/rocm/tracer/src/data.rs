//! `hip_api_data_t`: the data of a call for callbacks.

use crate::shared::link;
use crate::shared::tracer::ApiCall;

/// Room for the union of arguments.
const ARGUMENTS: usize = 256;
/// Where the arguments begin, behind correlation id and phase.
const FIRST: usize = 16;
/// The version of HIP that has a place for the client's own at the end.
const WITH_PHASE_DATA: i32 = 50_300_000;

pub(crate) const ENTER: u32 = 0;
pub(crate) const EXIT: u32 = 1;

/// The bytes, in words.
pub(crate) type Data = [u64; (FIRST + ARGUMENTS + 8) / 8];

/// What a callback is handed.
pub(crate) fn data(call: &mut ApiCall, phase: u32) -> Data {
    let mut data: Data = [0; (FIRST + ARGUMENTS + 8) / 8];
    data[0] = call.correlation;
    data[1] = u64::from(phase);
    call.pack(&mut data[FIRST / 8..(FIRST + ARGUMENTS) / 8], true);
    if link::options().hip >= WITH_PHASE_DATA {
        data[(FIRST + ARGUMENTS) / 8] = &raw mut call.data[1][0] as u64;
    }
    data
}

#[cfg(test)]
mod tests {
    use crate::shared::tracer::{Argument, Shape, Style, offsets};

    fn argument(size: usize, alignment: usize, target: [usize; 2]) -> Argument {
        let (type_name, style, indirection) = (c"".as_ptr(), Style::Unsigned, 0);
        let shape = Shape { type_name, size, alignment, style, indirection, target };
        Argument { name: c"".as_ptr(), shape, value: std::ptr::null() }
    }

    /// The offsets in `hip_prof_str.h`, counted by hand.
    #[test]
    fn arguments_have_the_offsets_of_hips_header() {
        // hipLaunchKernel: address, two dim3, void** with its value, size, stream.
        let launch = [(8, 8, [0, 0]), (12, 4, [0, 0]), (12, 4, [0, 0]), (8, 8, [8, 8]), (8, 8, [0, 0]), (8, 8, [0, 0])];
        let launch = launch.map(|(size, alignment, target)| argument(size, alignment, target));
        assert_eq!(offsets(&launch, true).collect::<Vec<_>>(), [0, 8, 20, 32, 48, 56]);
        // hipMemcpyAsync: two addresses, size, kind, stream.
        let copy = [(8, 8), (8, 8), (8, 8), (4, 4), (8, 8)].map(|(size, alignment)| argument(size, alignment, [0, 0]));
        assert_eq!(offsets(&copy, true).collect::<Vec<_>>(), [0, 8, 16, 24, 32]);
        // hipModuleLaunchKernel: function, seven numbers, stream, two void** with their values.
        let mut launch = vec![argument(8, 8, [0, 0])];
        launch.extend((0..7).map(|_| argument(4, 4, [0, 0])));
        launch.extend([argument(8, 8, [0, 0]), argument(8, 8, [8, 8]), argument(8, 8, [8, 8])]);
        assert_eq!(offsets(&launch, true).skip(7).collect::<Vec<_>>(), [32, 40, 48, 64]);
    }
}
