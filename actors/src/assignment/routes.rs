//! The queues that topics have on other brokers, as a name server last said.
//!
//! Invariants:
//! - plain state: time is an argument;
//! - a topic that no name server knows is not remembered: it may be made the next moment.

use std::collections::HashMap;

use troupemq_codec::Text;
use troupemq_codec::route::TopicRouteData;
use troupemq_codec::topic::{MessageQueue, PERM_READ};

use super::Known;

#[derive(Debug)]
struct Route {
    queues: Vec<MessageQueue>,
    learned_ms: i64,
    asked_ms: i64,
}

/// What is remembered.
#[derive(Debug)]
pub(super) struct Routes {
    max: usize,
    known: HashMap<Text, Route>,
}

impl Routes {
    /// Nothing, and room for `max` topics.
    pub(super) fn new(max: usize) -> Routes {
        Routes { max, known: HashMap::new() }
    }

    /// The queues of a topic.
    pub(super) fn of(&mut self, topic: &str, age_max_ms: i64, now_ms: i64) -> Known {
        let Some(route) = self.known.get_mut(topic) else { return Known::Unknown };
        route.asked_ms = now_ms;
        let queues = route.queues.clone();
        if now_ms - route.learned_ms < age_max_ms { Known::Fresh(queues) } else { Known::Old(queues) }
    }

    /// A name server said so.
    pub(super) fn learn(&mut self, topic: Text, queues: Option<Vec<MessageQueue>>, now_ms: i64) {
        let Some(queues) = queues else {
            self.known.remove(&topic);
            return;
        };
        if self.known.len() >= self.max && !self.known.contains_key(&topic) {
            let oldest = self.known.iter().min_by_key(|(_, route)| route.asked_ms);
            if let Some(oldest) = oldest.map(|(topic, _)| topic.clone()) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(topic, Route { queues, learned_ms: now_ms, asked_ms: now_ms });
    }
}

/// The queues of a route that may be read, but for those of `own`.
pub(super) fn readable(topic: &Text, route: &TopicRouteData, own: &str) -> Vec<MessageQueue> {
    let others =
        route.queue_datas.iter().filter(|data| data.broker_name != own && data.perm & PERM_READ != 0);
    let queues = others.flat_map(|data| {
        (0..data.read_queue_nums).map(|queue_id| MessageQueue {
            topic: topic.clone(),
            broker_name: data.broker_name.clone(),
            queue_id,
        })
    });
    queues.collect()
}

#[cfg(test)]
mod tests {
    use troupemq_codec::route::QueueData;

    use super::*;

    fn data(broker: &str, perm: i32) -> QueueData {
        QueueData {
            broker_name: Text::from(broker),
            perm,
            read_queue_nums: 2,
            write_queue_nums: 3,
            topic_sys_flag: 0,
        }
    }

    #[test]
    fn queues_that_others_let_read_are_taken_from_a_route() {
        let queue_datas = vec![data("own", 6), data("a", 6), data("b", 2), data("c", 4)];
        let route = TopicRouteData { queue_datas, ..TopicRouteData::default() };
        let found = readable(&Text::from("t"), &route, "own");
        let found: Vec<_> = found.iter().map(|queue| (queue.broker_name.as_str(), queue.queue_id)).collect();
        assert_eq!(found, [("a", 0), ("a", 1), ("c", 0), ("c", 1)]);
    }

    #[test]
    fn a_route_gets_old_is_forgotten_when_the_topic_is_gone_and_leaves_for_a_newer_one() {
        let mut routes = Routes::new(2);
        let (a, b, c) = (Text::from("a"), Text::from("b"), Text::from("c"));
        assert_eq!(routes.of(&a, 30_000, 0), Known::Unknown);
        routes.learn(a.clone(), Some(Vec::new()), 0);
        assert_eq!(routes.of(&a, 30_000, 29_999), Known::Fresh(Vec::new()));
        assert_eq!(routes.of(&a, 30_000, 30_000), Known::Old(Vec::new()));
        routes.learn(b.clone(), Some(Vec::new()), 30_001);
        routes.learn(c.clone(), Some(Vec::new()), 30_002);
        assert_eq!(routes.of(&a, 30_000, 30_003), Known::Unknown, "it was asked for longest ago");
        routes.learn(b.clone(), None, 30_004);
        assert_eq!(routes.of(&b, 30_000, 30_004), Known::Unknown);
        assert_eq!(routes.of(&c, 30_000, 30_004), Known::Fresh(Vec::new()));
    }
}
