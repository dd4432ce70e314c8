//! External correlation ids, of the kinds that CUPTI knows; each client has its own.

use crate::client::Client;
use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::counters::count;
use sim_core::external;

/// Kinds 1 to 5, `UNKNOWN` to `CUSTOM2`.
fn check(kind: u32) -> Outcome {
    if (1..=5).contains(&kind) { Ok(()) } else { Err(Code::INVALID_PARAMETER) }
}

/// Returns the number of a client's stack of a kind.
fn stack(client: &Client, kind: u32) -> u32 {
    (client.handle as u32) << 8 | kind
}

/// Returns the kinds that the calling thread has pushed ids of for a client, each with its innermost id.
pub(crate) fn innermost(client: &Client) -> Vec<(u32, u64)> {
    let all = external::innermost().into_iter();
    all.filter(|(number, _)| number >> 8 == client.handle as u32).map(|(number, id)| (number & 0xff, id)).collect()
}

pub(crate) fn push(client: &Client, kind: u32, id: u64) -> Outcome {
    count(&link::counters().pushes);
    Code::unless(link::options().push_error)?;
    check(kind)?;
    external::push(stack(client, kind), id).ok_or(Code::INVALID_OPERATION)
}

pub(crate) fn pop(client: &Client, kind: u32) -> Outcome<u64> {
    count(&link::counters().pops);
    check(kind)?;
    external::pop(stack(client, kind)).ok_or(Code::QUEUE_EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_core::external::depth;

    #[test]
    fn each_kind_of_each_thread_and_client_has_its_own_stack() {
        let (client, other) = (Client::new(0x10, String::new(), true), Client::new(0x20, String::new(), true));
        push(&client, 3, 10).unwrap();
        push(&client, 3, 11).unwrap();
        push(&client, 4, 20).unwrap();
        push(&other, 3, 30).unwrap();
        assert_eq!((innermost(&client), innermost(&other)), (vec![(3, 11), (4, 20)], vec![(3, 30)]));
        assert_eq!((depth(), std::thread::spawn(depth).join().unwrap()), (4, 0));
        assert_eq!((pop(&client, 3), pop(&client, 3), pop(&client, 3)), (Ok(11), Ok(10), Err(Code::QUEUE_EMPTY)));
        assert_eq!((pop(&client, 4), pop(&other, 3)), (Ok(20), Ok(30)));
        let wrong = Err(Code::INVALID_PARAMETER);
        assert_eq!((push(&client, 0, 1), push(&client, 6, 1)), (wrong, wrong));
    }
}
