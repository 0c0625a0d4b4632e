//! What is open, what is decided, and where to begin again.
//!
//! Invariants:
//! - random histories print their seed.

use troupemq_store::testing::Random;

use super::*;

fn half() -> Option<Seen> {
    Some(Seen::default())
}

fn copy(key: &str) -> Option<Seen> {
    Some(Seen { copy_of: Some(Text::from(key)), ..Seen::default() })
}

#[test]
fn the_first_decision_wins() {
    let mut halves = Halves::default();
    halves.read(0, half());
    assert!(halves.begin(0));
    assert!(!halves.begin(0), "it is being decided");
    halves.undecided(0);
    assert!(halves.begin(0));
    halves.done(0, [0]);
    assert_eq!(halves.current(0, "a"), None);
    assert!(!halves.begin(0));
}

#[test]
fn a_late_answer_to_the_first_half_decides_its_copy() {
    let mut halves = Halves::default();
    halves.read(0, half());
    halves.read(1, copy("a"));
    halves.done(0, [0]);
    assert_eq!(halves.current(0, "a"), Some(1));
    assert_eq!(halves.current(0, "b"), None);
    assert!(halves.begin(1));
    halves.read(2, copy("a"));
    halves.done(1, [1]);
    assert_eq!(halves.current(0, "a"), Some(2));
    halves.done(2, [2]);
    assert_eq!(halves.current(0, "a"), None);
}

/// Found by reading: power was lost between a copy and its op message.
#[test]
fn a_half_message_for_which_a_copy_stands_is_not_open_and_named_if_nobody_has() {
    let copy_instead_of = |old| Some(Seen { instead_of: Some(old), ..copy("a").unwrap() });
    for (named, unnamed) in [(vec![], vec![0, 1]), (vec![0], vec![1]), (vec![0, 1], vec![])] {
        let mut halves = Halves::default();
        halves.read(0, half());
        halves.read(1, copy_instead_of(0));
        halves.read(2, copy_instead_of(1));
        // No half message stands for itself or for one that comes.
        halves.read(3, copy_instead_of(3));
        halves.read(4, copy_instead_of(5));
        halves.done(0, named);
        assert_eq!(halves.idle_from(0).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(halves.all_read().into_iter().collect::<Vec<_>>(), unnamed);
        assert!(halves.all_read().is_empty());
    }
}

#[test]
fn halves_that_came_are_open_each_of_them_and_copies_if_somebody_says_so() {
    let mut halves = Halves::from(5, 0);
    halves.came(8);
    halves.came(7);
    assert_eq!((halves.open(), halves.read_to()), (3, 8));
    assert_eq!(halves.idle_from(0).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(halves.current(4, "a"), None);
    halves.is_copy(7, Text::from("a"));
    assert_eq!(halves.current(4, "a"), Some(7));
    halves.done(0, [7]);
    halves.is_copy(7, Text::from("a"));
    assert_eq!(halves.current(4, "a"), None, "one that is done is found by nobody");
}

/// 4.13: Java moves a half message that may not be asked about yet, and op messages name its first place.
#[test]
fn an_op_that_names_the_place_before_java_moved_a_half_closes_it() {
    let mut halves = Halves::from(5, 0);
    halves.read(5, half());
    halves.read(6, Some(Seen { moved_from: Some(3), ..copy("a").unwrap() }));
    halves.done(0, [3]);
    assert_eq!((halves.open(), halves.current(3, "a")), (1, None));
}

#[test]
fn progress_stops_at_the_oldest_open_half() {
    let mut halves = Halves::default();
    (0..4).for_each(|at| halves.read(at, half()));
    halves.done(0, [2]);
    halves.done(1, [0]);
    assert_eq!(halves.progress(), (1, 0));
    (2..256).for_each(|op| halves.done(op, []));
    halves.done(256, [1]);
    assert_eq!(halves.progress(), (3, 257), "every op names halves below");
    halves.read(4, half());
    halves.done(600, [4]);
    assert_eq!(halves.progress(), (3, 512), "the op of a half that is ahead is read again");
    halves.done(601, [3]);
    assert_eq!((halves.progress(), halves.open()), ((5, 602), 0));
}

#[test]
fn many_open_halves_cost_bits_and_few_of_their_copies_a_name() {
    let mut halves = Halves::default();
    let count = 1_000_000_i64;
    (0..count).for_each(|at| halves.read(at, copy(&format!("k{at}"))));
    assert_eq!(halves.open(), 1_000_000);
    assert_eq!((halves.copies.len(), halves.keys.len()), (COPIES_MAX, COPIES_MAX));
    assert_eq!(halves.current(-1, "k0"), Some(0));
    assert_eq!(halves.current(-1, "k999999"), None, "it is beyond the limit and only found by its own place");
    assert_eq!(halves.current(999_999, "k999999"), Some(999_999));
    (0..count).for_each(|at| halves.done(at, [at]));
    assert_eq!((halves.progress(), halves.keys.len()), ((count, count), 0));
}

#[test]
fn a_half_that_holds_up_many_that_are_done_should_move() {
    let mut halves = Halves::default();
    (0..SPAN_MIN + 10).for_each(|at| halves.read(at, half()));
    assert!(halves.move_below() < 0, "all are open: none is in the way of the others");
    (1..SPAN_MIN + 10).for_each(|at| halves.done(at, [at]));
    assert_eq!(halves.move_below(), 6);
}

#[test]
fn halves_that_were_deleted_with_their_segment_are_forgotten() {
    let mut halves = Halves::default();
    (0..100).for_each(|at| halves.read(at, half()));
    halves.forget_below(90);
    assert_eq!((halves.open(), halves.progress()), (10, (90, 0)));
    halves.forget(90);
    halves.forget_below(200);
    assert_eq!((halves.open(), halves.read_to()), (0, 200));
}

/// A transaction of the model: the copies of its half message, the newest last, and how it was decided.
struct Transaction {
    key: String,
    places: Vec<usize>,
    decided: u32,
}

/// What is stored: survives a crash as far as it was flushed.
#[derive(Clone, Default)]
struct Stored {
    /// The key of each half message and whether it is a copy.
    halves: Vec<(String, bool)>,
    /// The half messages that each op message names.
    ops: Vec<usize>,
    /// The saved progress.
    progress: (i64, i64),
}

impl Stored {
    fn reopened(&self) -> Halves {
        let mut halves = Halves::from(self.progress.0, self.progress.1);
        for (at, (key, is_copy)) in self.halves.iter().enumerate().skip(usize_of(self.progress.0)) {
            halves.read(offset(at), if *is_copy { copy(key) } else { half() });
        }
        for (at, done) in self.ops.iter().enumerate().skip(usize_of(self.progress.1)) {
            halves.done(offset(at), [offset(*done)]);
        }
        halves
    }
}

fn offset(at: usize) -> i64 {
    i64::try_from(at).unwrap()
}

fn usize_of(offset: i64) -> usize {
    usize::try_from(offset).unwrap()
}

/// Random transactions: half messages, checks that copy them, answers to any copy, once, twice or never, progress
/// that is saved now and then, orderly restarts and crashes that lose only the progress.
#[test]
fn whatever_happens_each_transaction_is_decided_at_most_once() {
    for seed in 1..300_u64 {
        let mut random = Random::seeded(seed);
        let mut roll = |sides| random.below(sides);
        let (mut stored, mut halves) = (Stored::default(), Halves::default());
        let mut all: Vec<Transaction> = Vec::new();
        for step in 0..200 {
            let context = || format!("seed {seed}, step {step}");
            match roll(8) {
                0 | 1 => {
                    let key = format!("k{}", all.len());
                    let at = stored.halves.len();
                    stored.halves.push((key.clone(), false));
                    halves.came(offset(at) + 1);
                    all.push(Transaction { key, places: vec![at], decided: 0 });
                }
                2 if !all.is_empty() => {
                    // A check: the open half message is copied, and the op message names the old one.
                    let one = roll(all.len());
                    let one = &mut all[one];
                    let last = *one.places.last().unwrap();
                    let current = halves.current(offset(last), &one.key);
                    assert_eq!(current.is_some(), one.decided == 0, "{}", context());
                    let Some(current) = current.filter(|current| halves.begin(*current)) else { continue };
                    let at = stored.halves.len();
                    stored.halves.push((one.key.clone(), true));
                    one.places.push(at);
                    halves.came(offset(at) + 1);
                    halves.is_copy(offset(at), Text::from(&*one.key));
                    halves.done(offset(stored.ops.len()), [current]);
                    stored.ops.push(usize_of(current));
                }
                3..=5 if !all.is_empty() => {
                    let one = roll(all.len());
                    let one = &mut all[one];
                    let named = one.places[roll(one.places.len())];
                    if let Some(current) = halves.current(offset(named), &one.key) {
                        assert!(halves.begin(current), "{}", context());
                        if roll(5) == 0 {
                            halves.undecided(current);
                            continue;
                        }
                        one.decided += 1;
                        halves.done(offset(stored.ops.len()), [current]);
                        stored.ops.push(usize_of(current));
                    } else {
                        assert_eq!(one.decided, 1, "{}", context());
                    }
                }
                6 => stored.progress = halves.progress(),
                _ => {
                    if roll(2) == 0 {
                        stored.progress = halves.progress();
                    }
                    halves = stored.reopened();
                }
            }
            assert!(all.iter().all(|one| one.decided <= 1), "{}", context());
            let open = all.iter().filter(|one| one.decided == 0).count();
            assert_eq!(halves.open(), open, "{}", context());
        }
    }
}
