//! The datagrams between a process and the dynolog daemon.
//!
//! Each has a header of 40 bytes, with the payload's length and a type padded with zeros, followed by the payload. Numbers
//! are in native byte order, since both ends are on one machine.

use crate::text::count_with_noun;

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

/// Reads an answer: the text of a request, empty if there is none.
///
/// # Errors
/// Why it is not a valid answer.
pub(in crate::ondemand) fn decode_answer(datagram: &[u8]) -> Result<&str, String> {
    let short = || format!("it has {}, fewer than a header", count_with_noun(datagram.len() as u64, "byte"));
    let (header, payload) = datagram.split_at_checked(HEADER).ok_or_else(short)?;
    let (length, kind) = header.split_first_chunk().ok_or_else(short)?;
    let (announced, sent) = (u64::from_ne_bytes(*length), payload.len());
    if announced != sent as u64 {
        return Err(format!("it announces {} and has {sent}", count_with_noun(announced, "byte")));
    }
    let is_answer = |(name, padding): (&[u8], &[u8])| name == REQUEST && padding.first() == Some(&0);
    if kind.len() != TYPE || !kind.split_at_checked(REQUEST.len()).is_some_and(is_answer) {
        return Err("it is not an answer to a poll".to_owned());
    }
    std::str::from_utf8(payload).map_err(|_| "it is not UTF-8".to_owned())
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
            let why = decode_answer(&good[..length]).unwrap_err();
            assert!(why.starts_with(&format!("it has {length} byte")) && why.ends_with("fewer than a header"), "{why}");
        }
        assert_eq!(decode_answer(&good[..42]), Err("it announces 3 bytes and has 2".to_owned()));
        let mut huge = good;
        huge[..8].copy_from_slice(&(1u64 << 60).to_ne_bytes());
        assert_eq!(decode_answer(&huge), Err(format!("it announces {} bytes and has 3", 1u64 << 60)));
        for kind in [&b"ctxt"[..], b"requestXYZ", b"re", b"", b"REQ"] {
            assert_eq!(
                decode_answer(&datagram(kind, b"A=1")),
                Err("it is not an answer to a poll".to_owned()),
                "{kind:?}"
            );
        }
        assert_eq!(decode_answer(&datagram(b"req", &[0xff])), Err("it is not UTF-8".to_owned()));
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
