//! The datagrams between a process and the dynolog daemon.
//!
//! Each has a header of 40 bytes, with the payload's length and a type padded with zeros, followed by the payload. Numbers
//! are in native byte order, since both ends are on one machine.

use crate::text::count_with_noun;
use std::fmt;

/// The length of a header: the payload's length, and the type.
const HEADER: usize = 40;
/// The length of a type.
const TYPE: usize = 32;
/// The type of a poll and of its answer.
const REQUEST: &[u8] = b"req";
/// The longest datagram, at the kernel's default limit.
pub(super) const LONGEST: usize = 256 * 1024;

/// The kind of request that a poll wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum PollKind {
    /// Nothing: the process is busy, and only stays registered.
    Nothing = 0,
    /// A request for a trace.
    Activities = 2,
}

/// Returns a poll of the process `pids[0]`, whose ancestors follow it, in the job `job`. The first one registers it.
pub(super) fn encode_poll(wanted: PollKind, job: i64, pids: &[i32]) -> Vec<u8> {
    let payload = 16 + 4 * pids.len();
    let mut datagram = Vec::with_capacity(HEADER + payload);
    datagram.extend((payload as u64).to_ne_bytes());
    datagram.extend(REQUEST);
    datagram.resize(HEADER, 0);
    datagram.extend((wanted as i32).to_ne_bytes());
    datagram.extend(i32::try_from(pids.len()).unwrap_or(i32::MAX).to_ne_bytes());
    datagram.extend(job.to_ne_bytes());
    datagram.extend(pids.iter().flat_map(|pid| pid.to_ne_bytes()));
    datagram
}

/// Why a datagram is not a valid answer to a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It has fewer bytes than a header.
    Short(usize),
    /// It has more bytes than the receive buffer.
    Cut(usize),
    /// It has another length than its header says.
    Length { announced: u64, sent: usize },
    /// It is of another type.
    Type,
    /// It is not UTF-8.
    Text,
}

/// Reads an answer: the text of a request, empty if there is none.
///
/// # Errors
/// If it is not a valid answer.
pub(super) fn decode_answer(datagram: &[u8]) -> Result<&str, Malformed> {
    let (header, payload) = datagram.split_at_checked(HEADER).ok_or(Malformed::Short(datagram.len()))?;
    let (length, kind) = header.split_first_chunk().ok_or(Malformed::Short(datagram.len()))?;
    let announced = u64::from_ne_bytes(*length);
    if announced != payload.len() as u64 {
        return Err(Malformed::Length { announced, sent: payload.len() });
    }
    let (name, padding) = kind.split_at_checked(REQUEST.len()).ok_or(Malformed::Type)?;
    if name != REQUEST || padding.len() != TYPE - REQUEST.len() || padding.first() != Some(&0) {
        return Err(Malformed::Type);
    }
    std::str::from_utf8(payload).map_err(|_| Malformed::Text)
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Short(sent) => {
                write!(f, "it has {}, fewer than a header", count_with_noun(*sent as u64, "byte"))
            }
            Malformed::Cut(read) => write!(f, "it has more than {read} bytes"),
            Malformed::Length { announced, sent } => {
                write!(f, "it announces {} and has {sent}", count_with_noun(*announced, "byte"))
            }
            Malformed::Type => f.write_str("it is not an answer to a poll"),
            Malformed::Text => f.write_str("it is not UTF-8"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An answer with that type and text.
    fn datagram(kind: &[u8], text: &[u8]) -> Vec<u8> {
        let mut bytes = (text.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(kind);
        bytes.resize(HEADER, 0);
        bytes.extend(text);
        bytes
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn poll_has_the_bytes_that_the_daemon_expects() {
        // As captured from process 29159 with two ancestors and no job.
        let mut expected = vec![0x1c, 0, 0, 0, 0, 0, 0, 0];
        expected.extend(b"req");
        expected.extend([0; 29]);
        expected.extend([2, 0, 0, 0, 3, 0, 0, 0]);
        expected.extend([0; 8]);
        expected.extend([0xe7, 0x71, 0, 0, 0xe4, 0x71, 0, 0, 0xe2, 0x71, 0, 0]);
        assert_eq!(encode_poll(PollKind::Activities, 0, &[29159, 29156, 29154]), expected);
        let idle = encode_poll(PollKind::Nothing, -2, &[1]);
        assert_eq!((idle.len(), idle[40], &idle[48..56]), (60, 0, &(-2i64).to_ne_bytes()[..]));
    }

    #[test]
    fn answer_is_its_text() {
        assert_eq!(decode_answer(&datagram(b"req", b"")), Ok(""));
        assert_eq!(decode_answer(&datagram(b"req", "A=ä\n".as_bytes())), Ok("A=ä\n"));
    }

    #[test]
    fn invalid_answers_have_a_reason() {
        let good = datagram(b"req", b"A=1");
        for length in 0..HEADER {
            assert_eq!(decode_answer(&good[..length]), Err(Malformed::Short(length)));
        }
        assert_eq!(decode_answer(&good[..42]), Err(Malformed::Length { announced: 3, sent: 2 }));
        let mut huge = good;
        huge[..8].copy_from_slice(&(1u64 << 60).to_ne_bytes());
        assert_eq!(decode_answer(&huge), Err(Malformed::Length { announced: 1 << 60, sent: 3 }));
        for kind in [&b"ctxt"[..], b"requestXYZ", b"re", b"", b"REQ"] {
            assert_eq!(decode_answer(&datagram(kind, b"A=1")), Err(Malformed::Type), "{kind:?}");
        }
        assert_eq!(decode_answer(&datagram(b"req", &[0xff])), Err(Malformed::Text));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_have_a_reason(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(text) = decode_answer(&bytes) {
                prop_assert_eq!(datagram(b"req", text.as_bytes())[..11].to_vec(), bytes[..11].to_vec());
            }
        }

        #[test]
        fn changed_answer_is_never_read_beyond_its_end(
            text in "[ -~]{0,80}", at in 0usize..120, byte in any::<u8>(), cut in 0usize..120
        ) {
            let mut bytes = datagram(b"req", text.as_bytes());
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(cut);
            if let Ok(read) = decode_answer(&bytes) {
                prop_assert_eq!(read.len(), bytes.len() - HEADER);
            }
        }
    }
}
