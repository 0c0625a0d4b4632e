//! `InOrder`: what is made ready side by side goes on in the order in which it came, group by group. Plain state.
//!
//! Invariants:
//! - of one group nothing goes on before what came before it, whatever each of them has to wait for;
//! - groups do not wait for each other;
//! - a group of which nothing is awaited takes no room. How much is awaited is bounded by who asks for turns.

use std::collections::{HashMap, VecDeque};

use troupemq_codec::Text;

/// The turn of a piece within its group.
pub(super) type Turn = usize;

/// Pieces that are awaited, or wait for one that came before them.
#[derive(Debug)]
pub(super) struct InOrder<T> {
    lines: HashMap<Text, Line<T>>,
}

/// The pieces of one group: those that went on, and behind them those that are there already, or not yet.
#[derive(Debug)]
struct Line<T> {
    gone: Turn,
    pieces: VecDeque<Option<T>>,
}

impl<T> Default for InOrder<T> {
    fn default() -> InOrder<T> {
        InOrder { lines: HashMap::new() }
    }
}

impl<T> InOrder<T> {
    /// Whether a piece of the group is awaited.
    pub(super) fn has(&self, group: &Text) -> bool {
        self.lines.contains_key(group)
    }

    /// The turn of a piece that is awaited from now on.
    pub(super) fn turn(&mut self, group: &Text) -> Turn {
        let line = self.lines.entry(group.clone());
        let line = line.or_insert_with(|| Line { gone: 0, pieces: VecDeque::new() });
        line.pieces.push_back(None);
        line.gone + line.pieces.len() - 1
    }

    /// A piece that was awaited is there: what goes on now, in its order.
    pub(super) fn ready(&mut self, group: &Text, turn: Turn, piece: T) -> Vec<T> {
        let Some(line) = self.lines.get_mut(group) else { return Vec::new() };
        if let Some(place) = turn.checked_sub(line.gone).and_then(|at| line.pieces.get_mut(at)) {
            *place = Some(piece);
        }
        let count = line.pieces.iter().take_while(|piece| piece.is_some()).count();
        line.gone += count;
        let going = line.pieces.drain(..count).flatten().collect();
        if line.pieces.is_empty() {
            self.lines.remove(group);
        }
        going
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order in which four pieces of one group can become ready.
    #[test]
    fn whatever_is_ready_first_goes_on_in_the_order_in_which_it_came() {
        let group = Text::from("g");
        for order in (0..256).map(|code: usize| [0, 2, 4, 6].map(|shift| (code >> shift) & 3)) {
            let mut sorted = order;
            sorted.sort_unstable();
            if sorted != [0, 1, 2, 3] {
                continue;
            }
            let mut waiting = InOrder::default();
            let turns = [0, 1, 2, 3].map(|_| waiting.turn(&group));
            let mut gone = Vec::new();
            for (step, at) in order.into_iter().enumerate() {
                gone.extend(waiting.ready(&group, turns[at], at));
                let done = &order[..=step];
                let wanted = (0..4).take_while(|at| done.contains(at)).count();
                assert_eq!(gone, (0..wanted).collect::<Vec<_>>(), "{order:?} after {done:?}");
            }
            assert!(waiting.lines.is_empty(), "nothing is awaited any more");
        }
    }

    #[test]
    fn groups_do_not_wait_for_each_other_and_one_goes_on_behind_what_went_on() {
        let (slow, fast) = (Text::from("slow"), Text::from("fast"));
        let mut waiting = InOrder::default();
        let held = waiting.turn(&slow);
        assert!(waiting.has(&slow) && !waiting.has(&fast));
        for piece in 0..3 {
            let turn = waiting.turn(&fast);
            assert_eq!(waiting.ready(&fast, turn, piece), [piece]);
        }
        let behind = waiting.turn(&slow);
        assert!(waiting.ready(&slow, behind, 8).is_empty());
        assert_eq!(waiting.ready(&slow, held, 7), [7, 8]);
        let (one, other) = (waiting.turn(&slow), waiting.turn(&slow));
        assert_eq!(waiting.ready(&slow, one, 9), [9]);
        assert_eq!(waiting.ready(&slow, other, 10), [10]);
        assert!(waiting.lines.is_empty());
    }
}
