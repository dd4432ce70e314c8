//! Reads a list of events on several threads, block by block.
//!
//! The calling thread cuts the list into blocks and appends the parsed blocks in the order of the file. The first block begins
//! with an element. If a block is whole elements, each followed by a comma, the next block begins with an element too. At the
//! first other block, parallel reading stops: that block and all later bytes are put back and read on one thread, so errors and
//! notes are the same.

#[cfg(test)]
mod tests;

use super::blocks::{BlockReader, ListBlock};
use super::list::EventList;
use super::source::ValueReader;
use crate::analysis::json_reader::Json;
use kineto_base::channel::{Receiver, Sender, channel};
use kineto_base::os::thread::spawn_scoped;
use std::io::Read;
use std::num::NonZero;
use std::thread::{self, Scope};

/// On how many threads a list is parsed, and in which blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parallelism {
    threads: usize,
    /// The size of a block in bytes.
    block: usize,
}

/// The size of a block in bytes: enough to make its hand-over cheap, and little enough for a processor's cache.
const BLOCK: usize = 1 << 20;

/// More threads would wait for the one that reads.
const MAX_THREADS: usize = 8;

/// How many blocks are in flight for each thread: one being parsed and one waiting.
const BLOCKS_PER_THREAD: usize = 2;

impl Parallelism {
    /// Returns what suits this machine; `None` if it has one processor, or if the platform has no threads.
    pub(super) fn of_machine() -> Option<Parallelism> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        (threads > 1).then_some(Parallelism { threads, block: BLOCK })
    }
}

/// Reads elements of a list up to its end, or up to a part that must be read on one thread; the source is then before an
/// element. Returns whether the list has ended.
pub(super) fn read_blocks<R: Read>(
    list: &mut EventList,
    source: &mut ValueReader<R>,
    parallelism: Parallelism,
) -> bool {
    source.with_input(|input| {
        let mut reader = BlockReader::new(input, parallelism.block);
        let Some(first) = reader.next_block() else {
            reader.put_back(Vec::new());
            return false;
        };
        if reader.is_over() {
            // A small file.
            reader.put_back(first.text);
            return false;
        }
        thread::scope(|scope| {
            let parsers: Vec<Parser> = (0..parallelism.threads).map_while(|_| Parser::start(scope)).collect();
            append_blocks(list, reader, first, &parsers)
        })
    })
}

/// Parses the blocks and appends what they contain; returns whether the list has ended.
fn append_blocks<R: Read>(
    list: &mut EventList,
    mut reader: BlockReader<'_, R>,
    first: ListBlock,
    parsers: &[Parser],
) -> bool {
    if parsers.is_empty() {
        reader.put_back(first.text);
        return false;
    }
    // Blocks go to the parsers round-robin, so receiving round-robin keeps their order.
    let (mut to, mut from) = (parsers.iter().cycle(), parsers.iter().cycle());
    let (mut next, mut waiting) = (Some(first), 0);
    let (mut has_ended, mut left) = (false, Vec::new());
    loop {
        while waiting < parsers.len() * BLOCKS_PER_THREAD
            && let Some(block) = next.take().or_else(|| reader.next_block())
        {
            if let Some(parser) = to.next() {
                parser.send(block);
                waiting += 1;
            }
        }
        if waiting == 0 {
            break;
        }
        let received = from.next().and_then(Parser::receive);
        waiting -= 1;
        let Some(mut parsed) = received else { break };
        let is_appended = parsed.end != BlockEnd::Unparsed && list.append(parsed.list);
        match parsed.end {
            BlockEnd::Whole if is_appended => reader.reuse(parsed.block),
            BlockEnd::List(at) if is_appended => {
                (has_ended, left) = (true, parsed.block.text.split_off(at));
                reader.reuse(parsed.block);
                break;
            }
            _ => {
                left = parsed.block.text;
                break;
            }
        }
    }
    for parsed in from.take(waiting).filter_map(Parser::receive) {
        left.extend(parsed.block.text);
    }
    reader.put_back(left);
    has_ended
}

/// A thread that parses blocks, one after another, until this is dropped.
struct Parser {
    blocks: Sender<ListBlock>,
    parsed: Receiver<ParsedBlock>,
}

/// What a block contains.
struct ParsedBlock {
    block: ListBlock,
    list: EventList,
    end: BlockEnd,
}

/// Where the elements of a block end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockEnd {
    /// At its last byte, after a comma.
    Whole,
    /// At the list's end; the number of bytes up to there.
    List(usize),
    /// At something that only reading on one thread handles.
    Unparsed,
}

impl Parser {
    /// Starts a thread; `None` if that is not possible.
    fn start<'s>(scope: &'s Scope<'s, '_>) -> Option<Parser> {
        let (blocks, received) = channel::<ListBlock>();
        let (results, parsed) = channel();
        let work = move || {
            // Sending fails once the caller appends nothing more.
            while let Ok(block) = received.recv()
                && results.send(parse_block(block)).is_ok()
            {}
        };
        let thread = spawn_scoped(scope, "kineto-parse", Box::new(work));
        thread.is_ok().then_some(Parser { blocks, parsed })
    }

    fn send(&self, block: ListBlock) {
        // A thread that panicked makes its scope panic.
        let _ = self.blocks.send(block);
    }

    fn receive(&self) -> Option<ParsedBlock> {
        self.parsed.recv().ok()
    }
}

fn parse_block(block: ListBlock) -> ParsedBlock {
    let mut list = EventList::default();
    let end = parse_elements(&mut Json::new(&block.text, block.offset), &mut list);
    ParsedBlock { block, list, end }
}

/// Parses elements that are objects.
fn parse_elements(json: &mut Json<'_>, list: &mut EventList) -> BlockEnd {
    loop {
        if !json.is_object() || list.read_element(json).is_err() {
            return BlockEnd::Unparsed;
        }
        match json.take_byte() {
            Some(b',') if json.is_at_end() => return BlockEnd::Whole,
            Some(b',') => {}
            Some(b']') => return BlockEnd::List(json.position()),
            _ => return BlockEnd::Unparsed,
        }
    }
}
